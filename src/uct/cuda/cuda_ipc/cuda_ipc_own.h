/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers in the same process, in another worker: their memory is there. */
#ifndef UCT_CUDA_IPC_OWN_H
#define UCT_CUDA_IPC_OWN_H

#include <uct/cuda/base/queue.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_iface.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_rkey.h>

#include <stdbool.h>


/**
 * Do copies of a context go to the memory behind an own key directly? The
 * driver takes those between GPUs through host memory unless access has been
 * enabled, which is the program's to do: its cudaDeviceEnablePeerAccess() fails
 * if it is not the first. UCX_CUDA_IPC_PEER_ACCESS says whether this may do it.
 * Asks the driver once a key and context.
 *
 * @param rkey     Of this process; one thread at a time.
 * @param context  Is current.
 */
bool uct_cuda_ipc_own_reach(const uct_cuda_ipc_iface_t *iface,
                            const uct_cuda_ipc_rkey_t *rkey,
                            const uct_cuda_context_t *context);

/** Is UCX's one that a NIXL wheel carries? Its programs are the ones for which
 *  there are peers in the same process. */
bool uct_cuda_ipc_own_is_nixl(void);

#endif
