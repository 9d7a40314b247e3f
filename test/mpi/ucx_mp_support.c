/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Print whether the MPI reports support of GPU memory: as early as a program
 * may ask, and after MPI_Init.
 */
#include <mpi.h>
#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif

#include <stdio.h>

#ifdef MPI_ABI /* not in the standard: a program looks it up */
#include <dlfcn.h>

static int look_up(void)
{
    int (*query)(void) = (int (*)(void))dlsym(RTLD_DEFAULT,
                                              "MPIX_Query_cuda_support");

    return (query != NULL) && query();
}
#define MPIX_Query_cuda_support look_up
#endif

int main(int argc, char **argv)
{
    int before = 0, after, other, rank;

#ifdef OPEN_MPI
    before = MPIX_Query_cuda_support(); /* MPICH can be asked only later */
#endif
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    other = after = MPIX_Query_cuda_support();
#ifdef MPIX_GPU_SUPPORT_CUDA
    MPIX_GPU_query_support(MPIX_GPU_SUPPORT_CUDA, &other);
#endif
    if (rank == 0) {
        printf("ucx_mp_support: %d before MPI_Init, then %d%s\n", before,
               after, (other == after) ? "" : ", and the other call differs");
    }
    MPI_Finalize();
    return 0;
}
