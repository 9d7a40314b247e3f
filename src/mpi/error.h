/* SPDX-License-Identifier: BSD-3-Clause */
/* Errors of this library, raised through MPI's error handlers. */
#ifndef UCX_MP_MPI_ERROR_H_
#define UCX_MP_MPI_ERROR_H_

#include <mpi/pmpi.h>


/* True while ucx_mp_mpi_raise() in this thread calls no error handler: the
   caller holds a lock, and raises the error code later. */
extern __thread bool ucx_mp_mpi_raises_later;

/* Raise an error with a formatted message through the communicator's error
   handler, which may end the program. @return The error code to return from the
   MPI call; the class itself if no code for the message is available. */
int ucx_mp_mpi_raise(MPI_Comm comm, int error_class, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));

/* Call the window's error handler with an error code or class. @return It. */
int ucx_mp_mpi_raise_win(MPI_Win win, int code);

/* Raise MPI_ERR_BUFFER through the communicator's error handler: call `name`
   cannot be staged for GPU memory. @return The error code. */
int ucx_mp_mpi_refuse(const char *name, MPI_Comm comm);

/* Raise MPI_ERR_BUFFER like ucx_mp_mpi_refuse(), through the window's error
   handler. */
int ucx_mp_mpi_refuse_win(const char *name, MPI_Win win);

#endif
