/* What the test programs of am.h share: checks that name their line, and the end of a part. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "am.h"

#define CHECK(holds)                                                                              \
    do {                                                                                          \
        if (!(holds)) {                                                                           \
            fprintf(stderr, "%s:%d: process %d: not so: %s\n", __FILE__, __LINE__, am_my_proc(),  \
                    #holds);                                                                      \
            exit(3);                                                                              \
        }                                                                                         \
    } while (0)

/* How many others have come to the end of a part. */
static volatile long check_arrived;

static void check_arrives(vnn_t from)
{
    (void)from;
    check_arrived++;
}

/* Waits for all processes, as am.h has no barrier: each tells each. */
static void meet(void)
{
    int proc, procs = am_procs();

    for (proc = 0; proc < procs; proc++)
        CHECK(am_request_0(proc, check_arrives) == 0);
    am_wait_for(check_arrived >= procs);
    check_arrived -= procs;
}

static const char *scenario(int argc, char **argv)
{
    return argc > 2 ? argv[2] : "none";
}

static int wanted(int argc, char **argv)
{
    return argc > 1 ? atoi(argv[1]) : 1;
}

#endif
