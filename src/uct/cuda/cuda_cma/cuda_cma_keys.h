/* SPDX-License-Identifier: BSD-3-Clause */
/* Keys of the GPU memory in an endpoint's transfers: the last few allocations,
 * each exported once. */
#ifndef UCT_CUDA_CMA_KEYS_H
#define UCT_CUDA_CMA_KEYS_H

#include <uct/cuda/cuda_cma/cuda_cma_control.h>
#include <uct/cuda/node/rkey.h>


/** Allocation of this process. */
typedef struct {
    CUdeviceptr                 begin;       /**< Covered memory */
    size_t                      size;        /**< 0: none yet */
    unsigned long long         buffer_id;
    /** Running transfers; set by the user */
    unsigned                    outstanding;
    uint64_t                    last_use;
    uint32_t                    serial;      /**< Unique for each allocation */
    /** Time of refusal, or 0; set by the user */
    uint64_t                    refused;
    bool                        is_unowned;  /**< Belongs to no context */
    uct_cuda_node_memh_t        *memh;
    uct_cuda_node_packed_rkey_t packed;
    uct_cuda_node_rkey_t        *rkey;       /**< For uct_cuda_cma_key_own() */
} uct_cuda_cma_key_t;


typedef struct {
    uint64_t           num_uses;
    uint32_t           num_serials;
    uct_cuda_cma_key_t keys[UCT_CUDA_CMA_KEYS];
} uct_cuda_cma_keys_t;


/** Find the key of an allocation with a running transfer, which cannot be
 *  freed. Makes no driver call. NULL: none. */
uct_cuda_cma_key_t *uct_cuda_cma_keys_find(uct_cuda_cma_keys_t *keys,
                                           const void *address, size_t length);

/**
 * Return the key of any allocation. Queries the driver.
 *
 * @return NULL: it cannot be shared, the memory continues in another
 *         allocation, or all keys are in use.
 */
uct_cuda_cma_key_t *uct_cuda_cma_keys_get(uct_cuda_cma_keys_t *keys,
                                          const void *address, size_t length);

/** Return a remote key for copies within this process; NULL: none. */
uct_cuda_node_rkey_t *uct_cuda_cma_key_own(uct_cuda_cma_key_t *key);

void uct_cuda_cma_keys_cleanup(uct_cuda_cma_keys_t *keys);

#endif
