/* A KV pull in an event loop: rank 0 grants 256 blocks of a cache; the others pull those that they want into memory of
 * malloc, all at once, and sleep in epoll with whatever else the loop watches, here a timer.
 *
 * standpipe run -n 2 -- ./kv_epoll
 */
#include <errno.h>
#include <standpipe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { BLOCKS = 256, BLOCK = 16 * 1024, WANTED = 64 };

static void check(int status, const char *what) {
    if (status < 0) {
        fprintf(stderr, "kv_epoll: %s: %s\n", what, sp_error_text());
        exit(1);
    }
}

/* Grants every block under a name of its own, and publishes the names. */
static void serve(sp_node *node) {
    static unsigned char cache[BLOCKS][BLOCK];
    static sp_grant *grants[BLOCKS];
    static sp_name names[BLOCKS];
    void *memory[BLOCKS];
    size_t lens[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        memset(cache[i], i, BLOCK);
        memory[i] = cache[i];
        lens[i] = BLOCK;
    }
    check(sp_grant_many(node, memory, lens, BLOCKS, NULL, grants), "sp_grant_many");
    for (int i = 0; i < BLOCKS; i++) check(sp_grant_name(grants[i], &names[i]), "sp_grant_name");
    check(sp_publish(node, "blocks", names, sizeof names), "sp_publish");
    check(sp_barrier(node), "sp_barrier"); /* all have pulled */
    for (int i = 0; i < BLOCKS; i++) {
        check(sp_grant_wait_idle(grants[i], SP_SECOND), "sp_grant_wait_idle"); /* the block is ours again */
        sp_grant_free(grants[i]);
    }
}

static void pull(sp_node *node) {
    static sp_name names[BLOCKS];
    check(sp_lookup_wait(node, "blocks", 10 * SP_SECOND, names, sizeof names, NULL), "sp_lookup_wait");
    sp_queue *queue;
    check(sp_queue_new(node, WANTED, &queue), "sp_queue_new");

    int loop = epoll_create1(0), timer = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec each = {{0, 50000000}, {0, 50000000}};
    timerfd_settime(timer, 0, &each, NULL);
    struct epoll_event ends = {.events = EPOLLIN, .data.fd = sp_queue_fd(queue)}, ticks = {.events = EPOLLIN, .data.fd = timer};
    check(ends.data.fd, "sp_queue_fd");
    epoll_ctl(loop, EPOLL_CTL_ADD, ends.data.fd, &ends);
    epoll_ctl(loop, EPOLL_CTL_ADD, timer, &ticks);

    /* All pulls are started; the token says which block has come. */
    unsigned char *into = malloc((size_t)WANTED * BLOCK);
    for (uint64_t i = 0; i < WANTED; i++) {
        sp_remote block;
        check(sp_granted(0, &names[i * 3], &block, NULL), "sp_granted");
        check(sp_queue_get(queue, i, block, into + i * BLOCK, BLOCK), "sp_queue_get");
    }
    int come = 0, wrong = 0, ticked = 0;
    while (come < WANTED) {
        sp_completion done[16];
        int taken = sp_queue_take(queue, done, 16); /* until there is none: then the descriptor says */
        check(taken, "sp_queue_take");
        for (int i = 0; i < taken; i++) {
            check(done[i].status, "a pull");
            unsigned char *block = into + done[i].token * BLOCK;
            wrong += block[0] != done[i].token * 3 || block[BLOCK - 1] != done[i].token * 3;
        }
        come += taken;
        if (taken > 0 || come == WANTED) continue;
        struct epoll_event event;
        int ready = epoll_wait(loop, &event, 1, -1);
        if (ready < 0 && errno != EINTR) exit(1);
        uint64_t count;
        if (ready == 1 && event.data.fd == timer && read(timer, &count, sizeof count) > 0) ticked += (int)count;
    }
    printf("kv_epoll: rank %u pulled %d blocks, %d of them wrong; the timer ticked %d times\n", sp_rank(node), come, wrong,
           ticked);
    if (wrong) exit(1);
    sp_queue_free(queue);
    free(into);
    close(timer);
    close(loop);
    check(sp_barrier(node), "sp_barrier");
}

int main(void) {
    sp_node *node;
    check(sp_open(NULL, &node), "sp_open");
    if (sp_rank(node) == 0) serve(node);
    else pull(node);
    check(sp_close(node, 10 * SP_SECOND), "sp_close");
    return 0;
}
