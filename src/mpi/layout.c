/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi/layout.h>
#include <mpi/real.h>

#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>


/* The rows of one element are found once a datatype and kept as an attribute
   of it, which goes with it */
static struct {
    pthread_mutex_t lock;
    bool            has_keyval;
    int             keyval;
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER};


void ucx_mp_mpi_layout_free(ucx_mp_mpi_layout_t *layout)
{
    free(layout->rows);
    memset(layout, 0, sizeof(*layout));
}

static bool rows_continue(const ucx_mp_mpi_rows_t *rows,
                          const ucx_mp_mpi_rows_t *next)
{
    return (rows->count == 1) && (next->count == 1) &&
           (rows->offset + (ptrdiff_t)rows->length == next->offset);
}

/* One more like them, as far from the last as they are from each other */
static bool rows_repeat(const ucx_mp_mpi_rows_t *rows,
                        const ucx_mp_mpi_rows_t *next)
{
    return (rows->length == next->length) && (next->count == 1) &&
           ((rows->count == 1) ||
            (rows->offset + (ptrdiff_t)rows->count * rows->stride ==
             next->offset));
}

static int rows_add(ucx_mp_mpi_layout_t *layout, ptrdiff_t offset,
                    size_t length, ptrdiff_t stride, size_t count)
{
    ucx_mp_mpi_rows_t rows = {offset, length, stride, count};
    ucx_mp_mpi_rows_t *last, *grown;
    size_t capacity;

    if ((length == 0) || (count == 0)) {
        return MPI_SUCCESS;
    }

    if ((stride == (ptrdiff_t)length) || (count == 1)) {
        rows.length = length * count;
        rows.stride = rows.length;
        rows.count  = 1;
    }

    last = (layout->count > 0) ? &layout->rows[layout->count - 1] : NULL;
    if ((last != NULL) && rows_continue(last, &rows)) {
        last->length += rows.length;
        last->stride  = last->length;
        return MPI_SUCCESS;
    }
    if ((last != NULL) && rows_repeat(last, &rows)) {
        last->stride = (last->count == 1) ? offset - last->offset :
                                            last->stride;
        ++last->count;
        return MPI_SUCCESS;
    }

    if (layout->count == layout->capacity) {
        capacity = (layout->capacity == 0) ? 4 : layout->capacity * 2;
        grown    = realloc(layout->rows, capacity * sizeof(*grown));
        if (grown == NULL) {
            return UCX_MP_MPI_LAYOUT_NO_MEMORY;
        }
        layout->rows     = grown;
        layout->capacity = capacity;
    }

    layout->rows[layout->count++] = rows;
    return MPI_SUCCESS;
}

int ucx_mp_mpi_layout_add_row(ucx_mp_mpi_layout_t *layout, ptrdiff_t offset,
                              size_t length)
{
    return rows_add(layout, offset, length, length, 1);
}

/* MPI itself shows which bytes it writes: an element of ones is unpacked into
   zeros */
int ucx_mp_mpi_layout_look(ucx_mp_mpi_layout_t *layout, MPI_Datatype datatype,
                           size_t size, ptrdiff_t begin, size_t extent)
{
    int position = 0;
    size_t i     = 0;
    unsigned char *ones, *bytes;
    size_t first;
    int rc;

    if (size > INT_MAX) {
        return UCX_MP_MPI_LAYOUT_TOO_LARGE;
    }

    ones  = malloc(size);
    bytes = calloc(extent, 1);
    if ((ones == NULL) || (bytes == NULL)) {
        rc = UCX_MP_MPI_LAYOUT_NO_MEMORY;
        goto out;
    }

    memset(ones, 0xff, size);
    rc = ucx_mp_mpi_real.Unpack(ones, size, &position,
                                (void*)((uintptr_t)bytes - begin), 1, datatype,
                                ucx_mp_mpi_real.comm_world);
    while ((rc == MPI_SUCCESS) && (i < extent)) {
        if (bytes[i] == 0) {
            ++i;
            continue;
        }
        for (first = i; (i < extent) && (bytes[i] != 0); ++i) {
        }
        rc = ucx_mp_mpi_layout_add_row(layout, begin + first, i - first);
    }

out:
    free(bytes);
    free(ones);
    return rc;
}

static int element_find(ucx_mp_mpi_layout_t *element, MPI_Datatype datatype,
                        size_t size, ptrdiff_t begin, size_t extent)
{
    int rc = ucx_mp_mpi_layout_walk(element, datatype);

    if (rc != UCX_MP_MPI_LAYOUT_UNKNOWN) {
        return rc;
    }

    ucx_mp_mpi_layout_free(element);
    return ucx_mp_mpi_layout_look(element, datatype, size, begin, extent);
}

static int element_forget(MPI_Datatype datatype, int keyval, void *value,
                          void *state)
{
    (void)datatype;
    (void)keyval;
    (void)state;
    ucx_mp_mpi_layout_free(value);
    free(value);
    return MPI_SUCCESS;
}

static int element_copy_not(MPI_Datatype datatype, int keyval, void *state,
                            void *value, void *copy, int *flag)
{
    (void)datatype;
    (void)keyval;
    (void)state;
    (void)value;
    (void)copy;
    *flag = 0;
    return MPI_SUCCESS;
}

static int element_get(const ucx_mp_mpi_layout_t **element_p,
                       MPI_Datatype datatype, size_t size, ptrdiff_t begin,
                       size_t extent)
{
    ucx_mp_mpi_layout_t *element;
    int rc = MPI_SUCCESS;
    int found;

    pthread_mutex_lock(&cache.lock);
    if (!cache.has_keyval) {
        rc = ucx_mp_mpi_real.Type_create_keyval(element_copy_not,
                                                element_forget, &cache.keyval,
                                                NULL);
        if (rc != MPI_SUCCESS) {
            goto out;
        }
        cache.has_keyval = true;
    }

    rc = ucx_mp_mpi_real.Type_get_attr(datatype, cache.keyval, element_p,
                                       &found);
    if ((rc != MPI_SUCCESS) || found) {
        goto out;
    }

    element = calloc(1, sizeof(*element));
    if (element == NULL) {
        rc = UCX_MP_MPI_LAYOUT_NO_MEMORY;
        goto out;
    }

    rc = element_find(element, datatype, size, begin, extent);
    if (rc == MPI_SUCCESS) {
        rc = ucx_mp_mpi_real.Type_set_attr(datatype, cache.keyval, element);
    }
    if (rc != MPI_SUCCESS) {
        ucx_mp_mpi_layout_free(element);
        free(element);
        goto out;
    }

    *element_p = element;

out:
    pthread_mutex_unlock(&cache.lock);
    return rc;
}

/* As few rows as can be */
int ucx_mp_mpi_layout_add_rows(ucx_mp_mpi_layout_t *layout, ptrdiff_t offset,
                               size_t count, ptrdiff_t extent,
                               const ucx_mp_mpi_rows_t *rows)
{
    int rc = MPI_SUCCESS;
    size_t i;

    offset += rows->offset;
    if (rows->count == 1) {
        return rows_add(layout, offset, rows->length, extent, count);
    }

    if ((ptrdiff_t)rows->count * rows->stride == extent) {
        return rows_add(layout, offset, rows->length, rows->stride,
                        rows->count * count);
    }

    if (count <= rows->count) {
        for (i = 0; (i < count) && (rc == MPI_SUCCESS); ++i) {
            rc = rows_add(layout, offset + (ptrdiff_t)i * extent, rows->length,
                          rows->stride, rows->count);
        }
    } else {
        for (i = 0; (i < rows->count) && (rc == MPI_SUCCESS); ++i) {
            rc = rows_add(layout, offset + (ptrdiff_t)i * rows->stride,
                          rows->length, extent, count);
        }
    }

    return rc;
}

int ucx_mp_mpi_layout_add(ucx_mp_mpi_layout_t *layout, ptrdiff_t offset,
                          MPI_Count count, MPI_Datatype datatype)
{
    const ucx_mp_mpi_layout_t *element;
    MPI_Count size, lower, extent, begin, length;
    size_t i;
    int rc;

    rc = ucx_mp_mpi_real.Type_size_x(datatype, &size);
    if ((rc != MPI_SUCCESS) || (size == 0)) {
        return rc;
    }

    rc = ucx_mp_mpi_real.Type_get_extent_x(datatype, &lower, &extent);
    if (rc == MPI_SUCCESS) {
        rc = ucx_mp_mpi_real.Type_get_true_extent_x(datatype, &begin, &length);
    }
    if (rc != MPI_SUCCESS) {
        return rc;
    }

    if (size == length) {
        return rows_add(layout, offset + begin, length, extent, count);
    }

    rc = element_get(&element, datatype, size, begin, length);
    for (i = 0; (rc == MPI_SUCCESS) && (i < element->count); ++i) {
        rc = ucx_mp_mpi_layout_add_rows(layout, offset, count, extent,
                                        &element->rows[i]);
    }

    return rc;
}

int ucx_mp_mpi_layout_is_dense(MPI_Datatype datatype, bool *is_dense_p)
{
    MPI_Count size, begin, lower, length, extent;
    int rc;

    *is_dense_p = false;
    rc = ucx_mp_mpi_real.Type_size_x(datatype, &size);
    if (rc == MPI_SUCCESS) {
        rc = ucx_mp_mpi_real.Type_get_true_extent_x(datatype, &begin, &length);
    }
    if (rc == MPI_SUCCESS) {
        rc          = ucx_mp_mpi_real.Type_get_extent_x(datatype, &lower,
                                                        &extent);
        *is_dense_p = (size == length) && (size == extent);
    }

    return rc;
}
