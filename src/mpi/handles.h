/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI's predefined operations and datatypes, mapped to those of src/kernels. */
#ifndef UCX_MP_MPI_HANDLES_H_
#define UCX_MP_MPI_HANDLES_H_

#include <kernels/kernels.h>

#include <mpi.h>
#include <stdbool.h>


/* Map an operation and a datatype to the kernels'. @return false if the kernels
   lack one of them, or if MPI forbids the combination. Call after
   MPI_Init(). */
bool ucx_mp_mpi_handles_known(MPI_Op op, MPI_Datatype datatype,
                              ucx_mp_op_t *op_p, ucx_mp_type_t *type_p);

#endif
