/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which bytes an MPI datatype covers. Writing back a staged buffer must leave
 * the gaps alone: they may be another thread's, or nobody's.
 */
#ifndef UCX_MP_MPI_LAYOUT_H_
#define UCX_MP_MPI_LAYOUT_H_

#include <mpi/strided.h>

#include <mpi.h>
#include <stdbool.h>


/* One element of a datatype, kept as long as the datatype and the messages of
   it that are under way */
typedef struct {
    ucx_mp_mpi_layout_t layout;    /* of packed bytes in the type map's order */
    ptrdiff_t           low, high; /* first byte, and behind the last one */
    ptrdiff_t           extent;    /* bytes from an element to the next */
    unsigned            refs;
    void                *on_gpu;   /* the layout in GPU memory (pack.c) */
    void                (*on_gpu_free)(void *on_gpu);
} ucx_mp_mpi_element_t;

/*
 * Find the rows of a datatype's element once, and keep them.
 *
 * @param element_p  To be released; NULL if the datatype has no bytes.
 * @return           As of ucx_mp_mpi_layout_add().
 */
int ucx_mp_mpi_layout_hold(MPI_Datatype datatype,
                           ucx_mp_mpi_element_t **element_p);

void ucx_mp_mpi_layout_release(ucx_mp_mpi_element_t *element);

/*
 * Adds the bytes of `count` (> 0) elements of a datatype, the first one's
 * origin being at `offset`.
 *
 * @param is_exact  Packed positions matter: a type without gaps may have its
 *                  blocks in another order than they lie in memory.
 *
 * @return  MPI_SUCCESS; an MPI error, raised already; or a negative
 *          ucx_mp_mpi_layout_error_t, not raised yet.
 */
int ucx_mp_mpi_layout_add(ucx_mp_mpi_layout_t *layout, ptrdiff_t offset,
                          MPI_Count count, MPI_Datatype datatype,
                          bool is_exact);

/* Whether the bytes of elements in a row are those from the first one's origin
   on. */
bool ucx_mp_mpi_layout_is_array(MPI_Datatype datatype);

/* Whether it is one of MPI's own. */
bool ucx_mp_mpi_layout_is_named(MPI_Datatype datatype);

/* Whether a file has elements as they are in memory. */
bool ucx_mp_mpi_layout_is_native(MPI_File file);

#endif
