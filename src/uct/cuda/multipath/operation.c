/* SPDX-License-Identifier: BSD-3-Clause */
/* The one place where the engine and the transports' queues meet. */
#include <uct/cuda/multipath/operation.h>


static ucs_status_t transfer_test(uct_cuda_op_t *op)
{
    return uct_cuda_mp_test(op->work);
}

static ucs_status_t transfer_notify(uct_cuda_op_t *op, CUhostFn func, void *arg)
{
    return uct_cuda_mp_notify(op->work, func, arg);
}

static void transfer_release(uct_cuda_op_t *op)
{
    uct_cuda_mp_release(op->work);
}

ucs_status_t uct_cuda_mp_op_start(uct_cuda_mp_engine_t *engine,
                                  const uct_cuda_mp_request_t *request,
                                  uct_cuda_mp_memory_t *memory,
                                  uct_cuda_op_t *op)
{
    uct_cuda_mp_transfer_t *transfer;

    if ((uct_cuda_mp_start(engine, request, memory, &transfer) != UCS_OK) ||
        (transfer == NULL)) {
        return UCS_ERR_UNSUPPORTED;
    }

    op->work    = transfer;
    op->test    = transfer_test;
    op->notify  = transfer_notify;
    op->release = transfer_release;
    op->steps   = uct_cuda_mp_num_steps(transfer);
    return UCS_OK;
}

static void uncount(uct_cuda_op_t *op)
{
    uct_cuda_mp_single_end(op->work, op->counted);
}

void uct_cuda_mp_op_count(uct_cuda_mp_engine_t *engine, uct_cuda_end_t src,
                          uct_cuda_end_t dst, size_t size, uct_cuda_op_t *op)
{
    op->work    = engine;
    op->counted = uct_cuda_mp_single_begin(engine, src, dst, size);
    op->release = uncount;
}
