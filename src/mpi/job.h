/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * State that the ranks of a program agree on inside MPI_Init(), where they
 * synchronise anyway: all run with this library and with the transport module,
 * and each node has a shared segment. If they do not agree, GPUs carry out no
 * collective, and this library sends no messages.
 */
#ifndef UCX_MP_MPI_JOB_H_
#define UCX_MP_MPI_JOB_H_

#include <mpi/pmpi.h>

#include <uct/cuda/collective_api.h>

#include <stdbool.h>
#include <stdint.h>


/* Set by MPI_Init(), constant afterwards. */
typedef struct {
    const uct_cuda_coll_api_t *api; /* module's functions; NULL: GPU collectives
                                       are off */
    uct_cuda_node_segment_t   *segment; /* this node's shared segment */
    bool                      is_spread; /* the program runs on several nodes */
    bool                      has_rival; /* the MPI supports CUDA itself, and
                                            the user has not given precedence to
                                            this library */
    bool                      has_queues; /* reductions are queued */
    MPI_Group                 group;
    int                       *places; /* of each rank in the segment; -1: on
                                          another node */
} ucx_mp_mpi_job_t;

extern ucx_mp_mpi_job_t ucx_mp_mpi_job;

/* Number of failures reported on this node; never NULL */
extern const uint32_t *ucx_mp_mpi_failures;


/* Agree with all ranks and fill ucx_mp_mpi_job; blocks. `api` stays NULL with
   one rank or without agreement; one rank prints a warning if a rank may lack
   this library. Call once, after the MPI has started. */
void ucx_mp_mpi_job_begin(void);

/* Return whether `mine` is true on all ranks; false if the MPI's reduction
   fails. All ranks of `comm` must call this. */
bool ucx_mp_mpi_on_all(MPI_Comm comm, bool mine);

/* Return a hash of boot id and host name, not negative: equal on all ranks of a
   node. MPI_Comm_split_type() would not do: with shared memory disabled in the
   MPI, it separates all ranks. */
int ucx_mp_mpi_machine_color(void);

/* Return whether all `size` ranks of a communicator are of this program; others
   may have been started without this library. Set `is_spread_p` if some are on
   other nodes. */
bool ucx_mp_mpi_job_has(MPI_Comm comm, int size, bool *is_spread_p);

/* Join the team of a communicator with all ranks on this node; does not wait
   for the others. `key` must be equal on all ranks. `calls`: number of this
   rank's calls so far; ranks may join before different calls.
   @return NULL: no team is available. */
uct_cuda_coll_team_t *
ucx_mp_mpi_job_join(MPI_Comm comm, uint64_t key, int rank, int size,
                    uint64_t calls);

#endif
