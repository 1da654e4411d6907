#include "prelude.h"

/* Connections between equals: both ask, in either order; and of a process with itself. */

static VIP_VI_ATTRIBUTES remote;

static VIP_VI_HANDLE equal(int reliability)
{
    return make_vi(reliability, NULL, NULL);
}

static void ask(VIP_VI_HANDLE vi, const char *own, const char *theirs, VIP_ULONG timeout)
{
    GIVES(VipConnectPeerRequest(vi, address(me, own), address(other, theirs), timeout), VIP_SUCCESS);
}

static VIP_RETURN done(VIP_VI_HANDLE vi)
{
    VIP_RETURN gave;

    while ((gave = VipConnectPeerDone(vi, &remote)) == VIP_NOT_DONE)
        ;
    return gave;
}

/* A message each way over a connection between two VIs, of which one may be another process's. */
static void talk(VIP_VI_HANDLE out, VIP_VI_HANDLE in)
{
    post_receive(in, fill(0, 0, 0, 100));
    if (out != in || me >= 0)
        meet();
    strcpy(area.bytes + 200, "between equals");
    post_send(out, fill(1, 0, 200, 15));
    GIVES(sent(out, descriptor(1)), VIP_STATUS_OP_SEND);
    GIVES(received(in, descriptor(0)), VIP_STATUS_OP_RECEIVE);
    CHECK(strcmp(area.bytes, "between equals") == 0);
}

static void with_the_other(void)
{
    VIP_VI_HANDLE vi = equal(VIP_SERVICE_RELIABLE_DELIVERY);
    const char *own = me ? "right" : "left", *theirs = me ? "left" : "right";

    /* Both at once, one before the other, the other before the one. */
    ask(vi, own, theirs, VIP_INFINITE);
    CHECK(state_of(vi) == VIP_STATE_CONNECT_PENDING || state_of(vi) == VIP_STATE_CONNECTED);
    GIVES(done(vi), VIP_SUCCESS);
    CHECK(remote.ReliabilityLevel == VIP_SERVICE_RELIABLE_DELIVERY && remote.MaxTransferSize == 1 << 20);
    GIVES(VipConnectPeerDone(vi, &remote), VIP_INVALID_STATE);
    talk(vi, vi);
    meet();
    GIVES(VipDisconnect(vi), VIP_SUCCESS);
    meet();
    if (me == 0)
        ask(vi, own, theirs, VIP_INFINITE);
    meet();
    if (me == 1)
        ask(vi, own, theirs, LONG);
    GIVES(VipConnectPeerWait(vi, &remote), VIP_SUCCESS);
    talk(vi, vi);
    meet();
    GIVES(VipDisconnect(vi), VIP_SUCCESS);
    meet();

    /* Nobody asks for this one; nor is it met by one that wants another, or has had enough. */
    ask(vi, "alone", "nobody", 50);
    GIVES(VipConnectPeerRequest(vi, address(me, "x"), address(other, "x"), 50), VIP_INVALID_STATE);
    GIVES(VipConnectPeerDone(vi, &remote), VIP_NOT_DONE);
    GIVES(VipConnectPeerWait(vi, &remote), VIP_TIMEOUT);
    GIVES(state_of(vi), VIP_STATE_IDLE);
    meet();
    if (me == 0) {
        ask(vi, own, theirs, 20);
        GIVES(done(vi), VIP_TIMEOUT);
    }
    meet();
    if (me == 1) {
        ask(vi, own, theirs, 20);
        GIVES(done(vi), VIP_TIMEOUT);
    }
    GIVES(VipConnectPeerRequest(vi, address(me, "x"), address(other, "x"), 0), VIP_INVALID_PARAMETER);
    GIVES(VipConnectPeerRequest(vi, address(other, "x"), address(other, "x"), 9), VIP_INVALID_PARAMETER);
    GIVES(VipConnectPeerRequest(vi, address(me, "x"), address(99, "x"), 9), VIP_NOT_REACHABLE);
    GIVES(VipConnectPeerRequest(NULL, address(me, "x"), address(other, "x"), 9), VIP_INVALID_PARAMETER);
    GIVES(VipConnectPeerDone(NULL, &remote), VIP_INVALID_PARAMETER);
    GIVES(VipConnectPeerDone(vi, &remote), VIP_INVALID_STATE);
    GIVES(VipConnectPeerWait(vi, &remote), VIP_INVALID_STATE);
    meet();
    GIVES(VipDestroyVi(vi), VIP_SUCCESS);
}

/* Both hear what does not match. */
static void that_differ(void)
{
    VIP_VI_ATTRIBUTES attributes = vi_attributes(VIP_SERVICE_RELIABLE_DELIVERY);
    VIP_VI_HANDLE vi = equal(me ? VIP_SERVICE_RELIABLE_DELIVERY : VIP_SERVICE_RELIABLE_RECEPTION);

    ask(vi, "same", "same", VIP_INFINITE);
    GIVES(done(vi), VIP_INVALID_RELIABILITY_LEVEL);
    GIVES(state_of(vi), VIP_STATE_IDLE);
    attributes.MaxTransferSize = me ? 1000 : 2000;
    GIVES(VipSetViAttributes(vi, &attributes), VIP_SUCCESS);
    meet();
    ask(vi, "same", "same", VIP_INFINITE);
    GIVES(VipConnectPeerWait(vi, &remote), VIP_INVALID_MTU);
    attributes.MaxTransferSize = 1000;
    attributes.QoS = me ? NULL : &attributes;
    GIVES(VipSetViAttributes(vi, &attributes), VIP_SUCCESS);
    meet();
    ask(vi, "same", "same", VIP_INFINITE);
    GIVES(done(vi), VIP_INVALID_QOS);
    meet();
    GIVES(VipDestroyVi(vi), VIP_SUCCESS);
}

static void with_itself(void)
{
    VIP_VI_HANDLE one = equal(VIP_SERVICE_RELIABLE_RECEPTION), two = equal(VIP_SERVICE_RELIABLE_RECEPTION);

    GIVES(VipConnectPeerRequest(one, address(me, "one"), address(me, "two"), VIP_INFINITE), VIP_SUCCESS);
    GIVES(VipConnectPeerDone(one, &remote), VIP_NOT_DONE);
    GIVES(VipConnectPeerRequest(two, address(me, "two"), address(me, "one"), VIP_INFINITE), VIP_SUCCESS);
    GIVES(VipConnectPeerWait(one, &remote), VIP_SUCCESS);
    GIVES(VipConnectPeerWait(two, &remote), VIP_SUCCESS);
    talk(one, two);
    talk(two, one);
    /* Long, and remotely. */
    post_receive(one, fill(0, 0, 0, 100000));
    memset(area.bytes + 200000, 77, 100000);
    post_send(two, fill(1, 0, 200000, 100000));
    GIVES(sent(two, descriptor(1)), VIP_STATUS_OP_SEND);
    GIVES(received(one, descriptor(0)), VIP_STATUS_OP_RECEIVE);
    CHECK(area.bytes[0] == 77 && area.bytes[99999] == 77);
    post_send(two, fill_rdma(1, VIP_CONTROL_OP_RDMAWRITE, 200000, 50, (uint64_t) (uintptr_t) (area.bytes + 400000),
                             area_handle));
    GIVES(sent(two, descriptor(1)), VIP_STATUS_OP_RDMA_WRITE);
    CHECK(area.bytes[400049] == 77 && area.bytes[400050] == 0);
    end_vi(one);
    end_vi(two);
}

int main(void)
{
    open_nic();
    GIVES(VipErrorCallback(nic, NULL, note_error), VIP_SUCCESS);
    with_the_other();
    that_differ();
    with_itself();
    meet();
    GIVES(VipCloseNic(nic), VIP_SUCCESS);
    printf("rank %d is done\n", me);
    return 0;
}
