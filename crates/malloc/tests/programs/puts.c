/* Each rank puts into memory that the next one has of malloc, by its address, and counts by what it went. */
#include "check.h"
#include <standpipe.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 3 << 20 };

#define OK(call)                                                                                          \
    do {                                                                                                  \
        if ((call) < 0) {                                                                                 \
            fprintf(stderr, "%s: %s\n", #call, sp_error_text());                                          \
            _Exit(1);                                                                                     \
        }                                                                                                 \
    } while (0)

static uint64_t went(const sp_node *node, int operation, int mechanism) {
    uint64_t count, bytes;
    OK(sp_count_of(node, operation, mechanism, &count, &bytes));
    return bytes;
}

static void fork_once(sp_node *node, const unsigned char *block, unsigned char value) {
    pid_t child = fork();
    if (child == 0) {
        /* The node is the parent's, and the memory is the child's own. */
        int here = 0;
        for (size_t i = 0; i < SIZE; i++) here += block[i] == value;
        _Exit(here == SIZE && sp_barrier(node) < 0 ? 13 : 1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 13);
}

int main(void) {
    sp_node *node;
    sp_team *world;
    unsigned char *before = malloc(100);
    OK(sp_open(NULL, &node));
    OK(sp_world(node, &world));
    uint32_t rank = sp_rank(node), size = sp_size(node), next = (rank + 1) % size;
    unsigned char *block = malloc(SIZE), *from = malloc(SIZE), *back = malloc(SIZE);
    /* Puts and gets take an address, atomics a name. */
    _Atomic uint64_t *counter = calloc(2, sizeof *counter);
    struct {
        uint64_t block;
        sp_remote counter;
    } mine = {(uint64_t)block, {0, 0, 0}}, *theirs = calloc(size, sizeof *theirs);
    *counter = 7;
    OK(sp_name_of(node, (void *)counter, &mine.counter));
    OK(sp_team_all_gather(world, &mine, theirs, sizeof mine));
    for (int round = 0; round < 3; round++) {
        uint64_t puts = went(node, SP_OP_PUT, SP_MAPPED), gets = went(node, SP_OP_GET, SP_MAPPED), old = 0;
        sp_remote to = {next, SP_PRIVATE, theirs[next].block};
        memset(from, (int)rank + round, SIZE);
        OK(sp_put(node, to, from, SIZE));
        OK(sp_get(node, to, back, SIZE));
        CHECK(!memcmp(from, back, SIZE));
        OK(sp_fetch_add_u64(node, theirs[next].counter, 1, &old));
        CHECK(old == 7 + (uint64_t)round);
        CHECK(went(node, SP_OP_PUT, SP_MAPPED) == puts + SIZE && went(node, SP_OP_GET, SP_MAPPED) == gets + SIZE);
        OK(sp_barrier(node));
        unsigned char expected = (unsigned char)((rank + size - 1) % size + (unsigned)round);
        fork_once(node, block, expected);
        for (size_t i = 0; i < SIZE; i++) CHECK(block[i] == expected);
        CHECK(*counter == 8 + (uint64_t)round);
        OK(sp_barrier(node));
    }
    CHECK(went(node, SP_OP_PUT, SP_CMA) == 0 && went(node, SP_OP_GET, SP_CMA) == 0);
    OK(sp_close(node, SP_SECOND));
    free(before);
    free(block);
    puts("all is as it should be");
    return 0;
}
