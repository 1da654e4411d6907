#include "prelude.h"
#include <sys/resource.h>

#define OPEN(type, pmdp, ...)                                                                             \
    pmOpenDevice(type, (int)(sizeof((char *[]){__VA_ARGS__}) / sizeof(char *)), (char *[]){__VA_ARGS__}, pmdp)

int main(int argc, char **argv)
{
    pmDevice *myrinet, *ethernet, *agent, *composite, *none;
    pmContext *first, *last, *other, *attached;
    char token[PM_MTU];
    struct rlimit files, none_more = {0, 0};
    int fd, again, pipes[2];
    caddr_t buffer;
    size_t len;

    GIVES(pmOpenDevice("giganet", 0, NULL, &none), ENODEV);
    GIVES(pmOpenDevice("", 0, NULL, &none), ENODEV);
    GIVES(pmOpenDevice(NULL, 0, NULL, &none), EINVAL);
    GIVES(pmOpenDevice(PM_MYRINET, 0, NULL, NULL), EINVAL);
    GIVES(pmOpenDevice(PM_MYRINET, -1, NULL, &none), EINVAL);
    GIVES(pmOpenDevice(PM_MYRINET, 2, NULL, &none), EINVAL);
    GIVES(OPEN(PM_MYRINET, &none, "-config"), EINVAL);
    GIVES(OPEN(PM_MYRINET, &none, "-config", NULL), EINVAL);
    GIVES(OPEN(PM_MYRINET, &none, "-colour", "red"), EINVAL);
    GIVES(OPEN(PM_MYRINET, &none, "-trunk:x", "file"), EINVAL);
    GIVES(OPEN(PM_MYRINET, &none, "-agent", "pmaudp"), EINVAL);
    GIVES(OPEN(PM_AGENT, &none, "-agent", "other"), EINVAL);
    GIVES(pmOpenDevice(PM_AGENT, 0, NULL, &none), EINVAL);
    GIVES(OPEN(PM_MYRINET, &myrinet, "-config", "/no/such/file", "-firmware", "/nor/this"), PM_SUCCESS);
    GIVES(pmOpenDevice(PM_MYRINET, 0, NULL, &none), ENODEV);
    GIVES(OPEN(PM_ETHERNET, &ethernet, "-trunk:0", "a", "-trunk:1", "b"), PM_SUCCESS);
    GIVES(OPEN(PM_AGENT, &agent, "-agent", "pmaudp"), PM_SUCCESS);
    GIVES(pmOpenDevice(PM_COMPOSITE, 0, NULL, &composite), PM_SUCCESS);
    CHECK(myrinet != ethernet && ethernet != agent && agent != composite);

    GIVES(pmOpenContext(myrinet, -1, &first), EINVAL);
    GIVES(pmOpenContext(myrinet, 16, &first), EINVAL);
    GIVES(pmOpenContext(myrinet, 0, NULL), EINVAL);
    GIVES(pmOpenContext(myrinet, 0, &first), PM_SUCCESS);
    GIVES(pmOpenContext(myrinet, 0, &other), EBUSY);
    GIVES(pmOpenContext(myrinet, 15, &last), PM_SUCCESS);
    GIVES(pmOpenContext(ethernet, 0, &other), PM_SUCCESS);
    CHECK(first != last && last != other);

    /* A context goes by a descriptor, and what has come is there for whoever attaches. */
    GIVES(pmGetFd(first, &fd), PM_SUCCESS);
    CHECK(pipe(pipes) == 0);
    GIVES(pmAttachContext(PM_MYRINET, -1, &attached), EINVAL);
    GIVES(pmAttachContext(PM_MYRINET, 12345, &attached), EINVAL);
    GIVES(pmAttachContext(PM_MYRINET, pipes[1], &attached), EINVAL);
    GIVES(pmAttachContext(PM_ETHERNET, fd, &attached), ENODEV);
    GIVES(pmAttachContext("giganet", fd, &attached), ENODEV);
    GIVES(pmAttachContext(NULL, fd, &attached), EINVAL);
    GIVES(pmAttachContext(PM_MYRINET, fd, NULL), EINVAL);
    GIVES(pmAttachContext(PM_MYRINET, fd, &attached), PM_SUCCESS);
    CHECK(attached == first);
    put_message(first, 0, "hello", 6);
    GIVES(pmCloseContext(first), PM_SUCCESS);
    GIVES(pmSend(first), EINVAL);
    GIVES(pmAttachContext(PM_MYRINET, fd, &attached), PM_SUCCESS);
    CHECK(take_message(attached, token) == 6 && strcmp(token, "hello") == 0);
    GIVES(pmGetFd(attached, &again), PM_SUCCESS);
    CHECK(again != fd && close(again) == 0 && close(fd) == 0);
    CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
    none_more.rlim_max = files.rlim_max;
    CHECK(setrlimit(RLIMIT_NOFILE, &none_more) == 0);
    GIVES(pmGetFd(attached, &again), EIO);
    CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);

    /* One that is not composite is not locked: the last buffer counts, and a message is given again. */
    GIVES(pmGetSendBuffer(attached, 0, &buffer, 1), PM_SUCCESS);
    *buffer = 'a';
    GIVES(pmGetSendBuffer(attached, 0, &buffer, 1), PM_SUCCESS);
    *buffer = 'b';
    GIVES(pmSend(attached), PM_SUCCESS);
    GIVES(pmSend(attached), EINVAL);
    while (pmReceive(attached, &buffer, &len) == ENOBUFS)
        ;
    CHECK(len == 1 && *buffer == 'b');
    GIVES(pmReceive(attached, &buffer, &len), PM_SUCCESS);
    CHECK(len == 1 && *buffer == 'b');
    GIVES(pmReleaseReceiveBuffer(attached), PM_SUCCESS);
    GIVES(pmReceive(attached, &buffer, &len), ENOBUFS);

    GIVES(pmCloseDevice(myrinet), PM_SUCCESS);
    GIVES(pmSend(attached), EINVAL);
    GIVES(pmOpenContext(myrinet, 0, &first), ENODEV);
    GIVES(pmOpenDevice(PM_MYRINET, 0, NULL, &myrinet), PM_SUCCESS);
    GIVES(pmOpenContext(myrinet, 0, &first), PM_SUCCESS);
    put_message(other, 0, "x", 1);
    CHECK(take_message(other, token) == 1);
    (void)argc;
    (void)argv;
    return 0;
}
