/* SPDX-License-Identifier: BSD-3-Clause */
#include <uct/cuda/base/device_memory.h>


CUresult uct_cuda_device_memory_free(const uct_cuda_driver_t *driver,
                                     CUdeviceptr address, bool is_waited)
{
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    CUstream stream;

    if ((driver->cuMemFreeAsync != NULL) &&
        (driver->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) ==
         CUDA_SUCCESS)) {
        result = driver->cuMemFreeAsync(address, stream);
        if (is_waited) {
            (void)driver->cuStreamSynchronize(stream);
        }
        (void)driver->cuStreamDestroy(stream);
    }

    return (result == CUDA_SUCCESS) ? result : driver->cuMemFree(address);
}
