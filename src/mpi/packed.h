/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Arguments of an MPI call for a packed copy of a buffer. Each datatype becomes
 * one of as many bytes without gaps, and counts stay: MPIs cut messages by
 * elements, so that ranks of one call must agree on them.
 */
#ifndef UCX_MP_MPI_PACKED_H_
#define UCX_MP_MPI_PACKED_H_

#include <mpi/call.h>


/* Bytes that the packed copies of a lost buffer share: all are sent from there,
   and received to there. */
#define UCX_MP_MPI_PACKED_LOST ((size_t)64 << 10)

typedef enum {
    UCX_MP_MPI_PACKED_WHOLE, /* bytes after bytes */
    UCX_MP_MPI_PACKED_SAME,  /* of a lost buffer */
    UCX_MP_MPI_PACKED_NONE   /* no bytes at all */
} ucx_mp_mpi_packed_way_t;

/* Makes the datatypes and displacements of the buffer's parts and gives them to
   the call. @return Whether it could; MPI's errors are raised already. */
bool ucx_mp_mpi_packed_make(ucx_mp_mpi_buffer_t *buffer,
                            ucx_mp_mpi_packed_way_t way);

void ucx_mp_mpi_packed_free(ucx_mp_mpi_packed_t *packed);

#endif
