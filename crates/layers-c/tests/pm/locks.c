#include "prelude.h"

enum { PAGE = 4096 };

static void counts(unsigned long hits, unsigned long misses, unsigned long evictions, unsigned long pages)
{
    struct standpipe_pm_pin_down now;

    GIVES(standpipe_pm_pin_down(pmc, &now), PM_SUCCESS);
    if (now.hits != hits || now.misses != misses || now.evictions != evictions ||
        now.held_bytes != pages * PAGE) {
        fprintf(stderr, "%lu hits, %lu misses, %lu evictions, %lu bytes\n", now.hits, now.misses,
                now.evictions, now.held_bytes);
        CHECK(!"the counts");
    }
}

/* Locked memory by its addresses, with a budget of eight pages. */
int main(int argc, char **argv)
{
    char *memory;
    pmAddrHandle handle, again, other;
    pmContext *plain;
    pmDevice *device;

    start(argc, argv);
    CHECK(standpipe_pm_levels(pmc) == (PM_REMOTE_WRITE | PM_REMOTE_READ));
    CHECK(posix_memalign((void **)&memory, PAGE, 32 * PAGE) == 0);
    GIVES(pmMLock(pmc, -2, memory, 1, &handle), EINVAL);
    GIVES(pmMLock(pmc, size, memory, 1, &handle), EINVAL);
    GIVES(pmMLock(pmc, 0, memory, 0, &handle), EINVAL);
    GIVES(pmMLock(pmc, 0, NULL, 1, &handle), EINVAL);
    GIVES(pmMLock(pmc, 0, memory, (size_t)-1, &handle), EINVAL);
    GIVES(pmMUnlock(pmc, 0, memory, PAGE), ENOENT);
    GIVES(pmMUnlock(pmc, 0, memory, 0), EINVAL);
    GIVES(pmMUnlock(pmc, size, memory, PAGE), EINVAL);
    counts(0, 0, 0, 0);

    /* At the budget, and one byte beyond it: nothing has changed then. */
    GIVES(pmMLock(pmc, PM_NODE_ANY, memory, 8 * PAGE + 1, &handle), ENOSPC);
    counts(0, 0, 0, 0);
    GIVES(pmMLock(pmc, PM_NODE_ANY, memory, 8 * PAGE, &handle), PM_SUCCESS);
    counts(0, 1, 0, 8);
    GIVES(pmMLock(pmc, PM_NODE_ANY, memory + 8 * PAGE, 1, &other), ENOSPC);
    counts(0, 1, 0, 8);

    /* Locks of the same memory are counted. */
    GIVES(pmMLock(pmc, PM_NODE_ANY, memory, 8 * PAGE, &again), PM_SUCCESS);
    CHECK(again == handle && handle != 0);
    GIVES(pmMUnlock(pmc, PM_NODE_ANY, memory, 8 * PAGE), PM_SUCCESS);
    GIVES(pmMLock(pmc, PM_NODE_ANY, memory + 8 * PAGE, 1, &other), ENOSPC);
    GIVES(pmMUnlock(pmc, PM_NODE_ANY, memory, 4 * PAGE), ENOENT);
    GIVES(pmMUnlock(pmc, 0, memory, 8 * PAGE), ENOENT);
    GIVES(pmMUnlock(pmc, PM_NODE_ANY, memory, 8 * PAGE), PM_SUCCESS);
    GIVES(pmMUnlock(pmc, PM_NODE_ANY, memory, 8 * PAGE), ENOENT);

    /* The release is delayed: the memory is held still, and a lock of a part of it is a hit. */
    counts(1, 1, 0, 8);
    GIVES(pmMLock(pmc, 0, memory + 3 * PAGE, PAGE, &other), PM_SUCCESS);
    counts(2, 1, 0, 8);
    CHECK(other != handle);
    GIVES(pmMUnlock(pmc, 0, memory + 3 * PAGE, PAGE), PM_SUCCESS);
    GIVES(pmMLock(pmc, 0, memory + 16 * PAGE, PAGE, &other), PM_SUCCESS);
    counts(2, 2, 1, 1);

    GIVES(pmOpenDevice(PM_MYRINET, 0, NULL, &device), PM_SUCCESS);
    GIVES(pmOpenContext(device, 0, &plain), PM_SUCCESS);
    GIVES(pmMLock(plain, PM_NODE_ANY, memory, PAGE, &handle), EINVAL);
    GIVES(pmMUnlock(plain, PM_NODE_ANY, memory, PAGE), EINVAL);
    GIVES(pmMLock(plain, me, memory, PAGE, &handle), PM_SUCCESS);
    return 0;
}
