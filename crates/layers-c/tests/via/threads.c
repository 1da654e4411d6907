#include "prelude.h"
#include <pthread.h>

/* Several threads with a VI each: more threads than cores. */

#define THREADS 4
#define ROUNDS 200

static VIP_VI_HANDLE vis[THREADS];

/* Sends a message and waits for its answer, again and again; rank 0 answers. */
static void *talk(void *number)
{
    int at = (int) (intptr_t) number, round;
    unsigned base = 100000u * (unsigned) at, len;
    VIP_DESCRIPTOR *in = descriptor(2 * at), *out = descriptor(2 * at + 1), *ended;

    for (round = 0; round < ROUNDS; round++) {
        len = round % 10 ? 64 : 20000;
        if (me == 1) {
            post_receive(vis[at], fill(2 * at, 0, base, 20000));
            memset(area.bytes + base + 50000, round, len);
            post_send(vis[at], fill(2 * at + 1, 0, base + 50000, len));
            GIVES(sent(vis[at], out), VIP_STATUS_OP_SEND);
        }
        GIVES(received(vis[at], in), VIP_STATUS_OP_RECEIVE);
        CHECK(in->CS.Length == len && area.bytes[base] == (char) round && area.bytes[base + len - 1] == (char) round);
        if (me == 0) {
            memcpy(area.bytes + base + 50000, area.bytes + base, len);
            post_receive(vis[at], fill(2 * at, 0, base, 20000));
            post_send(vis[at], fill(2 * at + 1, 0, base + 50000, len));
            GIVES(sent(vis[at], out), VIP_STATUS_OP_SEND);
        }
    }
    GIVES(VipSendDone(vis[at], &ended), VIP_DESCRIPTOR_ERROR);
    CHECK(ended == NULL);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    int i;

    (void) argc;
    open_nic();
    for (i = 0; i < THREADS; i++) {
        vis[i] = make_vi(atoi(argv[1]), NULL, NULL);
        if (me == 0)
            post_receive(vis[i], fill(2 * i, 0, 100000u * (unsigned) i, 20000));
        connect_vi(vis[i], "threads");
    }
    meet();
    for (i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, talk, (void *) (intptr_t) i) == 0);
    for (i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    meet();
    for (i = 0; i < THREADS; i++)
        end_vi(vis[i]);
    printf("rank %d is done\n", me);
    return 0;
}
