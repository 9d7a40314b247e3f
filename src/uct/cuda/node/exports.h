/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The allocations that this process has given out handles of, each once. Nobody
 * tells when one of them is freed where UCX does not see it: so with each new
 * one a few old ones are asked about, and what is gone is ended. Its descriptor
 * is closed, which keeps memory as long as a mapping does, and peers are told.
 */
#ifndef UCT_CUDA_NODE_EXPORTS_H
#define UCT_CUDA_NODE_EXPORTS_H

#include <uct/cuda/node/handle.h>


/**
 * The handle of an allocation: that which it has already, or a new one. To be
 * put back. Any thread.
 *
 * @param address  In the allocation.
 * @param memory   What the driver says of the address.
 * @return As uct_cuda_node_handle_export().
 */
ucs_status_t uct_cuda_node_exports_get(const void *address,
                                       const uct_cuda_memory_t *memory,
                                       uct_cuda_node_handle_t *handle_p);

/** It is not used any more by who has got it. The allocation may live on. */
void uct_cuda_node_exports_put(uct_cuda_node_handle_t *handle);

/** The allocation is about to be freed: whoever has its handle puts it back, or
 *  has done so. */
void uct_cuda_node_exports_end(uct_cuda_node_handle_t *handle);

/** Ask about a few allocations: are they still there? Some 0.2 us each. */
void uct_cuda_node_exports_check(void);

/** How many there are, for tests. */
unsigned uct_cuda_node_exports_count(void);

#endif
