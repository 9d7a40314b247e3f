/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi/strided.h>

#include <mpi.h>
#include <stdlib.h>
#include <string.h>


void ucx_mp_mpi_layout_free(ucx_mp_mpi_layout_t *layout)
{
    free(layout->rows);
    memset(layout, 0, sizeof(*layout));
}

/* Return whether the next row follows the last one, in memory and when
   packed */
static bool rows_continue(const ucx_mp_mpi_strided_t *rows,
                          const ucx_mp_mpi_strided_t *next)
{
    return (rows->count == 1) && (next->count == 1) &&
           (rows->offset + (ptrdiff_t)rows->length == next->offset) &&
           (rows->packed + rows->length == next->packed);
}

/* Return whether `next`, a single row, extends `rows`: it has the same length
   and follows at the same distance; after a single row, at any distance. */
static bool rows_repeat(const ucx_mp_mpi_strided_t *rows,
                        const ucx_mp_mpi_strided_t *next)
{
    return (rows->length == next->length) && (next->count == 1) &&
           (rows->is_joined == next->is_joined) &&
           ((rows->count == 1) ?
                    (rows->packed < next->packed) :
                    ((rows->offset + (ptrdiff_t)rows->count * rows->stride ==
                      next->offset) &&
                     (rows->packed + rows->count * rows->step ==
                      next->packed)));
}

/* Merge rows without gaps into one row */
static void rows_join(ucx_mp_mpi_strided_t *rows)
{
    if ((rows->count == 1) || ((rows->stride == (ptrdiff_t)rows->length) &&
                               (rows->step == rows->length))) {
        rows->length *= rows->count;
        rows->stride  = rows->length;
        rows->step    = rows->length;
        rows->count   = 1;
    }
}

static int rows_add(ucx_mp_mpi_layout_t *layout, ucx_mp_mpi_strided_t rows)
{
    ucx_mp_mpi_strided_t *last, *grown;
    size_t capacity;

    if ((rows.length == 0) || (rows.count == 0)) {
        return MPI_SUCCESS;
    }

    rows_join(&rows);
    last = (layout->count > 0) ? &layout->rows[layout->count - 1] : NULL;
    if ((last != NULL) && rows_continue(last, &rows)) {
        last->length   += rows.length;
        last->is_joined = true;
        rows_join(last);
        return MPI_SUCCESS;
    }
    if ((last != NULL) && rows_repeat(last, &rows)) {
        if (last->count == 1) {
            last->stride = rows.offset - last->offset;
            last->step   = rows.packed - last->packed;
        }
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
    const size_t packed = layout->size;

    layout->size += length;
    return rows_add(layout, (ucx_mp_mpi_strided_t){offset, length, length, 1,
                                                packed, length, false});
}

/* Add `rows` `count` times, `extent` bytes apart in memory and `size` bytes
   apart when packed, as few rows as possible */
static int rows_add_each(ucx_mp_mpi_layout_t *layout, ucx_mp_mpi_strided_t rows,
                         size_t count, ptrdiff_t extent, size_t size)
{
    ucx_mp_mpi_strided_t each = rows;
    const bool is_one         = (rows.count == 1);
    size_t times              = count;
    int rc                    = MPI_SUCCESS;
    size_t i;

    if (!is_one && ((ptrdiff_t)rows.count * rows.stride == extent) &&
        (rows.count * rows.step == size)) {
        rows.count *= count;
        return rows_add(layout, rows);
    }

    if (is_one || (count > rows.count)) { /* add all first rows together, then
                                             all second ones */
        each.count  = count;
        each.stride = extent;
        each.step   = size;
        times       = rows.count;
        extent      = rows.stride;
        size        = rows.step;
    }
    for (i = 0; (i < times) && (rc == MPI_SUCCESS); ++i) {
        rc           = rows_add(layout, each);
        each.offset += extent;
        each.packed += size;
    }
    return rc;
}

int ucx_mp_mpi_layout_add_elements(ucx_mp_mpi_layout_t *layout,
                                   ptrdiff_t offset, size_t count,
                                   ptrdiff_t extent,
                                   const ucx_mp_mpi_layout_t *element)
{
    const size_t packed = layout->size;
    int rc              = MPI_SUCCESS;
    ucx_mp_mpi_strided_t rows;
    size_t i;

    layout->size += count * element->size;
    for (i = 0; (i < element->count) && (rc == MPI_SUCCESS); ++i) {
        rows         = element->rows[i];
        rows.offset += offset;
        rows.packed += packed;
        rc           = rows_add_each(layout, rows, count, extent,
                                     element->size);
    }
    return rc;
}
