/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers in the same process, in another worker: their memory is there. */
#ifndef UCT_CUDA_NODE_OWN_H
#define UCT_CUDA_NODE_OWN_H

#include <uct/cuda/base/queue.h>
#include <uct/cuda/node/rkey.h>



/**
 * From which context do copies go to the memory behind an own key directly?
 *
 * The driver takes those between GPUs through host memory (38 GB/s on H200)
 * unless access has been enabled, which is the program's to do: its own
 * cudaDeviceEnablePeerAccess() would fail after ours. But access is a pair of
 * contexts' (measured, driver 580): a context of our own on the local GPU, with
 * access to the one that has the peer's memory, copies directly, and both
 * contexts of the program's stay as they are. Asks the driver once a key and
 * context.
 *
 * @param rkey     Of this process; one thread at a time.
 * @param context  Has the local memory, and is current.
 * @param device   Of that context.
 *
 * @return The context to copy in instead; NULL: this one will do, or there is
 *         none better. rkey->own.is_reached tells which.
 */
CUcontext uct_cuda_node_own_instead(const uct_cuda_node_rkey_t *rkey,
                                    const uct_cuda_context_t *context,
                                    int device);

#endif
