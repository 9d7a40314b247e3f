/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers in another worker of this process: their memory needs no mapping. */
#ifndef UCT_CUDA_NODE_SAME_PROCESS_H
#define UCT_CUDA_NODE_SAME_PROCESS_H

#include <uct/cuda/base/queue.h>
#include <uct/cuda/node/rkey.h>



/**
 * Find a context for direct copies to memory behind a key of this process.
 *
 * The driver stages copies between GPUs through host memory (38 GB/s on H200)
 * unless peer access is enabled. The module cannot enable it in the program's
 * contexts: a later cudaDeviceEnablePeerAccess() of the program would fail.
 * Peer access belongs to a pair of contexts (measured, driver 580), so a
 * context of the module on the local GPU, with access to the context of the
 * peer's memory, copies directly and leaves both contexts of the program
 * unchanged. Queries the driver once for each key and context.
 *
 * @param rkey     Key of this process; one thread at a time.
 * @param context  Current context, with the local memory.
 * @param device   Device of that context.
 * @return Context for the copy; NULL: use @a context. rkey->own.is_reached is
 *         then true if its copies are direct.
 */
CUcontext uct_cuda_node_same_process_context(const uct_cuda_node_rkey_t *rkey,
                                             const uct_cuda_context_t *context,
                                             int device);

#endif
