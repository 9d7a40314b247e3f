/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The component by which UCX knows cuda_cma: transfers between this process's
 * GPUs and the host memory of another process of the node. Off unless UCX is
 * NIXL's or the user turns it on: its keys for host memory would change what
 * UCP does with messages between hosts.
 */
#ifndef UCT_CUDA_CMA_MD_H
#define UCT_CUDA_CMA_MD_H

#include <uct/abi/abi.h>


extern const uct_abi_component_t uct_cuda_cma_component;

#endif
