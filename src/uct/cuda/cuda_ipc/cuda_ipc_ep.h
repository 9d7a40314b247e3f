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
    uct_cuda_copier_t copier;
} uct_cuda_ipc_iface_t;


/** Endpoint for code on GPUs: one byte in GPU memory of a context. */
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


/**
 * Put or get a buffer. With an endpoint to this process, host memory has no key
 * (UCT_INVALID_RKEY) and is addressed directly.
 *
 * @return UCS_INPROGRESS, UCS_OK (complete already), UCS_ERR_NO_RESOURCE;
 *         UCS_ERR_INVALID_PARAM (invalid key, or outside of its range),
 *         UCS_ERR_INVALID_ADDR (unmapped host memory).
 */
ucs_status_t uct_cuda_ipc_ep_put_zcopy(uct_ep_h ep, const uct_iov_t *iov,
                                       size_t iovcnt, uint64_t remote_addr,
                                       uct_rkey_t rkey, uct_completion_t *comp);

ucs_status_t uct_cuda_ipc_ep_get_zcopy(uct_ep_h ep, const uct_iov_t *iov,
                                       size_t iovcnt, uint64_t remote_addr,
                                       uct_rkey_t rkey, uct_completion_t *comp);

/**
 * Put or get a list, as UCT's put_sgl_zcopy and get_sgl_zcopy (UCX 1.22, 1.23).
 * Small blocks are submitted together. All blocks are checked before the first
 * one starts.
 *
 * @return As uct_cuda_ipc_ep_put_zcopy(). After UCS_INPROGRESS comp is called
 *         once, when all started blocks have ended, with the error that stopped
 *         the rest of the list, if any.
 */
ucs_status_t uct_cuda_ipc_ep_put_list(uct_ep_h ep, const uct_abi_list_t *list,
                                      uct_completion_t *comp);

ucs_status_t uct_cuda_ipc_ep_get_list(uct_ep_h ep, const uct_abi_list_t *list,
                                      uct_completion_t *comp);

#endif
