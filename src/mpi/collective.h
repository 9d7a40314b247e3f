/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives that the transport module carries out on GPUs, where all ranks of
 * a communicator are on one node and have their buffers in GPU memory. Of
 * several nodes: nodes.h.
 *
 * Ranks agree on each call through a page of shared memory (member.h).
 */
#ifndef UCX_MP_MPI_COLLECTIVE_H_
#define UCX_MP_MPI_COLLECTIVE_H_

#include <mpi/arguments.h>
#include <mpi/member.h>

#include <stdbool.h>


/*
 * A rank whose process uses no GPU, or whose arguments the MPI has to judge,
 * says so of a call of the kinds that the module has, before all else.
 *
 * @param member  NULL: of no use for the module.
 *
 * @return  Whether that is all; otherwise it goes on with the below.
 */
bool ucx_mp_mpi_collective_pass(ucx_mp_mpi_member_t *member, MPI_Comm comm,
                                uct_cuda_coll_kind_t kind,
                                uct_cuda_coll_reason_t reason);

/*
 * Every rank says so of every other such call.
 *
 * @param rc_p  What the wrapper returns, if it is done.
 *
 * @return  Whether it is done; otherwise all ranks go on with the MPI's call.
 */
bool ucx_mp_mpi_collective(ucx_mp_mpi_member_t *member,
                           const ucx_mp_mpi_collective_t *args, int *rc_p);

#endif
