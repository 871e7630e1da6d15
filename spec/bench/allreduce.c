/* Prints the median seconds of MPI_Allreduce of f32 sums: allreduce BYTES TIMES. The rival of spec/bench/reach.lua,
 * which compiles it with mpicc. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    int rank, times = argc > 2 ? atoi(argv[2]) : 9;
    long n = (argc > 1 ? atol(argv[1]) : 65536) / 4;
    float *from = malloc(n * sizeof *from), *to = malloc(n * sizeof *to);
    double *each = malloc(times * sizeof *each);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (long i = 0; i < n; i++) from[i] = (float)(rank + i % 7), to[i] = 0;
    for (int k = -2; k < times; k++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double began = MPI_Wtime();
        MPI_Allreduce(from, to, (int)n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        if (k >= 0) each[k] = MPI_Wtime() - began;
    }
    qsort(each, times, sizeof *each, compare);
    if (rank == 0) printf("%.9g\n", each[times / 2]);
    MPI_Finalize();
    return 0;
}
