/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives that the transport module carries out on GPUs, where all ranks of
 * a communicator are on one node and have their buffers in GPU memory.
 *
 * Ranks agree on each call through a page of shared memory, which they make
 * with the first one on a communicator; that takes a broadcast and a reduction.
 * So either all ranks of a program run with this library, or none.
 */
#ifndef UCX_MP_MPI_COLLECTIVE_H_
#define UCX_MP_MPI_COLLECTIVE_H_

#include <mpi.h>
#include <stdbool.h>


/*
 * Every rank says so of every MPI_Allreduce, before all else.
 *
 * @param rc_p  What the wrapper returns, if it is done.
 *
 * @return  Whether it is done; otherwise all ranks go on with the MPI's call.
 */
bool ucx_mp_mpi_allreduce(const void *sendbuf, void *recvbuf, MPI_Count count,
                          MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                          const char *name, int *rc_p);

#endif
