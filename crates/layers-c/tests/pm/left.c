#include "prelude.h"

/* The others end in order, after their last messages: these arrive, and then there is no more to wait for. */
int main(int argc, char **argv)
{
    char token[PM_MTU];
    caddr_t buffer;
    size_t len;
    int error, i, number, sum = 0;

    start(argc, argv);
    if (me != 0) {
        for (i = 0; i < 100; i++)
            put_message(pmc, 0, &i, sizeof(i));
        if (me == 1)
            sleep(1);
        return 0;
    }
    usleep(200000);
    for (i = 0; i < 100 * (size - 1); i++) {
        CHECK(take_message(pmc, token) == sizeof(number));
        memcpy(&number, token, sizeof(number));
        sum += number;
    }
    CHECK(sum == 4950 * (size - 1));
    while ((error = pmReceive(pmc, &buffer, &len)) == ENOBUFS)
        ;
    GIVES(error, EPIPE);
    return 0;
}
