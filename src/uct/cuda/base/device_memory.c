/* SPDX-License-Identifier: BSD-3-Clause */
#include <uct/cuda/base/device_memory.h>

#include <uct/cuda/base/driver.h>


static void free_memory(CUdeviceptr address, bool is_waited)
{
    ucs_status_t status = UCS_ERR_UNSUPPORTED;
    CUstream stream;

    if ((uct_cuda_driver_get()->cuMemFreeAsync != NULL) &&
        (UCT_CUDA_CALL_NOLOG(cuStreamCreate, &stream,
                             CU_STREAM_NON_BLOCKING) == UCS_OK)) {
        status = UCT_CUDA_CALL_NOLOG(cuMemFreeAsync, address, stream);
        if (is_waited) {
            (void)UCT_CUDA_CALL_NOLOG(cuStreamSynchronize, stream);
        }
        (void)UCT_CUDA_CALL(cuStreamDestroy, stream);
    }

    if (status != UCS_OK) {
        (void)UCT_CUDA_CALL(cuMemFree, address);
    }
}

void uct_cuda_device_memory_free(CUdeviceptr address)
{
    free_memory(address, false);
}

void uct_cuda_device_memory_free_imported(CUdeviceptr address)
{
    free_memory(address, true);
}
