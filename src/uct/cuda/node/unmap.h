/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Unused mappings, kept until they can be closed without blocking.
 *
 * cuIpcCloseMemHandle() waits for all work queued in the context, which may
 * wait for the program, and blocks every other call of the context meanwhile
 * (H100, driver 580). The only query for queued work invalidates captures. So
 * unused legacy mappings are kept until they hold too much memory, and beyond
 * that while the GPU is known to be busy: messages check the legacy stream
 * only, collectives check all streams. Other mappings (cuMemUnmap,
 * cuMemFreeAsync) are closed at once, since this does not wait.
 */
#ifndef UCT_CUDA_NODE_UNMAP_H
#define UCT_CUDA_NODE_UNMAP_H

#include <uct/cuda/node/handle.h>


/** Limit for the memory of a GPU that all processes and their peers keep mapped
 *  together, bytes; half of it if the GPU may be queried. */
#define UCT_CUDA_NODE_UNMAP_KEPT ((size_t)64 << 20)

/** Limit that holds even if the GPU is busy, bytes. */
#define UCT_CUDA_NODE_UNMAP_MAX ((size_t)2 << 30)


/**
 * Close a mapping of cuMemCreate or pool memory, or keep a legacy one until a
 * later call closes it. Call these functions with the mapping cache's lock
 * held.
 *
 * @param device       Device of the mapping.
 * @param context, id  Context of the mapping; may be destroyed, and the mapping
 *                     with it.
 */
void uct_cuda_node_unmap(const uct_cuda_node_handle_t *handle,
                         CUdeviceptr mapped, CUdevice device,
                         CUcontext context, unsigned long long id);

/** Return whether closing a mapping in this context would block for long. Waits
 *  up to 2 ms, see uct_cuda_ctx_wait_idle(); may invalidate a capture, see
 *  uct_cuda_ctx_is_idle(). */
bool uct_cuda_node_unmap_blocks(const uct_cuda_node_handle_t *handle,
                                CUcontext context, unsigned long long id);

/**
 * Close the oldest kept mappings: above this process's share of
 * UCT_CUDA_NODE_UNMAP_KEPT (half of it with @a may_query) while the GPU is
 * idle; above that of UCT_CUDA_NODE_UNMAP_MAX also if this blocks.
 *
 * @param may_query  The query may invalidate a capture, see
 *                   uct_cuda_ctx_is_idle(). Otherwise the last answer is used
 *                   while it is recent.
 */
void uct_cuda_node_unmap_due(bool may_query);

/**
 * Close kept mappings above this process's share of UCT_CUDA_NODE_UNMAP_KEPT
 * while the GPU is idle, so that closing does not block.
 *
 * @param max_ns  Time limit, ns.
 * @return true: the time is over, more are above the share; false: none is, or
 *         the GPU is busy.
 */
bool uct_cuda_node_unmap_idle(uint64_t max_ns);

/** Return whether the kept mappings exceed this process's share of
 *  UCT_CUDA_NODE_UNMAP_KEPT. */
bool uct_cuda_node_unmap_is_much(void);

/** Return whether kept mappings may exceed a limit. Costs one load; needs no
 *  lock. */
bool uct_cuda_node_unmap_is_due(void);

/**
 * Close a device's kept mappings replaced by a peer's small allocation. The
 * driver puts small allocations into blocks, and opens no handle of a block
 * while another is mapped (CUDA_ERROR_ALREADY_MAPPED; 2 x H100).
 *
 * @param may_block  Close them also if this blocks. Otherwise keep those for
 *                   which uct_cuda_node_unmap_blocks() is true.
 * @return false: some stay, as the GPU is busy.
 */
bool uct_cuda_node_unmap_replaced(const uct_cuda_node_handle_t *handle,
                                  CUdevice device, bool may_block);

/**
 * Close a device's kept mappings, except those for which
 * uct_cuda_node_unmap_blocks() is true.
 *
 * @param is_busy_p  Set to true if some stay, as the GPU is busy.
 * @return Number of mappings closed.
 */
unsigned uct_cuda_node_unmap_device(CUdevice device, bool *is_busy_p);

/**
 * Close all kept mappings, waiting for work in their contexts.
 *
 * @return Their number.
 */
unsigned uct_cuda_node_unmap_all(void);

#endif
