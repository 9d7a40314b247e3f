/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The allocations that this process has given out handles of, each once. Where
 * UCX does not see an allocation being freed, nobody tells: the watch
 * (node/watch.h) asks about all of them in turn, and ends what is gone. A
 * descriptor keeps its memory in use as a mapping does, so that few are held,
 * each no longer than somebody uses the handle. Peers ask for others
 * (node/descriptors.h).
 */
#ifndef UCT_CUDA_NODE_EXPORTS_H
#define UCT_CUDA_NODE_EXPORTS_H

#include <uct/cuda/node/handle.h>


/** Descriptors that are held at most. */
#define UCT_CUDA_NODE_EXPORTS_MAX_HELD 16


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

/** The caller uses it no more. The allocation may live on, and peers may keep
 *  it mapped; its descriptor is closed with the last user. */
void uct_cuda_node_exports_put(uct_cuda_node_handle_t *handle);

/** The allocation is about to be freed: whoever has its handle puts it back, or
 *  has done so. */
void uct_cuda_node_exports_end(uct_cuda_node_handle_t *handle);

/** Ask about some allocations in turn: are they still there? Some 0.2 us
 *  each.
 *
 *  @return How many there are in the table. */
unsigned uct_cuda_node_exports_check(unsigned count);

/** A new descriptor for a peer that names the handle by its notice, or -1: it
 *  has ended. */
int uct_cuda_node_exports_descriptor(const uct_cuda_node_notice_t *notice);

/** How many there are, and how many of them hold a descriptor, for tests. */
unsigned uct_cuda_node_exports_count(void);
unsigned uct_cuda_node_exports_num_held(void);

#endif
