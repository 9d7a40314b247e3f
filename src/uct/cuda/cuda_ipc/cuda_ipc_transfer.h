/* SPDX-License-Identifier: BSD-3-Clause */
/* Put and get between memory of this process and a peer's GPU memory. */
#ifndef UCT_CUDA_IPC_TRANSFER_H
#define UCT_CUDA_IPC_TRANSFER_H

#include <uct/abi/abi.h>


/**
 * Put or get a buffer. An endpoint to this process copies between plain
 * addresses; host memory then needs no key (there is none).
 *
 * @return UCS_INPROGRESS, UCS_OK (ended already), UCS_ERR_NO_RESOURCE;
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
