/*
 * Heat in a rod: each process has a part of it, and sends its ends to its neighbours at each step, in PM's
 * send buffers. What the neighbours sent is read where it lies. At the end process 0 gathers the rod and
 * compares it with what one process computes by itself.
 *
 *     pm_stencil [cells for each process] [steps]
 */
#include <score.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Kinds of messages. */
enum { LEFT_END, RIGHT_END, PART };

struct message {
    int kind;
    int from;
    int step; /* or, of a part, the first cell */
    int count;
    double cells[1];
};

#define CELLS_MAX ((PM_MTU - sizeof(struct message)) / sizeof(double))

static pmContext *pmc;
static int cells, steps;

static void fail(const char *what, int error)
{
    fprintf(stderr, "node %d: %s: %s\n", score_self_node, what, strerror(error));
    exit(1);
}

/* Sends count cells, waiting by polling for a buffer. */
static void send_cells(int to, int kind, int step, const double *from, int count)
{
    struct message *message;
    caddr_t buffer;
    int error;

    do
        error = pmGetSendBuffer(pmc, to, &buffer, sizeof(*message) + count * sizeof(double));
    while (error == ENOBUFS);
    if (error != PM_SUCCESS)
        fail("pmGetSendBuffer", error);
    message = (struct message *)buffer;
    message->kind = kind;
    message->from = score_self_node;
    message->step = step;
    message->count = count;
    memcpy(message->cells, from, count * sizeof(double));
    if ((error = pmSend(pmc)) != PM_SUCCESS)
        fail("pmSend", error);
}

/* The ends of neighbours for this step and the next: a neighbour may be a step ahead. */
static double ends[2][2];
static int have[2][2];

/* The rod, at process 0, and how many of its cells have come: of far processes perhaps early. */
static double *all;
static int got;

/* Waits for a message, and takes from it what it has while it lies in PM's buffer. */
static void take_message(void)
{
    struct message *message;
    caddr_t buffer;
    size_t len;
    int error;

    while ((error = pmReceive(pmc, &buffer, &len)) == ENOBUFS)
        ;
    if (error != PM_SUCCESS)
        fail("pmReceive", error);
    message = (struct message *)buffer;
    if (message->kind == PART) {
        memcpy(all + message->step, message->cells, message->count * sizeof(double));
        got += message->count;
    } else {
        int side = message->kind == RIGHT_END ? 0 : 1;

        ends[message->step % 2][side] = message->cells[0];
        have[message->step % 2][side] = 1;
    }
    pmReleaseReceiveBuffer(pmc);
}

static double start_of(int cell)
{
    return cell % 17 == 0 ? 100.0 : cell % 5;
}

static void step_of(const double *old, double *new, int count)
{
    int i;

    for (i = 1; i <= count; i++)
        new[i] = old[i] + 0.25 * (old[i - 1] - 2 * old[i] + old[i + 1]);
}

/* Compares the gathered rod with one that is computed here. */
static int check(void)
{
    int total = cells * score_num_node, i, step, wrong = 0;
    double *rod = calloc(total + 2, sizeof(double)), *new = calloc(total + 2, sizeof(double)), *swap;

    for (i = 0; i < total; i++)
        rod[i + 1] = start_of(i);
    for (step = 0; step < steps; step++) {
        step_of(rod, new, total);
        swap = rod, rod = new, new = swap;
    }
    for (i = 0; i < total; i++)
        wrong += rod[i + 1] != all[i];
    free(rod);
    free(new);
    return wrong;
}

static int gather(const double *mine)
{
    int total = cells * score_num_node, at, wrong;

    if (score_self_node != 0) {
        for (at = 0; at < cells; at += (int)CELLS_MAX) {
            int count = cells - at < (int)CELLS_MAX ? cells - at : (int)CELLS_MAX;

            send_cells(0, PART, score_self_node * cells + at, mine + at, count);
        }
        return 0;
    }
    memcpy(all, mine, cells * sizeof(double));
    got += cells;
    while (got < total)
        take_message();
    wrong = check();
    printf("%d nodes, %d cells, %d steps: %s\n", score_num_node, total, steps, wrong ? "WRONG" : "right");
    free(all);
    return wrong != 0;
}

int main(int argc, char **argv)
{
    double *old, *new, *swap;
    int step, i, left, right;

    score_initialize(argc, argv);
    pmc = score_pmnet[0];
    cells = argc > 1 ? atoi(argv[1]) : 1000;
    steps = argc > 2 ? atoi(argv[2]) : 200;
    left = score_self_node - 1;
    right = score_self_node + 1 < score_num_node ? score_self_node + 1 : -1;
    if (score_self_node == 0)
        all = malloc((size_t)cells * score_num_node * sizeof(double));
    old = calloc(cells + 2, sizeof(double));
    new = calloc(cells + 2, sizeof(double));
    for (i = 0; i < cells; i++)
        old[i + 1] = start_of(score_self_node * cells + i);
    for (step = 0; step < steps; step++) {
        if (left >= 0)
            send_cells(left, LEFT_END, step, old + 1, 1);
        if (right >= 0)
            send_cells(right, RIGHT_END, step, old + cells, 1);
        while (have[step % 2][0] + have[step % 2][1] < (left >= 0) + (right >= 0))
            take_message();
        old[0] = left >= 0 ? ends[step % 2][0] : 0;
        old[cells + 1] = right >= 0 ? ends[step % 2][1] : 0;
        have[step % 2][0] = have[step % 2][1] = 0;
        step_of(old, new, cells);
        swap = old, old = new, new = swap;
    }
    return gather(old + 1);
}
