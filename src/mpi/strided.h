/* SPDX-License-Identifier: BSD-3-Clause */
/* Byte ranges in memory as few strided rows, each with its position in the
   packed bytes (type map order). */
#ifndef UCX_MP_MPI_STRIDED_H_
#define UCX_MP_MPI_STRIDED_H_

#include <stdbool.h>
#include <stddef.h>


/* `count` rows of `length` bytes each. In memory the first is at `offset`, and
   rows start `stride` bytes apart. When packed, the first is at `packed`, and
   rows start `step` bytes apart. All in bytes; a single row has stride and step
   equal to its length. */
typedef struct {
    ptrdiff_t offset;
    size_t    length;
    ptrdiff_t stride;
    size_t    count;
    size_t    packed;
    size_t    step;
    bool      is_joined; /* a row joins several adjacent blocks of the
                            datatype */
} ucx_mp_mpi_strided_t;

typedef struct {
    ucx_mp_mpi_strided_t *rows;
    size_t               count;
    size_t               capacity;
    size_t               size; /* packed size so far, bytes */
} ucx_mp_mpi_layout_t;


typedef enum {
    UCX_MP_MPI_LAYOUT_NO_MEMORY = -1,
    UCX_MP_MPI_LAYOUT_UNKNOWN   = -2, /* made by an unknown call, or nested too
                                         deeply */
    UCX_MP_MPI_LAYOUT_TOO_LARGE = -3  /* the same, and 2 GiB of data or more */
} ucx_mp_mpi_layout_error_t;

void ucx_mp_mpi_layout_free(ucx_mp_mpi_layout_t *layout);

/* Add one row after all others in packed order.

   @return 0, equal to MPI_SUCCESS, or UCX_MP_MPI_LAYOUT_NO_MEMORY. */
int ucx_mp_mpi_layout_add_row(ucx_mp_mpi_layout_t *layout, ptrdiff_t offset,
                              size_t length);

/* Add `count` elements after all others in packed order. Elements start
   `extent` bytes apart. @return As ucx_mp_mpi_layout_add_row(). */
int ucx_mp_mpi_layout_add_elements(ucx_mp_mpi_layout_t *layout,
                                   ptrdiff_t offset, size_t count,
                                   ptrdiff_t extent,
                                   const ucx_mp_mpi_layout_t *element);

#endif
