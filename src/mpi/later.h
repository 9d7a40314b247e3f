/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI calls with buffers in GPU memory that only begin something: non-blocking
 * and persistent collectives, file operations that end later. As blocking ones
 * they are the MPI's own calls on host memory; what arrives is copied back by
 * the call that says so to the program: MPI_Wait, MPI_Test and their like,
 * MPI_Request_get_status and MPI_File_..._end are ours as well.
 *
 * A request that a tool or library ends past these, by other names than MPI_
 * and PMPI_, leaves the program's buffer as it was.
 */
#ifndef UCX_MP_MPI_LATER_H_
#define UCX_MP_MPI_LATER_H_

#include <mpi/call.h>


/* All end a wrapper as ucx_mp_mpi_call_end() does; the call is kept. */

/* `request` was begun, and ends once. */
int ucx_mp_mpi_call_later(ucx_mp_mpi_call_t *call, MPI_Request *request);

/* `request` was made, and begins as often as it is started. */
int ucx_mp_mpi_call_again(ucx_mp_mpi_call_t *call, MPI_Request *request);

/* MPI_File_..._begin: the file's ..._end ends it. */
int ucx_mp_mpi_call_split(ucx_mp_mpi_call_t *call, MPI_File file);

#endif
