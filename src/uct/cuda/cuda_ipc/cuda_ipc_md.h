/* SPDX-License-Identifier: BSD-3-Clause */
/* Component and transport of cuda_ipc as seen by UCX. */
#ifndef UCT_CUDA_IPC_MD_H
#define UCT_CUDA_IPC_MD_H

#include <uct/abi/abi.h>
#include <uct/cuda/base/fabric.h>

#include <stdbool.h>


/** Memory domain; interfaces use its data. */
typedef struct {
    uct_abi_md_t      super;
    bool              has_fabric;
    uct_cuda_fabric_t fabric;
} uct_cuda_ipc_md_t;


extern const uct_abi_component_t uct_cuda_ipc_component;
extern const uct_abi_tl_t uct_cuda_ipc_tl;

#endif
