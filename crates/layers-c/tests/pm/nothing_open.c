#include "prelude.h"

/* Calls on what is no context, and after the end. */
int main(int argc, char **argv)
{
    struct standpipe_pm_pin_down counters;
    pmContext *contexts[4];
    pmDevice *device;
    pmAddrHandle handle;
    caddr_t buffer;
    size_t len;
    int i, fd, rounds;

    contexts[0] = NULL;
    contexts[1] = (pmContext *)&handle;
    contexts[2] = (pmContext *)(intptr_t)-1;
    contexts[3] = (pmContext *)(intptr_t)8;
    for (rounds = 0; rounds < 3; rounds++) {
        for (i = 0; i < 4; i++) {
            GIVES(pmGetSendBuffer(contexts[i], 0, &buffer, 1), EINVAL);
            GIVES(pmSend(contexts[i]), EINVAL);
            GIVES(pmIsSendDone(contexts[i]), EINVAL);
            GIVES(pmReceive(contexts[i], &buffer, &len), EINVAL);
            GIVES(pmReleaseReceiveBuffer(contexts[i]), EINVAL);
            GIVES(pmMLock(contexts[i], 0, (caddr_t)&handle, 1, &handle), EINVAL);
            GIVES(pmMUnlock(contexts[i], 0, (caddr_t)&handle, 1), EINVAL);
            GIVES(pmWrite(contexts[i], 0, 1, 1, 1), EINVAL);
            GIVES(pmRead(contexts[i], 0, 1, 1, 1), EINVAL);
            GIVES(pmIsWriteDone(contexts[i]), EINVAL);
            GIVES(pmIsReadDone(contexts[i]), EINVAL);
            GIVES(pmCloseContext(contexts[i]), EINVAL);
            GIVES(pmGetFd(contexts[i], &fd), EINVAL);
            GIVES(standpipe_pm_pin_down(contexts[i], &counters), EINVAL);
            GIVES(standpipe_pm_levels(contexts[i]), 0);
            GIVES(pmCloseDevice((pmDevice *)contexts[i]), EINVAL);
            GIVES(pmOpenContext((pmDevice *)contexts[i], 0, &contexts[3]), ENODEV);
        }
        if (rounds == 0) {
            GIVES(pmOpenDevice(PM_COMPOSITE, 0, NULL, &device), PM_SUCCESS);
            GIVES(pmOpenContext(device, 0, &contexts[0]), PM_SUCCESS);
            GIVES(pmGetSendBuffer(contexts[0], 0, NULL, 1), EINVAL);
            GIVES(pmReceive(contexts[0], NULL, &len), EINVAL);
            GIVES(pmReceive(contexts[0], &buffer, NULL), EINVAL);
            GIVES(pmMLock(contexts[0], 0, (caddr_t)&handle, 1, NULL), EINVAL);
            GIVES(pmGetFd(contexts[0], NULL), EINVAL);
            GIVES(standpipe_pm_pin_down(contexts[0], NULL), EINVAL);
            GIVES(pmCloseContext(contexts[0]), PM_SUCCESS);
        } else if (rounds == 1) {
            GIVES(pmCloseDevice(device), PM_SUCCESS);
            GIVES(pmCloseDevice(device), EINVAL);
        }
    }
    (void)argc;
    (void)argv;
    return 0;
}
