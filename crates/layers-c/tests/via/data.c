#include "prelude.h"

/* Data of many lengths both ways, on VIs of one reliability level, of one and of several segments. */

static const unsigned lengths[] = {0, 1, 8, 100, 4095, 4096, 4097, 32768, 200000};
#define LENGTHS (int) (sizeof(lengths) / sizeof(lengths[0]))
#define HALF (ROOM / 2)

static char byte_of(int rank, unsigned at, unsigned len)
{
    return (char) (rank * 31 + (int) (at * 7) + (int) len);
}

/* One message of that length in each direction, all receives posted before. */
static void exchange(VIP_VI_HANDLE vi, unsigned len, int segments)
{
    VIP_DESCRIPTOR *out = fill(0, VIP_CONTROL_IMMEDIATE, 0, len), *in = fill(1, 0, HALF, HALF / 2);
    unsigned at, i, part = len / (unsigned) segments;

    out->CS.ImmediateData = len + (unsigned) me;
    for (at = 0; at < len; at++)
        area.bytes[at] = byte_of(me, at, len);
    memset(area.bytes + HALF, 0, HALF / 2);
    if (segments > 1) {
        out->CS.SegCount = in->CS.SegCount = (VIP_UINT16) segments;
        for (i = 0; i < (unsigned) segments; i++) {
            VIP_DATA_SEGMENT *to = &in->DS[i].Local, *from = &out->DS[i].Local;
            from->Data.Address = area.bytes + i * part;
            from->Length = i + 1 < (unsigned) segments ? part : len - i * part;
            from->Handle = to->Handle = area_handle;
            /* Segments of other lengths than those of the sender. */
            to->Data.Address = area.bytes + HALF + i * (part + 3);
            to->Length = i + 1 < (unsigned) segments ? part + 3 : HALF / 2 - i * (part + 3);
        }
    }
    post_receive(vi, in);
    meet();
    post_send(vi, out);
    GIVES(sent(vi, out), VIP_STATUS_OP_SEND);
    CHECK(out->CS.Length == len);
    GIVES(received(vi, in), VIP_STATUS_OP_RECEIVE | VIP_STATUS_IMMEDIATE);
    CHECK(in->CS.Length == len);
    CHECK(in->CS.ImmediateData == len + (unsigned) other);
    for (at = 0; at < len; at++)
        CHECK(area.bytes[HALF + at] == byte_of(other, at, len));
    CHECK(area.bytes[HALF + len] == 0);
    meet();
}

int main(int argc, char **argv)
{
    VIP_VI_HANDLE vi;
    VIP_DESCRIPTOR *none = (VIP_DESCRIPTOR *) &none;
    int i, level;

    (void) argc;
    level = atoi(argv[1]);
    open_nic();
    vi = make_vi(level, NULL, NULL);
    GIVES(VipRecvDone(vi, &none), VIP_DESCRIPTOR_ERROR);
    CHECK(none == NULL);
    connect_vi(vi, "data");
    for (i = 0; i < LENGTHS; i++) {
        exchange(vi, lengths[i], 1);
        exchange(vi, lengths[i], 3);
    }
    meet();
    end_vi(vi);
    GIVES(VipCloseNic(nic), VIP_SUCCESS);
    printf("rank %d is done\n", me);
    return 0;
}
