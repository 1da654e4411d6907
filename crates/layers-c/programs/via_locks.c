/*
 * A lock server over VIA, as programs with a distributed shared memory have it: via_locks [ROUNDS].
 *
 * Process 0 serves: each client has a connection, and all of them one completion queue. A client asks for the
 * lock, reads a counter by RDMA from the server's memory, writes it back by RDMA one higher, and gives the lock
 * back. Where no two clients hold the lock at once, the counter has counted every round.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vipl.h>

#define CLIENTS 15
#define LOCK 1
#define UNLOCK 2
#define GRANTED 3

#define MUST(call)                                                                                        \
    do {                                                                                                  \
        VIP_RETURN gave_ = (call);                                                                        \
        if (gave_ != VIP_SUCCESS) {                                                                       \
            fprintf(stderr, "line %d: %s gives %d\n", __LINE__, #call, (int) gave_);                      \
            exit(1);                                                                                      \
        }                                                                                                 \
    } while (0)

/* One registered area: descriptors first, at multiples of 64. */
static struct {
    VIP_DESCRIPTOR send, receives[CLIENTS][2];
    uint64_t counter, place, copy;
} area __attribute__((aligned(64)));

static VIP_NIC_HANDLE nic;
static VIP_NIC_ATTRIBUTES attributes;
static VIP_MEM_HANDLE memory;

typedef union {
    VIP_NET_ADDRESS address;
    char bytes[64];
} Address;

static void address_of(Address *made, int number, const char *discriminator)
{
    char name[16];

    sprintf(name, "node%d", number);
    memset(made, 0, sizeof(*made));
    MUST(VipNSGetHostByName(nic, name, &made->address, 0));
    made->address.DiscriminatorLen = (VIP_UINT16) strlen(discriminator);
    memcpy(made->address.HostAddress + made->address.HostAddressLen, discriminator, strlen(discriminator));
}

static void post_receive(VIP_VI_HANDLE vi, VIP_DESCRIPTOR *posted, void *to)
{
    memset(posted, 0, sizeof(*posted));
    posted->CS.SegCount = to ? 1 : 0;
    posted->DS[0].Local.Data.Address = to;
    posted->DS[0].Local.Handle = memory;
    posted->DS[0].Local.Length = to ? 16 : 0;
    MUST(VipPostRecv(vi, posted, memory));
}

/* Sends a word as immediate data, and some bytes. */
static void send_word(VIP_VI_HANDLE vi, unsigned word, void *from, unsigned len)
{
    VIP_DESCRIPTOR *ended;

    memset(&area.send, 0, sizeof(area.send));
    area.send.Control.Control = VIP_CONTROL_OP_SENDRECV | VIP_CONTROL_IMMEDIATE;
    area.send.Control.ImmediateData = word;
    area.send.Control.SegCount = len ? 1 : 0;
    area.send.Control.Length = len;
    area.send.Data[0].Data.Address = from;
    area.send.Data[0].Handle = memory;
    area.send.Data[0].Length = len;
    MUST(VipPostSend(vi, &area.send, memory));
    MUST(VipSendWait(vi, VIP_INFINITE, &ended));
}

static void serve(int clients, long rounds)
{
    VIP_VI_ATTRIBUTES wanted = {VIP_SERVICE_RELIABLE_DELIVERY, 4096, NULL, NULL, VIP_TRUE, VIP_TRUE}, remote;
    VIP_VI_HANDLE vis[CLIENTS], of, holder = NULL, queue[CLIENTS];
    int waiting = 0, i, turn[CLIENTS] = {0};
    long left = clients * rounds;
    VIP_BOOLEAN is_receive;
    VIP_DESCRIPTOR *ended;
    VIP_CONN_HANDLE caller;
    VIP_CQ_HANDLE cq;
    Address own, from;
    uint64_t where[2];

    MUST(VipCreateCQ(nic, 4 * CLIENTS, &cq));
    address_of(&own, 0, "locks");
    for (i = 0; i < clients; i++) {
        MUST(VipCreateVi(nic, &wanted, NULL, cq, &vis[i]));
        post_receive(vis[i], &area.receives[i][0], NULL);
        post_receive(vis[i], &area.receives[i][1], NULL);
        MUST(VipConnectWait(nic, &own.address, VIP_INFINITE, &from.address, &remote, &caller));
        MUST(VipConnectAccept(caller, vis[i]));
    }
    where[0] = (uint64_t) (uintptr_t) &area.counter;
    where[1] = memory;
    memcpy(&area.place, where, sizeof(where));
    while (left > 0) {
        MUST(VipCQWait(cq, VIP_INFINITE, &of, &is_receive));
        /* A client that is through has disconnected: its receives are flushed. */
        if (VipRecvDone(of, &ended) == VIP_DESCRIPTOR_ERROR)
            continue;
        for (i = 0; vis[i] != of; i++)
            ;
        if (ended->CS.ImmediateData == LOCK)
            queue[waiting++] = of;
        else
            holder = NULL, left--;
        post_receive(of, &area.receives[i][turn[i]], NULL);
        turn[i] = 1 - turn[i];
        if (holder == NULL && waiting > 0) {
            holder = queue[0];
            memmove(queue, queue + 1, (size_t) --waiting * sizeof(queue[0]));
            send_word(holder, GRANTED, &area.place, 16);
        }
    }
    printf("the counter is %lu of %ld: %s\n", (unsigned long) area.counter, clients * rounds,
           (long) area.counter == clients * rounds ? "right" : "wrong");
    for (i = 0; i < clients; i++) {
        MUST(VipDisconnect(vis[i]));
        MUST(VipDestroyVi(vis[i]));
    }
    MUST(VipDestroyCQ(cq));
}

/* RDMA of the counter, to or from the copy. */
static void move(VIP_VI_HANDLE vi, int operation)
{
    VIP_DESCRIPTOR *ended;

    memset(&area.send, 0, sizeof(area.send));
    area.send.CS.Control = (VIP_UINT16) operation;
    area.send.CS.SegCount = 2;
    area.send.CS.Length = 8;
    area.send.DS[0].Remote.Data.AddressBits = area.counter;
    area.send.DS[0].Remote.Handle = (VIP_MEM_HANDLE) area.place;
    area.send.DS[1].Local.Data.Address = &area.copy;
    area.send.DS[1].Local.Handle = memory;
    area.send.DS[1].Local.Length = 8;
    MUST(VipPostSend(vi, &area.send, memory));
    MUST(VipSendWait(vi, VIP_INFINITE, &ended));
}

static void ask(int number, long rounds)
{
    VIP_VI_ATTRIBUTES wanted = {VIP_SERVICE_RELIABLE_DELIVERY, 4096, NULL, NULL, VIP_FALSE, VIP_FALSE}, remote;
    VIP_DESCRIPTOR *ended;
    VIP_RETURN gave;
    VIP_VI_HANDLE vi;
    Address own, server;
    long round;

    MUST(VipCreateVi(nic, &wanted, NULL, NULL, &vi));
    address_of(&own, number, "client");
    address_of(&server, 0, "locks");
    post_receive(vi, &area.receives[0][0], &area.counter);
    while ((gave = VipConnectRequest(vi, &own.address, &server.address, VIP_INFINITE, &remote)) == VIP_NO_MATCH)
        ;
    MUST(gave);
    for (round = 0; round < rounds; round++) {
        send_word(vi, LOCK, NULL, 0);
        MUST(VipRecvWait(vi, VIP_INFINITE, &ended));
        /* Where the counter lies has come into counter and place. */
        move(vi, VIP_CONTROL_OP_RDMAREAD);
        area.copy++;
        move(vi, VIP_CONTROL_OP_RDMAWRITE);
        post_receive(vi, &area.receives[0][0], &area.counter);
        send_word(vi, UNLOCK, NULL, 0);
    }
    MUST(VipDisconnect(vi));
    MUST(VipDestroyVi(vi));
}

int main(int argc, char **argv)
{
    VIP_MEM_ATTRIBUTES open_to_all = {NULL, VIP_TRUE, VIP_TRUE};
    long rounds = argc > 1 ? atol(argv[1]) : 1000;
    int number, clients = 0;
    char name[16];
    Address found;

    MUST(VipOpenNic("/dev/via_eth0", &nic));
    MUST(VipQueryNic(nic, &attributes));
    MUST(VipNSInit(nic, NULL));
    number = attributes.LocalNicAddress[attributes.NicAddressLen - 1];
    while (clients < CLIENTS && (sprintf(name, "node%d", clients + 1),
                                 VipNSGetHostByName(nic, name, &found.address, 0) == VIP_SUCCESS))
        clients++;
    MUST(VipRegisterMem(nic, &area, sizeof(area), &open_to_all, &memory));
    if (number == 0)
        serve(clients, rounds);
    else
        ask(number, rounds);
    MUST(VipDeregisterMem(nic, &area, memory));
    MUST(VipNSShutdown(nic));
    MUST(VipCloseNic(nic));
    return 0;
}
