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

#include <mpi/call.h>

#include <uct/cuda/collective_api.h>

#include <stdbool.h>


/* A call's arguments; those that it does not have, or that MPI does not look at
   on this rank, may be anything */
typedef struct {
    const char          *name;
    int                 kind;      /* uct_cuda_coll_kind_t */
    const void          *sendbuf;
    void                *recvbuf;
    MPI_Count           count;     /* elements of a rank or block: what is sent
                                      by all but MPI_Scatter's others */
    MPI_Datatype        datatype;
    MPI_Count           recvcount; /* likewise, of calls that have both */
    MPI_Datatype        recvtype;
    ucx_mp_mpi_vector_t counts;    /* of blocks that differ; NULL: do not */
    ucx_mp_mpi_vector_t displs;    /* of those that are received */
    MPI_Op              op;
    int                 root;
    MPI_Comm            comm;
} ucx_mp_mpi_collective_t;


/*
 * A rank whose process uses no GPU, or whose arguments the MPI has to judge,
 * says so of a call of the kinds that the module has, before all else.
 *
 * @return  Whether that is all; otherwise it goes on with the below.
 */
bool ucx_mp_mpi_collective_pass(MPI_Comm comm, uct_cuda_coll_kind_t kind,
                                uct_cuda_coll_reason_t reason);

/*
 * Every rank says so of every other such call.
 *
 * @param rc_p  What the wrapper returns, if it is done.
 *
 * @return  Whether it is done; otherwise all ranks go on with the MPI's call.
 */
bool ucx_mp_mpi_collective(const ucx_mp_mpi_collective_t *args, int *rc_p);

#endif
