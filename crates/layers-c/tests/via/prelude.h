/* What the test programs of VIA share. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vipl.h>

#define CHECK(what)                                                                                       \
    do {                                                                                                  \
        if (!(what)) {                                                                                    \
            fprintf(stderr, "rank %d, %s line %d: not %s\n", me, __FILE__, __LINE__, #what);              \
            exit(1);                                                                                      \
        }                                                                                                 \
    } while (0)

#define GIVES(call, code)                                                                                 \
    do {                                                                                                  \
        int gave_ = (int) (call);                                                                         \
        if (gave_ != (int) (code)) {                                                                      \
            fprintf(stderr, "rank %d, %s line %d: %s gives %d, not %s\n", me, __FILE__, __LINE__, #call,  \
                    gave_, #code);                                                                        \
            exit(1);                                                                                      \
        }                                                                                                 \
    } while (0)

/* So long a test waits for what must come; it fails then. */
#define LONG 30000

/* This process's number, and the other's. */
static int me, other;
static VIP_NIC_HANDLE nic;
static VIP_NIC_ATTRIBUTES nic_attributes;

/* A test that hangs ends all the same. */
__attribute__((constructor)) static void limit(void)
{
    alarm(60);
}

/* Memory of the test's, registered as a whole: descriptors first, then buffers. */
#define DESCRIPTORS 64
#define DESCRIPTOR_BYTES 320
#define ROOM (1 << 20)
static struct {
    char descriptors[DESCRIPTORS][DESCRIPTOR_BYTES];
    char bytes[ROOM];
} __attribute__((aligned(64))) area;
static VIP_MEM_HANDLE area_handle;

static inline VIP_DESCRIPTOR *descriptor(int number)
{
    return (VIP_DESCRIPTOR *) area.descriptors[number];
}

static inline void open_nic(void)
{
    VIP_MEM_ATTRIBUTES attributes = {NULL, VIP_TRUE, VIP_TRUE};

    GIVES(VipOpenNic("/dev/via_eth0", &nic), VIP_SUCCESS);
    GIVES(VipQueryNic(nic, &nic_attributes), VIP_SUCCESS);
    me = nic_attributes.LocalNicAddress[5];
    other = 1 - me;
    GIVES(VipRegisterMem(nic, &area, sizeof(area), &attributes, &area_handle), VIP_SUCCESS);
}

/* An address of a process, with a discriminator. Each call has a place of its own of four. */
static inline VIP_NET_ADDRESS *address(int rank, const char *discriminator)
{
    static union {
        VIP_NET_ADDRESS address;
        char bytes[128];
    } places[4];
    static int next;
    VIP_NET_ADDRESS *place = &places[next++ % 4].address;

    place->HostAddressLen = nic_attributes.NicAddressLen;
    place->DiscriminatorLen = (VIP_UINT16) strlen(discriminator);
    memcpy(place->HostAddress, nic_attributes.LocalNicAddress, nic_attributes.NicAddressLen);
    place->HostAddress[5] = (VIP_UINT8) rank;
    memcpy(place->HostAddress + nic_attributes.NicAddressLen, discriminator, strlen(discriminator));
    return place;
}

static inline VIP_VI_ATTRIBUTES vi_attributes(int reliability)
{
    VIP_VI_ATTRIBUTES attributes = {0, 1 << 20, NULL, NULL, VIP_TRUE, VIP_TRUE};

    attributes.ReliabilityLevel = (VIP_RELIABILITY_LEVEL) reliability;
    attributes.EnableRdmaRead = reliability != VIP_SERVICE_UNRELIABLE;
    return attributes;
}

static inline VIP_VI_HANDLE make_vi(int reliability, VIP_CQ_HANDLE send, VIP_CQ_HANDLE receive)
{
    VIP_VI_ATTRIBUTES attributes = vi_attributes(reliability);
    VIP_VI_HANDLE vi;

    GIVES(VipCreateVi(nic, &attributes, send, receive, &vi), VIP_SUCCESS);
    return vi;
}

static inline int state_of(VIP_VI_HANDLE vi)
{
    VIP_VI_STATE state;
    VIP_BOOLEAN send_empty, receive_empty;
    VIP_VI_ATTRIBUTES attributes;

    GIVES(VipQueryVi(vi, &state, &attributes, &send_empty, &receive_empty), VIP_SUCCESS);
    return (int) state;
}

/* Rank 0 is the server. */
static inline void connect_vi(VIP_VI_HANDLE vi, const char *discriminator)
{
    VIP_VI_ATTRIBUTES remote;
    VIP_NET_ADDRESS *from = address(0, discriminator);
    VIP_CONN_HANDLE connection;
    VIP_RETURN gave;

    if (me == 0) {
        GIVES(VipConnectWait(nic, address(0, discriminator), VIP_INFINITE, from, &remote, &connection), VIP_SUCCESS);
        GIVES(VipConnectAccept(connection, vi), VIP_SUCCESS);
    } else {
        while ((gave = VipConnectRequest(vi, address(me, discriminator), address(0, discriminator), VIP_INFINITE,
                                         &remote)) == VIP_NO_MATCH)
            ;
        GIVES(gave, VIP_SUCCESS);
    }
}

/* A descriptor of one segment: bytes of the area from `at` on. */
static inline VIP_DESCRIPTOR *fill(int number, int control, unsigned at, unsigned len)
{
    VIP_DESCRIPTOR *made = descriptor(number);

    memset(made, 0, DESCRIPTOR_BYTES);
    made->CS.Control = (VIP_UINT16) control;
    made->CS.SegCount = 1;
    made->CS.Length = len;
    made->DS[0].Local.Data.Address = area.bytes + at;
    made->DS[0].Local.Handle = area_handle;
    made->DS[0].Local.Length = len;
    return made;
}

/* The same of RDMA. */
static inline VIP_DESCRIPTOR *fill_rdma(int number, int control, unsigned at, unsigned len, uint64_t remote,
                                        VIP_MEM_HANDLE handle)
{
    VIP_DESCRIPTOR *made = fill(number, control, at, len);

    made->CS.SegCount = 2;
    made->DS[1] = made->DS[0];
    made->DS[0].Remote.Data.AddressBits = remote;
    made->DS[0].Remote.Handle = handle;
    made->DS[0].Remote.Reserved = 0;
    return made;
}

static inline void post_receive(VIP_VI_HANDLE vi, VIP_DESCRIPTOR *posted)
{
    GIVES(VipPostRecv(vi, posted, area_handle), VIP_SUCCESS);
}

static inline void post_send(VIP_VI_HANDLE vi, VIP_DESCRIPTOR *posted)
{
    GIVES(VipPostSend(vi, posted, area_handle), VIP_SUCCESS);
}

/* Waits for the descriptor, which must be this one, and gives its status without VIP_STATUS_DONE. */
static inline unsigned sent(VIP_VI_HANDLE vi, VIP_DESCRIPTOR *posted)
{
    VIP_DESCRIPTOR *ended;
    VIP_RETURN gave = VipSendWait(vi, LONG, &ended);

    CHECK(ended == posted);
    CHECK(posted->CS.Status & VIP_STATUS_DONE);
    GIVES(gave, posted->CS.Status & VIP_STATUS_ERROR_MASK ? VIP_DESCRIPTOR_ERROR : VIP_SUCCESS);
    return posted->CS.Status & ~(unsigned) VIP_STATUS_DONE;
}

static inline unsigned received(VIP_VI_HANDLE vi, VIP_DESCRIPTOR *posted)
{
    VIP_DESCRIPTOR *ended;
    VIP_RETURN gave = VipRecvWait(vi, LONG, &ended);

    CHECK(ended == posted);
    CHECK(posted->CS.Status & VIP_STATUS_DONE);
    GIVES(gave, posted->CS.Status & VIP_STATUS_ERROR_MASK ? VIP_DESCRIPTOR_ERROR : VIP_SUCCESS);
    return posted->CS.Status & ~(unsigned) VIP_STATUS_DONE;
}

/*
 * Both come here before either goes on, over a VI of its own, and tell each other a word. Several receives are
 * posted there: the other process may be here again before this one has looked.
 */
static VIP_VI_HANDLE meeting;
#define MEETING 56
#define MEETINGS 4
#define MEETING_SEND (MEETING + MEETINGS)

static inline unsigned meet_with(unsigned word)
{
    static int turn;
    VIP_DESCRIPTOR *in;
    unsigned theirs;
    int i;

    if (meeting == NULL) {
        meeting = make_vi(VIP_SERVICE_RELIABLE_DELIVERY, NULL, NULL);
        for (i = 0; i < MEETINGS; i++)
            post_receive(meeting, fill(MEETING + i, 0, 0, 0));
        connect_vi(meeting, "the meeting");
    }
    fill(MEETING_SEND, VIP_CONTROL_IMMEDIATE, 0, 0)->CS.ImmediateData = word;
    post_send(meeting, descriptor(MEETING_SEND));
    GIVES(sent(meeting, descriptor(MEETING_SEND)), VIP_STATUS_OP_SEND);
    in = descriptor(MEETING + turn);
    GIVES(received(meeting, in), VIP_STATUS_OP_RECEIVE | VIP_STATUS_IMMEDIATE);
    theirs = in->CS.ImmediateData;
    post_receive(meeting, fill(MEETING + turn, 0, 0, 0));
    turn = (turn + 1) % MEETINGS;
    return theirs;
}

static inline void meet(void)
{
    meet_with(0);
}

static inline uint64_t swap_words(uint64_t word)
{
    uint64_t low = meet_with((unsigned) word);

    return low | (uint64_t) meet_with((unsigned) (word >> 32)) << 32;
}

/* Errors beside any call, as they are told. */
static volatile int told_count;
static volatile int told_code[64], told_resource[64];
static VIP_VI_HANDLE volatile told_vi[64];

static inline void VI_CALL note_error(VIP_PVOID context, VIP_ERROR_DESCRIPTOR *error)
{
    int at = told_count % 64;

    (void) context;
    told_code[at] = (int) error->ErrorCode;
    told_resource[at] = (int) error->ResourceCode;
    told_vi[at] = error->ViHandle;
    __sync_synchronize();
    told_count++;
}

/* Waits until such an error of that VI (or any, by NULL) has been told: its resource. */
static inline int told(VIP_VI_HANDLE vi, int code)
{
    int i;

    for (;;) {
        for (i = 0; i < told_count; i++)
            if (told_code[i] == code && (vi == NULL || told_vi[i] == vi))
                return told_resource[i];
    }
}

static inline void end_vi(VIP_VI_HANDLE vi)
{
    GIVES(VipDisconnect(vi), VIP_SUCCESS);
    GIVES(VipDestroyVi(vi), VIP_SUCCESS);
}
