/* SPDX-License-Identifier: BSD-3-Clause */
/* Component of cuda_ipc as seen by UCX. */
#ifndef UCT_CUDA_IPC_MD_H
#define UCT_CUDA_IPC_MD_H

#include <uct/abi/abi.h>


extern const uct_abi_component_t uct_cuda_ipc_component;

#endif
