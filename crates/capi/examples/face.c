/* One call in a loop, by C. Prints nanoseconds of one, the median of 21 batches; of `open`, until the first put has
 * returned. face.rs does the same by Rust, and `cargo xtask peers` runs the two in turns.
 *
 *     standpipe run -n 2 -- face OPERATION [CALLS [BATCHES]]
 */
#define _POSIX_C_SOURCE 199309L
#include <standpipe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCHES = 21 };

static uint64_t pong, answers;

static void check(int status) {
    if (status < 0) {
        fprintf(stderr, "face: %s\n", sp_error_text());
        exit(1);
    }
}

static void on_ping(sp_call *call, void *context) {
    (void)context;
    sp_reply(call, pong, call->args);
}

static void on_pong(sp_call *call, void *context) {
    (void)context;
    answers += call->is_request == 0;
}

static int is_answered(void *wanted) {
    return answers == *(uint64_t *)wanted;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return 1e9 * (double)time.tv_sec + (double)time.tv_nsec;
}

static int by_size(const void *a, const void *b) {
    double difference = *(const double *)a - *(const double *)b;
    return (difference > 0) - (difference < 0);
}

static void calls(sp_node *node, sp_remote to, const char *operation, long count) {
    char bytes[64] = {0};
    uint64_t value = 0;
    if (!strcmp(operation, "put")) {
        for (long i = 0; i < count; i++) check(sp_put_u64(node, to, (uint64_t)i));
    } else if (!strcmp(operation, "get")) {
        for (long i = 0; i < count; i++) check(sp_get_u64(node, to, &value));
    } else if (!strcmp(operation, "add")) {
        for (long i = 0; i < count; i++) check(sp_fetch_add_u64(node, to, 1, &value));
    } else if (!strcmp(operation, "put64")) {
        for (long i = 0; i < count; i++) check(sp_put(node, to, bytes, sizeof bytes));
    } else if (!strcmp(operation, "get64")) {
        for (long i = 0; i < count; i++) check(sp_get(node, to, bytes, sizeof bytes));
    } else if (!strcmp(operation, "message")) {
        uint64_t ping = sp_handler_id("", "ping"), args[4] = {0};
        for (long i = 0; i < count; i++) {
            uint64_t wanted = answers + 1;
            check(sp_request(node, to.peer, ping, args));
            check(sp_wait_until(node, is_answered, &wanted));
        }
    } else if (!strcmp(operation, "memcpy")) {
        /* A call that the compiler cannot look into. */
        void *(*volatile copy)(void *, const void *, size_t) = memcpy;
        void *there;
        check(sp_local(node, to, sizeof value, &there));
        for (long i = 0; i < count; i++) copy(there, &i, sizeof value);
    } else {
        fprintf(stderr, "face: no operation %s\n", operation);
        exit(2);
    }
}

int main(int argc, char **argv) {
    const char *operation = argc > 1 ? argv[1] : "put";
    long count = argc > 2 ? atol(argv[2]) : 100000;
    int batches = argc > 3 ? atoi(argv[3]) : BATCHES;
    double times[BATCHES], begun = now();
    sp_config *config;
    sp_node *node;
    sp_team *world;
    sp_remote mine, all[64];
    pong = sp_handler_id("", "pong");
    check(sp_config_new(&config));
    check(sp_config_handler(config, "ping", on_ping, NULL));
    check(sp_config_handler(config, "pong", on_pong, NULL));
    check(sp_open(config, &node));
    check(sp_alloc(node, 64, &mine, NULL));
    check(sp_world(node, &world));
    check(sp_team_all_gather(world, &mine, all, sizeof mine));
    sp_remote to = all[(sp_rank(node) + 1) % sp_size(node)];
    check(sp_put_u64(node, to, 1));
    double opened = now() - begun;
    if (sp_rank(node) == 0) {
        double *median = &times[batches / 2];
        if (!strcmp(operation, "open")) {
            *median = opened;
        } else {
            for (int batch = 0; batch < batches && batch < BATCHES; batch++) {
                double before = now();
                calls(node, to, operation, count);
                times[batch] = (now() - before) / (double)count;
            }
            qsort(times, (size_t)batches, sizeof times[0], by_size);
        }
        printf("%.2f\n", *median);
    }
    check(sp_barrier(node));
    sp_team_free(world);
    check(sp_close(node, 10 * SP_SECOND));
    return 0;
}
