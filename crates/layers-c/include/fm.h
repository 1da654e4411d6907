/* Fast Messages 2.x: messages as streams of pieces, and handlers that receive them piece by piece.
 *
 * Items that are marked [recalled] are known in this form from memory, or were concluded from other sources.
 * The page docs/layer-fm.md has the rules at length. Lengths are in bytes. An error that a function cannot
 * return is one line on standard error, "standpipe: FUNCTION: ...". A function that is called before FM_initialize or
 * after FM_finalize, and cannot do without, ends the program with status 1. */
#ifndef STANDPIPE_FM_H
#define STANDPIPE_FM_H

#ifdef __cplusplus
extern "C" {
#endif

/* The type of node numbers, handler numbers and lengths [recalled]. */
typedef unsigned long ULONG;

/* A message: one that is being sent, or one that a handler receives. Only the library knows what is in it. */
typedef struct FM_stream FM_stream;

/* A handler. FM_extract starts it when the first packet of a message for it has come. `sender` is the node
 * that sent the message. It waits in FM_receive only. Bytes that it leaves when it returns are thrown
 * away. It returns FM_CONTINUE or FM_QUIT. It runs on a stack of 1 MiB. Where its message arrives as one
 * packet, of up to 8,192 bytes, and no other handler runs, it runs on the stack of the thread that extracts. */
typedef int FM_handler(FM_stream *stream, unsigned sender);

/* A handler's result: FM_extract goes on [recalled]. So does it after every other value but FM_QUIT. */
#define FM_CONTINUE 1
/* The same as FM_QUIT, by another name [recalled]. */
#define FM_ABORT 0
/* A handler's result: the FM_extract that ran it returns. What has arrived stays for the next one. The
 * manuals have the name; value and meaning are [recalled]. */
#define FM_QUIT 0

/* Asks FM_register_handler for any number [recalled]. Also what it returns on an error [recalled]. */
#define FM_ANY_ID ((ULONG) -1)

/* This process's number, from 0. Valid from FM_initialize on. Read only. */
extern ULONG FM_nodeid;
/* Processes in the job. Valid from FM_initialize on. Read only. */
extern ULONG FM_numnodes;
/* The handlers, by number; NULL where there is none. Programs for FM 2.0 assign into it [recalled], before or
 * after FM_initialize. It has FM_MAX_HANDLERS places. Do not assign to the variable itself. */
extern FM_handler **FM_handler_table;

/* Names of parameters for FM_set_parameter. All values are [recalled]. */
#define FM_QUIET 1             /* 2.1: accepted, and nothing changes */
#define FM_MAX_HANDLERS 2      /* 2.1: places in FM_handler_table, an int from 1 to 65536; 1024 unless set */
#define FM_GRM_NAME 3          /* 2.1: accepted, and nothing changes; so are all that follow */
#define FM_GRM_PORT 4          /* 2.1 */
#define FM_CM_PORT 5           /* 2.1 */
#define FM_KEY_NAME 6          /* 2.1 */
#define FM_CONFIG_FILE 7       /* 2.0 */
#define FM_ABSOLUTE_SWITCHES 8 /* 2.0 */
#define FM_RELATIVE_SWITCHES 9 /* 2.0 */
#define FM_LCP_FILE 10         /* 2.0 */
#define FM_QUIET_START 11      /* 2.0 */
#define FM_UNIT_NUMBER 12      /* 2.0 */

/* Sets a parameter, before FM_initialize: its name, and one value of its type. An unknown name, a value out of
 * range and a call after FM_initialize are error lines, and nothing changes. */
void FM_set_parameter(int name, ...);

/* Joins the job, and waits until all its processes have called this. A second call is an error line. Where it
 * cannot join, or a process is lost before it comes, it ends the program with status 1. */
void FM_initialize(void);

/* Leaves the job, once all other processes have called this or are lost. Bytes not extracted yet are
 * thrown away, and so are messages that come meanwhile. Messages not ended are given up. Nothing can be
 * initialized again after it. An error line in a handler, before FM_initialize and the second time. */
void FM_finalize(void);

/* Registers a handler: under that number, in the place of one that is there; or for FM_ANY_ID under the lowest
 * number that is free. All processes should register in the same order. Returns the number. Returns FM_ANY_ID,
 * with an error line, for NULL, for a number beyond the table, and where the table is full. At any time. */
ULONG FM_register_handler(ULONG id, FM_handler *handler);

/* Begins a message of at most `length` bytes to a node's handler of that number. Returns NULL where it would not
 * be free of deadlock now: another message to that node has not been ended; or in a handler there is no room
 * for the whole message. Outside handlers call FM_extract and try again. In a handler never try again: return
 * first. A handler's message of more packets than there can be room for gets NULL for ever, with one error
 * line. A number of no node or no handler ends the program with status 1. A message to a node that is lost is
 * taken and thrown away. */
FM_stream *FM_begin_message(ULONG recipient, ULONG length, ULONG handler);

/* Sends the next `length` bytes of a message, with any alignment. Leave them as they are until FM_end_message.
 * They may leave before. Waits while the receiver has no room, and extracts meanwhile, except in a handler;
 * ends when that node is lost. Error lines, and nothing is sent: more bytes than were announced, a stream that
 * was ended or is none that is sent, NULL for more than 0 bytes. */
void FM_send_piece(FM_stream *stream, void *buffer, ULONG length);

/* Ends a message, which may have fewer bytes than were announced. Waits as FM_send_piece does. An error line
 * for a stream that was ended, or is none that is sent. */
void FM_end_message(FM_stream *stream);

/* Receives the next `length` bytes of the handler's own message into the buffer. Waits while they have not
 * come: then other handlers run. If the sender is lost before it has sent them, it does not return: the handler
 * stays there, and all others go on. Error lines: more bytes than the message has left, of which it receives
 * those; a stream that is not the one of the handler that calls, and NULL for more than 0 bytes, of which it
 * receives nothing. */
void FM_receive(void *buffer, FM_stream *stream, unsigned length);

/* Takes what has arrived, in order, and runs handlers on the calling thread, until packets of `maxbytes` bytes
 * have been taken. The last packet may go beyond that. A packet has up to 8192 bytes, and counts as one at least.
 * FM_extract(~0) takes all there is; within 5 microseconds of a call that found nothing, one packet from the
 * network may be all. Never waits. Handlers may call it, 16 deep. Runs none while another
 * thread extracts. Returns the bytes that it has taken [recalled]. */
int FM_extract(unsigned maxbytes);

/* Deals the room for packets anew among all processes. Nothing changes here: FM_initialize has dealt it to all.
 * An error line before FM_initialize and after FM_finalize. Its result is not known [recalled]. */
void FM_reallocate_credit(void);

#ifdef __cplusplus
}
#endif

#endif
