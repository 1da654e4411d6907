/* Whoever consumes packets, their sender gets its credits back. */
#include "fm_test.h"
#include <pthread.h>

/* Packets of a message that needs the whole room twice. */
#define LONG (2 * WINDOW)

static int h_long, h_nested, h_count;
static volatile int began, is_back, done, goes_on;

static int long_handler(FM_stream *stream, unsigned sender)
{
    static unsigned char bytes[LONG * PACKET];
    ULONG i;

    began = 1;
    FM_receive(bytes, stream, LONG * PACKET);
    for (i = 0; i < LONG * PACKET; i++)
        CHECK(bytes[i] == pattern(sender, i));
    done = 1;
    return FM_CONTINUE;
}

/* Extracts a window of its own message, receives it, and extracts until there is more of it. */
static int nested_handler(FM_stream *stream, unsigned sender)
{
    static unsigned char bytes[PACKET];
    int packets = 1, i;

    (void) sender;
    while (packets < WINDOW)
        packets += FM_extract(~0) / PACKET;
    for (i = 0; i < WINDOW; i++)
        FM_receive(bytes, stream, PACKET);
    while (FM_extract(~0) == 0)
        ;
    for (i = WINDOW; i < LONG; i++)
        FM_receive(bytes, stream, PACKET);
    done = 1;
    return FM_CONTINUE;
}

/* Begins the handler. Once the program's first thread has extracted a window, it may go on with it, end, or
 * do nothing at all. */
static void *begins(void *then)
{
    while (began == 0)
        FM_extract(~0);
    is_back = 1;
    while (goes_on == 0)
        usleep(1000);
    while (strcmp((char *) then, "stays") == 0)
        usleep(1000);
    while (strcmp((char *) then, "goes on") == 0 && done == 0)
        FM_extract(~0);
    return NULL;
}

/* The rest follows the first packet once node 0 says so, if it does. */
static void sends(int handler, int waits)
{
    unsigned char *bytes = patterned(LONG * PACKET);
    FM_stream *stream = begin(0, LONG * PACKET, handler);

    FM_send_piece(stream, bytes, PACKET);
    while (waits && counted == 0)
        FM_extract(~0);
    FM_send_piece(stream, bytes + PACKET, (LONG - 1) * PACKET);
    FM_end_message(stream);
}

static void on_a_thread(char *then)
{
    pthread_t thread;
    int bytes = 0;

    if (FM_nodeid == 1) {
        sends(h_long, 1);
        if (strcmp(then, "ends") == 0)
            send_whole(0, h_count, NULL, 0);
        return;
    }
    CHECK(pthread_create(&thread, NULL, begins, then) == 0);
    while (is_back == 0)
        usleep(1000);
    send_whole(1, h_count, NULL, 0);
    /* With that message the first packet's credit has gone back. */
    while (bytes < WINDOW * PACKET)
        bytes += FM_extract(~0);
    CHECK(bytes == WINDOW * PACKET && done == 0);
    goes_on = 1;
    if (strcmp(then, "stays") == 0)
        return;
    pthread_join(thread, NULL);
    while (strcmp(then, "ends") == 0 && counted == 0)
        FM_extract(~0);
    CHECK(done == (strcmp(then, "goes on") == 0));
}

/* Node 0 computes for longer than the node's timeout, while node 1 has more for it than the lane takes. */
static void computes(void)
{
    if (FM_nodeid == 1) {
        sends(h_long, 0);
        send_whole(0, h_count, NULL, 0);
        return;
    }
    usleep(3000000);
    while (counted == 0)
        FM_extract(~0);
    CHECK(done == 1);
}

int main(int argc, char **argv)
{
    (void) argc;
    alarm(60);
    FM_initialize();
    h_long = FM_register_handler(FM_ANY_ID, long_handler);
    h_nested = FM_register_handler(FM_ANY_ID, nested_handler);
    h_count = FM_register_handler(FM_ANY_ID, count_handler);
    if (strcmp(argv[1], "nested") == 0) {
        if (FM_nodeid == 1)
            sends(h_nested, 0);
        while (FM_nodeid == 0 && done == 0)
            FM_extract(~0);
    } else if (strcmp(argv[1], "computes") == 0)
        computes();
    else
        on_a_thread(argv[1]);
    FM_finalize();
    printf("node %lu is done\n", FM_nodeid);
    return 0;
}
