/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Arguments of an MPI call for a packed copy of a buffer. Each datatype is
 * replaced by one of the same size without gaps. Counts stay the same: MPIs
 * split messages between elements, so the ranks of a call must agree on them.
 */
#ifndef UCX_MP_MPI_PACKED_H_
#define UCX_MP_MPI_PACKED_H_

#include <mpi/pmpi.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>


/* Array argument with one number per rank, of type int, MPI_Count or
   MPI_Aint */
typedef struct {
    const void *values;
    size_t     width;
    void       *values_p; /* address of the wrapper's argument */
} ucx_mp_mpi_vector_t;

#define UCX_MP_MPI_VECTOR(_array) \
    ((ucx_mp_mpi_vector_t){(_array), sizeof(*(_array)), &(_array)})

/* Return the number of a rank; 0 if the array is missing, an error that the MPI
   reports */
static inline MPI_Count
ucx_mp_mpi_vector_at(ucx_mp_mpi_vector_t vector, int rank)
{
    if (vector.values == NULL) {
        return 0;
    }

    return (vector.width == sizeof(int)) ?
                   ((const int*)vector.values)[rank] :
                   ((const int64_t*)vector.values)[rank];
}

/* Description of a buffer and addresses of the wrapper's arguments: one block,
   or one per rank. Its datatype is `*type_p`, or `(*types_p)[rank]`. */
typedef struct {
    int                 ranks; /* 0: one block of `count` elements */
    MPI_Count           count;
    ucx_mp_mpi_vector_t counts, displs;
    MPI_Datatype        *type_p;
    const MPI_Datatype  **types_p;
} ucx_mp_mpi_parts_t;

/* Datatypes and displacements that replace the call's own */
typedef struct {
    MPI_Datatype *types;
    int          num_types;
    void         *displs;
} ucx_mp_mpi_packed_t;

/* Size of the dummy for a lost buffer, bytes: all its packed copies overlap
   there. */
#define UCX_MP_MPI_PACKED_LOST ((size_t)64 << 10)

typedef enum {
    UCX_MP_MPI_PACKED_CONTIGUOUS, /* blocks follow one another */
    UCX_MP_MPI_PACKED_SAME,  /* all blocks overlap in the dummy */
    UCX_MP_MPI_PACKED_NONE   /* no bytes */
} ucx_mp_mpi_packed_way_t;

/* Make datatypes and displacements for a packed copy and point the wrapper's
   arguments to them; ucx_mp_mpi_packed_free() frees them. @return false on
   failure, with the arguments unchanged; MPI errors are already raised. */
bool ucx_mp_mpi_packed_make(ucx_mp_mpi_packed_t *packed,
                            const ucx_mp_mpi_parts_t *parts,
                            ucx_mp_mpi_packed_way_t way);

void ucx_mp_mpi_packed_free(ucx_mp_mpi_packed_t *packed);

#endif
