/* SPDX-License-Identifier: BSD-3-Clause */
/* Put and get between memory of this process and a peer's GPU memory. */
#ifndef UCT_CUDA_IPC_TRANSFER_H
#define UCT_CUDA_IPC_TRANSFER_H

#include <uct/abi/abi.h>


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

/**
 * UCT's put_sgl_zcopy and get_sgl_zcopy (UCX 1.22, 1.23): small blocks of a
 * list go to the driver together. All blocks have been looked at before the
 * first one begins.
 *
 * @return As above. After UCS_INPROGRESS comp is told once, when all that began
 *         is over: with the error that kept the rest of the list from it, if
 *         there was one.
 */
ucs_status_t uct_cuda_ipc_ep_put_list(uct_ep_h ep, const uct_abi_list_t *list,
                                      uct_completion_t *comp);

ucs_status_t uct_cuda_ipc_ep_get_list(uct_ep_h ep, const uct_abi_list_t *list,
                                      uct_completion_t *comp);

#endif
