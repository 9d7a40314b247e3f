/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which bytes an MPI datatype covers. Writing back a staged buffer must leave
 * the gaps alone: they may be another thread's, or nobody's.
 */
#ifndef UCX_MP_MPI_LAYOUT_H_
#define UCX_MP_MPI_LAYOUT_H_

#include <mpi.h>
#include <stdbool.h>
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

/*
 * Adds the bytes of `count` (> 0) elements of a datatype, the first one's
 * origin being at `offset`.
 *
 * @return  MPI_SUCCESS; an MPI error, raised already; or a negative
 *          ucx_mp_mpi_layout_error_t, not raised yet.
 */
int ucx_mp_mpi_layout_add(ucx_mp_mpi_layout_t *layout, ptrdiff_t offset,
                          MPI_Count count, MPI_Datatype datatype);

/* Adds `count` elements, each of these rows, `extent` bytes from origin to
   origin. */
int ucx_mp_mpi_layout_add_rows(ucx_mp_mpi_layout_t *layout, ptrdiff_t offset,
                               size_t count, ptrdiff_t extent,
                               const ucx_mp_mpi_rows_t *rows);

int ucx_mp_mpi_layout_add_row(ucx_mp_mpi_layout_t *layout, ptrdiff_t offset,
                              size_t length);

/* Adds an element of a datatype by what it was made of, in as much memory as
   that takes; or UCX_MP_MPI_LAYOUT_UNKNOWN. */
int ucx_mp_mpi_layout_walk(ucx_mp_mpi_layout_t *layout, MPI_Datatype datatype);

/* ... by looking at each byte of its true extent, which begins at `begin`. */
int ucx_mp_mpi_layout_look(ucx_mp_mpi_layout_t *layout, MPI_Datatype datatype,
                           size_t size, ptrdiff_t begin, size_t extent);

/* Whether elements in a row are one piece without gaps. */
int ucx_mp_mpi_layout_is_dense(MPI_Datatype datatype, bool *is_dense_p);

#endif
