/* SPDX-License-Identifier: BSD-3-Clause */
/* Components of the module. */
#include <uct/abi/abi.h>
#include <uct/cuda/cuda_cma/cuda_cma_md.h>
#include <uct/cuda/cuda_copy/cuda_copy_md.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_md.h>


const uct_abi_component_t *const uct_abi_components[] = {
    &uct_cuda_copy_component,
    &uct_cuda_ipc_component,
    &uct_cuda_cma_component,
    NULL
};
