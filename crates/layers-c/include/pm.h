/*
 * PM (PMv2): messages in the library's own buffers, and remote writes between locked memory.
 *
 * Every call gives PM_SUCCESS or one of the errno values that stand with it. Four may wait: pmOpenDevice and
 * pmAttachContext, which may meet the other processes; pmCloseDevice; and pmMLock, up to 5 seconds. The manual pages of SCore 5 are
 * the source; [recalled] marks an item whose form is known from memory only, or inferred, and names that
 * begin with standpipe_ are ours. One thread at a time calls PM.
 *
 * A call with a context, device or pointer that is none gives EINVAL. A program vouches for the memory
 * that it names to PM: other processes write there.
 */
#ifndef STANDPIPE_PM_H
#define STANDPIPE_PM_H

#include <errno.h>
#include <stddef.h>
#include <sys/types.h>

#ifndef __caddr_t_defined
typedef char *caddr_t;
#define __caddr_t_defined
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* What a call gives that did what it was called for. */
#define PM_SUCCESS 0

/* As rmt_node of pmMLock and pmMUnlock: all nodes, on composite contexts only. [recalled: the value] */
#define PM_NODE_ANY (-1)

/* Types of devices. All lead to the same network here, with contexts of their own. [recalled: the texts] */
#define PM_COMPOSITE "composite"
#define PM_MYRINET "myrinet"
#define PM_ETHERNET "ethernet"
#define PM_SHMEM "shmem"
#define PM_AGENT "agent"

/* Bytes that a message may have. [recalled] */
#define PM_MTU 8192

/* A device, and a stream of messages with all nodes. Programs have pointers to them only. */
typedef struct pmDevice pmDevice;
typedef struct pmContext pmContext;

/*
 * A locked region: handle + offset names the byte so far into it. It is a word to be copied to other
 * nodes. [recalled: the width]
 */
typedef unsigned long pmAddrHandle;

/*
 * Opens a device of one of the types above. Options are pairs of words: -config FILE, -firmware FILE and
 * -trunk:N FILE are taken and not read; -agent pmaudp is needed with PM_AGENT, and with no other type.
 * The first device that a process opens, all processes of the job open, and wait for each other.
 * ENODEV: no such type, or this device is open. EINVAL: options. EIO: the other processes are not to be
 * had; the reason is on standard error. ENOMEM.
 */
int pmOpenDevice(char *type, int argc, char **argv, pmDevice **pmdp);

/*
 * Closes a device with its contexts. [recalled] EINVAL; EBUSY: sends or transfers are under way, and nothing
 * is closed. After the last one this process has left: the others' pmReceive gives EPIPE once all have. The
 * last one waits until the others can be told, and up to 5 seconds for the network. A process that ends by
 * exit or return closes all, and waits until what it has launched is taken; it says on standard error how
 * many messages were for nodes that had left or were lost.
 */
int pmCloseDevice(pmDevice *pmd);

/*
 * Opens a context: of each type there are 16, by numbers from 0, and those of one type and number in all
 * nodes are one stream of messages. [recalled: that there is such a call, and its form]
 * EINVAL: number. ENODEV: the device is not open. EBUSY: this context is open.
 */
int pmOpenContext(pmDevice *pmd, int number, pmContext **pmcp);

/* Closes a context. [recalled] EINVAL; EBUSY: sends or transfers are under way: call again. */
int pmCloseContext(pmContext *pmc);

/* Gives a descriptor for the context, which stays open across exec. [recalled] EINVAL, EIO. */
int pmGetFd(pmContext *pmc, int *fdp);

/*
 * Makes a context of a descriptor, inherited or not. ENODEV: the type is none, or not the context's; or
 * the device cannot be had. EINVAL: the descriptor is no context's.
 */
int pmAttachContext(char *type, int fd, pmContext **pmcp);

/*
 * Gives a buffer to write a message to dest of len bytes in, for any type of data. pmSend launches it. A
 * composite context is locked until then; of another the last buffer counts. Never waits. A call that fails
 * leaves the buffer that was given before.
 * ENOBUFS: no buffer is free. EINVAL: dest; len below 1 or above PM_MTU. EBUSY: the context is locked.
 * EPIPE (ours): none is free, and dest is lost.
 */
int pmGetSendBuffer(pmContext *pmc, int dest, caddr_t *bufp, size_t len);

/*
 * Launches the message in the buffer that was given last. Messages of a context arrive in the order in
 * which they were launched, node by node. [recalled] EINVAL: there is no buffer. EPIPE: dest is lost.
 */
int pmSend(pmContext *pmc);

/*
 * Whether all that was launched on the context has been sent. [recalled]
 * EBUSY: not yet. EPIPE: once, where a receiver was lost before.
 */
int pmIsSendDone(pmContext *pmc);

/*
 * Gives the next message, where it lies. It stays there until pmReleaseReceiveBuffer, and a composite
 * context is locked until then; others give the same message again. Never waits.
 * ENOBUFS: none has come. EIO: once, a message came damaged and was dropped. EPIPE: none has come, and a
 * node was lost or all others have left. EBUSY: the context is locked.
 */
int pmReceive(pmContext *pmc, caddr_t *bufp, size_t *lenp);

/* Gives the message back that pmReceive gave, and unlocks a composite context. EIO: it gave none. */
int pmReleaseReceiveBuffer(pmContext *pmc);

/*
 * Locks memory for pmWrite and pmRead with rmt_node, or with all by PM_NODE_ANY, and gives its handle.
 * Locks of the same memory are counted. No address or length is badly aligned; 1 byte is the least.
 * Waits up to 5 seconds for room that is being given up. Memory that was unmapped and mapped anew while it
 * was locked is pinned anew.
 * EINVAL: rmt_node; len 0; memory that is not there, where it is pinned: locks by addresses take any that a
 * program names. ENOSPC: no more can be locked. ENOSYS: nothing registers memory here, and
 * STANDPIPE_PM_LOCKS is not set to addresses.
 */
int pmMLock(pmContext *pmc, int rmt_node, caddr_t addr, size_t len, pmAddrHandle *hndlp);

/*
 * Takes back one lock of exactly this memory and rmt_node. The memory stays pinned until there is need of
 * the room. EINVAL; ENOENT: it is not locked; ENOSYS.
 */
int pmMUnlock(pmContext *pmc, int rmt_node, caddr_t addr, size_t len);

/*
 * Starts to copy len bytes of locked memory here to locked memory of rmt_node, whose program takes no
 * part. EINVAL: rmt_node; len 0; a region that is not locked, or not for so many bytes (of a node on
 * another host pmIsWriteDone may tell that, and a region that was locked once counts as locked until a
 * message of rmt_node has come that it launched after its pmMUnlock). ENOBUFS: too many are under way.
 * ENOSYS. EPIPE (ours): lost.
 */
int pmWrite(pmContext *pmc, int rmt_node, pmAddrHandle rmt_hndl, pmAddrHandle local_hndl, size_t len);

/* As pmWrite, from rmt_node's memory to this one's. */
int pmRead(pmContext *pmc, int rmt_node, pmAddrHandle rmt_hndl, pmAddrHandle local_hndl, size_t len);

/*
 * Whether all that pmWrite, or pmRead, has started on the context is done, and lies where it should.
 * [recalled] EBUSY: not yet. Else once what has failed: EINVAL, EPIPE, EIO.
 */
int pmIsWriteDone(pmContext *pmc);
int pmIsReadDone(pmContext *pmc);

/* Optional levels of a device, as standpipe_pm_levels gives them; all the rest is the level BASE. */
#define PM_REMOTE_WRITE 1
#define PM_REMOTE_READ 2
int standpipe_pm_levels(pmContext *pmc);

/* What the pin-down cache of this process has done: locks that were hits or misses, what was given up. */
struct standpipe_pm_pin_down {
    unsigned long hits;
    unsigned long misses;
    unsigned long evictions;
    unsigned long held_bytes;
    unsigned long budget_bytes;
};

/* EINVAL. */
int standpipe_pm_pin_down(pmContext *pmc, struct standpipe_pm_pin_down *counters);

#ifdef __cplusplus
}
#endif

#endif
