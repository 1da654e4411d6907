#include "prelude.h"

/* A call that fails leaves all as it was: the buffer that was given before, and contexts that are open. */
int main(int argc, char **argv)
{
    pmContext *plain, *idle, *busy;
    char got[PM_MTU];
    caddr_t kept, buffer;
    pmDevice *device;
    size_t lens[2] = {16, 4000};
    int i, launched = 0;

    start(argc, argv);
    GIVES(pmOpenDevice(PM_MYRINET, 0, NULL, &device), PM_SUCCESS);
    GIVES(pmOpenContext(device, 3, &plain), PM_SUCCESS);
    while (pmGetSendBuffer(pmc, me, &buffer, 17) == PM_SUCCESS) {
        GIVES(pmSend(pmc), PM_SUCCESS);
        launched++;
    }
    for (i = 0; i < 2; i++) {
        /* A buffer is to be had as soon as one message has been taken. */
        CHECK(take_message(pmc, got) == 17);
        while (pmGetSendBuffer(plain, me, &kept, lens[i]) == ENOBUFS) {
            CHECK(take_message(pmc, got) == 17);
            launched--;
        }
        launched--;
        while (pmGetSendBuffer(pmc, me, &buffer, 17) == PM_SUCCESS) {
            GIVES(pmSend(pmc), PM_SUCCESS);
            launched++;
        }
        GIVES(pmGetSendBuffer(plain, me, &buffer, 1), ENOBUFS);
        GIVES(pmGetSendBuffer(plain, -1, &buffer, 1), EINVAL);
        GIVES(pmGetSendBuffer(plain, size, &buffer, 1), EINVAL);
        GIVES(pmGetSendBuffer(plain, me, &buffer, 0), EINVAL);
        GIVES(pmGetSendBuffer(plain, me, &buffer, PM_MTU + 1), EINVAL);
        memset(kept, 'k' + i, lens[i]);
        GIVES(pmSend(plain), PM_SUCCESS);
        CHECK(take_message(plain, got) == lens[i] && got[0] == 'k' + i && got[lens[i] - 1] == 'k' + i);
        GIVES(pmSend(plain), EINVAL);
    }
    for (; launched > 0; launched--)
        CHECK(take_message(pmc, got) == 17);

    /* A short message is not what was in the buffer before it. */
    put_message(plain, me, "0123456789abcdef", 16);
    CHECK(take_message(plain, got) == 16 && memcmp(got, "0123456789abcdef", 16) == 0);
    for (i = 1; i <= 17; i++) {
        GIVES(pmGetSendBuffer(plain, me, &buffer, i), PM_SUCCESS);
        buffer[i - 1] = 'z';
        GIVES(pmSend(plain), PM_SUCCESS);
        while (pmReceive(plain, &buffer, &lens[0]) == ENOBUFS)
            ;
        CHECK(lens[0] == (size_t)i && buffer[i - 1] == 'z' && (i == 1 || buffer[0] == 0));
        CHECK((uintptr_t)buffer % 8 == 0);
        GIVES(pmReleaseReceiveBuffer(plain), PM_SUCCESS);
    }

    /* A device with a context that is busy is not closed, nor is any of its contexts. */
    GIVES(pmOpenContext(device, 0, &idle), PM_SUCCESS);
    GIVES(pmOpenContext(device, 7, &busy), PM_SUCCESS);
    for (i = 0; i < 20; i++)
        put_message(busy, me, &i, sizeof(i));
    GIVES(pmCloseDevice(device), EBUSY);
    GIVES(pmIsSendDone(idle), PM_SUCCESS);
    GIVES(pmIsSendDone(busy), EBUSY);
    for (i = 0; i < 20; i++)
        CHECK(take_message(busy, got) == sizeof(i));
    GIVES(pmCloseDevice(device), PM_SUCCESS);
    GIVES(pmIsSendDone(idle), EINVAL);
    meet();
    return 0;
}
