#include "prelude.h"

/* Buffers to send from and of what has come: limits, locks, and all that the calls give. */
int main(int argc, char **argv)
{
    static char sent[PM_MTU], got[PM_MTU];
    caddr_t buffer, same;
    size_t len;
    int i, next, before, launched = 0;

    start(argc, argv);
    next = (me + 1) % size;
    before = (me + size - 1) % size;
    GIVES(pmReceive(pmc, &buffer, &len), ENOBUFS);
    meet();
    GIVES(pmReleaseReceiveBuffer(pmc), EIO);
    GIVES(pmSend(pmc), EINVAL);
    GIVES(pmGetSendBuffer(pmc, -1, &buffer, 1), EINVAL);
    GIVES(pmGetSendBuffer(pmc, size, &buffer, 1), EINVAL);
    GIVES(pmGetSendBuffer(pmc, next, &buffer, 0), EINVAL);
    GIVES(pmGetSendBuffer(pmc, next, &buffer, PM_MTU + 1), EINVAL);
    GIVES(pmGetSendBuffer(pmc, next, &buffer, (size_t)-1), EINVAL);
    GIVES(pmSend(pmc), EINVAL);

    GIVES(pmGetSendBuffer(pmc, next, &buffer, 1), PM_SUCCESS);
    GIVES(pmGetSendBuffer(pmc, next, &same, 1), EBUSY);
    *buffer = (char)me;
    GIVES(pmSend(pmc), PM_SUCCESS);
    GIVES(pmSend(pmc), EINVAL);
    GIVES(done(pmIsSendDone, pmc), PM_SUCCESS);
    CHECK(take_message(pmc, got) == 1 && got[0] == before);

    /* The longest. It is read where it lies, and locks the context; sending is not locked by it. */
    for (i = 0; i < PM_MTU; i++)
        sent[i] = (char)(i * 7 + me);
    put_message(pmc, next, sent, PM_MTU);
    while (pmReceive(pmc, &buffer, &len) == ENOBUFS)
        ;
    CHECK(len == PM_MTU && (uintptr_t)buffer % 8 == 0);
    GIVES(pmReceive(pmc, &same, &len), EBUSY);
    put_message(pmc, next, "y", 1);
    for (i = 0; i < PM_MTU; i++)
        CHECK(buffer[i] == (char)(i * 7 + before));
    GIVES(pmReleaseReceiveBuffer(pmc), PM_SUCCESS);
    GIVES(pmReleaseReceiveBuffer(pmc), EIO);
    CHECK(take_message(pmc, got) == 1 && got[0] == 'y');

    /* A receiver that takes nothing: buffers run out, and no call waits; then all arrive, in their order. */
    while (pmGetSendBuffer(pmc, me, &buffer, sizeof(int)) == PM_SUCCESS) {
        *(int *)buffer = launched++;
        GIVES(pmSend(pmc), PM_SUCCESS);
        CHECK(launched < 100000);
    }
    /* All buffers, and the window, of which a few places may not have been given back yet. */
    CHECK(launched > 256 + 8 && launched <= 256 + 16);
    GIVES(pmGetSendBuffer(pmc, me, &buffer, 1), ENOBUFS);
    GIVES(pmIsSendDone(pmc), EBUSY);
    GIVES(pmCloseContext(pmc), EBUSY);
    for (i = 0; i < launched; i++) {
        int number;

        CHECK(take_message(pmc, got) == sizeof(int));
        memcpy(&number, got, sizeof(int));
        CHECK(number == i);
    }
    GIVES(pmIsSendDone(pmc), PM_SUCCESS);
    GIVES(pmReceive(pmc, &buffer, &len), ENOBUFS);
    return 0;
}
