/* A flood of messages under MPI: rank 0 sends, rank 1 receives and answers the last. Prints nanoseconds a message,
 * the median of 41 floods.
 *
 *     mpicc -O2 -o mpi_flood mpi_flood.c && mpiexec -n 2 ./mpi_flood BYTES MESSAGES
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNDER_WAY = 64, ROUNDS = 41 };

static int by_size(const void *a, const void *b) {
    double difference = *(const double *)a - *(const double *)b;
    return (difference > 0) - (difference < 0);
}

/* One flood; nanoseconds a message. */
static double flood(int rank, char *buffers, int bytes, int messages) {
    MPI_Request requests[UNDER_WAY];
    MPI_Barrier(MPI_COMM_WORLD);
    double begun = MPI_Wtime();
    for (int sent = 0; sent < messages; sent += UNDER_WAY) {
        for (int i = 0; i < UNDER_WAY; i++) {
            char *buffer = buffers + (size_t)i * bytes;
            if (rank == 0)
                MPI_Isend(buffer, bytes, MPI_CHAR, 1, 0, MPI_COMM_WORLD, &requests[i]);
            else
                MPI_Irecv(buffer, bytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD, &requests[i]);
        }
        MPI_Waitall(UNDER_WAY, requests, MPI_STATUSES_IGNORE);
    }
    char last = 0;
    if (rank == 0)
        MPI_Recv(&last, 1, MPI_CHAR, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Send(&last, 1, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
    return 1e9 * (MPI_Wtime() - begun) / messages;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, bytes = argc > 1 ? atoi(argv[1]) : 8, messages = argc > 2 ? atoi(argv[2]) : 6400;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    messages += UNDER_WAY - 1;
    messages -= messages % UNDER_WAY;
    char *buffers = malloc((size_t)bytes * UNDER_WAY);
    memset(buffers, 5, (size_t)bytes * UNDER_WAY);
    double times[ROUNDS];
    flood(rank, buffers, bytes, messages); /* warms up */
    for (int round = 0; round < ROUNDS; round++)
        times[round] = flood(rank, buffers, bytes, messages);
    qsort(times, ROUNDS, sizeof times[0], by_size);
    if (rank == 0)
        printf("%.1f\n", times[ROUNDS / 2]);
    free(buffers);
    MPI_Finalize();
    return 0;
}
