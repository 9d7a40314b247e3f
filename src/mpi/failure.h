/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Staging errors in collectives. A rank unable to stage its buffers reports
 * so in the node's shared segment, and still takes part in the MPI's call.
 * Receivers of its data see the report after their own call, and return an
 * error. While there is no report, the check is one memory read.
 *
 * Only ranks on the same node see a report, and only for communicators with a
 * key (comm.h). A rank without data from the failed one may return
 * before the report: its result is correct.
 */
#ifndef UCX_MP_MPI_FAILURE_H_
#define UCX_MP_MPI_FAILURE_H_

#include <mpi/job.h>

#include <stdint.h>


/* Identifies one collective call; equal on all ranks of the communicator */
typedef struct {
    uint64_t key;    /* key of the communicator; 0: failures are not reported */
    uint64_t number;
    uint32_t start;  /* of a persistent collective: number of starts */
} ucx_mp_mpi_ordinal_t;


/* Report that this rank cannot stage its buffers for a call; before the MPI's
   call, so that ranks with its data see it. `rank`: in the communicator. Does
   nothing if the key is 0. */
void ucx_mp_mpi_failure_report(ucx_mp_mpi_ordinal_t ordinal, int rank);

/* Raise an error if another rank reported a failure of this call. @return The
   new error code; `rc` if there is no report or `rc` is already an error. */
int ucx_mp_mpi_failure_find(ucx_mp_mpi_ordinal_t ordinal, const char *name,
                            MPI_Comm comm, int rc);

/* Raise the error of a collective that the module could not carry out: `result`
   says whether the arguments differ. `why`: the module's text. @return The new
   error code. */
int ucx_mp_mpi_failure_raise(uct_cuda_coll_result_t result, const char *name,
                             MPI_Comm comm, const char *why);

/* Check for reports at the end of a call: one memory read if there are none.
   @return As ucx_mp_mpi_failure_find(). */
static inline int ucx_mp_mpi_failure_end(ucx_mp_mpi_ordinal_t ordinal,
                                         const char *name, MPI_Comm comm,
                                         int rc)
{
    return __builtin_expect(__atomic_load_n(ucx_mp_mpi_failures,
                                            __ATOMIC_ACQUIRE) == 0, 1) ?
                   rc :
                   ucx_mp_mpi_failure_find(ordinal, name, comm, rc);
}

#endif
