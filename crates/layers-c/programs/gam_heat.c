/*
 * Heat in a plate, by Generic Active Messages (am.h).
 *
 * The plate is a grid of N x N points whose edge has a fixed temperature. In each step a point
 * becomes the mean of its four neighbours. Every process has the whole grid as a static array and
 * computes some of its rows. After each step it stores its first and its last row where they belong
 * in the grids of its two neighbours: the arrays lie at the same addresses everywhere, so that one
 * index names the place in both. The handler of a store counts the rows that have come.
 *
 * At the end process 0 gets all rows, computes the plate alone, and compares.
 *
 *     cc gam_heat.c $(standpipe layers --cflags --libs) -o gam_heat
 *     ./gam_heat 4                                          it makes its processes itself
 *     standpipe run --same-addresses -n 4 -- ./gam_heat 4   or it is started as a job
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "am.h"

#define N 128
#define STEPS 200

/* The grid of this step and of the next one, by the step's parity. */
static double plate[2][N + 2][N + 2];
static double alone[2][N + 2][N + 2];

/* How many rows have come from above and from below, and how many bytes process 0 has got. */
enum { ABOVE, BELOW };
static volatile long rows_come[2];
static volatile long bytes_got;
static volatile int processes_done;

/* A row of the neighbour lies in place: arg says whose. */
static void row_is_here(vnn_t from, void *addr, int n, void *arg)
{
    (void)from;
    (void)addr;
    (void)n;
    rows_come[(long)arg]++;
}

static void part_is_here(vnn_t from, void *addr, int n, void *arg)
{
    (void)from;
    (void)addr;
    (void)arg;
    bytes_got += n;
}

static void is_done(vnn_t from)
{
    (void)from;
    processes_done++;
}

static void heat_edges(double grid[2][N + 2][N + 2])
{
    int i, parity;

    memset(grid, 0, sizeof(double[2][N + 2][N + 2]));
    for (parity = 0; parity < 2; parity++)
        for (i = 0; i < N + 2; i++) {
            grid[parity][0][i] = 100.0;
            grid[parity][i][0] = 25.0 * i / N;
        }
}

/* Computes rows first to last of the next step. */
static void step(double grid[2][N + 2][N + 2], int parity, int first, int last)
{
    int row, column;

    for (row = first; row <= last; row++)
        for (column = 1; column <= N; column++)
            grid[!parity][row][column] =
                0.25 * (grid[parity][row - 1][column] + grid[parity][row + 1][column] +
                        grid[parity][row][column - 1] + grid[parity][row][column + 1]);
}

/* The last row of a process: rows are dealt out as evenly as may be. */
static int last_row(int proc, int procs)
{
    return (int)((long)N * (proc + 1) / procs);
}

static void send_row(vnn_t dest, double *row, long side)
{
    if (am_store(dest, row, row, (N + 2) * (int)sizeof(double), row_is_here, (void *)side) != 0)
        exit(1);
}

/* Gets the rows of all others, in pieces that the layer moves at once. */
static void gather(int parity)
{
    int proc, procs = am_procs();
    long wanted = 0;

    for (proc = 1; proc < procs; proc++) {
        int first = last_row(proc - 1, procs) + 1, last = last_row(proc, procs);
        char *at = (char *)plate[parity][first], *end = (char *)plate[parity][last + 1];

        while (at < end) {
            int n = end - at < am_max_size() ? (int)(end - at) : am_max_size();
            if (am_get(proc, at, at, n, part_is_here, NULL) != 0)
                exit(1);
            at += n;
            wanted += n;
        }
    }
    am_wait_for(bytes_got == wanted);
}

static int same_as_alone(int parity)
{
    int at, row, column;
    double sum = 0.0;

    heat_edges(alone);
    for (at = 0; at < STEPS; at++)
        step(alone, at & 1, 1, N);
    for (row = 1; row <= N; row++)
        for (column = 1; column <= N; column++) {
            sum += plate[parity][row][column];
            if (plate[parity][row][column] != alone[parity][row][column]) {
                printf("row %d, column %d: %g instead of %g\n", row, column,
                       plate[parity][row][column], alone[parity][row][column]);
                return 0;
            }
        }
    printf("%d processes, %d steps: mean temperature %.6f\n", am_procs(), STEPS, sum / N / N);
    return 1;
}

int main(int argc, char **argv)
{
    int own, procs, first, last, at, proc, well = 1;

    heat_edges(plate);
    am_enable(argc > 1 ? atoi(argv[1]) : 1, argc, argv);
    own = am_my_proc();
    procs = am_procs();
    first = own == 0 ? 1 : last_row(own - 1, procs) + 1;
    last = last_row(own, procs);
    for (at = 0; at < STEPS; at++) {
        double (*next)[N + 2] = plate[!(at & 1)];

        step(plate, at & 1, first, last);
        if (own > 0)
            send_row(own - 1, next[first], BELOW);
        if (own < procs - 1)
            send_row(own + 1, next[last], ABOVE);
        /* A neighbour is at most one step ahead, and then writes to the grid that is read no more. */
        am_wait_for((own == 0 || rows_come[ABOVE] > at) && (own == procs - 1 || rows_come[BELOW] > at));
    }
    /* All rows are complete once every process has said that its own are. */
    for (proc = 0; proc < procs; proc++)
        am_request_0(proc, is_done);
    am_wait_for(processes_done == procs);
    if (own == 0) {
        gather(STEPS & 1);
        well = same_as_alone(STEPS & 1);
    }
    am_disable();
    return well ? 0 : 1;
}
