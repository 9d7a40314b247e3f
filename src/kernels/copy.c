/* SPDX-License-Identifier: BSD-3-Clause */

#include "copy.h"

/* The PTX, a text with a zero behind it; see regenerate */
__asm__(".pushsection .rodata\n"
        ".globl ucx_mp_copy_ptx\n"
        ".hidden ucx_mp_copy_ptx\n"
        "ucx_mp_copy_ptx:\n"
        ".incbin \"" UCX_MP_COPY_PTX "\"\n"
        ".byte 0\n"
        ".popsection\n");

extern const char ucx_mp_copy_ptx[] __attribute__((visibility("hidden")));


CUresult ucx_mp_copy_load(const ucx_mp_kernels_driver_t *driver,
                          CUfunction *function_p)
{
    CUmodule module;
    CUresult result;

    result = driver->ModuleLoadData(&module, ucx_mp_copy_ptx);
    return (result != CUDA_SUCCESS) ?
                   result :
                   driver->ModuleGetFunction(function_p, module, "ucx_mp_copy");
}

CUresult ucx_mp_copy_launch(const ucx_mp_kernels_driver_t *driver,
                            CUfunction function, unsigned blocks,
                            const ucx_mp_copy_args_t *args, CUstream stream)
{
    void *params[] = {(void*)args};

    return driver->LaunchKernel(function, blocks, 1, 1, UCX_MP_COPY_THREADS, 1,
                                1, 0, stream, params, NULL);
}
