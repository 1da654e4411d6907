#include "prelude.h"

/* Sends of all lengths find their receives, and end, while the receiver calls nothing at all. */

static volatile int *flag;

int main(int argc, char **argv)
{
    static const unsigned lengths[] = {0, 100, 4096, 100000};
    VIP_VI_HANDLE vi;
    int i;

    (void) argc;
    open_nic();
    vi = make_vi(atoi(argv[1]), NULL, NULL);
    for (i = 0; i < 4 && me == 0; i++)
        post_receive(vi, fill(i, 0, 200000u * (unsigned) i, lengths[i]));
    connect_vi(vi, "computing");
    flag = (volatile int *) (void *) (area.bytes + 600000 + 99996);
    *flag = 0;
    meet();
    if (me == 0) {
        /* The last word of the last message is waited for without any call. */
        while (*flag == 0)
            ;
        for (i = 0; i < 4; i++) {
            GIVES(received(vi, descriptor(i)), VIP_STATUS_OP_RECEIVE);
            CHECK(descriptor(i)->CS.Length == lengths[i]);
        }
    } else {
        memset(area.bytes, 1, 100000);
        for (i = 0; i < 4; i++) {
            post_send(vi, fill(i, 0, 0, lengths[i]));
            GIVES(sent(vi, descriptor(i)), VIP_STATUS_OP_SEND);
        }
    }
    meet();
    end_vi(vi);
    printf("rank %d is done\n", me);
    return 0;
}
