/* How programs of am.h begin and end, well and badly. */
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "check.h"

static char table[64];
static volatile int handled;

static void note(vnn_t from) { (void)from; handled++; }
static void ends_here(vnn_t from) { (void)from; exit(7); }

/* Each call without the layer says that it cannot be, and goes on. */
static void nothing_works(int me, int all)
{
    handler_mem_t nothing = (handler_mem_t)am_dummy;

    CHECK(am_request_0(0, note) == -1);
    CHECK(am_request_1(0, (handler_1_t)am_dummy, 1) == -1);
    CHECK(am_request_2(0, (handler_2_t)am_dummy, 1, 2) == -1);
    CHECK(am_request_3(0, (handler_3_t)am_dummy, 1, 2, 3) == -1);
    CHECK(am_request_4(0, (handler_4_t)am_dummy, 1, 2, 3, 4) == -1);
    CHECK(am_request_df(0, (handler_df_t)am_dummy, 1, 2, 3.0) == -1);
    CHECK(am_reply_0(0, note) == -1);
    CHECK(am_reply_1(0, (handler_1_t)am_dummy, 1) == -1);
    CHECK(am_reply_2(0, (handler_2_t)am_dummy, 1, 2) == -1);
    CHECK(am_reply_3(0, (handler_3_t)am_dummy, 1, 2, 3) == -1);
    CHECK(am_reply_4(0, (handler_4_t)am_dummy, 1, 2, 3, 4) == -1);
    CHECK(am_reply_df(0, (handler_df_t)am_dummy, 1, 2, 3.0) == -1);
    CHECK(am_store(0, table, table, 4, nothing, NULL) == -1);
    CHECK(am_store_async(0, table, table, 4, nothing, NULL, nothing, NULL) == -1);
    CHECK(am_get(0, table, table, 4, nothing, NULL) == -1);
    CHECK(am_my_proc() == me && am_procs() == all);
    CHECK(am_max_size() == 16384);
    CHECK(am_sleep(0) == 0);
    am_poll();
    am_disable();
    CHECK(handled == 0);
}

/* Waits that nobody ends, for a process that is lost. */
static void waits(const char *how)
{
    long i;

    if (strcmp(how, "wait") == 0)
        am_wait_for(handled < 0);
    else if (strcmp(how, "poll") == 0)
        for (;;)
            am_poll();
    else if (strcmp(how, "sleep") == 0)
        am_sleep(60);
    else if (strcmp(how, "request") == 0)
        for (i = 0;; i++)
            am_request_0(1, note);
    else if (strcmp(how, "get") == 0)
        for (i = 0;; i++)
            am_get(1, table, table, 4, (handler_mem_t)am_dummy, NULL);
    else if (strcmp(how, "store") == 0)
        for (i = 0;; i++)
            am_store(1, table, table, 4, (handler_mem_t)am_dummy, NULL);
    else if (strcmp(how, "disable") == 0)
        am_disable();
    exit(9);
}

static void lost(const char *how)
{
    meet();
    if (am_my_proc() == 1) {
        am_sleep(0);
        raise(SIGKILL);
    }
    waits(how);
}

/* The receiver holds the credits of the sender, and is killed then. */
static void lost_in_debt(void)
{
    int i;

    meet();
    if (am_my_proc() == 1) {
        struct timespec time = { 0, 300000000 };
        nanosleep(&time, NULL);
        raise(SIGKILL);
    }
    for (i = 0;; i++)
        if (am_request_0(1, note) != 0)
            exit(9);
}

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

/* A child that a process of the job makes is none of the job's: it sleeps and ends as any process does. */
static void makes_a_child(void)
{
    int status = 0;
    pid_t child;

    fflush(stdout);
    child = fork();
    if (child == 0) {
        double begun = now();
        if (sleep(1) != 0 || now() - begun < 0.99)
            exit(4);
        exit(6);
    }
    CHECK(waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 6)
        fprintf(stderr, "the child of %d: status %#x\n", am_my_proc(), (unsigned)status);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 6);
}

/* Whatever am_enable has begun is over when it ends the program. */
static void says_who_is_left(void)
{
    int left = waitpid(-1, NULL, WNOHANG) != -1;

    fprintf(stderr, "%s is left\n", left ? "a child" : "no child");
}

static void dies_at_birth(void) { _exit(0); }
static void sees_it_dead(void)
{
    siginfo_t info;

    waitid(P_ALL, 0, &info, WEXITED | WNOWAIT);
}

/* What it takes to make processes fails in the midst of it. */
static void makes_forks_fail(const char *how)
{
    struct rlimit few = { 12, 12 };

    atexit(says_who_is_left);
    if (strcmp(how, "descriptors") == 0)
        CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    else
        CHECK(pthread_atfork(NULL, sees_it_dead, dies_at_birth) == 0);
}

/* The signal that this process gets at its parent's end. */
static int death_signal(void)
{
    int number = -1;

    CHECK(prctl(PR_GET_PDEATHSIG, &number) == 0);
    return number;
}

int main(int argc, char **argv)
{
    const char *what = scenario(argc, argv);
    const char *how = argc > 3 ? argv[3] : "";
    int procs = wanted(argc, argv);
    char line[64];
    struct timespec soon = { 0, 200000000 };

    if (strcmp(what, "before") == 0)
        nothing_works(-1, -1);
    if (strcmp(what, "buffer") == 0)
        printf("before all, ");
    if (strcmp(what, "input") == 0) {
        CHECK(fgets(line, sizeof line, stdin) != NULL && strcmp(line, "first\n") == 0);
    }
    if (strcmp(what, "wait before") == 0)
        am_wait_for(handled != 0);
    if (strcmp(what, "no forks") == 0)
        makes_forks_fail(how);
    am_enable(procs, argc, argv);
    if (strcmp(what, "death signal") == 0) {
        int own = am_my_proc(), open = death_signal();
        meet();
        am_disable();
        printf("death signal of %d: %d, then %d\n", own, open, death_signal());
        return 0;
    }
    if (strcmp(what, "child") == 0)
        makes_a_child();
    if (strcmp(what, "twice") == 0) {
        am_enable(procs, argc, argv);
        am_enable(procs + 1, argc, argv);
    }
    if (strcmp(what, "again") == 0) {
        meet();
        am_disable();
        am_enable(procs, argc, argv);
        return 0;
    }
    if (strcmp(what, "fails") == 0) {
        int own = am_my_proc();
        meet();
        am_disable();
        return own == procs - 1 ? 5 : 0;
    }
    if (strcmp(what, "fails early") == 0 && am_my_proc() == procs - 1)
        exit(5);
    if (strcmp(what, "crashes") == 0 && am_my_proc() == procs - 1)
        raise(SIGSEGV);
    if (strcmp(what, "no end") == 0) {
        meet();
        printf("%d ends\n", am_my_proc());
        return 0;
    }
    if (strcmp(what, "parent leaves") == 0 || strcmp(what, "parent fails") == 0) {
        /* Those who wait for it find it lost. */
        meet();
        if (am_my_proc() == 0)
            return strcmp(what, "parent fails") == 0 ? 7 : 0;
        waits("wait");
    }
    if (strcmp(what, "parent leaves the deaf") == 0) {
        if (am_my_proc() == 0)
            return 0;
        signal(SIGTERM, SIG_IGN);
        printf("%d is process %ld\n", am_my_proc(), (long)getpid());
        fflush(stdout);
        for (;;)
            nanosleep(&soon, NULL);
    }
    if (strcmp(what, "parent dies") == 0) {
        printf("%d is process %ld\n", am_my_proc(), (long)getpid());
        fflush(stdout);
        meet();
        if (am_my_proc() == 0)
            raise(SIGKILL);
        for (;;)
            nanosleep(&soon, NULL);
    }
    if (strcmp(what, "exits in handler") == 0) {
        meet();
        if (am_my_proc() == 0)
            am_request_0(procs - 1, ends_here);
        waits("wait");
    }
    if (strcmp(what, "waits in handler") == 0) {
        am_request_0(am_my_proc(), (handler_0_t)am_thread_poll);
        exit(9);
    }
    if (strcmp(what, "input") == 0 && am_my_proc() == 0)
        CHECK(fgets(line, sizeof line, stdin) != NULL && strcmp(line, "second\n") == 0);
    if (strcmp(what, "lost") == 0)
        lost(how);
    if (strcmp(what, "lost in debt") == 0)
        lost_in_debt();
    meet();
    if (strcmp(what, "input") == 0) {
        /* The others end first, and leave the rest of the input to this one. */
        int own = am_my_proc();
        am_disable();
        if (own != 0)
            return 0;
        nanosleep(&soon, NULL);
        CHECK(fgets(line, sizeof line, stdin) != NULL && strcmp(line, "third\n") == 0);
        return 0;
    }
    printf("%s: %d is well\n", what, am_my_proc());
    am_disable();
    if (strcmp(what, "after") == 0)
        nothing_works(AM_MY_PROC, procs);
    return 0;
}
