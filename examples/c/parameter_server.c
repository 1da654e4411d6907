/* A parameter server: rank 0 has the weights of a model; workers pull them, and push gradients by Active Messages, which
 * rank 0's handler adds. A straggler holds nobody up.
 *
 * standpipe run -n 4 -- ./parameter_server [weights steps]
 */
#include <standpipe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int status, const char *what) {
    if (status < 0) {
        fprintf(stderr, "parameter_server: %s: %s\n", what, sp_error_text());
        exit(1);
    }
}

struct server {
    float *weights;
    size_t count;
    uint64_t added; /* numbers of gradients that were added */
    float *gradient; /* room for one */
};

/* Runs at the server, one at a time: adds a part of a gradient, which begins at weight args[0]. */
static void on_push(sp_call *call, void *context) {
    struct server *server = context;
    uint64_t first = call->args[0], count = call->payload_len / sizeof(float);
    if (first > server->count || count > server->count - first) return; /* the sender says so: check it */
    if (sp_call_read(call, 0, server->gradient, count * sizeof(float)) < 0) return;
    for (uint64_t i = 0; i < count; i++) server->weights[first + i] += server->gradient[i];
    server->added += count;
}

static int all_came(void *context) {
    uint64_t **both = context;
    return *both[0] >= *both[1];
}

int main(int argc, char **argv) {
    size_t count = argc > 1 ? strtoul(argv[1], NULL, 10) : 10000;
    unsigned steps = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 20;
    struct server server = {NULL, count, 0, calloc(count, sizeof(float))};

    /* The handler is there before the node opens: no push comes too early. */
    sp_config *config;
    check(sp_config_new(&config), "sp_config_new");
    check(sp_config_handler(config, "push", on_push, &server), "sp_config_handler");
    sp_node *node;
    check(sp_open(config, &node), "sp_open");
    uint64_t push = sp_handler_id("", "push");
    uint32_t rank = sp_rank(node), workers = sp_size(node) - 1;

    sp_remote weights;
    if (rank == 0) {
        check(sp_alloc(node, count * sizeof(float), &weights, (void **)&server.weights), "sp_alloc");
        check(sp_publish(node, "weights", &weights, sizeof weights), "sp_publish");
    } else {
        check(sp_lookup_wait(node, "weights", 10 * SP_SECOND, &weights, sizeof weights, NULL), "sp_lookup_wait");
    }

    /* A message carries so many weights. */
    size_t most = sp_medium_max(node, 0) / sizeof(float);
    if (rank > 0) {
        float *local = malloc(count * sizeof(float)), *gradient = malloc(count * sizeof(float));
        for (unsigned step = 0; step < steps; step++) {
            check(sp_get(node, weights, local, count * sizeof(float)), "sp_get"); /* the server takes no part */
            for (size_t i = 0; i < count; i++) gradient[i] = 1;
            for (size_t first = 0; first < count; first += most) {
                size_t part = count - first < most ? count - first : most;
                uint64_t args[4] = {first};
                check(sp_request_medium(node, 0, push, args, gradient + first, part * sizeof(float)),
                      "sp_request_medium");
            }
        }
        free(local);
        free(gradient);
    } else {
        uint64_t expected = (uint64_t)workers * steps * count, *both[2] = {&server.added, &expected};
        check(sp_wait_until(node, all_came, both), "sp_wait_until");
        size_t wrong = 0;
        for (size_t i = 0; i < count; i++) wrong += server.weights[i] != (float)(workers * steps);
        printf("parameter_server: %llu numbers of %u workers; %zu of %zu weights are wrong\n",
               (unsigned long long)server.added, workers, wrong, count);
        if (wrong) return 1;
    }
    check(sp_barrier(node), "sp_barrier");
    free(server.gradient);
    check(sp_close(node, 10 * SP_SECOND), "sp_close");
    return 0;
}
