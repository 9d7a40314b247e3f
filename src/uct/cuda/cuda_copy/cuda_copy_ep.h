/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies within a process, to and from GPU memory. */
#ifndef UCT_CUDA_COPY_EP_H
#define UCT_CUDA_COPY_EP_H

#include <uct/cuda/base/iface.h>
#include <uct/cuda/multipath/multipath.h>


/** Interface data used by endpoints. */
typedef struct {
    uct_cuda_iface_t     super;
    /** Engine of the process's cuda_ipc interfaces, configured by their
     *  variables; NULL until a copy uses it, or if there is none */
    uct_cuda_mp_engine_t *engine;
} uct_cuda_copy_iface_t;


/* UCT operations; both addresses are in this process, and rkeys are ignored */
ucs_status_t uct_cuda_copy_ep_put_short(uct_ep_h ep, const void *buffer,
                                        unsigned length, uint64_t remote_addr,
                                        uct_rkey_t rkey);

ucs_status_t uct_cuda_copy_ep_get_short(uct_ep_h ep, void *buffer,
                                        unsigned length, uint64_t remote_addr,
                                        uct_rkey_t rkey);

ucs_status_t uct_cuda_copy_ep_put_zcopy(uct_ep_h ep, const uct_iov_t *iov,
                                        size_t iovcnt, uint64_t remote_addr,
                                        uct_rkey_t rkey,
                                        uct_completion_t *comp);

ucs_status_t uct_cuda_copy_ep_get_zcopy(uct_ep_h ep, const uct_iov_t *iov,
                                        size_t iovcnt, uint64_t remote_addr,
                                        uct_rkey_t rkey,
                                        uct_completion_t *comp);

#endif
