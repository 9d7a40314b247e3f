/* SPDX-License-Identifier: BSD-3-Clause */
/* Transfers with a peer's memory by the multi-path engine. */
#ifndef UCT_CUDA_IPC_MULTIPATH_H
#define UCT_CUDA_IPC_MULTIPATH_H

#include <uct/cuda/base/queue.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_iface.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_rkey.h>
#include <uct/cuda/multipath/multipath.h>

#include <stdbool.h>


/** What is to be moved. */
typedef struct {
    const uct_cuda_ipc_rkey_t *rkey;
    uint64_t                  remote_addr;
    void                      *local;
    uct_cuda_end_t            local_end;
    size_t                    length;       /**< Bytes */
    bool                      is_put;       /**< Else get */
    /** Of local host memory: as in uct_cuda_mp_request_t */
    int                       host_numa;
    unsigned                  num_cuts;
    const size_t              *cuts;
    /** Called with @a arg when the local memory is done with; may be NULL */
    void                      (*release)(void *arg);
    void                      *arg;
} uct_cuda_ipc_multipath_request_t;


/**
 * Offer a transfer to the engine, with the local GPU memory's context current,
 * or any one if it is the host's.
 *
 * @return UCS_OK: started, and the operation, which is to be posted, follows
 *         it. UCS_ERR_UNSUPPORTED: one path is the way to go; nothing is under
 *         way and the local memory is the caller's.
 */
ucs_status_t uct_cuda_ipc_multipath_start(
        uct_cuda_ipc_iface_t *iface,
        const uct_cuda_ipc_multipath_request_t *request, uct_cuda_op_t *op);


/**
 * Tell the engine of an operation that goes as one copy, as
 * uct_cuda_mp_single_begin() wants it. A peer's GPU that is not visible is none
 * of the engine's.
 */
void uct_cuda_ipc_multipath_count(uct_cuda_ipc_iface_t *iface,
                                  const uct_cuda_ipc_rkey_t *rkey,
                                  uct_cuda_end_t local, size_t length,
                                  bool is_put, uct_cuda_op_t *op);

/** The operation, counted or not, is over. */
void uct_cuda_ipc_multipath_uncount(uct_cuda_op_t *op);

#endif
