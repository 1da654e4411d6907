/* A program that ends in the middle of its work: ./exits HOW, by `exit`, a return, `_exit`, or in a handler of
 * `atexit` that closes the node. Threads of it go on putting and getting until then. */
#include <pthread.h>
#include <standpipe.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BYTES (64 * 1024)

static sp_node *node;
static sp_remote there;
static atomic_int rounds;

static void *work(void *bytes) {
    /* Peers may be gone by now: only the end is looked at here. */
    for (;;) {
        sp_put(node, there, bytes, BYTES);
        sp_get_nbi(node, there, bytes, BYTES);
        sp_quiet(node);
        atomic_fetch_add(&rounds, 1);
    }
    return NULL;
}

static int has_worked(void *context) {
    (void)context;
    return atomic_load(&rounds) >= 20;
}

static void close_it(void) {
    if (sp_close(node, 10 * SP_SECOND)) _exit(9);
}

int main(int argc, char **argv) {
    static unsigned char bytes[2][BYTES];
    const char *how = argc > 1 ? argv[1] : "";
    sp_remote mine;
    sp_team *world;
    if (sp_open(NULL, &node) || sp_world(node, &world)) return 2;
    uint32_t size = sp_size(node), right = (sp_rank(node) + 1) % size;
    sp_remote *all = calloc(size, sizeof *all);
    if (sp_alloc(node, BYTES, &mine, NULL) || sp_team_all_gather(world, &mine, all, sizeof mine)) return 3;
    there = all[right];
    for (int i = 0; i < 2; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, bytes[i])) return 4;
    }
    sp_event *event;
    if (sp_put_nb(node, there, bytes[0], BYTES, &event)) return 5;
    if (sp_wait_until(node, has_worked, NULL)) return 6;
    if (strcmp(how, "_exit") == 0) _exit(0);
    if (strcmp(how, "atexit") == 0 && atexit(close_it)) return 7;
    if (strcmp(how, "return") != 0) exit(0);
    return 0;
}
