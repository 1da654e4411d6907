/* Requests and replies of am.h: what each documented sentence says of them. */
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>
#include "check.h"

static int table[1000];
static volatile long requests, replies, sum;

/* -- words: every number of them, to every process, with the extremes of their type. */

static volatile int seen[5], back[5];

static void back_0(vnn_t from) { CHECK(from >= 0 && from < am_procs()); back[0]++; }
static void back_1(vnn_t from, long a) { (void)from; CHECK(a == LONG_MIN); back[1]++; }
static void back_2(vnn_t from, long a, long b) { (void)from; CHECK(a == LONG_MAX && b == -1); back[2]++; }
static void back_3(vnn_t from, long a, long b, long c)
{
    (void)from;
    CHECK(a == 1 && b == 2 && c == LONG_MIN);
    back[3]++;
}
static void back_4(vnn_t from, long a, long b, long c, long d)
{
    CHECK(a == from && b == am_my_proc() && c == LONG_MAX && d == LONG_MIN);
    back[4]++;
}

static void there_0(vnn_t from) { seen[0]++; CHECK(am_reply_0(from, back_0) == 0); }
static void there_1(vnn_t from, long a) { seen[1]++; CHECK(am_reply_1(from, back_1, a) == 0); }
static void there_2(vnn_t from, long a, long b) { seen[2]++; CHECK(am_reply_2(from, back_2, a, b) == 0); }
static void there_3(vnn_t from, long a, long b, long c)
{
    seen[3]++;
    CHECK(am_reply_3(from, back_3, a, b, c) == 0);
}
static void there_4(vnn_t from, long a, long b, long c, long d)
{
    CHECK(a == from && b == am_my_proc());
    seen[4]++;
    CHECK(am_reply_4(from, back_4, b, a, c, d) == 0);
}

static void words(void)
{
    int proc, count, procs = am_procs();

    for (proc = 0; proc < procs; proc++) {
        CHECK(am_request_0(proc, there_0) == 0);
        CHECK(am_request_1(proc, there_1, LONG_MIN) == 0);
        CHECK(am_request_2(proc, there_2, LONG_MAX, -1L) == 0);
        CHECK(am_request_3(proc, there_3, 1L, 2L, LONG_MIN) == 0);
        CHECK(am_request_4(proc, there_4, am_my_proc(), proc, LONG_MAX, LONG_MIN) == 0);
    }
    for (count = 0; count < 5; count++) {
        am_wait_for(seen[count] == procs && back[count] == procs);
        CHECK(seen[count] == procs && back[count] == procs);
    }
}

/* -- doubles. */

static const double doubles[] = { 0.0, -0.0, 1.0 / 3, -1e308, 5e-324 };
static volatile int doubles_back;

static void double_back(vnn_t from, long a, long b, double d)
{
    (void)from;
    CHECK(memcmp(&d, &doubles[a], sizeof d) == 0 && b == -a);
    doubles_back++;
}
static void not_a_number(vnn_t from, long a, long b, double d)
{
    (void)from;
    CHECK(isnan(d) && a == LONG_MAX && b == LONG_MIN);
    doubles_back++;
}
static void double_there(vnn_t from, long a, long b, double d)
{
    CHECK(am_reply_df(from, isnan(d) ? not_a_number : double_back, a, b, d) == 0);
}

static void with_double(void)
{
    int proc, which, count = (int)(sizeof doubles / sizeof *doubles);

    for (proc = 0; proc < am_procs(); proc++) {
        for (which = 0; which < count; which++)
            CHECK(am_request_df(proc, double_there, which, -which, doubles[which]) == 0);
        CHECK(am_request_df(proc, double_there, LONG_MAX, LONG_MIN, (double)NAN) == 0);
    }
    am_wait_for(doubles_back == (count + 1) * am_procs());
}

/* -- self: a request to oneself runs in place, and so does its reply. */

static void own_reply(vnn_t from) { CHECK(from == am_my_proc() && requests == 1); replies++; }
static void own_request(vnn_t from) { requests++; CHECK(am_reply_0(from, own_reply) == 0 && replies == 0); }
static void no_reply(vnn_t from, long a) { (void)from; sum += a; }

static void to_oneself(void)
{
    CHECK(am_request_0(am_my_proc(), own_request) == 0);
    CHECK(requests == 1 && replies == 1);
    CHECK(am_request_1(am_my_proc(), no_reply, 5) == 0 && sum == 5);
    CHECK(am_request_0(am_my_proc(), (handler_0_t)am_dummy) == 0);
}

/* -- flood: thousands of requests beyond the credits, from all to all at once; one reply each. */

enum { FLOOD = 2000 };

static void counted(vnn_t from, long a) { (void)from; replies++; sum += a; }
static void count(vnn_t from, long a) { requests++; CHECK(am_reply_1(from, counted, a) == 0); }

static void flood(void)
{
    long i, procs = am_procs();
    int proc;

    for (i = 0; i < FLOOD; i++)
        for (proc = 0; proc < procs; proc++)
            CHECK(am_request_1(proc, count, i) == 0);
    am_wait_for(replies == FLOOD * procs && requests == FLOOD * procs);
    meet();
    CHECK(replies == FLOOD * procs && requests == FLOOD * procs);
    CHECK(sum == procs * FLOOD * (FLOOD - 1L) / 2);
}

/* -- silent: handlers that do not reply give the credits back all the same. The receiver is slow. */

static void silent_request(vnn_t from) { (void)from; requests++; if (requests % 500 == 0) usleep(2000); }

static void silent(void)
{
    long i;
    int proc;

    for (i = 0; i < FLOOD; i++)
        for (proc = 0; proc < am_procs(); proc++)
            CHECK(am_request_0(proc, silent_request) == 0);
    am_wait_for(requests == (long)FLOOD * am_procs());
    meet();
    CHECK(requests == (long)FLOOD * am_procs() && replies == 0);
}

/* -- credits: thirty requests leave at once; the next one waits until the receiver polls. */

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static double polls_at, others_poll_at;
static volatile int has_time;

static void has_stored(vnn_t from, void *at, int n, void *arg) { (void)from; (void)at; (void)n; (void)arg; has_time = 1; }

static void make(const char *file)
{
    FILE *made = fopen(file, "w");

    CHECK(made != NULL && fclose(made) == 0);
}

static void await(const char *file)
{
    double end = now() + 60;

    while (access(file, F_OK) != 0)
        CHECK(now() < end);
}

/* The two tell each other by files, without a poll: that one polls no more, and that thirty have left. */
static void credits(void)
{
    const char *deaf = getenv("GAM_TEST_DEAF"), *left = getenv("GAM_TEST_LEFT");
    double end, more;
    int i;

    CHECK(deaf != NULL && left != NULL);
    meet();
    if (am_my_proc() == 1) {
        make(deaf);
        await(left);
        for (end = now() + 0.1; now() < end;)
            ;
        polls_at = now();
        am_wait_for(requests == 31);
        CHECK(am_store(0, &polls_at, &others_poll_at, sizeof polls_at, has_stored, NULL) == 0);
    } else {
        await(deaf);
        for (i = 0; i < 30; i++)
            CHECK(am_request_0(1, silent_request) == 0);
        make(left);
        CHECK(am_request_0(1, silent_request) == 0);
        more = now();
        am_wait_for(has_time);
        CHECK(more >= others_poll_at);
    }
    meet();
}

/* -- rules: what handlers may not do is refused, and disturbs nothing. */

static volatile int done;

static void rules_back(vnn_t from, long a)
{
    CHECK(a == 7);
    CHECK(am_reply_0(from, (handler_0_t)am_dummy) == -1);
    CHECK(am_request_0(from, (handler_0_t)am_dummy) == -1);
    done++;
}

static void in_handler(vnn_t from, void *at, int n, void *arg)
{
    (void)at; (void)n; (void)arg;
    CHECK(am_request_0(from, (handler_0_t)am_dummy) == -1);
    CHECK(am_reply_0(from, (handler_0_t)am_dummy) == -1);
    done++;
}

static void not_here(vnn_t from) { (void)from; CHECK(!"another handler in a handler"); }

static void rules_there(vnn_t from, long a)
{
    handler_mem_t nothing = (handler_mem_t)am_dummy;
    int other = from == 0 ? 1 : 0;

    CHECK(am_request_0(from, not_here) == -1);
    CHECK(am_request_4(from, (handler_4_t)am_dummy, 1, 2, 3, 4) == -1);
    CHECK(am_request_df(from, (handler_df_t)am_dummy, 1, 2, 3.0) == -1);
    CHECK(am_store(from, table, table, 4, nothing, NULL) == -1);
    CHECK(am_store_async(from, table, table, 4, nothing, NULL, nothing, NULL) == -1);
    CHECK(am_get(from, table, table, 4, nothing, NULL) == -1);
    CHECK(am_sleep(3) == 3);
    am_disable();
    am_poll();
    CHECK(am_reply_1(other, rules_back, a) == -1);
    CHECK(am_reply_1(-1, rules_back, a) == -1);
    CHECK(am_reply_1(from, NULL, a) == -1);
    CHECK(am_reply_1(from, rules_back, a) == 0);
    CHECK(am_reply_1(from, rules_back, a + 1) == -1);
    CHECK(am_reply_0(from, not_here) == -1);
    CHECK(am_my_proc() >= 0 && am_procs() >= 1 && am_max_size() == 16384);
}

static void rules(void)
{
    int i, procs = am_procs();

    CHECK(am_reply_0(0, not_here) == -1);
    CHECK(am_reply_df(0, (handler_df_t)am_dummy, 1, 2, 3.0) == -1);
    for (i = 0; i < procs; i++)
        CHECK(am_request_1(i, rules_there, 7) == 0);
    am_wait_for(done == procs);
    CHECK(am_reply_0(0, not_here) == -1);
    done = 0;
    for (i = 0; i < procs; i++) {
        CHECK(am_store(i, table, table, 4, (handler_mem_t)am_dummy, NULL) == 0);
        CHECK(am_get(i, table, table + 10, 4, in_handler, NULL) == 0);
        CHECK(am_store_async(i, table, table, 4, (handler_mem_t)am_dummy, NULL, in_handler, NULL) == 0);
    }
    am_wait_for(done == 2 * procs);
    meet();
}

/* -- bad: arguments that mean nothing are refused, more often than there are credits, and cost no credit. */

static void bad(void)
{
    handler_mem_t nothing = (handler_mem_t)am_dummy;
    int procs = am_procs(), own = am_my_proc(), most = am_max_size(), i, which;
    vnn_t right = (own + 1) % procs;
    vnn_t wrong[4];

    wrong[0] = -1; wrong[1] = procs; wrong[2] = INT_MAX; wrong[3] = INT_MIN;
    for (i = 0; i < 35; i++) {
        for (which = 0; which < 4; which++) {
            CHECK(am_request_0(wrong[which], (handler_0_t)am_dummy) == -1);
            CHECK(am_request_4(wrong[which], (handler_4_t)am_dummy, 1, 2, 3, 4) == -1);
            CHECK(am_store(wrong[which], table, table, 4, nothing, NULL) == -1);
            CHECK(am_store_async(wrong[which], table, table, 4, nothing, NULL, nothing, NULL) == -1);
            CHECK(am_get(wrong[which], table, table, 4, nothing, NULL) == -1);
        }
        CHECK(am_request_0(right, NULL) == -1);
        CHECK(am_request_df(right, NULL, 1, 2, 3.0) == -1);
        CHECK(am_request_1(right, (handler_1_t)(long)table, 1) == -1);
        CHECK(am_request_1(right, (handler_1_t)16, 1) == -1);
        CHECK(am_store(right, table, table, 4, NULL, NULL) == -1);
        CHECK(am_get(right, table, table, 4, NULL, NULL) == -1);
        CHECK(am_store_async(right, table, table, 4, nothing, NULL, NULL, NULL) == -1);
        CHECK(am_store_async(right, table, table, 4, NULL, NULL, nothing, NULL) == -1);
        CHECK(am_store(right, table, table, -1, nothing, NULL) == -1);
        CHECK(am_store(right, table, table, INT_MIN, nothing, NULL) == -1);
        CHECK(am_store(right, table, table, most + 1, nothing, NULL) == -1);
        CHECK(am_store_async(right, table, table, most + 1, nothing, NULL, nothing, NULL) == -1);
        CHECK(am_get(right, table, table, most + 1, nothing, NULL) == -1);
        CHECK(am_get(right, table, table, INT_MAX, nothing, NULL) == -1);
        CHECK(am_store(right, NULL, table, 4, nothing, NULL) == -1);
        CHECK(am_store(right, table, NULL, 4, nothing, NULL) == -1);
        CHECK(am_get(right, table, NULL, 4, nothing, NULL) == -1);
        CHECK(am_get(right, NULL, table, 4, nothing, NULL) == -1);
    }
    meet();
    flood();
}

/* -- sleep: handlers run meanwhile, and it takes its time. */

static void sleeps(void)
{
    double begun;

    meet();
    begun = now();
    if (am_my_proc() == 0) {
        /* The system's name, which the header gives to am_sleep. */
        CHECK(sleep(1) == 0);
        CHECK(now() - begun >= 0.99 && now() - begun < 5);
        CHECK(requests == am_procs() - 1);
    } else {
        CHECK(am_request_0(0, silent_request) == 0);
    }
    CHECK(am_sleep(0) == 0);
    meet();
}

/* -- dummy: for any type of handler, and it gives the credits back. */

static void dummy(void)
{
    int i, proc;

    for (i = 0; i < 100; i++)
        for (proc = 0; proc < am_procs(); proc++) {
            CHECK(am_request_0(proc, (handler_0_t)am_dummy) == 0);
            CHECK(am_request_3(proc, (handler_3_t)am_dummy, 1, 2, 3) == 0);
            CHECK(am_request_df(proc, (handler_df_t)am_dummy, 1, 2, 3.0) == 0);
            CHECK(am_store(proc, table, table, 4, (handler_mem_t)am_dummy, NULL) == 0);
        }
    meet();
}

/* -- order: requests of one process come in the order sent, of whatever length. */

static long next_from[64];

static void is_next(vnn_t from, long i) { CHECK(next_from[from]++ == i); requests++; }
static void next_one(vnn_t from, long i) { is_next(from, i); }
static void next_four(vnn_t from, long i, long b, long c, long d)
{
    CHECK(b == 1 && c == 2 && d == 3);
    is_next(from, i);
}
static void next_double(vnn_t from, long i, long b, double d) { CHECK(b == 1 && d == 0.5); is_next(from, i); }

static void order(void)
{
    int proc, procs = am_procs();
    long i;

    for (i = 0; i < 900; i += 3)
        for (proc = 0; proc < procs; proc++) {
            CHECK(am_request_1(proc, next_one, i) == 0);
            CHECK(am_request_4(proc, next_four, i + 1, 1, 2, 3) == 0);
            CHECK(am_request_df(proc, next_double, i + 2, 1, 0.5) == 0);
        }
    am_wait_for(requests == 900 * procs);
}

/* -- thread: handlers run in the program's own calls, and on its own thread. */

static pthread_t own_thread;

static void on_thread(vnn_t from) { (void)from; CHECK(pthread_equal(pthread_self(), own_thread)); requests++; }

static void thread(void)
{
    struct timespec soon = { 0, 100000000 };
    int right = (am_my_proc() + 1) % am_procs();
    long before;

    own_thread = pthread_self();
    meet();
    CHECK(am_request_0(right, on_thread) == 0);
    before = requests;
    nanosleep(&soon, NULL);
    /* What has come meanwhile is handled in the next call. */
    CHECK(requests == before);
    am_wait_for(requests == 1);
    meet();
}

/* -- drain: what was sent before am_disable is handled before that returns anywhere. */

static void drain(void)
{
    int i, proc, procs = am_procs();

    for (i = 0; i < 25; i++)
        for (proc = 0; proc < procs; proc++)
            CHECK(am_request_1(proc, count, i) == 0);
    CHECK(am_get((am_my_proc() + 1) % procs, table, table + 10, 4, in_handler, NULL) == 0);
    am_disable();
    if (requests != 25 * procs || replies != 25 * procs || done != 1) {
        fprintf(stderr, "%ld requests, %ld replies, %d gets\n", requests, replies, done);
        exit(3);
    }
    exit(0);
}

int main(int argc, char **argv)
{
    const char *what = scenario(argc, argv);

    am_enable(wanted(argc, argv), argc, argv);
    CHECK(am_procs() == wanted(argc, argv));
    if (strcmp(what, "words") == 0) words();
    else if (strcmp(what, "doubles") == 0) with_double();
    else if (strcmp(what, "oneself") == 0) to_oneself();
    else if (strcmp(what, "flood") == 0) flood();
    else if (strcmp(what, "silent") == 0) silent();
    else if (strcmp(what, "credits") == 0) credits();
    else if (strcmp(what, "rules") == 0) rules();
    else if (strcmp(what, "bad") == 0) bad();
    else if (strcmp(what, "sleep") == 0) sleeps();
    else if (strcmp(what, "dummy") == 0) dummy();
    else if (strcmp(what, "order") == 0) order();
    else if (strcmp(what, "thread") == 0) thread();
    else if (strcmp(what, "drain") == 0) drain();
    else CHECK(!"such a part");
    meet();
    printf("%s: %d is well\n", what, am_my_proc());
    am_disable();
    return 0;
}
