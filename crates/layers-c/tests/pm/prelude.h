/* What the test programs of PM share. */
#include <score.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <unistd.h>

#define CHECK(what)                                                                                       \
    do {                                                                                                  \
        if (!(what)) {                                                                                    \
            fprintf(stderr, "node %d, line %d: not %s\n", score_self_node, __LINE__, #what);              \
            exit(1);                                                                                      \
        }                                                                                                 \
    } while (0)

#define GIVES(call, code)                                                                                 \
    do {                                                                                                  \
        int gave_ = (call);                                                                               \
        if (gave_ != (code)) {                                                                            \
            fprintf(stderr, "node %d, line %d: %s gives %d (%s), not %s\n", score_self_node, __LINE__,    \
                    #call, gave_, strerror(gave_), #code);                                                \
            exit(1);                                                                                      \
        }                                                                                                 \
    } while (0)

#define me score_self_node
#define size score_num_node

/* A test that hangs ends all the same. */
__attribute__((constructor)) static void limit(void)
{
    alarm(30);
}

/* The stream of the test's messages, and one by which all meet. */
static pmContext *pmc, *meeting;

static inline void start(int argc, char **argv)
{
    pmDevice *device;

    score_initialize(argc, argv);
    pmc = score_pmnet[0];
    CHECK(pmc != NULL);
    GIVES(pmOpenDevice(PM_ETHERNET, 0, NULL, &device), PM_SUCCESS);
    GIVES(pmOpenContext(device, 0, &meeting), PM_SUCCESS);
}

/* Sends a copy of these bytes, once there is a buffer. */
static inline void put_message(pmContext *ctx, int to, const void *from, size_t len)
{
    caddr_t buffer;
    int error;

    while ((error = pmGetSendBuffer(ctx, to, &buffer, len)) == ENOBUFS)
        ;
    GIVES(error, PM_SUCCESS);
    memcpy(buffer, from, len);
    GIVES(pmSend(ctx), PM_SUCCESS);
}

/* Waits for a message, and copies it: its length. */
static inline size_t take_message(pmContext *ctx, void *into)
{
    caddr_t buffer;
    size_t len;
    int error;

    while ((error = pmReceive(ctx, &buffer, &len)) == ENOBUFS)
        ;
    GIVES(error, PM_SUCCESS);
    memcpy(into, buffer, len);
    GIVES(pmReleaseReceiveBuffer(ctx), PM_SUCCESS);
    return len;
}

/* Node 0 hears of all others, and lets them go on. */
static inline void meet(void)
{
    char token[1] = {0};
    int i;

    if (me != 0) {
        put_message(meeting, 0, token, 1);
        CHECK(take_message(meeting, token) == 1);
        return;
    }
    for (i = 1; i < size; i++)
        CHECK(take_message(meeting, token) == 1);
    for (i = 1; i < size; i++)
        put_message(meeting, i, token, 1);
}

static inline int done(int (*test)(pmContext *), pmContext *ctx)
{
    int error;

    while ((error = test(ctx)) == EBUSY)
        ;
    return error;
}
