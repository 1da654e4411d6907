#if 0 /* A whole program. cc hello.c $(pkg-config --cflags --libs standpipe); standpipe run -n 2 -- ./a.out */
#include <standpipe.h>
#include <stdio.h>

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, sp_error_text());
    return 1;
}

int main(void) {
    sp_node *node;
    sp_remote box, theirs;
    void *here;
    char name[32];

    if (sp_open(NULL, &node)) return failed("sp_open");
    unsigned rank = sp_rank(node), right = (rank + 1) % sp_size(node);

    /* 64 bytes that peers reach; `here` is where they lie in this process, `box` is how peers name them. */
    if (sp_alloc(node, 64, &box, &here)) return failed("sp_alloc");
    snprintf(name, sizeof name, "box of %u", rank);
    if (sp_publish(node, name, &box, sizeof box)) return failed("sp_publish");

    /* The box of the next rank: wait until it is published, at most 10 s. */
    snprintf(name, sizeof name, "box of %u", right);
    if (sp_lookup_wait(node, name, 10 * SP_SECOND, &theirs, sizeof theirs, NULL)) return failed("sp_lookup_wait");

    /* Put a line there. It takes no part of the peer's time, and is there when sp_put returns. */
    char line[64];
    int len = snprintf(line, sizeof line, "hello from %u", rank) + 1;
    if (sp_put(node, theirs, line, (size_t)len)) return failed("sp_put");

    if (sp_barrier(node)) return failed("sp_barrier"); /* all have put */
    printf("%u: %s\n", rank, (char *)here);
    return sp_close(node, 10 * SP_SECOND) ? failed("sp_close") : 0;
}
#endif

/* standpipe.h: put to and get from any address of any peer, one-sided and zero-copy, without registering memory.
 *
 * How to read this file
 *
 *   - A function returns 0 (SP_OK), or one of the negative SP_ERR_ numbers. Those that say so return a count or
 *     1 (yes) and 0 (no) instead. sp_error_text() says in words, with all values, what went wrong last in this
 *     thread. Outputs come last, and are written only where the function says.
 *   - [any thread]: any thread may call it at any time, also together with others. [one thread]: one at a time for
 *     the same handle.
 *   - [returns at once]: it never waits for a peer, and may be called in handlers. [waits]: it may wait for peers;
 *     meanwhile it makes progress: it serves peers and runs handlers. Called in a handler where it would have to
 *     wait, it returns SP_ERR_IN_HANDLER. No call waits longer than the node's timeout: STANDPIPE_TIMEOUT_MS or
 *     sp_within; without either, as long as it takes. The loss of a peer that it waits for ends it. Where it waits for
 *     anybody (sp_wait_until, sp_lookup_wait, a signal without a sender), only the timeout does.
 *   - Times are nanoseconds; SP_FOREVER waits as long as it takes, 0 does not wait.
 *   - Handles are opaque. The function that frees one says so. A function takes NULL, or a handle of another kind,
 *     for SP_ERR_ARGUMENT; only a freed handle must not be used again. Compiled with optimization, sp_put_u64,
 *     sp_get_u64 and sp_fetch_add_u64 look at nothing of that. errno is left as it was.
 *   - Memory that you name stays yours. It has to stay valid until the operation has ended, as each function says.
 *     A wrong address of a peer's is an error, SP_ERR_FAULT; the peer is unharmed. A wrong pointer of your own is
 *     SP_ERR_LOCAL_FAULT where the kernel copies, and ends the program where the library does, as memcpy would.
 *   - Structs of parameters begin with their size: set it to sizeof. Later versions add fields at the end; 0 in a
 *     field is its default.
 *
 * Contents: 1 errors, 2 settings, 3 the node, 4 memory and addresses, 5 put and get, 6 completion, 7 meeting,
 * 8 signals and atomics, 9 messages, 10 teams, 11 grants, 12 figures. The simple part of each comes first.
 * docs/C.md is the guide, docs/ERRORS.md has each error with its remedy.
 */
#ifndef STANDPIPE_H
#define STANDPIPE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SP_VERSION_MAJOR 0
#define SP_VERSION_MINOR 2
#define SP_VERSION_PATCH 0
/* The version of this header: major * 1000000 + minor * 1000 + patch. */
#define SP_VERSION (SP_VERSION_MAJOR * 1000000 + SP_VERSION_MINOR * 1000 + SP_VERSION_PATCH)

#define SP_SECOND 1000000000ull
#define SP_FOREVER UINT64_MAX

typedef struct sp_config sp_config;     /* settings */
typedef struct sp_node sp_node;         /* this process's part in a job */
typedef struct sp_event sp_event;       /* one operation under way */
typedef struct sp_queue sp_queue;       /* many operations under way, which says which have ended */
typedef struct sp_team sp_team;         /* some ranks, and their collectives */
typedef struct sp_grant sp_grant;       /* a right to memory, which can be taken back */
typedef struct sp_exposed sp_exposed;   /* memory that peers reach by its address */
typedef struct sp_pin sp_pin;           /* memory that stays pinned */
typedef struct sp_payload sp_payload;   /* a message's payload that is kept */
typedef struct sp_prepared sp_prepared; /* room for a payload that is to be sent */
typedef struct sp_rendezvous sp_rendezvous; /* where nodes that nobody launched find each other */

/* ==== 1 Errors ================================================================================================= */

/* Negative, stable, never used twice: the same numbers as Code in Rust, and as docs/ERRORS.md lists. */
enum sp_status {
    SP_OK = 0,
    SP_ERR_PEER_LOST = -1,         /* the peer's process is gone, or has left */
    SP_ERR_TIMEOUT = -2,           /* the time has passed; the same call may succeed later */
    SP_ERR_CLOSED = -3,            /* this node has closed */
    SP_ERR_FORKED = -4,            /* this process is a child made by fork, the node its parent's */
    SP_ERR_IN_HANDLER = -5,        /* the call may wait, and a handler must not */
    SP_ERR_FAULT = -6,             /* the peer has no accessible memory there */
    SP_ERR_NOT_EXPOSED = -7,       /* the peer does not expose that memory, or not for that */
    SP_ERR_LOCAL_FAULT = -8,       /* the operation's own local memory is not accessible */
    SP_ERR_NO_SUCH_PEER = -9,      /* there is no peer of that number, or member of the team */
    SP_ERR_LENGTH = -10,           /* two lengths differ that must not, or one is more than there can be */
    SP_ERR_UNALIGNED = -11,        /* an atomic's word does not lie at a multiple of its size */
    SP_ERR_OVERLAP = -12,          /* blocks that are written lie over one another */
    SP_ERR_ELSEWHERE = -13,        /* memory of another rank or node was named than it has to be */
    SP_ERR_NO_REPLY_DUE = -14,     /* a handler replied twice, or to a reply */
    SP_ERR_HANDLERS_DIFFER = -15,  /* the peer has another handler of the same number */
    SP_ERR_PROTOCOL = -16,         /* the other side sent, or shares, what no correct one does */
    SP_ERR_TEAM_OVER = -17,        /* the team's collectives are over */
    SP_ERR_UNREACHABLE = -18,      /* no way to the peer could be used */
    SP_ERR_NO_ROOM = -19,          /* a table, heap or budget is full */
    SP_ERR_NO_MEMORY = -20,        /* the system has no memory for it */
    SP_ERR_SETTING = -21,          /* a setting's value cannot be used */
    SP_ERR_NAME = -22,             /* a name or value is not as long as one may be, or is no name */
    SP_ERR_TAKEN = -23,            /* somebody else has that name or place */
    SP_ERR_ADDRESS = -24,          /* the bytes are no node's address, or one that cannot be called */
    SP_ERR_NOT_LISTENING = -25,    /* the node listens nowhere, or cannot listen where it is to */
    SP_ERR_IN_JOB = -26,           /* a launched job's node has no peers from outside */
    SP_ERR_NO_NETWORK = -27,       /* there is no network to be had, or none that can do it */
    SP_ERR_REFUSED = -28,          /* the other side does not want this process */
    SP_ERR_JOIN = -29,             /* this process could not join its job */
    SP_ERR_NOT_FOUND = -30,        /* there is no such name, program or file */
    SP_ERR_DENIED = -31,           /* the system, or another user's process, does not allow it */
    SP_ERR_SYSTEM = -32,           /* the system refused something else */
    SP_ERR_FAILED = -33,           /* something that had been started before has failed */
    SP_ERR_CANCELLED = -34,        /* the program gave the operation up */
    SP_ERR_NOT_CONNECTED = -35,    /* there has been no contact with the peer, which a call that never waits needs */
    SP_ERR_NO_SUCH_HANDLER = -36,  /* the peer has no such handler */
    SP_ERR_NOT_OFFERED = -37,      /* the node has nothing of the kind */
    SP_ERR_NO_SUCH_OPERATION = -38, /* there is no such operation on values of that type */
    SP_ERR_PANICKED = -39,         /* a function of the program's, or the library, broke off */
    SP_ERR_REVOKED = -40,          /* there is no such grant: it was revoked, or never was */
    SP_ERR_IN_USE = -41,           /* somebody still uses it */
    SP_ERR_ARGUMENT = -42,         /* an argument is none that the call takes: NULL, a handle of another kind */
    SP_ERR_INTERRUPTED = -43       /* the program's own hook ended the wait */
};

/* What went wrong last in this thread. Fields that the error does not have are 0. */
typedef struct sp_error {
    size_t size;        /* sizeof(sp_error), set by the caller */
    int32_t status;     /* SP_ERR_..., or 0 where nothing has gone wrong yet */
    uint32_t peer;      /* the rank that it was with; UINT32_MAX: it is about no one peer */
    uint64_t addr;      /* where: an address, or an offset in the heap or grant */
    uint64_t len;       /* how many bytes from there on */
    uint64_t given;     /* a number that was given, */
    uint64_t expected;  /* and the one that would have been right, or the most there can be */
    uint32_t memory;    /* SP_PRIVATE, SP_HEAP or SP_GRANTED: which memory of the peer's */
    uint32_t rights;    /* the access that was wanted: SP_READ, SP_WRITE */
    char text[512];     /* all of it in words, ending with a zero byte */
} sp_error;

/* The words for the last error in this thread; "" where there was none. The text is this thread's and stays as it
 * is until its next error. Never NULL. [any thread; returns at once] */
const char *sp_error_text(void);

/* Copies the last error of this thread to *error, as many bytes as its size says. A call that succeeds leaves the
 * last error as it was. Returns its status, or SP_ERR_ARGUMENT. [any thread; returns at once] */
int sp_last_error(sp_error *error);

/* A status's name and when it is given, for any number: "peer-lost: The peer's process is gone, or has left." A
 * constant. [any thread; returns at once] */
const char *sp_strerror(int status);

/* The version of the library that runs: at least SP_VERSION of the header that the program was compiled with.
 * [any thread; returns at once] */
uint32_t sp_version(void);

/* ==== 2 Settings =============================================================================================== */

/* Settings from the environment, STANDPIPE_...: docs/SETTINGS.md lists them. *config is yours: sp_open takes it, or
 * sp_config_free frees it. SP_ERR_SETTING names a variable that cannot be used. [any thread; returns at once] */
int sp_config_new(sp_config **config);

/* Settings as they are without any environment variable; as sp_config_new. */
int sp_config_defaults(sp_config **config);

/* Sets what an environment variable would: sp_config_set(config, "STANDPIPE_HEAP", "1G"). SP_ERR_SETTING says which
 * values there are, or which name is near. [one thread; returns at once] */
int sp_config_set(sp_config *config, const char *name, const char *value);

/* What a setting is, as text with a zero byte. *len, unless NULL, is its length without that. SP_ERR_LENGTH where
 * `room` is too small, SP_ERR_NOT_FOUND where it is not set. [one thread; returns at once] */
int sp_config_get(const sp_config *config, const char *name, char *into, size_t room, size_t *len);

/* Frees settings that were not given to sp_open. NULL is fine. [one thread; returns at once] */
void sp_config_free(sp_config *config);

/* ==== 3 The node =============================================================================================== */

/* Opens this process's node: joins the job that `standpipe run`, mpirun, mpiexec, srun or torchrun started it in,
 * or makes a job of one. `config` NULL: settings of the environment. Settings that are given are freed, whatever
 * the outcome. *node is yours until sp_close. Waits for other ranks only under other launchers than ours.
 * [any thread, not in handlers] */
int sp_open(sp_config *config, sp_node **node);

/* Each has the number of the layout that this header's inline functions rely on, times 256: a library of another one
 * refuses to open. */
enum sp_open_as {
    SP_OWN = 256,    /* as sp_open */
    SP_SHARED = 257, /* the node that all libraries of this process share: the first call opens it, later ones get another
                      handle, each with handlers, sp_quiet and failures of its own. Settings that differ from the first
                      one's are SP_ERR_SETTING */
    SP_ALONE = 258   /* one that no launcher knows of: a job of one, which meets others by sp_connect_to. A process may have
                      several */
};

/* As sp_open, in one of those ways. */
int sp_open_as(sp_config *config, int as, sp_node **node);

/* Leaves the job, waits at most so long for all that this node has started, and frees the handle. Handlers of messages
 * that have come run first, if there is time. Whatever it returns, except SP_ERR_IN_HANDLER, the node has closed, and
 * calls that other threads are in end with SP_ERR_CLOSED. So does, for as long as the process runs, each later call with
 * this handle. [any thread; waits] */
int sp_close(sp_node *node, uint64_t within);

/* This process's number in its job, and how many there are. Outside a job 0 and 1. UINT32_MAX and 0 for a bad
 * handle. [any thread; returns at once] */
uint32_t sp_rank(const sp_node *node);
uint32_t sp_size(const sp_node *node);

/* Waits until all ranks have called it. [any thread, one at a time; waits] */
int sp_barrier(sp_node *node);

/* Makes progress: serves peers and runs at most one handler. Returns 1 where anything moved, 0 where nothing did, or
 * an error. Programs need it only with STANDPIPE_PROGRESS=off, or to be quicker than the library's own thread.
 * [any thread; returns at once] */
int sp_progress(sp_node *node);

/* Waits until condition(context) is not 0. It is asked after each message, in this thread, and between them now and
 * then; sp_wake has it asked at once. [any thread; waits] */
int sp_wait_until(sp_node *node, int (*condition)(void *context), void *context);

/* Has all threads of this process that wait for this node look again. Also for signal handlers.
 * [any thread; returns at once] */
int sp_wake(sp_node *node);

/* Another handle on the same node, whose calls wait at most so long; sp_release frees it. SP_FOREVER: without a
 * limit. [any thread; returns at once] */
int sp_within(sp_node *node, uint64_t timeout, sp_node **limited);

/* Frees a handle that sp_within or sp_call_node made, and no other. NULL is fine. The node goes on. [one thread; returns at once] */
void sp_release(sp_node *node);

/* From now on waits of this process's calls ask interrupted(context) now and then, at least each 100 ms; where it
 * returns not 0, the wait ends with SP_ERR_INTERRUPTED, as at a deadline. NULL ends that. For interpreters that look at
 * signals this way. It runs in the thread that waits, and must not call the library. [any thread; returns at once] */
int sp_on_wait(int (*interrupted)(void *context), void *context);

/* ==== 4 Memory and addresses ==================================================================================== */

/* How a byte of a peer is named: plain data, to be copied, sent and published. */
typedef struct sp_remote {
    uint32_t peer;   /* whose it is: the number that this node has for the peer */
    uint32_t memory; /* SP_PRIVATE, SP_HEAP, or that of a grant, of which only the lower 2 bits are SP_GRANTED */
    uint64_t at;     /* the address there, or the offset in the heap or grant */
} sp_remote;

enum sp_memory { SP_PRIVATE = 0, SP_HEAP = 1, SP_GRANTED = 3 };

/* Make them as you like: {peer, SP_HEAP, offset}, or {peer, SP_PRIVATE, address} for any pointer of the peer's. Which
 * memory peers may reach so, docs/SECURITY.md says; in a launched job it is all. sp_granted makes those of grants.
 *
 * sp_plus: the byte so many bytes further on. It stays at the end of the addresses, where every access is a fault, and
 * within its grant. [any thread; returns at once] */
sp_remote sp_plus(sp_remote from, uint64_t bytes);

/* Allocates bytes of this node's heap, which near peers have mapped: a put there is a store. They are zero, and
 * aligned to 64; to make them zero takes their memory at once (sp_alloc_with: `unzeroed` does not). *at is how peers
 * name the first, *here where it lies in this process; either may be NULL.
 * SP_ERR_NO_ROOM: set STANDPIPE_HEAP to more. [any thread; returns at once] */
int sp_alloc(sp_node *node, size_t bytes, sp_remote *at, void **here);

typedef struct sp_alloc_params {
    size_t size;      /* sizeof(sp_alloc_params) */
    size_t align;     /* a power of two; 0: 64 */
    int32_t huge;     /* not 0: on pages of 2 MiB of its own */
    int32_t unzeroed; /* not 0: the bytes may be anything */
} sp_alloc_params;

/* As sp_alloc, in another way. */
int sp_alloc_with(sp_node *node, size_t bytes, const sp_alloc_params *params, sp_remote *at, void **here);

/* Gives bytes back that sp_alloc gave: the first one's name. Peers must not use them any more.
 * [any thread; returns at once] */
int sp_free(sp_node *node, sp_remote at);

/* How peers name a byte of this node's heap. SP_ERR_ELSEWHERE: it does not lie there.
 * [any thread; returns at once] */
int sp_name_of(sp_node *node, const void *here, sp_remote *at);

/* Where memory of a near peer's heap is mapped in this process: it may be read and written there, as memory that
 * threads share. *here is NULL where the peer is not near. It stays mapped as long as the node is open.
 * [any thread; waits at first contact] */
int sp_local(sp_node *node, sp_remote at, size_t bytes, void **here);

/* Bytes that the heap may have, and that are in memory now. [any thread; returns at once] */
int sp_heap_size(sp_node *node, uint64_t *bytes, uint64_t *resident);

/* ==== 5 Put and get ============================================================================================= */

/* Copies `len` bytes to or from a peer. When it returns SP_OK, they are there, or here. After another status some may
 * have been copied. [any thread; waits where the bytes go by message] */
int sp_put(sp_node *node, sp_remote to, const void *from, size_t len);
int sp_get(sp_node *node, sp_remote from, void *into, size_t len);

/* One value of 8 bytes, in heaps mapped here by one store or load of the processor's. As sp_put and sp_get. */
int sp_put_u64(sp_node *node, sp_remote to, uint64_t value);
int sp_get_u64(sp_node *node, sp_remote from, uint64_t *value);

/* Start a copy. *event is yours: wait for it, queue it or forget it (6). The local bytes must stay valid and, of a get,
 * untouched until it has ended; of a put sp_event_wait_local tells when they may change. Failures show in the event.
 * Within a host the call makes the copy itself, unless STANDPIPE_COPIERS has other threads make the large ones.
 * [any thread; returns at once, except first contact with the peer] */
int sp_put_nb(sp_node *node, sp_remote to, const void *from, size_t len, sp_event **event);
int sp_get_nb(sp_node *node, sp_remote from, void *into, size_t len, sp_event **event);

/* Copy and forget: sp_quiet says when all are there, and whether one failed; of a failure that is known at once this
 * tells, and sp_quiet does not. A put's bytes may change at return; those
 * of a get must stay valid until sp_quiet. [any thread; returns at once, except first contact with the peer] */
int sp_put_nbi(sp_node *node, sp_remote to, const void *from, size_t len);
int sp_get_nbi(sp_node *node, sp_remote from, void *into, size_t len);

/* One piece of a list: bytes here, and bytes of any peer. */
typedef struct sp_piece {
    sp_remote there;
    void *here;   /* of a put it is only read */
    size_t len;
} sp_piece;

/* Many pieces in one call, of any peers: those of one peer that follow each other take one system call for each 1,024,
 * and none in heaps mapped here. As sp_put and its kin. Of one with an event all pieces are of one peer. */
int sp_put_list(sp_node *node, const sp_piece *pieces, size_t count);
int sp_get_list(sp_node *node, const sp_piece *pieces, size_t count);
int sp_put_list_nb(sp_node *node, const sp_piece *pieces, size_t count, sp_event **event);
int sp_get_list_nb(sp_node *node, const sp_piece *pieces, size_t count, sp_event **event);

/* Blocks at fixed distances, in any number of dimensions, the first of which varies fastest: counts[d] blocks along
 * dimension d, their starts so many bytes apart there and here. Distances may be negative; of a put those here may
 * be 0. */
typedef struct sp_strided {
    size_t size;                   /* sizeof(sp_strided) */
    size_t block;                  /* bytes of a block */
    size_t dimensions;             /* entries in each of these: */
    const size_t *counts;
    const int64_t *remote_strides;
    const int64_t *local_strides;
} sp_strided;

/* Blocks as sp_strided says; the first one begins at the place and pointer that are given. As sp_put and its kin; of
 * those with an event the arrays may go at return. */
int sp_put_strided(sp_node *node, sp_remote to, const void *from, const sp_strided *shape);
int sp_get_strided(sp_node *node, sp_remote from, void *into, const sp_strided *shape);
int sp_put_strided_nb(sp_node *node, sp_remote to, const void *from, const sp_strided *shape, sp_event **event);
int sp_get_strided_nb(sp_node *node, sp_remote from, void *into, const sp_strided *shape, sp_event **event);

/* Blocks of one length at each end, anywhere: the bytes of the local ones, one after the other, are those of the
 * remote ones. */
typedef struct sp_indexed {
    size_t size;                    /* sizeof(sp_indexed) */
    size_t remote_block;            /* bytes of a block there, */
    size_t remote_count;            /* how many, */
    const uint64_t *remote_offsets; /* and where each begins, in bytes from the place that is given */
    size_t local_block;             /* the same here */
    size_t local_count;
    const size_t *local_offsets;
} sp_indexed;

/* Blocks as sp_indexed says. As sp_put_strided and its kin. */
int sp_put_indexed(sp_node *node, sp_remote to, const void *from, const sp_indexed *shape);
int sp_get_indexed(sp_node *node, sp_remote from, void *into, const sp_indexed *shape);
int sp_put_indexed_nb(sp_node *node, sp_remote to, const void *from, const sp_indexed *shape, sp_event **event);
int sp_get_indexed_nb(sp_node *node, sp_remote from, void *into, const sp_indexed *shape, sp_event **event);

/* Hints: peers' memory that is to be used soon, and local memory. They fetch rights and pin ahead of need, as far as
 * the budget allows. [any thread; waits at first contact; sp_prepare returns at once] */
int sp_prefetch(sp_node *node, sp_remote at, uint64_t len);
int sp_prepare(sp_node *node, const void *memory, size_t len);

/* Keeps local memory pinned until sp_unpin, where the network wants it pinned. SP_ERR_NO_ROOM: the budget has no room.
 * sp_pin_is_held returns 1 as long as it is pinned, 0 once the memory has gone. [any thread; returns at once] */
int sp_pin_memory(sp_node *node, const void *memory, size_t len, sp_pin **pin);
int sp_pin_is_held(const sp_pin *pin);
void sp_unpin(sp_pin *pin);

/* ==== 6 Completion ============================================================================================== */

/* Waits until all that this process has started is complete at its targets, of all peers, or of one. Returns the first
 * failure of what nobody waits for. [any thread; waits] */
int sp_quiet(sp_node *node);
int sp_quiet_with(sp_node *node, uint32_t peer);

/* What was started before is there before what is started after. [any thread; waits] */
int sp_fence(sp_node *node);
int sp_fence_with(sp_node *node, uint32_t peer);

/* Tells all holders of rights to memory of this process that changed, before other channels tell peers of it
 * (docs/CHANGED-MEMORY.md). [any thread; waits] */
int sp_memory_sync(sp_node *node);

/* 1 where something that nobody waits for has failed, which sp_quiet will tell; 0 if not.
 * [any thread; returns at once] */
int sp_has_failed(const sp_node *node);

/* Events. Each stands for one operation that a function ending in _nb started. */

/* 1 once the operation has ended, 0 before. It makes progress. [one thread; returns at once] */
int sp_event_test(sp_event *event);

/* Waits until it has ended, frees the event, and returns how it ended. The local bytes are yours again, whatever it
 * returns: also after SP_ERR_TIMEOUT and SP_ERR_PEER_LOST nothing touches them any more. [one thread; waits] */
int sp_event_wait(sp_event *event);

/* As sp_event_wait, of the event of a fetching atomic, whose old value goes to *value; it is an error for others. */
int sp_event_wait_value(sp_event *event, uint64_t *value);

/* Waits at most so long. 1: it has ended, and sp_event_wait says how. 0: not yet. [one thread; waits] */
int sp_event_wait_for(sp_event *event, uint64_t time);

/* Waits until a put's local bytes may change; 1 or 0, whether they may now. The event goes on.
 * [one thread; sp_event_wait_local waits, sp_event_test_local returns at once] */
int sp_event_wait_local(sp_event *event);
int sp_event_test_local(sp_event *event);

/* Gives the operation up, waits until its local bytes are touched no more, frees the event and returns how it ended:
 * SP_ERR_CANCELLED, unless it had ended before. It may take effect at the peer until sp_quiet has returned.
 * [one thread; waits] */
int sp_event_cancel(sp_event *event);

/* Frees the event and lets the operation go on: sp_quiet tells its end, and until then the local bytes must stay valid.
 * NULL is fine. [one thread; returns at once] */
void sp_event_forget(sp_event *event);

/* Waits for all of them and frees them. Returns the first failure in their order. [one thread; waits] */
int sp_event_wait_all(sp_event **events, size_t count);

/* The peer that the operation is with; UINT32_MAX: all of a team, or a bad handle. [one thread; returns at once] */
uint32_t sp_event_peer(const sp_event *event);

/* Queues. Operations are started into one with a number of your own, the token, and come out of it as they end. */

typedef struct sp_completion {
    uint64_t token;  /* as given */
    uint64_t value;  /* of a fetching atomic, the old value; else 0 */
    int32_t status;  /* how it ended: SP_OK, or an error; sp_error_text tells of the last of those taken */
    uint32_t peer;   /* whom it was with */
} sp_completion;

/* A queue for so many operations at a time, those that have ended and have not been taken included. *queue is yours
 * until sp_queue_free. [any thread; returns at once] */
int sp_queue_new(sp_node *node, size_t capacity, sp_queue **queue);

/* As sp_put_nb and sp_get_nb; the end comes out of the queue. SP_ERR_NO_ROOM: take some first. Failures come out of the
 * queue, but for those of the arguments. [any thread; returns at once, except first contact with the peer] */
int sp_queue_put(sp_queue *queue, uint64_t token, sp_remote to, const void *from, size_t len);
int sp_queue_get(sp_queue *queue, uint64_t token, sp_remote from, void *into, size_t len);

/* Puts any event but a collective's into the queue, which owns it from now on. SP_ERR_NO_ROOM: the event is still
 * yours. [any thread; returns at once] */
int sp_queue_add(sp_queue *queue, uint64_t token, sp_event *event);

/* Takes at most `most` of those that have ended, oldest first, and returns how many, or an error. sp_queue_wait waits
 * at most so long for the first; it returns 0 at once where nothing is under way. sp_queue_take makes progress.
 * [any thread; sp_queue_take returns at once, sp_queue_wait waits] */
int sp_queue_take(sp_queue *queue, sp_completion *into, size_t most);
int sp_queue_wait(sp_queue *queue, sp_completion *into, size_t most, uint64_t time);

/* A descriptor that is readable while something may be taken: for poll and epoll, level-triggered. Take as many as you
 * have time for: it stays readable while there are more. It is the queue's: do not read or close it. Negative: an
 * error. [any thread; returns at once] */
int sp_queue_fd(const sp_queue *queue);

/* Gives up all operations of that token, or all; they come out as SP_ERR_CANCELLED. Returns how many, or an error.
 * [any thread; returns at once] */
int sp_queue_cancel(sp_queue *queue, uint64_t token);
int sp_queue_cancel_all(sp_queue *queue);

/* How many are under way or wait to be taken, or an error. [any thread; returns at once] */
int64_t sp_queue_len(const sp_queue *queue);

/* Frees the queue. What is under way goes on; sp_quiet tells its end, and until then local bytes must stay valid. NULL
 * is fine. [one thread; returns at once] */
void sp_queue_free(sp_queue *queue);

/* ==== 7 Meeting ================================================================================================= */

/* Makes contact with a peer, which else the first operation does. [any thread; waits] */
int sp_connect(sp_node *node, uint32_t peer);

enum sp_which_peers { SP_ALL_PEERS = 0, SP_NEAR_PEERS = 1, SP_LOST_PEERS = 2 };

/* The peers that there are, those on this host, or those that were lost, in rising order. At most `room` go to `into`;
 * *count is how many there are. [any thread; returns at once] */
int sp_peers(sp_node *node, int which, uint32_t *into, size_t room, size_t *count);

/* 1 or 0: whether a peer is on this host, and whether it is lost. [any thread; returns at once] */
int sp_is_near(const sp_node *node, uint32_t peer);
int sp_is_lost(const sp_node *node, uint32_t peer);

/* Which way this node takes to a peer's private memory, in a few words with the reason ("attached", "by message: the
 * kernel's ptrace rules forbid it"), with a zero byte; as sp_config_get. [any thread; returns at once] */
int sp_path_to(const sp_node *node, uint32_t peer, char *into, size_t room, size_t *len);

/* The network provider's name ("tcp", "verbs"), as sp_config_get; SP_ERR_NOT_FOUND where the node has none. */
int sp_provider(const sp_node *node, char *into, size_t room, size_t *len);

/* Values by name, for all ranks of the job: at most 255 bytes of name, 65,536 of value. sp_publish replaces an own
 * value of the name; SP_ERR_TAKEN: another rank has it. [any thread; waits] */
int sp_publish(sp_node *node, const char *name, const void *value, size_t len);

/* Takes an own name back. SP_ERR_NOT_FOUND: there is none. [any thread; waits] */
int sp_withdraw(sp_node *node, const char *name);

/* The value of a name, as sp_config_get but without a zero byte; SP_ERR_NOT_FOUND: nobody has published it. The second
 * waits at most so long for it, and then returns SP_ERR_TIMEOUT. [any thread; waits] */
int sp_lookup(sp_node *node, const char *name, void *into, size_t room, size_t *len);
int sp_lookup_wait(sp_node *node, const char *name, uint64_t within, void *into, size_t room, size_t *len);

/* For nodes that nobody launched: an address, some 100 bytes, that other processes connect to, however they get it. It
 * holds a secret that lets its holder in. As sp_lookup. [any thread; returns at once] */
int sp_address(sp_node *node, void *into, size_t room, size_t *len);

/* Connects to the node of that address. *peer is the number that this node has for it from now on. Numbers are each
 * node's own. [any thread; waits] */
int sp_connect_to(sp_node *node, const void *address, size_t len, uint32_t *peer);

/* A place where nodes leave addresses by name: `standpipe rendezvous` serves one. `at` is host:port; both NULL: those
 * of STANDPIPE_RENDEZVOUS and STANDPIPE_SECRET, and SP_ERR_NOT_FOUND where the first is not set. The secret is 64
 * hexadecimal digits. [any thread; returns at once] */
int sp_rendezvous_new(const char *at, const char *secret, sp_rendezvous **rendezvous);

/* Leaves an address under a name, takes it away, and finds one, within so long. [any thread; waits, without progress] */
int sp_rendezvous_leave(const sp_rendezvous *at, const char *name, const void *address, size_t len, uint64_t within);
int sp_rendezvous_withdraw(const sp_rendezvous *at, const char *name, const void *address, size_t len, uint64_t within);
int sp_rendezvous_find(const sp_rendezvous *at, const char *name, uint64_t within, void *into, size_t room, size_t *len);
void sp_rendezvous_free(sp_rendezvous *rendezvous);

/* ==== 8 Signals and atomics ===================================================================================== */

/* How a counter changes when a put's bytes are there: `counter` is 8 aligned bytes of the target's heap, or of what it
 * has granted. */
typedef struct sp_signal {
    sp_remote counter;
    uint64_t value;
    int32_t set; /* 0: the value is added; else the counter becomes it */
} sp_signal;

/* As sp_put, sp_put_nb and sp_put_nbi; then the counter changes, and whoever waits there sees the bytes. */
int sp_put_signal(sp_node *node, sp_remote to, const void *from, size_t len, sp_signal signal);
int sp_put_signal_nb(sp_node *node, sp_remote to, const void *from, size_t len, sp_signal signal, sp_event **event);
int sp_put_signal_nbi(sp_node *node, sp_remote to, const void *from, size_t len, sp_signal signal);

enum sp_type { SP_U8 = 1, SP_U16 = 2, SP_U32 = 3, SP_U64 = 4, SP_I8 = 5, SP_I16 = 6, SP_I32 = 7, SP_I64 = 8,
               SP_F32 = 9, SP_F64 = 10, SP_F16 = 11, SP_BF16 = 12 };
enum sp_compare { SP_EQ = 0, SP_NE = 1, SP_LT = 2, SP_LE = 3, SP_GT = 4, SP_GE = 5 };

/* A wait for a counter of this node's heap. */
typedef struct sp_wait {
    sp_remote counter; /* in this node's heap */
    int32_t type;      /* SP_U32, SP_I32, SP_U64 or SP_I64 */
    int32_t compare;   /* SP_GE and so on: how the counter has to compare with */
    uint64_t value;    /* this; of signed types its two's complement */
    uint32_t sender;   /* who is to change it, whose loss ends the wait; UINT32_MAX: anybody */
    int32_t skip;      /* not 0: this entry of a list is left out */
} sp_wait;

/* Waits, asleep after a while, until a counter has the value; *seen, unless NULL, is what it then was. sp_put_signal
 * wakes it at once; a counter that a put or an atomic has changed is looked at every 100 ms. sp_test_signal does not
 * wait: 1 or 0. [any thread; sp_wait_signal waits, sp_test_signal returns at once] */
int sp_wait_signal(sp_node *node, const sp_wait *wait, uint64_t *seen);
int sp_test_signal(sp_node *node, const sp_wait *wait, uint64_t *seen);

enum sp_how_many { SP_ANY = 0, SP_SOME = 1, SP_ALL = 2, SP_NOW = 3 };

/* Waits for one of several counters, for at least one, or for all; all are of one type. The indices of those that have
 * their values go to `met`, which has room for `count`, and *met_count is how many: of SP_ANY one, of SP_SOME all that
 * had theirs at one look. SP_NOW looks once, as SP_SOME, and does not wait. Where every entry is skipped none is met.
 * [any thread; waits] */
int sp_wait_signals(sp_node *node, const sp_wait *waits, size_t count, int how_many, size_t *met, size_t *met_count);

enum sp_op { SP_ADD = 0, SP_AND = 1, SP_OR = 2, SP_XOR = 3, SP_MIN = 4, SP_MAX = 5, SP_SWAP = 6, SP_LOAD = 7 };

/* One atomic change of an aligned word of 4 or 8 bytes in a heap or in a grant. Values are the word's bits, of words of
 * 4 bytes the lower half. *old, unless NULL, is what the word was. Floating-point words have no SP_AND, SP_OR, SP_XOR.
 * A word of a grant its owner changes. SP_LOAD needs the right to read it. A change needs the right to write it, and to
 * read it, too, where `old` is not NULL. [any thread; waits where the word's owner has to do it] */
int sp_fetch(sp_node *node, sp_remote word, int type, int op, uint64_t value, uint64_t *old);

/* Stores `replacement` if the word has `expected`; *old, unless NULL, tells. As sp_fetch. */
int sp_compare_swap(sp_node *node, sp_remote word, int type, uint64_t expected, uint64_t replacement, uint64_t *old);

/* As sp_fetch of SP_U64 and SP_ADD: in a heap mapped here by one instruction. */
int sp_fetch_add_u64(sp_node *node, sp_remote word, uint64_t value, uint64_t *old);

/* Start one, and forget it or get an event; the old value comes by sp_event_wait_value or the queue. Of a grant,
 * sp_update_nbi needs the right to write alone.
 * [any thread; returns at once, except first contact with the peer] */
int sp_update_nbi(sp_node *node, sp_remote word, int type, int op, uint64_t value);
int sp_fetch_nb(sp_node *node, sp_remote word, int type, int op, uint64_t value, sp_event **event);
int sp_compare_swap_nb(sp_node *node, sp_remote word, int type, uint64_t expected, uint64_t replacement,
                       sp_event **event);

/* ==== 9 Messages ================================================================================================ */

/* Handlers run in the process's own calls that wait or make progress, and in the library's thread: see
 * STANDPIPE_PROGRESS. Messages of one sender come in the order in which it sent them. Neither sp_quiet nor a barrier
 * waits for handlers: one that has to have run replies. To answer later, send a request of your own. */

/* A message that a handler runs for. It is valid until the handler returns. */
typedef struct sp_call {
    size_t size;          /* of this struct in the library that runs */
    uint32_t from;        /* who sent it */
    int32_t is_request;   /* not 0: it may be replied to, once */
    uint64_t args[4];
    size_t payload_len;   /* bytes of a medium message's payload; else 0 */
    sp_remote landed;     /* of a long message: where its payload lies in this process */
    uint64_t landed_len;  /* and how many bytes it has; 0: it is none */
    void *reserved;
} sp_call;

/* A handler. It runs in whichever thread makes progress, at most one at a time in a node, and holds up all others: it
 * must not wait, and calls only what [returns at once]; of sends that is sp_reply... and sp_try_.... It must return:
 * no longjmp out of it, and no C++ exception, which ends the process. */
typedef void (*sp_handler)(sp_call *call, void *context);

/* A handler's id: the hash of its namespace ("" for programs, the library's name for libraries) and name, at
 * every node. [any thread; returns at once] */
uint64_t sp_handler_id(const char *space, const char *name);

/* Registers a handler before the node opens: nobody's message comes too early. [one thread; returns at once] */
int sp_config_handler(sp_config *config, const char *name, sp_handler handler, void *context);

/* Registers a handler at any time. *id, unless NULL, is its id. SP_ERR_TAKEN: the name is registered, or one of the
 * same hash. [any thread; returns at once] */
int sp_register(sp_node *node, const char *space, const char *name, sp_handler handler, void *context, uint64_t *id);

/* Withdraws a handler of this node's handle; SP_ERR_NOT_FOUND: there is none. It may still run once, where another
 * thread is at it. [any thread; returns at once] */
int sp_unregister(sp_node *node, uint64_t id);

/* 1 or 0: whether the peer has that handler. [any thread; waits] */
int sp_has_handler(sp_node *node, uint32_t peer, uint64_t id);

/* Runs a handler at a peer: without payload, with one of at most sp_medium_max(peer) bytes, which the message carries,
 * and with one of any length that is put to `to` first. It waits only while the peer has no room. `args` may be NULL:
 * zeros. The payload may change at return. [any thread; waits] */
int sp_request(sp_node *node, uint32_t peer, uint64_t id, const uint64_t args[4]);
int sp_request_medium(sp_node *node, uint32_t peer, uint64_t id, const uint64_t args[4], const void *from, size_t len);
int sp_request_long(sp_node *node, uint64_t id, const uint64_t args[4], sp_remote to, const void *from, size_t len);

/* The same without waiting: 1 where it was sent, 0 where the peer has no room now. Also in handlers.
 * SP_ERR_NOT_CONNECTED: sp_connect first. [any thread; returns at once] */
int sp_try_request(sp_node *node, uint32_t peer, uint64_t id, const uint64_t args[4]);
int sp_try_request_medium(sp_node *node, uint32_t peer, uint64_t id, const uint64_t args[4], const void *from, size_t len);
int sp_try_request_long(sp_node *node, uint64_t id, const uint64_t args[4], sp_remote to, const void *from, size_t len);

/* As sp_request_long, with an event: the payload must stay valid until that has ended. Also in handlers. */
int sp_request_long_nb(sp_node *node, uint64_t id, const uint64_t args[4], sp_remote to, const void *from, size_t len,
                       sp_event **event);

/* Bytes, at most, of a medium payload to that peer. [any thread; returns at once] */
size_t sp_medium_max(const sp_node *node, uint32_t peer);

/* Only in a handler, of its own call: */

/* A medium message's payload, until the handler returns; NULL without one. Near, it is copied at the first call.
 * [the handler's thread; returns at once] */
const void *sp_call_payload(sp_call *call);

/* Copies `len` bytes of the payload from byte `from` on to where they belong: once, from where they came in.
 * [the handler's thread; returns at once] */
int sp_call_read(sp_call *call, size_t from, void *into, size_t len);

/* Keeps the payload beyond the handler; *payload is yours until sp_payload_free. SP_ERR_NO_ROOM: too many are kept.
 * [the handler's thread; returns at once] */
int sp_call_keep(sp_call *call, sp_payload **payload);
const void *sp_payload_bytes(const sp_payload *payload, size_t *len);
void sp_payload_free(sp_payload *payload);

/* The node that the message came to, as another handle: free it by sp_release. [the handler's thread; returns at once] */
int sp_call_node(sp_call *call, sp_node **node);

/* Reply to a request, once, as sp_request and its kin; `to` is the requester's memory. They never wait.
 * [the handler's thread; returns at once] */
int sp_reply(sp_call *call, uint64_t id, const uint64_t args[4]);
int sp_reply_medium(sp_call *call, uint64_t id, const uint64_t args[4], const void *from, size_t len);
int sp_reply_long(sp_call *call, uint64_t id, const uint64_t args[4], sp_remote to, const void *from, size_t len);

/* Room for a medium payload, to be written in place: at least `least` bytes, *len at most `most`. *here is where. It is
 * yours until it is sent or freed. [any thread; waits at first contact] */
int sp_prepare_medium(sp_node *node, uint32_t peer, size_t least, size_t most, sp_prepared **prepared, void **here,
                      size_t *len);

/* Sends the first `len` bytes of it and frees it, whatever comes back. The second returns 1 where it was sent, and 0
 * where the peer has no room now: then it is still yours. [one thread; sp_prepared_send waits] */
int sp_prepared_send(sp_prepared *prepared, uint64_t id, const uint64_t args[4], size_t len);
int sp_prepared_try_send(sp_prepared *prepared, uint64_t id, const uint64_t args[4], size_t len);
void sp_prepared_free(sp_prepared *prepared);

/* ==== 10 Teams ================================================================================================== */

/* All members of a team call the same collectives in the same order, with the same lengths, types and roots; a member
 * that does not is told of by SP_ERR_TEAM_OVER. A collective that times out ends the team. Members are numbered from 0.
 * [one thread at a time for a team] */

/* The team of all ranks; one of a name, for libraries: its collectives do not mix with others'; and that of the ranks
 * on this host. *team is yours until sp_team_free. [any thread; the third waits] */
int sp_world(sp_node *node, sp_team **team);
int sp_world_of(sp_node *node, const char *name, sp_team **team);
int sp_near_team(sp_node *node, sp_team **team);

/* Splits a team: members of one colour make a new one, in the order of key and then of number. A negative colour takes
 * no part: *part is NULL. All members call it. [one thread; waits] */
int sp_team_split(sp_team *team, int64_t colour, int64_t key, sp_team **part);

/* The same team, whose collectives wait at most so long. [any thread; returns at once] */
int sp_team_within(const sp_team *team, uint64_t timeout, sp_team **limited);

/* This member's number, how many there are, and the rank of a member; UINT32_MAX, 0 and UINT32_MAX for a bad handle or
 * number. [any thread; returns at once] */
uint32_t sp_team_rank(const sp_team *team);
uint32_t sp_team_size(const sp_team *team);
uint32_t sp_team_job_rank(const sp_team *team, uint32_t member);
void sp_team_free(sp_team *team);

/* Collectives. `each` is bytes for a member: of a gather `into` has `each` for all, of a scatter `from`, of an
 * all-to-all both. Where only the root uses an argument, others may give NULL. [one thread; waits] */
int sp_team_barrier(sp_team *team);
int sp_team_broadcast(sp_team *team, void *bytes, size_t len, uint32_t root);
int sp_team_gather(sp_team *team, const void *from, void *into, size_t each, uint32_t root);
int sp_team_scatter(sp_team *team, const void *from, void *into, size_t each, uint32_t root);
int sp_team_all_gather(sp_team *team, const void *from, void *into, size_t each);
int sp_team_all_to_all(sp_team *team, const void *from, void *into, size_t each);

/* sends[m] bytes go to member m, receives[m] come from it; in `from` and `into` they follow each other. */
int sp_team_all_to_all_v(sp_team *team, const void *from, const size_t *sends, void *into, const size_t *receives);

enum sp_reduction { SP_SUM = 1, SP_PRODUCT = 2, SP_LEAST = 3, SP_GREATEST = 4, SP_BITS_AND = 5, SP_BITS_OR = 6,
                    SP_BITS_XOR = 7, SP_LOGICAL_AND = 8, SP_LOGICAL_OR = 9, SP_LOGICAL_XOR = 10 };

/* Added to a type: each element is such a number and, with nothing in between, 8 bytes that say where it was found.
 * SP_LEAST and SP_GREATEST tell whose it was; of equal ones the lower number's. */
#define SP_LOCATED 64

/* Combines `count` elements of all members, element by element: at the root, or in everybody's `values`. */
int sp_team_reduce(sp_team *team, const void *from, void *into, size_t count, int type, int reduction, uint32_t root);
int sp_team_all_reduce(sp_team *team, void *values, size_t count, int type, int reduction);

/* A function of your own: changes `into` by `from`, `bytes` bytes, whole elements, in any order of members that is the
 * same in all. It must be associative. It runs in a thread that makes progress. */
typedef void (*sp_combine)(void *into, const void *from, size_t bytes, void *context);

/* As those before, by a function, of elements of `each` bytes. */
int sp_team_reduce_with(sp_team *team, const void *from, void *into, size_t count, size_t each, sp_combine combine,
                        void *context, uint32_t root);
int sp_team_all_reduce_with(sp_team *team, void *values, size_t count, size_t each, sp_combine combine, void *context);

enum sp_collective_kind { SP_BARRIER = 0, SP_BROADCAST = 1, SP_GATHER = 2, SP_SCATTER = 3, SP_ALL_GATHER = 4,
                          SP_ALL_TO_ALL = 5, SP_ALL_TO_ALL_V = 6, SP_REDUCE = 7, SP_ALL_REDUCE = 8 };

/* Any collective, to be started; its fields are the arguments of the function of its kind. */
typedef struct sp_collective {
    size_t size;           /* sizeof(sp_collective) */
    int32_t kind;          /* SP_BARRIER and so on */
    uint32_t root;
    const void *from;      /* of a broadcast and an all-reduce: not used, `into` has the values */
    void *into;
    size_t count;          /* bytes for a member (`each`), bytes of a broadcast, elements of a reduction */
    const size_t *sends;   /* of SP_ALL_TO_ALL_V */
    const size_t *receives;
    int32_t type;          /* of a reduction without a function */
    int32_t reduction;
    size_t each;           /* of one with a function: bytes of an element */
    sp_combine combine;
    void *context;
} sp_collective;

/* Starts a collective. `from` may change at return; `into` must stay valid, and has the result when the event has
 * ended. All members start the same ones in the same order. [one thread; returns at once] */
int sp_team_start(sp_team *team, const sp_collective *collective, sp_event **event);

/* ==== 11 Grants ================================================================================================= */

enum sp_rights { SP_READ = 1, SP_WRITE = 2 };

/* A grant's name: plain data, to be copied, sent and published. */
typedef struct sp_name {
    uint64_t words[2];
} sp_name;

typedef struct sp_grant_params {
    size_t size;            /* sizeof(sp_grant_params) */
    int32_t rights;         /* SP_READ, SP_WRITE or both; 0: SP_READ */
    const uint32_t *to;     /* who may use it; NULL: every peer, those that come later included */
    size_t to_count;
    void (*release)(void *context); /* called once, when nobody can use the memory any more, by a call about grants
                                       or at the node's end; not where nothing was granted; or NULL */
    void *context;
} sp_grant_params;

/* Lets peers reach `len` bytes of this process by a name, which is never another grant's. The memory must stay valid
 * until sp_grant_wait_idle has returned SP_OK, or `release` has been called. `params` NULL: every peer may read.
 * *grant is yours until sp_grant_free. [any thread; returns at once] */
int sp_grant_memory(sp_node *node, void *memory, size_t len, const sp_grant_params *params, sp_grant **grant);

/* Many in one call: grants[i] is for memory[i], lens[i]. All or none. */
int sp_grant_many(sp_node *node, void *const *memory, const size_t *lens, size_t count, const sp_grant_params *params,
                  sp_grant **grants);

/* The name that peers get. [any thread; returns at once] */
int sp_grant_name(const sp_grant *grant, sp_name *name);

/* The first byte of what the peer has granted by that name; and its bytes. SP_ERR_ARGUMENT: the words are no name. The
 * words are believed here, the length too, and looked at by whoever granted. [any thread; returns at once] */
int sp_granted(uint32_t peer, const sp_name *name, sp_remote *at, uint64_t *len);

/* Bars new use at once. Peers get SP_ERR_REVOKED. [any thread; returns at once] */
int sp_grant_revoke(sp_grant *grant);

/* Revokes, and waits at most so long until nobody uses the memory any more. SP_ERR_IN_USE names a peer that may still:
 * it is in a copy, perhaps of another grant's, that it began before. The memory must stay, and the call can be
 * repeated; in a handler it does not wait. After SP_OK the memory is yours, and the grant is over: SP_ERR_REVOKED. [one
 * thread; waits] */
int sp_grant_wait_idle(sp_grant *grant, uint64_t within);

/* Has the name stand for other memory of the same length, and waits at most so long until nothing goes to the old any
 * more. SP_ERR_IN_USE: the name stands for the new memory, and something still goes to the old, which must stay until
 * `release` is called. That is told of the memory that was granted first only. [one thread; waits] */
int sp_grant_repoint(sp_grant *grant, void *memory, size_t len, uint64_t within);

/* Revokes and frees the handle. Where peers may still use the memory it must stay valid until `release` is called; call
 * sp_grant_wait_idle before, if there is none. NULL is fine. [one thread; returns at once] */
void sp_grant_free(sp_grant *grant);

/* Lets every peer reach memory by its address (SP_PRIVATE), where the node exposes ranges only, until sp_unexpose.
 * [any thread; returns at once] */
int sp_expose(sp_node *node, const void *memory, size_t len, int rights, sp_exposed **exposed);
void sp_unexpose(sp_exposed *exposed);

/* ==== 12 Figures ================================================================================================ */

enum sp_operation { SP_OP_PUT = 0, SP_OP_GET = 1, SP_OP_ATOMIC = 2, SP_OP_REQUEST = 3, SP_OP_REPLY = 4,
                    SP_OP_HANDLED = 5, SP_OP_BARRIER = 6, SP_OP_SERVED = 7 };
enum sp_mechanism { SP_MAPPED = 0, SP_CMA = 1, SP_MESSAGE = 2, SP_REGISTERED = 3 };

/* How many operations of a kind there were, and their bytes, by the way that they took; a negative mechanism: by all.
 * [any thread; returns at once] */
int sp_count_of(const sp_node *node, int operation, int mechanism, uint64_t *count, uint64_t *bytes);

/* A figure by its name in docs/STATISTICS.md ("denied", "malformed", "hits"), or how many operations took their path
 * for a reason of docs/PATHS.md. SP_ERR_NOT_FOUND: there is none. [any thread; returns at once] */
int sp_figure(const sp_node *node, const char *name, uint64_t *value);

/* How long calls took: the time, in nanoseconds, that a share of them (0.5, 0.99) took at most, and how many were
 * timed. `what` is "put", "get", "atomic", "collective", "barrier" or "request" (docs/STATISTICS.md). *time is 0 where
 * none was timed. [any thread; returns at once] */
int sp_latency(const sp_node *node, const char *what, double share, uint64_t *time, uint64_t *timed);

/* All figures and latencies as OpenMetrics text, as sp_config_get. [any thread; returns at once] */
int sp_metrics(const sp_node *node, char *into, size_t room, size_t *len);

/* ==== Inline functions ========================================================================================== */

/* With optimization, sp_put_u64, sp_get_u64 and sp_fetch_add_u64 are inlined where the compiler can: in a heap that is
 * mapped here they are one access of the processor's, in the thread that opened the node, and counted in its handle.
 * All else calls the library. They look at no error but those that a peer's memory may have: give them a node's handle.
 * None may run in another thread while the node is being closed. SP_NO_INLINE leaves them out. */
#if defined(__OPTIMIZE__) && defined(__GNUC__) && defined(__LP64__) && !defined(SP_NO_INLINE)
#if defined(__x86_64__) || defined(__aarch64__)

struct sp_inline_window {
    uint64_t limit; /* bytes of the heap that may be accessed; changes at any time, as does */
    uint64_t words; /* offsets below this begin 8 of them */
    unsigned char *base;
};

struct sp_inline {
    uint64_t word;
    uint64_t places;
    struct sp_inline_window *const *table;
    void *thread;
    uint64_t *counts[3]; /* puts, gets, atomics */
};

#define SP_INLINE __attribute__((gnu_inline)) extern __inline__

/* What tells this thread from all others that run. */
__attribute__((always_inline)) SP_INLINE void *sp_inline_thread(void) {
    void *thread;
#ifdef __x86_64__
    __asm__("mov %%fs:0, %0" : "=r"(thread));
#else
    __asm__("mrs %0, tpidr_el0" : "=r"(thread));
#endif
    return thread;
}

/* 1 where the 8 bytes lie in a heap that is mapped here, and this thread counts; *word is where. */
__attribute__((always_inline)) SP_INLINE int sp_inline_finds(const sp_node *node, sp_remote at, uint64_t **word) {
    const struct sp_inline *face = (const struct sp_inline *)(const void *)node;
    struct sp_inline_window *window;
    if (at.memory != SP_HEAP || at.peer >= face->places) return 0;
    window = __atomic_load_n(&face->table[at.peer], __ATOMIC_ACQUIRE);
    if (!window || at.at >= __atomic_load_n(&window->words, __ATOMIC_RELAXED)) return 0;
    *word = (uint64_t *)(void *)(window->base + at.at);
    return face->thread == sp_inline_thread();
}

SP_INLINE int sp_open(sp_config *config, sp_node **node) {
    return sp_open_as(config, SP_OWN, node);
}

SP_INLINE int sp_put_u64(sp_node *node, sp_remote to, uint64_t value) {
    uint64_t *word;
    if (__builtin_expect(!sp_inline_finds(node, to, &word), 0)) {
        uint64_t copy = value; /* so that the value itself stays in a register */
        return sp_put(node, to, &copy, sizeof copy);
    }
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
    ++*((struct sp_inline *)(void *)node)->counts[0];
    return 0;
}

SP_INLINE int sp_get_u64(sp_node *node, sp_remote from, uint64_t *value) {
    uint64_t *word;
    if (__builtin_expect(!sp_inline_finds(node, from, &word), 0)) return sp_get(node, from, value, sizeof *value);
    *value = __atomic_load_n(word, __ATOMIC_RELAXED);
    ++*((struct sp_inline *)(void *)node)->counts[1];
    return 0;
}

SP_INLINE int sp_fetch_add_u64(sp_node *node, sp_remote word, uint64_t value, uint64_t *old) {
    uint64_t *here;
    if (__builtin_expect((word.at & 7) || !sp_inline_finds(node, word, &here), 0))
        return sp_fetch(node, word, SP_U64, SP_ADD, value, old);
    value = __atomic_fetch_add(here, value, __ATOMIC_SEQ_CST);
    if (old) *old = value;
    ++*((struct sp_inline *)(void *)node)->counts[2];
    return 0;
}

#undef SP_INLINE
#endif
#endif

#ifdef __cplusplus
}
#endif

#endif
