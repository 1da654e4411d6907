/* Streams: how handlers start, wait, interleave and end. */
#include "fm_test.h"

static int h_big, h_go, h_forward, h_sized, h_count;
static int started, finished, went, most_waiting;
static ULONG big = 40000;

/* A message of `big` bytes, of which a first part leaves long before the rest. */
static int big_handler(FM_stream *stream, unsigned sender)
{
    unsigned char part[1000];
    ULONG at, i;

    started++;
    if (started - finished > most_waiting)
        most_waiting = started - finished;
    FM_receive(part, stream, 10);
    for (i = 0; i < 10; i++)
        CHECK(part[i] == pattern(sender, i));
    /* An answer from the middle of the message. */
    {
        FM_stream *answer = FM_begin_message(sender, 0, h_go);
        CHECK(answer != NULL);
        FM_end_message(answer);
    }
    for (at = 10; at < big; at += 330) {
        FM_receive(part, stream, 330);
        for (i = 0; i < 330; i++)
            CHECK(part[i] == pattern(sender, at + i));
    }
    finished++;
    return FM_CONTINUE;
}

static int go_handler(FM_stream *stream, unsigned sender)
{
    (void) stream, (void) sender;
    went++;
    return FM_CONTINUE;
}

/* Node 0 has others' handlers waiting in the middle of their messages, all at once. */
static void first_packet(void)
{
    unsigned char *bytes = patterned(big);
    FM_stream *stream;

    if (FM_nodeid == 0) {
        while (finished < (int) FM_numnodes - 1)
            FM_extract(~0);
        CHECK(started == finished && most_waiting == (int) FM_numnodes - 1);
        return;
    }
    stream = begin(0, big, h_big);
    FM_send_piece(stream, bytes, PACKET);
    while (went == 0) /* The first packet alone makes the handler answer. */
        FM_extract(~0);
    /* The others' handlers wait as well by then. */
    let_come(0.2);
    FM_send_piece(stream, bytes + PACKET, big - PACKET);
    FM_end_message(stream);
}

/* Passes on what it receives, as it comes, to the next node. */
static int forward_handler(FM_stream *stream, unsigned sender)
{
    unsigned char part[700];
    ULONG at, n, i;
    FM_stream *on = NULL;

    (void) sender;
    if (FM_nodeid + 1 < FM_numnodes) {
        on = FM_begin_message(FM_nodeid + 1, big, h_forward);
        CHECK(on != NULL);
    }
    for (at = 0; at < big; at += n) {
        n = big - at < 700 ? big - at : 700;
        FM_receive(part, stream, n);
        for (i = 0; i < n; i++)
            CHECK(part[i] == pattern(0, at + i));
        if (on != NULL)
            FM_send_piece(on, part, n);
    }
    if (on != NULL)
        FM_end_message(on);
    finished++;
    return FM_CONTINUE;
}

static void forward(void)
{
    int i;

    for (i = 0; FM_nodeid == 0 && i < 5; i++)
        send_whole(1, h_forward, patterned(big), big);
    while (FM_nodeid != 0 && finished < 5)
        FM_extract(~0);
}

/* Its first bytes say how long the message is and how much of it to receive. */
static int sized_handler(FM_stream *stream, unsigned sender)
{
    unsigned head[2], i;
    unsigned char *bytes;

    FM_receive(head, stream, sizeof head);
    CHECK(head[0] == (unsigned) went);
    FM_receive(NULL, stream, 0);
    bytes = (unsigned char *) malloc(head[1] + 1);
    FM_receive(bytes, stream, head[1]);
    for (i = 0; i < head[1]; i++)
        CHECK(bytes[i] == pattern(sender, i));
    free(bytes);
    went++;
    return FM_CONTINUE;
}

/* Handlers that return before they have received all: the rest is thrown away, and what follows comes. */
static void early(void)
{
    static const unsigned lengths[] = {0, 1, 8, 9, 16, 17, 8183, 8184, 8185, 16384, 100000, 300000};
    enum { N = sizeof lengths / sizeof lengths[0] };
    unsigned char *bytes = patterned(300000);
    unsigned head[2], i, j;

    for (i = 0; FM_nodeid == 0 && i < N * N; i++) {
        FM_stream *stream = begin(1, sizeof head + lengths[i / N], h_sized);
        head[0] = i;
        head[1] = lengths[i % N] < lengths[i / N] ? lengths[i % N] : lengths[i / N];
        FM_send_piece(stream, head, sizeof head);
        for (j = 0; j + 5000 < lengths[i / N]; j += 5000)
            FM_send_piece(stream, bytes + j, 5000);
        FM_send_piece(stream, bytes + j, lengths[i / N] - j);
        FM_end_message(stream);
    }
    while (FM_nodeid == 1 && went < N * N)
        FM_extract(3000);
}

/* Ends messages short of what was announced, also by nothing at all. */
static void fewer(void)
{
    static const ULONG sent[] = {0, 1, 16, 17, PACKET - 1, PACKET, PACKET + 1, 3 * PACKET};
    unsigned char *bytes = patterned(3 * PACKET);
    unsigned i;

    for (i = 0; FM_nodeid == 0 && i < 8; i++) {
        FM_stream *stream = begin(1, 5 * PACKET, h_count);
        FM_send_piece(stream, bytes, sent[i]);
        FM_end_message(stream);
        stream = begin(1, ~0UL, h_count);
        if (sent[i] > 0)
            FM_send_piece(stream, bytes, sent[i]);
        FM_end_message(stream);
    }
    while (FM_nodeid == 1 && counted < 16)
        FM_extract(~0);
}

int main(int argc, char **argv)
{
    (void) argc;
    FM_initialize();
    h_big = FM_register_handler(FM_ANY_ID, big_handler);
    h_go = FM_register_handler(FM_ANY_ID, go_handler);
    h_forward = FM_register_handler(FM_ANY_ID, forward_handler);
    h_sized = FM_register_handler(FM_ANY_ID, sized_handler);
    h_count = FM_register_handler(FM_ANY_ID, count_handler);
    big = 10 + 330 * 200;
    if (strcmp(argv[1], "first packet") == 0)
        first_packet();
    else if (strcmp(argv[1], "forward") == 0)
        forward();
    else if (strcmp(argv[1], "early") == 0)
        early();
    else if (strcmp(argv[1], "fewer") == 0)
        fewer();
    else
        return 8;
    FM_finalize();
    printf("node %lu is done\n", FM_nodeid);
    return 0;
}
