/* A stencil on a grid that is cut into bands of rows, one a node, in BIP's own idiom.
 *
 * Each step every cell becomes the mean of its four neighbours. A node gets the row above its band and the row
 * below it from its neighbours: receives are posted, and then the own first and last rows are sent, one after
 * the other, as BIP has one send at a time. Rows longer than BIPSMALLSIZE go from grid to grid without a copy.
 *
 * At the end a sum goes around the ring of nodes. Node 0 works the whole grid out by itself, too, and says
 * whether the two agree.
 *
 * Usage: bip_stencil [columns [rows of a node [steps]]]
 */
#include <bip.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UPWARD 1
#define DOWNWARD 2
#define RING 3

static int columns = 2500, rows = 20, steps = 30;

static int *cell(int *grid, int row, int column)
{
    return grid + (size_t)row * columns + column;
}

/* A band of `height` rows, with a row above and one below, whose first row is `first` in the whole grid. */
static int *new_band(int first, int height)
{
    int *band = calloc((size_t)(height + 2) * columns, sizeof(int));
    int i, j;

    if (!band) {
        fprintf(stderr, "no memory\n");
        exit(1);
    }
    for (i = 1; i <= height; i++)
        for (j = 0; j < columns; j++)
            *cell(band, i, j) = ((first + i) * 7919 + j * 104729) % 1000000;
    return band;
}

static void step(int *old, int *new, int height)
{
    int i, j;

    for (i = 1; i <= height; i++) {
        *cell(new, i, 0) = *cell(old, i, 0);
        *cell(new, i, columns - 1) = *cell(old, i, columns - 1);
        for (j = 1; j < columns - 1; j++)
            *cell(new, i, j) = (*cell(old, i - 1, j) + *cell(old, i + 1, j) + *cell(old, i, j - 1)
                                + *cell(old, i, j + 1))
                / 4;
    }
}

/* Fills the rows above and below the band. Beyond the grid's edge they stay 0. */
static void exchange(int *band, int height)
{
    int above = -1, below = -1, got_above = columns, got_below = columns;

    if (bip_mynode > 0)
        above = bip_tirecv(DOWNWARD, cell(band, 0, 0), columns);
    if (bip_mynode < bip_numnodes - 1)
        below = bip_tirecv(UPWARD, cell(band, height + 1, 0), columns);
    if (bip_mynode > 0)
        bip_tsend(bip_mynode - 1, UPWARD, cell(band, 1, 0), columns);
    if (bip_mynode < bip_numnodes - 1)
        bip_swait(bip_tisend(bip_mynode + 1, DOWNWARD, cell(band, height, 0), columns));
    if (above >= 0)
        got_above = bip_rwait(above);
    if (below >= 0)
        while ((got_below = bip_rtest(below)) < 0)
            ;
    if (got_above != columns || got_below != columns) {
        fprintf(stderr, "node %d: rows of %d and %d words\n", bip_mynode, got_above, got_below);
        exit(1);
    }
}

static unsigned sum(int *band, int height, int first)
{
    unsigned total = 0;
    int i, j;

    for (i = 1; i <= height; i++)
        for (j = 0; j < columns; j++)
            total += (unsigned)*cell(band, i, j) * (unsigned)(first + i + j);
    return total;
}

/* Adds the nodes' sums up around the ring, from node 0 back to node 0. */
static unsigned sum_of_all(unsigned own)
{
    unsigned total = 0;

    if (bip_numnodes == 1)
        return own;
    if (bip_mynode > 0)
        bip_trecv(RING, (int *)&total, 1);
    total += own;
    bip_tsend((bip_mynode + 1) % bip_numnodes, RING, (int *)&total, 1);
    if (bip_mynode == 0)
        bip_trecv(RING, (int *)&total, 1);
    return total;
}

/* Works out `count` steps of a band, alone or with the others. */
static unsigned work(int first, int height, int count, int with_others)
{
    int *old = new_band(first, height), *new = new_band(first, height), *other;
    unsigned total;

    while (count-- > 0) {
        if (with_others)
            exchange(old, height);
        step(old, new, height);
        other = old;
        old = new;
        new = other;
    }
    total = sum(old, height, first);
    free(old);
    free(new);
    return total;
}

int main(int argc, char **argv)
{
    unsigned total, alone;

    if (argc > 1)
        columns = atoi(argv[1]);
    if (argc > 2)
        rows = atoi(argv[2]);
    if (argc > 3)
        steps = atoi(argv[3]);
    if (columns < 2 || rows < 1 || steps < 0) {
        fprintf(stderr, "usage: bip_stencil [columns [rows of a node [steps]]]\n");
        return 2;
    }
    bip_taginit(UPWARD, 2, BIPSMALLSIZE);
    bip_taginit(DOWNWARD, 2, BIPSMALLSIZE);
    bip_init();
    total = sum_of_all(work(bip_mynode * rows, rows, steps, 1));
    if (bip_mynode == 0) {
        alone = work(0, rows * bip_numnodes, steps, 0);
        printf("%d nodes, %d x %d cells, %d steps: sum %u, %s\n", bip_numnodes, rows * bip_numnodes, columns,
               steps, total, total == alone ? "right" : "wrong");
        return total != alone;
    }
    return 0;
}
