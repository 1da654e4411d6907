/*
 * Generic Active Messages in Berkeley's spelling (GAM), on Standpipe. The layer is that of am.h,
 * which says more of each call. Berkeley's own header is called am.h, and so that one includes this.
 *
 * Compile it as C of before C23 (-std=gnu17), where `void handler()` takes any arguments.
 *
 * Words are `long`, as programs send pointers in them; handlers may take them as int. The functions
 * take words of any type: a handler that takes a long for a word that was passed as an int finds
 * anything in its upper half. Pass (long)-1, or have the handler take an int.
 *
 * Functions return 0, or -1 after one line on standard error that says what is wrong.
 *
 * [recalled] marks what no copy of the original's header or manual was seen for.
 */
#ifndef STANDPIPE_GAM_H
#define STANDPIPE_GAM_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wstrict-prototypes"
#endif

/* Any handler: (from, words...) of requests and replies, (from, d, a0, a1) of the forms with a
 * double, (from, buffer, len, a0, a1) of gam_request, (from, addr, n, arg) of stores and gets. */
#ifdef __cplusplus
typedef void (*gam_handler_t)(...);
#else
typedef void (*gam_handler_t)();
#endif

#ifndef STANDPIPE_AM_H
/* The number of a process: 0 to gam_procs() - 1. am.h has an int of that name. */
typedef unsigned int vnn_t;
typedef gam_handler_t handler_t;

/* Names of Split-C. */
#define barrier() gam_barrier()
#define splitc_poll() gam_poll()
#endif

/* Opens the layer: a job of as many processes as `standpipe run -n N --same-addresses` (or another
 * launcher) has started, or of this one alone. Ends the process (status 1) where it cannot. */
#ifdef __cplusplus
int gam_enable(...);
#else
int gam_enable();
#endif

/* Leaves, when all processes do. gam_exit also ends the process, with that status; if it is not 0,
 * at once. */
int gam_disable(void);
void gam_exit(int status);

/* -1 before gam_enable; kept after gam_disable. */
int gam_procs(void);
int gam_my_proc(void);

/* The most bytes that one call of this header moves: 8192, as many as gam_request carries to any process. */
int gam_max_size(void);

/* Runs the handlers of what has come; never waits. */
int gam_poll(void);

/* Waits a little until something comes, and runs its handlers. */
int gam_sleep(void);

/* Waits until all processes have called it. Meanwhile it runs handlers, and functions that end this
 * process's own stores and gets. lam_sync_all returns 1. Where a process has left, the program ends
 * (status 1). */
int gam_barrier(void);
int lam_sync_all(void);

/* Waits until `*flag`, which handlers count up, is at least `n`, and takes `n` off it. */
int gam_wait(volatile int *flag, int n);
int gam_poll_wait(volatile int *flag, int n);

/* Requests and replies, with no to four words: see am.h. */
int gam_request_0(unsigned int dest, gam_handler_t fun, ...);
int gam_request_1(unsigned int dest, gam_handler_t fun, ...);
int gam_request_2(unsigned int dest, gam_handler_t fun, ...);
int gam_request_3(unsigned int dest, gam_handler_t fun, ...);
int gam_request_4(unsigned int dest, gam_handler_t fun, ...);
int gam_reply_0(unsigned int dest, gam_handler_t fun, ...);
int gam_reply_1(unsigned int dest, gam_handler_t fun, ...);
int gam_reply_2(unsigned int dest, gam_handler_t fun, ...);
int gam_reply_3(unsigned int dest, gam_handler_t fun, ...);
int gam_reply_4(unsigned int dest, gam_handler_t fun, ...);

#define gam_request0 gam_request_0
#define gam_request1 gam_request_1
#define gam_request2 gam_request_2
#define gam_request3 gam_request_3
#define gam_request4 gam_request_4
#define gam_reply0 gam_reply_0
#define gam_reply1 gam_reply_1
#define gam_reply2 gam_reply_2
#define gam_reply3 gam_reply_3
#define gam_reply4 gam_reply_4

/* With a double, which comes first. */
int gam_request_fd(unsigned int dest, gam_handler_t fun, double d, long a0, long a1);
int gam_reply_fd(unsigned int dest, gam_handler_t fun, double d, long a0, long a1);

/* With `len` bytes, at most gam_max_size(), and up to two words. The handler finds the bytes in a buffer
 * of the system that is there while it runs; it may write them, and a few behind them. */
int gam_request(unsigned int dest, gam_handler_t fun, const void *buf, int len, ...);
int gam_reply(unsigned int dest, gam_handler_t fun, const void *buf, int len, ...);

/* Replies with `n` bytes from `lva` here: they are put at `rva` of the requester, and the handler runs
 * there, as a store's does. An address that the requester has not ends this program (status 1). */
int gam_reply_xfer(unsigned int dest, void *lva, void *rva, int n, gam_handler_t handler, void *arg);

/* Stores and gets, as am_store, am_store_async and am_get. */
int gam_store(unsigned int dest, void *lva, void *rva, int n, gam_handler_t handler, void *arg);
int gam_store_async(unsigned int dest, void *lva, void *rva, int n, gam_handler_t handler, void *arg,
                    gam_handler_t endfunc, void *earg);
int gam_get(unsigned int dest, void *sva, void *dva, int n, gam_handler_t handler, void *arg);

/* A handler that does nothing [recalled]. */
#ifdef __cplusplus
void gam_dummy(void);
#else
void gam_dummy();
#endif

#if defined(__clang__)
#pragma clang diagnostic pop
#endif

#ifdef __cplusplus
}
#endif

#endif
