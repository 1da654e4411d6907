/* Three small benchmarks of malloc: each prints the nanoseconds of one step, the least of some repetitions. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { REPETITIONS = 7, LIVE = 4096, STEPS = 4000000, BATCH = 1000, BATCHES = 2000 };

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Frees one of some thousand blocks of 16 bytes, and allocates another in its place. */
static double churn(void) {
    static char *blocks[LIVE];
    uint32_t random = 1;
    for (int i = 0; i < LIVE; i++) blocks[i] = malloc(16);
    double begun = seconds();
    for (int i = 0; i < STEPS; i++) {
        random = random * 1664525 + 1013904223;
        char **block = &blocks[random >> 20];
        free(*block);
        *block = malloc(16);
        **block = 1;
    }
    double taken = seconds() - begun;
    for (int i = 0; i < LIVE; i++) free(blocks[i]);
    return taken * 1e9 / STEPS;
}

static _Atomic(void **) handed;

static void *frees(void *argument) {
    for (int batch = 0; batch < BATCHES; batch++) {
        void **blocks;
        while (!(blocks = atomic_exchange(&handed, NULL))) sched_yield();
        for (int i = 0; i < BATCH; i++) free(blocks[i]);
        free(blocks);
    }
    return argument;
}

/* One thread allocates blocks of 16 to 271 bytes, another one frees them. */
static double others(void) {
    pthread_t thread;
    double begun = seconds();
    pthread_create(&thread, NULL, frees, NULL);
    for (int batch = 0; batch < BATCHES; batch++) {
        void **blocks = malloc(BATCH * sizeof *blocks), **none = NULL;
        for (int i = 0; i < BATCH; i++) blocks[i] = memset(malloc(16 + (size_t)i % 256), 1, 8);
        while (!atomic_compare_exchange_weak(&handed, &none, blocks)) {
            none = NULL;
            sched_yield();
        }
    }
    pthread_join(thread, NULL);
    return (seconds() - begun) * 1e9 / BATCHES / BATCH;
}

/* Vectors of 8 bytes that grow to 256 KiB, by one half at a time. */
static double growth(void) {
    enum { ROUNDS = 400, LARGEST = 256 << 10 };
    int steps = 0;
    double begun = seconds();
    for (int round = 0; round < ROUNDS; round++) {
        size_t size = 8;
        char *block = malloc(size);
        for (; size < LARGEST; steps++) {
            size_t larger = size + size / 2;
            block = realloc(block, larger);
            memset(block + size, 1, larger - size);
            size = larger;
        }
        free(block);
    }
    return (seconds() - begun) * 1e9 / steps;
}

int main(int argc, char **argv) {
    double (*run)(void) = argc < 2 ? NULL : !strcmp(argv[1], "churn") ? churn : !strcmp(argv[1], "others") ? others
                                                                          : !strcmp(argv[1], "growth")   ? growth
                                                                                                         : NULL;
    if (!run) {
        fprintf(stderr, "usage: mallocs churn|others|growth\n");
        return 1;
    }
    double least = run();
    for (int i = 1; i < REPETITIONS; i++) {
        double taken = run();
        if (taken < least) least = taken;
    }
    printf("%.2f\n", least);
    return 0;
}
