/* SPDX-License-Identifier: BSD-3-Clause */

#include "pack.h"
#include "ptx.h"

UCX_MP_KERNELS_PTX(ucx_mp_pack_ptx, UCX_MP_PACK_PTX);


CUresult ucx_mp_pack_load(const ucx_mp_kernels_driver_t *driver,
                          CUfunction *function)
{
    CUmodule module;
    CUresult result;

    result = driver->ModuleLoadData(&module, ucx_mp_pack_ptx);
    return (result != CUDA_SUCCESS) ?
                   result :
                   driver->ModuleGetFunction(function, module, "ucx_mp_pack");
}

CUresult ucx_mp_pack_launch(const ucx_mp_kernels_driver_t *driver,
                            CUfunction function,
                            const ucx_mp_pack_args_t *args, CUstream stream)
{
    const unsigned long long block = args->unit * UCX_MP_PACK_THREADS *
                                     UCX_MP_PACK_WORDS;
    unsigned long long blocks      = (args->bytes + block - 1) / block;
    void *params[]                 = {(void*)args};

    if (blocks > UCX_MP_PACK_BLOCKS) {
        blocks = UCX_MP_PACK_BLOCKS;
    }
    return driver->LaunchKernel(function, (unsigned)blocks, 1, 1,
                                UCX_MP_PACK_THREADS, 1, 1, 0, stream, params,
                                NULL);
}
