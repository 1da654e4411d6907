#include "prelude.h"

/* Completion queues, waits and handlers. */

static VIP_CQ_HANDLE cq, second;
static VIP_VI_HANDLE vi;
static VIP_VI_HANDLE of;
static VIP_BOOLEAN is_receive;

/* What handlers were called with. */
static volatile int called;
static VIP_VI_HANDLE volatile called_vi;
static VIP_DESCRIPTOR *volatile called_with;
static volatile int called_receive;
static int a_word;

static void VI_CALL note(VIP_PVOID context, VIP_NIC_HANDLE of_nic, VIP_VI_HANDLE of_vi, VIP_DESCRIPTOR *with)
{
    CHECK(context == &a_word && of_nic == nic);
    called_vi = of_vi;
    called_with = with;
    __sync_synchronize();
    called++;
}

static void VI_CALL note_entry(VIP_PVOID context, VIP_NIC_HANDLE of_nic, VIP_VI_HANDLE of_vi, VIP_BOOLEAN receive)
{
    CHECK(context == &a_word && of_nic == nic);
    called_vi = of_vi;
    called_receive = receive;
    __sync_synchronize();
    called++;
}

static void await(int count)
{
    while (called < count)
        ;
    CHECK(called == count);
}

static void next_is(VIP_CQ_HANDLE queue, VIP_BOOLEAN receive)
{
    GIVES(VipCQWait(queue, LONG, &of, &is_receive), VIP_SUCCESS);
    CHECK(of == vi && is_receive == receive);
}

/* Both queues of a VI tell one completion queue, also of a remote write with immediate data. */
static void one_for_both(void)
{
    VIP_DESCRIPTOR *ended;
    uint64_t there = swap_words((uint64_t) (uintptr_t) (area.bytes + 4096));
    VIP_MEM_HANDLE handle = (VIP_MEM_HANDLE) swap_words(area_handle);

    post_receive(vi, fill(1, 0, 0, 100));
    post_receive(vi, fill(2, 0, 0, 100));
    GIVES(VipCQDone(cq, &of, &is_receive), VIP_NOT_DONE);
    GIVES(VipCQWait(cq, 1, &of, &is_receive), VIP_TIMEOUT);
    GIVES(VipRecvDone(vi, &ended), VIP_NOT_DONE);
    CHECK(ended == NULL);
    GIVES(VipRecvWait(vi, 1, &ended), VIP_TIMEOUT);
    CHECK(ended == NULL);
    meet();
    if (me == 1) {
        post_send(vi, fill(0, 0, 200, 10));
        next_is(cq, VIP_FALSE);
        GIVES(VipSendDone(vi, &ended), VIP_SUCCESS);
        CHECK(ended == descriptor(0));
        fill_rdma(0, VIP_CONTROL_OP_RDMAWRITE | VIP_CONTROL_IMMEDIATE, 200, 10, there, handle)->CS.ImmediateData = 9;
        post_send(vi, descriptor(0));
        next_is(cq, VIP_FALSE);
        GIVES(VipSendDone(vi, &ended), VIP_SUCCESS);
    } else {
        next_is(cq, VIP_TRUE);
        GIVES(VipRecvDone(vi, &ended), VIP_SUCCESS);
        CHECK(ended == descriptor(1));
        next_is(cq, VIP_TRUE);
        GIVES(VipRecvDone(vi, &ended), VIP_SUCCESS);
        CHECK(ended == descriptor(2) && ended->CS.ImmediateData == 9);
    }
    GIVES(VipCQDone(cq, &of, &is_receive), VIP_NOT_DONE);
    meet();
    /* The other way, so that both have one receive left, then none. */
    if (me == 0) {
        post_send(vi, fill(0, 0, 200, 10));
        post_send(vi, fill(3, 0, 200, 10));
        next_is(cq, VIP_FALSE);
        next_is(cq, VIP_FALSE);
        GIVES(VipSendDone(vi, &ended), VIP_SUCCESS);
        GIVES(VipSendDone(vi, &ended), VIP_SUCCESS);
        CHECK(ended == descriptor(3));
    } else {
        next_is(cq, VIP_TRUE);
        next_is(cq, VIP_TRUE);
        GIVES(VipRecvDone(vi, &ended), VIP_SUCCESS);
        GIVES(VipRecvDone(vi, &ended), VIP_SUCCESS);
    }
    meet();
}

/* A handler is called once, before or after there is something, and has the descriptor out of the queue. */
static void handlers(void)
{
    VIP_DESCRIPTOR *ended;

    called = 0;
    if (me == 0) {
        GIVES(VipRecvNotify(vi, &a_word, note), VIP_SUCCESS);
        post_receive(vi, fill(1, 0, 0, 100));
        post_receive(vi, fill(2, 0, 0, 100));
    }
    meet();
    if (me == 1) {
        GIVES(VipSendNotify(vi, &a_word, note), VIP_SUCCESS);
        post_send(vi, fill(0, 0, 200, 10));
        await(1);
        CHECK(called_vi == vi && called_with == descriptor(0));
        GIVES(VipSendDone(vi, &ended), VIP_DESCRIPTOR_ERROR);
        CHECK(ended == NULL);
        post_send(vi, fill(0, 0, 200, 10));
        GIVES(sent(vi, descriptor(0)), VIP_STATUS_OP_SEND);
        CHECK(called == 1);
    } else {
        await(1);
        CHECK(called_vi == vi && called_with == descriptor(1) && called_with->CS.Length == 10);
        meet();
        /* The second is there before anybody asks. */
        GIVES(VipRecvNotify(vi, &a_word, note), VIP_SUCCESS);
        await(2);
        CHECK(called_with == descriptor(2));
        GIVES(VipRecvDone(vi, &ended), VIP_DESCRIPTOR_ERROR);
    }
    if (me == 1)
        meet();
    while (VipCQDone(cq, &of, &is_receive) == VIP_SUCCESS)
        ;
    meet();
    /* Of a completion queue. */
    called = 0;
    if (me == 0) {
        GIVES(VipCQNotify(cq, &a_word, note_entry), VIP_SUCCESS);
        post_receive(vi, fill(1, 0, 0, 100));
    }
    meet();
    if (me == 1) {
        post_send(vi, fill(0, 0, 200, 10));
        GIVES(sent(vi, descriptor(0)), VIP_STATUS_OP_SEND);
        GIVES(VipCQNotify(cq, &a_word, note_entry), VIP_SUCCESS);
    }
    await(1);
    CHECK(called_vi == vi && called_receive == (me == 0));
    GIVES(VipCQDone(cq, &of, &is_receive), VIP_NOT_DONE);
    if (me == 0)
        GIVES(received(vi, descriptor(1)), VIP_STATUS_OP_RECEIVE);
    meet();
}

/* A handler may call VIA, and wait there. */
static VIP_DESCRIPTOR *volatile answered;
static void VI_CALL answer(VIP_PVOID context, VIP_NIC_HANDLE of_nic, VIP_VI_HANDLE of_vi, VIP_DESCRIPTOR *with)
{
    VIP_DESCRIPTOR *ended;

    (void) context, (void) of_nic, (void) with;
    GIVES(VipPostSend(of_vi, fill(5, 0, 300, 20), area_handle), VIP_SUCCESS);
    GIVES(VipSendWait(of_vi, LONG, &ended), VIP_SUCCESS);
    __sync_synchronize();
    answered = ended;
}

static void handlers_that_call(void)
{
    post_receive(vi, fill(1, 0, 0, 100));
    if (me == 0)
        GIVES(VipRecvNotify(vi, NULL, answer), VIP_SUCCESS);
    meet();
    if (me == 1) {
        post_send(vi, fill(0, 0, 200, 10));
        GIVES(sent(vi, descriptor(0)), VIP_STATUS_OP_SEND);
        GIVES(received(vi, descriptor(1)), VIP_STATUS_OP_RECEIVE);
        CHECK(descriptor(1)->CS.Length == 20);
    } else {
        while (answered == NULL)
            ;
        CHECK(answered == descriptor(5));
    }
    meet();
}

int main(void)
{
    open_nic();
    GIVES(VipErrorCallback(nic, NULL, note_error), VIP_SUCCESS);
    GIVES(VipCreateCQ(nic, 0, &cq), VIP_INVALID_PARAMETER);
    GIVES(VipCreateCQ(nic, nic_attributes.MaxCQEntries + 1, &cq), VIP_ERROR_RESOURCE);
    GIVES(VipCreateCQ(nic, 16, &cq), VIP_SUCCESS);
    GIVES(VipCreateCQ(nic, 16, &second), VIP_SUCCESS);
    vi = make_vi(VIP_SERVICE_RELIABLE_DELIVERY, cq, cq);
    GIVES(VipDestroyCQ(cq), VIP_ERROR_RESOURCE);
    GIVES(VipDestroyCQ(second), VIP_SUCCESS);
    GIVES(VipDestroyCQ(second), VIP_INVALID_PARAMETER);
    connect_vi(vi, "queues");
    one_for_both();
    handlers();
    handlers_that_call();
    /* There is room for what is in it. */
    while (VipCQDone(cq, &of, &is_receive) == VIP_SUCCESS)
        ;
    GIVES(VipDisconnect(vi), VIP_SUCCESS);
    post_send(vi, fill(0, 0, 0, 0));
    post_send(vi, fill(1, 0, 0, 0));
    GIVES(VipResizeCQ(cq, 1), VIP_ERROR_RESOURCE);
    GIVES(VipResizeCQ(cq, 0), VIP_INVALID_PARAMETER);
    GIVES(VipResizeCQ(cq, 2), VIP_SUCCESS);
    GIVES(VipResizeCQ(cq, 1000), VIP_SUCCESS);
    next_is(cq, VIP_FALSE);
    GIVES(VipDestroyVi(vi), VIP_SUCCESS);
    GIVES(VipCQDone(cq, &of, &is_receive), VIP_NOT_DONE);
    GIVES(VipDestroyCQ(cq), VIP_SUCCESS);
    meet();
    GIVES(VipCloseNic(nic), VIP_SUCCESS);
    printf("rank %d is done\n", me);
    return 0;
}
