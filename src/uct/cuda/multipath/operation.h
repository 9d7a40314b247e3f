/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine's transfers, and what it is told of copies that it does not carry,
 * as operations of a queue.
 */
#ifndef UCT_CUDA_MP_OPERATION_H
#define UCT_CUDA_MP_OPERATION_H

#include <uct/cuda/base/queue.h>
#include <uct/cuda/multipath/multipath.h>

BEGIN_C_DECLS


/**
 * Offer a transfer to the engine, as to uct_cuda_mp_start().
 *
 * @return UCS_OK: started, and the operation, which is to be posted, follows it
 *         and gives it back before done(). UCS_ERR_UNSUPPORTED: one path is the
 *         way to go, nothing is under way.
 */
ucs_status_t uct_cuda_mp_op_start(uct_cuda_mp_engine_t *engine,
                                  const uct_cuda_mp_request_t *request,
                                  uct_cuda_mp_memory_t *memory,
                                  uct_cuda_op_t *op);


/** uct_cuda_mp_single_begin() for an operation that is one copy, until that is
 *  over. */
void uct_cuda_mp_op_count(uct_cuda_mp_engine_t *engine, uct_cuda_end_t src,
                          uct_cuda_end_t dst, size_t size, uct_cuda_op_t *op);


END_C_DECLS

#endif
