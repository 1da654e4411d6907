/* What UCX's registration cache takes to find a region: `ucx_rcache [REGIONS]`. Prints nanoseconds to get a region and to
 * put it back, in random order, each after the one before; the median of nine rounds. Nothing is really registered.
 * Build: cc -O2 ucx_rcache.c -lucs. Needs UCX's headers (Debian: libucx-dev); written for 1.13. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <ucs/memory/rcache.h>

enum { ROUNDS = 9, PAGE = 4096, STRIDE = 2 * PAGE };

static ucs_status_t reg(void *context, ucs_rcache_t *cache, void *arg, ucs_rcache_region_t *region, uint16_t flags)
{
    return UCS_OK;
}

static void dereg(void *context, ucs_rcache_t *cache, ucs_rcache_region_t *region)
{
}

static void dump(void *context, ucs_rcache_t *cache, ucs_rcache_region_t *region, char *text, size_t max)
{
    if (max > 0) text[0] = 0;
}

static double now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Gets the page and puts it back; 0, which only this knows. */
static uintptr_t use(ucs_rcache_t *cache, char *page)
{
    ucs_rcache_region_t *region;
    if (ucs_rcache_get(cache, page, PAGE, PROT_READ | PROT_WRITE, NULL, &region) != UCS_OK) {
        fprintf(stderr, "no region for %p\n", (void *)page);
        exit(1);
    }
    uintptr_t start = region->super.start;
    ucs_rcache_region_put(cache, region);
    return start - (uintptr_t)page;
}

int main(int count, char **args)
{
    size_t regions = count > 1 ? strtoul(args[1], NULL, 10) : 100000;
    char *memory = mmap(NULL, regions * STRIDE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    uint32_t *order = malloc(regions * sizeof *order);
    if (memory == MAP_FAILED || order == NULL || regions == 0) {
        fprintf(stderr, "no memory for %zu regions\n", regions);
        return 1;
    }
    static ucs_rcache_ops_t ops = {.mem_reg = reg, .mem_dereg = dereg, .dump_region = dump};
    ucs_rcache_params_t params = {
        .region_struct_size = sizeof(ucs_rcache_region_t),
        .alignment = PAGE,
        .max_alignment = PAGE,
        .ops = &ops,
        .flags = UCS_RCACHE_FLAG_NO_PFN_CHECK,
        .max_regions = UINT32_MAX,
        .max_size = SIZE_MAX,
        .max_unreleased = SIZE_MAX,
    };
    ucs_rcache_t *cache;
    if (ucs_rcache_create(&params, "lookups", NULL, &cache) != UCS_OK) {
        fprintf(stderr, "no cache\n");
        return 1;
    }
    uint64_t random = 0x5eed;
    for (size_t i = 0; i < regions; i++) {
        use(cache, memory + i * STRIDE);
        order[i] = i;
    }
    for (size_t i = regions - 1; i > 0; i--) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        size_t other = (random >> 33) % (i + 1);
        uint32_t mine = order[i];
        order[i] = order[other];
        order[other] = mine;
    }
    double rounds[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        uintptr_t last = 0;
        double start = now_ns();
        for (size_t i = 0; i < regions; i++) last = use(cache, memory + (size_t)order[i] * STRIDE + last);
        rounds[round] = (now_ns() - start) / regions;
    }
    qsort(rounds, ROUNDS, sizeof *rounds, by_size);
    printf("ucx_ns = %.1f\n", rounds[ROUNDS / 2]);
    return 0;
}
