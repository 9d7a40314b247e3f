/* SPDX-License-Identifier: BSD-3-Clause */
/* The rows of one element of a datatype. */
#ifndef UCX_MP_MPI_LAYOUT_TYPE_H_
#define UCX_MP_MPI_LAYOUT_TYPE_H_

#include <mpi/strided.h>

#include <mpi.h>


/*
 * Adds an element of a datatype by what it was made of, in as much memory as
 * that takes; of one made in a way that is not known by looking at each of its
 * bytes.
 *
 * @param size    Bytes of data.
 * @param begin   Of its true extent, which is of `extent` bytes.
 * @return        As of ucx_mp_mpi_layout_add().
 */
int ucx_mp_mpi_layout_element(ucx_mp_mpi_layout_t *layout,
                              MPI_Datatype datatype, size_t size,
                              ptrdiff_t begin, size_t extent);

#endif
