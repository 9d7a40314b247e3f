/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One copy as one operation, by the first suitable method of copy.h.
 * base/host/host_limits.h has the sizes for host memory; the engine has its
 * own.
 */
#ifndef UCT_CUDA_COPY_METHOD_H
#define UCT_CUDA_COPY_METHOD_H

#include <uct/cuda/base/queue.h>
#include <uct/cuda/copy/copy.h>
#include <uct/cuda/multipath/multipath.h>

#include <ucs/sys/compiler_def.h>

BEGIN_C_DECLS


/**
 * Start a copy: submit it to the operation's stream, whose context is current,
 * or start it by another method. The caller then posts the operation. The
 * operation's state and work belong to the method.
 *
 * @param copy    At least one byte, with both ends located. Used during the
 *                call only.
 * @param engine  NULL: none.
 * @param device  GPU of that context.
 * @param keep    Leave mappings of a peer's memory in the cache.
 * @return UCS_OK, or an error with nothing running and nothing held:
 *         UCS_ERR_NO_MEMORY, or the status of mapping or driver.
 */
ucs_status_t
uct_cuda_copy_start(uct_cuda_op_t *op, const uct_cuda_copy_t *copy,
                    uct_cuda_mp_engine_t *engine, int device, bool keep);

/**
 * Get an operation of the stream, start the copy and post it.
 *
 * @return As uct_cuda_op_get(), uct_cuda_copy_start(), uct_cuda_op_post().
 */
ucs_status_t
uct_cuda_copy_run(uct_cuda_queue_t *queue, uct_cuda_stream_t *stream,
                  const uct_cuda_copy_t *copy, uct_cuda_mp_engine_t *engine,
                  int device, bool keep);


END_C_DECLS

#endif
