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
#include <uct/cuda/cuda_cma/cuda_cma_page.h>

#include <stdbool.h>


extern const uct_abi_component_t uct_cuda_cma_component;


/** Unpacked key: host memory that a peer has registered. */
typedef struct {
    uint64_t magic;  /**< See uct_cuda_cma_rkey_get() */
    uint64_t base;
    uint64_t length; /**< Bytes */
    uct_cuda_cma_server_id_t server; /**< Of page-locked memory */
} uct_cuda_cma_rkey_t;


/** The key that UCT handed in, or NULL: it is none of this component's. */
const uct_cuda_cma_rkey_t *uct_cuda_cma_rkey_get(uct_rkey_t rkey);

/** Is it on? */
bool uct_cuda_cma_md_is_on(const uct_abi_md_t *md);

#endif
