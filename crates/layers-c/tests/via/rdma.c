#include "prelude.h"

/* Remote writes and reads, with and without immediate data; who may, and who may not. Rank 1 does them. */

static int level;
static VIP_VI_HANDLE vi;
static uint64_t there;
static VIP_MEM_HANDLE there_handle;

static void begin(int receives)
{
    int i;

    told_count = 0;
    vi = make_vi(level, NULL, NULL);
    for (i = 0; i < receives && me == 0; i++)
        post_receive(vi, fill(i, 0, 0, 0));
    connect_vi(vi, "rdma");
}

static void end(void)
{
    meet();
    end_vi(vi);
    meet();
}

static VIP_DESCRIPTOR *write_of(unsigned at, unsigned len, uint64_t to)
{
    return fill_rdma(0, VIP_CONTROL_OP_RDMAWRITE, at, len, to, there_handle);
}

/* Of many lengths, and a send after each, by which the receiver knows. */
static void writes(void)
{
    static const unsigned lengths[] = {0, 1, 8, 4096, 5000, 65536, 262144};
    unsigned i, at;

    begin(0);
    for (i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        unsigned len = lengths[i];
        if (me == 0) {
            memset(area.bytes, 0, 300000);
            post_receive(vi, fill(1, 0, 0, 0));
        }
        meet();
        if (me == 1) {
            memset(area.bytes, (int) i + 1, len);
            post_send(vi, write_of(0, len, there));
            post_send(vi, fill(2, 0, 0, 0));
            GIVES(sent(vi, descriptor(0)), VIP_STATUS_OP_RDMA_WRITE);
            CHECK(descriptor(0)->CS.Length == len);
            GIVES(sent(vi, descriptor(2)), VIP_STATUS_OP_SEND);
        } else {
            GIVES(received(vi, descriptor(1)), VIP_STATUS_OP_RECEIVE);
            for (at = 0; at < len; at++)
                CHECK(area.bytes[at] == (char) (i + 1));
            CHECK(area.bytes[len] == 0);
        }
        meet();
    }
    end();
}

/* Immediate data takes a receive, and tells how much was written. Several segments are written one after the other. */
static void writes_with_immediate_data(void)
{
    begin(2);
    if (me == 0)
        memset(area.bytes, 0, 1000);
    meet();
    if (me == 1) {
        strcpy(area.bytes + 2000, "one");
        strcpy(area.bytes + 3000, "two");
        write_of(2000, 3, there + 10);
        descriptor(0)->CS.Control |= VIP_CONTROL_IMMEDIATE | VIP_CONTROL_QFENCE;
        descriptor(0)->CS.ImmediateData = 4711;
        descriptor(0)->CS.SegCount = 3;
        descriptor(0)->CS.Length = 7;
        descriptor(0)->DS[2].Local.Data.Address = area.bytes + 3000;
        descriptor(0)->DS[2].Local.Handle = area_handle;
        descriptor(0)->DS[2].Local.Length = 4;
        post_send(vi, descriptor(0));
        GIVES(sent(vi, descriptor(0)), VIP_STATUS_OP_RDMA_WRITE);
        CHECK(descriptor(0)->CS.Length == 7);
    } else {
        GIVES(received(vi, descriptor(0)), VIP_STATUS_OP_REMOTE_RDMA_WRITE | VIP_STATUS_IMMEDIATE);
        CHECK(descriptor(0)->CS.ImmediateData == 4711 && descriptor(0)->CS.Length == 7);
        CHECK(memcmp(area.bytes + 9, "\0onetwo\0", 9) == 0);
    }
    end();
}

static void reads(void)
{
    unsigned at;

    begin(0);
    if (me == 0)
        for (at = 0; at < 300000; at++)
            area.bytes[at] = (char) (at * 3);
    meet();
    if (me == 1) {
        memset(area.bytes, 0, 300000);
        post_send(vi, fill_rdma(0, VIP_CONTROL_OP_RDMAREAD, 5, 200000, there + 100, there_handle));
        GIVES(sent(vi, descriptor(0)), VIP_STATUS_OP_RDMA_READ);
        CHECK(descriptor(0)->CS.Length == 200000);
        for (at = 0; at < 200000; at++)
            CHECK(area.bytes[5 + at] == (char) ((at + 100) * 3));
        CHECK(area.bytes[200005] == 0);
    }
    end();
}

/* What rank 1 may not: both ends are told, and the connection breaks. */
static void refused(int control, uint64_t to, VIP_MEM_HANDLE handle, unsigned len, int code)
{
    int is_read = (control & VIP_CONTROL_OP_MASK) == VIP_CONTROL_OP_RDMAREAD;

    meet();
    if (me == 1) {
        fill_rdma(0, control, 0, len, to, handle)->CS.ImmediateData = 1;
        post_send(vi, descriptor(0));
        GIVES(sent(vi, descriptor(0)),
              (is_read ? VIP_STATUS_OP_RDMA_READ : VIP_STATUS_OP_RDMA_WRITE) | VIP_STATUS_RDMA_PROT_ERROR);
    } else if (control & VIP_CONTROL_IMMEDIATE) {
        GIVES(received(vi, descriptor(0)), VIP_STATUS_OP_REMOTE_RDMA_WRITE | VIP_STATUS_RDMA_PROT_ERROR);
    } else {
        GIVES(told(vi, code), VIP_RESOURCE_VI);
    }
    GIVES(state_of(vi), VIP_STATE_ERROR);
}

static void protection(void)
{
    VIP_MEM_ATTRIBUTES attributes = {NULL, VIP_TRUE, VIP_FALSE};
    VIP_VI_ATTRIBUTES closed = vi_attributes(level);
    VIP_PROTECTION_HANDLE tag;
    VIP_MEM_HANDLE own, remote;
    static char region[8192];
    uint64_t base;
    int write = VIP_CONTROL_OP_RDMAWRITE, read = VIP_CONTROL_OP_RDMAREAD;

    GIVES(VipCreatePtag(nic, &tag), VIP_SUCCESS);
    GIVES(VipRegisterMem(nic, region, sizeof(region), &attributes, &own), VIP_SUCCESS);
    base = swap_words((uint64_t) (uintptr_t) region);
    remote = (VIP_MEM_HANDLE) swap_words(own);

    /* Nothing that is registered; beyond its end; before its start; to be written alone. */
    begin(0), refused(write, base, remote + 1000, 8, VIP_ERROR_RDMAW_PROT), end();
    begin(0), refused(write, base + sizeof(region) - 7, remote, 8, VIP_ERROR_RDMAW_PROT), end();
    begin(0), refused(write, base - 1, remote, 8, VIP_ERROR_RDMAW_PROT), end();
    begin(0), refused(read, base, remote, 8, VIP_ERROR_RDMAR_PROT), end();
    /* The receive that the immediate data would take tells of it. */
    begin(1), refused(write | VIP_CONTROL_IMMEDIATE, base, remote + 1000, 8, 0), end();

    /* A right that is taken back ends at once, also where it was used before. */
    begin(0);
    meet();
    if (me == 1) {
        post_send(vi, fill_rdma(0, write, 0, 8, base, remote));
        GIVES(sent(vi, descriptor(0)), VIP_STATUS_OP_RDMA_WRITE);
    }
    meet();
    attributes.EnableRdmaWrite = VIP_FALSE;
    attributes.EnableRdmaRead = VIP_TRUE;
    GIVES(VipSetMemAttributes(nic, region, own, &attributes), VIP_SUCCESS);
    meet();
    if (me == 1) {
        post_send(vi, fill_rdma(0, read, 0, 8, base, remote));
        GIVES(sent(vi, descriptor(0)), VIP_STATUS_OP_RDMA_READ);
    }
    refused(write, base, remote, 8, VIP_ERROR_RDMAW_PROT), end();

    /* Another tag than the VI's. */
    attributes.Ptag = tag;
    attributes.EnableRdmaWrite = VIP_TRUE;
    GIVES(VipSetMemAttributes(nic, region, own, &attributes), VIP_SUCCESS);
    GIVES(VipQueryMem(nic, region + 5, own, &attributes), VIP_SUCCESS);
    CHECK(attributes.Ptag == tag && attributes.EnableRdmaWrite && attributes.EnableRdmaRead);
    begin(0), refused(write, base, remote, 8, VIP_ERROR_RDMAW_PROT), end();

    /* Rights of the VI. */
    told_count = 0;
    closed.EnableRdmaWrite = VIP_FALSE;
    vi = make_vi(level, NULL, NULL);
    GIVES(VipSetViAttributes(vi, &closed), VIP_SUCCESS);
    connect_vi(vi, "rdma");
    refused(write, there, there_handle, 8, VIP_ERROR_RDMAW_PROT), end();
    told_count = 0;
    closed.EnableRdmaRead = VIP_FALSE;
    vi = make_vi(level, NULL, NULL);
    GIVES(VipSetViAttributes(vi, &closed), VIP_SUCCESS);
    connect_vi(vi, "rdma");
    refused(read, there, there_handle, 8, VIP_ERROR_RDMAR_PROT), end();

    /* A registration that is over. */
    GIVES(VipDeregisterMem(nic, region, own), VIP_SUCCESS);
    GIVES(VipDestroyPtag(nic, tag), VIP_SUCCESS);
    begin(0), refused(write, base, remote, 8, VIP_ERROR_RDMAW_PROT), end();
}

/* Unreliable: a remote write may fail, and its sender does not hear; a read is malformed. */
static void unreliable(void)
{
    VIP_DESCRIPTOR *ended;

    level = VIP_SERVICE_UNRELIABLE;
    begin(0);
    if (me == 0)
        area.bytes[7] = 0;
    meet();
    if (me == 1) {
        post_send(vi, write_of(0, 8, there + (1 << 30)));
        GIVES(sent(vi, descriptor(0)), VIP_STATUS_OP_RDMA_WRITE);
        area.bytes[0] = 42;
        post_send(vi, write_of(0, 1, there + 7));
        GIVES(sent(vi, descriptor(0)), VIP_STATUS_OP_RDMA_WRITE);
        post_send(vi, fill_rdma(0, VIP_CONTROL_OP_RDMAREAD, 0, 8, there, there_handle));
        GIVES(sent(vi, descriptor(0)), VIP_STATUS_OP_RDMA_READ | VIP_STATUS_FORMAT_ERROR);
        /* Nobody has posted a receive for this one, nor one that is long enough for the next. */
        post_send(vi, fill(0, 0, 0, 8));
        GIVES(sent(vi, descriptor(0)), VIP_STATUS_OP_SEND);
    }
    meet();
    if (me == 0) {
        GIVES(told(vi, VIP_ERROR_RDMAW_PROT), VIP_RESOURCE_VI);
        CHECK(area.bytes[7] == 42);
        GIVES(VipRecvDone(vi, &ended), VIP_DESCRIPTOR_ERROR);
        CHECK(ended == NULL);
        post_receive(vi, fill(0, 0, 0, 4));
        post_receive(vi, fill(1, 0, 0, 8));
    }
    meet();
    if (me == 1) {
        post_send(vi, fill(0, 0, 0, 8));
        GIVES(sent(vi, descriptor(0)), VIP_STATUS_OP_SEND);
        post_send(vi, fill(0, 0, 0, 8));
        GIVES(sent(vi, descriptor(0)), VIP_STATUS_OP_SEND);
    } else {
        GIVES(received(vi, descriptor(0)), VIP_STATUS_OP_RECEIVE | VIP_STATUS_LENGTH_ERROR);
        GIVES(received(vi, descriptor(1)), VIP_STATUS_OP_RECEIVE);
    }
    GIVES(state_of(vi), VIP_STATE_CONNECTED);
    end();
}

int main(int argc, char **argv)
{
    (void) argc;
    level = atoi(argv[1]);
    open_nic();
    GIVES(VipErrorCallback(nic, NULL, note_error), VIP_SUCCESS);
    there = swap_words((uint64_t) (uintptr_t) area.bytes);
    there_handle = (VIP_MEM_HANDLE) swap_words(area_handle);
    if (level == VIP_SERVICE_UNRELIABLE) {
        unreliable();
    } else {
        writes();
        writes_with_immediate_data();
        reads();
        protection();
    }
    meet();
    GIVES(VipCloseNic(nic), VIP_SUCCESS);
    printf("rank %d is done\n", me);
    return 0;
}
