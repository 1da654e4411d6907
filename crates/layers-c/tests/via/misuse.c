#include "prelude.h"

/* Every code for misuse: before anything is open, with what is none, twice, and after the end. One process. */

static char outside[64];

static void nothing_is_open(void)
{
    VIP_VI_ATTRIBUTES vi = vi_attributes(VIP_SERVICE_RELIABLE_DELIVERY);
    VIP_MEM_ATTRIBUTES memory = {NULL, 0, 0};
    VIP_NIC_ATTRIBUTES attributes;
    VIP_NIC_HANDLE closed = nic;
    VIP_PVOID none = outside + 16, out;
    VIP_MEM_HANDLE handle;
    VIP_VI_STATE state;
    VIP_BOOLEAN flag;
    VIP_DESCRIPTOR *ended;
    VIP_NET_ADDRESS *at = address(0, "x");
    VIP_CHAR name[64];
    VIP_ULONG len = sizeof(name);
    VIP_PVOID handles[4];
    int i;

    handles[0] = NULL, handles[1] = none, handles[2] = (char *) none + 1, handles[3] = closed;
    for (i = 0; i < 4; i++) {
        VIP_PVOID h = handles[i];
        GIVES(VipCloseNic(h), VIP_INVALID_PARAMETER);
        GIVES(VipQueryNic(h, &attributes), VIP_INVALID_PARAMETER);
        GIVES(VipErrorCallback(h, NULL, note_error), VIP_INVALID_PARAMETER);
        GIVES(VipQuerySystemManagementInfo(h, VIP_SMI_AUTODISCOVERY, &out), VIP_INVALID_PARAMETER);
        GIVES(VipCreatePtag(h, &out), VIP_INVALID_PARAMETER);
        GIVES(VipDestroyPtag(h, none), VIP_INVALID_PARAMETER);
        GIVES(VipRegisterMem(h, &area, 64, &memory, &handle), VIP_INVALID_PARAMETER);
        GIVES(VipDeregisterMem(h, &area, 1), VIP_INVALID_PARAMETER);
        GIVES(VipQueryMem(h, &area, 1, &memory), VIP_INVALID_PARAMETER);
        GIVES(VipSetMemAttributes(h, &area, 1, &memory), VIP_INVALID_PARAMETER);
        GIVES(VipCreateVi(h, &vi, NULL, NULL, &out), VIP_INVALID_PARAMETER);
        GIVES(VipDestroyVi(h), VIP_INVALID_PARAMETER);
        GIVES(VipQueryVi(h, &state, &vi, &flag, &flag), VIP_INVALID_PARAMETER);
        GIVES(VipSetViAttributes(h, &vi), VIP_INVALID_PARAMETER);
        CHECK(VipGetUserData(h) == NULL);
        GIVES(VipSetUserData(h, none), VIP_INVALID_PARAMETER);
        GIVES(VipConnectWait(h, at, 1, at, &vi, &out), VIP_INVALID_PARAMETER);
        GIVES(VipConnectReject(h), VIP_INVALID_PARAMETER);
        GIVES(VipConnectRequest(h, at, at, 1, &vi), VIP_INVALID_PARAMETER);
        GIVES(VipDisconnect(h), VIP_INVALID_PARAMETER);
        GIVES(VipConnectPeerRequest(h, at, at, 1), VIP_INVALID_PARAMETER);
        GIVES(VipConnectPeerDone(h, &vi), VIP_INVALID_PARAMETER);
        GIVES(VipConnectPeerWait(h, &vi), VIP_INVALID_PARAMETER);
        GIVES(VipPostSend(h, descriptor(0), 1), VIP_INVALID_PARAMETER);
        GIVES(VipPostRecv(h, descriptor(0), 1), VIP_INVALID_PARAMETER);
        GIVES(VipSendDone(h, &ended), VIP_INVALID_PARAMETER);
        GIVES(VipRecvDone(h, &ended), VIP_INVALID_PARAMETER);
        GIVES(VipSendWait(h, 1, &ended), VIP_INVALID_PARAMETER);
        GIVES(VipRecvWait(h, 1, &ended), VIP_INVALID_PARAMETER);
        GIVES(VipSendNotify(h, NULL, NULL), VIP_INVALID_PARAMETER);
        GIVES(VipRecvNotify(h, NULL, NULL), VIP_INVALID_PARAMETER);
        GIVES(VipPostDeferredSends(h, 0, &flag), VIP_INVALID_PARAMETER);
        GIVES(VipCreateCQ(h, 1, &out), VIP_INVALID_PARAMETER);
        GIVES(VipDestroyCQ(h), VIP_INVALID_PARAMETER);
        GIVES(VipResizeCQ(h, 1), VIP_INVALID_PARAMETER);
        GIVES(VipCQDone(h, &out, &flag), VIP_INVALID_PARAMETER);
        GIVES(VipCQWait(h, 1, &out, &flag), VIP_INVALID_PARAMETER);
        GIVES(VipCQNotify(h, NULL, NULL), VIP_INVALID_PARAMETER);
        GIVES(VipAddTagCQ(h, NULL, 0, 0), VIP_INVALID_PARAMETER);
        GIVES(VipRemoveTagCQ(h, NULL, 0), VIP_INVALID_PARAMETER);
        GIVES(VipNSInit(h, NULL), VIP_INVALID_PARAMETER);
        GIVES(VipNSGetHostByName(h, name, at, 0), VIP_INVALID_PARAMETER);
        GIVES(VipNSGetHostByAddr(h, at, name, &len), VIP_INVALID_PARAMETER);
        GIVES(VipNSShutdown(h), VIP_INVALID_PARAMETER);
    }
}

static void nics(void)
{
    static const char *const names[] = {"/dev/via_lo", "/dev/via_eth0", "/dev/via_eth12", "/etc/via_lo",
                                        "/dev/clanvi0", "nic0"};
    static const char *const others[] = {"", "/dev/via_eth", "/dev/null", "nic", "nicX", "/dev/via_lo0"};
    VIP_NIC_HANDLE many[6];
    VIP_NIC_ATTRIBUTES attributes;
    unsigned i;

    for (i = 0; i < 6; i++) {
        GIVES(VipOpenNic(others[i], &many[i]), VIP_INVALID_PARAMETER);
        GIVES(VipOpenNic(names[i], &many[i]), VIP_SUCCESS);
        CHECK(i == 0 || many[i] != many[i - 1]);
    }
    GIVES(VipOpenNic(NULL, &many[0]), VIP_INVALID_PARAMETER);
    GIVES(VipOpenNic("nic0", NULL), VIP_INVALID_PARAMETER);
    GIVES(VipQueryNic(many[0], NULL), VIP_INVALID_PARAMETER);
    GIVES(VipQueryNic(many[0], &attributes), VIP_SUCCESS);
    CHECK(attributes.ThreadSafe && attributes.MaxDiscriminatorLen >= 16 && attributes.MaxTransferSize >= 32768);
    CHECK(attributes.ReliabilityLevelSupport == VIP_BASE_SERVICES && attributes.RDMAReadSupport == 6);
    GIVES(VipQuerySystemManagementInfo(many[0], VIP_SMI_AUTODISCOVERY, &attributes), VIP_ERROR_NOT_SUPPORTED);
    for (i = 0; i < 6; i++) {
        GIVES(VipCloseNic(many[i]), VIP_SUCCESS);
        GIVES(VipCloseNic(many[i]), VIP_INVALID_PARAMETER);
    }
}

static void memory(void)
{
    VIP_MEM_ATTRIBUTES attributes = {NULL, VIP_TRUE, VIP_FALSE}, found;
    VIP_PROTECTION_HANDLE tag, second;
    VIP_MEM_HANDLE handle, again;
    VIP_NIC_HANDLE other_nic;

    GIVES(VipCreatePtag(nic, NULL), VIP_INVALID_PARAMETER);
    GIVES(VipCreatePtag(nic, &tag), VIP_SUCCESS);
    GIVES(VipCreatePtag(nic, &second), VIP_SUCCESS);
    CHECK(tag != NULL && tag != second);
    GIVES(VipDestroyPtag(nic, NULL), VIP_INVALID_PARAMETER);
    GIVES(VipDestroyPtag(nic, second), VIP_SUCCESS);
    GIVES(VipDestroyPtag(nic, second), VIP_INVALID_PARAMETER);
    attributes.Ptag = second;
    GIVES(VipRegisterMem(nic, &area, 64, &attributes, &handle), VIP_INVALID_PTAG);
    attributes.Ptag = (char *) tag + 1;
    GIVES(VipRegisterMem(nic, &area, 64, &attributes, &handle), VIP_INVALID_PTAG);
    attributes.Ptag = tag;
    GIVES(VipOpenNic("nic0", &other_nic), VIP_SUCCESS);
    GIVES(VipRegisterMem(other_nic, &area, 64, &attributes, &handle), VIP_INVALID_PTAG);
    GIVES(VipRegisterMem(nic, &area, 0, &attributes, &handle), VIP_INVALID_PARAMETER);
    GIVES(VipRegisterMem(nic, NULL, 64, &attributes, &handle), VIP_INVALID_PARAMETER);
    GIVES(VipRegisterMem(nic, &area, 64, &attributes, NULL), VIP_INVALID_PARAMETER);
    GIVES(VipRegisterMem(nic, &area, ~0ul, &attributes, &handle), VIP_INVALID_PARAMETER);
    GIVES(VipRegisterMem(nic, &area, nic_attributes.MaxRegisterBlockBytes + 1, &attributes, &handle),
          VIP_ERROR_RESOURCE);
    GIVES(VipRegisterMem(nic, &area, 64, &attributes, &handle), VIP_SUCCESS);
    GIVES(VipRegisterMem(nic, &area, 64, NULL, &again), VIP_SUCCESS);
    CHECK(handle != again && handle != area_handle);
    GIVES(VipDestroyPtag(nic, tag), VIP_ERROR_RESOURCE);
    GIVES(VipQueryMem(nic, (char *) &area + 63, handle, &found), VIP_SUCCESS);
    CHECK(found.Ptag == tag && found.EnableRdmaWrite && !found.EnableRdmaRead);
    GIVES(VipQueryMem(nic, &area, again, &found), VIP_SUCCESS);
    CHECK(found.Ptag == NULL && !found.EnableRdmaWrite && !found.EnableRdmaRead);
    GIVES(VipQueryMem(nic, (char *) &area + 64, handle, &found), VIP_INVALID_PARAMETER);
    GIVES(VipQueryMem(other_nic, &area, handle, &found), VIP_INVALID_PARAMETER);
    GIVES(VipQueryMem(nic, &area, handle, NULL), VIP_INVALID_PARAMETER);
    attributes.Ptag = second;
    GIVES(VipSetMemAttributes(nic, &area, handle, &attributes), VIP_INVALID_PTAG);
    GIVES(VipSetMemAttributes(nic, &area, handle, NULL), VIP_INVALID_PARAMETER);
    attributes.Ptag = NULL;
    GIVES(VipSetMemAttributes(nic, &area, handle, &attributes), VIP_SUCCESS);
    GIVES(VipDestroyPtag(nic, tag), VIP_SUCCESS);
    GIVES(VipDeregisterMem(nic, (char *) &area - 1, handle), VIP_INVALID_PARAMETER);
    GIVES(VipDeregisterMem(other_nic, &area, handle), VIP_INVALID_PARAMETER);
    GIVES(VipDeregisterMem(nic, &area, handle), VIP_SUCCESS);
    GIVES(VipDeregisterMem(nic, &area, handle), VIP_INVALID_PARAMETER);
    GIVES(VipDeregisterMem(nic, (char *) &area + 1, again), VIP_SUCCESS);
    GIVES(VipCloseNic(other_nic), VIP_SUCCESS);
}

static void vis(void)
{
    VIP_VI_ATTRIBUTES attributes = vi_attributes(VIP_SERVICE_RELIABLE_RECEPTION), bad, found;
    VIP_PROTECTION_HANDLE tag;
    VIP_VI_HANDLE vi, second;
    VIP_DESCRIPTOR *ended;
    VIP_VI_STATE state;
    VIP_BOOLEAN send_empty, receive_empty, flag;
    VIP_CQ_HANDLE cq;
    int i;

    GIVES(VipCreatePtag(nic, &tag), VIP_SUCCESS);
    attributes.Ptag = tag;
    GIVES(VipCreateVi(nic, &attributes, NULL, NULL, &vi), VIP_SUCCESS);
    GIVES(VipDestroyPtag(nic, tag), VIP_ERROR_RESOURCE);
    for (i = 0; i < 2; i++) {
        /* In VipCreateVi first, then in VipSetViAttributes. */
#define REFUSED(code)                                                                                     \
    GIVES(i ? VipSetViAttributes(vi, &bad) : VipCreateVi(nic, &bad, NULL, NULL, &second), code)
        bad = attributes, bad.ReliabilityLevel = 0;
        REFUSED(VIP_INVALID_RELIABILITY_LEVEL);
        bad = attributes, bad.ReliabilityLevel = 3;
        REFUSED(VIP_INVALID_RELIABILITY_LEVEL);
        bad = attributes, bad.MaxTransferSize = 0;
        REFUSED(VIP_INVALID_MTU);
        bad = attributes, bad.MaxTransferSize = nic_attributes.MaxTransferSize + 1;
        REFUSED(VIP_INVALID_MTU);
        bad = attributes, bad.Ptag = vi;
        REFUSED(VIP_INVALID_PTAG);
        bad = attributes, bad.ReliabilityLevel = VIP_SERVICE_UNRELIABLE;
        REFUSED(VIP_INVALID_RDMAREAD);
    }
    GIVES(VipCreateVi(nic, NULL, NULL, NULL, &second), VIP_INVALID_PARAMETER);
    GIVES(VipCreateVi(nic, &attributes, NULL, NULL, NULL), VIP_INVALID_PARAMETER);
    GIVES(VipCreateVi(nic, &attributes, vi, NULL, &second), VIP_INVALID_PARAMETER);
    GIVES(VipCreateVi(nic, &attributes, NULL, tag, &second), VIP_INVALID_PARAMETER);
    GIVES(VipSetViAttributes(vi, NULL), VIP_INVALID_PARAMETER);
    attributes.EnableRdmaRead = VIP_FALSE;
    GIVES(VipSetViAttributes(vi, &attributes), VIP_SUCCESS);
    GIVES(VipQueryVi(vi, &state, &found, &send_empty, &receive_empty), VIP_SUCCESS);
    CHECK(state == VIP_STATE_IDLE && send_empty && receive_empty);
    CHECK(found.Ptag == tag && found.ReliabilityLevel == 4 && found.MaxTransferSize == 1 << 20);
    CHECK(found.EnableRdmaWrite && !found.EnableRdmaRead && found.QoS == NULL);
    CHECK(VipGetUserData(vi) == NULL);
    GIVES(VipSetUserData(vi, outside), VIP_SUCCESS);
    CHECK(VipGetUserData(vi) == outside);

    /* The descriptor's memory has another tag than the VI; then it has the same. */
    attributes.Ptag = NULL;
    GIVES(VipSetViAttributes(vi, &attributes), VIP_SUCCESS);
    GIVES(VipPostRecv(vi, NULL, area_handle), VIP_INVALID_PARAMETER);
    GIVES(VipPostRecv(vi, (VIP_DESCRIPTOR *) (void *) ((char *) descriptor(0) + 8), area_handle),
          VIP_INVALID_PARAMETER);
    post_receive(vi, fill(0, 0, 0, 10));
    GIVES(VipQueryVi(vi, &state, &found, &send_empty, &receive_empty), VIP_SUCCESS);
    CHECK(send_empty && !receive_empty);
    GIVES(VipRecvDone(vi, &ended), VIP_NOT_DONE);
    CHECK(ended == NULL);
    GIVES(VipRecvDone(vi, NULL), VIP_INVALID_PARAMETER);
    GIVES(VipRecvWait(vi, 1, NULL), VIP_INVALID_PARAMETER);
    GIVES(VipSendDone(vi, &ended), VIP_DESCRIPTOR_ERROR);
    CHECK(ended == NULL);
    GIVES(VipSendWait(vi, VIP_INFINITE, &ended), VIP_DESCRIPTOR_ERROR);
    CHECK(ended == NULL);
    GIVES(VipSendNotify(vi, NULL, NULL), VIP_INVALID_PARAMETER);
    GIVES(VipRecvNotify(vi, NULL, NULL), VIP_INVALID_PARAMETER);
    GIVES(VipPostDeferredSends(vi, 0, &flag), VIP_ERROR_NOT_SUPPORTED);
    GIVES(VipDisconnect(vi), VIP_SUCCESS);
    GIVES(VipConnectAccept(NULL, vi), VIP_INVALID_PARAMETER);
    GIVES(VipDestroyPtag(nic, tag), VIP_SUCCESS);
    GIVES(VipDestroyVi(vi), VIP_SUCCESS);
    GIVES(VipDestroyVi(vi), VIP_INVALID_PARAMETER);

    GIVES(VipCreateCQ(nic, 4, NULL), VIP_INVALID_PARAMETER);
    GIVES(VipCreateCQ(nic, 4, &cq), VIP_SUCCESS);
    GIVES(VipCQDone(cq, NULL, &flag), VIP_INVALID_PARAMETER);
    GIVES(VipCQDone(cq, &vi, NULL), VIP_INVALID_PARAMETER);
    GIVES(VipCQWait(cq, 1, NULL, NULL), VIP_INVALID_PARAMETER);
    GIVES(VipCQNotify(cq, NULL, NULL), VIP_INVALID_PARAMETER);
    GIVES(VipAddTagCQ(cq, NULL, 0, 0), VIP_ERROR_NOT_SUPPORTED);
    GIVES(VipRemoveTagCQ(cq, NULL, 0), VIP_ERROR_NOT_SUPPORTED);
    GIVES(VipDestroyCQ(cq), VIP_SUCCESS);
}

static void names(void)
{
    VIP_NET_ADDRESS *at = address(99, "kept"), *own = address(0, "");
    char host[256], name[64];
    VIP_ULONG len;

    GIVES(VipNSGetHostByName(nic, (char *) "node0", at, 0), VIP_ERROR_NAMESERVICE);
    GIVES(VipNSShutdown(nic), VIP_ERROR_NAMESERVICE);
    GIVES(VipNSInit(nic, NULL), VIP_SUCCESS);
    CHECK(gethostname(host, sizeof(host)) == 0);
    GIVES(VipNSGetHostByName(nic, host, at, 0), VIP_SUCCESS);
    CHECK(at->HostAddressLen == 6);
    len = sizeof(name);
    GIVES(VipNSGetHostByAddr(nic, at, name, &len), VIP_SUCCESS);
    CHECK(strcmp(name, "localhost") == 0 && len == 9);
    CHECK(at->DiscriminatorLen == 4 && memcmp(at->HostAddress + 6, "kept", 4) == 0);
    GIVES(VipNSGetHostByName(nic, (char *) "localhost", at, 0), VIP_SUCCESS);
    GIVES(VipNSGetHostByName(nic, (char *) "node0", at, 0), VIP_SUCCESS);
    CHECK(memcmp(at->HostAddress, own->HostAddress, 6) == 0);
    GIVES(VipNSGetHostByName(nic, (char *) "0", at, 0), VIP_SUCCESS);
    GIVES(VipNSGetHostByName(nic, (char *) "0", at, 1), VIP_ERROR_NAMESERVICE);
    GIVES(VipNSGetHostByName(nic, (char *) "localhost", at, 1), VIP_ERROR_NAMESERVICE);
    GIVES(VipNSGetHostByName(nic, (char *) "node1", at, 0), VIP_ERROR_NAMESERVICE);
    GIVES(VipNSGetHostByName(nic, (char *) "no such host", at, 0), VIP_ERROR_NAMESERVICE);
    GIVES(VipNSGetHostByName(nic, NULL, at, 0), VIP_INVALID_PARAMETER);
    GIVES(VipNSGetHostByName(nic, (char *) "0", NULL, 0), VIP_INVALID_PARAMETER);
    len = sizeof(name);
    GIVES(VipNSGetHostByAddr(nic, own, name, &len), VIP_SUCCESS);
    CHECK(strcmp(name, "node0") == 0 && len == 5);
    len = 5;
    GIVES(VipNSGetHostByAddr(nic, own, name, &len), VIP_ERROR_RESOURCE);
    CHECK(len == 5);
    GIVES(VipNSGetHostByAddr(nic, own, NULL, &len), VIP_INVALID_PARAMETER);
    GIVES(VipNSGetHostByAddr(nic, own, name, NULL), VIP_INVALID_PARAMETER);
    GIVES(VipNSGetHostByAddr(nic, NULL, name, &len), VIP_INVALID_PARAMETER);
    GIVES(VipNSGetHostByAddr(nic, address(5, ""), name, &len), VIP_ERROR_NAMESERVICE);
    GIVES(VipNSShutdown(nic), VIP_SUCCESS);
    GIVES(VipNSGetHostByAddr(nic, own, name, &len), VIP_ERROR_NAMESERVICE);
}

int main(void)
{
    nothing_is_open();
    open_nic();
    nics();
    memory();
    vis();
    names();
    GIVES(VipCloseNic(nic), VIP_SUCCESS);
    nothing_is_open();
    open_nic();
    GIVES(VipCloseNic(nic), VIP_SUCCESS);
    printf("rank %d is done\n", me);
    return 0;
}
