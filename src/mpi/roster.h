/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which ranks of a program run with this library in front of their MPI. A rank
 * without it would take what we send for what the program sends, so that it is
 * found out before any of ours calls MPI:
 * - PMIx, where the MPI starts by it (Open MPI): a key of ours goes out with
 *   those that the MPI itself publishes, before it exchanges them, and is
 *   looked up afterwards;
 * - else PMI (Hydra, as with MPICH), for the ranks of one node: each holds a
 *   name in Linux's abstract namespace of sockets from before the MPI's own
 *   exchange on.
 */
#ifndef UCX_MP_MPI_ROSTER_H_
#define UCX_MP_MPI_ROSTER_H_

#include <stdbool.h>


typedef enum {
    UCX_MP_MPI_ROSTER_ALL,
    UCX_MP_MPI_ROSTER_SOME,   /* some run without it */
    UCX_MP_MPI_ROSTER_UNKNOWN /* started by something else */
} ucx_mp_mpi_roster_t;


/* Before the MPI's own MPI_Init(). */
void ucx_mp_mpi_roster_begin(void);

/*
 * After it; the same answer on all ranks that have the library.
 *
 * @param size       Of MPI_COMM_WORLD.
 * @param first_p    The first rank that has the library, of SOME,
 * @param missing_p  and the first that has not.
 */
ucx_mp_mpi_roster_t ucx_mp_mpi_roster_look(int size, int *first_p,
                                           int *missing_p);

/* All ranks have looked. */
void ucx_mp_mpi_roster_end(void);

#endif
