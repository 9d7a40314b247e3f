/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Compute the rows of a datatype from its constructor and arguments
 * (MPI_Type_get_contents); time and memory do not depend on its extent. Each
 * constructor repeats elements of other datatypes in blocks.
 */
#include <mpi/layout_type.h>
#include <mpi/pmpi.h>

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>


#define MAX_DEPTH 64 /* nested constructors */

/* Constructor of a datatype and its arguments. take_integer() and the like read
   them in the order of the C call. MPI 4's large calls return their counts in
   an array of MPI_Count, which is empty for other calls. */
typedef struct {
    int          combiner;
    int          num_integers, num_types;
    MPI_Count    num_addresses, num_counts;
    int          *integers;
    MPI_Aint     *addresses;
    MPI_Count    *counts;
    MPI_Datatype *types;
    size_t       integer, address, count; /* next argument in each array */
} contents_t;

/* Rows of the old type of a constructor */
typedef struct {
    ucx_mp_mpi_layout_t layout;
    MPI_Count           extent;
} element_t;


#if MPI_VERSION >= 4
static bool has_large(void)
{
    return (ucx_mp_mpi_pmpi.Type_get_envelope_c != NULL) &&
           (ucx_mp_mpi_pmpi.Type_get_contents_c != NULL);
}
#endif

static int envelope_get(MPI_Datatype datatype, contents_t *contents)
{
    int addresses = 0, rc;
#if MPI_VERSION >= 4
    MPI_Count integers, types;

    if (has_large()) {
        rc = ucx_mp_mpi_pmpi.Type_get_envelope_c(datatype, &integers,
                                                 &contents->num_addresses,
                                                 &contents->num_counts, &types,
                                                 &contents->combiner);
        contents->num_integers = (int)integers;
        contents->num_types    = (int)types;
        return rc;
    }
#endif
    rc = ucx_mp_mpi_pmpi.Type_get_envelope(datatype, &contents->num_integers,
                                           &addresses, &contents->num_types,
                                           &contents->combiner);
    contents->num_addresses = addresses;
    return rc;
}

/* Return whether no call made the datatype: there are no contents to ask for */
static bool is_basic(int combiner)
{
    return (combiner == MPI_COMBINER_NAMED) ||
           (combiner == MPI_COMBINER_F90_REAL) ||
           (combiner == MPI_COMBINER_F90_COMPLEX) ||
           (combiner == MPI_COMBINER_F90_INTEGER);
}

/* Get the constructor's arguments. After an error there are no types:
   contents_free() asks the MPI about each. */
static int contents_get(MPI_Datatype datatype, contents_t *contents)
{
    int rc;

    contents->integers  = calloc(contents->num_integers + 1, sizeof(int));
    contents->addresses = calloc(contents->num_addresses + 1,
                                 sizeof(MPI_Aint));
    contents->counts    = calloc(contents->num_counts + 1, sizeof(MPI_Count));
    contents->types     = calloc(contents->num_types + 1,
                                 sizeof(MPI_Datatype));
    if ((contents->integers == NULL) || (contents->addresses == NULL) ||
        (contents->counts == NULL) || (contents->types == NULL)) {
        contents->num_types = 0;
        return UCX_MP_MPI_LAYOUT_NO_MEMORY;
    }

#if MPI_VERSION >= 4
    if (has_large()) {
        rc = ucx_mp_mpi_pmpi.Type_get_contents_c(
                datatype, contents->num_integers, contents->num_addresses,
                contents->num_counts, contents->num_types, contents->integers,
                contents->addresses, contents->counts, contents->types);
    } else
#endif
    {
        rc = ucx_mp_mpi_pmpi.Type_get_contents(
                datatype, contents->num_integers, (int)contents->num_addresses,
                contents->num_types, contents->integers, contents->addresses,
                contents->types);
    }
    if (rc != MPI_SUCCESS) {
        contents->num_types = 0;
    }
    return rc;
}

/* Free the arrays of contents_get(), and the derived types in them:
   MPI_Type_get_contents() returns new handles of these */
static void contents_free(contents_t *contents)
{
    int i;

    for (i = 0; i < contents->num_types; ++i) {
        ucx_mp_mpi_layout_free_type(&contents->types[i]);
    }
    free(contents->integers);
    free(contents->addresses);
    free(contents->counts);
    free(contents->types);
}

static int combiner_of(MPI_Datatype datatype)
{
    contents_t contents;

    return (envelope_get(datatype, &contents) == MPI_SUCCESS) ?
                   contents.combiner :
                   MPI_UNDEFINED;
}

int ucx_mp_mpi_layout_type_sizes(MPI_Datatype datatype,
                                 ucx_mp_mpi_type_sizes_t *sizes)
{
    MPI_Count lower;
    int rc;

    rc = ucx_mp_mpi_pmpi.Type_size_x(datatype, &sizes->size);
    if (rc == MPI_SUCCESS) {
        rc = ucx_mp_mpi_pmpi.Type_get_extent_x(datatype, &lower,
                                               &sizes->extent);
    }
    return (rc != MPI_SUCCESS) ?
                   rc :
                   ucx_mp_mpi_pmpi.Type_get_true_extent_x(datatype,
                                                          &sizes->begin,
                                                          &sizes->length);
}

bool ucx_mp_mpi_layout_is_array(MPI_Datatype datatype)
{
    ucx_mp_mpi_type_sizes_t sizes;

    return (ucx_mp_mpi_layout_type_sizes(datatype, &sizes) == MPI_SUCCESS) &&
           (sizes.begin == 0) && (sizes.size == sizes.length) &&
           (sizes.size == sizes.extent);
}

bool ucx_mp_mpi_layout_is_named(MPI_Datatype datatype)
{
    return combiner_of(datatype) == MPI_COMBINER_NAMED;
}

/* Datatypes to visit */
typedef struct {
    MPI_Datatype *types;
    size_t       count;
} list_t;

/* Move the types of a constructor to the list, equal neighbours once. @return
   false: no memory. */
static bool list_take(list_t *list, contents_t *contents)
{
    MPI_Datatype *types = realloc(list->types,
                                  (list->count + contents->num_types + 1) *
                                          sizeof(*types));
    int num_left        = 0;
    int i;

    if (types == NULL) {
        return false;
    }

    list->types = types;
    for (i = 0; i < contents->num_types; ++i) {
        if ((i > 0) && (contents->types[i] == contents->types[i - 1])) {
            contents->types[num_left++] = contents->types[i];
        } else {
            list->types[list->count++] = contents->types[i];
        }
    }
    contents->num_types = num_left;
    return true;
}

/* Return the value of all basic types of a datatype; 0: they differ, or the MPI
   fails. Nested types are in a list, not on the stack: programs may nest
   thousands. */
static MPI_Count common_value(MPI_Datatype datatype,
                              MPI_Count (*value_of)(MPI_Datatype basic))
{
    contents_t contents = {.types = &datatype, .num_types = 1};
    list_t list         = {0};
    MPI_Count value     = 0;
    bool is_common      = list_take(&list, &contents);
    MPI_Datatype type;
    MPI_Count next;

    while (list.count > 0) {
        type     = list.types[--list.count];
        contents = (contents_t){0};
        if (!is_common || (envelope_get(type, &contents) != MPI_SUCCESS)) {
            is_common = false;
        } else if (is_basic(contents.combiner)) {
            next      = value_of(type);
            is_common = (next != 0) && ((value == 0) || (value == next));
            value     = next;
        } else {
            is_common = (contents_get(type, &contents) == MPI_SUCCESS) &&
                        list_take(&list, &contents);
        }
        contents_free(&contents);
        if (type != datatype) {
            ucx_mp_mpi_layout_free_type(&type);
        }
    }
    free(list.types);
    return is_common ? value : 0;
}

static MPI_Count basic_handle(MPI_Datatype datatype)
{
    return (MPI_Count)(intptr_t)datatype;
}

MPI_Datatype ucx_mp_mpi_layout_base(MPI_Datatype datatype)
{
    const MPI_Count value = common_value(datatype, basic_handle);

    return (value == 0) ? ucx_mp_mpi_pmpi.datatype_null :
                          (MPI_Datatype)(intptr_t)value;
}

/* A pair with gaps, as MPI_DOUBLE_INT, has members of different sizes */
static MPI_Count basic_grain(MPI_Datatype datatype)
{
    ucx_mp_mpi_type_sizes_t sizes;

    return ((ucx_mp_mpi_layout_type_sizes(datatype, &sizes) == MPI_SUCCESS) &&
            (sizes.size == sizes.extent)) ?
                   sizes.size :
                   0;
}

MPI_Count ucx_mp_mpi_layout_grain(MPI_Datatype datatype)
{
    return common_value(datatype, basic_grain);
}

void ucx_mp_mpi_layout_free_type(MPI_Datatype *datatype)
{
    const int combiner = combiner_of(*datatype);

    if ((combiner != MPI_UNDEFINED) && !is_basic(combiner)) {
        (void)ucx_mp_mpi_pmpi.Type_free(datatype);
    }
}

static int take_integer(contents_t *contents)
{
    return contents->integers[contents->integer++];
}

static MPI_Count take_count(contents_t *contents)
{
    return (contents->num_counts > 0) ? contents->counts[contents->count++] :
                                        take_integer(contents);
}

static MPI_Count take_address(contents_t *contents)
{
    return (contents->num_counts > 0) ?
                   contents->counts[contents->count++] :
                   contents->addresses[contents->address++];
}

/* Skip `length` arguments and return a reader for them: two arrays of a call
   are read side by side */
static contents_t take_array(contents_t *contents, MPI_Count length,
                             bool is_address)
{
    const contents_t array = *contents;

    if (contents->num_counts > 0) {
        contents->count += length;
    } else if (is_address) {
        contents->address += length;
    } else {
        contents->integer += length;
    }
    return array;
}

static int type_walk(ucx_mp_mpi_layout_t *layout, MPI_Datatype datatype,
                     int depth);

static int element_open(element_t *element, MPI_Datatype datatype, int depth)
{
    MPI_Count lower;
    int rc;

    rc = ucx_mp_mpi_pmpi.Type_get_extent_x(datatype, &lower, &element->extent);
    return (rc == MPI_SUCCESS) ? type_walk(&element->layout, datatype, depth) :
                                 rc;
}

static int element_add(ucx_mp_mpi_layout_t *layout, ptrdiff_t offset,
                       MPI_Count count, ptrdiff_t extent,
                       const ucx_mp_mpi_layout_t *element)
{
    return (count > 0) ? ucx_mp_mpi_layout_add_elements(layout, offset, count,
                                                        extent, element) :
                         MPI_SUCCESS;
}

/* Add `count` blocks of `length` elements; blocks start `stride` bytes apart */
static int vector_add(ucx_mp_mpi_layout_t *layout, const element_t *element,
                      MPI_Count count, MPI_Count length, MPI_Count stride)
{
    ucx_mp_mpi_layout_t block = {0};
    int rc;

    rc = element_add(&block, 0, length, element->extent, &element->layout);
    if (rc == MPI_SUCCESS) {
        rc = element_add(layout, 0, count, stride, &block);
    }
    ucx_mp_mpi_layout_free(&block);
    return rc;
}

static int walk_indexed(contents_t *contents, ucx_mp_mpi_layout_t *layout,
                        const element_t *element)
{
    const int combiner     = contents->combiner;
    const bool is_bytes    = (combiner == MPI_COMBINER_HINDEXED) ||
                             (combiner == MPI_COMBINER_HINDEXED_BLOCK);
    const bool is_block    = (combiner == MPI_COMBINER_INDEXED_BLOCK) ||
                             (combiner == MPI_COMBINER_HINDEXED_BLOCK);
    const MPI_Count count  = take_count(contents);
    const MPI_Count length = is_block ? take_count(contents) : 0;
    contents_t lengths     = take_array(contents, is_block ? 0 : count, false);
    MPI_Count i, offset, here;
    int rc = MPI_SUCCESS;

    for (i = 0; (i < count) && (rc == MPI_SUCCESS); ++i) {
        offset = is_bytes ? take_address(contents) :
                            take_count(contents) * element->extent;
        here   = is_block ? length : take_count(&lengths);
        rc     = element_add(layout, offset, here, element->extent,
                             &element->layout);
    }
    return rc;
}

static int walk_struct(contents_t *contents, ucx_mp_mpi_layout_t *layout,
                       int depth)
{
    const MPI_Count count = take_count(contents);
    contents_t lengths    = take_array(contents, count, false);
    int rc                = MPI_SUCCESS;
    MPI_Count i, offset, length;
    element_t element;

    for (i = 0; (i < count) && (rc == MPI_SUCCESS); ++i) {
        element = (element_t){0};
        offset  = take_address(contents);
        length  = take_count(&lengths);
        rc      = element_open(&element, contents->types[i], depth);
        if (rc == MPI_SUCCESS) {
            rc = element_add(layout, offset, length, element.extent,
                             &element.layout);
        }
        ucx_mp_mpi_layout_free(&element.layout);
    }
    return rc;
}

/* Add the part of one dimension of a distributed array that process `place`
   owns */
static int distributed_add(ucx_mp_mpi_layout_t *layout, MPI_Count size,
                           int kind, MPI_Count argument, int processes,
                           int place, MPI_Count extent,
                           const ucx_mp_mpi_layout_t *inner)
{
    int rc = MPI_SUCCESS;
    MPI_Count length, first, step;

    length = (kind == MPI_DISTRIBUTE_NONE)           ? size :
             (argument != MPI_DISTRIBUTE_DFLT_DARG) ? argument :
             (kind == MPI_DISTRIBUTE_CYCLIC)        ? 1 :
                                                      (size + processes - 1) /
                                                              processes;
    step   = length * processes;
    for (first = length * place; (first < size) && (rc == MPI_SUCCESS);
         first += step) {
        rc = element_add(layout, first * extent,
                         (length < size - first) ? length : size - first,
                         extent, inner);
    }
    return rc;
}

/* Add a subarray or distributed array, one dimension after the other, from the
   contiguous one outwards */
static int walk_array(contents_t *contents, ucx_mp_mpi_layout_t *layout,
                      const element_t *element)
{
    const bool is_sub           = (contents->combiner == MPI_COMBINER_SUBARRAY);
    int processes               = is_sub ? 0 : take_integer(contents);
    int rank                    = is_sub ? 0 : take_integer(contents);
    const int dimensions        = take_integer(contents);
    contents_t sizes            = take_array(contents, dimensions, false);
    contents_t kinds            = *contents; /* or sizes of the subarray */
    contents_t arguments        = kinds;
    contents_t grid             = kinds;
    ucx_mp_mpi_layout_t inner   = {0};
    ucx_mp_mpi_layout_t outer   = {0};
    MPI_Count extent            = element->extent;
    int *places                 = calloc(dimensions + 1, sizeof(*places));
    int rc, i, at, order;

    if (places == NULL) {
        return UCX_MP_MPI_LAYOUT_NO_MEMORY;
    }

    /* a large call has large sizes, but grid and arguments of type int */
    if (is_sub) {
        kinds     = take_array(contents, dimensions, false);
        arguments = take_array(contents, dimensions, false);
    } else {
        contents->integer += 3 * (size_t)dimensions;
        arguments.integer += dimensions;
        grid.integer      += 2 * (size_t)dimensions;
        for (i = 0; i < dimensions; ++i) { /* ranks in the grid are in C
                                              order */
            processes /= grid.integers[grid.integer + i];
            places[i]  = rank / processes;
            rank      %= processes;
        }
    }
    order = take_integer(contents);

    rc = element_add(&inner, 0, 1, extent, &element->layout);
    for (i = 0; (i < dimensions) && (rc == MPI_SUCCESS); ++i) {
        at = (order == MPI_ORDER_C) ? dimensions - 1 - i : i;
#define AT(_array) \
    (((_array).num_counts > 0) ? (_array).counts[(_array).count + at] : \
                                 (_array).integers[(_array).integer + at])
        rc = is_sub ? element_add(&outer, AT(arguments) * extent, AT(kinds),
                                  extent, &inner) :
                      distributed_add(&outer, AT(sizes),
                                      kinds.integers[kinds.integer + at],
                                      arguments.integers[arguments.integer +
                                                         at],
                                      grid.integers[grid.integer + at],
                                      places[at], extent, &inner);
        extent *= AT(sizes);
        ucx_mp_mpi_layout_free(&inner);
        inner = outer;
        outer = (ucx_mp_mpi_layout_t){0};
    }

    if (rc == MPI_SUCCESS) {
        rc = element_add(layout, 0, 1, extent, &inner);
    }
    ucx_mp_mpi_layout_free(&inner);
    free(places);
    return rc;
}

static int walk_contents(contents_t *contents, ucx_mp_mpi_layout_t *layout,
                         int depth)
{
    element_t element = {0};
    MPI_Count count, length, stride;
    int rc;

    if (contents->combiner == MPI_COMBINER_STRUCT) {
        return walk_struct(contents, layout, depth);
    }

    rc = element_open(&element, contents->types[0], depth);
    if (rc != MPI_SUCCESS) {
        goto out;
    }

    switch (contents->combiner) {
    case MPI_COMBINER_DUP:
    case MPI_COMBINER_RESIZED:
        rc = element_add(layout, 0, 1, element.extent, &element.layout);
        break;
    case MPI_COMBINER_CONTIGUOUS:
        rc = element_add(layout, 0, take_count(contents), element.extent,
                         &element.layout);
        break;
    case MPI_COMBINER_VECTOR:
    case MPI_COMBINER_HVECTOR:
        count  = take_count(contents);
        length = take_count(contents);
        stride = (contents->combiner == MPI_COMBINER_HVECTOR) ?
                         take_address(contents) :
                         take_count(contents) * element.extent;
        rc     = vector_add(layout, &element, count, length, stride);
        break;
    case MPI_COMBINER_INDEXED:
    case MPI_COMBINER_HINDEXED:
    case MPI_COMBINER_INDEXED_BLOCK:
    case MPI_COMBINER_HINDEXED_BLOCK:
        rc = walk_indexed(contents, layout, &element);
        break;
    case MPI_COMBINER_SUBARRAY:
    case MPI_COMBINER_DARRAY:
        rc = walk_array(contents, layout, &element);
        break;
    default:
        rc = UCX_MP_MPI_LAYOUT_UNKNOWN;
    }

out:
    ucx_mp_mpi_layout_free(&element.layout);
    return rc;
}

/* Add the bytes of a datatype, found by packing an element whose bytes hold
   their own offsets: a byte of these at a time. Above INT_MAX bytes of data:
   UCX_MP_MPI_LAYOUT_TOO_LARGE. */
static int element_scan(ucx_mp_mpi_layout_t *layout, MPI_Datatype datatype,
                        const ucx_mp_mpi_type_sizes_t *sizes)
{
    const size_t size     = sizes->size;
    const size_t length   = sizes->length;
    const ptrdiff_t begin = sizes->begin;
    int rc                = MPI_SUCCESS;
    int shift             = 0;
    unsigned char *bytes, *packed;
    size_t *places, i, first;
    int position;

    if (size > INT_MAX) {
        return UCX_MP_MPI_LAYOUT_TOO_LARGE;
    }

    bytes  = malloc(length);
    packed = calloc(size, 1);
    places = calloc(size, sizeof(*places));
    if ((bytes == NULL) || (packed == NULL) || (places == NULL)) {
        rc = UCX_MP_MPI_LAYOUT_NO_MEMORY;
        goto out;
    }

    do {
        for (i = 0; i < length; ++i) {
            bytes[i] = (unsigned char)(i >> shift);
        }
        position = 0;
        rc       = ucx_mp_mpi_pmpi.Pack((void*)((uintptr_t)bytes - begin), 1,
                                        datatype, packed, (int)size, &position,
                                        ucx_mp_mpi_pmpi.comm_world);
        for (i = 0; (i < size) && (rc == MPI_SUCCESS); ++i) {
            places[i] |= (size_t)packed[i] << shift;
        }
        shift += 8;
    } while ((rc == MPI_SUCCESS) && ((length - 1) >> shift != 0));

    for (i = 0; (i < size) && (rc == MPI_SUCCESS);) {
        first = i;
        do {
            ++i;
        } while ((i < size) && (places[i] == places[i - 1] + 1));
        rc = ucx_mp_mpi_layout_add_row(layout, begin + places[first],
                                       i - first);
    }

out:
    free(places);
    free(packed);
    free(bytes);
    return rc;
}

static int type_walk(ucx_mp_mpi_layout_t *layout, MPI_Datatype datatype,
                     int depth)
{
    contents_t contents = {0};
    ucx_mp_mpi_type_sizes_t sizes;
    int rc;

    if (depth == 0) {
        return UCX_MP_MPI_LAYOUT_UNKNOWN;
    }

    rc = envelope_get(datatype, &contents);
    if (rc != MPI_SUCCESS) {
        return rc;
    }

    if (!is_basic(contents.combiner)) {
        rc = contents_get(datatype, &contents);
        if (rc == MPI_SUCCESS) {
            rc = (contents.num_types > 0) ?
                         walk_contents(&contents, layout, depth - 1) :
                         MPI_SUCCESS;
        }
        contents_free(&contents);
        return rc;
    }

    rc = ucx_mp_mpi_layout_type_sizes(datatype, &sizes);
    if (rc != MPI_SUCCESS) {
        return rc;
    }

    /* small pair with a gap */
    return (sizes.size == sizes.length) ?
                   ucx_mp_mpi_layout_add_row(layout, sizes.begin,
                                             sizes.length) :
                   element_scan(layout, datatype, &sizes);
}

int ucx_mp_mpi_layout_element(ucx_mp_mpi_layout_t *element,
                              MPI_Datatype datatype,
                              const ucx_mp_mpi_type_sizes_t *sizes)
{
    int rc = type_walk(element, datatype, MAX_DEPTH);

    if (rc != UCX_MP_MPI_LAYOUT_UNKNOWN) {
        return rc;
    }

    ucx_mp_mpi_layout_free(element);
    return element_scan(element, datatype, sizes);
}
