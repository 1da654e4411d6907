/* FM_extract's budget, and how senders depend on it. */
#include "fm_test.h"

static int h_thousand, h_quit, h_time, h_count, h_nest, h_back;
static int come, deepest, depth, ran_inside;
static double told;

static int thousand_handler(FM_stream *stream, unsigned sender)
{
    unsigned char bytes[1000];

    (void) sender;
    FM_receive(bytes, stream, 1000);
    CHECK(bytes[0] == come);
    come++;
    return FM_CONTINUE;
}

static int quit_handler(FM_stream *stream, unsigned sender)
{
    (void) stream, (void) sender;
    come++;
    return come % 2 == 1 ? FM_QUIT : come == 2 ? FM_CONTINUE : 77;
}

static int time_handler(FM_stream *stream, unsigned sender)
{
    (void) sender;
    FM_receive(&told, stream, sizeof told);
    return FM_CONTINUE;
}

static void budget(void)
{
    unsigned char bytes[1000] = {0};
    int i;

    if (FM_nodeid == 1) {
        for (i = 0; i < 10; i++) {
            bytes[0] = i;
            send_whole(0, h_thousand, bytes, 1000);
        }
        for (i = 0; i < 3; i++)
            send_whole(0, h_count, NULL, 0);
        return;
    }
    let_come(0.5);
    CHECK(come == 0);
    CHECK(FM_extract(1) == 1000 && come == 1);
    CHECK(FM_extract(1000) == 1000 && come == 2);
    CHECK(FM_extract(1001) == 2000 && come == 4);
    CHECK(FM_extract(2999) == 3000 && come == 7);
    CHECK(FM_extract(3000) == 3000 && come == 10);
    CHECK(FM_extract(2) == 0 && counted == 2); /* Empty packets count as a byte each. */
    CHECK(FM_extract(~0) == 0 && counted == 3);
    CHECK(FM_extract(~0) == 0);
}

static void quit(void)
{
    int i;

    for (i = 0; FM_nodeid == 1 && i < 6; i++)
        send_whole(0, h_quit, NULL, 0);
    if (FM_nodeid == 0) {
        let_come(0.5);
        FM_extract(~0);
        CHECK(come == 1);
        FM_extract(~0); /* FM_CONTINUE goes on. */
        CHECK(come == 3);
        FM_extract(~0); /* So does anything else. */
        CHECK(come == 5);
        FM_extract(~0);
        CHECK(come == 6);
    }
}

/* Node 1 takes nothing for a while: node 0 waits only for what it has no room for. */
static void bounded(int packets, int waits)
{
    double end;

    if (FM_nodeid == 0) {
        send_whole(1, h_count, patterned((ULONG) packets * PACKET), (ULONG) packets * PACKET);
        end = now();
        while (told == 0)
            FM_extract(~0);
        CHECK((end > told) == waits);
    } else {
        let_come(0.5);
        end = now();
        while (counted == 0)
            FM_extract(~0);
        send_whole(0, h_time, &end, sizeof end);
    }
}

/* All send much to all, themselves too, and nobody extracts before all is sent. */
static void mutual(void)
{
    ULONG length = 6 << 20, node;
    unsigned char *bytes = patterned(length);

    for (node = 0; node < FM_numnodes; node++)
        send_whole((FM_nodeid + node) % FM_numnodes, h_count, bytes, length);
    while (counted < (int) FM_numnodes)
        FM_extract(~0);
}

/* A handler that waits for others inside. */
static int nest_handler(FM_stream *stream, unsigned sender)
{
    int more, before;

    FM_receive(&more, stream, sizeof more);
    depth++;
    if (depth > deepest)
        deepest = depth;
    if (more > 0) {
        FM_stream *next;
        more--;
        next = FM_begin_message(sender, sizeof more, h_nest);
        CHECK(next != NULL);
        FM_send_piece(next, &more, sizeof more);
        FM_end_message(next);
        before = come;
        FM_extract(~0);
        ran_inside += come - before;
    }
    depth--;
    come++;
    return FM_CONTINUE;
}

static void nested(void)
{
    int more = 40;

    send_whole(FM_nodeid, h_nest, &more, sizeof more);
    while (come < 41)
        FM_extract(~0);
    CHECK(deepest == 16 && depth == 0 && ran_inside > 0);
}

/* A handler that extracts more of its own message, and of the one after, in its middle. */
static int back_handler(FM_stream *stream, unsigned sender)
{
    unsigned char bytes[100];
    int i, number = come;

    FM_receive(bytes, stream, 100);
    CHECK(bytes[99] == pattern(sender, 99));
    come++;
    if (number == 0)
        while (come < 3)
            FM_extract(~0);
    for (i = 1; i < 200; i++)
        FM_receive(bytes, stream, 100);
    CHECK(bytes[99] == pattern(sender, 19999));
    ran_inside++;
    return FM_CONTINUE;
}

static void own(void)
{
    int i;

    for (i = 0; FM_nodeid == 1 && i < 3; i++)
        send_whole(0, h_back, patterned(20000), 20000);
    while (FM_nodeid == 0 && ran_inside < 3)
        FM_extract(~0);
}

int main(int argc, char **argv)
{
    (void) argc;
    FM_initialize();
    h_thousand = FM_register_handler(FM_ANY_ID, thousand_handler);
    h_quit = FM_register_handler(FM_ANY_ID, quit_handler);
    h_time = FM_register_handler(FM_ANY_ID, time_handler);
    h_count = FM_register_handler(FM_ANY_ID, count_handler);
    h_nest = FM_register_handler(FM_ANY_ID, nest_handler);
    h_back = FM_register_handler(FM_ANY_ID, back_handler);
    if (strcmp(argv[1], "budget") == 0)
        budget();
    else if (strcmp(argv[1], "quit") == 0)
        quit();
    else if (strcmp(argv[1], "all fit") == 0)
        bounded(WINDOW, 0);
    else if (strcmp(argv[1], "one too many") == 0)
        bounded(WINDOW + 1, 1);
    else if (strcmp(argv[1], "mutual") == 0)
        mutual();
    else if (strcmp(argv[1], "nested") == 0)
        nested();
    else if (strcmp(argv[1], "own") == 0)
        own();
    else
        return 8;
    FM_finalize();
    printf("node %lu is done\n", FM_nodeid);
    return 0;
}
