/* SPDX-License-Identifier: BSD-3-Clause */
/* Put and get between GPU memory of this process and host memory of a peer. */
#ifndef UCT_CUDA_CMA_EP_H
#define UCT_CUDA_CMA_EP_H

#include <uct/cuda/base/iface.h>
#include <uct/cuda/cuda_cma/cuda_cma_channel.h>
#include <uct/cuda/cuda_cma/cuda_cma_keys.h>
#include <uct/cuda/cuda_cma/cuda_cma_peer.h>
#include <uct/cuda/copy/post.h>


/** Interface data used by endpoints. */
typedef struct {
    uct_cuda_iface_t    super;
    uct_cuda_copier_t copier;  /**< For copies within this process */
    uct_cuda_cma_channel_t *channels; /**< To peers' servers, one each */
} uct_cuda_cma_iface_t;


typedef struct {
    uct_abi_ep_t        super;
    uct_cuda_cma_addr_t addr;
    uct_cuda_cma_peer_t *peer; /**< NULL: another worker of this process */
    /** For a worker of this process, from first use */
    uct_cuda_cma_keys_t *keys;
    uct_cuda_cma_key_t  *last; /**< Last one used of keys, or NULL */
    uct_cuda_cma_channel_t *channel; /**< To the peer's server, or NULL */
    uint64_t            requested; /**< Last request for a channel, ns; or 0 */
} uct_cuda_cma_ep_t;


/**
 * Create an endpoint.
 *
 * @return UCS_ERR_UNREACHABLE if the peer has ended since the reachability
 *         check.
 */
ucs_status_t uct_cuda_cma_ep_create(uct_abi_iface_t *iface,
                                    const uct_abi_ep_params_t *params,
                                    uct_ep_h *ep_p);

void uct_cuda_cma_ep_destroy(uct_ep_h ep);

int uct_cuda_cma_ep_is_connected(uct_ep_h ep, const uct_abi_ep_params_t *peer);

/**
 * Put or get a buffer in GPU memory.
 *
 * @return UCS_INPROGRESS (an error of uct_cuda_cma_peer_copy() is reported to
 *         the completion), UCS_OK (empty), UCS_ERR_NO_RESOURCE,
 *         UCS_ERR_INVALID_PARAM (invalid key, or outside of its range),
 *         UCS_ERR_UNSUPPORTED (local host memory), or the driver's error.
 */
ucs_status_t uct_cuda_cma_ep_put_zcopy(uct_ep_h ep, const uct_iov_t *iov,
                                       size_t iovcnt, uint64_t remote_addr,
                                       uct_rkey_t rkey, uct_completion_t *comp);

ucs_status_t uct_cuda_cma_ep_get_zcopy(uct_ep_h ep, const uct_iov_t *iov,
                                       size_t iovcnt, uint64_t remote_addr,
                                       uct_rkey_t rkey, uct_completion_t *comp);

#endif
