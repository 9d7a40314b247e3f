/* SPDX-License-Identifier: BSD-3-Clause */
/* Short (synchronous) and zero-copy (asynchronous) copies within a process. */
#include <uct/cuda/cuda_copy/cuda_copy_ep.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/host/host_bounce.h>
#include <uct/cuda/base/host/host_limits.h>
#include <uct/cuda/base/host/host_pieces.h>
#include <uct/cuda/copy/choose_context.h>
#include <uct/cuda/copy/legs.h>
#include <uct/cuda/copy/method.h>
#include <uct/cuda/process_settings.h>

#include <string.h>


/* One stream for each direction, so that they overlap. Short copies have their
 * own, as they wait for completion and must not queue behind large ones. */
enum {
    STREAM_HOST_TO_GPU,
    STREAM_GPU_TO_HOST,
    STREAM_GPU_TO_GPU,
    STREAM_SHORT
};


static ucs_status_t copy_host(const uct_cuda_copy_t *copy, CUstream stream)
{
    const CUdeviceptr dst = copy->remote.address;
    const CUdeviceptr src = copy->local.address;

    return (copy->remote.end.kind == UCT_CUDA_END_HOST) ?
                   uct_cuda_host_copy(src, (void*)dst, copy->bytes, false,
                                      stream) :
                   uct_cuda_host_copy(dst, (void*)src, copy->bytes, true,
                                      stream);
}

/* Copy between GPUs: in two legs if the local end's memory is closed to the
 * current context's GPU */
static ucs_status_t copy_gpus(const uct_cuda_copy_t *copy, CUstream stream)
{
    int device;

    if ((copy->local.context == NULL) &&
        (uct_cuda_driver_get()->cuCtxGetDevice(&device) == CUDA_SUCCESS) &&
        uct_cuda_copy_needs_legs(copy, device)) {
        return uct_cuda_copy_submit_legs(copy, copy->remote.address, stream);
    }

    return UCT_CUDA_CALL(cuMemcpyDtoDAsync, copy->remote.address,
                         copy->local.address, copy->bytes, stream);
}

/* Submit a copy with its memory types, saving the driver a lookup */
static ucs_status_t copy_submit(const uct_cuda_copy_t *copy, CUstream stream)
{
    if (uct_cuda_copy_has(copy, UCT_CUDA_END_HOST_VMM)) {
        return UCT_CUDA_CALL(cuMemcpyAsync, copy->remote.address,
                             copy->local.address, copy->bytes, stream);
    }

    return uct_cuda_copy_has(copy, UCT_CUDA_END_HOST) ?
                   copy_host(copy, stream) :
                   copy_gpus(copy, stream);
}

static ucs_status_t copy_now(const uct_cuda_copy_t *copy, CUstream stream)
{
    const ucs_status_t status = copy_submit(copy, stream);

    return (status == UCS_OK) ? UCT_CUDA_CALL(cuStreamSynchronize, stream) :
                                status;
}

static ucs_status_t copy_in_new_stream(const uct_cuda_copy_t *copy)
{
    ucs_status_t status;
    CUstream stream;

    status = UCT_CUDA_CALL_NOLOG(cuStreamCreate, &stream,
                                 CU_STREAM_NON_BLOCKING);
    if (status != UCS_OK) {
        return status;
    }

    status = copy_now(copy, stream);
    if (status != UCS_OK) {
        (void)UCT_CUDA_CALL_NOLOG(cuStreamSynchronize, stream);
    }

    (void)UCT_CUDA_CALL(cuStreamDestroy, stream);
    return status;
}

/* Copy in the legacy stream, which invalidates captures of blocking streams */
static ucs_status_t copy_synchronously(const uct_cuda_copy_t *copy)
{
    const CUdeviceptr dst = copy->remote.address;
    const CUdeviceptr src = copy->local.address;
    ucs_status_t status, drained;

    if (!uct_cuda_copy_has(copy, UCT_CUDA_END_HOST)) {
        return UCT_CUDA_CALL(cuMemcpy, dst, src, copy->bytes);
    }

    /* parts of host memory may be page-locked, and the driver refuses a copy
     * across */
    if (UCT_CUDA_CALL_NOLOG(cuMemcpy, dst, src, copy->bytes) == UCS_OK) {
        return UCS_OK;
    }

    status  = copy_host(copy, NULL);
    drained = UCT_CUDA_CALL(cuStreamSynchronize, NULL);
    return (status == UCS_OK) ? drained : status;
}

/*
 * Fall back when a stream, an event or a copy in a stream is not available. UCP
 * 1.13 ignores the error of many copies it requests, and the program would read
 * wrong bytes. Work already in the stream must end first, or it would overwrite
 * the memory later, after its reuse.
 */
static ucs_status_t
copy_plainly(const uct_cuda_copy_t *copy, const uct_cuda_stream_t *stream)
{
    ucs_status_t drained = UCS_OK;
    ucs_status_t status;

    if (stream != NULL) {
        drained = UCT_CUDA_CALL(cuStreamSynchronize, stream->cuda);
    }

    status = copy_in_new_stream(copy);
    if (status != UCS_OK) {
        status = copy_synchronously(copy);
    }

    return (status == UCS_OK) ? drained : status;
}

/* Copy from a GPU now; small copies go through page-locked memory */
static ucs_status_t
copy_from_gpu_now(const uct_cuda_copy_t *copy, CUstream stream)
{
    uct_cuda_copy_t to_slot = *copy;
    ucs_status_t status;
    void *slot;

    slot = (copy->bytes <= UCT_CUDA_HOST_SHORT_BOUNCE_MAX_SIZE) ?
                   uct_cuda_host_bounce_get(copy->bytes) :
                   NULL;
    if (slot == NULL) {
        return copy_now(copy, stream);
    }

    to_slot.remote.address = (CUdeviceptr)slot;
    status                 = copy_now(&to_slot, stream);
    if (status == UCS_OK) {
        memcpy((void*)copy->remote.address, slot, copy->bytes);
    } else if (UCT_CUDA_CALL(cuStreamSynchronize, stream) != UCS_OK) {
        return status; /* the slot may still be written, so it is not reused */
    }

    uct_cuda_host_bounce_put(slot);
    return status;
}

/* Run a copy in a stream of the queue, with the copy's context current */
typedef ucs_status_t (*run_func_t)(uct_ep_h ep, const uct_cuda_copy_t *copy,
                                   const uct_cuda_ctx_scope_t *context,
                                   uct_cuda_stream_t **stream_p);

static ucs_status_t copy_by(run_func_t run, uct_ep_h ep, void *dst,
                            const void *src, size_t length,
                            uct_completion_t *comp)
{
    uct_cuda_stream_t *stream = NULL;
    uct_cuda_ctx_scope_t context;
    uct_cuda_copy_t copy;
    ucs_status_t status;

    if (length == 0) {
        return UCS_OK;
    }

    uct_cuda_copy_init(&copy, src, NULL, (uintptr_t)dst, length, true, comp);
    status = uct_cuda_copy_enter(&copy, uct_cuda_end_none(), &context);
    if (status == UCS_ERR_UNSUPPORTED) {
        memmove(dst, src, length);
        return UCS_OK;
    }

    if (status != UCS_OK) {
        return status;
    }

    status = run(ep, &copy, &context, &stream);
    if (UCS_STATUS_IS_ERR(status)) {
        status = copy_plainly(&copy, stream);
    }

    uct_cuda_ctx_leave(&context);
    return status;
}

static ucs_status_t run_short(uct_ep_h ep, const uct_cuda_copy_t *copy,
                              const uct_cuda_ctx_scope_t *context,
                              uct_cuda_stream_t **stream_p)
{
    const ucs_status_t status =
            uct_cuda_queue_stream_now(uct_cuda_ep_queue(ep), STREAM_SHORT,
                                      stream_p);

    return (status != UCS_OK) ? status :
           (copy->remote.end.kind == UCT_CUDA_END_HOST) ?
                                copy_from_gpu_now(copy, (*stream_p)->cuda) :
                                copy_now(copy, (*stream_p)->cuda);
}

/* Return the engine, or NULL */
static uct_cuda_mp_engine_t *find_engine(uct_ep_h ep)
{
    uct_cuda_copy_iface_t *iface = (uct_cuda_copy_iface_t*)ep->iface;

    if ((iface->engine == NULL) &&
        (uct_cuda_mp_engine_get_any(&iface->engine) != UCS_OK)) {
        iface->engine = NULL;
    }

    return iface->engine;
}

/* Return whether there is more than one method for the copy */
static bool has_choice(uct_ep_h ep, const uct_cuda_copy_t *copy)
{
    if (uct_cuda_copy_has(copy, UCT_CUDA_END_HOST_VMM)) {
        return false;
    }

    return uct_cuda_copy_has(copy, UCT_CUDA_END_HOST) ?
                   (copy->bytes >= UCT_CUDA_HOST_OWN_MIN_SIZE) &&
                           uct_cuda_settings_host_zcopy() :
                   (copy->bytes >= UCT_CUDA_MP_COUNTED_MIN_SIZE) &&
                           !uct_cuda_end_equal(copy->local.end,
                                               copy->remote.end) &&
                           (find_engine(ep) != NULL);
}

static ucs_status_t submit_start(uct_cuda_op_t *op, void *arg)
{
    return copy_submit(arg, op->stream->cuda);
}

static ucs_status_t run_zcopy(uct_ep_h ep, const uct_cuda_copy_t *copy,
                              const uct_cuda_ctx_scope_t *context,
                              uct_cuda_stream_t **stream_p)
{
    uct_cuda_queue_t *queue = uct_cuda_ep_queue(ep);
    ucs_status_t status;

    /* UCP never repeats copies between memory types after NO_RESOURCE, so
     * wait */
    status = uct_cuda_queue_stream_wait(
            queue,
            (copy->local.end.kind == UCT_CUDA_END_HOST)  ? STREAM_HOST_TO_GPU :
            (copy->remote.end.kind == UCT_CUDA_END_HOST) ? STREAM_GPU_TO_HOST :
                                                           STREAM_GPU_TO_GPU,
            stream_p);
    if (status != UCS_OK) {
        return status;
    }

    return has_choice(ep, copy) ?
                   uct_cuda_copy_run(queue, *stream_p, copy, find_engine(ep),
                                     context->device, false) :
                   uct_cuda_op_run(queue, *stream_p, copy->comp, submit_start,
                                   (void*)copy);
}

ucs_status_t uct_cuda_copy_ep_put_short(uct_ep_h ep, const void *buffer,
                                        unsigned length, uint64_t remote_addr,
                                        uct_rkey_t rkey)
{
    return copy_by(run_short, ep, (void*)(uintptr_t)remote_addr, buffer, length,
                   NULL);
}

ucs_status_t uct_cuda_copy_ep_get_short(uct_ep_h ep, void *buffer,
                                        unsigned length, uint64_t remote_addr,
                                        uct_rkey_t rkey)
{
    return copy_by(run_short, ep, buffer, (void*)(uintptr_t)remote_addr, length,
                   NULL);
}

ucs_status_t uct_cuda_copy_ep_put_zcopy(uct_ep_h ep, const uct_iov_t *iov,
                                        size_t iovcnt, uint64_t remote_addr,
                                        uct_rkey_t rkey,
                                        uct_completion_t *comp)
{
    if (iovcnt != 1) {
        return (iovcnt == 0) ? UCS_OK : UCS_ERR_INVALID_PARAM;
    }

    return copy_by(run_zcopy, ep, (void*)(uintptr_t)remote_addr, iov->buffer,
                   iov->length, comp);
}

ucs_status_t uct_cuda_copy_ep_get_zcopy(uct_ep_h ep, const uct_iov_t *iov,
                                        size_t iovcnt, uint64_t remote_addr,
                                        uct_rkey_t rkey,
                                        uct_completion_t *comp)
{
    if (iovcnt != 1) {
        return (iovcnt == 0) ? UCS_OK : UCS_ERR_INVALID_PARAM;
    }

    return copy_by(run_zcopy, ep, iov->buffer, (void*)(uintptr_t)remote_addr,
                   iov->length, comp);
}
