/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi/packed.h>

#include <limits.h>
#include <stdlib.h>
#include <string.h>


/* If `rc`, the result of making a datatype from `*type_p`, is MPI_SUCCESS,
   replace `*type_p` by the new one and free the old one. @return The first MPI
   error, or MPI_SUCCESS. */
static int type_replace(int rc, MPI_Datatype *type_p, const MPI_Datatype *made)
{
    int freed;

    if (rc == MPI_SUCCESS) {
        freed   = ucx_mp_mpi_pmpi.Type_free(type_p);
        *type_p = *made;
        rc      = freed;
    }
    return rc;
}

/* Make a datatype of `size` bytes from pieces, since MPI counts with int. The
   pieces are contiguous or, with is_same, all at the same address, with extent
   0. */
static int type_of_pieces(size_t size, bool is_same, MPI_Datatype *type_p)
{
    const ucx_mp_mpi_pmpi_t *real = &ucx_mp_mpi_pmpi;
    const size_t piece            = UCX_MP_MPI_PACKED_LOST;
    const int count               = (int)(size / piece);
    const MPI_Aint stride         = is_same ? 0 : piece;
    int lengths[2]                = {1, (int)(size % piece)};
    MPI_Aint places[2]            = {0, count * stride};
    MPI_Datatype types[2], made;
    int rc;

    rc = real->Type_contiguous((int)piece, ucx_mp_mpi_pmpi.byte, type_p);
    if (rc != MPI_SUCCESS) {
        return rc;
    }

    rc = type_replace(real->Type_create_hvector(count, 1, stride, *type_p,
                                                &made), type_p, &made);
    if (rc == MPI_SUCCESS) {
        types[0] = *type_p;
        types[1] = ucx_mp_mpi_pmpi.byte;
        rc = type_replace(real->Type_create_struct(2, lengths, places, types,
                                                   &made), type_p, &made);
    }
    if (is_same && (rc == MPI_SUCCESS)) {
        rc = type_replace(real->Type_create_resized(*type_p, 0, 0, &made),
                          type_p, &made);
    }
    if (rc != MPI_SUCCESS) {
        (void)real->Type_free(type_p);
    }
    return rc;
}

/* Make and commit the replacement of `datatype`, shifted by `place` bytes.
   @return false: an error of the MPI. */
static bool type_make(MPI_Datatype datatype, ucx_mp_mpi_packed_way_t way,
                      MPI_Aint place, MPI_Datatype *type_p)
{
    const ucx_mp_mpi_pmpi_t *real = &ucx_mp_mpi_pmpi;
    const int length              = 1;
    MPI_Count size                = 0;
    MPI_Datatype made;
    int rc;

    if ((way != UCX_MP_MPI_PACKED_NONE) &&
        (real->Type_size_x(datatype, &size) != MPI_SUCCESS)) {
        return false;
    }

    rc = ((way == UCX_MP_MPI_PACKED_SAME) || (size > INT_MAX)) ?
                 type_of_pieces(size, way == UCX_MP_MPI_PACKED_SAME, type_p) :
                 real->Type_contiguous((int)size, ucx_mp_mpi_pmpi.byte, type_p);
    if ((rc == MPI_SUCCESS) && (place != 0)) {
        rc = type_replace(real->Type_create_hindexed(1, &length, &place,
                                                     *type_p, &made),
                          type_p, &made);
    }
    return (rc == MPI_SUCCESS) &&
           (real->Type_commit(type_p) == MPI_SUCCESS);
}

/* Make one datatype per rank that includes the offset of the rank's block in
   the packed copy: all displacements stay 0. A rank without data gets MPI_BYTE.
   @return false on failure */
static bool make_each(ucx_mp_mpi_packed_t *packed,
                      const ucx_mp_mpi_parts_t *parts,
                      ucx_mp_mpi_packed_way_t way)
{
    const MPI_Datatype *types = *parts->types_p;
    MPI_Aint place            = 0;
    MPI_Count count, size;
    int i;

    for (i = 0; i < parts->ranks; ++i) {
        packed->types[i] = ucx_mp_mpi_pmpi.byte;
        count            = ucx_mp_mpi_vector_at(parts->counts, i);
        if ((count <= 0) || (types[i] == ucx_mp_mpi_pmpi.datatype_null)) {
            continue;
        }

        if (!type_make(types[i], way, place, &packed->types[i]) ||
            (ucx_mp_mpi_pmpi.Type_size_x(types[i], &size) != MPI_SUCCESS)) {
            return false;
        }
        place += (way == UCX_MP_MPI_PACKED_CONTIGUOUS) ? count * size : 0;
    }
    return true;
}

/* Set displacements of contiguous blocks, in elements. @return false if one
   overflows the call's integer type. */
static bool displs_fill(void *displs, const ucx_mp_mpi_parts_t *parts)
{
    const bool is_int = (parts->displs.width == sizeof(int));
    MPI_Count at      = 0;
    MPI_Count count;
    int i;

    for (i = 0; i < parts->ranks; ++i) {
        if (is_int && (at > INT_MAX)) {
            return false;
        }

        if (is_int) {
            ((int*)displs)[i] = (int)at;
        } else {
            ((int64_t*)displs)[i] = at;
        }
        count = ucx_mp_mpi_vector_at(parts->counts, i);
        at   += (count > 0) ? count : 0;
    }
    return true;
}

static bool packed_fill(ucx_mp_mpi_packed_t *packed,
                        const ucx_mp_mpi_parts_t *parts,
                        ucx_mp_mpi_packed_way_t way)
{
    if (parts->types_p != NULL) {
        return make_each(packed, parts, way);
    }

    packed->types[0] = ucx_mp_mpi_pmpi.byte;
    return type_make(*parts->type_p, way, 0, &packed->types[0]) &&
           ((parts->ranks == 0) || (way != UCX_MP_MPI_PACKED_CONTIGUOUS) ||
            displs_fill(packed->displs, parts));
}

bool ucx_mp_mpi_packed_make(ucx_mp_mpi_packed_t *packed,
                            const ucx_mp_mpi_parts_t *parts,
                            ucx_mp_mpi_packed_way_t way)
{
    packed->num_types = (parts->types_p != NULL) ? parts->ranks : 1;
    packed->types     = calloc(packed->num_types + 1, sizeof(*packed->types));
    packed->displs    = calloc(parts->ranks + 1, sizeof(int64_t));
    if ((packed->types == NULL) || (packed->displs == NULL) ||
        !packed_fill(packed, parts, way)) {
        ucx_mp_mpi_packed_free(packed);
        return false;
    }

    if (parts->types_p != NULL) {
        *parts->types_p = packed->types;
    } else {
        *parts->type_p = packed->types[0];
    }
    if (parts->ranks > 0) {
        memcpy(parts->displs.values_p, &packed->displs, sizeof(void*));
    }
    return true;
}

void ucx_mp_mpi_packed_free(ucx_mp_mpi_packed_t *packed)
{
    int i;

    for (i = 0; (packed->types != NULL) && (i < packed->num_types); ++i) {
        if ((packed->types[i] != (MPI_Datatype)0) &&
            (packed->types[i] != ucx_mp_mpi_pmpi.datatype_null) &&
            (packed->types[i] != ucx_mp_mpi_pmpi.byte)) {
            (void)ucx_mp_mpi_pmpi.Type_free(&packed->types[i]);
        }
    }
    free(packed->types);
    free(packed->displs);
    memset(packed, 0, sizeof(*packed));
}
