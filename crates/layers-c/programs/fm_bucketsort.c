/*
 * fm_bucketsort.c - sort integers over all nodes, with Fast Messages 2.x.
 *
 * Every node makes its share of the keys.  A key belongs to the node that its
 * leading bits name.  A node sends each other node one message: a header with
 * the count and the sum of the keys, then the keys, out of many small chunks.
 * The handler receives the header, makes room, and receives the keys straight
 * to where they belong.  In the end every node sorts its bucket, and node 0
 * hears of all of them.
 *
 * usage: fm_bucketsort [keys per node]
 */
#include <stdio.h>
#include <stdlib.h>
#include "fm.h"

#define CHUNK 64            /* keys in a piece */
#define MAXNODES 1024

struct header {
    unsigned count;
    unsigned sum;
};

struct report {
    unsigned lowest, highest;
    unsigned count, sum;
    unsigned sorted;
};

static unsigned *bucket;            /* the keys that belong here */
static unsigned in_bucket, room;
static unsigned heard;              /* nodes whose keys have come */
static struct report reports[MAXNODES];
static unsigned reported;

static int h_keys, h_report;

static void fail(const char *what)
{
    fprintf(stderr, "node %lu: %s\n", FM_nodeid, what);
    exit(1);
}

/* Makes room for that many more keys; returns the place of the first. */
static unsigned make_room(unsigned count)
{
    unsigned at = in_bucket;

    in_bucket += count;
    if (in_bucket > room) {
        room = 2 * in_bucket;
        bucket = (unsigned *) realloc(bucket, room * sizeof *bucket);
        if (bucket == NULL)
            fail("no memory");
    }
    return at;
}

/* Keys of another node.  Others of these run while this one waits, and may
 * move the bucket: each piece goes through memory of the handler's own. */
static int keys_handler(FM_stream *stream, unsigned sender)
{
    struct header header;
    unsigned chunk[CHUNK];
    unsigned left, count, at, i, sum = 0;

    (void) sender;
    FM_receive(&header, stream, sizeof header);
    at = make_room(header.count);
    for (left = header.count; left > 0; left -= count) {
        count = left < CHUNK ? left : CHUNK;
        FM_receive(chunk, stream, count * sizeof *chunk);
        for (i = 0; i < count; i++) {
            bucket[at++] = chunk[i];
            sum += chunk[i];
        }
    }
    if (sum != header.sum)
        fail("keys were changed on their way");
    heard++;
    return FM_CONTINUE;
}

static int report_handler(FM_stream *stream, unsigned sender)
{
    FM_receive(&reports[sender], stream, sizeof reports[sender]);
    reported++;
    return FM_CONTINUE;
}

static FM_stream *begin(unsigned node, unsigned length, int handler)
{
    FM_stream *stream;

    while ((stream = FM_begin_message(node, length, handler)) == NULL)
        FM_extract(~0);
    return stream;
}

static void send_keys(unsigned node, unsigned *keys, unsigned count)
{
    struct header header;
    FM_stream *stream;
    unsigned i, n;

    header.count = count;
    for (header.sum = 0, i = 0; i < count; i++)
        header.sum += keys[i];
    stream = begin(node, sizeof header + count * sizeof *keys, h_keys);
    FM_send_piece(stream, &header, sizeof header);
    for (i = 0; i < count; i += n) {
        n = count - i < CHUNK ? count - i : CHUNK;
        FM_send_piece(stream, keys + i, n * sizeof *keys);
    }
    FM_end_message(stream);
}

static int compare(const void *a, const void *b)
{
    unsigned x = *(const unsigned *) a, y = *(const unsigned *) b;

    return x < y ? -1 : x > y;
}

static unsigned owner(unsigned key)
{
    return (unsigned) ((double) key / 4294967296.0 * FM_numnodes);
}

/* Makes this node's keys, and sends each to where it belongs. */
static void distribute(unsigned share)
{
    unsigned *keys = (unsigned *) malloc((share + 1) * sizeof *keys);
    unsigned *mine = (unsigned *) malloc((share + 1) * sizeof *mine);
    unsigned step, node, i, n, key = 12345 + 977 * FM_nodeid;

    if (keys == NULL || mine == NULL)
        fail("no memory");
    for (i = 0; i < share; i++) {
        key = key * 1664525 + 1013904223;
        keys[i] = key;
    }
    for (step = 0; step < FM_numnodes; step++) {
        node = (FM_nodeid + step) % FM_numnodes;
        for (n = 0, i = 0; i < share; i++)
            if (owner(keys[i]) == node)
                mine[n++] = keys[i];
        if (node == FM_nodeid) {
            unsigned at = make_room(n);

            for (i = 0; i < n; i++)
                bucket[at + i] = mine[i];
            heard++;
        } else
            send_keys(node, mine, n);
    }
    free(keys);
    free(mine);
}

static void tell_node_0(void)
{
    struct report report;
    FM_stream *stream;
    unsigned i;

    report.count = in_bucket;
    report.lowest = in_bucket > 0 ? bucket[0] : 0;
    report.highest = in_bucket > 0 ? bucket[in_bucket - 1] : 0;
    report.sum = 0;
    report.sorted = 1;
    for (i = 0; i < in_bucket; i++) {
        report.sum += bucket[i];
        if (owner(bucket[i]) != FM_nodeid || (i > 0 && bucket[i - 1] > bucket[i]))
            report.sorted = 0;
    }
    if (FM_nodeid == 0) {
        reports[0] = report;
        reported++;
    } else {
        stream = begin(0, sizeof report, h_report);
        FM_send_piece(stream, &report, sizeof report);
        FM_end_message(stream);
    }
}

int main(int argc, char **argv)
{
    unsigned share = argc > 1 ? atoi(argv[1]) : 50000;
    unsigned total = 0, sum = 0, node;

    FM_initialize();
    if (FM_numnodes > MAXNODES)
        fail("too many nodes");
    h_keys = FM_register_handler(FM_ANY_ID, keys_handler);
    h_report = FM_register_handler(FM_ANY_ID, report_handler);

    distribute(share);
    while (heard < FM_numnodes)
        FM_extract(4096);
    qsort(bucket, in_bucket, sizeof *bucket, compare);
    tell_node_0();

    if (FM_nodeid == 0) {
        while (reported < FM_numnodes)
            FM_extract(~0);
        for (node = 0; node < FM_numnodes; node++) {
            total += reports[node].count;
            sum += reports[node].sum;
            if (!reports[node].sorted)
                fail("a bucket is not sorted");
        }
        if (total != share * FM_numnodes)
            fail("keys were lost");
        printf("sorted %u keys on %lu nodes, sum %u\n", total, FM_numnodes, sum);
    }
    FM_finalize();
    return 0;
}
