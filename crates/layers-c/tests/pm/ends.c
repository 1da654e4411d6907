#include "prelude.h"

enum { COUNT = 100 };

/* The others launch more than node 0 takes at once, and end. What it does: "late", "never" or "dies". */
int main(int argc, char **argv)
{
    char token[PM_MTU];
    caddr_t buffer;
    size_t len;
    int error, i, sum = 0, number;

    start(argc, argv);
    meet();
    if (me != 0 || strcmp(argv[1], "never") == 0) {
        for (i = 0; i < COUNT; i++)
            put_message(pmc, me != 0 ? 0 : 1, &i, sizeof(i));
        if (me != 0)
            return 0;
    }
    if (strcmp(argv[1], "never") == 0)
        return 0;
    if (strcmp(argv[1], "dies") == 0) {
        usleep(500000);
        raise(SIGKILL);
    }
    sleep(6);
    for (i = 0; i < COUNT * (size - 1); i++) {
        CHECK(take_message(pmc, token) == sizeof(number));
        memcpy(&number, token, sizeof(number));
        sum += number;
    }
    CHECK(sum == COUNT * (COUNT - 1) / 2 * (size - 1));
    while ((error = pmReceive(pmc, &buffer, &len)) == ENOBUFS)
        ;
    GIVES(error, EPIPE);
    return 0;
}
