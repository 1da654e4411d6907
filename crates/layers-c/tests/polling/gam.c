/* Calls of GAM that a program polls. */
#include "yields.h"
#include "am.h"

int main(int argc, char **argv)
{
    am_enable(argc > 1 ? atoi(argv[1]) : 1, argc, argv);
    GIVES_AWAY(am_poll());
    printf("node %d is done\n", am_my_proc());
    am_disable();
    return 0;
}
