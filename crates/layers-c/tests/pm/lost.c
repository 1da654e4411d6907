#include "prelude.h"

/* The last node is killed: all waits of the others end, and what came before is still there. */
int main(int argc, char **argv)
{
    static char memory[100];
    char token[PM_MTU];
    pmAddrHandle local, remote;
    caddr_t buffer;
    size_t len;
    pmContext *plain, *full;
    pmDevice *device;
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
    GIVES(pmOpenDevice(PM_MYRINET, 0, NULL, &device), PM_SUCCESS);
    GIVES(pmOpenContext(device, 0, &plain), PM_SUCCESS);
    GIVES(pmGetSendBuffer(plain, last, &buffer, 8), PM_SUCCESS);
    /* More than it takes, on a context that it never looks at: they wait as it dies. */
    GIVES(pmOpenContext(device, 1, &full), PM_SUCCESS);
    for (i = 0; i < 100; i++)
        put_message(full, last, "full", 5);
    GIVES(pmIsSendDone(full), EBUSY);
    put_message(pmc, last, "x", 1);
    while ((error = pmReceive(pmc, &buffer, &len)) == ENOBUFS)
        ;
    GIVES(error, EPIPE);
    GIVES(pmReceive(pmc, &buffer, &len), EPIPE);
    GIVES(pmWrite(pmc, last, remote, local, 10), EPIPE);
    GIVES(pmRead(pmc, last, remote, local, 10), EPIPE);
    GIVES(done(pmIsSendDone, full), EPIPE);
    GIVES(pmIsSendDone(full), PM_SUCCESS);
    GIVES(pmSend(plain), EPIPE);

    /* A buffer is given while there is one, and then EPIPE. */
    GIVES(pmGetSendBuffer(plain, last, &buffer, 8), PM_SUCCESS);
    for (i = 0; pmGetSendBuffer(full, me, &buffer, 8) == PM_SUCCESS; i++)
        GIVES(pmSend(full), PM_SUCCESS);
    GIVES(pmGetSendBuffer(full, me, &buffer, 8), ENOBUFS);
    GIVES(pmGetSendBuffer(full, last, &buffer, 8), EPIPE);
    GIVES(pmSend(plain), EPIPE);
    for (; i > 0; i--)
        take_message(full, token);

    /* Those who are left go on. */
    put_message(pmc, me, "self", 5);
    CHECK(take_message(pmc, token) == 5 && strcmp(token, "self") == 0);
    printf("node %d goes on\n", me);
    return 0;
}
