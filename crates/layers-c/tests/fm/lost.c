/* A node that is killed ends what others wait for. */
#include "fm_test.h"

static int h_part, h_count, h_forward, h_slow;
static int began, ended;

static int part_handler(FM_stream *stream, unsigned sender)
{
    unsigned char bytes[2 * PACKET];

    (void) sender;
    began++;
    FM_receive(bytes, stream, 2 * PACKET);
    ended++;
    return FM_CONTINUE;
}

/* Sends on to node 2 what it receives. */
static int forward_handler(FM_stream *stream, unsigned sender)
{
    unsigned char bytes[PACKET];
    FM_stream *on = FM_begin_message(2, 2 * PACKET, h_part);

    (void) sender;
    CHECK(on != NULL);
    began++;
    FM_receive(bytes, stream, PACKET);
    FM_send_piece(on, bytes, PACKET);
    FM_receive(bytes, stream, PACKET);
    ended++;
    return FM_CONTINUE;
}

static void die(void)
{
    raise(SIGKILL);
}

/* Node 1 dies while it has node 0's room full: node 0's send ends, and so do all after it. */
static void in_a_send(void)
{
    ULONG length = 4 << 20;
    int i;

    if (FM_nodeid == 1) {
        let_come(0.3);
        die();
    }
    send_whole(1, h_count, patterned(length), length);
    for (i = 0; i < 3; i++)
        send_whole(1, h_count, patterned(length), length);
}

/* Takes so long that there is always one more to be taken. */
static int slow_handler(FM_stream *stream, unsigned sender)
{
    double end = now() + 1e-3;

    (void) stream, (void) sender;
    while (now() < end)
        ;
    return FM_CONTINUE;
}

/* The same, while node 2 sends to node 0 for much longer. */
static void in_a_send_of_many(void)
{
    ULONG length = 4 << 20;
    unsigned char bytes[64] = {0};
    double begins = now();

    if (FM_nodeid == 1) {
        let_come(0.3);
        die();
    }
    if (FM_nodeid == 0) {
        send_whole(1, h_count, patterned(length), length);
        CHECK(now() < begins + 4);
    }
    while (FM_nodeid == 2 && now() < begins + 6)
        send_whole(0, h_slow, bytes, sizeof bytes);
}

/* Node 1 dies in the middle of its message to node 0, whose handler is set aside; node 2 goes on. */
static void in_a_message(void)
{
    FM_stream *stream;

    if (FM_nodeid == 1) {
        stream = begin(0, 2 * PACKET, h_part);
        FM_send_piece(stream, patterned(PACKET), PACKET);
        let_come(0.3);
        die();
    }
    if (FM_nodeid == 0) {
        while (began == 0)
            FM_extract(~0);
        while (counted < 1000)
            FM_extract(~0);
        CHECK(began == 1 && ended == 0);
    } else {
        int i;
        let_come(0.6);
        for (i = 0; i < 1000; i++)
            send_whole(0, h_count, NULL, 0);
    }
}

/* Node 0 dies in the middle of its message to node 1, which had sent part of it on to node 2. */
static void in_a_chain(void)
{
    FM_stream *stream;

    if (FM_nodeid == 0) {
        stream = begin(1, 2 * PACKET, h_forward);
        FM_send_piece(stream, patterned(PACKET), PACKET);
        let_come(0.3);
        die();
    }
    if (FM_nodeid == 1) {
        double end = now() + 1.5;
        while (now() < end)
            FM_extract(~0);
        CHECK(began == 1 && ended == 0);
        /* The queue to node 2 is not locked for ever. */
        send_whole(2, h_count, NULL, 0);
    } else {
        while (counted == 0)
            FM_extract(~0);
        CHECK(began == 1 && ended == 0);
    }
}

int main(int argc, char **argv)
{
    (void) argc;
    if (strcmp(argv[1], "before") == 0 && getenv("STANDPIPE_RANK") != NULL)
        printf("rank %s\n", getenv("STANDPIPE_RANK"));
    FM_initialize();
    h_part = FM_register_handler(FM_ANY_ID, part_handler);
    h_count = FM_register_handler(FM_ANY_ID, count_handler);
    h_forward = FM_register_handler(FM_ANY_ID, forward_handler);
    h_slow = FM_register_handler(FM_ANY_ID, slow_handler);
    if (strcmp(argv[1], "send") == 0)
        in_a_send();
    else if (strcmp(argv[1], "send of many") == 0)
        in_a_send_of_many();
    else if (strcmp(argv[1], "message") == 0)
        in_a_message();
    else if (strcmp(argv[1], "chain") == 0)
        in_a_chain();
    else if (strcmp(argv[1], "finalize") == 0) {
        if (FM_nodeid == 1)
            die();
    } else
        return 8;
    FM_finalize();
    printf("node %lu is done\n", FM_nodeid);
    return 0;
}
