/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Mappings that nobody needs any more.
 *
 * cuIpcCloseMemHandle() waits for all that the program has queued in the
 * context, which may wait for the program, and holds up every other call of the
 * context meanwhile (H100, driver 580). No call says whether anything is queued
 * but one that breaks captures. So such mappings are kept until they hold too
 * much memory, and then while the GPU is known to have something to do:
 * messages know of the legacy stream alone, collectives ask about all. Others
 * (cuMemUnmap, cuMemFreeAsync) do not wait and go at once.
 */
#ifndef UCT_CUDA_NODE_UNMAP_H
#define UCT_CUDA_NODE_UNMAP_H

#include <uct/cuda/node/handle.h>


/** Memory of a GPU that its processes and those they talk to keep in this way
 *  altogether, bytes; half of it where the GPU may be asked about ... */
#define UCT_CUDA_NODE_UNMAP_KEPT ((size_t)64 << 20)

/** ... and whatever the GPU is busy with. */
#define UCT_CUDA_NODE_UNMAP_MAX ((size_t)2 << 30)


/**
 * Close a mapping, or keep it for the next call that is due. Call these with
 * the mapping cache's lock held.
 *
 * @param context, id  In which it was opened; may be gone, and it with it.
 */
void uct_cuda_node_unmap(const uct_cuda_node_handle_t *handle,
                         CUdeviceptr mapped, CUcontext context,
                         unsigned long long id);

/**
 * Close the oldest of those that are too much, if that does not wait.
 *
 * @param may_ask  Whether a capture may end for it: see uct_cuda_ctx_is_idle().
 *                 Who may not goes by the last answer, while it is young.
 */
void uct_cuda_node_unmap_due(bool may_ask);

/**
 * Close those that are too much for messages, while that does not wait, however
 * much it is.
 *
 * @param max_ns  For so long, ns.
 * @return Whether more can be closed.
 */
bool uct_cuda_node_unmap_idle(uint64_t max_ns);

/** Is there too much, by what messages may close? */
bool uct_cuda_node_unmap_is_much(void);

/** May there be too much? A load; without the lock. */
bool uct_cuda_node_unmap_is_due(void);

/** Close those that a peer's small allocation has taken the place of. The
 *  driver keeps small allocations in blocks, and refuses to open one where
 *  another is still mapped (CUDA_ERROR_ALREADY_MAPPED; 2 x H100). */
void uct_cuda_node_unmap_replaced(const uct_cuda_node_handle_t *handle);

/** Close all. @return How many there were. */
unsigned uct_cuda_node_unmap_all(void);

#endif
