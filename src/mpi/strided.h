/* SPDX-License-Identifier: BSD-3-Clause */
/* Bytes in memory as rows, as few as possible, and where each of them lies when
   all are packed in the order of the type map. */
#ifndef UCX_MP_MPI_ROWS_H_
#define UCX_MP_MPI_ROWS_H_

#include <stdbool.h>
#include <stddef.h>


/* `count` rows of `length` bytes each, the first at `offset`, `stride` bytes
   from start to start; packed, the first is at `packed`, and they are `step`
   bytes from start to start. All in bytes; one row has both of its length. */
typedef struct {
    ptrdiff_t offset;
    size_t    length;
    ptrdiff_t stride;
    size_t    count;
    size_t    packed;
    size_t    step;
    bool      is_joined; /* a row is of several blocks side by side */
} ucx_mp_mpi_strided_t;

typedef struct {
    ucx_mp_mpi_strided_t *rows;
    size_t               count;
    size_t               capacity;
    size_t               size; /* packed bytes so far: where the next ones go */
    bool is_unordered; /* `packed` is not that of the type map */
} ucx_mp_mpi_layout_t;


typedef enum {
    UCX_MP_MPI_LAYOUT_NO_MEMORY = -1,
    UCX_MP_MPI_LAYOUT_TOO_LARGE = -2, /* 2 GiB of data or more, of UNKNOWN */
    UCX_MP_MPI_LAYOUT_UNKNOWN   = -3  /* made in a way that is not known */
} ucx_mp_mpi_layout_error_t;

void ucx_mp_mpi_layout_free(ucx_mp_mpi_layout_t *layout);

/* Adds one row, behind all others when packed.

   @return 0, which is MPI_SUCCESS, or UCX_MP_MPI_LAYOUT_NO_MEMORY. */
int ucx_mp_mpi_layout_add_row(ucx_mp_mpi_layout_t *layout, ptrdiff_t offset,
                              size_t length);

/* Adds `count` elements of that layout, `extent` bytes from origin to origin,
   behind all others when packed. */
int ucx_mp_mpi_layout_add_elements(ucx_mp_mpi_layout_t *layout,
                                   ptrdiff_t offset, size_t count,
                                   ptrdiff_t extent,
                                   const ucx_mp_mpi_layout_t *element);

#endif
