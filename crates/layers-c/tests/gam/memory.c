/* Stores and gets of am.h. */
#include <limits.h>
#include "check.h"

enum { MOST = 16384, ROOM = 10 * MOST + 64 };

static unsigned char source[ROOM], target[ROOM], fetched[ROOM];
static volatile long stored, got, ended;
static long argument;

static unsigned char pattern(int proc, long i) { return (unsigned char)(proc * 31 + i * 7 + (i >> 8) + 1); }

/* -- shapes: alignment by alignment, size by size, cut by am_max_size. */

static void has_come(vnn_t from, void *at, int n, void *arg)
{
    CHECK(n <= am_max_size() && arg == &argument && from >= 0 && from < am_procs());
    CHECK((unsigned char *)at >= target && (unsigned char *)at + n <= target + ROOM);
    stored += n;
}

static void has_got(vnn_t from, void *at, int n, void *arg)
{
    CHECK(arg == &argument && from == (am_my_proc() + 1) % am_procs());
    CHECK((unsigned char *)at >= fetched && (unsigned char *)at + n <= fetched + ROOM);
    got += n;
}

/* Both directions at once: all store to the right, and look at what came from the left. */
static void shape(int from, int to, long size)
{
    int own = am_my_proc(), procs = am_procs(), right = (own + 1) % procs, left = (own + procs - 1) % procs;
    long i, at;

    memset(target, 0xee, sizeof target);
    memset(fetched, 0xdd, sizeof fetched);
    stored = got = 0;
    meet();
    for (at = 0; at < size; at += am_max_size()) {
        int n = (int)(size - at < am_max_size() ? size - at : am_max_size());
        CHECK(am_store(right, source + from + at, target + to + at, n, has_come, &argument) == 0);
    }
    am_wait_for(stored == size);
    for (i = 0; i < size; i++)
        CHECK(target[to + i] == pattern(left, from + i));
    CHECK((to == 0 || target[to - 1] == 0xee) && target[to + size] == 0xee);
    for (at = 0; at < size; at += am_max_size()) {
        int n = (int)(size - at < am_max_size() ? size - at : am_max_size());
        CHECK(am_get(right, source + from + at, fetched + to + at, n, has_got, &argument) == 0);
    }
    am_wait_for(got == size);
    for (i = 0; i < size; i++)
        CHECK(fetched[to + i] == pattern(right, from + i));
    CHECK((to == 0 || fetched[to - 1] == 0xdd) && fetched[to + size] == 0xdd);
    meet();
}

static void shapes(void)
{
    static const long small[] = { 1, 2, 3, 7, 8, 9, 63, 64, 65, 1000 };
    static const long large[] = { 4095, 4096, 4097, 8191, 5000, MOST - 1, MOST, MOST + 1, 10L * MOST };
    int from, to;
    size_t which;

    for (from = 0; from < 8; from += 3)
        for (to = 0; to < 8; to++)
            for (which = 0; which < sizeof small / sizeof *small; which++)
                if (to < 4 || which % 3 == 0)
                    shape(from, to, small[which]);
    for (which = 0; which < sizeof large / sizeof *large; which++) {
        shape(0, 0, large[which]);
        shape(1, 7, large[which]);
    }
}

/* -- empty: no bytes are no failure, and their handler runs. */

static void empty_stored(vnn_t from, void *at, int n, void *arg) { (void)from; (void)at; (void)arg; CHECK(n == 0); stored++; }
static void empty_got(vnn_t from, void *at, int n, void *arg) { (void)from; (void)at; (void)arg; CHECK(n == 0); got++; }

static void empty(void)
{
    int right = (am_my_proc() + 1) % am_procs();

    CHECK(am_store(right, source, target, 0, empty_stored, NULL) == 0);
    CHECK(am_store(right, NULL, NULL, 0, empty_stored, NULL) == 0);
    CHECK(am_get(right, source, target, 0, empty_got, NULL) == 0);
    am_wait_for(stored == 2 && got == 1);
    meet();
}

/* -- async: many at once; each ends here once, in a later poll, with what it was started with. */

enum { MANY = 200 };

static volatile int is_ended[MANY];

static void is_stored(vnn_t from, void *at, int n, void *arg)
{
    long i = (long)arg;

    CHECK(at == target + i * 64 && n == 64);
    CHECK(target[i * 64] == pattern(from, i * 64) && target[i * 64 + 63] == pattern(from, i * 64 + 63));
    stored++;
}

static void is_free(vnn_t from, void *at, int n, void *arg)
{
    long i = (long)arg;

    CHECK(from == (am_my_proc() + 1) % am_procs() && at == source + i * 64 && n == 64);
    CHECK(!is_ended[i]);
    is_ended[i] = 1;
    ended++;
}

static void async(void)
{
    int right = (am_my_proc() + 1) % am_procs();
    long i;

    for (i = 0; i < MANY; i++) {
        CHECK(am_store_async(right, source + i * 64, target + i * 64, 64, is_stored, (void *)i, is_free,
                             (void *)i) == 0);
        CHECK(!is_ended[i]);
    }
    am_wait_for(ended == MANY && stored == MANY);
    meet();
    CHECK(ended == MANY && stored == MANY);
}

/* -- gets: hundreds at once, beyond the credits; the handler runs here, and in a later poll only. */

static void one_got(vnn_t from, void *at, int n, void *arg)
{
    long i = (long)arg;

    CHECK(from == (am_my_proc() + 1) % am_procs() && at == fetched + i * 64 && n == 64 && !is_ended[i]);
    CHECK(fetched[i * 64 + 63] == pattern(from, i * 64 + 63));
    is_ended[i] = 1;
    got++;
}

static void gets(void)
{
    int right = (am_my_proc() + 1) % am_procs();
    long i;

    for (i = 0; i < MANY; i++) {
        CHECK(am_get(right, source + i * 64, fetched + i * 64, 64, one_got, (void *)i) == 0);
        CHECK(!is_ended[i]);
    }
    am_wait_for(got == MANY);
    meet();
    CHECK(got == MANY);
}

/* -- reply: a store's handler may reply, as that of any request. */

static void store_replied(vnn_t from, long n) { (void)from; got += n; }
static void store_replies(vnn_t from, void *at, int n, void *arg)
{
    (void)at; (void)arg;
    CHECK(am_reply_1(from, store_replied, n) == 0);
}

static void reply(void)
{
    int proc;

    for (proc = 0; proc < am_procs(); proc++)
        CHECK(am_store(proc, source, target, 100, store_replies, NULL) == 0);
    am_wait_for(got == 100 * am_procs());
    meet();
}

/* -- unmapped: an address that the other has not is an error, and costs no credit; or, where it shows later,
 * the end. */

static void never(vnn_t from, void *at, int n, void *arg)
{
    (void)from; (void)at; (void)n; (void)arg;
    CHECK(!"the handler of a transfer that failed");
}

static void unmapped(void)
{
    int right = (am_my_proc() + 1) % am_procs(), i;
    void *nowhere = (void *)64;

    meet();
    for (i = 0; i < 40; i++) {
        int failed = am_store(right, source, nowhere, 100, never, NULL);
        failed += am_get(right, nowhere, fetched, 100, never, NULL);
        failed += am_store_async(right, source, nowhere, 100, never, NULL, never, NULL);
        if (failed != -3)
            am_wait_for(got < 0);
    }
    meet();
    gets();
}

/* -- oneself: in place, and where source and target overlap. */

static void oneself_stored(vnn_t from, void *at, int n, void *arg)
{
    CHECK(from == am_my_proc() && at == source + 1 && n == 100 && arg == &argument);
    stored++;
}
static void oneself_end(vnn_t from, void *at, int n, void *arg)
{
    CHECK(from == am_my_proc() && n == 100 && arg == &argument);
    CHECK(at == source || at == fetched);
    ended++;
}

static void oneself(void)
{
    int own = am_my_proc();
    long i;

    CHECK(am_store(own, source, source + 1, 100, oneself_stored, &argument) == 0);
    CHECK(stored == 1 && source[1] == pattern(own, 0) && source[100] == pattern(own, 99));
    CHECK(am_store_async(own, source, source + 1, 100, oneself_stored, &argument, oneself_end, &argument) == 0);
    CHECK(stored == 2 && ended == 0);
    am_poll();
    CHECK(ended == 1);
    CHECK(am_get(own, source + 5, fetched, 100, oneself_end, &argument) == 0);
    CHECK(ended == 1);
    am_poll();
    CHECK(ended == 2);
    for (i = 0; i < 100; i++)
        CHECK(fetched[i] == source[5 + i]);
}

/* -- addresses: variables and functions have one address in all processes; so has, in processes that were
 * forked or are started at the same addresses, what was allocated before am_enable. */

static volatile int agreed;
static int *from_before;

static void same(vnn_t from, long variable, long function)
{
    (void)from;
    CHECK(variable == (long)&argument && function == (long)same);
    agreed++;
}

static void addresses(void)
{
    int proc;

    for (proc = 0; proc < am_procs(); proc++)
        CHECK(am_request_2(proc, same, (long)&argument, (long)same) == 0);
    am_wait_for(agreed == am_procs());
}

static void heap_got(vnn_t from, void *at, int n, void *arg)
{
    CHECK(n == (int)sizeof(int) && at == from_before + 1 && arg == NULL && *(int *)at == from);
    got++;
}

static void heap(void)
{
    *from_before = am_my_proc();
    meet();
    CHECK(am_get((am_my_proc() + 1) % am_procs(), from_before, from_before + 1, sizeof(int), heap_got,
                 NULL) == 0);
    am_wait_for(got == 1);
}

int main(int argc, char **argv)
{
    const char *what = scenario(argc, argv);
    long i;

    from_before = malloc(1000 * sizeof(int));
    am_enable(wanted(argc, argv), argc, argv);
    CHECK(am_max_size() == MOST);
    for (i = 0; i < ROOM; i++)
        source[i] = pattern(am_my_proc(), i);
    meet();
    if (strcmp(what, "shapes") == 0) shapes();
    else if (strcmp(what, "empty") == 0) empty();
    else if (strcmp(what, "async") == 0) async();
    else if (strcmp(what, "gets") == 0) gets();
    else if (strcmp(what, "reply") == 0) reply();
    else if (strcmp(what, "unmapped") == 0) unmapped();
    else if (strcmp(what, "oneself") == 0) oneself();
    else if (strcmp(what, "addresses") == 0) addresses();
    else if (strcmp(what, "heap") == 0) heap();
    else CHECK(!"such a part");
    meet();
    printf("%s: %d is well\n", what, am_my_proc());
    am_disable();
    return 0;
}
