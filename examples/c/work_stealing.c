/* Work stealing: all tasks lie with rank 0 at first; whoever has none takes half of another rank's by two atomics and
 * a get, and the victim takes no part.
 *
 * standpipe run -n 4 -- ./work_stealing [tasks]
 */
#include <standpipe.h>
#include <stdio.h>
#include <stdlib.h>

static void check(int status, const char *what) {
    if (status < 0) {
        fprintf(stderr, "work_stealing: %s: %s\n", what, sp_error_text());
        exit(1);
    }
}

/* A rank's tasks: those from `first` to `end` of its own range, both in one word, so that one compare-and-swap takes
 * some. Thieves take from the end. */
static uint64_t range(uint64_t first, uint64_t end) { return first << 32 | end; }

static uint64_t fib(unsigned n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

int main(int argc, char **argv) {
    uint64_t tasks = argc > 1 ? strtoull(argv[1], NULL, 10) : 2000;
    sp_node *node;
    check(sp_open(NULL, &node), "sp_open");
    uint32_t rank = sp_rank(node), size = sp_size(node);

    sp_remote mine;
    void *here;
    check(sp_alloc(node, 64, &mine, &here), "sp_alloc");
    sp_team *world;
    sp_remote *queues = calloc(size, sizeof *queues);
    check(sp_world(node, &world), "sp_world");
    if (rank == 0) check(sp_put_u64(node, mine, range(0, tasks)), "sp_put_u64");
    check(sp_team_all_gather(world, &mine, queues, sizeof mine), "sp_team_all_gather");

    uint64_t done = 0, sum = 0, stolen = 0;
    uint32_t victim = rank;
    for (uint32_t empty = 0; empty < size;) {
        uint64_t all, old;
        check(sp_fetch(node, queues[victim], SP_U64, SP_LOAD, 0, &all), "sp_fetch");
        uint64_t first = all >> 32, end = all & UINT32_MAX;
        if (first == end) { /* nothing there: look at the next one, and stop when nobody had any */
            empty++;
            victim = (victim + 1) % size;
            continue;
        }
        /* Of one's own tasks the first, of another's the second half. */
        uint64_t take = victim == rank ? 1 : (end - first + 1) / 2;
        uint64_t rest = victim == rank ? range(first + 1, end) : range(first, end - take);
        uint64_t from = victim == rank ? first : end - take;
        check(sp_compare_swap(node, queues[victim], SP_U64, all, rest, &old), "sp_compare_swap");
        if (old != all) continue; /* somebody else was quicker */
        empty = 0;
        if (victim != rank) {
            stolen += take;
            /* One's own queue is empty: nobody else changes that. */
            check(sp_put_u64(node, mine, range(from, from + take)), "sp_put_u64");
            victim = rank;
            continue;
        }
        sum += fib(10 + (unsigned)(from % 10));
        done++;
    }
    printf("work_stealing: rank %u did %llu tasks, and had stolen %llu\n", rank, (unsigned long long)done,
           (unsigned long long)stolen);

    uint64_t totals[2] = {done, sum};
    check(sp_team_all_reduce(world, totals, 2, SP_U64, SP_SUM), "sp_team_all_reduce");
    if (rank == 0)
        printf("work_stealing: %llu of %llu tasks, with sum %llu\n", (unsigned long long)totals[0],
               (unsigned long long)tasks, (unsigned long long)totals[1]);
    free(queues);
    sp_team_free(world);
    check(sp_close(node, 10 * SP_SECOND), "sp_close");
    return totals[0] == tasks ? 0 : 1;
}
