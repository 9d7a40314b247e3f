/* SPDX-License-Identifier: BSD-3-Clause */
/* Halves until the driver takes them; registrations consist of whole pages. */
#include <uct/cuda/base/host/host_copy.h>

#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/log.h>

#include <stdint.h>


#define PAGE_SIZE 4096


ucs_status_t uct_cuda_host_copy(CUdeviceptr gpu, void *host, size_t length,
                                bool to_gpu, CUstream stream)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    const uintptr_t start           = (uintptr_t)host;
    uintptr_t middle;
    ucs_status_t status;
    CUresult result;

    result = to_gpu ? driver->cuMemcpyHtoDAsync(gpu, host, length, stream) :
                      driver->cuMemcpyDtoHAsync(host, gpu, length, stream);
    if (result == CUDA_SUCCESS) {
        return UCS_OK;
    }

    /* The last page boundary of the first half, or the first of the second */
    middle = (start + (length / 2)) & ~(uintptr_t)(PAGE_SIZE - 1);
    middle = (middle > start) ? middle : middle + PAGE_SIZE;
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
