/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi/rows.h>

#include <mpi.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>


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

int ucx_mp_mpi_rows_add(ucx_mp_mpi_layout_t *layout, ptrdiff_t offset,
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
    return ucx_mp_mpi_rows_add(layout, offset, length, length, 1);
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
        return ucx_mp_mpi_rows_add(layout, offset, rows->length, extent, count);
    }

    if ((ptrdiff_t)rows->count * rows->stride == extent) {
        return ucx_mp_mpi_rows_add(layout, offset, rows->length, rows->stride,
                                   rows->count * count);
    }

    if (count <= rows->count) {
        for (i = 0; (i < count) && (rc == MPI_SUCCESS); ++i) {
            rc = ucx_mp_mpi_rows_add(layout, offset + (ptrdiff_t)i * extent,
                                     rows->length, rows->stride, rows->count);
        }
    } else {
        for (i = 0; (i < rows->count) && (rc == MPI_SUCCESS); ++i) {
            rc = ucx_mp_mpi_rows_add(layout,
                                     offset + (ptrdiff_t)i * rows->stride,
                                     rows->length, extent, count);
        }
    }

    return rc;
}
