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
    UCX_MP_MPI_LAYOUT_TOO_LARGE = -2 /* gaps, and 2 GiB of data or more */
} ucx_mp_mpi_layout_error_t;

/*
 * Adds the bytes of `count` (> 0) elements of a datatype, the first one's
 * origin being at `offset`.
 *
 * @param comm  For the MPI calls that need one.
 *
 * @return  MPI_SUCCESS; an MPI error, raised already; or a negative
 *          ucx_mp_mpi_layout_error_t, not raised yet.
 */
int ucx_mp_mpi_layout_add(ucx_mp_mpi_layout_t *layout, ptrdiff_t offset,
                          MPI_Count count, MPI_Datatype datatype,
                          MPI_Comm comm);

/* Whether elements in a row are one piece without gaps. */
int ucx_mp_mpi_layout_is_dense(MPI_Datatype datatype, bool *is_dense_p);

#endif
