/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank that cannot stage its part of a collective reports so through the
 * node's shared segment, and then takes part in the MPI's call. A rank that has
 * got something from it finds the report when its own call has ended, and
 * returns an error. While no rank has ever failed that is one memory read.
 *
 * Ranks of the same node see a report, of communicators that have a number
 * (member.h). A rank that gets nothing from the failed one may have returned
 * before: its result is right.
 */
#ifndef UCX_MP_MPI_FAILURE_H_
#define UCX_MP_MPI_FAILURE_H_

#include <mpi/world.h>

#include <stdint.h>


/* A collective of a communicator, the same on all its ranks */
typedef struct {
    uint64_t key;    /* the communicator's; 0: failures are not reported */
    uint64_t number;
    uint32_t start;  /* of a persistent one: how often it was started */
} ucx_mp_mpi_ordinal_t;


/* Report that this rank of the communicator cannot do its part. */
void ucx_mp_mpi_failure_report(ucx_mp_mpi_ordinal_t ordinal, int rank);

/* Raise an error if another rank has reported a failure. @return Its code, or
   `rc`; an error that this rank has already is kept. */
int ucx_mp_mpi_failure_find(ucx_mp_mpi_ordinal_t ordinal, const char *name,
                            MPI_Comm comm, int rc);

/* The same, at the end of a call */
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
