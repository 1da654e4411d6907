#include "prelude.h"

/* Where nothing registers memory, the optional levels are not there. */
int main(int argc, char **argv)
{
    static char memory[100];
    pmAddrHandle handle;

    start(argc, argv);
    CHECK(standpipe_pm_levels(pmc) == 0);
    GIVES(pmMLock(pmc, PM_NODE_ANY, memory, 100, &handle), ENOSYS);
    GIVES(pmMUnlock(pmc, PM_NODE_ANY, memory, 100), ENOSYS);
    GIVES(pmWrite(pmc, 0, 1, 1, 1), ENOSYS);
    GIVES(pmRead(pmc, 0, 1, 1, 1), ENOSYS);
    GIVES(pmIsWriteDone(pmc), PM_SUCCESS);
    GIVES(pmIsReadDone(pmc), PM_SUCCESS);
    meet();
    return 0;
}
