/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI calls that begin an operation on buffers in GPU memory: non-blocking
 * and persistent messages and collectives, file operations that end later. Like
 * blocking calls they are the MPI's own calls on staged buffers. The call that
 * completes a request copies received data back: MPI_Wait, MPI_Test and their
 * variants, MPI_Request_get_status and MPI_File_..._end are ours as well.
 *
 * A tool or library must complete requests by MPI_ or PMPI_ names. By other
 * names, the program's buffer stays as it was.
 */
#ifndef UCX_MP_MPI_LATER_H_
#define UCX_MP_MPI_LATER_H_

#include <mpi/call.h>


/* All end a wrapper as ucx_mp_mpi_call_end() does; the call is kept. */

/* `request` was begun, and ends once. */
int ucx_mp_mpi_nonblocking_defer(ucx_mp_mpi_call_t *call, MPI_Request *request);

/* `request` was made, and begins as often as it is started. */
int ucx_mp_mpi_call_again(ucx_mp_mpi_call_t *call, MPI_Request *request);

/* MPI_File_..._begin: the file's ..._end ends it. */
int ucx_mp_mpi_call_split(ucx_mp_mpi_call_t *call, MPI_File file);

#endif
