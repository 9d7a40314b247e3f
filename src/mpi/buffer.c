/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi/buffer.h>

#include <mpi/module.h>

#include <limits.h>
#include <string.h>
#include <unistd.h>


bool ucx_mp_mpi_pointer_is_host(const void *pointer)
{
    if (pointer == MPI_IN_PLACE) {
        return true;
    }

    /* addresses are in the datatype */
    return (pointer != MPI_BOTTOM) &&
           (ucx_mp_mpi_gpu_memory(pointer) == UCX_MP_MPI_MEMORY_HOST);
}

static uintptr_t heap_begin;

__attribute__((constructor)) static void heap_init(void)
{
    heap_begin = (uintptr_t)sbrk(0);
}

bool ucx_mp_mpi_pointer_is_heap(const void *pointer)
{
    return (uintptr_t)pointer - heap_begin < (uintptr_t)sbrk(0) - heap_begin;
}

bool ucx_mp_mpi_pointers_are_host(const void *first, const void *second)
{
    return ucx_mp_mpi_pointer_is_host(first) &&
           ucx_mp_mpi_pointer_is_host(second);
}

bool ucx_mp_mpi_pointer_is_gpu(const void *pointer)
{
    return (pointer != MPI_IN_PLACE) && (pointer != MPI_BOTTOM) &&
           (ucx_mp_mpi_gpu_memory(pointer) == UCX_MP_MPI_MEMORY_GPU);
}

void ucx_mp_mpi_buffer_point(ucx_mp_mpi_buffer_t *buffer, const void *pointer)
{
    buffer->given = pointer;
    memcpy(buffer->pointer_p, &pointer, sizeof(pointer));
}

/* Return an address of a row in GPU memory, or NULL. Look up one address per
   granule (UCX_MP_MPI_GRANULE). `*seen_p`: number of the last granule looked
   up, which is host memory; updated. */
static const void *row_on_gpu(const char *row, size_t length,
                              uintptr_t *seen_p)
{
    uintptr_t at        = (uintptr_t)row;
    const uintptr_t end = at + length;

    while (at < end) {
        if (at / UCX_MP_MPI_GRANULE != *seen_p) {
            *seen_p = at / UCX_MP_MPI_GRANULE;
            if (!ucx_mp_mpi_pointer_is_host((void*)at)) {
                return (void*)at;
            }
        }
        at = (*seen_p + 1) * UCX_MP_MPI_GRANULE;
    }
    return NULL;
}

/* A pointer belongs to one allocation, but a datatype may refer to others:
   elements at a host pointer may be in GPU memory, and the reverse. If only
   `original` itself is GPU memory, return it: UCX then treats the whole buffer
   as GPU memory. */
const void *ucx_mp_mpi_buffer_on_gpu(const ucx_mp_mpi_buffer_t *buffer)
{
    const void *found = NULL;
    uintptr_t seen    = UINTPTR_MAX;
    const ucx_mp_mpi_strided_t *rows;
    size_t i, j;

    for (i = 0; i < buffer->layout.count; ++i) {
        rows = &buffer->layout.rows[i];
        for (j = 0; (j < rows->count) && (found == NULL); ++j) {
            found = row_on_gpu((const char*)buffer->original + rows->offset +
                                       (ptrdiff_t)j * rows->stride,
                               rows->length, &seen);
        }
    }
    return ((found == NULL) && (buffer->layout.count > 0) &&
            !ucx_mp_mpi_pointer_is_host(buffer->original)) ?
                   buffer->original :
                   found;
}


/* ---------------------------------------------------------- packed messages */

bool ucx_mp_mpi_buffer_give_bytes(ucx_mp_mpi_buffer_t *buffer,
                                  const void *pointer)
{
    const size_t bytes = buffer->bytes;

    if (bytes <= INT_MAX) {
        if (buffer->count_width == sizeof(int)) {
            *(int*)buffer->count_p = (int)bytes;
        } else {
            *(MPI_Count*)buffer->count_p = (MPI_Count)bytes;
        }
        *buffer->parts.type_p = ucx_mp_mpi_pmpi.byte;
    } else if (!ucx_mp_mpi_packed_make(&buffer->packed, &buffer->parts,
                                       UCX_MP_MPI_PACKED_CONTIGUOUS)) {
        return false;
    }

    ucx_mp_mpi_buffer_point(buffer, pointer);
    return true;
}

/* Return whether the range has no GPU memory. Ranges above 2 GiB count as
   unknown: false. */
static bool is_host_range(const char *low, size_t size)
{
    uintptr_t seen = UINTPTR_MAX;

    return (size / UCX_MP_MPI_GRANULE <= 1024) &&
           (row_on_gpu(low, size, &seen) == NULL);
}

size_t ucx_mp_mpi_buffer_locate(ucx_mp_mpi_buffer_t *buffer)
{
    const ucx_mp_mpi_element_t *element = buffer->element;
    const ptrdiff_t last = (buffer->parts.count - 1) * element->extent;
    const size_t size    = element->high - element->low +
                           ((last < 0) ? -last : last);
    const char *low;

    buffer->low = element->low + ((last < 0) ? last : 0);
    low         = (const char*)buffer->original + buffer->low;
    if (buffer->on_gpu != NULL) {
        return size;
    }

    if (ucx_mp_mpi_gpu_is_one_allocation(low, size)) {
        buffer->is_single = true;
        buffer->on_gpu   = low;
        return size;
    }

    if (ucx_mp_mpi_pmpi.assists) {
        return 0; /* the MPI handles other memory */
    }

    if (is_host_range(low, size) &&
        ((buffer->original == MPI_BOTTOM) ||
         ucx_mp_mpi_pointer_is_host(buffer->original))) {
        return 0;
    }

    /* The range is mixed or unknown: look up each row. Without memory for the
       rows, assume GPU memory and stage the buffer. */
    buffer->on_gpu = (ucx_mp_mpi_layout_add(&buffer->layout, 0,
                                            buffer->parts.count,
                                            *buffer->parts.type_p, true) ==
                      MPI_SUCCESS) ?
                             ucx_mp_mpi_buffer_on_gpu(buffer) :
                             low;
    return (buffer->on_gpu == NULL) ? 0 : size;
}

/* Allocate GPU memory for the packed bytes. */
static bool hold_on_gpu(ucx_mp_mpi_buffer_t *buffer, ucx_mp_mpi_copy_t *copy)
{
    buffer->block     = ucx_mp_mpi_gpu_block_get(copy, buffer->bytes);
    buffer->is_packed = (buffer->block != NULL);
    return buffer->is_packed;
}

/* Describe all elements as rows. @return false without memory, or after an
   error of the MPI. */
static bool hold_rows(ucx_mp_mpi_buffer_t *buffer)
{
    return (buffer->layout.count > 0) ||
           (ucx_mp_mpi_layout_add(&buffer->layout, 0, buffer->parts.count,
                                  *buffer->parts.type_p, true) == MPI_SUCCESS);
}

static bool hold_on_host(ucx_mp_mpi_buffer_t *buffer, ucx_mp_mpi_copy_t *copy,
                         bool has_kernel)
{
    buffer->block = ucx_mp_mpi_pool_get(buffer->bytes, buffer->bytes, copy);
    if (buffer->block == NULL) {
        return false;
    }

    buffer->is_packed = has_kernel && ucx_mp_mpi_block_is_mapped(buffer->block);
    if (buffer->is_packed || hold_rows(buffer)) {
        return true;
    }

    ucx_mp_mpi_block_put(buffer->block);
    buffer->block = NULL;
    return false;
}

bool ucx_mp_mpi_buffer_hold_bytes(ucx_mp_mpi_buffer_t *buffer,
                                  ucx_mp_mpi_copy_t *copy)
{
    /* with the module, UCX can send from GPU memory */
    const bool on_gpu     = !buffer->is_cpu && (ucx_mp_mpi_module() != NULL);
    const bool has_kernel = buffer->is_single &&
                            (on_gpu || !ucx_mp_mpi_pmpi.assists) &&
                            ucx_mp_mpi_pack_prepare(copy, buffer->element);

    if (!(on_gpu && has_kernel && hold_on_gpu(buffer, copy)) &&
        (ucx_mp_mpi_pmpi.assists ||
         !hold_on_host(buffer, copy, has_kernel))) {
        return false;
    }

    buffer->staged = buffer->block->address;
    return ucx_mp_mpi_buffer_give_bytes(buffer, buffer->staged);
}
