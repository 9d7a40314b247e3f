/* SPDX-License-Identifier: BSD-3-Clause */
/* Short (synchronous) and zero-copy (asynchronous) copies in a process. */
#include <uct/cuda/cuda_copy/cuda_copy_ep.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/gpu.h>
#include <uct/cuda/base/host/host_bounce.h>
#include <uct/cuda/base/host/host_limits.h>
#include <uct/cuda/base/host/host_pieces.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/memory.h>
#include <uct/cuda/process_settings.h>
#include <uct/cuda/transfer.h>

#include <string.h>


/* One stream a direction, so that they overlap; short copies wait for theirs
 * and must not wait behind large ones */
enum {
    STREAM_HOST_TO_GPU,
    STREAM_GPU_TO_HOST,
    STREAM_GPU_TO_GPU,
    STREAM_SHORT
};


/* A copy, with its context current until copy_end() */
typedef struct {
    void                   *dst;
    const void             *src;
    size_t                 length; /* bytes */
    uct_cuda_end_t         to;
    uct_cuda_end_t         from;
    CUcontext              from_context; /* of GPU memory; or NULL */
    bool                   is_plain; /* all GPU memory belongs to contexts,
                                        which any GPU can be let reach */
    uct_cuda_gpu_context_t context;
    uct_cuda_stream_t      *stream; /* or NULL: not to be had */
    uct_ep_h               ep;      /* of an asynchronous one */
} copy_t;


static bool has_host(const copy_t *copy)
{
    return uct_cuda_end_is_host(copy->from) || uct_cuda_end_is_host(copy->to);
}

/* Only the driver may copy it, and only it knows how */
static bool has_host_vmm(const copy_t *copy)
{
    return uct_cuda_end_is_host_vmm(copy->from) ||
           uct_cuda_end_is_host_vmm(copy->to);
}

/*
 * @return UCS_OK; UCS_INPROGRESS when both sides are plain host memory and no
 *         context is needed; else an error.
 */
static ucs_status_t
copy_begin(void *dst, const void *src, size_t length, copy_t *copy)
{
    CUcontext from_context, to_context, context;
    bool from_gpu, to_gpu;
    uct_cuda_end_t gpu;
    ucs_status_t status;
    char name[16];

    uct_cuda_memory_place(src, &copy->from, &from_context);
    uct_cuda_memory_place(dst, &copy->to, &to_context);
    from_gpu = uct_cuda_end_is_gpu(copy->from);
    to_gpu   = uct_cuda_end_is_gpu(copy->to);
    if (uct_cuda_end_is_host(copy->from) && uct_cuda_end_is_host(copy->to)) {
        return UCS_INPROGRESS;
    }

    /* A copy between GPUs runs where it reads from */
    gpu     = from_gpu ? copy->from : copy->to;
    context = from_gpu ? from_context : to_context;
    status  = has_host_vmm(copy) ?
                      uct_cuda_gpu_context_push_touching(
                              (CUdeviceptr)(uct_cuda_end_is_host_vmm(
                                                    copy->from) ?
                                                    src :
                                                    dst),
                              context, gpu, &copy->context) :
                      uct_cuda_gpu_context_push(context,
                                                uct_cuda_end_device(gpu),
                                                &copy->context);
    if (status != UCS_OK) {
        uct_cuda_error("no usable context for %s memory to copy %zu bytes from "
                       "%p to %p",
                       uct_cuda_end_str(gpu, name, sizeof(name)), length, src,
                       dst);
        return status;
    }

    copy->dst          = dst;
    copy->src          = src;
    copy->length       = length;
    copy->from_context = from_context;
    copy->is_plain     = (!from_gpu || (from_context != NULL)) &&
                         (!to_gpu || (to_context != NULL));
    copy->stream       = NULL;
    return UCS_OK;
}

static ucs_status_t copy_host(const copy_t *copy, CUstream stream)
{
    const bool to_gpu = !uct_cuda_end_is_host(copy->to);

    return uct_cuda_host_copy((CUdeviceptr)(to_gpu ? copy->dst : copy->src),
                              to_gpu ? (void*)copy->src : copy->dst,
                              copy->length, to_gpu, stream);
}

/* Tells the driver what it would otherwise have to find out */
static ucs_status_t copy_submit(const copy_t *copy)
{
    if (has_host_vmm(copy)) {
        return UCT_CUDA_CALL(cuMemcpyAsync, (CUdeviceptr)copy->dst,
                             (CUdeviceptr)copy->src, copy->length,
                             copy->stream->cuda);
    }

    return has_host(copy) ? copy_host(copy, copy->stream->cuda) :
                            UCT_CUDA_CALL(cuMemcpyDtoDAsync,
                                          (CUdeviceptr)copy->dst,
                                          (CUdeviceptr)copy->src, copy->length,
                                          copy->stream->cuda);
}

static ucs_status_t copy_now(const copy_t *copy)
{
    const ucs_status_t status = copy_submit(copy);

    return (status == UCS_OK) ? UCT_CUDA_CALL(cuStreamSynchronize,
                                              copy->stream->cuda) :
                                status;
}

static ucs_status_t copy_in_new_stream(const copy_t *copy)
{
    uct_cuda_stream_t stream = {.cuda = NULL};
    copy_t again             = *copy;
    ucs_status_t status;

    status = UCT_CUDA_CALL_NOLOG(cuStreamCreate, &stream.cuda,
                                 CU_STREAM_NON_BLOCKING);
    if (status != UCS_OK) {
        return status;
    }

    again.stream = &stream;
    status       = copy_now(&again);
    if (status != UCS_OK) {
        (void)UCT_CUDA_CALL_NOLOG(cuStreamSynchronize, stream.cuda);
    }

    (void)UCT_CUDA_CALL(cuStreamDestroy, stream.cuda);
    return status;
}

/* In the legacy stream, which breaks captures of blocking streams */
static ucs_status_t copy_synchronously(const copy_t *copy)
{
    const CUdeviceptr dst = (CUdeviceptr)copy->dst;
    const CUdeviceptr src = (CUdeviceptr)copy->src;
    ucs_status_t status, drained;

    if (!has_host(copy)) {
        return UCT_CUDA_CALL(cuMemcpy, dst, src, copy->length);
    }

    /* Of host memory, parts may be page-locked, across which no copy goes */
    if (UCT_CUDA_CALL_NOLOG(cuMemcpy, dst, src, copy->length) == UCS_OK) {
        return UCS_OK;
    }

    status  = copy_host(copy, NULL);
    drained = UCT_CUDA_CALL(cuStreamSynchronize, NULL);
    return (status == UCS_OK) ? drained : status;
}

/*
 * The way on where a stream, an event or a copy in a stream is not to be had.
 * UCP 1.13 forgets the error of many a copy that it has asked for, and the
 * program would read other bytes. But what the stream has taken of the copy is
 * over first, or it would be written once more when the memory is used for
 * something else.
 */
static ucs_status_t copy_plainly(const copy_t *copy)
{
    ucs_status_t drained = UCS_OK;
    ucs_status_t status;

    if (copy->stream != NULL) {
        drained = UCT_CUDA_CALL(cuStreamSynchronize, copy->stream->cuda);
    }

    status = copy_in_new_stream(copy);
    if (status != UCS_OK) {
        status = copy_synchronously(copy);
    }

    return (status == UCS_OK) ? drained : status;
}

static void copy_end(copy_t *copy)
{
    uct_cuda_gpu_context_pop(&copy->context);
}

/* What comes from a GPU goes by page-locked memory if it is little */
static ucs_status_t copy_from_gpu_now(const copy_t *copy)
{
    copy_t to_slot = *copy;
    ucs_status_t status;

    to_slot.dst = (copy->length <= UCT_CUDA_HOST_SHORT_BOUNCE_MAX_SIZE) ?
                          uct_cuda_host_bounce_get(copy->length) :
                          NULL;
    if (to_slot.dst == NULL) {
        return copy_now(copy);
    }

    status = copy_now(&to_slot);
    if (status == UCS_OK) {
        memcpy(copy->dst, to_slot.dst, copy->length);
    } else if (UCT_CUDA_CALL(cuStreamSynchronize, copy->stream->cuda) !=
               UCS_OK) {
        return status; /* the slot may still be written: it is used no more */
    }

    uct_cuda_host_bounce_put(to_slot.dst);
    return status;
}

static ucs_status_t copy_short(uct_ep_h ep, void *dst, const void *src,
                               size_t length)
{
    ucs_status_t status;
    copy_t copy;

    if (length == 0) {
        return UCS_OK;
    }

    status = copy_begin(dst, src, length, &copy);
    if (status == UCS_INPROGRESS) {
        memmove(dst, src, length);
        return UCS_OK;
    } else if (status != UCS_OK) {
        return status;
    }

    status = uct_cuda_queue_stream_now(uct_cuda_ep_queue(ep), STREAM_SHORT,
                                       &copy.stream);
    if (status == UCS_OK) {
        status = uct_cuda_end_is_host(copy.to) ? copy_from_gpu_now(&copy) :
                                                 copy_now(&copy);
    }

    if (status != UCS_OK) {
        status = copy_plainly(&copy);
    }

    copy_end(&copy);
    return status;
}

/* The engine, or NULL if there is none */
static uct_cuda_mp_engine_t *find_engine(uct_ep_h ep)
{
    uct_cuda_copy_iface_t *iface = (uct_cuda_copy_iface_t*)ep->iface;

    if ((iface->engine == NULL) &&
        (uct_cuda_mp_engine_get_any(&iface->engine) != UCS_OK)) {
        iface->engine = NULL;
    }

    return iface->engine;
}

static void transfer_done(uct_cuda_op_t *op)
{
    uct_cuda_transfer_end(op->arg);
}

/* As uct_cuda_transfer_start() */
static ucs_status_t transfer_start(uct_cuda_mp_engine_t *engine,
                                   const copy_t *copy, uct_cuda_op_t *op)
{
    uct_cuda_mp_request_t request = {
        .src_end     = copy->from,
        .dst_end     = copy->to,
        .size        = copy->length,
        .is_mappable = copy->is_plain
    };
    uct_cuda_mp_memory_t memory   = {
        .src = (CUdeviceptr)copy->src,
        .dst = (CUdeviceptr)copy->dst
    };
    ucs_status_t status;

    if (!has_host(copy)) {
        request.is_mappable = copy->is_plain &&
                              uct_cuda_mp_wants(engine, copy->length) &&
                              uct_cuda_ctx_has_peer(copy->from_context,
                                                    memory.dst);
    }

    op->arg = op->state;
    status  = uct_cuda_transfer_start(engine, &request, &memory, op->arg, op);
    if (status == UCS_OK) {
        op->done = transfer_done;
    }

    return status;
}

/* Submits the copy, in the way that suits it. @return As copy_submit(). */
static ucs_status_t copy_start(uct_cuda_op_t *op, void *arg)
{
    const copy_t *copy = arg;
    uct_cuda_mp_engine_t *engine;

    if (has_host_vmm(copy)) {
        return copy_submit(copy);
    }

    if (has_host(copy)) {
        if ((copy->length >= UCT_CUDA_HOST_OWN_MIN_SIZE) &&
            uct_cuda_settings_host_zcopy()) {
            return transfer_start(find_engine(copy->ep), copy, op);
        }
    } else if ((copy->length >= UCT_CUDA_MP_COUNTED_MIN_SIZE) &&
               !uct_cuda_end_equal(copy->from, copy->to)) {
        engine = find_engine(copy->ep);
        if (engine != NULL) {
            return transfer_start(engine, copy, op);
        }
    }

    return copy_submit(copy);
}

static ucs_status_t copy_zcopy(uct_ep_h ep, void *dst, const void *src,
                               size_t length, uct_completion_t *comp)
{
    ucs_status_t status;
    copy_t copy;

    if (length == 0) {
        return UCS_OK;
    }

    status = copy_begin(dst, src, length, &copy);
    if (status == UCS_INPROGRESS) {
        memmove(dst, src, length);
        return UCS_OK;
    } else if (status != UCS_OK) {
        return status;
    }

    /* UCP's copies between memory types cannot be sent away to try later */
    status = uct_cuda_queue_stream_wait(
            uct_cuda_ep_queue(ep),
            uct_cuda_end_is_host(copy.from) ? STREAM_HOST_TO_GPU :
            uct_cuda_end_is_host(copy.to)   ? STREAM_GPU_TO_HOST :
                                              STREAM_GPU_TO_GPU,
            &copy.stream);
    if (status == UCS_OK) {
        copy.ep = ep;
        status  = uct_cuda_op_run(uct_cuda_ep_queue(ep), copy.stream, comp,
                                  copy_start, &copy);
    }

    if (UCS_STATUS_IS_ERR(status)) {
        status = copy_plainly(&copy);
    }

    copy_end(&copy);
    return status;
}

ucs_status_t uct_cuda_copy_ep_put_short(uct_ep_h ep, const void *buffer,
                                        unsigned length, uint64_t remote_addr,
                                        uct_rkey_t rkey)
{
    return copy_short(ep, (void*)(uintptr_t)remote_addr, buffer, length);
}

ucs_status_t uct_cuda_copy_ep_get_short(uct_ep_h ep, void *buffer,
                                        unsigned length, uint64_t remote_addr,
                                        uct_rkey_t rkey)
{
    return copy_short(ep, buffer, (void*)(uintptr_t)remote_addr, length);
}

ucs_status_t uct_cuda_copy_ep_put_zcopy(uct_ep_h ep, const uct_iov_t *iov,
                                        size_t iovcnt, uint64_t remote_addr,
                                        uct_rkey_t rkey,
                                        uct_completion_t *comp)
{
    if (iovcnt != 1) {
        return (iovcnt == 0) ? UCS_OK : UCS_ERR_INVALID_PARAM;
    }

    return copy_zcopy(ep, (void*)(uintptr_t)remote_addr, iov->buffer,
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

    return copy_zcopy(ep, iov->buffer, (void*)(uintptr_t)remote_addr,
                      iov->length, comp);
}
