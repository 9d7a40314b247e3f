/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bytes that an MPI datatype covers. Copying a buffer back must not write
 * the gaps: another thread may use them, or they may be unmapped.
 */
#ifndef UCX_MP_MPI_LAYOUT_H_
#define UCX_MP_MPI_LAYOUT_H_

#include <mpi/layout_type.h>

#include <stdbool.h>
#include <stdint.h>


/* One element of a datatype. Freed with the datatype, but not before the last
   message that uses it. */
typedef struct {
    ucx_mp_mpi_layout_t layout;    /* rows, with packed positions in type map
                                      order */
    ptrdiff_t           low, high; /* first byte, end of the last byte */
    ptrdiff_t           extent;    /* distance between elements, bytes */
    size_t              pieces;    /* number of blocks without gaps */
    bool                is_uneven; /* basic types differ in size; determined
                                      only for MPICH before 4.1 */
    bool                is_accepted; /* the MPI has accepted it in a message */
    unsigned            refs;
    void                *on_gpu;   /* copy of the layout in GPU memory
                                      (pack.c) */
    void                (*on_gpu_free)(void *on_gpu);
} ucx_mp_mpi_element_t;

/* Maximum number of elements of a datatype that the MPI shall send as they are
   (message.h). Threads may see a mix of two entries; this does no harm, because
   messages are right with either way of sending. */
typedef struct {
    MPI_Datatype datatype;
    MPI_Count    most;
} ucx_mp_mpi_limit_t;

#define UCX_MP_MPI_NUM_LIMITS 64

/* Limits, hashed by handle. An entry is cleared when its datatype is freed, if
   that has an element. */
extern ucx_mp_mpi_limit_t ucx_mp_mpi_limits[UCX_MP_MPI_NUM_LIMITS];

static inline ucx_mp_mpi_limit_t *ucx_mp_mpi_limit_entry(MPI_Datatype datatype)
{
    const uintptr_t key = (uintptr_t)datatype;

    return &ucx_mp_mpi_limits[(key ^ (key >> 4) ^ (key >> 9)) %
                              UCX_MP_MPI_NUM_LIMITS];
}

/*
 * Get the rows of one element of a datatype: found once, then cached with the
 * datatype.
 *
 * @param element_p  Release it after use; NULL if the datatype has no bytes.
 *
 * @return  As of ucx_mp_mpi_layout_add().
 */
int ucx_mp_mpi_layout_hold(MPI_Datatype datatype,
                           ucx_mp_mpi_element_t **element_p);

/* Release an element; NULL: do nothing. */
void ucx_mp_mpi_layout_release(ucx_mp_mpi_element_t *element);

/* Remove what is cached with a datatype. @return The MPI's result, with an
   error already raised. */
int ucx_mp_mpi_layout_detach(MPI_Datatype datatype);

/*
 * Add the bytes of `count` (> 0) elements of a datatype; the first element
 * starts at `offset`, bytes.
 *
 * @param is_exact  Keep packed positions: the blocks of a datatype without gaps
 *                  may be packed in another order than they have in memory.
 *                  false: one block will do.
 *
 * @return  MPI_SUCCESS; an MPI error, already raised; or a negative
 *          ucx_mp_mpi_layout_error_t, not raised.
 */
int ucx_mp_mpi_layout_add(ucx_mp_mpi_layout_t *layout, ptrdiff_t offset,
                          MPI_Count count, MPI_Datatype datatype,
                          bool is_exact);

/* Return whether a file stores elements in the format of memory. */
bool ucx_mp_mpi_layout_is_native(MPI_File file);

#endif
