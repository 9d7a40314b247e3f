/* SPDX-License-Identifier: BSD-3-Clause */
#include <uct/cuda/base/device_memory.h>

#include <stdbool.h>


static void free_memory(const uct_cuda_driver_t *driver, CUdeviceptr address,
                        bool is_waited)
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

    if (result != CUDA_SUCCESS) {
        (void)driver->cuMemFree(address);
    }
}

void uct_cuda_device_memory_free(const uct_cuda_driver_t *driver,
                                 CUdeviceptr address)
{
    free_memory(driver, address, false);
}

void uct_cuda_device_memory_free_imported(const uct_cuda_driver_t *driver,
                                          CUdeviceptr address)
{
    free_memory(driver, address, true);
}
