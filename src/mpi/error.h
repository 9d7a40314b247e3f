/* SPDX-License-Identifier: BSD-3-Clause */
/* Errors of our own, by MPI's error handlers. */
#ifndef UCX_MP_MPI_ERROR_H_
#define UCX_MP_MPI_ERROR_H_

#include <mpi/pmpi.h>


/* Fails the call with a sentence, through the communicator's error handler.
   Returns the error code. */
int ucx_mp_mpi_raise(MPI_Comm comm, int error_class, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));

/* For a call that GPU memory cannot be staged for: MPI_ERR_BUFFER. */
int ucx_mp_mpi_refuse(const char *name, MPI_Comm comm);
int ucx_mp_mpi_refuse_win(const char *name, MPI_Win win);

#endif
