/*
 * A sort by Generic Active Messages in Berkeley's spelling (gam.h).
 *
 * Each process makes KEYS random keys. Every process is to have the keys of one range: process p
 * those from p/P to (p+1)/P of all. Keys travel in medium messages: a handler finds them in a buffer
 * of the system, and copies them to the end of its process's array. Its reply says how many there
 * were, and gam_wait counts the replies. Then each process sorts what it has, and they check the
 * whole: every key has come once, and no process has one that is less than the last of the one
 * before it.
 *
 *     cc gam_sort.c $(standpipe layers --cflags --libs) -o gam_sort
 *     standpipe run --same-addresses -n 4 -- ./gam_sort
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "gam.h"

#define KEYS 50000
#define PROCS 32
/* Keys that go in one message. */
#define BATCH 1000

/* Twice as many as there should be, as they are random. */
static unsigned keys[2 * KEYS + 10000];
static int have;

static unsigned batches[PROCS][BATCH];
static int filled[PROCS];

static int acknowledged;

/* What process 0 learns of all. */
static long total;
static unsigned long sum_before, sum_after;
static int reports;

/* The last key of the process before, and whether it has come. */
static unsigned last_before;
static int has_last_before;

static void counted(vnn_t from, int count)
{
    (void)from;
    acknowledged += count;
}

static void take(vnn_t from, char *buffer, int len, long count)
{
    if (have + count > (long)(sizeof keys / sizeof *keys)) {
        fprintf(stderr, "process %d has no room for more than %d keys\n", gam_my_proc(), have);
        exit(1);
    }
    memcpy(keys + have, buffer, len);
    have += (int)count;
    gam_reply_1(from, counted, (int)count);
}

static void reported(vnn_t from, long count, long before, long after)
{
    (void)from;
    total += count;
    sum_before += (unsigned long)before;
    sum_after += (unsigned long)after;
    reports++;
}

static void learn_last(vnn_t from, long key)
{
    (void)from;
    last_before = (unsigned)key;
    has_last_before = 1;
}

static void send_batch(int dest)
{
    if (filled[dest] > 0 && gam_request(dest, take, (char *)batches[dest],
                                        filled[dest] * (int)sizeof(unsigned), (long)filled[dest]) != 0)
        exit(1);
    filled[dest] = 0;
}

/* Makes the keys, and sends each where it belongs; returns the sum of all. */
static unsigned long deal_out(int own, int procs)
{
    unsigned long state = 88172645463325252UL + 7919UL * (unsigned long)own, sum = 0;
    int i, dest;

    for (i = 0; i < KEYS; i++) {
        unsigned key;

        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        key = (unsigned)(state >> 32);
        sum += key;
        dest = (int)((unsigned long)key * (unsigned long)procs >> 32);
        batches[dest][filled[dest]++] = key;
        if (filled[dest] == BATCH)
            send_batch(dest);
    }
    for (dest = 0; dest < procs; dest++)
        send_batch(dest);
    gam_wait(&acknowledged, KEYS);
    return sum;
}

static int by_value(const void *left, const void *right)
{
    unsigned a = *(const unsigned *)left, b = *(const unsigned *)right;

    return a < b ? -1 : a > b;
}

static int is_in_order(int own, int procs)
{
    int i;

    for (i = 1; i < have; i++)
        if (keys[i - 1] > keys[i])
            return 0;
    if (own < procs - 1)
        gam_request_1(own + 1, learn_last, (long)(have > 0 ? keys[have - 1] : 0));
    if (own > 0)
        gam_wait(&has_last_before, 1);
    return own == 0 || have == 0 || last_before <= keys[0];
}

int main(void)
{
    unsigned long before, after = 0;
    int own, procs, i, well;

    gam_enable(0);
    own = gam_my_proc();
    procs = gam_procs();
    if (procs > PROCS) {
        fprintf(stderr, "%d processes: at most %d\n", procs, PROCS);
        gam_exit(1);
    }
    before = deal_out(own, procs);
    /* All keys are where they belong when every process has all its replies. */
    gam_barrier();
    qsort(keys, have, sizeof *keys, by_value);
    well = is_in_order(own, procs);
    for (i = 0; i < have; i++)
        after += keys[i];
    gam_request_3(0, reported, (long)have, (long)before, (long)after);
    if (own == 0) {
        gam_wait(&reports, procs);
        well = well && total == (long)KEYS * procs && sum_before == sum_after;
        printf("%d processes, %ld keys: %s\n", procs, total, well ? "sorted" : "NOT sorted");
        fflush(stdout);
    }
    gam_exit(well ? 0 : 1);
    return 0;
}
