/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives that the transport module carries out on GPUs: all ranks of the
 * communicator are on one node and have their buffers in GPU memory. For
 * several nodes see nodes.h.
 *
 * The ranks agree on each call through shared memory (comm.h).
 */
#ifndef UCX_MP_MPI_COLLECTIVE_H_
#define UCX_MP_MPI_COLLECTIVE_H_

#include <mpi/arguments.h>
#include <mpi/comm.h>

#include <stdbool.h>


/*
 * Carry out a collective on GPUs, if all ranks agree. Every rank must call this
 * or ucx_mp_mpi_comm_fall_back() for each such call.
 *
 * @param state  NULL: GPUs carry out no call of this communicator.
 * @param rc_p   Set to the wrapper's result if the call is done; an error is
 *               already raised.
 *
 * @return  Whether the call is done, maybe with an error. false: all ranks make
 *          the MPI's call.
 */
bool ucx_mp_mpi_collective(ucx_mp_mpi_comm_t *state,
                           const ucx_mp_mpi_collective_t *args, int *rc_p);

/*
 * Start a non-blocking reduction, if all ranks do so; waits for no rank.
 *
 * @param state      NULL: GPUs carry out no call of this communicator.
 * @param is_usable  false: the arguments look invalid to this rank.
 * @param request_p  Set to the program's request if *rc_p is MPI_SUCCESS.
 * @param rc_p       Set to the wrapper's result if the return value is true.
 *
 * @return  false: all ranks go on with the MPI's call.
 */
bool ucx_mp_mpi_collective_start(ucx_mp_mpi_comm_t *state,
                                 const ucx_mp_mpi_collective_t *args,
                                 bool is_usable, MPI_Request *request_p,
                                 int *rc_p);

/*
 * Put a persistent reduction on GPUs in front of the MPI's, if all ranks agree.
 * Blocks: all ranks initialize it, in one order. It has a team of its own,
 * because ranks may start persistent collectives in different orders.
 *
 * @param state      NULL: GPUs carry out no call of this communicator.
 * @param is_usable  false: the arguments look invalid to this rank.
 * @param request_p  The MPI's persistent request, kept for starts that the
 *                   GPUs decline. Replaced by the program's request, unless a
 *                   rank declines.
 * @param rc         Result of the MPI's initialization; after an error, do
 *                   nothing.
 *
 * @return  The wrapper's result.
 */
int ucx_mp_mpi_persistent_begin(ucx_mp_mpi_comm_t *state,
                                const ucx_mp_mpi_collective_t *args,
                                bool is_usable, MPI_Request *request_p, int rc);

#endif
