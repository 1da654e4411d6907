/* gam.h: what differs from am.h, and that the rest is the same layer. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "gam.h"
#include "check_gam.h"

enum { MEDIUM = 8192 };

static char bytes[MEDIUM + 1], table[1000];
static int counter, replied, words_seen, others;
static long sums;

static void count(vnn_t from) { (void)from; counter++; }

/* -- words: none to four, as int and as long; in both spellings. */

static void back(vnn_t from, int a, int b, int c, int d)
{
    (void)from;
    CHECK(a == 1 && b == -2 && c == INT_MIN && d == INT_MAX);
    replied++;
}
static void there(vnn_t from, int a, int b, int c, int d) { CHECK(gam_reply_4(from, back, a, b, c, d) == 0); }
static void one(vnn_t from, int a) { (void)from; CHECK(a == 7); words_seen++; }
static void one_there(vnn_t from, int a) { CHECK(gam_reply1(from, one, a) == 0); }
static void two(vnn_t from, int a, int b) { (void)from; words_seen += a + b; }
static void three(vnn_t from, long a, long b, long c)
{
    (void)from;
    CHECK(a == LONG_MIN && b == LONG_MAX && (char *)c == table);
    words_seen++;
}
static void three_there(vnn_t from, long a, long b, long c) { CHECK(gam_reply3(from, three, a, b, c) == 0); }
static void two_there(vnn_t from, int a, int b) { CHECK(gam_reply_2(from, two, a, b) == 0); }

/* The same in the other spelling. */
static void there_too(vnn_t from, int a, int b, int c, int d) { CHECK(gam_reply4(from, back, a, b, c, d) == 0); }
static void zero_there(vnn_t from) { CHECK(gam_reply0(from, count) == 0); }
static void zero_there_too(vnn_t from) { CHECK(gam_reply_0(from, count) == 0); }
static void one_there_too(vnn_t from, int a) { CHECK(gam_reply_1(from, one, a) == 0); }
static void two_there_too(vnn_t from, int a, int b) { CHECK(gam_reply2(from, two, a, b) == 0); }
static void three_there_too(vnn_t from, long a, long b, long c) { CHECK(gam_reply_3(from, three, a, b, c) == 0); }

static void words(void)
{
    int proc, procs = gam_procs();

    for (proc = 0; proc < procs; proc++) {
        CHECK(gam_request_0(proc, zero_there) == 0);
        CHECK(gam_request0(proc, zero_there_too) == 0);
        CHECK(gam_request_1(proc, one_there_too, 7) == 0);
        CHECK(gam_request_2(proc, two_there_too, 1, 2) == 0);
        CHECK(gam_request3(proc, three_there_too, LONG_MIN, LONG_MAX, (long)table) == 0);
        CHECK(gam_request_4(proc, there_too, 1, -2, INT_MIN, INT_MAX) == 0);
        CHECK(gam_request1(proc, one_there, 7) == 0);
        CHECK(gam_request2(proc, two_there, 1, 2) == 0);
        CHECK(gam_request_3(proc, three_there, LONG_MIN, LONG_MAX, (long)table) == 0);
        CHECK(gam_request4(proc, there, 1, -2, INT_MIN, INT_MAX) == 0);
    }
    CHECK(gam_wait(&counter, 2 * procs) == 0);
    CHECK(gam_wait(&replied, 2 * procs) == 0);
    CHECK(gam_wait(&words_seen, 10 * procs) == 0);
    CHECK(counter == 0 && replied == 0 && words_seen == 0);
}

/* -- doubles: they come first. */

static void double_back(vnn_t from, double d, int a, int b)
{
    (void)from;
    CHECK(d == -0.1 && a == 3 && b == -4);
    counter++;
}
static void double_there(vnn_t from, double d, int a, int b) { CHECK(gam_reply_fd(from, double_back, d, a, b) == 0); }

static void doubles(void)
{
    int proc;

    for (proc = 0; proc < gam_procs(); proc++)
        CHECK(gam_request_fd(proc, double_there, -0.1, 3, -4) == 0);
    CHECK(gam_wait(&counter, gam_procs()) == 0);
}

/* -- medium: bytes in a buffer of the system, up to 8192, and no more. */

static void bytes_back(vnn_t from, char *at, int len, long a, long b)
{
    (void)from;
    CHECK(a == len && (char *)b == table && (len == 0 || memcmp(at, bytes, len) == 0));
    CHECK(at != bytes);
    counter++;
}
static void bytes_there(vnn_t from, char *at, int len, long a, long b)
{
    char copy[MEDIUM];

    CHECK(a == len && (len == 0 || memcmp(at, bytes, len) == 0));
    CHECK(gam_reply(from, bytes_back, at, MEDIUM + 1, a, b) == -1);
    CHECK(gam_reply(from, bytes_back, at, -1, a, b) == -1);
    CHECK(gam_reply(from, bytes_back, NULL, 1, a, b) == -1);
    /* The bytes are the program's again at once. */
    memcpy(copy, at, len);
    CHECK(gam_reply(from, bytes_back, copy, len, a, b) == 0);
    memset(copy, 0, sizeof copy);
}

static void medium(void)
{
    static const int sizes[] = { 0, 1, 7, 8, 9, 100, MEDIUM - 1, MEDIUM };
    size_t which;
    int proc, i, count = (int)(sizeof sizes / sizeof *sizes);

    for (i = 0; i <= MEDIUM; i++)
        bytes[i] = (char)(i * 7 + 1);
    /* Handlers may run from gam_enable on, and look at these. */
    CHECK(gam_barrier() == 0);
    for (proc = 0; proc < gam_procs(); proc++) {
        for (which = 0; which < sizeof sizes / sizeof *sizes; which++)
            CHECK(gam_request(proc, bytes_there, bytes, sizes[which], sizes[which], (long)table) == 0);
        for (i = 0; i < 40; i++) {
            CHECK(gam_request(proc, bytes_there, bytes, MEDIUM + 1, 0, 0) == -1);
            CHECK(gam_request(proc, bytes_there, bytes, -1, 0, 0) == -1);
            CHECK(gam_request(proc, bytes_there, NULL, 1, 0, 0) == -1);
            CHECK(gam_request(proc, NULL, bytes, 1, 0, 0) == -1);
        }
    }
    CHECK(gam_request(gam_procs(), bytes_there, bytes, 1, 0, 0) == -1);
    CHECK(gam_wait(&counter, gam_procs() * count) == 0);
}

/* -- flood: medium messages both ways, beyond the credits. */

static void flood_there(vnn_t from, char *at, int len, long a, long b)
{
    (void)b;
    sums += at[0] + a;
    CHECK(gam_reply(from, bytes_back, at, len, len, (long)table) == 0);
}

static void flood(void)
{
    int i, proc;

    bytes[0] = 1;
    for (i = 0; i < 500; i++)
        for (proc = 0; proc < gam_procs(); proc++)
            CHECK(gam_request(proc, flood_there, bytes, 3000, i, 0) == 0);
    CHECK(gam_wait(&counter, 500 * gam_procs()) == 0);
    CHECK(gam_barrier() == 0);
    CHECK(sums == gam_procs() * (500L + 500L * 499 / 2));
}

/* -- memory: stores and gets. */

static void landed(vnn_t from, void *at, int n, void *arg)
{
    (void)from;
    CHECK(at == table + 8 && n == 100 && arg == bytes);
    counter++;
}
static void freed(vnn_t from, void *at, int n, void *arg)
{
    CHECK(from == (vnn_t)((gam_my_proc() + 1) % gam_procs()) && at == bytes && n == 100 && arg == table);
    replied++;
}

static void memory(void)
{
    vnn_t right = (gam_my_proc() + 1) % gam_procs();

    CHECK(gam_store(right, bytes, table + 8, 100, landed, bytes) == 0);
    CHECK(gam_store_async(right, bytes, table + 8, 100, landed, bytes, freed, table) == 0);
    CHECK(gam_get(right, bytes, table + 8, 100, landed, bytes) == 0);
    CHECK(gam_wait(&counter, 3) == 0);
    CHECK(gam_wait(&replied, 1) == 0);
    CHECK(gam_store(right, bytes, table, gam_max_size() + 1, landed, bytes) == -1);
    CHECK(gam_get(right, bytes, NULL, 1, landed, bytes) == -1);
    CHECK(gam_store_async(-1, bytes, table, 1, landed, bytes, freed, table) == -1);
}

/* -- barrier: nobody passes it before all have come; handlers run in it. */

static void arrives(vnn_t from) { (void)from; others++; }

static void all_meet(void)
{
    int round, proc, procs = gam_procs();

    for (round = 1; round <= 50; round++) {
        for (proc = 0; proc < procs; proc++)
            CHECK(gam_request_0(proc, arrives) == 0);
        CHECK(gam_wait(&others, procs) == 0);
        CHECK(gam_barrier() == 0);
    }
    /* It runs what ends gets of this process's, without a poll. */
    counter = 0;
    for (round = 0; round < 20; round++)
        CHECK(gam_get((gam_my_proc() + 1) % procs, bytes, table + 8, 100, landed, bytes) == 0);
    CHECK(gam_barrier() == 0);
    /* Over a network they may end later. */
    CHECK(counter == 20 || getenv("STANDPIPE_TRANSPORT") != NULL);
    CHECK(gam_wait(&counter, 20) == 0);
    CHECK(gam_barrier() == 0);
}

/* -- rules: what handlers may not do; counters that are none. */

static void rules_there(vnn_t from)
{
    CHECK(gam_request_0(from, count) == -1 && gam_barrier() == -1 && gam_disable() == -1);
    CHECK(gam_request(from, bytes_there, bytes, 1, 0, 0) == -1 && gam_wait(&counter, 1000) == -1);
    CHECK(gam_poll() == 0);
    CHECK(gam_reply_0(from, count) == 0 && gam_reply_0(from, count) == -1);
}

static void rules(void)
{
    int proc;

    CHECK(gam_wait(NULL, 1) == -1 && gam_wait(&counter, -1) == -1 && gam_wait(&counter, INT_MIN) == -1);
    CHECK(gam_reply_0(0, count) == -1 && gam_reply(0, bytes_there, bytes, 1, 0, 0) == -1);
    CHECK(gam_reply_fd(0, double_back, 1.0, 1, 1) == -1);
    CHECK(gam_enable() == -1);
    for (proc = 0; proc < gam_procs(); proc++)
        CHECK(gam_request_0(proc, rules_there) == 0);
    CHECK(gam_wait(&counter, gam_procs()) == 0);
    for (proc = 0; proc < gam_procs(); proc++)
        CHECK(gam_request_4(proc, gam_dummy, 1, 2, 3, 4) == 0);
}

static void nothing_works(int me, int procs)
{
    CHECK(gam_my_proc() == me && gam_procs() == procs && gam_max_size() == 8192);
    CHECK(gam_request_0(0, count) == -1 && gam_request_fd(0, double_there, 1.0, 1, 1) == -1);
    CHECK(gam_request(0, bytes_there, bytes, 1, 0, 0) == -1 && gam_reply(0, bytes_there, bytes, 1, 0, 0) == -1);
    CHECK(gam_store(0, bytes, table, 1, landed, NULL) == -1 && gam_get(0, bytes, table, 1, landed, NULL) == -1);
    CHECK(gam_poll() == -1 && gam_barrier() == -1 && gam_disable() == -1);
    counter = 0;
    CHECK(gam_wait(&counter, 1) == -1 && gam_wait(&counter, 0) == 0);
}

int main(int argc, char **argv)
{
    const char *what = argc > 2 ? argv[2] : "none";
    int me, procs;

    if (strcmp(what, "before") == 0)
        nothing_works(-1, -1);
    if (strcmp(what, "exit before") == 0)
        gam_exit(0);
    CHECK(gam_enable(0) == 0);
    CHECK(gam_procs() == atoi(argv[1]));
    if (strcmp(what, "words") == 0) words();
    else if (strcmp(what, "doubles") == 0) doubles();
    else if (strcmp(what, "medium") == 0) medium();
    else if (strcmp(what, "flood") == 0) flood();
    else if (strcmp(what, "memory") == 0) memory();
    else if (strcmp(what, "barrier") == 0) all_meet();
    else if (strcmp(what, "rules") == 0) rules();
    CHECK(gam_barrier() == 0);
    printf("%s: %d is well\n", what, gam_my_proc());
    fflush(stdout);
    if (strcmp(what, "exit") == 0)
        gam_exit(0);
    if (strcmp(what, "exit badly") == 0) {
        if (gam_my_proc() == 0)
            gam_exit(6);
        gam_wait(&counter, 1);
        return 9;
    }
    me = gam_my_proc(), procs = gam_procs();
    CHECK(gam_disable() == 0);
    if (strcmp(what, "after") == 0) {
        nothing_works(me, procs);
        CHECK(gam_enable() == -1);
    }
    return 0;
}
