/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Arguments of an MPI call for a packed copy of a buffer. Each datatype becomes
 * one of as many bytes without gaps, and counts stay: MPIs cut messages by
 * elements, so that ranks of one call must agree on them.
 */
#ifndef UCX_MP_MPI_PACKED_H_
#define UCX_MP_MPI_PACKED_H_

#include <mpi/pmpi.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>


/* An argument with a number a rank: int, MPI_Count or MPI_Aint */
typedef struct {
    const void *values;
    size_t     width;
    void       *values_p; /* the wrapper's argument */
} ucx_mp_mpi_vector_t;

#define UCX_MP_MPI_VECTOR(_array) \
    ((ucx_mp_mpi_vector_t){(_array), sizeof(*(_array)), &(_array)})

/* A rank's; 0 if there is no array: that it is missing the MPI says */
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

/* A buffer's description, and where the wrapper has it: one part, or one a
   rank. The types are those of `type_p`, or else an array's. */
typedef struct {
    int                 ranks; /* 0: one part, of `count` elements */
    MPI_Count           count;
    ucx_mp_mpi_vector_t counts, displs;
    MPI_Datatype        *type_p;
    const MPI_Datatype  **types_p;
} ucx_mp_mpi_parts_t;

/* What a call gets instead of its own datatypes and displacements */
typedef struct {
    MPI_Datatype *types;
    int          num_types;
    void         *displs;
} ucx_mp_mpi_packed_t;

/* Bytes that the packed copies of a lost buffer share: all are sent from there,
   and received to there. */
#define UCX_MP_MPI_PACKED_LOST ((size_t)64 << 10)

typedef enum {
    UCX_MP_MPI_PACKED_WHOLE, /* bytes after bytes */
    UCX_MP_MPI_PACKED_SAME,  /* of a lost buffer */
    UCX_MP_MPI_PACKED_NONE   /* no bytes at all */
} ucx_mp_mpi_packed_way_t;

/* Makes the datatypes and displacements of a buffer's parts and gives them to
   the call. @return Whether it could; MPI's errors are raised already. */
bool ucx_mp_mpi_packed_make(ucx_mp_mpi_packed_t *packed,
                            const ucx_mp_mpi_parts_t *parts,
                            ucx_mp_mpi_packed_way_t way);

void ucx_mp_mpi_packed_free(ucx_mp_mpi_packed_t *packed);

#endif
