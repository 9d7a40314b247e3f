/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Check that all ranks run with this library preloaded. A rank without it would
 * take this library's messages for the program's, so this library makes no MPI
 * call before the check. There are two ways:
 *
 * - PMIx, if the MPI starts with it (Open MPI): publish a key together with the
 *   MPI's own, before the MPI exchanges them, and look it up afterwards.
 * - PMI (Hydra, MPICH), for ranks on one node: each rank binds a socket name in
 *   Linux's abstract namespace before the MPI's exchange, and the others look
 *   for it.
 */
#ifndef UCX_MP_MPI_RANK_CHECK_H_
#define UCX_MP_MPI_RANK_CHECK_H_


typedef enum {
    UCX_MP_MPI_RANK_CHECK_ALL,
    UCX_MP_MPI_RANK_CHECK_SOME,   /* at least one rank runs without it */
    UCX_MP_MPI_RANK_CHECK_UNKNOWN /* another launcher: unknown */
} ucx_mp_mpi_rank_check_t;


/* Publish this rank. Call before the MPI's MPI_Init(). */
void ucx_mp_mpi_rank_check_begin(void);

/*
 * Look for all ranks. Call after the MPI's MPI_Init(). The result is the same
 * on all ranks with the library.
 *
 * @param size       Number of ranks in MPI_COMM_WORLD.
 * @param first_p    With SOME: set to the first rank with the library.
 * @param missing_p  With SOME: set to the first rank without it.
 */
ucx_mp_mpi_rank_check_t ucx_mp_mpi_rank_check_run(int size, int *first_p,
                                                  int *missing_p);

/* Stop publishing. Call when all ranks have looked. */
void ucx_mp_mpi_rank_check_end(void);

#endif
