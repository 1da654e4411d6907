/* Children of a program whose malloc is preloaded: each way to make one is a function, named by the argument. */
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <pthread.h>
#include <pty.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

extern char **environ;

enum { PAGE = 4096, PAGES = 64, WRITERS = 3 };

static int status_of(pid_t child) {
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* A pipe on which one process waits for the other. */
static void wait_for(int fd) {
    char byte;
    CHECK(read(fd, &byte, 1) == 1);
}

static void tell(int fd) { CHECK(write(fd, ".", 1) == 1); }

/* Allocates and frees, as any child may once fork has returned. */
static void use_malloc(void) {
    char *blocks[500];
    for (int i = 0; i < 500; i++) {
        blocks[i] = malloc((size_t)i * 97 + 1);
        CHECK(blocks[i]);
        memset(blocks[i], i, (size_t)i * 97 + 1);
    }
    for (int i = 0; i < 500; i++) {
        CHECK(blocks[i][i * 97] == (char)i);
        free(blocks[i]);
    }
}

static void plain(void) {
    enum { SIZE = 5 << 20 };
    char *block = malloc(SIZE), *small = strdup("before");
    memset(block, 1, SIZE);
    int to_child[2], to_parent[2];
    CHECK(!pipe(to_child) && !pipe(to_parent));
    pid_t child = fork();
    if (child == 0) {
        wait_for(to_child[0]);
        CHECK(!strcmp(small, "before"));
        for (int i = 0; i < SIZE; i++) CHECK(block[i] == 1);
        memset(block, 3, SIZE);
        strcpy(small, "child");
        use_malloc();
        free(small);
        tell(to_parent[1]);
        wait_for(to_child[0]);
        block = realloc(block, SIZE * 2);
        for (int i = 0; i < SIZE; i++) CHECK(block[i] == 3);
        free(block);
        _exit(0);
    }
    memset(block, 2, SIZE);
    strcpy(small, "parent");
    use_malloc();
    tell(to_child[1]);
    wait_for(to_parent[0]);
    for (int i = 0; i < SIZE; i++) CHECK(block[i] == 2);
    CHECK(!strcmp(small, "parent"));
    memset(block, 4, SIZE);
    tell(to_child[1]);
    CHECK(status_of(child) == 0);
    free(block);
    free(small);
}

static void deep(void) {
    int *depth = malloc(sizeof *depth);
    *depth = 0;
    for (;;) {
        pid_t child = fork();
        if (child != 0) {
            /* Each has as many below it as the one above has, but for itself. */
            int below = status_of(child);
            if (*depth == 0) CHECK(below == 6);
            else _exit(below + 1);
            return;
        }
        ++*depth;
        use_malloc();
        if (*depth == 7) _exit(0);
    }
}

static void many(void) {
    pid_t children[20];
    int *number = malloc(sizeof *number);
    for (int i = 0; i < 20; i++) {
        *number = i;
        children[i] = fork();
        if (children[i] == 0) {
            use_malloc();
            _exit(*number);
        }
    }
    for (int i = 0; i < 20; i++) CHECK(status_of(children[i]) == i);
}

static void commands(void) {
    CHECK(WEXITSTATUS(system("exit 3")) == 3);
    FILE *pipe = popen("echo said; exit 4", "r");
    char line[100];
    CHECK(pipe && fgets(line, sizeof line, pipe) && !strcmp(line, "said\n") && WEXITSTATUS(pclose(pipe)) == 4);
    pid_t child = fork();
    if (child == 0) {
        char *words[] = {strdup("sh"), strdup("-c"), strdup("exit 5"), NULL};
        execvp(words[0], words);
        _exit(1);
    }
    CHECK(status_of(child) == 5);
}

/* By calls that copy nothing: they work whatever the limit is. */
static void spawned(void) {
    char *words[] = {"sh", "-c", "exit 6", NULL};
    pid_t child;
    CHECK(!posix_spawnp(&child, "sh", NULL, NULL, words, environ) && status_of(child) == 6);
    child = vfork();
    if (child == 0) {
        execvp(words[0], words);
        _exit(1);
    }
    CHECK(status_of(child) == 6 && WEXITSTATUS(system("exit 3")) == 3);
}

/* The system's library forks by itself here. */
static void librarys(void) {
    int to_parent[2], terminal;
    CHECK(!pipe(to_parent));
    pid_t child = fork();
    if (child == 0) {
        CHECK(!daemon(1, 1));
        use_malloc();
        tell(to_parent[1]);
        _exit(0);
    }
    CHECK(status_of(child) == 0);
    wait_for(to_parent[0]);
    child = forkpty(&terminal, NULL, NULL, NULL);
    if (child == 0) {
        use_malloc();
        _exit(7);
    }
    CHECK(status_of(child) == 7);
}

struct writer {
    pthread_t thread;
    unsigned char *pages;
    int takes_no_signals;
};

static atomic_int stopped;

/* Writes one number after the other to all of its pages, in order, and allocates and frees meanwhile. */
static void *writes(void *argument) {
    struct writer *writer = argument;
    sigset_t all;
    sigfillset(&all);
    if (writer->takes_no_signals) pthread_sigmask(SIG_BLOCK, &all, NULL);
    for (unsigned value = 1; !stopped; value++) {
        char *passing = malloc(value % 5000);
        for (int page = 0; page < PAGES; page++)
            *(volatile unsigned *)(writer->pages + page * PAGE) = value;
        free(passing);
    }
    return NULL;
}

/* What the writer's pages were at one moment: the first ones have a number, all others the one before it. */
static void check_moment(const struct writer *writer) {
    unsigned first = *(const unsigned *)writer->pages, last = first;
    for (int page = 0; page < PAGES; page++) {
        unsigned value = *(const unsigned *)(writer->pages + page * PAGE);
        CHECK(value == first || value + 1 == first);
        CHECK(value == last || value + 1 == last);
        last = value;
    }
}

static void threads(void) {
    struct writer writers[WRITERS];
    for (int i = 0; i < WRITERS; i++) {
        writers[i].pages = aligned_alloc(PAGE, PAGE * PAGES);
        memset(writers[i].pages, 0, PAGE * PAGES);
        writers[i].takes_no_signals = i == 0;
        CHECK(!pthread_create(&writers[i].thread, NULL, writes, &writers[i]));
    }
    for (int round = 0; round < 40; round++) {
        pid_t child = fork();
        if (child == 0) {
            for (int i = 0; i < WRITERS; i++) check_moment(&writers[i]);
            use_malloc();
            for (int i = 0; i < WRITERS; i++) check_moment(&writers[i]);
            _exit(8);
        }
        CHECK(status_of(child) == 8);
    }
    stopped = 1;
    for (int i = 0; i < WRITERS; i++) CHECK(!pthread_join(writers[i].thread, NULL));
}

static void *forks(void *argument) {
    for (int round = 0; round < 20; round++) {
        int *value = malloc(sizeof *value);
        *value = round;
        pid_t child = fork();
        if (child == 0) {
            use_malloc();
            _exit(*value);
        }
        CHECK(status_of(child) == round);
        free(value);
    }
    return argument;
}

/* Several threads fork at once. */
static void crowd(void) {
    pthread_t others[4];
    for (int i = 0; i < 4; i++) CHECK(!pthread_create(&others[i], NULL, forks, NULL));
    for (int i = 0; i < 4; i++) CHECK(!pthread_join(others[i], NULL));
}

static void *uses_malloc(void *argument) {
    use_malloc();
    return argument;
}

static void begin_and_end_a_thread(void) {
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, uses_malloc, NULL) && !pthread_join(thread, NULL));
}

static void *begins_threads(void *argument) {
    while (!stopped) begin_and_end_a_thread();
    return argument;
}

/* Threads begin and end, for which the allocator takes locks: none is locked in a child. */
static void churn(void) {
    pthread_t others[4];
    for (int i = 0; i < 4; i++) CHECK(!pthread_create(&others[i], NULL, begins_threads, NULL));
    for (int round = 0; round < 100; round++) {
        pid_t child = fork();
        if (child == 0) {
            begin_and_end_a_thread();
            _exit(15);
        }
        CHECK(status_of(child) == 15);
    }
    stopped = 1;
    for (int i = 0; i < 4; i++) CHECK(!pthread_join(others[i], NULL));
}

static char fifo[200];

static void *reads(void *argument) {
    FILE *file = fopen(fifo, "r");
    char line[100];
    CHECK(file && fgets(line, sizeof line, file) && !strcmp(line, "first\n"));
    /* It waits here with the file's lock, while others fork. */
    CHECK(fgets(line, sizeof line, file) && !strcmp(line, "second\n"));
    CHECK(!fclose(file));
    return argument;
}

/* Children set the locks of all files free, which lie in the heap: the parent's stay as they are. */
static void files(void) {
    snprintf(fifo, sizeof fifo, "%s/standpipe-fifo-%d", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", getpid());
    CHECK(!mkfifo(fifo, 0600));
    pthread_t reader;
    CHECK(!pthread_create(&reader, NULL, reads, NULL));
    FILE *writer = fopen(fifo, "w"), *scratch = tmpfile();
    CHECK(writer && scratch && fputs("first\n", writer) >= 0 && !fflush(writer));
    CHECK(fputs("parent", scratch) >= 0);
    for (int round = 0; round < 10; round++) {
        pid_t child = fork();
        if (child == 0) {
            CHECK(fputs("child", scratch) >= 0);
            _exit(9);
        }
        CHECK(status_of(child) == 9);
    }
    CHECK(fputs("second\n", writer) >= 0 && !fclose(writer) && !pthread_join(reader, NULL) && !unlink(fifo));
    CHECK(!fflush(scratch) && ftell(scratch) == 6);
    fclose(scratch);
}

static ucontext_t outside, inside;

static void forks_inside(void) {
    pid_t child = fork();
    if (child == 0) _exit(0);
    CHECK(status_of(child) == 71);
    use_malloc();
}

/* The stack that forks lies in the heap, as those of some coroutines do: the child ends, and says why. */
static void stack(void) {
    CHECK(!getcontext(&inside));
    inside.uc_stack.ss_size = 256 << 10;
    inside.uc_stack.ss_sp = malloc(inside.uc_stack.ss_size);
    inside.uc_link = &outside;
    makecontext(&inside, forks_inside, 0);
    CHECK(!swapcontext(&outside, &inside));
}

static atomic_int is_ready;

static void *blocks_signals(void *argument) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    is_ready++;
    while (!stopped) {
        free(malloc(100));
        sched_yield();
    }
    return argument;
}

static void *waits_for_signals(void *argument) {
    sigset_t all;
    int signal;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    is_ready++;
    do CHECK(!sigwait(&all, &signal));
    while (signal == SIGCHLD);
    CHECK(signal == SIGUSR1);
    return argument;
}

/* Threads that take no signals, or wait for all of them, get none. */
static void signals(void) {
    pthread_t blocks, waits;
    CHECK(!pthread_create(&blocks, NULL, blocks_signals, NULL));
    CHECK(!pthread_create(&waits, NULL, waits_for_signals, NULL));
    while (is_ready < 2) sched_yield();
    for (int round = 0; round < 5; round++) {
        pid_t child = fork();
        if (child == 0) _exit(11);
        CHECK(status_of(child) == 11);
    }
    stopped = 1;
    CHECK(!pthread_kill(waits, SIGUSR1) && !pthread_join(waits, NULL) && !pthread_join(blocks, NULL));
}

static void *changes_group(void *argument) {
    while (!stopped) CHECK(!setgid(getgid()));
    return argument;
}

static void *can_be_cancelled(void *argument) {
    for (;;) {
        pthread_testcancel();
        sched_yield();
    }
    return argument;
}

/* The system's library reaches all threads by a signal of its own, which also halts them. */
static void groups(void) {
    pthread_t changes, cancelled;
    CHECK(!pthread_create(&changes, NULL, changes_group, NULL));
    CHECK(!pthread_create(&cancelled, NULL, can_be_cancelled, NULL));
    for (int round = 0; round < 30; round++) {
        pid_t child = fork();
        if (child == 0) _exit(setgid(getgid()) ? 1 : 14);
        CHECK(status_of(child) == 14);
    }
    CHECK(!pthread_cancel(cancelled) && !pthread_join(cancelled, NULL));
    stopped = 1;
    CHECK(!pthread_join(changes, NULL));
}

static void on_fault(int signal) { _exit(signal == SIGSEGV ? 12 : 1); }

/* The program's own handler of faults is there before and after, in both. */
static void handlers(void) {
    struct sigaction action, found;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_fault;
    CHECK(!sigaction(SIGSEGV, &action, NULL));
    pid_t child = fork();
    if (child == 0) {
        CHECK(!sigaction(SIGSEGV, NULL, &found) && found.sa_handler == on_fault);
        *(volatile char *)8 = 1;
        _exit(1);
    }
    CHECK(status_of(child) == 12 && !sigaction(SIGSEGV, NULL, &found) && found.sa_handler == on_fault);
    stack_t stack;
    sigset_t mask;
    CHECK(!sigaltstack(NULL, &stack) && stack.ss_flags == SS_DISABLE);
    CHECK(!sigprocmask(SIG_BLOCK, NULL, &mask) && !sigismember(&mask, SIGINT) && !sigismember(&mask, SIGSEGV));
}

/* Kills all children of the parent but itself, until the pipe ends: while they copy, the parent stands still. */
static void kill_children(pid_t parent, int until) {
    char path[100], list[1000], byte;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", parent, parent);
    fcntl(until, F_SETFL, O_NONBLOCK);
    while (read(until, &byte, 1) != 0) {
        int fd = open(path, O_RDONLY);
        ssize_t len = read(fd, list, sizeof list - 1);
        close(fd);
        list[len > 0 ? len : 0] = 0;
        char *rest = list;
        for (pid_t child; (child = (pid_t)strtol(rest, &rest, 10)) > 0;)
            if (child != getpid()) kill(child, SIGKILL);
    }
    _exit(0);
}

static void killed(void) {
    int until[2], killed = 0;
    CHECK(!pipe(until));
    pid_t parent = getpid(), killer = fork();
    if (killer == 0) {
        close(until[1]);
        kill_children(parent, until[0]);
    }
    char *block = malloc(64 << 20);
    memset(block, 1, 64 << 20);
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, blocks_signals, NULL));
    for (int round = 0; round < 5; round++) {
        pid_t child = fork();
        if (child == 0) {
            for (;;) pause();
        }
        killed += status_of(child) == -SIGKILL;
        use_malloc();
    }
    close(until[1]);
    stopped = 1;
    CHECK(killed == 5 && status_of(killer) == 0 && !pthread_join(thread, NULL));
}

/* So much that a child may not copy it: the child ends, and the parent goes on. */
static void large(void) {
    char *block = malloc(20 << 20);
    memset(block, 1, 20 << 20);
    pid_t child = fork();
    if (child == 0) _exit(0);
    CHECK(status_of(child) == 71);
    spawned();
}

/* Without the heap's descriptor no child can have a copy. The parent's memory is given back all the same. */
static void closed(void) {
    char *block = malloc(20 << 20);
    memset(block, 1, 20 << 20);
    closefrom(3);
    int file = open("/dev/null", O_RDWR);
    CHECK(file >= 0);
    pid_t child = fork();
    if (child == 0) _exit(0);
    CHECK(status_of(child) == 71);
    free(block);
    for (int i = 0; i < 1000; i++) free(malloc(1 << 20));
    use_malloc();
}

int main(int argc, char **argv) {
    const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"plain", plain},       {"deep", deep},       {"many", many},     {"commands", commands},
                 {"spawned", spawned},   {"librarys", librarys}, {"threads", threads}, {"crowd", crowd}, {"churn", churn},
                 {"files", files},       {"stack", stack},     {"signals", signals}, {"groups", groups}, {"killed", killed}, {"handlers", handlers},
                 {"large", large},       {"closed", closed}};
    CHECK(argc == 2);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(argv[1], cases[i].name)) continue;
        cases[i].run();
        puts("all is as it should be");
        return 0;
    }
    fprintf(stderr, "no case %s\n", argv[1]);
    return 1;
}
