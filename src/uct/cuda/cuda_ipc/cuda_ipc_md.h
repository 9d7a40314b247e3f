/* SPDX-License-Identifier: BSD-3-Clause */
/* The component by which UCX knows cuda_ipc. */
#ifndef UCT_CUDA_IPC_MD_H
#define UCT_CUDA_IPC_MD_H

#include <uct/abi/abi.h>
#include <uct/cuda/base/fabric.h>


extern const uct_abi_component_t uct_cuda_ipc_component;


/** Where the domain's node is among those that NVLink joins; NULL: it is on its
 *  own, or is to be taken so. */
const uct_cuda_fabric_t *uct_cuda_ipc_md_fabric(const uct_abi_md_t *md);

#endif
