/* SPDX-License-Identifier: BSD-3-Clause */
/* Keys of the GPU memory that an endpoint's transfers are in: the last few
 * allocations, each exported once. */
#ifndef UCT_CUDA_CMA_KEYS_H
#define UCT_CUDA_CMA_KEYS_H

#include <uct/cuda/cuda_cma/cuda_cma_page.h>
#include <uct/cuda/node/rkey.h>


/** An allocation of this process. */
typedef struct {
    CUdeviceptr                 begin;
    size_t                      size;        /**< 0: none yet */
    unsigned long long         buffer_id;
    unsigned                    outstanding; /**< Of transfers, by the user */
    uint64_t                    last_use;
    uint32_t                    serial;      /**< Another for each allocation */
    uint64_t                    refused;     /**< When, or 0: by the user */
    bool                        is_unowned;  /**< Of no context */
    uct_cuda_node_memh_t        *memh;
    uct_cuda_node_packed_rkey_t packed;
    uct_cuda_node_rkey_t        *rkey;       /**< Of uct_cuda_cma_key_own() */
} uct_cuda_cma_key_t;


typedef struct {
    uint64_t           num_uses;
    uint32_t           num_serials;
    uct_cuda_cma_key_t keys[UCT_CUDA_CMA_KEYS];
} uct_cuda_cma_keys_t;


/** That of the memory at @a address, with nobody asked: of an allocation that
 *  an outstanding transfer is in, so that it cannot be freed; or NULL. */
uct_cuda_cma_key_t *uct_cuda_cma_keys_find(uct_cuda_cma_keys_t *keys,
                                           const void *address, size_t length);

/**
 * The same of any allocation, which the driver is asked about.
 *
 * @return NULL: it cannot be shared, goes on behind its allocation, or all keys
 *         are in use.
 */
uct_cuda_cma_key_t *uct_cuda_cma_keys_get(uct_cuda_cma_keys_t *keys,
                                          const void *address, size_t length);

/** Does it cover that memory, if its allocation is still there? */
bool uct_cuda_cma_key_covers(const uct_cuda_cma_key_t *key,
                             const void *address, size_t length);

/** For copies within this process; NULL if there is none. */
const uct_cuda_node_rkey_t *uct_cuda_cma_key_own(uct_cuda_cma_key_t *key);

void uct_cuda_cma_keys_cleanup(uct_cuda_cma_keys_t *keys);

#endif
