/* A halo exchange: a plate, hot at its upper edge, is divided among ranks in stripes of rows. In each step a rank puts
 * its edge rows into its neighbours' halos, without waiting, and computes its inner rows meanwhile.
 *
 * standpipe run -n 4 -- ./halo [rows columns steps]
 */
#include <math.h>
#include <standpipe.h>
#include <stdio.h>
#include <stdlib.h>

static void check(int status, const char *what) {
    if (status < 0) {
        fprintf(stderr, "halo: %s: %s\n", what, sp_error_text());
        exit(1);
    }
}

static size_t columns;

/* The rows from `first` to `last` of the next state, from their neighbours'. */
static void relax(const double *now, double *next, size_t first, size_t last) {
    for (size_t row = first; row <= last; row++)
        for (size_t column = 1; column + 1 < columns; column++) {
            size_t at = row * columns + column;
            next[at] = (now[at - columns] + now[at + columns] + now[at - 1] + now[at + 1]) / 4;
        }
}

int main(int argc, char **argv) {
    size_t rows = argc > 1 ? strtoul(argv[1], NULL, 10) : 64;
    columns = argc > 2 ? strtoul(argv[2], NULL, 10) : 64;
    unsigned steps = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 100;

    sp_node *node;
    check(sp_open(NULL, &node), "sp_open");
    uint32_t rank = sp_rank(node), size = sp_size(node);
    size_t own = rows / size, row_bytes = columns * sizeof(double), state_bytes = (own + 2) * row_bytes;

    /* Two states with a halo row above and below, and two counters that neighbours' puts change. */
    struct { sp_remote at; char *here; } heap;
    check(sp_alloc(node, 2 * state_bytes + 2 * sizeof(uint64_t), &heap.at, (void **)&heap.here), "sp_alloc");
    double *state[2] = {(double *)heap.here, (double *)(heap.here + state_bytes)};
    uint64_t from_above = 2 * state_bytes, from_below = from_above + sizeof(uint64_t); /* offsets of the counters */

    sp_team *world;
    sp_remote *all = calloc(size, sizeof *all);
    check(sp_world(node, &world), "sp_world");
    check(sp_team_all_gather(world, &heap.at, all, sizeof *all), "sp_team_all_gather");
    sp_remote above = all[rank > 0 ? rank - 1 : rank], below = all[rank + 1 < size ? rank + 1 : rank];

    if (rank == 0)
        for (size_t column = 0; column < columns; column++) state[0][column] = state[1][column] = 100;
    check(sp_barrier(node), "sp_barrier");

    for (unsigned step = 1; step <= steps; step++) {
        double *now = state[(step + 1) % 2], *next = state[step % 2];
        uint64_t offset = (step + 1) % 2 * state_bytes; /* of this state, in every rank's heap */
        sp_event *puts[2];
        size_t count = 0;
        if (rank > 0) { /* the first row becomes the halo below the rank above */
            sp_signal told = {sp_plus(above, from_below), 1, 0};
            check(sp_put_signal_nb(node, sp_plus(above, offset + (own + 1) * row_bytes), now + columns, row_bytes, told,
                                   &puts[count++]), "sp_put_signal_nb");
        }
        if (rank + 1 < size) {
            sp_signal told = {sp_plus(below, from_above), 1, 0};
            check(sp_put_signal_nb(node, sp_plus(below, offset), now + own * columns, row_bytes, told, &puts[count++]),
                  "sp_put_signal_nb");
        }
        if (own > 2) relax(now, next, 2, own - 1);

        /* Now the halos are needed. */
        sp_wait halos[2] = {
            {sp_plus(heap.at, from_above), SP_U64, SP_GE, step, rank - 1, rank == 0},
            {sp_plus(heap.at, from_below), SP_U64, SP_GE, step, rank + 1, rank + 1 == size},
        };
        if (rank == 0) halos[0].sender = UINT32_MAX;
        if (rank + 1 == size) halos[1].sender = UINT32_MAX;
        size_t met[2];
        check(sp_wait_signals(node, halos, 2, SP_ALL, met, NULL), "sp_wait_signals");
        relax(now, next, 1, 1);
        if (own > 1) relax(now, next, own, own);
        /* A row may change again once its put is done. */
        check(sp_event_wait_all(puts, count), "sp_event_wait_all");
        /* A neighbour writes the other state's halo in its next step, which may begin now: all are through with it. */
        check(sp_barrier(node), "sp_barrier");
    }

    double heat = 0, *last = state[steps % 2];
    for (size_t row = 1; row <= own; row++)
        for (size_t column = 0; column < columns; column++) heat += last[row * columns + column];
    check(sp_team_all_reduce(world, &heat, 1, SP_F64, SP_SUM), "sp_team_all_reduce");
    if (rank == 0) printf("halo: heat %.6f after %u steps on %u ranks\n", heat, steps, size);
    free(all);
    sp_team_free(world);
    check(sp_close(node, 10 * SP_SECOND), "sp_close");
    return isfinite(heat) ? 0 : 1;
}
