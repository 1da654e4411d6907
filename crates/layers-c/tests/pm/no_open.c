#include "prelude.h"

/* PM cannot be had: pmOpenDevice gives the number that is the first argument, each time. */
int main(int argc, char **argv)
{
    pmDevice *device;
    int i;

    for (i = 0; i < 2; i++)
        GIVES(pmOpenDevice(PM_MYRINET, 0, NULL, &device), atoi(argv[1]));
    (void)argc;
    return 0;
}
