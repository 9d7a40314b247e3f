/* SPDX-License-Identifier: BSD-3-Clause */
/* Predefined operations and datatypes of MPI, as src/kernels has them. */
#ifndef UCX_MP_MPI_HANDLES_H_
#define UCX_MP_MPI_HANDLES_H_

#include <kernels/kernels.h>

#include <mpi.h>
#include <stdbool.h>


/* Open MPI's handles are addresses of variables of the MPI that is loaded,
   MPICH's are numbers. */
typedef struct {
    MPI_Datatype byte;
    MPI_Datatype integer; /* MPI_INT */
    MPI_Op       min;
} ucx_mp_mpi_handles_t;

extern ucx_mp_mpi_handles_t ucx_mp_mpi_handles;


/* Fills the above, after ucx_mp_mpi_pmpi_find() and when the MPI is
   initialised; any thread, any number of times. */
void ucx_mp_mpi_handles_find(void);

/* Whether they are an operation and a type that a kernel may know and that MPI
   allows together. */
bool ucx_mp_mpi_handles_known(MPI_Op op, MPI_Datatype datatype,
                              ucx_mp_op_t *op_p, ucx_mp_type_t *type_p);

#endif
