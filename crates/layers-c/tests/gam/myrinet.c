/* Calls of Berkeley's library for Myrinet, whose header is called am.h, too. */
#include <string.h>
#include <stdlib.h>
#include "am.h"
#include "check_gam.h"

static char source[20 * 16384], target[20 * 16384];
static int checked, come, replied;

static void incr(int from, int *flag) { (void)from; (*flag)++; }

/* -- medium: as long as gam_max_size says, with as many words as the handler takes. It looks at what lies
 * before the bytes, and ends them behind. */

static void check(int from, char *data, int size, int at)
{
    (void)from;
    CHECK(data[-1] == 0 && memcmp(data, source + at, size) == 0);
    data[size] = 0;
    data[0] = 1;
    CHECK(gam_reply_4(from, incr, &checked) == 0);
}

static void medium(void)
{
    int at, size, most = gam_max_size(), right = (gam_my_proc() + 1) % gam_procs();

    CHECK(20 * most <= (int)sizeof source);
    for (at = 0; at < 4; at++)
        for (size = 1; size <= most; size *= 2) {
            checked = 0;
            CHECK(gam_request(right, check, source + at, size, at) == 0);
            CHECK(gam_wait(&checked, 1) == 0 && checked == 0);
        }
    CHECK(gam_request(right, check, source, most + 1, 0) == -1);
}

/* -- xfer: a store's handler replies with the bytes that it was sent, and one with none. */

static void landed(int from, void *at, int size, int *count)
{
    (void)from;
    CHECK((char *)at == target && memcmp(target, source, size) == 0);
    (*count)++;
}
static void bounce(int from, void *at, int size, int *count)
{
    CHECK(gam_reply_xfer(from, at, target, size, landed, count) == 0);
    memset(at, 0, size);
    CHECK(gam_reply_xfer(from, at, target, size, landed, count) == -1);
}
static void refused(int from)
{
    CHECK(gam_reply_xfer(from, source, target, -1, landed, &come) == -1);
    CHECK(gam_reply_xfer(from, source, target, gam_max_size() + 1, landed, &come) == -1);
    CHECK(gam_reply_xfer(from, NULL, target, 1, landed, &come) == -1);
    CHECK(gam_reply_xfer(from, source, NULL, 1, landed, &come) == -1);
    CHECK(gam_reply_xfer(from, source, target, 1, NULL, &come) == -1);
    CHECK(gam_reply_xfer(from + 1, source, target, 1, landed, &come) == -1);
    CHECK(gam_reply_4(from, incr, &replied) == 0);
}

static char elsewhere[8192];

static void xfer(void)
{
    int size, own = gam_my_proc(), proc, procs = gam_procs();

    for (proc = 0; proc < procs; proc++)
        for (size = 1; size <= gam_max_size(); size = size * 3 + 1) {
            memset(target, 0, sizeof target);
            come = 0;
            /* One asks at a time: all have one place for it. */
            for (int turn = 0; turn < procs; turn++) {
                if (turn == own) {
                    CHECK(gam_store(proc, source, elsewhere, size, bounce, &come) == 0);
                    CHECK(gam_wait(&come, 1) == 0);
                }
                CHECK(lam_sync_all() == 1);
            }
        }
    CHECK(gam_reply_xfer(0, source, target, 1, landed, &come) == -1);
    CHECK(gam_request_4((own + 1) % procs, refused) == 0);
    CHECK(gam_poll_wait(&replied, 1) == 0);
}

/* -- bad: the requester has no such memory. */

static void to_nowhere(int from, void *at, int size, int *count)
{
    CHECK(gam_reply_xfer(from, at, (void *)0x10000, size, landed, count) == 0);
}

static void bad(const char *what)
{
    if (gam_my_proc() == 0) {
        CHECK(gam_store(1, source, elsewhere, 8, to_nowhere, &come) == 0);
        gam_wait(&come, 1);
    }
    if (strcmp(what, "bad, in a barrier") == 0)
        gam_barrier();
    if (strcmp(what, "bad, as it leaves") == 0)
        gam_disable();
    for (;;)
        gam_sleep();
}

/* -- exit: handlers of medium messages run at the end of the program, too. */

static void at_exit(void)
{
    handler_t any = (handler_t)check;

    CHECK(gam_request((gam_my_proc() + 1) % gam_procs(), any, source, 100, 0) == 0);
    gam_barrier();
    CHECK(gam_wait(&checked, 1) == 0);
    CHECK(gam_disable() == 0);
}

int main(int argc, char **argv)
{
    const char *what = argc > 2 ? argv[2] : "none";
    int i;

    CHECK(gam_enable(0) == 0);
    for (i = 0; i < (int)sizeof source; i++)
        source[i] = (char)((i * 7) | 1);
    gam_barrier();
    if (strcmp(what, "medium") == 0) medium();
    else if (strcmp(what, "xfer") == 0) xfer();
    else if (strcmp(what, "exit") == 0) {
        medium();
        atexit(at_exit);
        printf("%s: %d is well\n", what, gam_my_proc());
        return 0;
    } else bad(what);
    CHECK(gam_barrier() == 0);
    printf("%s: %d is well\n", what, gam_my_proc());
    CHECK(gam_disable() == 0);
    return 0;
}
