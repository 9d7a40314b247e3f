/* SPDX-License-Identifier: BSD-3-Clause */
/* Put and get between a process's own GPU memory and a peer's. */
#ifndef UCT_CUDA_IPC_EP_H
#define UCT_CUDA_IPC_EP_H

#include <uct/abi/abi.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_address.h>

#include <cuda.h>


typedef struct {
    uct_abi_ep_t              super;
    uct_cuda_ipc_iface_addr_t peer;
    bool                      is_own; /**< The peer is this process */
    CUdeviceptr               device_ep; /**< What code on GPUs takes for it, or
                                              0; in this context: */
    CUcontext                 device_ep_context;
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

/**
 * UCT's put and get. In its own process an endpoint copies between the
 * addresses as they are; there, host memory needs no key (there is none).
 *
 * @return UCS_INPROGRESS, UCS_OK (over already), UCS_ERR_NO_RESOURCE;
 *         UCS_ERR_INVALID_PARAM (no valid key, or out of its range),
 *         UCS_ERR_INVALID_ADDR (host memory that is not there).
 */
ucs_status_t uct_cuda_ipc_ep_put_zcopy(uct_ep_h ep, const uct_iov_t *iov,
                                       size_t iovcnt, uint64_t remote_addr,
                                       uct_rkey_t rkey, uct_completion_t *comp);

ucs_status_t uct_cuda_ipc_ep_get_zcopy(uct_ep_h ep, const uct_iov_t *iov,
                                       size_t iovcnt, uint64_t remote_addr,
                                       uct_rkey_t rkey, uct_completion_t *comp);

#endif
