/*
 * Messages of any length on PM, as MPI on PM has them: a short one is sent at once. Of a long one goes a
 * request with its length; the receiver locks its buffer and replies with the handle; the sender locks its
 * own, writes, waits until that is done, and says so. Then it shows the pin-down cache at work: messages
 * from the same buffer find it locked, messages from ever new ones do not.
 *
 *     STANDPIPE_PM_LOCKS=addresses:4194304 standpipe run -n 2 -- pm_mpi [bytes] [rounds]
 */
#include <score.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EAGER_MAX 4096

enum { EAGER, REQUEST, REPLY, DONE };

struct packet {
    int kind;
    int from;
    size_t len;
    pmAddrHandle handle;
};

static pmContext *pmc;

static void fail(const char *what, int error)
{
    fprintf(stderr, "node %d: %s: %s\n", score_self_node, what, strerror(error));
    exit(1);
}

static void send_packet(int to, int kind, size_t len, pmAddrHandle handle, const void *data)
{
    size_t extra = kind == EAGER ? len : 0;
    struct packet *packet;
    caddr_t buffer;
    int error;

    do
        error = pmGetSendBuffer(pmc, to, &buffer, sizeof(*packet) + extra);
    while (error == ENOBUFS);
    if (error != PM_SUCCESS)
        fail("pmGetSendBuffer", error);
    packet = (struct packet *)buffer;
    packet->kind = kind;
    packet->from = score_self_node;
    packet->len = len;
    packet->handle = handle;
    if (extra > 0)
        memcpy(packet + 1, data, extra);
    if ((error = pmSend(pmc)) != PM_SUCCESS)
        fail("pmSend", error);
}

/* The next packet, and of an eager one its data. Two processes take turns, so that it is the one that is due. */
static struct packet take_packet(void *data, size_t room)
{
    struct packet packet;
    caddr_t buffer;
    size_t len;
    int error;

    while ((error = pmReceive(pmc, &buffer, &len)) == ENOBUFS)
        ;
    if (error != PM_SUCCESS)
        fail("pmReceive", error);
    memcpy(&packet, buffer, sizeof(packet));
    if (packet.kind == EAGER) {
        if (packet.len > room)
            fail("a message that is too long", EINVAL);
        memcpy(data, buffer + sizeof(packet), packet.len);
    }
    pmReleaseReceiveBuffer(pmc);
    return packet;
}

static pmAddrHandle lock(void *from, size_t len)
{
    pmAddrHandle handle;
    int error = pmMLock(pmc, PM_NODE_ANY, from, len, &handle);

    if (error != PM_SUCCESS)
        fail("pmMLock", error);
    return handle;
}

static void unlock(void *from, size_t len)
{
    int error = pmMUnlock(pmc, PM_NODE_ANY, from, len);

    if (error != PM_SUCCESS)
        fail("pmMUnlock", error);
}

static void send_message(int to, void *from, size_t len)
{
    struct packet reply;
    pmAddrHandle handle;
    int error;

    if (len <= EAGER_MAX) {
        send_packet(to, EAGER, len, 0, from);
        return;
    }
    send_packet(to, REQUEST, len, 0, NULL);
    reply = take_packet(NULL, 0);
    handle = lock(from, len);
    while ((error = pmWrite(pmc, to, reply.handle, handle, len)) == ENOBUFS)
        ;
    if (error != PM_SUCCESS)
        fail("pmWrite", error);
    while ((error = pmIsWriteDone(pmc)) == EBUSY)
        ;
    if (error != PM_SUCCESS)
        fail("pmIsWriteDone", error);
    unlock(from, len);
    send_packet(to, DONE, len, 0, NULL);
}

static size_t receive_message(void *into, size_t room)
{
    struct packet packet = take_packet(into, room);

    if (packet.kind == EAGER)
        return packet.len;
    if (packet.len > room)
        fail("a message that is too long", EINVAL);
    send_packet(packet.from, REPLY, packet.len, lock(into, packet.len), NULL);
    take_packet(NULL, 0);
    unlock(into, packet.len);
    return packet.len;
}

/* Messages there and back, each from a buffer of so many in turn. */
static void rounds_of(const char *name, char *memory, size_t len, int rounds, int buffers)
{
    struct standpipe_pm_pin_down before, after;
    int round, peer = 1 - score_self_node, wrong = 0;
    size_t i;

    standpipe_pm_pin_down(pmc, &before);
    for (round = 0; round < rounds; round++) {
        char *buffer = memory + round % buffers * len;

        if (score_self_node == 0) {
            memset(buffer, round + 1, len);
            send_message(peer, buffer, len);
            receive_message(buffer, len);
            for (i = 0; i < len; i++)
                wrong += buffer[i] != (char)(round + 2);
        } else {
            receive_message(buffer, len);
            for (i = 0; i < len; i++)
                wrong += buffer[i]++ != (char)(round + 1);
            send_message(peer, buffer, len);
        }
    }
    standpipe_pm_pin_down(pmc, &after);
    printf("node %d, %s: %lu hits, %lu misses, %lu evictions, %s\n", score_self_node, name,
           after.hits - before.hits, after.misses - before.misses, after.evictions - before.evictions,
           wrong ? "WRONG" : "right");
    if (wrong)
        exit(1);
}

int main(int argc, char **argv)
{
    size_t len = argc > 1 ? strtoul(argv[1], NULL, 0) : 1 << 20;
    int rounds = argc > 2 ? atoi(argv[2]) : 20;
    void *memory;

    score_initialize(argc, argv);
    pmc = score_pmnet[0];
    if (score_num_node != 2) {
        fprintf(stderr, "pm_mpi: two processes talk to each other; start it by standpipe run -n 2\n");
        return 2;
    }
    if (posix_memalign(&memory, 4096, len * rounds) != 0)
        fail("posix_memalign", ENOMEM);
    memset(memory, 0, len * rounds);
    if (pmMUnlock(pmc, PM_NODE_ANY, memory, len) == ENOSYS) {
        printf("pm_mpi: no memory can be locked here; set STANDPIPE_PM_LOCKS=addresses\n");
        return 0;
    }
    rounds_of("short messages", memory, 100, rounds, 1);
    rounds_of("one buffer", memory, len, rounds, 1);
    rounds_of("ever new buffers", memory, len, rounds, rounds);
    return 0;
}
