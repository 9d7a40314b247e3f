/* SPDX-License-Identifier: BSD-3-Clause */
/* What a program calls a collective with that GPUs may carry out. */
#ifndef UCX_MP_MPI_ARGUMENTS_H_
#define UCX_MP_MPI_ARGUMENTS_H_

#include <mpi/call.h>

#include <uct/cuda/collective_api.h>


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

#endif
