/* The updates of `standpipe-study gups` by MPI's one-sided operations, on memory that a window allocates: puts, and
 * accumulates by exclusive or, 1,024 at a time. Says what the library calls itself, then prints a line for each: what it is,
 * GUPS, and words that are not what they must be, of which the untimed round of puts is the first, so that memory is mapped then.
 * Arguments: words of the table (a power of two), updates of all processes. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOOKAHEAD = 1024 };

static uint64_t step(uint64_t number) { return number << 1 ^ (number >> 63 ? 7 : 0); }

/* The number after which the sequence goes on when so many are skipped. */
static uint64_t after(uint64_t skipped) {
    uint64_t squares[64], power = 1, number = 1;
    for (int j = 0; j < 64; j++) {
        squares[j] = power;
        power = step(step(power));
    }
    for (int bit = 63; bit >= 0; bit--) {
        uint64_t square = 0;
        for (int j = 0; j < 64; j++)
            if (number >> j & 1) square ^= squares[j];
        number = skipped >> bit & 1 ? step(square) : square;
    }
    return number;
}

static uint64_t words, each, first, count, updates;
static int rank, size, shift;

/* Who holds a word, and where: without a division where all have a power of two of them, as ours finds it. */
static int holder(uint64_t index) { return (int)(shift >= 0 ? index >> shift : index / each); }

static uint64_t place(uint64_t index) { return shift >= 0 ? index & (each - 1) : index % each; }

/* Words of this process's share that are not what all updates must make of them. */
static long wrong(const uint64_t *share, uint64_t held, int puts) {
    uint64_t *again = malloc(held * 8 + 8), number = 1;
    long found = 0;
    for (uint64_t i = 0; i < held; i++) again[i] = puts ? 0 : share[i];
    for (uint64_t i = 0; i < updates; i++) {
        number = step(number);
        uint64_t index = number & (words - 1);
        if (holder(index) != rank) continue;
        if (puts) again[place(index)] = 1;
        else again[place(index)] ^= number;
    }
    for (uint64_t i = 0; i < held; i++) {
        uint64_t index = rank * each + i;
        if (!puts) found += again[i] != index;
        else found += again[i] ? (share[i] & (words - 1)) != index : share[i] != ~index;
    }
    free(again);
    return found;
}

static double round_of(MPI_Win window, uint64_t *share, uint64_t held, int puts) {
    /* A place for each number: MPICH 4.0 may read an origin after the flush that completes it. */
    uint64_t *numbers = malloc(count * 8 + 8);
    for (uint64_t i = 0; i < held; i++) share[i] = puts ? ~(rank * each + i) : rank * each + i;
    MPI_Win_sync(window);
    MPI_Barrier(MPI_COMM_WORLD);
    double begun = MPI_Wtime();
    uint64_t number = after(first);
    for (uint64_t done = 0; done < count;) {
        int some = count - done < LOOKAHEAD ? (int)(count - done) : LOOKAHEAD;
        for (int i = 0; i < some; i++) {
            uint64_t *origin = numbers + done + i;
            number = *origin = step(number);
            uint64_t index = number & (words - 1);
            int to = holder(index);
            MPI_Aint at = (MPI_Aint)place(index);
            if (puts) MPI_Put(origin, 1, MPI_UINT64_T, to, at, 1, MPI_UINT64_T, window);
            else MPI_Accumulate(origin, 1, MPI_UINT64_T, to, at, 1, MPI_UINT64_T, MPI_BXOR, window);
        }
        MPI_Win_flush_all(window);
        done += some;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    double took = MPI_Wtime() - begun, longest;
    free(numbers);
    MPI_Win_sync(window);
    MPI_Allreduce(&took, &longest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return longest;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 3) MPI_Abort(MPI_COMM_WORLD, 2);
    words = strtoull(argv[1], 0, 10);
    updates = strtoull(argv[2], 0, 10);
    each = (words + size - 1) / size;
    shift = each & (each - 1) ? -1 : __builtin_ctzll(each);
    first = (uint64_t)((unsigned __int128)updates * rank / size);
    count = (uint64_t)((unsigned __int128)updates * (rank + 1) / size) - first;
    uint64_t begins = rank * each < words ? rank * each : words;
    uint64_t ends = begins + each < words ? begins + each : words, held = ends - begins;
    uint64_t *share;
    MPI_Win window;
    MPI_Win_allocate((MPI_Aint)(each * 8), 8, MPI_INFO_NULL, MPI_COMM_WORLD, &share, &window);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(library, &length);
    if (rank == 0) printf("library %.*s\n", (int)strcspn(library, "\n"), library);
    round_of(window, share, held, 1);
    long untimed = wrong(share, held, 1);
    for (int puts = 1; puts >= 0; puts--) {
        double took = round_of(window, share, held, puts);
        long mine = wrong(share, held, puts) + (puts ? untimed : 0), all;
        MPI_Reduce(&mine, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
        if (rank == 0) printf("%s %.9f %ld\n", puts ? "put" : "atomic", updates / took / 1e9, all);
        fflush(stdout);
    }
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
    MPI_Finalize();
    return 0;
}
