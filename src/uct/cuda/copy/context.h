/* SPDX-License-Identifier: BSD-3-Clause */
/* Choice of the context to copy in. */
#ifndef UCT_CUDA_COPY_CONTEXT_H
#define UCT_CUDA_COPY_CONTEXT_H

#include <uct/cuda/base/gpu.h>
#include <uct/cuda/copy/copy.h>


/**
 * Make the context of a copy current, until uct_cuda_gpu_context_pop():
 *
 *   host VMM memory        one whose GPU has access to it;
 *   GPU memory of this     that of the memory, the source's first. If it cannot
 *   process                map the other end, one of the peer's GPU: the driver
 *                          takes the copy through host memory;
 *   else, with a key       one of the peer's GPU, else any.
 *
 * @param copy  All ends without a key are located, and one of them is GPU
 *              memory unless the other has a key.
 * @return UCS_OK, or an error (logged): no usable context.
 */
ucs_status_t uct_cuda_copy_enter(const uct_cuda_copy_t *copy,
                                 uct_cuda_gpu_context_t *context);

#endif
