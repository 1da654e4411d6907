/* Misuse: each is an error line, and the program goes on; or ends with status 1. */
#include "fm_test.h"

static int h_misuse, h_count;
static FM_stream *stale, *sent;
static int come;

static int misuse_handler(FM_stream *stream, unsigned sender)
{
    unsigned char bytes[100];

    (void) sender;
    if (come++ == 0) {
        stale = stream;
        FM_receive(NULL, stream, 5);          /* line: to NULL */
        FM_receive(bytes, sent, 5);           /* line: not the stream of this handler */
        FM_receive(bytes, NULL, 5);           /* line: not the stream of this handler */
        FM_send_piece(stream, bytes, 5);      /* line: no message that has been begun */
        FM_end_message(stream);               /* line: no message that has been begun */
        FM_finalize();                        /* line: in a handler */
        memset(bytes, 0xee, sizeof bytes);
        FM_receive(bytes, stream, 21);        /* line: 20 left */
        CHECK(bytes[0] == 1 && bytes[19] == 20 && bytes[20] == 0xee);
        FM_receive(bytes, stream, 1);         /* line: 0 left */
    }
    return FM_CONTINUE;
}

static void all(void)
{
    unsigned char bytes[100];
    FM_stream *stream;
    int i;

    for (i = 0; i < 100; i++)
        bytes[i] = i + 1;
    FM_initialize();                          /* line: a second time */
    sent = begin(FM_nodeid, 20, h_misuse);
    FM_send_piece(sent, bytes, 10);
    FM_send_piece(sent, bytes, 11);           /* line: 10 are left */
    FM_send_piece(sent, NULL, 5);             /* line: no piece */
    FM_send_piece(sent, bytes, ~0UL);         /* line: no piece */
    FM_send_piece(sent, NULL, 0);
    FM_send_piece(sent, bytes + 10, 10);
    FM_send_piece(sent, bytes, 1);            /* line: 0 are left */
    FM_end_message(sent);
    FM_send_piece(sent, bytes, 1);            /* line: ended */
    FM_send_piece(sent, bytes, 0);            /* line: ended */
    FM_end_message(sent);                     /* line: ended */
    FM_send_piece(NULL, bytes, 1);            /* line */
    FM_end_message(NULL);                     /* line */
    FM_end_message((FM_stream *) bytes);      /* line */
    FM_receive(bytes, sent, 1);               /* line: outside handlers */
    while (come == 0)
        FM_extract(~0);
    FM_receive(bytes, stale, 1);              /* line: outside handlers */
    stream = begin(FM_nodeid, 0, 999);        /* line: handler 999 is not registered here */
    FM_end_message(stream);
    stream = begin(FM_nodeid, 50000, 65535);  /* line: handler 65535 */
    FM_send_piece(stream, patterned(50000), 50000);
    FM_end_message(stream);
    stream = begin(FM_nodeid, 0, 999);        /* No line: it was told of. */
    FM_end_message(stream);
    send_whole(FM_nodeid, h_count, bytes, 100);
    while (counted == 0)
        FM_extract(~0);
    FM_set_parameter(FM_QUIET, 1);            /* line: after FM_initialize */
    FM_reallocate_credit();
}

int main(int argc, char **argv)
{
    const char *what = argv[1];
    unsigned char byte = 0;

    (void) argc;
    /* Calls that come too early. */
    if (strcmp(what, "begin early") == 0)
        FM_begin_message(0, 1, 0);
    if (strcmp(what, "piece early") == 0)
        FM_send_piece((FM_stream *) &byte, &byte, 1);
    if (strcmp(what, "end early") == 0)
        FM_end_message((FM_stream *) &byte);
    if (strcmp(what, "receive early") == 0)
        FM_receive(&byte, (FM_stream *) &byte, 1);
    if (strcmp(what, "extract early") == 0)
        FM_extract(~0);
    if (strcmp(what, "finalize early") == 0)
        FM_finalize();
    if (strcmp(what, "reallocate early") == 0)
        FM_reallocate_credit();
    FM_initialize();
    h_misuse = FM_register_handler(FM_ANY_ID, misuse_handler);
    h_count = FM_register_handler(FM_ANY_ID, count_handler);
    if (strcmp(what, "no such node") == 0)
        FM_begin_message(FM_numnodes, 1, 0);
    if (strcmp(what, "no such node at all") == 0)
        FM_begin_message(~0UL, 1, 0);
    if (strcmp(what, "no such handler") == 0)
        FM_begin_message(0, 1, 65536);
    if (strcmp(what, "all") == 0)
        all();
    FM_finalize();
    if (strcmp(what, "begin late") == 0)
        FM_begin_message(0, 1, 0);
    if (strcmp(what, "piece late") == 0)
        FM_send_piece((FM_stream *) &byte, &byte, 1);
    if (strcmp(what, "end late") == 0)
        FM_end_message((FM_stream *) &byte);
    if (strcmp(what, "receive late") == 0)
        FM_receive(&byte, (FM_stream *) &byte, 1);
    if (strcmp(what, "extract late") == 0)
        FM_extract(~0);
    if (strcmp(what, "finalize late") == 0)
        FM_finalize();
    if (strcmp(what, "reallocate late") == 0)
        FM_reallocate_credit();
    if (strcmp(what, "initialize late") == 0)
        FM_initialize();
    printf("it goes on\n");
    return 0;
}
