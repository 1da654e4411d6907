/* Messages of all nodes to all, in pieces of odd lengths and places: whole, and in order. */
#include "fm_test.h"

#define MESSAGES 300
#define LONGEST 60000

static int h_message;
static unsigned next_of[64], all;

static unsigned length_of(unsigned sender, unsigned number)
{
    static const unsigned special[] = {4, 5, 12, 16, 17, 20, 64, 8191, 8192, 8193, 16384, 16385};
    unsigned mixed = number * 2654435761u + sender * 40503u;

    if (number % 3 == 0)
        return special[mixed / 7 % 12];
    return 4 + mixed % (number % 10 == 1 ? LONGEST - 4 : 60);
}

static int message_handler(FM_stream *stream, unsigned sender)
{
    unsigned char bytes[LONGEST + 8];
    unsigned number, length, at, n, i, parts = 0;

    FM_receive(&number, stream, 4);
    CHECK(number == next_of[sender]);
    next_of[sender]++;
    length = length_of(sender, number);
    for (at = 4; at < length; at += n) {
        n = 1 + (number * 31 + parts++ * 977) % 5000;
        if (n > length - at)
            n = length - at;
        FM_receive(bytes + at + 3, stream, n);
    }
    for (i = 4; i < length; i++)
        CHECK(bytes[i + 3] == pattern(sender, i));
    all++;
    return FM_CONTINUE;
}

int main(void)
{
    unsigned char *bytes;
    unsigned number, step, at, n, parts;

    FM_initialize();
    h_message = FM_register_handler(7, message_handler);
    CHECK(h_message == 7);
    bytes = patterned(LONGEST + 8);
    for (number = 0; number < MESSAGES; number++)
        for (step = 0; step < FM_numnodes; step++) { /* To itself, too. */
            unsigned length = length_of(FM_nodeid, number);
            FM_stream *stream = begin((FM_nodeid + step) % FM_numnodes, length, h_message);
            FM_send_piece(stream, &number, 4);
            for (parts = 0, at = 4; at < length; at += n) {
                n = (number * 17 + parts++ * 1777) % 9000;
                if (n > length - at)
                    n = length - at;
                FM_send_piece(stream, bytes + at, n);
            }
            FM_end_message(stream);
            if (number % 5 == 0)
                FM_extract(2000);
        }
    while (all < MESSAGES * FM_numnodes)
        FM_extract(~0);
    FM_finalize();
    printf("node %lu is done\n", FM_nodeid);
    return 0;
}
