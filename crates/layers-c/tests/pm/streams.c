#include "prelude.h"

enum { MESSAGES = 300, STREAMS = 3 };

/* Everybody to everybody, itself too, on several contexts: each pair and context keeps its order. */
int main(int argc, char **argv)
{
    int expected[STREAMS][16], sent[STREAMS][16], left, to, i, stream;
    pmContext *contexts[STREAMS];
    pmDevice *device;
    struct { int from, stream, number; } message;

    start(argc, argv);
    GIVES(pmOpenDevice(PM_MYRINET, 0, NULL, &device), PM_SUCCESS);
    contexts[0] = pmc;
    for (i = 1; i < STREAMS; i++)
        GIVES(pmOpenContext(device, i, &contexts[i]), PM_SUCCESS);
    memset(expected, 0, sizeof(expected));
    memset(sent, 0, sizeof(sent));
    left = 2 * MESSAGES * STREAMS * size;
    while (left > 0)
        for (stream = 0; stream < STREAMS; stream++) {
            caddr_t buffer;
            size_t len;
            int error;

            for (to = 0; to < size; to++) {
                if (sent[stream][to] == MESSAGES)
                    continue;
                error = pmGetSendBuffer(contexts[stream], to, &buffer, sizeof(message));
                if (error == ENOBUFS)
                    continue;
                GIVES(error, PM_SUCCESS);
                message.from = me;
                message.stream = stream;
                message.number = sent[stream][to]++;
                memcpy(buffer, &message, sizeof(message));
                GIVES(pmSend(contexts[stream]), PM_SUCCESS);
                left--;
            }
            if ((error = pmReceive(contexts[stream], &buffer, &len)) == ENOBUFS)
                continue;
            GIVES(error, PM_SUCCESS);
            memcpy(&message, buffer, sizeof(message));
            CHECK(len == sizeof(message) && message.stream == stream);
            CHECK(message.number == expected[stream][message.from]++);
            GIVES(pmReleaseReceiveBuffer(contexts[stream]), PM_SUCCESS);
            left--;
        }
    return 0;
}
