/* BIP 0.92, Basic Interface for Parallelism: messages with tags.
 *
 * A length is a number of words of 4 bytes. A tag is an int of 0 and more. A message of at most BIPSMALLSIZE
 * words is short, and is buffered at its receiver; a longer one stays where it is until a receive is posted
 * for it. Messages of one sender with one tag are received in the order in which they were sent.
 *
 * Buffers may be any memory. The program vouches for the addresses that it passes. One thread at a time calls.
 *
 * A fault, or a call that breaks a rule given here, is told by one line on standard error, and ends the process
 * with status 1. So does the loss of another process while this one waits. No function returns an error.
 *
 * No copy of the original header was found: names and rules come from its manual and from programs that use it.
 * Items marked [recalled] are known from neither. */
#ifndef STANDPIPE_BIP_H
#define STANDPIPE_BIP_H

#ifdef __cplusplus
extern "C" {
#endif

/* The longest message that is short, in words. The value is this library's: the original one was not found. */
#define BIPSMALLSIZE 1024

/* This process's number, 0 and more, and how many there are. Set by bip_init; -1 and 0 before. */
extern int bip_mynode, bip_numnodes;

/* Declares that the queue of `tag` is to hold `nbufs` short messages of `size` words. Before bip_init only; of
 * two declarations of a tag the later counts. 1 to 1048576 buffers [recalled], of 1 word or more. Tags that
 * nothing is said of have 64 of BIPSMALLSIZE words [recalled]. Returns 0 [recalled]. */
int bip_taginit(int tag, int nbufs, int size);

/* Opens the layer; once, in every process of the job, and before everything but bip_taginit. Waits until all
 * processes have called it. */
void bip_init(void);

/* Sends `words` words from `buf` on to process `dst`, which is another one: sending to oneself is an error.
 * Returns when they may be overwritten: of a long message, when it was received; of a short one, at once, unless
 * more of them wait at the receiver than it has declared, and 1024 beside. Returns `words` [recalled]. */
int bip_tsend(int dst, int tag, const int *buf, int words);

/* bip_tsend with tag 0 [recalled]. */
int bip_send(int dst, const int *buf, int words);

/* Starts to send, and returns the send's number, which is above 0. The words must stay as they are until
 * bip_swait or bip_stest says that the send has ended. Until then no other send may be started. */
int bip_tisend(int dst, int tag, const int *buf, int words);

/* bip_tisend with tag 0 [recalled]. */
int bip_isend(int dst, const int *buf, int words);

/* Waits until the send of that number has ended. */
void bip_swait(int id);

/* Returns 1 if the send of that number has ended, 0 if not. */
int bip_stest(int id);

/* Waits for the next message with a tag, from any process, and puts it at `buf`, where there is room for `words`
 * words: a longer message is an error. Returns its length in words, which may be 0. A tag has one receive at a
 * time. */
int bip_trecv(int tag, int *buf, int words);

/* bip_trecv with tag 0 [recalled]. */
int bip_recv(int *buf, int words);

/* As bip_trecv, and says in `*src` who sent the message. */
int bip_trecvx(int tag, int *buf, int words, int *src);

/* bip_trecvx with tag 0 [recalled]. */
int bip_recvx(int *buf, int words, int *src);

/* Posts a receive, and returns its number, which is above 0. The buffer is the layer's until bip_rwait or
 * bip_rtest has given the message's length, or the program ends. Until then no other receive for the tag may be
 * posted. */
int bip_tirecv(int tag, int *buf, int words);

/* bip_tirecv with tag 0 [recalled]. */
int bip_irecv(int *buf, int words);

/* Waits until the receive of that number has ended, and returns the message's length in words. */
int bip_rwait(int id);

/* As bip_rwait, and says in `*src` who sent the message. */
int bip_rwaitx(int id, int *src);

/* Returns the message's length in words if the receive of that number has ended, -1 if not.
 *
 * When all other processes have ended, this function and bip_rtestx, bip_tnrecv, bip_tnrecvx and bip_tngetmsg
 * go on to say that nothing is there, so that queues can be emptied. Together they do so 100000 times; then
 * it is an error, since the program would ask for ever [recalled]. */
int bip_rtest(int id);

/* As bip_rtest, and says in `*src` who sent the message; -1 leaves `*src` as it is. */
int bip_rtestx(int id, int *src);

/* As bip_trecv, if a short message is next in the tag's queue; else returns -1 at once. Never takes a long
 * one. The name is this library's [recalled]. */
int bip_tnrecv(int tag, int *buf, int words);

/* As bip_tnrecv, and says in `*src` who sent the message; -1 leaves `*src` as it is [recalled]. */
int bip_tnrecvx(int tag, int *buf, int words, int *src);

/* Waits for the next message with a tag, and returns where it lies, to be read in place until bip_tfreemsg;
 * says its length in `*words`, and who sent it in `*src`. One message of a tag at a time. The order of the two
 * pointers is [recalled], and so is that long messages, too, may be read so. */
int *bip_tgetmsg(int tag, int *words, int *src);

/* As bip_tgetmsg, if a message is there; else returns NULL at once. A long message that is not here yet stays
 * the tag's next one, for every call that receives. The name is this library's [recalled]. */
int *bip_tngetmsg(int tag, int *words, int *src);

/* Frees the message of the tag that is being read in place. */
void bip_tfreemsg(int tag);

#ifdef __cplusplus
}
#endif

#endif
