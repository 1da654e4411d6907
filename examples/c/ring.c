/* A ring: each rank passes a token to the next one by a put with a signal, and waits asleep for its own.
 *
 * standpipe run -n 4 -- ./ring [rounds]
 */
#include <standpipe.h>
#include <stdio.h>
#include <stdlib.h>

static void check(int status, const char *what) {
    if (status < 0) {
        fprintf(stderr, "ring: %s: %s\n", what, sp_error_text());
        exit(1);
    }
}

/* What lies in each rank's heap, at the same place for all. */
struct box {
    uint64_t token;
    uint64_t arrived; /* how many tokens have come: a counter that puts change */
};

int main(int argc, char **argv) {
    uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000;
    sp_node *node;
    check(sp_open(NULL, &node), "sp_open");
    uint32_t rank = sp_rank(node), size = sp_size(node), next = (rank + 1) % size;

    sp_remote mine;
    void *here;
    check(sp_alloc(node, sizeof(struct box), &mine, &here), "sp_alloc");
    struct box *box = here;

    /* Every rank tells every other one where its box lies. */
    sp_team *world;
    sp_remote *boxes = calloc(size, sizeof *boxes);
    check(sp_world(node, &world), "sp_world");
    check(sp_team_all_gather(world, &mine, boxes, sizeof mine), "sp_team_all_gather");

    sp_remote their_token = boxes[next];
    sp_signal signal = {sp_plus(boxes[next], offsetof(struct box, arrived)), 1, 0};
    sp_wait arrived = {sp_plus(mine, offsetof(struct box, arrived)), SP_U64, SP_GE, 0, (rank + size - 1) % size, 0};

    /* Rank 0 begins. All others, and it from the second round on, pass on what has come. */
    for (uint64_t round = 1; round <= rounds; round++) {
        uint64_t token = 0;
        arrived.value = rank == 0 ? round - 1 : round;
        if (arrived.value > 0) {
            check(sp_wait_signal(node, &arrived, NULL), "sp_wait_signal");
            token = box->token;
        }
        token++;
        check(sp_put_signal(node, their_token, &token, sizeof token, signal), "sp_put_signal");
    }
    if (rank == 0) {
        arrived.value = rounds;
        check(sp_wait_signal(node, &arrived, NULL), "sp_wait_signal");
        printf("ring: %llu rounds of %u ranks; the token was passed on %llu times\n", (unsigned long long)rounds,
               size, (unsigned long long)box->token);
    }
    check(sp_barrier(node), "sp_barrier");

    free(boxes);
    sp_team_free(world);
    check(sp_close(node, 10 * SP_SECOND), "sp_close");
    return 0;
}
