/* What the test programs share. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "fm.h"

#define CHECK(what)                                                                     \
    do {                                                                                \
        if (!(what)) {                                                                  \
            fprintf(stderr, "node %lu: line %d: %s\n", FM_nodeid, __LINE__, #what);     \
            exit(9);                                                                    \
        }                                                                               \
    } while (0)

#define UNUSED __attribute__((unused))
#define PACKET 8192
#define WINDOW 128

/* Seconds, by a clock that all processes of the machine share. */
UNUSED static double now(void)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + 1e-9 * at.tv_nsec;
}

/* Lets packets come for a while, and takes none. */
UNUSED static void let_come(double seconds)
{
    double end = now() + seconds;

    while (now() < end)
        CHECK(FM_extract(0) == 0);
}

UNUSED static FM_stream *begin(ULONG node, ULONG length, ULONG handler)
{
    FM_stream *stream;

    while ((stream = FM_begin_message(node, length, handler)) == NULL)
        FM_extract(~0);
    return stream;
}

UNUSED static void send_whole(ULONG node, ULONG handler, void *bytes, ULONG length)
{
    FM_stream *stream = begin(node, length, handler);

    FM_send_piece(stream, bytes, length);
    FM_end_message(stream);
}

/* The byte at some place of what some node sends. */
UNUSED static unsigned char pattern(unsigned node, ULONG at)
{
    return (unsigned char) (at * 31 + (at >> 8) * 7 + node * 13 + 5);
}

UNUSED static unsigned char *patterned(ULONG length)
{
    unsigned char *bytes = (unsigned char *) malloc(length + 1);
    ULONG i;

    CHECK(bytes != NULL);
    for (i = 0; i < length; i++)
        bytes[i] = pattern(FM_nodeid, i);
    return bytes;
}

/* Messages for this one are counted, and thrown away. */
static volatile int counted;

UNUSED static int count_handler(FM_stream *stream, unsigned sender)
{
    (void) stream, (void) sender;
    counted++;
    return FM_CONTINUE;
}
