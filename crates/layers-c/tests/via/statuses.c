#include "prelude.h"

/*
 * Every bit of a status arises. Rank 1 sends, rank 0 receives; each case has a connection of its own. With
 * reliable reception the sender hears of what fails at the receiver, with delivery it loses the connection.
 */

static int level;
static VIP_VI_HANDLE vi;

/* A page that is registered, and then not there any more. */
static char *gone;
static VIP_MEM_HANDLE gone_handle;
#define GONE_BYTES (256 << 10)

static void make_gone(int is_gone)
{
    VIP_MEM_ATTRIBUTES attributes = {NULL, VIP_TRUE, VIP_TRUE};

    gone = mmap(NULL, GONE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(gone != MAP_FAILED);
    memset(gone, 1, GONE_BYTES);
    GIVES(VipRegisterMem(nic, gone, GONE_BYTES, &attributes, &gone_handle), VIP_SUCCESS);
    /* Its addresses stay taken, or others would come to lie there. */
    if (is_gone)
        CHECK(mprotect(gone, GONE_BYTES, PROT_NONE) == 0);
}

/* Connected, with so many receives of so many bytes at rank 0. */
static void begin(int receives, unsigned len)
{
    int i;

    told_count = 0;
    vi = make_vi(level, NULL, NULL);
    for (i = 0; i < receives && me == 0; i++)
        post_receive(vi, fill(i, 0, 1000u * (unsigned) i, len));
    connect_vi(vi, "status");
}

static void end(void)
{
    meet();
    end_vi(vi);
    meet();
}

static void flushed(VIP_RETURN (*next)(VIP_VI_HANDLE, VIP_DESCRIPTOR **), int number)
{
    VIP_DESCRIPTOR *ended;

    while (next(vi, &ended) == VIP_NOT_DONE)
        ;
    CHECK(ended == descriptor(number));
    CHECK(ended->CS.Status & VIP_STATUS_DESC_FLUSHED_ERROR);
}

/* The connection is broken: what was posted at rank 0 is flushed, what is posted to rank 1 is at once. */
static void is_broken(int receive)
{
    VIP_DESCRIPTOR *ended;

    if (me == 0) {
        GIVES(told(vi, VIP_ERROR_CONN_LOST), VIP_RESOURCE_VI);
        flushed(VipRecvDone, receive);
    } else {
        post_send(vi, fill(9, 0, 0, 10));
        flushed(VipSendDone, 9);
        post_receive(vi, fill(9, 0, 0, 10));
        GIVES(VipRecvDone(vi, &ended), VIP_DESCRIPTOR_ERROR);
        CHECK(ended == descriptor(9));
    }
    GIVES(state_of(vi), VIP_STATE_ERROR);
}

/* A send that fails before it leaves, with those bits. */
static void fails_here(VIP_DESCRIPTOR *(*make)(void), unsigned status)
{
    begin(1, 100);
    if (me == 1) {
        post_send(vi, make());
        GIVES(sent(vi, descriptor(0)), status);
    }
    is_broken(0);
    end();
}

static VIP_DESCRIPTOR *reserved_bit(void)
{
    fill(0, 0x10, 0, 10);
    return descriptor(0);
}

static VIP_DESCRIPTOR *reserved_operation(void)
{
    fill(0, VIP_CONTROL_OP_RESERVED, 0, 10);
    return descriptor(0);
}

static VIP_DESCRIPTOR *reserved_word(void)
{
    fill(0, 0, 0, 10)->CS.Reserved = 1;
    return descriptor(0);
}

static VIP_DESCRIPTOR *no_remote_segment(void)
{
    fill(0, VIP_CONTROL_OP_RDMAWRITE, 0, 10)->CS.SegCount = 0;
    descriptor(0)->CS.Length = 0;
    return descriptor(0);
}

static VIP_DESCRIPTOR *no_such_memory(void)
{
    fill(0, 0, 0, 10)->DS[0].Local.Handle = area_handle + 1000;
    return descriptor(0);
}

static VIP_DESCRIPTOR *beyond_its_memory(void)
{
    fill(0, 0, ROOM - 5, 10);
    return descriptor(0);
}

static VIP_DESCRIPTOR *wrong_length(void)
{
    fill(0, 0, 0, 10)->CS.Length = 11;
    return descriptor(0);
}

static VIP_DESCRIPTOR *too_long(void)
{
    /* The VI moves 1 MiB at most. */
    fill(0, 0, 0, ROOM)->CS.SegCount = 2;
    descriptor(0)->DS[1] = descriptor(0)->DS[0];
    descriptor(0)->CS.Length = 2 * ROOM;
    return descriptor(0);
}

/* What fails at the receiver. */
static void fails_there(unsigned len, int receives, unsigned at_receiver)
{
    unsigned expected = level == VIP_SERVICE_RELIABLE_RECEPTION ? VIP_STATUS_REMOTE_DESC_ERROR : 0;

    begin(receives, 100);
    meet();
    if (me == 1) {
        post_send(vi, fill(0, 0, 0, len));
        GIVES(sent(vi, descriptor(0)), expected);
        if (!expected)
            GIVES(told(vi, VIP_ERROR_CONN_LOST), VIP_RESOURCE_VI);
    } else if (receives) {
        GIVES(received(vi, descriptor(0)), VIP_STATUS_OP_RECEIVE | at_receiver);
        if (receives > 1)
            flushed(VipRecvDone, 1);
    } else {
        GIVES(told(vi, VIP_ERROR_RECVQ_EMPTY), VIP_RESOURCE_VI);
    }
    meet();
    GIVES(state_of(vi), VIP_STATE_ERROR);
    end();
}

/* The receive itself is bad. */
static void bad_receive(int is_format)
{
    told_count = 0;
    vi = make_vi(level, NULL, NULL);
    if (me == 0) {
        fill(0, is_format ? VIP_CONTROL_OP_RDMAWRITE : 0, 0, 100);
        if (!is_format)
            descriptor(0)->DS[0].Local.Handle = 0;
        post_receive(vi, descriptor(0));
    }
    connect_vi(vi, "status");
    if (me == 1) {
        post_send(vi, fill(0, 0, 0, 10));
        GIVES(sent(vi, descriptor(0)),
              level == VIP_SERVICE_RELIABLE_RECEPTION ? VIP_STATUS_REMOTE_DESC_ERROR : 0);
    } else {
        GIVES(received(vi, descriptor(0)),
              VIP_STATUS_OP_RECEIVE | (is_format ? VIP_STATUS_FORMAT_ERROR : VIP_STATUS_PROTECTION_ERROR));
    }
    end();
}

/* A long send whose bytes are not there: both ends have moved a part, or may have. */
static void source_is_gone(void)
{
    begin(1, 400000);
    make_gone(me == 1);
    if (me == 1) {
        fill(0, 0, 0, 100);
        descriptor(0)->CS.SegCount = 2;
        descriptor(0)->CS.Length = 100 + GONE_BYTES;
        descriptor(0)->DS[1].Local.Data.Address = gone;
        descriptor(0)->DS[1].Local.Handle = gone_handle;
        descriptor(0)->DS[1].Local.Length = GONE_BYTES;
        post_send(vi, descriptor(0));
        GIVES(sent(vi, descriptor(0)), VIP_STATUS_TRANSPORT_ERROR);
    } else {
        GIVES(received(vi, descriptor(0)),
              VIP_STATUS_OP_RECEIVE | VIP_STATUS_TRANSPORT_ERROR | VIP_STATUS_PARTIAL_ERROR);
    }
    GIVES(VipDeregisterMem(nic, gone, gone_handle), VIP_SUCCESS);
    CHECK(munmap(gone, GONE_BYTES) == 0);
    end();
}

/* Flushed descriptors are there at once after a disconnect, and need not be taken before the VI ends. */
static void disconnect(void)
{
    VIP_DESCRIPTOR *ended;

    begin(3, 100);
    meet();
    GIVES(VipDisconnect(vi), VIP_SUCCESS);
    if (me == 0) {
        GIVES(VipRecvDone(vi, &ended), VIP_DESCRIPTOR_ERROR);
        CHECK(ended == descriptor(0));
        GIVES(ended->CS.Status, VIP_STATUS_DONE | VIP_STATUS_OP_RECEIVE | VIP_STATUS_DESC_FLUSHED_ERROR);
    }
    /* A send to a VI that is idle ends at once; a receive stays. */
    post_send(vi, fill(5, 0, 0, 10));
    GIVES(VipSendDone(vi, &ended), VIP_DESCRIPTOR_ERROR);
    CHECK(ended == descriptor(5));
    GIVES(ended->CS.Status, VIP_STATUS_DONE | VIP_STATUS_OP_SEND | VIP_STATUS_DESC_FLUSHED_ERROR);
    post_receive(vi, fill(6, 0, 0, 10));
    GIVES(VipDestroyVi(vi), VIP_SUCCESS);
    meet();
}

int main(int argc, char **argv)
{
    (void) argc;
    level = atoi(argv[1]);
    open_nic();
    GIVES(VipErrorCallback(nic, NULL, note_error), VIP_SUCCESS);
    fails_here(reserved_bit, VIP_STATUS_FORMAT_ERROR);
    fails_here(reserved_operation, VIP_STATUS_FORMAT_ERROR);
    fails_here(reserved_word, VIP_STATUS_FORMAT_ERROR);
    fails_here(no_remote_segment, VIP_STATUS_OP_RDMA_WRITE | VIP_STATUS_FORMAT_ERROR);
    fails_here(no_such_memory, VIP_STATUS_PROTECTION_ERROR);
    fails_here(beyond_its_memory, VIP_STATUS_PROTECTION_ERROR);
    fails_here(wrong_length, VIP_STATUS_LENGTH_ERROR);
    fails_here(too_long, VIP_STATUS_LENGTH_ERROR);
    fails_there(101, 2, VIP_STATUS_LENGTH_ERROR);
    fails_there(100000, 2, VIP_STATUS_LENGTH_ERROR);
    fails_there(10, 0, 0);
    fails_there(100000, 0, 0);
    bad_receive(0);
    bad_receive(1);
    source_is_gone();
    disconnect();
    meet();
    GIVES(VipCloseNic(nic), VIP_SUCCESS);
    printf("rank %d is done\n", me);
    return 0;
}
