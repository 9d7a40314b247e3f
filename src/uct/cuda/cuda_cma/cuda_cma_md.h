/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Component of cuda_cma as seen by UCX: transfers between this process's GPUs
 * and host memory of another process of the node. Off unless UCX belongs to
 * NIXL or the user turns it on: its keys for host memory would change UCP's
 * messages between hosts.
 */
#ifndef UCT_CUDA_CMA_MD_H
#define UCT_CUDA_CMA_MD_H

#include <uct/abi/abi.h>


extern const uct_abi_component_t uct_cuda_cma_component;

#endif
