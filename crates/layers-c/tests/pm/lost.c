#include "prelude.h"

/* The last node is killed: all waits of the others end, and what came before is still there. */
int main(int argc, char **argv)
{
    static char memory[100];
    char token[PM_MTU];
    pmAddrHandle local, remote;
    caddr_t buffer;
    size_t len;
    int error, last, i;

    start(argc, argv);
    last = size - 1;
    GIVES(pmMLock(pmc, PM_NODE_ANY, memory, sizeof(memory), &local), PM_SUCCESS);
    meet();
    if (me == last) {
        for (i = 0; i < last; i++)
            put_message(pmc, i, &local, sizeof(local));
        GIVES(done(pmIsSendDone, pmc), PM_SUCCESS);
        for (i = 0; i < last; i++)
            take_message(pmc, token);
        raise(SIGKILL);
    }
    CHECK(take_message(pmc, &remote) == sizeof(remote));
    put_message(pmc, last, "x", 1);
    while ((error = pmReceive(pmc, &buffer, &len)) == ENOBUFS)
        ;
    GIVES(error, EPIPE);
    GIVES(pmReceive(pmc, &buffer, &len), EPIPE);
    GIVES(pmWrite(pmc, last, remote, local, 10), EPIPE);
    GIVES(pmRead(pmc, last, remote, local, 10), EPIPE);
    while ((error = pmGetSendBuffer(pmc, last, &buffer, 8)) == PM_SUCCESS || error == ENOBUFS)
        if (error == PM_SUCCESS && (error = pmSend(pmc)) != PM_SUCCESS)
            break;
    GIVES(error, EPIPE);
    error = done(pmIsSendDone, pmc);
    CHECK(error == PM_SUCCESS || error == EPIPE);

    /* Those who are left go on. */
    put_message(pmc, me, "self", 5);
    CHECK(take_message(pmc, token) == 5 && strcmp(token, "self") == 0);
    printf("node %d goes on\n", me);
    return 0;
}
