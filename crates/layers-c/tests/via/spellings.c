/* Both spellings of a descriptor are one, and values and layouts are those of the headers of the time. */
#include <stddef.h>
#include <stdio.h>
#include <vipl.h>

#define PLACE(line) PLACE_(line)
#define PLACE_(line) is_at_##line
#define HOLDS(what) typedef char PLACE(__LINE__)[(what) ? 1 : -1] __attribute__((unused))

HOLDS(sizeof(VIP_DESCRIPTOR) == 64);
HOLDS(sizeof(VIP_CONTROL_SEGMENT) == 32);
HOLDS(offsetof(VIP_DESCRIPTOR, CS.NextHandle) == 8 && offsetof(VIP_DESCRIPTOR, Control.SegCount) == 12);
HOLDS(offsetof(VIP_DESCRIPTOR, CS.Control) == 14 && offsetof(VIP_DESCRIPTOR, Control.Reserved) == 16);
HOLDS(offsetof(VIP_DESCRIPTOR, CS.ImmediateData) == 20 && offsetof(VIP_DESCRIPTOR, Control.Length) == 24);
HOLDS(offsetof(VIP_DESCRIPTOR, CS.Status) == 28);
HOLDS(offsetof(VIP_DESCRIPTOR, DS[1].Local.Length) == 60 && offsetof(VIP_DESCRIPTOR, Data[1].Handle) == 56);
HOLDS(offsetof(VIP_DESCRIPTOR, DS[0].Remote.Handle) == 40);
HOLDS(sizeof(VIP_NIC_ATTRIBUTES) == 200 && sizeof(VIP_VI_ATTRIBUTES) == 40);
HOLDS(sizeof(VIP_MEM_ATTRIBUTES) == 16 && sizeof(VIP_ERROR_DESCRIPTOR) == 48);
HOLDS(offsetof(VIP_NET_ADDRESS, HostAddress) == 4);
#ifdef VIPL095
HOLDS(sizeof(VIP_NET_ADDRESS) == 8);
#else
HOLDS(sizeof(VIP_NET_ADDRESS) == 6);
#endif
HOLDS(sizeof(VIP_ULONG) == sizeof(long) && sizeof(VIP_MEM_HANDLE) == 4 && sizeof(VIP_UINT64) == 8);
HOLDS(VIP_NO_MATCH == 14 && VIP_ERROR_NOT_SUPPORTED == 16 && VIP_ERROR == 11 && VIP_INVALID_STATE == 12);
HOLDS(VIP_STATE_ERROR == 3 && VIP_STATE_CONNECT_PENDING == 2 && VIP_ERROR_CATASTROPHIC == 10);
HOLDS(VIP_RESOURCE_DESCRIPTOR == 3 && VIP_STATUS_ERROR_MASK == 0x1FE);
HOLDS(VIP_ERROR_RDMA_TRANSPORT == 9 && VIP_ERROR_COMP_PROT == 8 && VIP_ERROR_RDMAR_PROT == 7);

int main(void)
{
    /* Positional, as some programs have it. */
    VIP_VI_ATTRIBUTES attributes = {VIP_SERVICE_UNRELIABLE, 32768, NULL, NULL, VIP_FALSE, VIP_FALSE};
    VIP_AUTODISCOVERY_LIST list = {0, NULL, 0};
    VIP_DESCRIPTOR descriptor;
    VIP_NET_ADDRESS address;
    VIP_VI_HANDLE vi;

    descriptor.CS.SegCount = 1;
    descriptor.DS[0].Local.Length = 7;
    list.ADAddrArray = NULL;
    address.HostAddress[0] = 0;
    if (descriptor.Control.SegCount != 1 || descriptor.Data[0].Length != 7)
        return 1;
    if (list.ADAddrArray != NULL || address.HostAddress[0] != 0)
        return 2;
    if (VipCreateVi(NULL, &attributes, NULL, NULL, &vi) != VIP_INVALID_PARAMETER)
        return 3;
    printf("both are one\n");
    return 0;
}
