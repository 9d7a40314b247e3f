/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Component and transport of cuda_cma as seen by UCX: transfers between this
 * process's GPUs and host memory of another process of the node. Off unless
 * UCX belongs to NIXL or the user turns it on: its keys for host memory would
 * change UCP's messages between hosts.
 */
#ifndef UCT_CUDA_CMA_MD_H
#define UCT_CUDA_CMA_MD_H

#include <uct/abi/abi.h>

#include <stdbool.h>


/** Memory domain; interfaces use its data. */
typedef struct {
    uct_abi_md_t super;
    bool         is_on;
} uct_cuda_cma_md_t;


extern const uct_abi_component_t uct_cuda_cma_component;
extern const uct_abi_tl_t uct_cuda_cma_tl;

#endif
