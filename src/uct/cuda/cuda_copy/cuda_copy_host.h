/* SPDX-License-Identifier: BSD-3-Clause */
/* Large asynchronous copies between host and GPU memory of the process. */
#ifndef UCT_CUDA_COPY_HOST_H
#define UCT_CUDA_COPY_HOST_H

#include <uct/cuda/base/queue.h>
#include <uct/cuda/multipath/multipath.h>

#include <stdbool.h>


/** Bytes: what smaller copies could gain by locked memory is not worth finding
 *  out whether theirs is: 0.5 us or so. */
#define UCT_CUDA_COPY_HOST_MIN_SIZE (64ul << 10)


typedef struct {
    CUdeviceptr gpu;
    int         device;    /**< Of it; the driver's number */
    bool        is_plain;  /**< It belongs to a context, which any GPU can be
                                let reach */
    void        *host;
    size_t      length;    /**< Bytes */
    bool        to_gpu;
} uct_cuda_copy_host_request_t;


/**
 * Submit the copy to the operation's lane, whose context is current, or have
 * the engine carry it out; the operation is to be posted then. What of the host
 * memory is page-locked stays so until it is over.
 *
 * @param engine  NULL: one path.
 *
 * @return UCS_OK, or an error after which nothing is under way.
 */
ucs_status_t
uct_cuda_copy_host_start(uct_cuda_mp_engine_t *engine,
                         const uct_cuda_copy_host_request_t *request,
                         uct_cuda_op_t *op);

#endif
