#include "prelude.h"
#include <sys/wait.h>

/* Node 0 writes to and reads from node 1, which is not near. */
int main(int argc, char **argv)
{
    static char memory[1 << 16];
    struct { pmAddrHandle handle; pid_t pid; } other = {0, getpid()};
    pmAddrHandle local, gone;
    char token[PM_MTU];

    start(argc, argv);
    GIVES(pmMLock(pmc, PM_NODE_ANY, memory, sizeof(memory), &local), PM_SUCCESS);
    if (me == 1) {
        GIVES(pmMLock(pmc, 0, memory, 100, &other.handle), PM_SUCCESS);
        put_message(pmc, 0, &other, sizeof(other));
        CHECK(take_message(pmc, token) == 1);
        GIVES(pmMUnlock(pmc, 0, memory, 100), PM_SUCCESS);
        other.handle = local;
        put_message(pmc, 0, &other, sizeof(other));
        for (;;)
            take_message(pmc, token);
    }
    CHECK(take_message(pmc, &other) == sizeof(other));
    gone = other.handle;
    GIVES(pmWrite(pmc, 1, gone, local, 100), PM_SUCCESS);
    GIVES(done(pmIsWriteDone, pmc), PM_SUCCESS);
    GIVES(pmWrite(pmc, 1, gone, local, 100), PM_SUCCESS);
    GIVES(done(pmIsWriteDone, pmc), PM_SUCCESS);
    put_message(pmc, 1, "u", 1);
    CHECK(take_message(pmc, &other) == sizeof(other));

    /* It has unlocked that, and said so in a message since: what was known of it counts no more. */
    GIVES(pmWrite(pmc, 1, gone, local, 100), PM_SUCCESS);
    GIVES(done(pmIsWriteDone, pmc), EINVAL);
    GIVES(pmIsWriteDone(pmc), PM_SUCCESS);
    GIVES(pmRead(pmc, 1, gone, local, 100), PM_SUCCESS);
    GIVES(done(pmIsReadDone, pmc), EINVAL);
    GIVES(pmIsReadDone(pmc), PM_SUCCESS);
    GIVES(pmRead(pmc, 1, other.handle, local, 100), PM_SUCCESS);
    GIVES(done(pmIsReadDone, pmc), PM_SUCCESS);

    /* It stands still, and is killed. */
    CHECK(kill(other.pid, SIGSTOP) == 0);
    GIVES(pmRead(pmc, 1, other.handle, local, sizeof(memory)), PM_SUCCESS);
    GIVES(pmWrite(pmc, 1, other.handle, local, sizeof(memory)), PM_SUCCESS);
    GIVES(pmIsReadDone(pmc), EBUSY);
    CHECK(kill(other.pid, SIGKILL) == 0);
    GIVES(done(pmIsReadDone, pmc), EPIPE);
    GIVES(pmIsReadDone(pmc), PM_SUCCESS);
    GIVES(done(pmIsWriteDone, pmc), EPIPE);
    GIVES(pmIsWriteDone(pmc), PM_SUCCESS);
    printf("all as it should be\n");
    return 0;
}
