#include "prelude.h"

/* Thousands of sends that follow each other without waiting, short and long, all received before they come. */

#define COUNT 2000
#define SLOT 256
#define LONG_EVERY 50
#define LONG_BYTES 20000

static struct {
    VIP_DESCRIPTOR descriptors[COUNT];
    char bytes[COUNT][SLOT];
    char longs[COUNT / LONG_EVERY][LONG_BYTES];
} many __attribute__((aligned(64)));
static VIP_MEM_HANDLE many_handle;

static unsigned length_of(int number)
{
    return number % LONG_EVERY ? (unsigned) number % SLOT : LONG_BYTES;
}

static char *bytes_of(int number)
{
    return number % LONG_EVERY ? many.bytes[number] : many.longs[number / LONG_EVERY];
}

static VIP_DESCRIPTOR *make(int number, int is_receive)
{
    VIP_DESCRIPTOR *made = &many.descriptors[number];

    memset(made, 0, sizeof(*made));
    made->Control.SegCount = 1;
    made->Data[0].Data.Address = bytes_of(number);
    made->Data[0].Handle = many_handle;
    made->Data[0].Length = length_of(number);
    if (!is_receive) {
        made->Control.Control = VIP_CONTROL_IMMEDIATE;
        made->Control.ImmediateData = (VIP_UINT32) number;
        made->Control.Length = length_of(number);
    }
    return made;
}

static void send_all(VIP_VI_HANDLE vi)
{
    VIP_DESCRIPTOR *ended;
    int i;

    for (i = 0; i < COUNT; i++) {
        memset(bytes_of(i), i, length_of(i));
        GIVES(VipPostSend(vi, make(i, 0), many_handle), VIP_SUCCESS);
    }
    for (i = 0; i < COUNT; i++) {
        GIVES(VipSendWait(vi, LONG, &ended), VIP_SUCCESS);
        CHECK(ended == &many.descriptors[i]);
    }
}

static void receive_all(VIP_VI_HANDLE vi, int is_polled)
{
    VIP_DESCRIPTOR *ended;
    VIP_RETURN gave;
    unsigned at;
    int i;

    for (i = 0; i < COUNT; i++) {
        while ((gave = is_polled ? VipRecvDone(vi, &ended) : VipRecvWait(vi, LONG, &ended)) == VIP_NOT_DONE)
            ;
        GIVES(gave, VIP_SUCCESS);
        CHECK(ended == &many.descriptors[i] && ended->CS.Length == length_of(i));
        CHECK(ended->CS.ImmediateData == (VIP_UINT32) i);
        for (at = 0; at < length_of(i); at++)
            CHECK(bytes_of(i)[at] == (char) i);
    }
    GIVES(VipRecvDone(vi, &ended), VIP_DESCRIPTOR_ERROR);
}

int main(int argc, char **argv)
{
    VIP_VI_HANDLE vi;
    int i, turn;

    (void) argc;
    open_nic();
    GIVES(VipRegisterMem(nic, &many, sizeof(many), NULL, &many_handle), VIP_SUCCESS);
    vi = make_vi(atoi(argv[1]), NULL, NULL);
    connect_vi(vi, "flood");
    for (turn = 0; turn < 4; turn++) {
        if (turn % 2 == me)
            for (i = 0; i < COUNT; i++)
                GIVES(VipPostRecv(vi, make(i, 1), many_handle), VIP_SUCCESS);
        meet();
        if (turn % 2 == me)
            receive_all(vi, turn < 2);
        else
            send_all(vi);
        meet();
    }
    end_vi(vi);
    printf("rank %d is done\n", me);
    return 0;
}
