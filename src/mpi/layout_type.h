/* SPDX-License-Identifier: BSD-3-Clause */
/* Queries of a datatype, and the rows of one of its elements. */
#ifndef UCX_MP_MPI_LAYOUT_TYPE_H_
#define UCX_MP_MPI_LAYOUT_TYPE_H_

#include <mpi/strided.h>

#include <mpi.h>


/* Sizes of a datatype, bytes */
typedef struct {
    MPI_Count size;   /* bytes of data */
    MPI_Count begin;  /* offset of the first byte (true lower bound) */
    MPI_Count length; /* from the first byte to the end of the last one (true
                         extent) */
    MPI_Count extent; /* distance between elements */
} ucx_mp_mpi_type_sizes_t;


/* Get the sizes of a datatype from the MPI. @return Its error or
   MPI_SUCCESS. */
int ucx_mp_mpi_layout_type_sizes(MPI_Datatype datatype,
                                 ucx_mp_mpi_type_sizes_t *sizes);

/* Return whether elements of a datatype are contiguous: no gaps, no offset. */
bool ucx_mp_mpi_layout_is_array(MPI_Datatype datatype);

/* Return whether a datatype is predefined; false for Fortran's parametrised
   types, and if the MPI fails. */
bool ucx_mp_mpi_layout_is_named(MPI_Datatype datatype);

/* Return the predefined datatype of which all of `datatype` consists;
   MPI_DATATYPE_NULL: there are several, or the MPI fails. */
MPI_Datatype ucx_mp_mpi_layout_base(MPI_Datatype datatype);

/* Return the size of each basic type of a datatype, bytes; 0: their sizes
   differ, or the MPI fails. */
MPI_Count ucx_mp_mpi_layout_grain(MPI_Datatype datatype);

/* Free a handle that a query of the MPI returned, unless its datatype is
   predefined or one of Fortran's parametrised types. */
void ucx_mp_mpi_layout_free_type(MPI_Datatype *datatype);

/*
 * Fill an empty layout with one element of a datatype, from the calls that made
 * it. The cost grows with the number of blocks, not bytes. If a call is
 * unknown, or too many are nested, find the bytes by packing one element, which
 * takes `length` bytes of memory.
 *
 * @return  As of ucx_mp_mpi_layout_add().
 */
int ucx_mp_mpi_layout_element(ucx_mp_mpi_layout_t *layout,
                              MPI_Datatype datatype,
                              const ucx_mp_mpi_type_sizes_t *sizes);

#endif
