/* SPDX-License-Identifier: BSD-3-Clause */
/* Bytes in memory as rows: as few as can be. */
#ifndef UCX_MP_MPI_ROWS_H_
#define UCX_MP_MPI_ROWS_H_

#include <stddef.h>


/* `count` rows of `length` bytes each, the first at `offset`, `stride` bytes
   from start to start; all in bytes. One row has a stride of its length. */
typedef struct {
    ptrdiff_t offset;
    size_t    length;
    ptrdiff_t stride;
    size_t    count;
} ucx_mp_mpi_rows_t;

typedef struct {
    ucx_mp_mpi_rows_t *rows;
    size_t            count;
    size_t            capacity;
} ucx_mp_mpi_layout_t;


void ucx_mp_mpi_layout_free(ucx_mp_mpi_layout_t *layout);


typedef enum {
    UCX_MP_MPI_LAYOUT_NO_MEMORY = -1,
    UCX_MP_MPI_LAYOUT_TOO_LARGE = -2, /* 2 GiB of data or more, of UNKNOWN */
    UCX_MP_MPI_LAYOUT_UNKNOWN   = -3  /* made in a way that is not known */
} ucx_mp_mpi_layout_error_t;

void ucx_mp_mpi_layout_free(ucx_mp_mpi_layout_t *layout);

/* Adds `count` rows of `length` bytes, `stride` from start to start.

   @return 0, which is MPI_SUCCESS, or UCX_MP_MPI_LAYOUT_NO_MEMORY. */
int ucx_mp_mpi_rows_add(ucx_mp_mpi_layout_t *layout, ptrdiff_t offset,
                        size_t length, ptrdiff_t stride, size_t count);

/* Adds `count` elements, each of these rows, `extent` bytes from origin to
   origin. */
int ucx_mp_mpi_layout_add_rows(ucx_mp_mpi_layout_t *layout, ptrdiff_t offset,
                               size_t count, ptrdiff_t extent,
                               const ucx_mp_mpi_rows_t *rows);

int ucx_mp_mpi_layout_add_row(ucx_mp_mpi_layout_t *layout, ptrdiff_t offset,
                              size_t length);

#endif
