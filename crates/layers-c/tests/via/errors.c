#include "prelude.h"

/* Errors beside any call that statuses.c and rdma.c do not make arise. */

static VIP_VI_HANDLE vi;
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

static void begin(void)
{
    told_count = 0;
    vi = make_vi(VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    connect_vi(vi, "errors");
}

static void end(void)
{
    meet();
    end_vi(vi);
    meet();
}

/* A descriptor that lies in no memory of its handle. */
static void post_descriptor(void)
{
    static char elsewhere[128] __attribute__((aligned(64)));
    VIP_DESCRIPTOR *ended;

    told_count = 0;
    vi = make_vi(VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    GIVES(VipPostRecv(vi, (VIP_DESCRIPTOR *) elsewhere, area_handle), VIP_SUCCESS);
    GIVES(told(vi, VIP_ERROR_POST_DESC), VIP_RESOURCE_DESCRIPTOR);
    told_count = 0;
    GIVES(VipPostSend(vi, fill(0, 0, 0, 0), area_handle + 1000), VIP_SUCCESS);
    GIVES(told(vi, VIP_ERROR_POST_DESC), VIP_RESOURCE_DESCRIPTOR);
    GIVES(VipRecvDone(vi, &ended), VIP_DESCRIPTOR_ERROR);
    CHECK(ended == NULL);
    GIVES(VipDestroyVi(vi), VIP_SUCCESS);
}

/* More descriptors than a queue holds, and more entries than a completion queue does. */
static void overrun(void)
{
    VIP_CQ_HANDLE cq;
    VIP_VI_HANDLE of;
    VIP_BOOLEAN is_receive;
    unsigned long posted = 0;
    VIP_RETURN gave;

    told_count = 0;
    GIVES(VipCreateCQ(nic, 1, &cq), VIP_SUCCESS);
    vi = make_vi(VIP_SERVICE_RELIABLE_DELIVERY, cq, NULL);
    while ((gave = VipPostRecv(vi, fill(0, 0, 0, 0), area_handle)) == VIP_SUCCESS)
        posted++;
    GIVES(gave, VIP_ERROR_RESOURCE);
    CHECK(posted == nic_attributes.MaxDescriptorsPerQueue);
    GIVES(told(vi, VIP_ERROR_VI_OVERRUN), VIP_RESOURCE_VI);
    told_count = 0;
    post_send(vi, fill(1, 0, 0, 0));
    post_send(vi, fill(2, 0, 0, 0));
    GIVES(told(vi, VIP_ERROR_VI_OVERRUN), VIP_RESOURCE_CQ);
    GIVES(VipCQDone(cq, &of, &is_receive), VIP_SUCCESS);
    CHECK(of == vi && !is_receive);
    GIVES(VipCQDone(cq, &of, &is_receive), VIP_NOT_DONE);
    GIVES(VipDestroyVi(vi), VIP_SUCCESS);
    GIVES(VipDestroyCQ(cq), VIP_SUCCESS);
}

/* Remote writes and reads of memory that was registered, and is not there any more, at either end. */
static void memory_is_gone(int control, int is_theirs, unsigned status, int code)
{
    uint64_t to;
    VIP_MEM_HANDLE handle;

    begin();
    make_gone(me == 0 ? is_theirs : !is_theirs);
    to = swap_words((uint64_t) (uintptr_t) gone);
    handle = (VIP_MEM_HANDLE) swap_words(gone_handle);
    if (me == 1) {
        fill_rdma(0, control, 0, GONE_BYTES, to, handle);
        if (!is_theirs) {
            descriptor(0)->DS[1].Local.Data.Address = gone;
            descriptor(0)->DS[1].Local.Handle = gone_handle;
        }
        post_send(vi, descriptor(0));
        GIVES(sent(vi, descriptor(0)), status);
    } else {
        GIVES(told(vi, code), VIP_RESOURCE_VI);
    }
    meet();
    GIVES(state_of(vi), VIP_STATE_ERROR);
    GIVES(VipDeregisterMem(nic, gone, gone_handle), VIP_SUCCESS);
    CHECK(munmap(gone, GONE_BYTES) == 0);
    end();
}

/* A receive that lies in memory that is not registered any more when a message comes. */
static void completion(void)
{
    static char elsewhere[128] __attribute__((aligned(64)));
    VIP_DESCRIPTOR *posted = (VIP_DESCRIPTOR *) elsewhere, *ended;
    VIP_MEM_HANDLE handle;

    begin();
    if (me == 0) {
        GIVES(VipRegisterMem(nic, elsewhere, sizeof(elsewhere), NULL, &handle), VIP_SUCCESS);
        GIVES(VipPostRecv(vi, posted, handle), VIP_SUCCESS);
        GIVES(VipDeregisterMem(nic, elsewhere, handle), VIP_SUCCESS);
    }
    meet();
    if (me == 1) {
        post_send(vi, fill(0, 0, 0, 0));
        GIVES(sent(vi, descriptor(0)), VIP_STATUS_OP_SEND);
    } else {
        GIVES(told(vi, VIP_ERROR_COMP_PROT), VIP_RESOURCE_DESCRIPTOR);
        GIVES(VipRecvDone(vi, &ended), VIP_DESCRIPTOR_ERROR);
        CHECK(ended == posted && ended->CS.Status == 0);
    }
    end();
}

/* A remote write that is far from done when its VI disconnects. */
#define BIG_BYTES (64 << 20)
static void write_is_given_up(void)
{
    VIP_MEM_ATTRIBUTES attributes = {NULL, VIP_TRUE, VIP_FALSE};
    VIP_VI_ATTRIBUTES big = vi_attributes(VIP_SERVICE_RELIABLE_DELIVERY);
    VIP_MEM_HANDLE own, handle;
    VIP_DESCRIPTOR *ended;
    char *memory = mmap(NULL, BIG_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t to;

    CHECK(memory != MAP_FAILED);
    memset(memory, 1, BIG_BYTES);
    GIVES(VipRegisterMem(nic, memory, BIG_BYTES, &attributes, &own), VIP_SUCCESS);
    to = swap_words((uint64_t) (uintptr_t) memory);
    handle = (VIP_MEM_HANDLE) swap_words(own);
    told_count = 0;
    big.MaxTransferSize = BIG_BYTES;
    vi = make_vi(VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    GIVES(VipSetViAttributes(vi, &big), VIP_SUCCESS);
    connect_vi(vi, "errors");
    if (me == 1) {
        /* The first one asks for the memory's name, the second finds it known. */
        post_send(vi, fill_rdma(0, VIP_CONTROL_OP_RDMAWRITE, 0, 8, to, handle));
        GIVES(sent(vi, descriptor(0)), VIP_STATUS_OP_RDMA_WRITE);
        fill_rdma(0, VIP_CONTROL_OP_RDMAWRITE, 0, BIG_BYTES, to, handle);
        descriptor(0)->DS[1].Local.Data.Address = memory;
        descriptor(0)->DS[1].Local.Handle = own;
        post_send(vi, descriptor(0));
        GIVES(VipDisconnect(vi), VIP_SUCCESS);
        GIVES(VipSendDone(vi, &ended), VIP_DESCRIPTOR_ERROR);
        CHECK(ended == descriptor(0));
        GIVES(ended->CS.Status, VIP_STATUS_DONE | VIP_STATUS_OP_RDMA_WRITE | VIP_STATUS_DESC_FLUSHED_ERROR
                                    | VIP_STATUS_PARTIAL_ERROR);
    } else {
        GIVES(told(vi, VIP_ERROR_RDMAW_ABORT), VIP_RESOURCE_VI);
    }
    end();
    GIVES(VipDeregisterMem(nic, memory, own), VIP_SUCCESS);
    meet();
}

int main(int argc, char **argv)
{
    unsigned write = VIP_STATUS_OP_RDMA_WRITE | VIP_STATUS_PARTIAL_ERROR;
    unsigned read = VIP_STATUS_OP_RDMA_READ | VIP_STATUS_PARTIAL_ERROR;

    open_nic();
    GIVES(VipErrorCallback(nic, NULL, note_error), VIP_SUCCESS);
    post_descriptor();
    overrun();
    memory_is_gone(VIP_CONTROL_OP_RDMAWRITE, 1, write | VIP_STATUS_TRANSPORT_ERROR, VIP_ERROR_RDMAW_DATA);
    memory_is_gone(VIP_CONTROL_OP_RDMAREAD, 1, read | VIP_STATUS_TRANSPORT_ERROR, VIP_ERROR_RDMA_TRANSPORT);
    (void) argc;
    if (strcmp(argv[1], "near") == 0) {
        /* Within a host the kernel says that the local memory is not there, and copies at once. */
        memory_is_gone(VIP_CONTROL_OP_RDMAWRITE, 0, write | VIP_STATUS_PROTECTION_ERROR, VIP_ERROR_RDMAW_ABORT);
        memory_is_gone(VIP_CONTROL_OP_RDMAREAD, 0, read | VIP_STATUS_PROTECTION_ERROR, VIP_ERROR_CONN_LOST);
    } else {
        write_is_given_up();
    }
    completion();
    meet();
    GIVES(VipCloseNic(nic), VIP_SUCCESS);
    printf("rank %d is done\n", me);
    return 0;
}
