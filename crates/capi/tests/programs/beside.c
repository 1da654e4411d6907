/* A program that links another library beside Standpipe, calls it, and has memory of its allocator moved.
 * FABRIC: libfabric. MIMALLOC: mimalloc, which is malloc then. */
#include <standpipe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef FABRIC
uint32_t fi_version(void);
#define OTHER_VERSION ((int)(fi_version() >> 16))
#else
int mi_version(void);
#define OTHER_VERSION mi_version()
#endif

#define BYTES (256 * 1024)

static void check(int status, const char *what) {
    if (status < 0) {
        fprintf(stderr, "beside: %s: %s\n", what, sp_error_text());
        exit(1);
    }
}

int main(void) {
    int before = OTHER_VERSION;
    sp_node *node;
    sp_team *world;
    check(sp_open(NULL, &node), "sp_open");
    check(sp_world(node, &world), "sp_world");
    uint32_t rank = sp_rank(node), size = sp_size(node), right = (rank + 1) % size, left = (rank + size - 1) % size;

    unsigned char *mine = malloc(BYTES), *theirs = malloc(BYTES);
    uint64_t at = (uint64_t)(uintptr_t)mine, *all = calloc(size, sizeof *all);
    if (mine == NULL || theirs == NULL || all == NULL) return 1;
    check(sp_team_all_gather(world, &at, all, sizeof at), "sp_team_all_gather");

    memset(theirs, (int)(rank + 1), BYTES);
    sp_remote there = {right, SP_PRIVATE, all[right]};
    check(sp_put(node, there, theirs, BYTES), "sp_put");
    check(sp_barrier(node), "sp_barrier");
    for (size_t i = 0; i < BYTES; i++)
        if (mine[i] != left + 1) return 2;
    memset(theirs, 0, BYTES);
    check(sp_get(node, there, theirs, BYTES), "sp_get");
    for (size_t i = 0; i < BYTES; i++)
        if (theirs[i] != rank + 1) return 3;
    check(sp_barrier(node), "sp_barrier");

    if (OTHER_VERSION != before || before <= 0) return 4;
    sp_team_free(world);
    check(sp_close(node, 10 * SP_SECOND), "sp_close");
    free(mine);
    free(theirs);
    free(all);
    printf("both libraries work\n");
    return 0;
}
