/* Counts how often the library gives the processor away: its calls of sched_yield come to this one. */
#ifndef YIELDS_H
#define YIELDS_H

#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile int yields;

int sched_yield(void)
{
    yields++;
    return (int) syscall(SYS_sched_yield);
}

/* All processes share one core, so that each job of two has more processes than cores. */
__attribute__((constructor)) static void share_a_core(void)
{
    cpu_set_t mine, one;
    int core = 0;

    alarm(60);
    if (sched_getaffinity(0, sizeof(mine), &mine) != 0)
        abort();
    while (!CPU_ISSET(core, &mine))
        core++;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    if (sched_setaffinity(0, sizeof(one), &one) != 0)
        abort();
}

/* Makes a call again and again, which finds nothing: it comes to give the processor away nearly each time. */
#define GIVES_AWAY(call)                                                                          \
    do {                                                                                          \
        int calls_;                                                                               \
        for (yields = 0, calls_ = 0; yields < 200 && calls_ < 100000; calls_++)                   \
            call;                                                                                 \
        if (yields < 200) {                                                                       \
            fprintf(stderr, "line %d: %s gives the processor away %d times in %d\n", __LINE__,    \
                    #call, yields, calls_);                                                       \
            exit(3);                                                                              \
        }                                                                                         \
    } while (0)

#endif
