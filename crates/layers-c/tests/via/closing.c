#include "prelude.h"
#include <pthread.h>

/* A NIC that is closed, a VI that is disconnected and a queue that is destroyed end the waits of other threads. */

static VIP_CQ_HANDLE cq;
static VIP_VI_HANDLE vi, idle;
static volatile int begun;

static void *wait_for_client(void *unused)
{
    VIP_NET_ADDRESS *from = address(0, "nobody");
    VIP_VI_ATTRIBUTES remote;
    VIP_CONN_HANDLE connection;

    (void) unused;
    __sync_fetch_and_add(&begun, 1);
    GIVES(VipConnectWait(nic, address(0, "nobody"), VIP_INFINITE, from, &remote, &connection),
          VIP_INVALID_PARAMETER);
    return NULL;
}

static void *wait_for_entry(void *unused)
{
    VIP_VI_HANDLE of;
    VIP_BOOLEAN is_receive;

    (void) unused;
    __sync_fetch_and_add(&begun, 1);
    GIVES(VipCQWait(cq, VIP_INFINITE, &of, &is_receive), VIP_INVALID_PARAMETER);
    return NULL;
}

static void *wait_for_receive(void *unused)
{
    VIP_DESCRIPTOR *ended;
    VIP_RETURN gave;

    (void) unused;
    __sync_fetch_and_add(&begun, 1);
    gave = VipRecvWait(vi, VIP_INFINITE, &ended);
    CHECK(gave == VIP_DESCRIPTOR_ERROR && ended == descriptor(0));
    return NULL;
}

static void *wait_on_idle(void *unused)
{
    VIP_DESCRIPTOR *ended;

    (void) unused;
    __sync_fetch_and_add(&begun, 1);
    GIVES(VipRecvWait(idle, VIP_INFINITE, &ended), VIP_INVALID_PARAMETER);
    CHECK(ended == NULL);
    return NULL;
}

int main(void)
{
    static void *(*const waits[4])(void *) = {wait_for_client, wait_for_entry, wait_for_receive, wait_on_idle};
    VIP_VI_ATTRIBUTES remote;
    VIP_VI_HANDLE second;
    pthread_t threads[4];
    int i;

    open_nic();
    GIVES(VipErrorCallback(nic, NULL, note_error), VIP_SUCCESS);
    GIVES(VipCreateCQ(nic, 4, &cq), VIP_SUCCESS);
    vi = make_vi(VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    second = make_vi(VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    idle = make_vi(VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    GIVES(VipConnectPeerRequest(vi, address(0, "a"), address(0, "b"), VIP_INFINITE), VIP_SUCCESS);
    GIVES(VipConnectPeerRequest(second, address(0, "b"), address(0, "a"), VIP_INFINITE), VIP_SUCCESS);
    GIVES(VipConnectPeerWait(vi, &remote), VIP_SUCCESS);
    GIVES(VipConnectPeerWait(second, &remote), VIP_SUCCESS);
    post_receive(vi, fill(0, 0, 0, 10));
    post_receive(idle, fill(1, 0, 0, 10));
    for (i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, waits[i], NULL) == 0);
    while (begun < 4)
        ;
    GIVES(VipDisconnect(vi), VIP_SUCCESS);
    CHECK(pthread_join(threads[2], NULL) == 0);
    GIVES(VipDestroyCQ(cq), VIP_SUCCESS);
    CHECK(pthread_join(threads[1], NULL) == 0);
    GIVES(VipDestroyVi(idle), VIP_SUCCESS);
    CHECK(pthread_join(threads[3], NULL) == 0);
    GIVES(VipCloseNic(nic), VIP_SUCCESS);
    CHECK(pthread_join(threads[0], NULL) == 0);
    GIVES(VipDisconnect(second), VIP_INVALID_PARAMETER);
    printf("rank %d is done\n", me);
    return 0;
}
