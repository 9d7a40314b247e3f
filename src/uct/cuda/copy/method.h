/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One copy as one operation, by the first method that can carry it: the engine,
 * threads, a slot, the driver (copy.h). From which sizes on is in
 * base/host/host_limits.h; the engine has its own.
 */
#ifndef UCT_CUDA_COPY_METHOD_H
#define UCT_CUDA_COPY_METHOD_H

#include <uct/cuda/base/queue.h>
#include <uct/cuda/copy/copy.h>
#include <uct/cuda/multipath/multipath.h>

#include <ucs/sys/compiler_def.h>

BEGIN_C_DECLS


/**
 * Submit a copy to the operation's stream, whose context is current, or have it
 * carried out otherwise; the operation is to be posted then. Its state and work
 * are the method's.
 *
 * @param copy    At least one byte; both ends are known. Needed during the
 *                start only.
 * @param engine  NULL: there is none.
 * @param device  Of the context.
 * @param keep    Whether mappings of a peer's memory may stay in their cache.
 *
 * @return UCS_OK, or an error after which nothing is under way and nothing is
 *         held: UCS_ERR_NO_MEMORY, what mapping or the driver answered.
 */
ucs_status_t
uct_cuda_copy_start(uct_cuda_op_t *op, const uct_cuda_copy_t *copy,
                    uct_cuda_mp_engine_t *engine, int device, bool keep);

/** Take an operation of the stream, start the copy and post it.
 *  @return As uct_cuda_op_get(), uct_cuda_copy_start(), uct_cuda_op_post(). */
ucs_status_t
uct_cuda_copy_run(uct_cuda_queue_t *queue, uct_cuda_stream_t *stream,
                  const uct_cuda_copy_t *copy, uct_cuda_mp_engine_t *engine,
                  int device, bool keep);


/** A copy that the engine counts on the links, while it lasts. */
typedef struct {
    uct_cuda_mp_engine_t *engine; /**< NULL: it is not counted */
    uint16_t             number;
} uct_cuda_copy_count_t;

/** Count it, as uct_cuda_mp_single_begin() does. */
void uct_cuda_copy_count(uct_cuda_copy_count_t *count,
                         uct_cuda_mp_engine_t *engine, uct_cuda_end_t src,
                         uct_cuda_end_t dst, size_t size);

void uct_cuda_copy_uncount(uct_cuda_copy_count_t *count);


END_C_DECLS

#endif
