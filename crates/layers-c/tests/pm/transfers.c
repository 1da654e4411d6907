#include "prelude.h"

enum { LEN = 1 << 18 };

static char mine[LEN], theirs[LEN];

/* What a call tells of a region that is not as it should be: at once, or of a far node when it is done. */
static int late(int (*test)(pmContext *), int error)
{
    return error == PM_SUCCESS ? done(test, pmc) : error;
}

/* Each writes to the next and reads from the one after, by handles that came in messages. */
int main(int argc, char **argv)
{
    struct { pmAddrHandle all, next_only; } regions[16], own;
    char token[PM_MTU];
    pmAddrHandle local, spare;
    int i, next, before;

    start(argc, argv);
    next = (me + 1) % size;
    before = (me + size - 1) % size;
    for (i = 0; i < LEN; i++)
        mine[i] = (char)(i % 251 + me);
    GIVES(pmMLock(pmc, PM_NODE_ANY, theirs, LEN, &own.all), PM_SUCCESS);
    GIVES(pmMLock(pmc, PM_NODE_ANY, mine, LEN, &local), PM_SUCCESS);
    GIVES(pmMLock(pmc, next, theirs, 8, &own.next_only), PM_SUCCESS);
    put_message(pmc, before, &own, sizeof(own));
    CHECK(take_message(pmc, &regions[next]) == sizeof(own));

    /* Bad arguments. */
    GIVES(pmWrite(pmc, -1, regions[next].all, local, 1), EINVAL);
    GIVES(pmWrite(pmc, size, regions[next].all, local, 1), EINVAL);
    GIVES(pmWrite(pmc, next, regions[next].all, local, 0), EINVAL);
    GIVES(pmWrite(pmc, next, regions[next].all, 0, 1), EINVAL);
    GIVES(pmWrite(pmc, next, regions[next].all, local, LEN + 1), EINVAL);
    GIVES(pmWrite(pmc, next, regions[next].all, local + LEN, 1), EINVAL);
    GIVES(late(pmIsWriteDone, pmWrite(pmc, next, regions[next].all + LEN, local, 1)), EINVAL);
    GIVES(late(pmIsWriteDone, pmWrite(pmc, next, regions[next].all + 1, local, LEN)), EINVAL);
    GIVES(late(pmIsWriteDone, pmWrite(pmc, next, 0, local, 1)), EINVAL);
    GIVES(late(pmIsReadDone, pmRead(pmc, next, 0, local, 1)), EINVAL);
    GIVES(pmRead(pmc, next, regions[next].all, local, LEN + 1), EINVAL);
    if (size > 2)
        GIVES(late(pmIsWriteDone, pmWrite(pmc, next, regions[next].next_only, local, 1)), EINVAL);
    GIVES(pmIsWriteDone(pmc), PM_SUCCESS);
    GIVES(pmIsReadDone(pmc), PM_SUCCESS);

    /* All of it, by parts that handles and offsets name. */
    for (i = 0; i < LEN; i += LEN / 4)
        GIVES(pmWrite(pmc, next, regions[next].all + i, local + i, LEN / 4), PM_SUCCESS);
    GIVES(done(pmIsWriteDone, pmc), PM_SUCCESS);
    meet();
    for (i = 0; i < LEN; i++)
        CHECK(theirs[i] == (char)(i % 251 + before));

    /* One byte at the end, read back. */
    GIVES(pmRead(pmc, next, regions[next].all + LEN - 1, local, 1), PM_SUCCESS);
    GIVES(done(pmIsReadDone, pmc), PM_SUCCESS);
    CHECK(mine[0] == (char)((LEN - 1) % 251 + me));
    meet();

    /* A region that is not locked any more, by a number that nobody has used yet. */
    GIVES(pmMLock(pmc, PM_NODE_ANY, theirs + 100, 100, &spare), PM_SUCCESS);
    GIVES(pmMUnlock(pmc, PM_NODE_ANY, theirs + 100, 100), PM_SUCCESS);
    put_message(pmc, before, &spare, sizeof(spare));
    CHECK(take_message(pmc, token) == sizeof(spare));
    memcpy(&spare, token, sizeof(spare));
    GIVES(late(pmIsWriteDone, pmWrite(pmc, next, spare, local, 1)), EINVAL);
    GIVES(pmMUnlock(pmc, PM_NODE_ANY, mine, LEN), PM_SUCCESS);
    GIVES(pmWrite(pmc, next, regions[next].all, local, 1), EINVAL);
    meet();
    return 0;
}
