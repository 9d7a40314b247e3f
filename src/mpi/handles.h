/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI's predefined operations and datatypes, mapped to those of src/kernels. */
#ifndef UCX_MP_MPI_HANDLES_H_
#define UCX_MP_MPI_HANDLES_H_

#include <kernels/kernels.h>

#include <mpi.h>
#include <stdbool.h>


/* Handles needed by this library. Open MPI's are addresses in the loaded MPI
   library, MPICH's are constants. */
typedef struct {
    MPI_Datatype byte;
    MPI_Datatype integer; /* MPI_INT */
    MPI_Op       min;
    MPI_Op       replace;
    MPI_Op       no_op;
} ucx_mp_mpi_handles_t;

extern ucx_mp_mpi_handles_t ucx_mp_mpi_handles;


/* Fill ucx_mp_mpi_handles. Call after ucx_mp_mpi_pmpi_find() and MPI_Init();
   thread-safe, repeated calls do nothing. */
void ucx_mp_mpi_handles_find(void);

/* Map an operation and a datatype to the kernels'. @return false if the kernels
   lack one of them, or if MPI forbids the combination. */
bool ucx_mp_mpi_handles_known(MPI_Op op, MPI_Datatype datatype,
                              ucx_mp_op_t *op_p, ucx_mp_type_t *type_p);

#endif
