/* SPDX-License-Identifier: BSD-3-Clause */
/* A few pieces need no allocation; longer lists grow. A buffer with unknown
 * pieces is halved until the driver accepts it. */
#include <uct/cuda/base/host/host_pieces.h>

#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/memory.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>


void uct_cuda_host_pieces_init(uct_cuda_host_pieces_t *pieces)
{
    pieces->is_locked = false;
    pieces->pageable  = 0;
    pieces->count     = 0;
    pieces->space     = UCT_CUDA_HOST_PIECES_FEW;
    pieces->ends      = pieces->few_ends;
}

void uct_cuda_host_pieces_release(uct_cuda_host_pieces_t *pieces)
{
    if (pieces->ends != pieces->few_ends) {
        free(pieces->ends);
    }
}

static ucs_status_t reserve(uct_cuda_host_pieces_t *pieces)
{
    const unsigned space = 2 * pieces->space;
    size_t *ends;

    if (pieces->count < pieces->space) {
        return UCS_OK;
    }

    ends = malloc(space * sizeof(*ends));
    if (ends == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    memcpy(ends, pieces->ends, pieces->count * sizeof(*ends));
    uct_cuda_host_pieces_release(pieces);
    pieces->ends = ends;
    pieces->space = space;
    return UCS_OK;
}

/* Return the length of the next piece, without a registration's end in it */
static size_t find_piece(uintptr_t address, size_t length, bool *is_locked_p)
{
    uct_cuda_memory_t memory;
    size_t left;

    uct_cuda_memory_query((void*)address, length, &memory);
    *is_locked_p = (memory.type != UCS_MEMORY_TYPE_HOST) || memory.is_pinned;
    if (memory.is_pinned && (memory.base <= address) &&
        (address - memory.base < memory.length)) {
        left = memory.length - (address - memory.base);
        return (left < length) ? left : length;
    }

    return length;
}

ucs_status_t uct_cuda_host_pieces_find(uct_cuda_host_pieces_t *pieces,
                                       const void *address, size_t length)
{
    ucs_status_t status;
    size_t start, end;
    bool is_locked;

    for (start = 0; start < length; start = end) {
        status = reserve(pieces);
        if (status != UCS_OK) {
            return status;
        }

        end = start + find_piece((uintptr_t)address + start, length - start,
                                 &is_locked);
        pieces->ends[pieces->count++] = end;
        pieces->pageable             += is_locked ? 0 : end - start;
    }

    pieces->is_locked = (pieces->pageable == 0);
    return UCS_OK;
}

ucs_status_t uct_cuda_host_copy(CUdeviceptr gpu, void *host, size_t length,
                                bool to_gpu, CUstream stream)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    const uintptr_t start           = (uintptr_t)host;
    /* registrations consist of whole pages, of 64 KiB on some aarch64 */
    const uintptr_t page            = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t middle;
    ucs_status_t status;
    CUresult result;

    result = to_gpu ? driver->cuMemcpyHtoDAsync(gpu, host, length, stream) :
                      driver->cuMemcpyDtoHAsync(host, gpu, length, stream);
    if (result == CUDA_SUCCESS) {
        return UCS_OK;
    }

    /* the last page boundary of the first half, or the first of the second */
    middle = (start + (length / 2)) & ~(page - 1);
    middle = (middle > start) ? middle : middle + page;
    if ((result != CUDA_ERROR_INVALID_VALUE) || (middle >= start + length)) {
        uct_cuda_error("a copy of %zu bytes %s host memory at %p failed: %s",
                       length, to_gpu ? "from" : "to", host,
                       uct_cuda_result_name(result));
        return UCS_ERR_IO_ERROR;
    }

    status = uct_cuda_host_copy(gpu, host, middle - start, to_gpu, stream);
    if (status != UCS_OK) {
        return status;
    }

    return uct_cuda_host_copy(gpu + (middle - start), (void*)middle,
                              length - (middle - start), to_gpu, stream);
}

ucs_status_t uct_cuda_host_pieces_copy(const uct_cuda_host_pieces_t *pieces,
                                       CUdeviceptr gpu, void *host, bool to_gpu,
                                       CUstream stream)
{
    size_t start = 0;
    ucs_status_t status;
    unsigned i;

    for (i = 0; i < pieces->count; ++i) {
        status = uct_cuda_host_copy(gpu + start, (char*)host + start,
                                    pieces->ends[i] - start, to_gpu, stream);
        if (status != UCS_OK) {
            return status;
        }

        start = pieces->ends[i];
    }

    return UCS_OK;
}
