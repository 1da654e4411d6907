/* When FM_begin_message gives NULL. */
#include "fm_test.h"

static int h_count, h_reply, h_ask, h_locked;
static int replies, nulls, come;
static unsigned char bytes[70 * PACKET];

/* Counts whole replies. */
static int reply_handler(FM_stream *stream, unsigned sender)
{
    (void) stream, (void) sender;
    replies++;
    return FM_CONTINUE;
}

/* Asked for replies of so many packets, gives as many as it may. */
static int ask_handler(FM_stream *stream, unsigned sender)
{
    unsigned packets, i;
    FM_stream *reply;

    FM_receive(&packets, stream, sizeof packets);
    for (i = 0; i < 1000; i++) {
        reply = FM_begin_message(sender, (ULONG) packets * PACKET, h_reply);
        if (reply == NULL) {
            nulls++;
            break;
        }
        FM_send_piece(reply, bytes, (ULONG) packets * PACKET);
        FM_end_message(reply);
        come++;
    }
    return FM_CONTINUE;
}

static void locked(void)
{
    FM_stream *first = FM_begin_message(0, 10, h_count), *second;

    CHECK(first != NULL);
    CHECK(FM_begin_message(0, 10, h_count) == NULL);
    CHECK(FM_begin_message(0, 0, h_count) == NULL);
    second = FM_begin_message(1, 10, h_count);
    CHECK(second != NULL && second != first);
    FM_end_message(first);
    first = FM_begin_message(0, 10, h_count);
    CHECK(first != NULL);
    FM_end_message(first);
    FM_end_message(second);
    while (counted < (FM_nodeid == 0 ? 4 : 2))
        FM_extract(~0);
}

/* Node 1's handler may send as much as node 0 has room for, and node 0 takes none. */
static void in_a_handler(unsigned packets, int succeed)
{
    if (FM_nodeid == 0) {
        send_whole(1, h_ask, &packets, sizeof packets);
        let_come(0.5);
        while (replies < succeed)
            FM_extract(~0);
        let_come(0.1);
        FM_extract(~0);
        CHECK(replies == succeed);
        send_whole(1, h_count, NULL, 0);
    } else {
        while (counted == 0)
            FM_extract(~0);
        CHECK(come == succeed && nulls == 1);
    }
}

/* The handler finds the queue locked by the message in the middle of which it runs. */
static int locked_handler(FM_stream *stream, unsigned sender)
{
    FM_stream *reply = FM_begin_message(sender, 0, h_count);

    (void) stream;
    if (reply == NULL)
        nulls++;
    else
        FM_end_message(reply);
    come++;
    return FM_CONTINUE;
}

static void locked_outside(void)
{
    FM_stream *stream;

    if (FM_nodeid == 0) {
        stream = begin(1, 10, h_count);
        while (come == 0)
            FM_extract(~0);
        CHECK(nulls == 1);
        FM_end_message(stream);
        while (come == 1)
            FM_extract(~0);
        CHECK(nulls == 1);
    } else {
        send_whole(0, h_locked, NULL, 0);
        while (counted < 1)
            FM_extract(~0);
        send_whole(0, h_locked, NULL, 0);
        while (counted < 2)
            FM_extract(~0);
    }
}

int main(int argc, char **argv)
{
    FM_initialize();
    h_count = FM_register_handler(FM_ANY_ID, count_handler);
    h_reply = FM_register_handler(FM_ANY_ID, reply_handler);
    h_ask = FM_register_handler(FM_ANY_ID, ask_handler);
    h_locked = FM_register_handler(FM_ANY_ID, locked_handler);
    if (strcmp(argv[1], "locked") == 0)
        locked();
    else if (strcmp(argv[1], "locked outside") == 0)
        locked_outside();
    else if (strcmp(argv[1], "handler") == 0)
        in_a_handler(atoi(argv[2]), atoi(argv[3]));
    else
        return 8;
    FM_finalize();
    (void) argc;
    printf("node %lu is done\n", FM_nodeid);
    return 0;
}
