/* FM_initialize waits for all; FM_finalize throws away what is left. */
#include "fm_test.h"

static int h_part, h_count, h_time;
static int began, ended;
static double told;

static int part_handler(FM_stream *stream, unsigned sender)
{
    unsigned char bytes[2 * PACKET];

    (void) sender;
    began++;
    FM_receive(bytes, stream, 2 * PACKET);
    ended++;
    return FM_CONTINUE;
}

static int time_handler(FM_stream *stream, unsigned sender)
{
    (void) sender;
    FM_receive(&told, stream, sizeof told);
    return FM_CONTINUE;
}

int main(int argc, char **argv)
{
    double before;
    FM_stream *stream;
    int i;

    (void) argc;
    if (strcmp(argv[1], "late") == 0 && argv[2] != NULL)
        return 8;
    if (strcmp(argv[1], "late") == 0 && strcmp(getenv("STANDPIPE_RANK"), "1") == 0)
        usleep(500000);
    before = now();
    FM_initialize();
    h_part = FM_register_handler(FM_ANY_ID, part_handler);
    h_count = FM_register_handler(FM_ANY_ID, count_handler);
    h_time = FM_register_handler(FM_ANY_ID, time_handler);
    if (strcmp(argv[1], "late") == 0) {
        double after = now();
        /* Nobody was through before the last one came. */
        send_whole((FM_nodeid + 1) % FM_numnodes, h_time, &before, sizeof before);
        while (told == 0)
            FM_extract(~0);
        CHECK(after >= told);
    } else if (strcmp(argv[1], "left over") == 0) {
        /* More than there is room for goes to node 0, which is in FM_finalize and takes it. */
        for (i = 0; FM_nodeid != 0 && i < 1000; i++)
            send_whole(0, h_count, patterned(20000), 20000);
        CHECK(counted == 0);
    } else if (strcmp(argv[1], "given up") == 0) {
        /* Node 1 leaves in the middle of a message, in the handler of which node 0 waits. */
        if (FM_nodeid == 1) {
            stream = begin(0, 2 * PACKET, h_part);
            FM_send_piece(stream, patterned(PACKET), PACKET);
        } else {
            while (began == 0)
                FM_extract(~0);
            let_come(0.3);
            FM_extract(~0);
            CHECK(ended == 0);
        }
    } else
        return 8;
    FM_finalize();
    CHECK(counted == 0 && ended == 0);
    printf("node %lu is done\n", FM_nodeid);
    return 0;
}
