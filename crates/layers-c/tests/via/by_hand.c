#include "prelude.h"

/*
 * Two programs that know each other's host and a discriminator, and nothing else: a server and a client, then
 * equals. They are started by hand, or as ranks of a job in any order.
 */

static VIP_NET_ADDRESS *named(const char *host, const char *discriminator)
{
    VIP_NET_ADDRESS *made = address(0, discriminator);

    GIVES(VipNSGetHostByName(nic, (char *) host, made, 0), VIP_SUCCESS);
    return made;
}

static VIP_NET_ADDRESS *local(const char *discriminator)
{
    VIP_NET_ADDRESS *made = address(0, discriminator);

    memcpy(made->HostAddress, nic_attributes.LocalNicAddress, nic_attributes.NicAddressLen);
    return made;
}

static void talk(VIP_VI_HANDLE vi, int is_first)
{
    if (is_first) {
        strcpy(area.bytes + 50000, "by hand");
        post_send(vi, fill(1, 0, 50000, 30000));
        GIVES(sent(vi, descriptor(1)), VIP_STATUS_OP_SEND);
        GIVES(received(vi, descriptor(0)), VIP_STATUS_OP_RECEIVE);
    } else {
        GIVES(received(vi, descriptor(0)), VIP_STATUS_OP_RECEIVE);
        CHECK(strcmp(area.bytes, "by hand") == 0);
        post_send(vi, fill(1, 0, 0, 10));
        GIVES(sent(vi, descriptor(1)), VIP_STATUS_OP_SEND);
    }
}

int main(int argc, char **argv)
{
    int is_server, i;
    VIP_VI_HANDLE vi;
    VIP_VI_ATTRIBUTES remote;
    VIP_CONN_HANDLE connection;
    VIP_DESCRIPTOR *ended;
    VIP_NET_ADDRESS *from;
    VIP_RETURN gave;
    char host[256], name[64];
    VIP_ULONG len = sizeof(name);

    open_nic();
    is_server = argc > 1 ? strcmp(argv[1], "server") == 0 : me == 1;
    GIVES(VipNSInit(nic, NULL), VIP_SUCCESS);
    CHECK(gethostname(host, sizeof(host)) == 0);
    for (i = 0; i < 2; i++) {
        vi = make_vi(VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
        post_receive(vi, fill(0, 0, 0, 40000));
        if (i == 1) {
            const char *own = is_server ? "left" : "right", *other_one = is_server ? "right" : "left";
            GIVES(VipConnectPeerRequest(vi, local(own), named("localhost", other_one), VIP_INFINITE), VIP_SUCCESS);
            GIVES(VipConnectPeerWait(vi, &remote), VIP_SUCCESS);
        } else if (is_server) {
            from = named(host, "the client");
            GIVES(VipConnectWait(nic, local("the server"), VIP_INFINITE, from, &remote, &connection), VIP_SUCCESS);
            CHECK(from->DiscriminatorLen == 10 && memcmp(from->HostAddress + 6, "the client", 10) == 0);
            GIVES(VipNSGetHostByAddr(nic, from, name, &len), VIP_SUCCESS);
            CHECK(memcmp(name, "node", 4) == 0);
            CHECK(memcmp(named(name, "x")->HostAddress, from->HostAddress, 6) == 0);
            GIVES(VipConnectAccept(connection, vi), VIP_SUCCESS);
        } else {
            while ((gave = VipConnectRequest(vi, local("the client"), named(host, "the server"), VIP_INFINITE,
                                             &remote)) == VIP_NO_MATCH)
                ;
            GIVES(gave, VIP_SUCCESS);
        }
        talk(vi, is_server);
        /* The client disconnects first, and the server hears of it. */
        if (is_server) {
            post_receive(vi, fill(0, 0, 0, 10));
            GIVES(VipRecvWait(vi, LONG, &ended), VIP_DESCRIPTOR_ERROR);
            GIVES(ended->CS.Status & VIP_STATUS_ERROR_MASK, VIP_STATUS_DESC_FLUSHED_ERROR);
        }
        end_vi(vi);
    }
    GIVES(VipNSShutdown(nic), VIP_SUCCESS);
    GIVES(VipCloseNic(nic), VIP_SUCCESS);
    printf("the %s is done\n", is_server ? "server" : "client");
    return 0;
}
