/* SPDX-License-Identifier: BSD-3-Clause */
/* Arguments of a collective, for GPUs to carry out. */
#ifndef UCX_MP_MPI_ARGUMENTS_H_
#define UCX_MP_MPI_ARGUMENTS_H_

#include <mpi/call.h>

#include <uct/cuda/collective_api.h>


/* Arguments of one call. Fields not used by the call, or ignored by MPI on this
   rank, may hold anything. */
typedef struct {
    const char          *name;
    int                 kind;      /* uct_cuda_coll_kind_t */
    const void          *sendbuf;
    void                *recvbuf;
    MPI_Count           count;     /* elements sent per rank or block; of
                                      MPI_Scatter on other ranks than the root:
                                      ignored */
    MPI_Datatype        datatype;
    MPI_Count           recvcount; /* elements received per rank or block */
    MPI_Datatype        recvtype;
    ucx_mp_mpi_vector_t counts;    /* elements of each rank's block; NULL: all
                                      blocks have `count` */
    ucx_mp_mpi_vector_t displs;    /* place of each received block, elements */
    MPI_Op              op;
    int                 root;
    MPI_Comm            comm;
} ucx_mp_mpi_collective_t;

#endif
