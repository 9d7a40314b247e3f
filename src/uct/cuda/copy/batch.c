/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies by the copy kernel, by one driver call, or one by one. */
#include <uct/cuda/copy/batch.h>

#include <uct/cuda/base/clock.h>
#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/host/host_pieces.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/trace.h>

#include <stdio.h>


/* Time until a kernel is checked, ns: ten times the copy of 16 MiB over PCIe.
 * Cancelling a kernel too early does no harm: copies replace it. */
#define KERNEL_PATIENCE_NS (4ul * 1000 * 1000)


static ucs_status_t copy_one(const uct_cuda_copy_batch_t *batch, unsigned i,
                             CUstream stream)
{
    const CUdeviceptr dst = batch->copies.dst[i];
    const CUdeviceptr src = batch->copies.src[i];
    const size_t length   = batch->copies.length[i];

    if (batch->local_end.kind == UCT_CUDA_END_GPU) {
        return UCT_CUDA_CALL(cuMemcpyDtoDAsync, dst, src, length, stream);
    }

    return batch->is_put ?
                   uct_cuda_host_copy(dst, (void*)src, length, true, stream) :
                   uct_cuda_host_copy(src, (void*)dst, length, false, stream);
}

/* Submit the copies one by one; if one fails, wait for the others */
static ucs_status_t
copy_each(const uct_cuda_copy_batch_t *batch, CUstream stream)
{
    ucs_status_t status = UCS_OK;
    unsigned i;

    for (i = 0; (i < batch->copies.count) && (status == UCS_OK); ++i) {
        status = copy_one(batch, i, stream);
    }

    if (status != UCS_OK) {
        (void)uct_cuda_driver_get()->cuStreamSynchronize(stream);
    }

    return status;
}

static ucs_status_t copy_all(uct_cuda_copy_batch_t *batch, CUstream stream)
{
    uct_cuda_copy_list_t *copies            = &batch->copies;
    uct_cuda_memcpy_attributes_t attributes = {
        .src_access_order = UCT_CUDA_SRC_ACCESS_ORDER_STREAM
    };
    size_t first = 0, failed;

    /* if the driver fails after part of the call, the single copies repeat that
     * part */
    if ((copies->count > 1) &&
        (UCT_CUDA_CALL_NOLOG(cuMemcpyBatchAsync_v1, copies->dst, copies->src,
                             copies->length, copies->count, &attributes, &first,
                             1, &failed, stream) == UCS_OK)) {
        return UCS_OK;
    }

    return copy_each(batch, stream);
}

/* Wait until a cancelled launch accesses no memory any more, without waiting
 * for space on the GPU */
static void kernel_wait(const uct_cuda_copy_batch_t *batch)
{
    bool has_ended, has_copied;

    while ((uct_cuda_copy_kernel_has_ended(&batch->launch, &has_ended,
                                           &has_copied) == UCS_OK) &&
           !has_ended) {
    }
}

/* Replace a cancelled launch by copies of all its blocks. Blocks that the
 * kernel has started are copied twice, with the same data. The context must be
 * current. @return UCS_INPROGRESS, or an error with nothing running */
static ucs_status_t kernel_replace(uct_cuda_copy_batch_t *batch)
{
    const CUstream stream = uct_cuda_copy_kernel_second_stream(
        batch->launch.copy_kernel);
    ucs_status_t status;

    uct_cuda_debug("the GPU is too busy for the copy kernel: %u blocks, %zu "
                   "bytes by copies",
                   batch->copies.count, batch->bytes);
    batch->kernel = UCT_CUDA_COPY_BATCH_REPLACED;
    status        = copy_all(batch, stream);
    if (status == UCS_OK) {
        status = UCT_CUDA_CALL(cuEventRecord, batch->op->event, stream);
    }
    if (status != UCS_OK) {
        kernel_wait(batch);
        return status;
    }

    return UCS_INPROGRESS;
}

static ucs_status_t kernel_cancel(uct_cuda_copy_batch_t *batch)
{
    bool has_begun;

    if (uct_cuda_copy_kernel_cancel(&batch->launch, &has_begun) != UCS_OK) {
        batch->launch.start = uct_cuda_now_ns(); /* try again later */
        return UCS_INPROGRESS;
    }

    if (!has_begun) {
        return kernel_replace(batch);
    }

    batch->kernel = UCT_CUDA_COPY_BATCH_ENDS;
    return UCS_INPROGRESS;
}

/* Check whether the started warps of a cancelled launch have ended. If a warp
 * copied nothing, because it started at the moment of the cancellation, replace
 * the launch by copies. @return UCS_OK: all is copied; UCS_INPROGRESS; or an
 * error */
static ucs_status_t kernel_ended(uct_cuda_copy_batch_t *batch)
{
    bool has_ended, has_copied;
    ucs_status_t status;

    status = uct_cuda_copy_kernel_has_ended(&batch->launch, &has_ended,
                                            &has_copied);
    if ((status != UCS_OK) || !has_ended) {
        return (status != UCS_OK) ? status : UCS_INPROGRESS;
    }

    return (has_copied || (batch->kernel == UCT_CUDA_COPY_BATCH_REPLACED)) ?
                   UCS_OK :
                   kernel_replace(batch);
}

/* Cancel a kernel that is late, or check a cancelled one */
static ucs_status_t kernel_poll(uct_cuda_copy_batch_t *batch)
{
    return (batch->kernel == UCT_CUDA_COPY_BATCH_RUNS) ?
               kernel_cancel(batch) :
               kernel_ended(batch);
}

/* Return whether the state of the event alone tells whether the batch has
 * ended. If the event is complete (@a is_ended), it does unless the kernel was
 * cancelled. Otherwise it does if the kernel is not late yet, or was cancelled
 * already. */
static bool kernel_may_wait(const uct_cuda_copy_batch_t *batch, bool is_ended)
{
    if (is_ended) {
        return (batch->kernel == UCT_CUDA_COPY_BATCH_RUNS) &&
               !batch->launch.is_off;
    }

    return (batch->kernel != UCT_CUDA_COPY_BATCH_RUNS) ||
           (uct_cuda_now_ns() - batch->launch.start < KERNEL_PATIENCE_NS);
}

void uct_cuda_copy_batch_str(const uct_cuda_op_t *op, char *text, size_t max)
{
    const uct_cuda_copy_batch_t *batch = op->work;
    char local[16], remote[16];

    uct_cuda_end_str(batch->local_end, local, sizeof(local));
    uct_cuda_end_str(batch->remote_end, remote, sizeof(remote));
    snprintf(text, max, "%zu bytes in %u blocks from %s to %s", batch->bytes,
             batch->copies.count, batch->is_put ? local : remote,
             batch->is_put ? remote : local);
}

ucs_status_t uct_cuda_copy_batch_kernel_test(uct_cuda_op_t *op)
{
    uct_cuda_copy_batch_t *batch      = op->work;
    const uct_cuda_context_t *context = op->stream->context;
    const CUresult result = uct_cuda_driver_get()->cuEventQuery(op->event);
    ucs_status_t status;

    if ((result != CUDA_SUCCESS) && (result != CUDA_ERROR_NOT_READY)) {
        uct_cuda_op_log_failure(op, result);
        uct_cuda_copy_kernel_wait(batch->launch.copy_kernel);
        return UCS_ERR_IO_ERROR;
    }

    if (kernel_may_wait(batch, result == CUDA_SUCCESS)) {
        return (result == CUDA_SUCCESS) ? UCS_OK : UCS_INPROGRESS;
    }

    if (!uct_cuda_context_push(context)) {
        return UCS_ERR_IO_ERROR;
    }

    status = kernel_poll(batch);
    uct_cuda_ctx_pop();
    return status;
}

ucs_status_t
uct_cuda_copy_batch_kernel_wake(uct_cuda_op_t *op, CUhostFn func, void *arg)
{
    const uct_cuda_copy_batch_t *batch = op->work;

    return (batch->kernel == UCT_CUDA_COPY_BATCH_RUNS) ?
                   uct_cuda_copy_kernel_notify(&batch->launch, op->event,
                                               KERNEL_PATIENCE_NS, func, arg) :
                   UCS_ERR_BUSY;
}

static bool kernel_start(uct_cuda_copy_batch_t *batch,
                         uct_cuda_copy_kernel_t *copy_kernel, unsigned blocks,
                         uct_cuda_end_t from, uct_cuda_end_t to)
{
    const CUstream stream       = uct_cuda_copy_kernel_stream(copy_kernel);
    uct_cuda_trace_copy_t *copy = uct_cuda_trace_begin(stream);
    ucs_status_t status;

    status = uct_cuda_copy_kernel_launch(copy_kernel, &batch->copies, blocks,
                                         batch->op->event, &batch->launch);
    uct_cuda_trace_end(copy, stream, from, to, batch->bytes, "blocks, kernel");
    if (status != UCS_OK) {
        return false;
    }

    batch->kernel    = UCT_CUDA_COPY_BATCH_RUNS;
    batch->op->steps = 1;
    return true;
}

ucs_status_t uct_cuda_copy_batch_start(uct_cuda_copy_batch_t *batch,
                                       uct_cuda_copy_kernel_t *copy_kernel,
                                       unsigned blocks, bool *is_kernel_p)
{
    const CUstream stream     = batch->op->stream->cuda;
    const uct_cuda_end_t from = batch->is_put ? batch->local_end :
                                                batch->remote_end;
    const uct_cuda_end_t to   = batch->is_put ? batch->remote_end :
                                                batch->local_end;
    uct_cuda_trace_copy_t *copy;
    ucs_status_t status;

    *is_kernel_p = (copy_kernel != NULL) &&
                   kernel_start(batch, copy_kernel, blocks, from, to);
    if (*is_kernel_p) {
        return UCS_OK;
    }

    batch->op->steps = batch->copies.count;
    copy             = uct_cuda_trace_begin(stream);
    status           = copy_all(batch, stream);
    uct_cuda_trace_end(copy, stream, from, to, batch->bytes, "blocks");
    return status;
}
