/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copy between two GPUs in two legs, through page-locked host memory. Each leg
 * runs in a context of its GPU.
 *
 * The driver copies cuMemCreate and pool memory only in contexts of GPUs with
 * access to it (H200, test/byhand/reach-h200.txt). Without peer access neither
 * GPU has access to the other's memory, so no context can have both ends.
 */
#ifndef UCT_CUDA_COPY_LEGS_H
#define UCT_CUDA_COPY_LEGS_H

#include <uct/cuda/copy/copy.h>

#include <ucs/sys/compiler_def.h>

BEGIN_C_DECLS


/** Return whether the copy, in a context of @a device, needs two legs: its
 *  local end is on a GPU whose memory @a device cannot access. */
bool uct_cuda_copy_needs_legs(const uct_cuda_copy_t *copy, int device);


/**
 * Submit the copy behind the work of a stream whose context is current, on the
 * remote end's GPU; later work of this stream comes after it.
 *
 * @param remote  Address of the remote end in this process.
 * @return UCS_OK, or an error with nothing running: UCS_ERR_NO_MEMORY, or the
 *         driver's.
 */
ucs_status_t uct_cuda_copy_submit_legs(const uct_cuda_copy_t *copy,
                                       CUdeviceptr remote, CUstream stream);


END_C_DECLS

#endif
