/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Non-blocking reductions on GPUs (MPI_Iallreduce, MPI_Ireduce,
 * MPI_Ireduce_scatter and MPI_Ireduce_scatter_block). The request is a
 * generalized one. The module's queue carries out the reductions of a
 * communicator in the order of their starts; UCX's progress drives it.
 *
 * If the GPUs decline a reduction, the MPI carries it out. By then the program
 * may have made other calls on the communicator, more of them on one rank than
 * on another. The MPI's call is therefore made on a duplicate of the
 * communicator without other calls, in the order of the queue. This library
 * creates a duplicate where ranks wait for one another anyway: in MPI_Init, and
 * with a communicator if rank 0 uses GPUs by then (comm.c). For other
 * communicators it does so in the first blocking collective after non-blocking
 * reductions that all ranks would queue, or in the first one on GPUs after any
 * non-blocking reduction. Until then the MPI carries out the non-blocking ones.
 * (Open MPI's MPI_Comm_idup fails beside other non-blocking collectives.)
 *
 * Another rank may wait for the MPI's call of a declined reduction, while this
 * one is in any call of the MPI. The call is therefore made in UCX's progress.
 * It cannot be made there if a rank of MPICH has MPI_THREAD_MULTIPLE: then no
 * reduction of the program is queued.
 */
#ifndef UCX_MP_MPI_REDUCTION_H_
#define UCX_MP_MPI_REDUCTION_H_

#include <mpi/arguments.h>


/* Reductions in progress of a communicator */
typedef struct ucx_mp_mpi_reductions ucx_mp_mpi_reductions_t;

/*
 * Create the queue of a communicator's reductions, or of a persistent one.
 * Aborts without memory.
 *
 * @param duplicate    Communicator of this library for declined reductions; it
 *                     returns errors and is freed with the queue. Null handle:
 *                     declined reductions start `persistent`.
 * @param key, number  Of the duplicate's call counted last (failure.h).
 * @param persistent   The MPI's persistent request of the same call, freed with
 *                     the queue; or the null handle.
 */
ucx_mp_mpi_reductions_t *
ucx_mp_mpi_reductions_create(MPI_Comm duplicate, uint64_t key,
                             const uint64_t *number, MPI_Request persistent);

/* Start a reduction queued by all ranks, without waiting for them. `team` is
   NULL: this rank has declined it before; `reason` is not 0: this rank declines
   it. @return MPI_SUCCESS, with `*request` set, or an error of
   MPI_Grequest_start(). Aborts without memory. */
int ucx_mp_mpi_reduction_start(ucx_mp_mpi_reductions_t *reductions,
                               uct_cuda_coll_team_t *team,
                               const ucx_mp_mpi_collective_t *args,
                               const uct_cuda_coll_call_t *what,
                               uct_cuda_coll_reason_t reason,
                               MPI_Request *request);

/* Wait for all reductions of a communicator or persistent request that is being
   freed, and free the duplicate or the MPI's request, and `reductions`. Does
   nothing for MPI_COMM_WORLD: the MPI ends. */
void ucx_mp_mpi_reductions_destroy(ucx_mp_mpi_reductions_t *reductions,
                                   MPI_Comm comm);

/* Let the MPI make progress by a probe of @a comm. A probe makes none while it
   finds a message, so that a test of a request follows then. */
void ucx_mp_mpi_progress(MPI_Comm comm);

#endif
