#include "prelude.h"

/* Clients and servers: every result of the four calls, and the states. Rank 0 is the server. */

static VIP_VI_ATTRIBUTES remote;
static VIP_CONN_HANDLE connection;

static VIP_RETURN ask(VIP_VI_HANDLE vi, const char *discriminator, VIP_ULONG timeout)
{
    VIP_RETURN gave;

    do
        gave = VipConnectRequest(vi, address(me, "client"), address(0, discriminator), timeout, &remote);
    while (gave == VIP_NO_MATCH);
    return gave;
}

static VIP_RETURN listen_for(const char *discriminator, VIP_ULONG timeout)
{
    VIP_NET_ADDRESS *from = address(0, "-----------------");

    return VipConnectWait(nic, address(0, discriminator), timeout, from, &remote, &connection);
}

static void serve(void)
{
    VIP_VI_HANDLE vi = make_vi(VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL), second;
    VIP_VI_ATTRIBUTES attributes = vi_attributes(VIP_SERVICE_RELIABLE_DELIVERY), changed;
    VIP_NET_ADDRESS *from = address(1, "??????");

    GIVES(listen_for("nobody asks", 1), VIP_TIMEOUT);
    GIVES(listen_for("nobody asks", 0), VIP_TIMEOUT);
    meet(); /* 1 */
    GIVES(listen_for("rejected", VIP_INFINITE), VIP_SUCCESS);
    GIVES(VipConnectReject(connection), VIP_SUCCESS);
    GIVES(VipConnectReject(connection), VIP_INVALID_PARAMETER);

    /* What does not match is told here alone, and the call may be made again. */
    GIVES(VipConnectWait(nic, address(0, "mended"), VIP_INFINITE, from, &remote, &connection), VIP_SUCCESS);
    CHECK(from->HostAddressLen == nic_attributes.NicAddressLen && from->DiscriminatorLen == 6);
    CHECK(memcmp(from->HostAddress + from->HostAddressLen, "client", 6) == 0);
    CHECK(from->HostAddress[5] == 1);
    CHECK(remote.ReliabilityLevel == attributes.ReliabilityLevel && remote.MaxTransferSize == 1 << 20);
    CHECK(remote.EnableRdmaWrite && remote.EnableRdmaRead && remote.QoS == NULL);
    changed = attributes;
    changed.ReliabilityLevel = VIP_SERVICE_RELIABLE_RECEPTION;
    GIVES(VipSetViAttributes(vi, &changed), VIP_SUCCESS);
    GIVES(VipConnectAccept(connection, vi), VIP_INVALID_RELIABILITY_LEVEL);
    changed = attributes;
    changed.MaxTransferSize = 4096;
    GIVES(VipSetViAttributes(vi, &changed), VIP_SUCCESS);
    GIVES(VipConnectAccept(connection, vi), VIP_INVALID_MTU);
    changed = attributes;
    changed.QoS = &changed;
    GIVES(VipSetViAttributes(vi, &changed), VIP_SUCCESS);
    GIVES(VipConnectAccept(connection, vi), VIP_INVALID_QOS);
    GIVES(VipSetViAttributes(vi, &attributes), VIP_SUCCESS);
    GIVES(VipConnectAccept(connection, NULL), VIP_INVALID_PARAMETER);
    GIVES(state_of(vi), VIP_STATE_IDLE);
    GIVES(VipConnectAccept(connection, vi), VIP_SUCCESS);
    GIVES(state_of(vi), VIP_STATE_CONNECTED);

    /* What a connected VI may not. */
    GIVES(VipSetViAttributes(vi, &attributes), VIP_INVALID_STATE);
    GIVES(VipDestroyVi(vi), VIP_INVALID_STATE);
    GIVES(listen_for("another", VIP_INFINITE), VIP_SUCCESS);
    GIVES(VipConnectAccept(connection, vi), VIP_INVALID_STATE);
    second = make_vi(VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    GIVES(VipConnectAccept(connection, second), VIP_SUCCESS);

    /* One end disconnects, and the other is in error until it does. */
    meet(); /* 2 */
    GIVES(VipDisconnect(vi), VIP_SUCCESS);
    GIVES(state_of(vi), VIP_STATE_IDLE);
    GIVES(VipDisconnect(vi), VIP_SUCCESS);
    GIVES(told(second, VIP_ERROR_CONN_LOST), VIP_RESOURCE_VI);
    GIVES(state_of(second), VIP_STATE_ERROR);
    GIVES(VipDestroyVi(second), VIP_INVALID_STATE);
    GIVES(VipSetViAttributes(second, &attributes), VIP_INVALID_STATE);
    end_vi(second);

    /* The client's time is over before it is accepted. */
    GIVES(listen_for("late", VIP_INFINITE), VIP_SUCCESS);
    meet(); /* 3 */
    GIVES(VipConnectAccept(connection, vi), VIP_TIMEOUT);
    GIVES(state_of(vi), VIP_STATE_IDLE);
    GIVES(VipConnectAccept(connection, vi), VIP_TIMEOUT);
    GIVES(VipConnectReject(connection), VIP_INVALID_PARAMETER);
    GIVES(VipDestroyVi(vi), VIP_SUCCESS);
}

static void ask_all(void)
{
    VIP_VI_HANDLE vi = make_vi(VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL), second;
    VIP_VI_ATTRIBUTES attributes = vi_attributes(VIP_SERVICE_RELIABLE_DELIVERY);

    /* Nobody waits: that is told at once, whatever the time. */
    GIVES(VipConnectRequest(vi, address(1, "client"), address(0, "nobody"), VIP_INFINITE, &remote), VIP_NO_MATCH);
    GIVES(VipConnectRequest(vi, address(1, "client"), address(0, ""), 1000, &remote), VIP_NO_MATCH);
    GIVES(VipConnectRequest(vi, address(1, "client"), address(0, "nobody"), 0, &remote), VIP_INVALID_PARAMETER);
    GIVES(VipConnectRequest(vi, address(0, "client"), address(0, "nobody"), 9, &remote), VIP_INVALID_PARAMETER);
    GIVES(VipConnectRequest(vi, address(1, "client"), address(7, "nobody"), 9, &remote), VIP_NOT_REACHABLE);
    GIVES(VipConnectRequest(vi, NULL, address(0, "nobody"), 9, &remote), VIP_INVALID_PARAMETER);
    GIVES(VipConnectRequest(NULL, address(1, "c"), address(0, "nobody"), 9, &remote), VIP_INVALID_PARAMETER);
    GIVES(state_of(vi), VIP_STATE_IDLE);
    meet(); /* 1 */
    GIVES(ask(vi, "rejected", VIP_INFINITE), VIP_REJECT);
    GIVES(state_of(vi), VIP_STATE_IDLE);
    GIVES(ask(vi, "mended", 60000), VIP_SUCCESS);
    GIVES(state_of(vi), VIP_STATE_CONNECTED);
    CHECK(remote.ReliabilityLevel == VIP_SERVICE_RELIABLE_DELIVERY && remote.MaxTransferSize == 1 << 20);
    GIVES(ask(vi, "another", VIP_INFINITE), VIP_INVALID_STATE);
    second = make_vi(VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
    GIVES(ask(second, "another", VIP_INFINITE), VIP_SUCCESS);

    meet(); /* 2 */
    GIVES(VipDisconnect(second), VIP_SUCCESS);
    GIVES(told(vi, VIP_ERROR_CONN_LOST), VIP_RESOURCE_VI);
    GIVES(state_of(vi), VIP_STATE_ERROR);
    GIVES(ask(vi, "nobody", 10), VIP_INVALID_STATE);
    GIVES(VipDisconnect(vi), VIP_SUCCESS);

    GIVES(ask(vi, "late", 100), VIP_TIMEOUT);
    GIVES(state_of(vi), VIP_STATE_IDLE);
    meet(); /* 3 */
    GIVES(VipDestroyVi(vi), VIP_SUCCESS);
    GIVES(VipDestroyVi(second), VIP_SUCCESS);
}

int main(void)
{
    open_nic();
    GIVES(VipErrorCallback(nic, NULL, note_error), VIP_SUCCESS);
    if (me == 0)
        serve();
    else
        ask_all();
    meet();
    GIVES(VipErrorCallback(nic, NULL, NULL), VIP_SUCCESS);
    GIVES(VipCloseNic(nic), VIP_SUCCESS);
    printf("rank %d is done\n", me);
    return 0;
}
