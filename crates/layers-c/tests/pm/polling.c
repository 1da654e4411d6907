#include "prelude.h"
#include <pthread.h>

/* What has come while nobody polled is there for the first who does. */
static void polling(void)
{
    caddr_t buffer;
    size_t len;
    int i;

    meet();
    put_message(pmc, (me + 1) % size, &me, sizeof(me));
    meet();
    usleep(50000);
    for (i = 0; pmReceive(pmc, &buffer, &len) == ENOBUFS; i++)
        CHECK(i < 1000000);
    CHECK(len == sizeof(int) && *(int *)buffer == (me + size - 1) % size);
    GIVES(pmReleaseReceiveBuffer(pmc), PM_SUCCESS);
    meet();
}

static pmContext *contexts[2];

static void *talk(void *which)
{
    int i, number;

    for (i = 0; i < 2000; i++) {
        put_message(contexts[*(int *)which], me, &i, sizeof(i));
        CHECK(take_message(contexts[*(int *)which], &number) == sizeof(number) && number == i);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int numbers[2] = {0, 1}, i;
    pthread_t threads[2];
    pmDevice *device;

    start(argc, argv);
    polling();
    GIVES(pmOpenDevice(PM_SHMEM, 0, NULL, &device), PM_SUCCESS);
    for (i = 0; i < 2; i++)
        GIVES(pmOpenContext(device, i, &contexts[i]), PM_SUCCESS);
    for (i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, talk, &numbers[i]) == 0);
    for (i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    meet();
    return 0;
}
