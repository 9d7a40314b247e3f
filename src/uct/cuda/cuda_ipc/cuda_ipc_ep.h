/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints of cuda_ipc. */
#ifndef UCT_CUDA_IPC_EP_H
#define UCT_CUDA_IPC_EP_H

#include <uct/cuda/base/iface.h>
#include <uct/cuda/node/process.h>
#include <uct/cuda/copy/post.h>

#include <cuda.h>


/** What endpoints know of their interface. */
typedef struct {
    uct_cuda_iface_t super;
    uct_cuda_port_t  port;
} uct_cuda_ipc_iface_t;


typedef struct {
    uct_abi_ep_t               super;
    uct_cuda_node_iface_addr_t peer;
    bool                       is_own; /**< The peer is this process */
    CUdeviceptr                device_ep; /**< What code on GPUs takes for it,
                                               or 0; in this context: */
    CUcontext                  device_ep_context;
    unsigned long long        device_ep_context_id;
} uct_cuda_ipc_ep_t;


ucs_status_t uct_cuda_ipc_ep_create(uct_abi_iface_t *iface,
                                    const uct_abi_ep_params_t *params,
                                    uct_ep_h *ep_p);

void uct_cuda_ipc_ep_destroy(uct_ep_h ep);

/** Was the endpoint made for the process at these addresses? */
int uct_cuda_ipc_ep_is_connected(uct_ep_h ep, const uct_abi_ep_params_t *peer);

/** What code on the current context's GPU takes for the endpoint: memory of
 *  that GPU, the endpoint's. */
ucs_status_t uct_cuda_ipc_ep_get_device_ep(uct_ep_h ep, void **device_ep_p);

#endif
