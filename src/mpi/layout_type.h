/* SPDX-License-Identifier: BSD-3-Clause */
/* The rows of one element of a datatype. */
#ifndef UCX_MP_MPI_LAYOUT_TYPE_H_
#define UCX_MP_MPI_LAYOUT_TYPE_H_

#include <mpi/strided.h>

#include <mpi.h>


/*
 * Fill an empty layout with one element of a datatype, from the calls that made
 * it. The cost grows with the number of blocks, not bytes. If a call is
 * unknown, find the bytes by unpacking one element, which takes `extent` bytes
 * of memory, and set is_unordered.
 *
 * @param size    Bytes of data.
 * @param begin   Offset of the first byte (MPI's true lower bound).
 * @param extent  Bytes from the first to the end of the last one (true extent).
 * @return        As of ucx_mp_mpi_layout_add().
 */
int ucx_mp_mpi_layout_element(ucx_mp_mpi_layout_t *layout,
                              MPI_Datatype datatype, size_t size,
                              ptrdiff_t begin, size_t extent);

/* Return whether a combiner is that of a datatype without contents, which is
   not freed: predefined, or one of Fortran's parametrised types. */
bool ucx_mp_mpi_layout_is_basic(int combiner);

#endif
