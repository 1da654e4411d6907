/*
 * Generic Active Messages 1.1 in ICSI's spelling, on Standpipe.
 *
 * All processes run one program at the same addresses: a handler is sent as its address, and the
 * addresses of variables and buffers may be sent, too. One thread of a process calls these
 * functions, and handlers run on it, in these calls. Where the program uses another layer beside
 * this one, handlers run in the other layer's calls, too, on the thread that makes them. Functions
 * that return int return 0, or -1 after one line on standard error that says what is wrong.
 * docs/layer-gam.md has more.
 *
 * [recalled] marks what no copy of the original's header or manual was seen for.
 */
#ifndef STANDPIPE_AM_H
#define STANDPIPE_AM_H

#ifdef STANDPIPE_GAM_H
#error "gam.h came first: include am.h alone, which has all of it"
#endif
#ifdef AM_THREADS
#error "AM_THREADS: the threads, locks and semaphores of ICSI's am.h are not there; compile without it"
#endif

/* As the original does, for programs that rely on it. */
#include <assert.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wstrict-prototypes"
#endif

/* The number of a process: 0 to am_procs() - 1. */
typedef int vnn_t;

/* Handlers of requests and replies. `from` is the process that sent the message. */
typedef void (*handler_0_t)(vnn_t from);
typedef void (*handler_1_t)(vnn_t from, long a0);
typedef void (*handler_2_t)(vnn_t from, long a0, long a1);
typedef void (*handler_3_t)(vnn_t from, long a0, long a1, long a2);
typedef void (*handler_4_t)(vnn_t from, long a0, long a1, long a2, long a3);
typedef void (*handler_df_t)(vnn_t from, long a0, long a1, double d); /* name [recalled] */

/* Handlers of am_store and am_get, and functions that end am_store_async: `addr` is where the `n`
 * bytes lie in the process that the handler runs in. */
typedef void (*handler_mem_t)(vnn_t from, void *addr, int n, void *arg);

/* Any handler, of any form. */
#ifdef __cplusplus
typedef void (*handler_t)(vnn_t from, ...);
#else
typedef void (*handler_t)();
#endif

/* Opens the layer, before any other call, in a job of `procs` processes. Started by
 * `standpipe run -n PROCS` (or another launcher), the process is one of those; the program must lie
 * at the same addresses in all: `standpipe run --same-addresses`, or linked with -no-pie. Started
 * alone, the process makes `procs` - 1 others by fork. Each goes on from here; nothing else of the
 * program may run meanwhile, and no other layer may be open. Ends the process (status 1) where that
 * cannot be. Waits for all; handlers may run before it returns. A second call changes nothing. */
void am_enable(int procs, int argc, char *argv[]);

/* Leaves: waits until all that this process has sent is handled and replied to, and until all
 * processes leave; runs handlers meanwhile. Only am_sleep, am_my_proc and am_procs are called after it. */
void am_disable(void);

/* This process's number, and how many there are. -1 before am_enable; kept after am_disable. */
vnn_t am_my_proc(void);
int am_procs(void);

/* The same as variables, -1 and 0 before am_enable, and kept after am_disable; and the threads of a
 * process: 1. */
extern int am_my_cluster_id, am_clusters, am_cluster_size;
#define AM_MY_PROC am_my_cluster_id
#define AM_PROCS am_clusters
#define AM_MY_CLUSTER_SIZE am_cluster_size
int am_my_cluster_size(void);

/* The most bytes that one am_store, am_store_async or am_get moves: 16384. The library cuts
 * nothing: what is longer is refused, and the program cuts it. */
int am_max_size(void);

/* Has `handler` run at `dest` with these words, which may carry pointers. Polls now and then;
 * waits while `dest` owes 30 replies. A request to oneself runs the handler in place. No handler may be NULL:
 * pass am_dummy. A request's handler may reply once, and make no other call but am_reply_*,
 * am_my_proc, am_procs and am_max_size; a reply's handler may not reply. A request whose handler
 * does not reply gets an empty reply from the library, several in one message. Messages arrive in any order. */
int am_request_0(vnn_t dest, handler_0_t handler);
int am_request_1(vnn_t dest, handler_1_t handler, long a0);
int am_request_2(vnn_t dest, handler_2_t handler, long a0, long a1);
int am_request_3(vnn_t dest, handler_3_t handler, long a0, long a1, long a2);
int am_request_4(vnn_t dest, handler_4_t handler, long a0, long a1, long a2, long a3);
int am_request_df(vnn_t dest, handler_df_t handler, long a0, long a1, double d);

/* Replies to the request whose handler calls this: `dest` is its sender. The reply leaves when the
 * handler returns. */
int am_reply_0(vnn_t dest, handler_0_t handler);
int am_reply_1(vnn_t dest, handler_1_t handler, long a0);
int am_reply_2(vnn_t dest, handler_2_t handler, long a0, long a1);
int am_reply_3(vnn_t dest, handler_3_t handler, long a0, long a1, long a2);
int am_reply_4(vnn_t dest, handler_4_t handler, long a0, long a1, long a2, long a3);
int am_reply_df(vnn_t dest, handler_df_t handler, long a0, long a1, double d);

/* Copies `n` bytes from `lva` here to `rva` in `dest`, and then has `handler` run there. Returns
 * when `lva` may be used again. An address that `dest` has not gives -1; where that shows only
 * later, as over a network, it ends the program (status 1). */
int am_store(vnn_t dest, void *lva, void *rva, int n, handler_mem_t handler, void *arg);

/* As am_store, and returns at once. A later am_poll calls `endfunc` here, with `dest`, `lva` and `n`,
 * when `lva` may be used again. */
int am_store_async(vnn_t dest, void *lva, void *rva, int n, handler_mem_t handler, void *arg,
                   handler_mem_t endfunc, void *earg);

/* Copies `n` bytes from `rva` in `dest` to `lva` here. A later am_poll calls `handler` here when
 * they are there. Bad addresses: as for am_store. */
int am_get(vnn_t dest, void *rva, void *lva, int n, handler_mem_t handler, void *arg);

/* Runs the handlers of what has come. Never waits; does nothing in a handler. Where a process has
 * ended, the program ends (status 1). */
void am_poll(void);

/* Waits until `condition` holds, which a handler makes true, and runs handlers meanwhile. */
void am_thread_poll(void);
#define am_wait_for(condition)  \
    do {                        \
        while (!(condition))    \
            am_thread_poll();   \
    } while (0)

/* Runs handlers for so many seconds, and returns 0. Where the layer is not open, and in a child that
 * the program forks itself, it is the system's sleep, whose name it takes; define STANDPIPE_AM_KEEP_SLEEP to keep that one. */
unsigned int am_sleep(unsigned int seconds);
#ifndef STANDPIPE_AM_KEEP_SLEEP
#define sleep am_sleep
#endif

/* A handler that does nothing, for any of the types above: am_dummy(), in C++ with a cast. */
#ifdef __cplusplus
void am_dummy(void);
#else
void am_dummy();
#endif

/* Wait counters: WAITCNTR(name) declares one, 0, as a local variable, and the others take its name.
 * CNTR_IS_ZERO gives the count, as in the original. Only functions that are no handlers wait. Where
 * handlers run on another thread, in another layer's calls, use the functions. */
typedef unsigned long *cntr_t;
#define WAITCNTR(name) unsigned long am_counter_of_##name = 0; cntr_t name = &am_counter_of_##name
#define CNTR_INCR(name) (++*(name))
#define CNTR_DECR(name) (--*(name))
#define CNTR_INCR_BY(name, count) (*(name) += (count))
#define CNTR_DECR_BY(name, count) (*(name) -= (count))
#define CNTR_IS_ZERO(name) (*(name))
#define CNTR_WAIT_FOR_ZERO(name) am_wait_for(*(name) == 0)
void cntr_incr(cntr_t counter);
void cntr_decr(cntr_t counter);
void cntr_incr_by(cntr_t counter, long count);
void cntr_decr_by(cntr_t counter, long count);
int cntr_is_zero(cntr_t counter);
void cntr_wait_for_zero(cntr_t counter);

/* Handlers that count the counter at that address, of requests and replies; of stores and gets
 * (_mem); and of stores, whose sender has the counter (_reply_mem). */
void r_cntr_incr(vnn_t from, long counter);
void r_cntr_decr(vnn_t from, long counter);
void r_cntr_incr_mem(vnn_t from, void *addr, int n, void *counter);
void r_cntr_decr_mem(vnn_t from, void *addr, int n, void *counter);
void r_cntr_incr_reply_mem(vnn_t from, void *addr, int n, void *counter);
void r_cntr_decr_reply_mem(vnn_t from, void *addr, int n, void *counter);

/* Throw-away semaphores: TA_SEMAPHORE(name) declares one, which is signalled once and waited for
 * once. Handlers that signal it: as those of the counters. */
typedef unsigned long *ta_sema_t;
#define TA_SEMAPHORE(name) unsigned long am_semaphore_of_##name = 1; ta_sema_t name = &am_semaphore_of_##name
#define TA_SEMA_SIGNAL(name) (*(name) = 0)
#define TA_SEMA_WAIT(name) am_wait_for(*(name) == 0)
void ta_sema_signal(ta_sema_t semaphore);
void ta_sema_wait(ta_sema_t semaphore);
void r_ta_sema_signal(vnn_t from, long semaphore);
void r_ta_sema_signal_mem(vnn_t from, void *addr, int n, void *semaphore);
void r_ta_sema_signal_reply_mem(vnn_t from, void *addr, int n, void *semaphore);

#if defined(__clang__)
#pragma clang diagnostic pop
#endif

#ifdef __cplusplus
}
#endif

/* Berkeley's copies of this header have this name, too. */
#include "gam.h"

#endif
