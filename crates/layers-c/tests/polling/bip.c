/* Calls of BIP that a program polls. */
#include "yields.h"
#include "bip.h"

#define LONG 100000

static int words[LONG], into[LONG];

int main(void)
{
    int id, send, len, src, other;

    bip_init();
    other = 1 - bip_mynode;
    id = bip_tirecv(3, into, LONG);
    GIVES_AWAY(bip_rtest(id));
    GIVES_AWAY(bip_rtestx(id, &src));
    GIVES_AWAY(bip_tnrecv(4, into, LONG));
    GIVES_AWAY(bip_tnrecvx(4, into, LONG, &src));
    GIVES_AWAY(bip_tngetmsg(5, &len, &src));
    if (bip_mynode == 0) {
        /* The other one receives this only once it has been told. */
        send = bip_tisend(other, 6, words, LONG);
        GIVES_AWAY(bip_stest(send));
        bip_swait(send);
    } else {
        usleep(300000);
        bip_trecv(6, words, LONG);
    }
    bip_tsend(other, 3, words, 1);
    bip_rwait(id);
    printf("node %d is done\n", bip_mynode);
    return 0;
}
