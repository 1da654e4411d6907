/*
 * VIA: the VI Provider Library, VIPL 1.0, with the names of VIPL 0.95 beside them.
 *
 * A descriptor has 64 bytes and both spellings: CS and DS of 0.95, Control and Data of 1.0. Where the two
 * headers exclude each other this one is Giganet's of 1998; -DVIPL095 gives Intel's: VIP_NET_ADDRESS and
 * VIP_AUTODISCOVERY_LIST. Values and layouts were read in both. [recalled] marks what is known from memory
 * only, [inferred] what was concluded: of functions, the meanings of their results.
 *
 * Any thread may call any function. VipConnectWait, VipConnectAccept, VipConnectRequest,
 * VipConnectPeerRequest (for the first contact alone), VipConnectPeerWait and the functions that end in Wait
 * may wait; no other does. Handlers run on a thread of the library's, one after the other, and may call any
 * function. A call with a handle that is none, or not any more, gives VIP_INVALID_PARAMETER, and so does one
 * with NULL where a result goes. Times are milliseconds. A program vouches for the memory that it registers:
 * it stays until it is deregistered, and other processes read and write it as it allows.
 *
 * Four functions are declared that this library does not have yet. They give VIP_ERROR_NOT_SUPPORTED:
 * VipQuerySystemManagementInfo, VipAddTagCQ, VipRemoveTagCQ and VipPostDeferredSends.
 */
#ifndef STANDPIPE_VIPL_H
#define STANDPIPE_VIPL_H

#ifdef __cplusplus
extern "C" {
#endif

#ifndef IN
#define IN
#endif
#ifndef OUT
#define OUT
#endif
/* Giganet's. [recalled: that it may be empty] */
#ifndef VI_CALL
#define VI_CALL
#endif

typedef void *VIP_PVOID;
typedef int VIP_BOOLEAN;
typedef char VIP_CHAR;
typedef unsigned char VIP_UCHAR;
typedef unsigned short VIP_USHORT;
typedef short VIP_SHORT;
typedef unsigned long VIP_ULONG;
typedef long VIP_LONG;
typedef unsigned char VIP_UINT8;
typedef unsigned short VIP_UINT16;
typedef unsigned int VIP_UINT32;
__extension__ typedef unsigned long long VIP_UINT64;

#define VIP_TRUE 1
#define VIP_FALSE 0
#define VIP_INFINITE 0xFFFFFFFF

typedef void *VIP_QOS;
typedef void *VIP_NIC_HANDLE;
typedef void *VIP_VI_HANDLE;
typedef void *VIP_PROTECTION_HANDLE;
typedef void *VIP_CONN_HANDLE;
typedef void *VIP_CQ_HANDLE;
typedef void *VIP_EVENT_HANDLE;
typedef VIP_UINT32 VIP_MEM_HANDLE;
typedef VIP_USHORT VIP_RELIABILITY_LEVEL;

/* Reliability levels, a bit each. */
#define VIP_SERVICE_UNRELIABLE 1
#define VIP_SERVICE_RELIABLE_DELIVERY 2
#define VIP_SERVICE_RELIABLE_RECEPTION 4
/* Giganet's. */
#define VIP_BASE_SERVICES 7
#define VIP_SERVICE_ACK (1 << 14)
#define VIP_SERVICE_DFC (1 << 15)

typedef enum _VIP_RETURN {
    VIP_SUCCESS = 0,
    VIP_NOT_DONE,
    VIP_INVALID_PARAMETER,
    VIP_ERROR_RESOURCE,
    VIP_TIMEOUT,
    VIP_REJECT,
    VIP_INVALID_RELIABILITY_LEVEL,
    VIP_INVALID_MTU,
    VIP_INVALID_QOS,
    VIP_INVALID_PTAG,
    VIP_INVALID_RDMAREAD,
    VIP_DESCRIPTOR_ERROR,
    VIP_INVALID_STATE,
    VIP_ERROR_NAMESERVICE,
    VIP_NO_MATCH,
    /* Giganet's. */
    VIP_NOT_REACHABLE,
    VIP_ERROR_NOT_SUPPORTED
} VIP_RETURN;
#define VIP_ERROR VIP_DESCRIPTOR_ERROR

/* [recalled: the names' first parts, here and in the next two] */
typedef enum _VIP_VI_STATE {
    VIP_STATE_IDLE = 0,
    VIP_STATE_CONNECTED,
    VIP_STATE_CONNECT_PENDING,
    VIP_STATE_ERROR
} VIP_VI_STATE;

/* What has gone wrong beside any call. */
typedef enum _VIP_ERROR_CODE {
    VIP_ERROR_POST_DESC = 0,   /* a descriptor lies in no memory of its handle [recalled] */
    VIP_ERROR_CONN_LOST,       /* the other end has disconnected, or is gone */
    VIP_ERROR_RECVQ_EMPTY,     /* a message came, and no receive was posted */
    VIP_ERROR_VI_OVERRUN,      /* more descriptors, or entries, than there is room for [recalled] */
    VIP_ERROR_RDMAW_PROT,      /* the other end may not write the memory that it named */
    VIP_ERROR_RDMAW_DATA,      /* memory that the other end may write was not there [recalled] */
    VIP_ERROR_RDMAW_ABORT,     /* a remote write of the other end ended in its middle [recalled] */
    VIP_ERROR_RDMAR_PROT,      /* the other end may not read the memory that it named */
    VIP_ERROR_COMP_PROT,       /* a descriptor that has ended is in no registered memory [recalled] */
    VIP_ERROR_RDMA_TRANSPORT,  /* a remote read found no memory, or the other process is gone [recalled] */
    VIP_ERROR_CATASTROPHIC     /* the network has failed, or a peer has sent what is no message */
} VIP_ERROR_CODE;

typedef enum _VIP_RESOURCE_CODE {
    VIP_RESOURCE_NIC = 0,
    VIP_RESOURCE_VI,
    VIP_RESOURCE_CQ,
    VIP_RESOURCE_DESCRIPTOR
} VIP_RESOURCE_CODE;

typedef union _VIP_PVOID64 {
    VIP_UINT64 AddressBits;
    VIP_PVOID Address;
    struct _VIP_DESCRIPTOR *Descriptor; /* Giganet's */
} VIP_PVOID64;

/* [recalled: the names of the types of segments] */
typedef struct _VIP_CONTROL_SEGMENT {
    VIP_PVOID64 Next;         /* not read here */
    VIP_MEM_HANDLE NextHandle;
    VIP_UINT16 SegCount;      /* segments, the remote one of RDMA among them */
    VIP_UINT16 Control;
    VIP_UINT32 Reserved;      /* 0 */
    VIP_UINT32 ImmediateData;
    VIP_UINT32 Length;        /* of all to be moved; when it has ended, what was moved */
    VIP_UINT32 Status;
} VIP_CONTROL_SEGMENT;

/* The first segment of RDMA: memory of the other end. */
typedef struct _VIP_ADDRESS_SEGMENT {
    VIP_PVOID64 Data;
    VIP_MEM_HANDLE Handle;
    VIP_UINT32 Reserved;
} VIP_ADDRESS_SEGMENT;

typedef struct _VIP_DATA_SEGMENT {
    VIP_PVOID64 Data;
    VIP_MEM_HANDLE Handle;
    VIP_UINT32 Length;
} VIP_DATA_SEGMENT;

typedef union _VIP_DESCRIPTOR_SEGMENT {
    VIP_ADDRESS_SEGMENT Remote;
    VIP_DATA_SEGMENT Local;
} VIP_DESCRIPTOR_SEGMENT;

/* 64 bytes; further segments follow. [inferred: that both spellings are in one] */
__extension__ typedef struct _VIP_DESCRIPTOR {
    __extension__ union {
        VIP_CONTROL_SEGMENT CS;
        VIP_CONTROL_SEGMENT Control;
    };
    __extension__ union {
        VIP_DESCRIPTOR_SEGMENT DS[2];
        VIP_DATA_SEGMENT Data[2];
    };
} VIP_DESCRIPTOR;

#define VIP_DESCRIPTOR_ALIGNMENT 64

/* Control */
#define VIP_CONTROL_OP_SENDRECV 0x0000
#define VIP_CONTROL_OP_RDMAWRITE 0x0001
#define VIP_CONTROL_OP_RDMAREAD 0x0002
#define VIP_CONTROL_OP_RESERVED 0x0003
#define VIP_CONTROL_OP_MASK 0x0003
#define VIP_CONTROL_IMMEDIATE 0x0004
#define VIP_CONTROL_QFENCE 0x0008
#define VIP_CONTROL_RESERVED 0xFFF0

/* Status */
#define VIP_STATUS_DONE 0x00000001
#define VIP_STATUS_FORMAT_ERROR 0x00000002
#define VIP_STATUS_PROTECTION_ERROR 0x00000004
#define VIP_STATUS_LENGTH_ERROR 0x00000008
#define VIP_STATUS_PARTIAL_ERROR 0x00000010
#define VIP_STATUS_DESC_FLUSHED_ERROR 0x00000020
#define VIP_STATUS_TRANSPORT_ERROR 0x00000040
#define VIP_STATUS_RDMA_PROT_ERROR 0x00000080
#define VIP_STATUS_REMOTE_DESC_ERROR 0x00000100
#define VIP_STATUS_ERROR_MASK 0x000001FE
#define VIP_STATUS_OP_SEND 0x00000000
#define VIP_STATUS_OP_RECEIVE 0x00010000
#define VIP_STATUS_OP_RDMA_WRITE 0x00020000
#define VIP_STATUS_OP_REMOTE_RDMA_WRITE 0x00030000
#define VIP_STATUS_OP_RDMA_READ 0x00040000
#define VIP_STATUS_OP_MASK 0x00070000
#define VIP_STATUS_IMMEDIATE 0x00080000
#define VIP_STATUS_RESERVED 0xFFF0FE00

typedef struct _VIP_NET_ADDRESS {
    VIP_UINT16 HostAddressLen;
    VIP_UINT16 DiscriminatorLen;
#ifdef VIPL095
    VIP_UINT8 HostAddress[4]; /* the discriminator follows after HostAddressLen bytes [inferred] */
#else
    VIP_UINT8 HostAddress[1]; /* the same */
#endif
} VIP_NET_ADDRESS;

typedef struct _VIP_NIC_ATTRIBUTES {
    VIP_CHAR Name[64];
    VIP_ULONG HardwareVersion;
    VIP_ULONG ProviderVersion;
    VIP_UINT16 NicAddressLen;
    const VIP_UINT8 *LocalNicAddress; /* there for as long as the process */
    VIP_BOOLEAN ThreadSafe;
    VIP_UINT16 MaxDiscriminatorLen;
    VIP_ULONG MaxRegisterBytes;
    VIP_ULONG MaxRegisterRegions;
    VIP_ULONG MaxRegisterBlockBytes;
    VIP_ULONG MaxVI;
    VIP_ULONG MaxDescriptorsPerQueue;
    VIP_ULONG MaxSegmentsPerDesc;
    VIP_ULONG MaxCQ;
    VIP_ULONG MaxCQEntries;
    VIP_ULONG MaxTransferSize;
    VIP_ULONG NativeMTU;
    VIP_ULONG MaxPtags;
    VIP_UINT16 ReliabilityLevelSupport;
    VIP_UINT16 RDMAReadSupport;
} VIP_NIC_ATTRIBUTES;

typedef struct _VIP_VI_ATTRIBUTES {
    VIP_RELIABILITY_LEVEL ReliabilityLevel;
    VIP_ULONG MaxTransferSize;
    VIP_QOS QoS; /* any; the same at both ends */
    VIP_PROTECTION_HANDLE Ptag;
    VIP_BOOLEAN EnableRdmaWrite;
    VIP_BOOLEAN EnableRdmaRead;
} VIP_VI_ATTRIBUTES;

typedef struct _VIP_MEM_ATTRIBUTES {
    VIP_PROTECTION_HANDLE Ptag;
    VIP_BOOLEAN EnableRdmaWrite;
    VIP_BOOLEAN EnableRdmaRead;
} VIP_MEM_ATTRIBUTES;

typedef struct _VIP_ERROR_DESCRIPTOR {
    VIP_NIC_HANDLE NicHandle;
    VIP_VI_HANDLE ViHandle;
    VIP_CQ_HANDLE CQHandle;
    VIP_DESCRIPTOR *DescriptorPtr;
    VIP_ULONG OpCode; /* as in a status */
    VIP_RESOURCE_CODE ResourceCode;
    VIP_ERROR_CODE ErrorCode;
} VIP_ERROR_DESCRIPTOR;

#define VIP_SMI_AUTODISCOVERY 1

typedef struct _VIP_AUTODISCOVERY_LIST {
    VIP_ULONG NumberOfHops; /* [recalled: the types of the counts] */
#ifdef VIPL095
    VIP_NET_ADDRESS **ADAddrArray;
#else
    VIP_NET_ADDRESS *ADAddrArray;
#endif
    VIP_ULONG NumAdAddrs;
} VIP_AUTODISCOVERY_LIST;

/* Handlers; the names of the types are Giganet's. */
typedef void(VI_CALL *VIP_ERROR_HANDLER)(VIP_PVOID Context, VIP_ERROR_DESCRIPTOR *ErrorDesc);
typedef void(VI_CALL *VIP_VI_CALLBACK)(VIP_PVOID Context, VIP_NIC_HANDLE NicHandle, VIP_VI_HANDLE ViHandle,
                                       VIP_DESCRIPTOR *Descriptor);
typedef void(VI_CALL *VIP_CQ_CALLBACK)(VIP_PVOID Context, VIP_NIC_HANDLE NicHandle, VIP_VI_HANDLE ViHandle,
                                       VIP_BOOLEAN RecvQueue);

/*
 * NICs
 *
 * VipOpenNic takes the names of the time, which all lead to the same network: /dev/via_lo, /dev/via_ethN,
 * the same in /etc, /dev/clanviN, nicN. Each call gives a handle of its own. The first one opens the network
 * and starts the library's threads; it waits for no other process. VIP_INVALID_PARAMETER: no such name.
 * VIP_ERROR_RESOURCE: the network is not to be had; the reason is on standard error.
 * VipCloseNic also ends all that was made with the handle; connections are taken down.
 * VipErrorCallback: with NULL, errors are told by a line on standard error again, as before the first call.
 */
VIP_RETURN VI_CALL VipOpenNic(IN const VIP_CHAR *DeviceName, OUT VIP_NIC_HANDLE *NicHandle);
VIP_RETURN VI_CALL VipCloseNic(IN VIP_NIC_HANDLE NicHandle);
VIP_RETURN VI_CALL VipQueryNic(IN VIP_NIC_HANDLE NicHandle, OUT VIP_NIC_ATTRIBUTES *NicAttribs);
VIP_RETURN VI_CALL VipErrorCallback(IN VIP_NIC_HANDLE NicHandle, IN VIP_PVOID Context,
                                    IN VIP_ERROR_HANDLER Handler);
VIP_RETURN VI_CALL VipQuerySystemManagementInfo(IN VIP_NIC_HANDLE NicHandle, IN VIP_ULONG InfoType,
                                                OUT VIP_PVOID SysManInfo);

/*
 * Protection tags and memory
 *
 * NULL is a tag that every NIC has. VipDestroyPtag gives VIP_ERROR_RESOURCE while memory or a VI has the tag.
 * VipRegisterMem takes any address; attributes of NULL are the tag NULL, and no RDMA. VIP_INVALID_PTAG;
 * VIP_INVALID_PARAMETER: NULL or 0 bytes; VIP_ERROR_RESOURCE: beyond the limits of VipQueryNic.
 * An address anywhere in the memory names it, with its handle.
 */
VIP_RETURN VI_CALL VipCreatePtag(IN VIP_NIC_HANDLE NicHandle, OUT VIP_PROTECTION_HANDLE *Ptag);
VIP_RETURN VI_CALL VipDestroyPtag(IN VIP_NIC_HANDLE NicHandle, IN VIP_PROTECTION_HANDLE Ptag);
VIP_RETURN VI_CALL VipRegisterMem(IN VIP_NIC_HANDLE NicHandle, IN VIP_PVOID VirtualAddress,
                                  IN VIP_ULONG Length, IN VIP_MEM_ATTRIBUTES *MemAttribs,
                                  OUT VIP_MEM_HANDLE *MemHandle);
VIP_RETURN VI_CALL VipDeregisterMem(IN VIP_NIC_HANDLE NicHandle, IN VIP_PVOID VirtualAddress,
                                    IN VIP_MEM_HANDLE MemHandle);
VIP_RETURN VI_CALL VipQueryMem(IN VIP_NIC_HANDLE NicHandle, IN VIP_PVOID Address,
                               IN VIP_MEM_HANDLE MemHandle, OUT VIP_MEM_ATTRIBUTES *MemAttribs);
VIP_RETURN VI_CALL VipSetMemAttributes(IN VIP_NIC_HANDLE NicHandle, IN VIP_PVOID Address,
                                       IN VIP_MEM_HANDLE MemHandle,
                                       IN VIP_MEM_ATTRIBUTES *MemAttribs);

/*
 * VIs
 *
 * VipCreateVi and VipSetViAttributes: VIP_INVALID_RELIABILITY_LEVEL: not one of the three.
 * VIP_INVALID_MTU: a transfer size of 0, or above the NIC's. VIP_INVALID_PTAG.
 * VIP_INVALID_RDMAREAD: remote reads with unreliable service. VIP_INVALID_STATE: not idle.
 * VipDestroyVi: VIP_INVALID_STATE unless the VI is idle; descriptors may be in its queues still.
 */
VIP_RETURN VI_CALL VipCreateVi(IN VIP_NIC_HANDLE NicHandle, IN VIP_VI_ATTRIBUTES *ViAttribs,
                               IN VIP_CQ_HANDLE SendCQHandle, IN VIP_CQ_HANDLE RecvCQHandle,
                               OUT VIP_VI_HANDLE *ViHandle);
VIP_RETURN VI_CALL VipDestroyVi(IN VIP_VI_HANDLE ViHandle);
VIP_RETURN VI_CALL VipQueryVi(IN VIP_VI_HANDLE ViHandle, OUT VIP_VI_STATE *State,
                              OUT VIP_VI_ATTRIBUTES *ViAttribs, OUT VIP_BOOLEAN *ViSendQEmpty,
                              OUT VIP_BOOLEAN *ViRecvQEmpty);
VIP_RETURN VI_CALL VipSetViAttributes(IN VIP_VI_HANDLE ViHandle, IN VIP_VI_ATTRIBUTES *ViAttribs);
/* Giganet's: a word of the program's own. */
VIP_PVOID VI_CALL VipGetUserData(IN VIP_VI_HANDLE ViHandle);
VIP_RETURN VI_CALL VipSetUserData(IN VIP_VI_HANDLE ViHandle, IN VIP_PVOID Data);

/*
 * Connections
 *
 * VipConnectWait: VIP_TIMEOUT. Of the client's discriminator it gives as many bytes as the local one has.
 * VipConnectAccept: VIP_INVALID_STATE unless the VI is idle; VIP_INVALID_RELIABILITY_LEVEL, VIP_INVALID_MTU,
 * VIP_INVALID_QOS where these are not the client's, who hears nothing: call again, or reject. VIP_TIMEOUT:
 * the client waits no more. VipConnectRequest: VIP_NO_MATCH at once where nobody waits for the address,
 * whatever the time; VIP_REJECT; VIP_TIMEOUT; VIP_INVALID_STATE; VIP_INVALID_PARAMETER for a time of 0;
 * VIP_NOT_REACHABLE. VipDisconnect leads from any state to idle; of an idle VI it changes nothing.
 */
VIP_RETURN VI_CALL VipConnectWait(IN VIP_NIC_HANDLE NicHandle, IN VIP_NET_ADDRESS *LocalAddr,
                                  IN VIP_ULONG Timeout, OUT VIP_NET_ADDRESS *RemoteAddr,
                                  OUT VIP_VI_ATTRIBUTES *RemoteViAttribs,
                                  OUT VIP_CONN_HANDLE *ConnHandle);
VIP_RETURN VI_CALL VipConnectAccept(IN VIP_CONN_HANDLE ConnHandle, IN VIP_VI_HANDLE ViHandle);
VIP_RETURN VI_CALL VipConnectReject(IN VIP_CONN_HANDLE ConnHandle);
VIP_RETURN VI_CALL VipConnectRequest(IN VIP_VI_HANDLE ViHandle, IN VIP_NET_ADDRESS *LocalAddr,
                                     IN VIP_NET_ADDRESS *RemoteAddr, IN VIP_ULONG Timeout,
                                     OUT VIP_VI_ATTRIBUTES *RemoteViAttribs);
VIP_RETURN VI_CALL VipDisconnect(IN VIP_VI_HANDLE ViHandle);
VIP_RETURN VI_CALL VipConnectPeerRequest(IN VIP_VI_HANDLE ViHandle, IN VIP_NET_ADDRESS *LocalAddr,
                                         IN VIP_NET_ADDRESS *RemoteAddr, IN VIP_ULONG Timeout);
VIP_RETURN VI_CALL VipConnectPeerDone(IN VIP_VI_HANDLE ViHandle,
                                      OUT VIP_VI_ATTRIBUTES *RemoteViAttribs);
VIP_RETURN VI_CALL VipConnectPeerWait(IN VIP_VI_HANDLE ViHandle,
                                      OUT VIP_VI_ATTRIBUTES *RemoteViAttribs);

/*
 * Descriptors
 *
 * Posting: VIP_INVALID_PARAMETER also for an address that is no multiple of 64; VIP_ERROR_RESOURCE where the
 * queue is full. A send posted to a VI that is not connected has ended at once, flushed [recalled].
 * Done and Wait: VIP_SUCCESS; VIP_DESCRIPTOR_ERROR with a descriptor that has failed, or NULL where the queue
 * is empty; VIP_NOT_DONE and VIP_TIMEOUT with NULL.
 * Notify: the handler is called once, with the next descriptor, which is out of the queue then.
 * The Length of a send or of RDMA must be the sum of its segments [recalled].
 */
VIP_RETURN VI_CALL VipPostSend(IN VIP_VI_HANDLE ViHandle, IN VIP_DESCRIPTOR *Descriptor,
                               IN VIP_MEM_HANDLE MemHandle);
VIP_RETURN VI_CALL VipPostRecv(IN VIP_VI_HANDLE ViHandle, IN VIP_DESCRIPTOR *Descriptor,
                               IN VIP_MEM_HANDLE MemHandle);
VIP_RETURN VI_CALL VipSendDone(IN VIP_VI_HANDLE ViHandle, OUT VIP_DESCRIPTOR **Descriptor);
VIP_RETURN VI_CALL VipRecvDone(IN VIP_VI_HANDLE ViHandle, OUT VIP_DESCRIPTOR **Descriptor);
VIP_RETURN VI_CALL VipSendWait(IN VIP_VI_HANDLE ViHandle, IN VIP_ULONG Timeout,
                               OUT VIP_DESCRIPTOR **Descriptor);
VIP_RETURN VI_CALL VipRecvWait(IN VIP_VI_HANDLE ViHandle, IN VIP_ULONG Timeout,
                               OUT VIP_DESCRIPTOR **Descriptor);
VIP_RETURN VI_CALL VipSendNotify(IN VIP_VI_HANDLE ViHandle, IN VIP_PVOID Context,
                                 IN VIP_VI_CALLBACK Callback);
VIP_RETURN VI_CALL VipRecvNotify(IN VIP_VI_HANDLE ViHandle, IN VIP_PVOID Context,
                                 IN VIP_VI_CALLBACK Callback);
/* Giganet's. */
VIP_RETURN VI_CALL VipPostDeferredSends(IN VIP_VI_HANDLE ViHandle, IN VIP_BOOLEAN EnableInterrupt,
                                        OUT VIP_BOOLEAN *Deferred);

/*
 * Completion queues
 *
 * VipCQDone and VipCQWait say which queue of which VI has an ended descriptor; Done takes it from there.
 * VIP_NOT_DONE, VIP_TIMEOUT. VipDestroyCQ: VIP_ERROR_RESOURCE while a VI has it. VipResizeCQ:
 * VIP_ERROR_RESOURCE where there are more entries in it. An entry beyond its room is lost, and
 * VIP_ERROR_VI_OVERRUN is told of VIP_RESOURCE_CQ [recalled].
 */
VIP_RETURN VI_CALL VipCreateCQ(IN VIP_NIC_HANDLE NicHandle, IN VIP_ULONG EntryCount,
                               OUT VIP_CQ_HANDLE *CQHandle);
VIP_RETURN VI_CALL VipDestroyCQ(IN VIP_CQ_HANDLE CQHandle);
VIP_RETURN VI_CALL VipResizeCQ(IN VIP_CQ_HANDLE CQHandle, IN VIP_ULONG EntryCount);
VIP_RETURN VI_CALL VipCQDone(IN VIP_CQ_HANDLE CQHandle, OUT VIP_VI_HANDLE *ViHandle,
                             OUT VIP_BOOLEAN *RecvQueue);
VIP_RETURN VI_CALL VipCQWait(IN VIP_CQ_HANDLE CQHandle, IN VIP_ULONG Timeout,
                             OUT VIP_VI_HANDLE *ViHandle, OUT VIP_BOOLEAN *RecvQueue);
VIP_RETURN VI_CALL VipCQNotify(IN VIP_CQ_HANDLE CQHandle, IN VIP_PVOID Context,
                               IN VIP_CQ_CALLBACK Callback);
/* Giganet's. */
VIP_RETURN VI_CALL VipAddTagCQ(IN VIP_CQ_HANDLE CQHandle, IN VIP_EVENT_HANDLE *Event,
                               IN VIP_ULONG Tag, IN VIP_ULONG Priority);
VIP_RETURN VI_CALL VipRemoveTagCQ(IN VIP_CQ_HANDLE CQHandle, IN VIP_EVENT_HANDLE Event,
                                  IN VIP_ULONG Tag);

/*
 * Names
 *
 * This host's own name and localhost stand for whichever process of this host waits for the discriminator: of
 * the job, or, where the process was started by hand, of this user. A number, or node and a number, stands for
 * one process; in a job it is the rank. Only index 0 has an address. VIP_ERROR_NAMESERVICE: no such name or
 * index, or no VipNSInit before. VipNSGetHostByName writes HostAddressLen and the host's address.
 * VipNSGetHostByAddr: *NameLen is the room for the name with its zero byte, and then its length;
 * VIP_ERROR_RESOURCE where there is too little [recalled].
 */
VIP_RETURN VI_CALL VipNSInit(IN VIP_NIC_HANDLE NicHandle, IN VIP_PVOID NSInitInfo);
VIP_RETURN VI_CALL VipNSGetHostByName(IN VIP_NIC_HANDLE NicHandle, IN VIP_CHAR *Name,
                                      OUT VIP_NET_ADDRESS *Address, IN VIP_ULONG NameIndex);
VIP_RETURN VI_CALL VipNSGetHostByAddr(IN VIP_NIC_HANDLE NicHandle, IN VIP_NET_ADDRESS *Address,
                                      OUT VIP_CHAR *Name, VIP_ULONG *NameLen);
VIP_RETURN VI_CALL VipNSShutdown(IN VIP_NIC_HANDLE NicHandle);

#ifdef __cplusplus
}
#endif

#endif
