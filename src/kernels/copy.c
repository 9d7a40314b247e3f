/* SPDX-License-Identifier: BSD-3-Clause */

#include "copy.h"
#include "ptx.h"

UCX_MP_KERNELS_PTX(ucx_mp_copy_ptx, UCX_MP_COPY_PTX);


CUresult ucx_mp_copy_load(const ucx_mp_kernels_driver_t *driver,
                          ucx_mp_copy_t *kernels)
{
    CUmodule module;
    CUresult result;

    result = driver->ModuleLoadData(&module, ucx_mp_copy_ptx);
    if (result == CUDA_SUCCESS) {
        result = driver->ModuleGetFunction(&kernels->copy, module,
                                           "ucx_mp_copy");
    }
    if (result == CUDA_SUCCESS) {
        result = driver->ModuleGetFunction(&kernels->alike, module,
                                           "ucx_mp_copy_alike");
    }
    return result;
}

static CUresult launch(const ucx_mp_kernels_driver_t *driver,
                       CUfunction function, unsigned blocks, const void *args,
                       CUstream stream)
{
    void *params[] = {(void*)args};

    return driver->LaunchKernel(function, blocks, 1, 1, UCX_MP_COPY_THREADS, 1,
                                1, 0, stream, params, NULL);
}

CUresult ucx_mp_copy_launch(const ucx_mp_kernels_driver_t *driver,
                            const ucx_mp_copy_t *kernels, unsigned blocks,
                            const ucx_mp_copy_args_t *args, CUstream stream)
{
    return launch(driver, kernels->copy, blocks, args, stream);
}

CUresult
ucx_mp_copy_launch_alike(const ucx_mp_kernels_driver_t *driver,
                         const ucx_mp_copy_t *kernels, unsigned blocks,
                         const ucx_mp_copy_alike_args_t *args, CUstream stream)
{
    return launch(driver, kernels->alike, blocks, args, stream);
}
