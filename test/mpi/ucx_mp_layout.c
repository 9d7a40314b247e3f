/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Bytes covered by a datatype, found by src/mpi from the type's construction:
 * random types, built from types of every kind, are compared with the bytes
 * and the order of MPI_Pack. Some types have an extent larger than memory, some
 * are nested deeply. The program counts the bytes read by the method with
 * MPI_Pack: at most those of a predefined pair.
 */
#include "util.h"

#include <mpi.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* replaces src/mpi/pmpi.h by the MPI of this program */
#define UCX_MP_MPI_PMPI_H_
#define FUNCTIONS(_) \
    _(Type_create_keyval) _(Type_delete_attr) _(Type_free) _(Type_get_attr) \
    _(Type_get_contents) _(Type_get_envelope) _(Type_get_extent_x) \
    _(Type_get_true_extent_x) _(Type_set_attr) _(Type_size_x)
#define POINTER(_name) __typeof__(MPI_##_name) *_name;

static struct {
    FUNCTIONS(POINTER)
    __typeof__(MPI_Pack) *Pack;
#if MPI_VERSION >= 4
    POINTER(Type_get_contents_c)
    POINTER(Type_get_envelope_c)
#endif
    __typeof__(MPI_File_get_view) *File_get_view; /* not called */
    MPI_Comm comm_world;
    MPI_Datatype datatype_null;
    bool cuts_poorly; /* set: basic types are looked at */
} ucx_mp_mpi_pmpi;

#include <mpi/layout.c>
#include <mpi/strided.c>
#include <mpi/layout_type.c>

#define MAX_SPAN    ((size_t)1 << 20) /* largest span of a type to compare */
#define MAX_BLOCKS  5
#define MAX_LOOKED  32 /* bytes of the largest pair, with its gaps */
#define NUM_KINDS   13

static size_t looked; /* bytes of data in the largest MPI_Pack */

static int pack(const void *in, int count, MPI_Datatype datatype, void *out,
                int size, int *position, MPI_Comm comm)
{
    looked = ((size_t)size > looked) ? (size_t)size : looked;
    return MPI_Pack(in, count, datatype, out, size, position, comm);
}

static void real_fill(void)
{
#define FILL(_name) ucx_mp_mpi_pmpi._name = MPI_##_name;
    FUNCTIONS(FILL)
#if MPI_VERSION >= 4
    FILL(Type_get_contents_c)
    FILL(Type_get_envelope_c)
#endif
    ucx_mp_mpi_pmpi.Pack          = pack;
    ucx_mp_mpi_pmpi.comm_world    = MPI_COMM_WORLD;
    ucx_mp_mpi_pmpi.datatype_null = MPI_DATATYPE_NULL;
    ucx_mp_mpi_pmpi.cuts_poorly   = true;
}

static int below(uint64_t *state, int n)
{
    return (int)ucx_mp_random_below(state, n);
}

static MPI_Datatype draw_predefined(uint64_t *state)
{
    const MPI_Datatype types[] = {MPI_BYTE, MPI_SHORT, MPI_INT, MPI_DOUBLE,
                                  MPI_C_DOUBLE_COMPLEX, MPI_SHORT_INT,
                                  MPI_DOUBLE_INT, MPI_INT};
    MPI_Datatype real;

    if (below(state, 10) == 0) {
        MPI_Type_create_f90_real(12, 100, &real);
        return real;
    }
    return types[below(state, 8)];
}

static MPI_Datatype draw_array(MPI_Datatype old, bool is_sub, uint64_t *state)
{
    const int kinds[] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC,
                         MPI_DISTRIBUTE_NONE};
    const int order   = below(state, 2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN;
    const int dims    = 1 + below(state, 3);
    int sizes[3], parts[3], starts[3], kind[3], darg[3], grid[3];
    int processes = 1, i;
    MPI_Datatype type;

    for (i = 0; i < dims; ++i) {
        sizes[i]  = 1 + below(state, 6);
        parts[i]  = 1 + below(state, sizes[i]);
        starts[i] = below(state, sizes[i] - parts[i] + 1);
        kind[i]   = kinds[below(state, 3)];
        grid[i]   = (kind[i] == MPI_DISTRIBUTE_NONE) ? 1 : 1 + below(state, 3);
        darg[i]   = MPI_DISTRIBUTE_DFLT_DARG;
        if ((kind[i] == MPI_DISTRIBUTE_CYCLIC) && below(state, 2)) {
            darg[i] = 1 + below(state, 3);
        } else if ((kind[i] == MPI_DISTRIBUTE_BLOCK) && below(state, 2)) {
            darg[i] = (sizes[i] + grid[i] - 1) / grid[i] + below(state, 2);
        }
        processes *= grid[i];
    }

    if (is_sub) {
        MPI_Type_create_subarray(dims, sizes, parts, starts, order, old, &type);
    } else {
        if (MPI_Type_create_darray(processes, below(state, processes), dims,
                                   sizes, kind, darg, grid, order, old,
                                   &type) != MPI_SUCCESS) {
            /* Open MPI 4.1 has no such type for a process without a part */
            MPI_Type_contiguous(dims, old, &type);
        }
    }
    return type;
}

/* Make a type of one of all kinds from `old`, or from both types. */
static MPI_Datatype draw_kind(int kind, MPI_Datatype old, MPI_Datatype other,
                              uint64_t *state)
{
    const int count         = below(state, MAX_BLOCKS);
    const int length        = 1 + below(state, 3);
    MPI_Datatype types[MAX_BLOCKS], type;
    int lengths[MAX_BLOCKS], displs[MAX_BLOCKS], i, at = below(state, 3);
    MPI_Aint bytes[MAX_BLOCKS], lower, extent, other_lower, other_extent, room;

    MPI_Type_get_true_extent(old, &lower, &extent);
    MPI_Type_get_extent(old, &other_lower, &room);
    room = (room > 0) ? room : 1;
    MPI_Type_get_true_extent(other, &other_lower, &other_extent);
    extent = (extent > other_extent) ? extent : other_extent;
    for (i = 0; i < count; ++i) { /* any order, no overlap except of `other` */
        lengths[i] = below(state, 4);
        displs[i]  = at;
        bytes[i]   = at * (4 * room + extent) + 3 * i - 5;
        types[i]   = (kind == 9) && below(state, 2) ? other : old;
        at        += (below(state, 4) == 0) ? -40 : 4 + below(state, 4);
    }

    switch (kind) {
    case 0:
        MPI_Type_contiguous(count, old, &type);
        return type;
    case 1:
        MPI_Type_vector(count, length, length + below(state, 3), old, &type);
        return type;
    case 2:
        MPI_Type_create_hvector(count, length, -4 * room - extent - 1, old,
                                &type);
        return type;
    case 3:
        MPI_Type_indexed(count, lengths, displs, old, &type);
        return type;
    case 4:
        MPI_Type_create_hindexed(count, lengths, bytes, old, &type);
        return type;
    case 5:
        MPI_Type_create_indexed_block(count, length, displs, old, &type);
        return type;
    case 6:
        MPI_Type_create_hindexed_block(count, length, bytes, old, &type);
        return type;
    case 7:
        MPI_Type_dup(old, &type);
        return type;
    case 8:
        MPI_Type_create_resized(old, lower - below(state, 9),
                                extent + below(state, 30), &type);
        return type;
    case 9:
        MPI_Type_create_struct(count, lengths, bytes, types, &type);
        return type;
    case 10:
        return draw_array(old, true, state);
    case 11:
        return draw_array(old, false, state);
    default:
#if MPI_VERSION >= 4
        {
            MPI_Count large[MAX_BLOCKS], where[MAX_BLOCKS];

            for (i = 0; i < count; ++i) {
                large[i] = lengths[i];
                where[i] = (below(state, 2) == 0) ? bytes[i] : bytes[i] + 1;
            }
            MPI_Type_create_hindexed_c(count, large, where, old, &type);
            return type;
        }
#else
        MPI_Type_contiguous(length, old, &type);
        return type;
#endif
    }
}

/* Make a type up to three kinds deep; its parts are freed, as programs do. */
static MPI_Datatype draw_type(uint64_t *state)
{
    MPI_Datatype other = draw_predefined(state), made;
    MPI_Datatype type  = draw_predefined(state);
    bool is_made       = false;
    int depth          = 1 + below(state, 3);

    while (depth-- > 0) {
        made = draw_kind(below(state, NUM_KINDS), type, other, state);
        if (is_made) {
            MPI_Type_free(&type);
        }
        type    = made;
        is_made = true;
    }
    MPI_Type_commit(&type);
    return type;
}

/* Return the offset of each byte of a layout, in the order of packed bytes */
static ptrdiff_t *places_new(const ucx_mp_mpi_layout_t *layout)
{
    ptrdiff_t *places = calloc(layout->size + 1, sizeof(*places));
    const ucx_mp_mpi_strided_t *rows;
    size_t i, j, k;

    for (i = 0; i < layout->count; ++i) {
        rows = &layout->rows[i];
        for (j = 0; j < rows->count; ++j) {
            for (k = 0; k < rows->length; ++k) {
                places[rows->packed + j * rows->step + k] =
                        rows->offset + (ptrdiff_t)j * rows->stride +
                        (ptrdiff_t)k;
            }
        }
    }
    return places;
}

/* Compare the layout's bytes with those read by the MPI. */
static bool check_type(MPI_Datatype type, uint64_t number)
{
    ucx_mp_mpi_layout_t walked = {0}, seen = {0};
    ptrdiff_t *ours, *theirs;
    ucx_mp_mpi_type_sizes_t sizes;
    bool is_right;

    MPI_Type_size_x(type, &sizes.size);
    MPI_Type_get_true_extent_x(type, &sizes.begin, &sizes.length);
    if ((sizes.size == 0) || ((size_t)sizes.length > MAX_SPAN)) {
        return true;
    }

    looked   = 0;
    is_right = (type_walk(&walked, type, MAX_DEPTH) == MPI_SUCCESS) &&
               (looked <= MAX_LOOKED) &&
               (element_scan(&seen, type, &sizes) == MPI_SUCCESS) &&
               (walked.size == seen.size);
    ours     = places_new(&walked);
    theirs   = places_new(&seen);
    is_right = is_right &&
               (memcmp(ours, theirs, seen.size * sizeof(*ours)) == 0);
    if (!is_right) {
        fprintf(stderr, "ucx_mp_layout: type %llu of %lld bytes, %lld from its "
                "first to its last: the bytes are others, or %zu were looked "
                "at\n", (unsigned long long)number, (long long)sizes.size,
                (long long)sizes.length, looked);
    }
    free(ours);
    free(theirs);
    ucx_mp_mpi_layout_free(&walked);
    ucx_mp_mpi_layout_free(&seen);
    return is_right;
}

static void rows_bounds(const ucx_mp_mpi_layout_t *layout, ptrdiff_t *low_p,
                        ptrdiff_t *high_p)
{
    const ucx_mp_mpi_strided_t *rows;
    ptrdiff_t last;
    size_t i;

    *low_p  = PTRDIFF_MAX;
    *high_p = PTRDIFF_MIN;
    for (i = 0; i < layout->count; ++i) {
        rows    = &layout->rows[i];
        last    = rows->offset + (ptrdiff_t)(rows->count - 1) * rows->stride;
        *low_p  = (rows->offset < *low_p) ? rows->offset : *low_p;
        *low_p  = (last < *low_p) ? last : *low_p;
        last    = (rows->offset > last) ? rows->offset : last;
        last   += (ptrdiff_t)rows->length;
        *high_p = (last > *high_p) ? last : *high_p;
    }
}

/* Compare the order of elements with their type map, as the layout packs
   them. */
static bool check_packed(MPI_Datatype type, uint64_t number)
{
    int elements               = 1 + (int)(number % 4);
    ucx_mp_mpi_layout_t layout = {0};
    MPI_Count size_x, begin, length;
    const ucx_mp_mpi_strided_t *rows;
    unsigned char *bytes, *ours, *theirs;
    int size = 0, position = 0;
    ptrdiff_t low, high, i;
    bool is_right;
    size_t k, j;

    MPI_Type_size_x(type, &size_x);
    MPI_Type_get_true_extent_x(type, &begin, &length);
    if (size_x == length) {
        elements = 1; /* Open MPI 4.1 packs some of those as if without gaps */
    }

    if ((ucx_mp_mpi_layout_add(&layout, 0, elements, type, true) !=
         MPI_SUCCESS) || (layout.count == 0)) {
        return layout.count == 0;
    }

    rows_bounds(&layout, &low, &high);
    if ((size_t)(high - low) > 4 * MAX_SPAN) {
        ucx_mp_mpi_layout_free(&layout);
        return true;
    }

    MPI_Pack_size(elements, type, MPI_COMM_WORLD, &size);
    bytes  = malloc(high - low);
    ours   = calloc(layout.size, 1);
    theirs = calloc(size, 1);
    for (i = 0; i < high - low; ++i) {
        bytes[i] = (unsigned char)ucx_mp_hash(number + (uint64_t)i);
    }
    for (k = 0; k < layout.count; ++k) {
        rows = &layout.rows[k];
        for (j = 0; j < rows->count; ++j) {
            memcpy(ours + rows->packed + j * rows->step,
                   bytes - low + rows->offset + (ptrdiff_t)j * rows->stride,
                   rows->length);
        }
    }
    MPI_Pack(bytes - low, elements, type, theirs, size, &position,
             MPI_COMM_WORLD);
    is_right = ((size_t)position == layout.size) &&
               (memcmp(ours, theirs, layout.size) == 0);
    if (!is_right) {
        fprintf(stderr, "ucx_mp_layout: %d of type %llu: packed, %zu bytes are "
                "not the MPI's %d\n", elements, (unsigned long long)number,
                layout.size, position);
    }
    free(bytes);
    free(ours);
    free(theirs);
    ucx_mp_mpi_layout_free(&layout);
    return is_right;
}

/* A column of a matrix of 40 GiB and, with MPI 4, of 2^40 rows: the layout has
   few rows and reads no byte */
static bool check_wide(void)
{
    const ucx_mp_mpi_layout_t *layout;
    ucx_mp_mpi_element_t *element;
    MPI_Datatype type;
    bool is_right;

    MPI_Type_vector(40960, 1, 1 << 17, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    looked = 0;
    if (ucx_mp_mpi_layout_hold(type, &element) != MPI_SUCCESS) {
        return false;
    }

    layout   = &element->layout;
    is_right = (layout->count == 1) && (layout->rows[0].length == 8) &&
               (layout->rows[0].stride == 1 << 20) &&
               (layout->rows[0].count == 40960) && (looked == 0);
    ucx_mp_mpi_layout_release(element);
    if (!is_right) {
        fprintf(stderr, "ucx_mp_layout: a column of 40 GiB: %zu bytes were "
                "looked at\n", looked);
    }
    MPI_Type_free(&type);
    return is_right;
}

/* Return NULL if a layout has the bytes of check_deep()'s type in their order,
   and its basic type is found */
static void *deep_check(void *type_p)
{
    const MPI_Datatype type = *(MPI_Datatype*)type_p;
    ucx_mp_mpi_element_t *element;
    bool is_right;

    if (ucx_mp_mpi_layout_hold(type, &element) != MPI_SUCCESS) {
        return type_p;
    }

    is_right = (element->layout.size == 8) &&
               (element->layout.rows[0].offset == 12) &&
               (ucx_mp_mpi_layout_base(type) == MPI_INT) &&
               (ucx_mp_mpi_layout_grain(type) == sizeof(int));
    ucx_mp_mpi_layout_release(element);
    return is_right ? NULL : type_p;
}

/* Nest 10000 constructors, and look at them with a small stack */
static bool check_deep(void)
{
    const int lengths[2] = {1, 1}, displs[2] = {3, 0};
    void *wrong          = NULL;
    MPI_Datatype type, made;
    pthread_attr_t attr;
    pthread_t thread;
    int i;

    MPI_Type_indexed(2, lengths, displs, MPI_INT, &type);
    for (i = 0; i < 10000; ++i) {
        MPI_Type_dup(type, &made);
        MPI_Type_free(&type);
        type = made;
    }
    MPI_Type_commit(&type);

    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 256 << 10);
    pthread_create(&thread, &attr, deep_check, &type);
    pthread_join(thread, &wrong);
    pthread_attr_destroy(&attr);
    if (wrong != NULL) {
        fprintf(stderr, "ucx_mp_layout: a type of 10000 constructors: other "
                "bytes, or another basic type\n");
    }
    MPI_Type_free(&type);
    return wrong == NULL;
}

int main(int argc, char **argv)
{
    uint64_t types = 3000, wrong = 0, i, state;
    MPI_Datatype type;

    ucx_mp_program = "ucx_mp_layout";
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    real_fill();
    wrong += !check_wide();
    wrong += !check_deep();
    for (i = 0; i < types; ++i) {
        state  = ucx_mp_hash(i + 1);
        type   = draw_type(&state);
        wrong += !check_type(type, i) || !check_packed(type, i);
        MPI_Type_free(&type);
    }
    printf("ucx_mp_layout: %llu types, %llu wrong\n", (unsigned long long)types,
           (unsigned long long)wrong);
    return ucx_mp_finish(wrong > 0);
}
