/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints of cuda_ipc. */
#ifndef UCT_CUDA_IPC_EP_H
#define UCT_CUDA_IPC_EP_H

#include <uct/cuda/base/iface.h>
#include <uct/cuda/node/process.h>
#include <uct/cuda/copy/post.h>

#include <cuda.h>


/** Interface data used by endpoints. */
typedef struct {
    uct_cuda_iface_t    super;
    uct_cuda_copy_ctx_t copy_ctx;
} uct_cuda_ipc_iface_t;


/** Endpoint for code on GPUs, in a context's memory. */
typedef struct uct_cuda_ipc_device_ep {
    CUdeviceptr                   memory;
    CUcontext                     context;
    unsigned long long            context_id;
    struct uct_cuda_ipc_device_ep *next;
} uct_cuda_ipc_device_ep_t;


typedef struct {
    uct_abi_ep_t               super;
    uct_cuda_node_iface_addr_t peer;
    bool                       is_self; /**< The peer is in this process */
    uct_cuda_ipc_device_ep_t   *device_eps; /**< One for each context */
} uct_cuda_ipc_ep_t;


ucs_status_t uct_cuda_ipc_ep_create(uct_abi_iface_t *iface,
                                    const uct_abi_ep_params_t *params,
                                    uct_ep_h *ep_p);

void uct_cuda_ipc_ep_destroy(uct_ep_h ep);

/** Return whether the endpoint was created to the process at these
 *  addresses. */
int uct_cuda_ipc_ep_is_connected(uct_ep_h ep, const uct_abi_ep_params_t *peer);

/** Return the endpoint for code on the current context's GPU: memory of that
 *  GPU, owned by the endpoint. */
ucs_status_t uct_cuda_ipc_ep_get_device_ep(uct_ep_h ep, void **device_ep_p);

#endif
