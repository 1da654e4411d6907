#include "prelude.h"

/* More writes than may be under way, over a network: the next is refused, until some are done. */
int main(int argc, char **argv)
{
    static char memory[1 << 18];
    pmAddrHandle local, remote;
    int i, refused = 0;

    start(argc, argv);
    GIVES(pmMLock(pmc, PM_NODE_ANY, memory, sizeof(memory), &local), PM_SUCCESS);
    put_message(pmc, 1 - me, &local, sizeof(local));
    CHECK(take_message(pmc, &remote) == sizeof(remote));
    for (i = 0; i < 1000 && refused == 0; i++) {
        int error = pmWrite(pmc, 1 - me, remote, local, sizeof(memory));

        if (error == ENOBUFS)
            refused = i;
        else
            GIVES(error, PM_SUCCESS);
    }
    CHECK(refused >= 64);
    GIVES(pmIsWriteDone(pmc), EBUSY);
    GIVES(pmCloseContext(pmc), EBUSY);
    GIVES(done(pmIsWriteDone, pmc), PM_SUCCESS);
    GIVES(pmWrite(pmc, 1 - me, remote, local, 8), PM_SUCCESS);
    GIVES(done(pmIsWriteDone, pmc), PM_SUCCESS);
    meet();
    return 0;
}
