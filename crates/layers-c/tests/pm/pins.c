#include "prelude.h"
#include <sys/mman.h>

/* Memory that is pinned for real, with a budget of 1 MiB for this process's own use. */
int main(int argc, char **argv)
{
    enum { PART = 1 << 17, PARTS = 32 };
    struct standpipe_pm_pin_down now, after;
    pmAddrHandle handles[PARTS], again;
    char *memory;
    int i, error, locked = 0;

    static char unwatched[PART];

    start(argc, argv);
    /* The program's own data are locked without a pin, and without room. */
    GIVES(pmMLock(pmc, PM_NODE_ANY, unwatched, PART, &again), PM_SUCCESS);
    GIVES(pmMUnlock(pmc, PM_NODE_ANY, unwatched, PART), PM_SUCCESS);
    CHECK(posix_memalign((void **)&memory, 4096, PARTS * PART) == 0);
    memset(memory, 1, PARTS * PART);
    CHECK(standpipe_pm_levels(pmc) == (PM_REMOTE_WRITE | PM_REMOTE_READ));
    GIVES(pmMLock(pmc, PM_NODE_ANY, memory, PARTS * PART, &again), ENOSPC);
    GIVES(pmMLock(pmc, PM_NODE_ANY, (caddr_t)(1L << 46), 100, &again), EINVAL);
    while (locked < PARTS) {
        error = pmMLock(pmc, PM_NODE_ANY, memory + locked * PART, PART, &handles[locked]);
        if (error == ENOSPC)
            break;
        GIVES(error, PM_SUCCESS);
        locked++;
    }
    CHECK(locked >= 2 && locked < PARTS);
    GIVES(standpipe_pm_pin_down(pmc, &now), PM_SUCCESS);
    CHECK(now.misses == (unsigned long)locked + 1 && now.hits == 0 && now.held_bytes <= now.budget_bytes);

    /* Unlocked memory stays pinned: it is a hit. Then its room is needed. */
    GIVES(pmMUnlock(pmc, PM_NODE_ANY, memory, PART), PM_SUCCESS);
    GIVES(pmMLock(pmc, PM_NODE_ANY, memory, PART, &again), PM_SUCCESS);
    GIVES(standpipe_pm_pin_down(pmc, &now), PM_SUCCESS);
    CHECK(now.hits == 1 && now.misses == (unsigned long)locked + 1);
    GIVES(pmMUnlock(pmc, PM_NODE_ANY, memory, PART), PM_SUCCESS);
    GIVES(pmMLock(pmc, PM_NODE_ANY, memory + locked * PART, PART, &again), PM_SUCCESS);
    for (i = 1; i <= locked; i++)
        GIVES(pmMUnlock(pmc, PM_NODE_ANY, memory + i * PART, PART), PM_SUCCESS);
    GIVES(pmMUnlock(pmc, PM_NODE_ANY, memory, PART), ENOENT);

    /* Memory that is mapped anew while it is locked is pinned anew. */
    memory = mmap(NULL, PART, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    GIVES(pmMLock(pmc, PM_NODE_ANY, memory, PART, &handles[0]), PM_SUCCESS);
    GIVES(standpipe_pm_pin_down(pmc, &now), PM_SUCCESS);
    CHECK(munmap(memory, PART) == 0);
    CHECK(mmap(memory, PART, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == memory);
    GIVES(pmMLock(pmc, PM_NODE_ANY, memory, PART, &again), PM_SUCCESS);
    CHECK(again == handles[0]);
    GIVES(standpipe_pm_pin_down(pmc, &after), PM_SUCCESS);
    CHECK(after.misses == now.misses + 1 && after.hits == now.hits);
    for (i = 0; i < 2; i++)
        GIVES(pmMUnlock(pmc, PM_NODE_ANY, memory, PART), PM_SUCCESS);
    GIVES(pmMUnlock(pmc, PM_NODE_ANY, memory, PART), ENOENT);
    meet();
    return 0;
}
