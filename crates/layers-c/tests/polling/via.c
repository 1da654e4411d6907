/* Calls of VIA that a program polls. */
#include "yields.h"
#include <string.h>
#include <vipl.h>

static char bytes[64] __attribute__((aligned(64)));

int main(void)
{
    VIP_VI_ATTRIBUTES attributes = {VIP_SERVICE_RELIABLE_DELIVERY, 32768, NULL, NULL, VIP_FALSE, VIP_FALSE};
    VIP_DESCRIPTOR *posted = (VIP_DESCRIPTOR *) (void *) bytes, *ended;
    VIP_NIC_ATTRIBUTES nic_attributes;
    VIP_MEM_HANDLE memory;
    VIP_NIC_HANDLE nic;
    VIP_CQ_HANDLE cq;
    VIP_VI_HANDLE vi, of;
    VIP_BOOLEAN is_receive;
    union {
        VIP_NET_ADDRESS address;
        char bytes[16];
    } own, theirs;

    if (VipOpenNic("nic0", &nic) || VipQueryNic(nic, &nic_attributes) || VipCreateCQ(nic, 4, &cq))
        return 1;
    if (VipCreateVi(nic, &attributes, NULL, cq, &vi) || VipRegisterMem(nic, bytes, 64, NULL, &memory))
        return 2;
    memset(posted, 0, sizeof(*posted));
    if (VipPostRecv(vi, posted, memory))
        return 3;
    GIVES_AWAY(VipRecvDone(vi, &ended));
    GIVES_AWAY(VipCQDone(cq, &of, &is_receive));
    own.address.HostAddressLen = nic_attributes.NicAddressLen;
    own.address.DiscriminatorLen = 0;
    memcpy(own.address.HostAddress, nic_attributes.LocalNicAddress, nic_attributes.NicAddressLen);
    theirs = own;
    theirs.address.HostAddress[5] ^= 1;
    if (VipConnectPeerRequest(vi, &own.address, &theirs.address, VIP_INFINITE))
        return 4;
    if (nic_attributes.LocalNicAddress[5] == 0) {
        while (VipConnectPeerDone(vi, NULL) == VIP_NOT_DONE)
            ;
        /* The other one calls nothing meanwhile. */
        GIVES_AWAY(VipRecvDone(vi, &ended));
    } else {
        sleep(1);
    }
    printf("node %d is done\n", nic_attributes.LocalNicAddress[5]);
    return 0;
}
