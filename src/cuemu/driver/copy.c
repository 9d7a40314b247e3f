/* SPDX-License-Identifier: BSD-3-Clause */

/* Copies and fills, synchronous and in streams. */
#include "cuemu_capture.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of a pageable copy to a GPU that may still be in flight when the call
   returns ("API synchronization behavior" in the manual) */
#define CUEMU_STAGED_MAX ((uint64_t)64 << 10)

/*
 * Operands that have to be device memory by the call's name or parameters. The
 * driver detects the type of a pointer itself; pageable memory is an error
 * there.
 */
typedef enum {
    CUEMU_COPY_ANY = 0,
    CUEMU_COPY_DST_DEVICE = 1,
    CUEMU_COPY_SRC_DEVICE = 2
} cuemu_copy_check_t;

typedef struct {
    uint64_t dst, src;
    uint64_t dst_pitch, src_pitch;
    uint64_t width, height;
    unsigned check;
} cuemu_copy_t;

/* Properties of a copy that decide how long its call waits. */
typedef struct {
    int direct;   /* not staged in host memory */
    int blocks;   /* the call waits for the copy, even an asynchronous one */
    int device;   /* both operands are GPU memory */
    int sync;     /* synchronous by SYNC_MEMOPS of an operand or the context */
    int locked;   /* an operand is page-locked host memory */
    int to_gpu;   /* from host memory to a GPU */
    int staged;   /* ends after the call, from a buffer of the driver */
} cuemu_copy_kind_t;

static CUresult cuemu_copy_prepare(const cuemu_copy_t *copy,
                                   const cuemu_context_t *ctx, int sync,
                                   cuemu_work_t *work, cuemu_copy_kind_t *kind)
{
    cuemu_range_t dst, src;
    uint64_t span_dst, span_src;
    CUresult result;

    span_dst = (copy->height - 1) * copy->dst_pitch + copy->width;
    span_src = (copy->height - 1) * copy->src_pitch + copy->width;
    result   = cuemu_mem_resolve(copy->dst, span_dst, ctx, &dst);
    if (result == CUDA_SUCCESS) {
        result = cuemu_mem_resolve(copy->src, span_src, ctx, &src);
    }

    if (result != CUDA_SUCCESS) {
        return result;
    }

    if (((copy->check & CUEMU_COPY_DST_DEVICE) && dst.pageable) ||
        ((copy->check & CUEMU_COPY_SRC_DEVICE) && src.pageable)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    cuemu_work_set_move(work, &dst, copy->dst_pitch, &src, copy->src_pitch,
                        copy->width, copy->height);
    cuemu_work_set_engine(work, ctx, &dst, &src);
    kind->direct = cuemu_work_is_direct(&dst, &src);
    kind->device = (dst.gpu >= 0) && (src.gpu >= 0) && !dst.locked &&
                   !src.locked;
    kind->sync   = dst.sync_memops || src.sync_memops ||
                   (ctx->flags & CU_CTX_SYNC_MEMOPS);
    kind->locked = dst.locked || src.locked;

    /* The driver copies pageable memory through a buffer of its own, and the
       call returns once the program's memory is no longer needed. Here this is
       the copy's end, except for the last bytes to a GPU. A copy from pageable
       into registered memory is not cut, since a part of it must not begin
       inside. */
    kind->to_gpu = (src.pageable || src.locked) && !dst.pageable && !dst.locked;
    kind->staged = src.pageable && kind->to_gpu && !(sync && kind->sync) &&
                   !cuemu_mem_overlaps(copy->src, span_src);
    kind->blocks = dst.pageable || src.pageable;
    return CUDA_SUCCESS;
}

/* Copy the source's present bytes to a buffer, for a copy that ends after the
   call. Serving the copy frees the buffer. */
static CUresult cuemu_copy_stage(cuemu_work_t *work)
{
    cuemu_payload_t *p = &work->payload;
    const char *src    = (const char*)(uintptr_t)p->src;
    char *buffer       = malloc(p->width * p->height);
    uint64_t row;

    if (buffer == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    for (row = 0; row < p->height; ++row) {
        memcpy(buffer + row * p->width, src + row * p->src_pitch, p->width);
    }
    p->src       = (uint64_t)(uintptr_t)buffer;
    p->src_pitch = p->width;
    p->arg       = p->src;
    return CUDA_SUCCESS;
}

/* Position of a copy in a batch, which decides the time of its submission */
typedef enum {
    CUEMU_COPY_ALONE,   /* not in a batch */
    CUEMU_COPY_FIRST,
    CUEMU_COPY_FURTHER, /* set up while earlier ones run */
    CUEMU_COPY_REST     /* further piece of one copy: as FURTHER, but submitted
                           with the first piece */
} cuemu_copy_place_t;

static cuemu_time_t cuemu_copy_cost(cuemu_copy_place_t place)
{
    switch (place) {
    case CUEMU_COPY_FIRST:
        return cuemu_cost(CUEMU_CALL_COPY_BATCH) +
               cuemu_cost(CUEMU_CALL_COPY_OF_BATCH);
    case CUEMU_COPY_FURTHER:
        return cuemu_cost(CUEMU_CALL_COPY_OF_BATCH);
    case CUEMU_COPY_REST:
        return 0;
    default:
        return cuemu_cost(CUEMU_CALL_COPY_ASYNC);
    }
}

static CUresult cuemu_copy_capture(cuemu_stream_t *stream,
                                   const cuemu_copy_t *copy)
{
    cuemu_gparams_t params = {.copy = {
        .srcMemoryType = CU_MEMORYTYPE_UNIFIED, .srcDevice = copy->src,
        .srcPitch = copy->src_pitch, .srcHeight = copy->height,
        .dstMemoryType = CU_MEMORYTYPE_UNIFIED, .dstDevice = copy->dst,
        .dstPitch = copy->dst_pitch, .dstHeight = copy->height,
        .WidthInBytes = copy->width, .Height = copy->height, .Depth = 1
    }};
    cuemu_copy_kind_t kind;
    cuemu_work_t work;
    CUresult result;

    cuemu_lock();
    result = cuemu_copy_prepare(copy, stream->ctx, 0, &work, &kind);
    cuemu_unlock();
    return (result != CUDA_SUCCESS) ?
           result : cuemu_capture_add(stream, CU_GRAPH_NODE_TYPE_MEMCPY,
                                      &params, stream->ctx);
}

static CUresult cuemu_copy_run_one(cuemu_stream_t *stream,
                                   const cuemu_copy_t *copy, int sync,
                                   cuemu_copy_place_t place)
{
    cuemu_time_t submitted = cuemu_now(), at;
    cuemu_copy_kind_t kind;
    cuemu_work_t work;
    cuemu_op_id_t op = 0, linger = 0;
    CUresult result;

    at = submitted + cuemu_copy_cost(place);
    cuemu_lock();
    result = cuemu_copy_prepare(copy, stream->ctx, sync, &work, &kind);
    if ((result == CUDA_SUCCESS) && kind.locked) {
        /* wait until no memory is being unlocked; afterwards other memory may
           be page-locked */
        cuemu_unlock();
        cuemu_process_wait_unlocked();
        cuemu_lock();
        result = cuemu_copy_prepare(copy, stream->ctx, sync, &work, &kind);
    }

    if (result == CUDA_SUCCESS) {
        kind.staged &= (copy->width * copy->height <= CUEMU_STAGED_MAX);
        result       = kind.staged ? cuemu_copy_stage(&work) : CUDA_SUCCESS;
    }

    if ((place >= CUEMU_COPY_FURTHER) && (result == CUDA_SUCCESS)) {
        work.desc.flags |= CUEMU_OP_STREAMED; /* set up while earlier ones
                                                 run */
    }
    if (result == CUDA_SUCCESS) {
        if (kind.staged) {
            linger = cuemu_work_linger(stream, submitted);
        }
        op              = cuemu_work_copy(stream, &work, kind.direct, at);
        stream->lingers = linger;
        if (kind.staged) {
            cuemu_mem_find(copy->dst)->staged = op;
        }
    }
    cuemu_unlock();

    if (result != CUDA_SUCCESS) {
        return result;
    }

    /* a synchronous copy to SYNC_MEMOPS memory waits for all queued work (H100,
       driver 580) */
    if (sync && kind.to_gpu && kind.sync) {
        cuemu_context_wait(stream->ctx);
    }

    cuemu_work_spend_until(at);
    if (!kind.staged &&
        ((sync && (!kind.device || kind.sync)) || kind.blocks)) {
        cuemu_work_wait(op);
    }

    return CUDA_SUCCESS;
}

/* Return non-zero if the copy's last bytes may arrive after the call. */
static int cuemu_copy_is_staged(const cuemu_stream_t *stream,
                                const cuemu_copy_t *copy, int sync)
{
    cuemu_copy_kind_t kind;
    cuemu_work_t work;
    int staged;

    cuemu_lock();
    staged = (cuemu_copy_prepare(copy, stream->ctx, sync, &work, &kind) ==
              CUDA_SUCCESS) && kind.staged;
    cuemu_unlock();
    return staged;
}

/* Run a copy. If its last bytes may arrive after the call, copy the others
   first and wait for them; then queue at most the last CUEMU_STAGED_MAX
   bytes. */
static CUresult cuemu_copy_run_cut(cuemu_stream_t *stream,
                                   const cuemu_copy_t *copy, int sync,
                                   cuemu_copy_place_t place)
{
    cuemu_copy_t head = *copy, tail = *copy;
    cuemu_op_id_t before;
    int is_captured;
    CUresult result;

    if ((copy->width == 0) || (copy->height == 0)) {
        return CUDA_SUCCESS;
    }

    result = cuemu_capture_use(stream, &is_captured);
    if (result != CUDA_SUCCESS) {
        return result;
    }

    if (is_captured) {
        return cuemu_copy_capture(stream, copy);
    }

    if ((copy->width * copy->height <= CUEMU_STAGED_MAX) ||
        !cuemu_copy_is_staged(stream, copy, sync)) {
        return cuemu_copy_run_one(stream, copy, sync, place);
    }

    if (copy->height > 1) {
        tail.height  = 1;
        head.height -= 1;
        tail.dst    += head.height * copy->dst_pitch;
        tail.src    += head.height * copy->src_pitch;
    } else {
        tail.width  = CUEMU_STAGED_MAX;
        head.width -= CUEMU_STAGED_MAX;
        tail.dst   += head.width;
        tail.src   += head.width;
    }

    result = cuemu_copy_run_one(stream, &head, sync, place);
    if (result != CUDA_SUCCESS) {
        return result;
    }

    cuemu_lock();
    before = cuemu_work_tail(stream);
    cuemu_unlock();
    cuemu_work_wait(before); /* the buffer holds one piece at a time */
    return cuemu_copy_run_cut(stream, &tail, sync, CUEMU_COPY_FURTHER);
}

/* Run a copy whose operands may consist of adjacent mappings of several pieces:
   one operation of the copy engine, submitted and set up once. (64 MiB through
   buffers of UCX 1.22 on one H200: 135 GB/s of 2 MiB pieces, 133 of one.) */
static CUresult cuemu_copy_run(cuemu_stream_t *stream, const cuemu_copy_t *copy,
                               int sync, cuemu_copy_place_t place)
{
    cuemu_copy_t part = *copy;
    uint64_t left     = copy->width;
    CUresult result   = CUDA_SUCCESS;

    if (copy->height != 1) {
        return cuemu_copy_run_cut(stream, copy, sync, place);
    }

    while ((left > 0) && (result == CUDA_SUCCESS)) {
        cuemu_lock();
        part.width = cuemu_mem_run(part.dst, left);
        part.width = cuemu_mem_run(part.src, part.width);
        cuemu_unlock();
        part.dst_pitch = part.src_pitch = part.width;
        result         = cuemu_copy_run_cut(stream, &part, sync, place);
        place          = CUEMU_COPY_REST;
        part.dst      += part.width;
        part.src      += part.width;
        left          -= part.width;
    }

    return result;
}

static CUresult cuemu_copy_sync(uint64_t dst, uint64_t src, size_t size,
                                unsigned check)
{
    cuemu_copy_t copy = {
        .dst = dst, .src = src, .dst_pitch = size, .src_pitch = size,
        .width = size, .height = 1, .check = check
    };
    cuemu_context_t *ctx = cuemu_context_current();

    return (ctx == NULL) ? cuemu_context_error() :
                           cuemu_copy_run(ctx->null_stream, &copy, 1,
                                          CUEMU_COPY_ALONE);
}

static CUresult cuemu_copy_in(uint64_t dst, uint64_t src, size_t size,
                              CUstream handle, unsigned check,
                              cuemu_copy_place_t place)
{
    cuemu_copy_t copy = {
        .dst = dst, .src = src, .dst_pitch = size, .src_pitch = size,
        .width = size, .height = 1, .check = check
    };
    cuemu_stream_t *stream;
    CUresult result;

    if (cuemu_context_current() == NULL) {
        return cuemu_context_error();
    }

    result = cuemu_stream_resolve(handle, &stream);
    return (result != CUDA_SUCCESS) ? result :
                                      cuemu_copy_run(stream, &copy, 0, place);
}

static CUresult cuemu_copy_async(uint64_t dst, uint64_t src, size_t size,
                                 CUstream handle, unsigned check)
{
    return cuemu_copy_in(dst, src, size, handle, check, CUEMU_COPY_ALONE);
}

/* Synchronous calls. Copies inside GPU memory, and fills of it, return without
   waiting ("API synchronization behavior" in the manual; seen on H100), unless
   the program sets CU_POINTER_ATTRIBUTE_SYNC_MEMOPS or its context's flag. */
CUEMU_API(cuMemcpy, (CUdeviceptr dst, CUdeviceptr src, size_t size),
          (dst, src, size))
{
    return cuemu_copy_sync(dst, src, size, CUEMU_COPY_ANY);
}

CUEMU_API(cuMemcpyHtoD, (CUdeviceptr dst, const void *src, size_t size),
          (dst, src, size))
{
    return cuemu_copy_sync(dst, (uint64_t)(uintptr_t)src, size,
                           CUEMU_COPY_DST_DEVICE);
}

CUEMU_ALSO(cuMemcpyHtoD_v2, cuMemcpyHtoD);

CUEMU_API(cuMemcpyDtoH, (void *dst, CUdeviceptr src, size_t size),
          (dst, src, size))
{
    return cuemu_copy_sync((uint64_t)(uintptr_t)dst, src, size,
                           CUEMU_COPY_SRC_DEVICE);
}

CUEMU_ALSO(cuMemcpyDtoH_v2, cuMemcpyDtoH);

CUEMU_API(cuMemcpyDtoD, (CUdeviceptr dst, CUdeviceptr src, size_t size),
          (dst, src, size))
{
    return cuemu_copy_sync(dst, src, size,
                           CUEMU_COPY_DST_DEVICE | CUEMU_COPY_SRC_DEVICE);
}

CUEMU_ALSO(cuMemcpyDtoD_v2, cuMemcpyDtoD);

CUEMU_API(cuMemcpyAsync,
          (CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream),
          (dst, src, size, stream))
{
    return cuemu_copy_async(dst, src, size, stream, CUEMU_COPY_ANY);
}

CUEMU_API(cuMemcpyHtoDAsync,
          (CUdeviceptr dst, const void *src, size_t size, CUstream stream),
          (dst, src, size, stream))
{
    return cuemu_copy_async(dst, (uint64_t)(uintptr_t)src, size, stream,
                            CUEMU_COPY_DST_DEVICE);
}

CUEMU_ALSO(cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync);

CUEMU_API(cuMemcpyDtoHAsync,
          (void *dst, CUdeviceptr src, size_t size, CUstream stream),
          (dst, src, size, stream))
{
    return cuemu_copy_async((uint64_t)(uintptr_t)dst, src, size, stream,
                            CUEMU_COPY_SRC_DEVICE);
}

CUEMU_ALSO(cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync);

CUEMU_API(cuMemcpyDtoDAsync,
          (CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream),
          (dst, src, size, stream))
{
    return cuemu_copy_async(dst, src, size, stream,
                            CUEMU_COPY_DST_DEVICE | CUEMU_COPY_SRC_DEVICE);
}

CUEMU_ALSO(cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync);

/* Run the copies of a batch one after another; the manual does not specify
   their order. All but the first are set up while earlier ones run: 200 copies
   of 1 MiB take 2.9 us each on H200 (measured by hand), 2.7 us of them for the
   bytes. */
static CUresult cuemu_copy_batch(const CUdeviceptr *dsts,
                                 const CUdeviceptr *srcs, const size_t *sizes,
                                 size_t count,
                                 const CUmemcpyAttributes *attributes,
                                 const size_t *first, size_t num_attributes,
                                 size_t *failed, CUstream handle)
{
    CUresult result = CUDA_SUCCESS;
    size_t i;

    *failed = SIZE_MAX;
    if ((dsts == NULL) || (srcs == NULL) || (sizes == NULL) || (count == 0) ||
        (attributes == NULL) || (first == NULL) || (num_attributes == 0) ||
        (num_attributes > count) || (first[0] != 0) || (handle == NULL) ||
        (handle == CU_STREAM_LEGACY)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    for (i = 0; i < num_attributes; ++i) {
        if ((attributes[i].srcAccessOrder <
             CU_MEMCPY_SRC_ACCESS_ORDER_STREAM) ||
            (attributes[i].srcAccessOrder > CU_MEMCPY_SRC_ACCESS_ORDER_ANY) ||
            ((i > 0) && (first[i] <= first[i - 1]))) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }

    for (i = 0; (i < count) && (result == CUDA_SUCCESS); ++i) {
        result = cuemu_copy_in(dsts[i], srcs[i], sizes[i], handle,
                               CUEMU_COPY_ANY,
                               (i == 0) ? CUEMU_COPY_FIRST :
                                          CUEMU_COPY_FURTHER);
        if (result != CUDA_SUCCESS) {
            *failed = i;
        }
    }

    return result;
}

CUEMU_API(cuMemcpyBatchAsync,
          (CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
           CUmemcpyAttributes *attributes, size_t *first,
           size_t num_attributes, size_t *failed, CUstream stream),
          (dsts, srcs, sizes, count, attributes, first, num_attributes, failed,
           stream))
{
    size_t ignored;

    return cuemu_copy_batch(dsts, srcs, sizes, count, attributes, first,
                            num_attributes,
                            (failed == NULL) ? &ignored : failed, stream);
}

CUEMU_API(cuMemcpyBatchAsync_v2,
          (const CUdeviceptr *dsts, const CUdeviceptr *srcs,
           const size_t *sizes, size_t count,
           const CUmemcpyAttributes *attributes, const size_t *first,
           size_t num_attributes, CUstream stream),
          (dsts, srcs, sizes, count, attributes, first, num_attributes, stream))
{
    size_t ignored;

    return cuemu_copy_batch(dsts, srcs, sizes, count, attributes, first,
                            num_attributes, &ignored, stream);
}

static int cuemu_copy_contexts_ok(CUcontext dst_ctx, CUcontext src_ctx)
{
    return (cuemu_object_check(dst_ctx, CUEMU_OBJ_CONTEXT) != NULL) &&
           (cuemu_object_check(src_ctx, CUEMU_OBJ_CONTEXT) != NULL);
}

CUEMU_API(cuMemcpyPeer,
          (CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src,
           CUcontext src_ctx, size_t size),
          (dst, dst_ctx, src, src_ctx, size))
{
    return !cuemu_copy_contexts_ok(dst_ctx, src_ctx) ?
           CUDA_ERROR_INVALID_CONTEXT :
           cuemu_copy_sync(dst, src, size, CUEMU_COPY_DST_DEVICE |
                                           CUEMU_COPY_SRC_DEVICE);
}

CUEMU_API(cuMemcpyPeerAsync,
          (CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src,
           CUcontext src_ctx, size_t size, CUstream stream),
          (dst, dst_ctx, src, src_ctx, size, stream))
{
    return !cuemu_copy_contexts_ok(dst_ctx, src_ctx) ?
           CUDA_ERROR_INVALID_CONTEXT :
           cuemu_copy_async(dst, src, size, stream, CUEMU_COPY_DST_DEVICE |
                                                    CUEMU_COPY_SRC_DEVICE);
}

static CUresult cuemu_copy_2d(const CUDA_MEMCPY2D *p, cuemu_stream_t *stream,
                              int sync)
{
    cuemu_copy_t copy = {
        .width  = p->WidthInBytes, .height = p->Height,
        .dst_pitch = (p->dstPitch != 0) ? p->dstPitch : p->WidthInBytes,
        .src_pitch = (p->srcPitch != 0) ? p->srcPitch : p->WidthInBytes,
        .check = ((p->dstMemoryType == CU_MEMORYTYPE_DEVICE) ?
                  CUEMU_COPY_DST_DEVICE : 0) |
                 ((p->srcMemoryType == CU_MEMORYTYPE_DEVICE) ?
                  CUEMU_COPY_SRC_DEVICE : 0)
    };

    if ((p->dstMemoryType == CU_MEMORYTYPE_ARRAY) ||
        (p->srcMemoryType == CU_MEMORYTYPE_ARRAY)) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }

    copy.dst = cuemu_mem_side(p->dstMemoryType, p->dstHost, p->dstDevice,
                              copy.dst_pitch, p->dstXInBytes, p->dstY);
    copy.src = cuemu_mem_side(p->srcMemoryType, p->srcHost, p->srcDevice,
                              copy.src_pitch, p->srcXInBytes, p->srcY);
    if ((copy.dst == 0) || (copy.src == 0) || (copy.dst_pitch < copy.width) ||
        (copy.src_pitch < copy.width)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    return cuemu_copy_run(stream, &copy, sync, CUEMU_COPY_ALONE);
}

CUEMU_CTX_API(cuMemcpy2D, (const CUDA_MEMCPY2D *p), (p))
{
    cuemu_context_t *ctx = cuemu_context_top();

    return (p == NULL) ? CUDA_ERROR_INVALID_VALUE :
                         cuemu_copy_2d(p, ctx->null_stream, 1);
}

CUEMU_ALSO(cuMemcpy2D_v2, cuMemcpy2D);
CUEMU_ALSO(cuMemcpy2DUnaligned, cuMemcpy2D);
CUEMU_ALSO(cuMemcpy2DUnaligned_v2, cuMemcpy2D);

CUEMU_CTX_API(cuMemcpy2DAsync, (const CUDA_MEMCPY2D *p, CUstream handle),
              (p, handle))
{
    cuemu_stream_t *stream;
    CUresult result;

    result = cuemu_stream_resolve(handle, &stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }

    return (p == NULL) ? CUDA_ERROR_INVALID_VALUE :
                         cuemu_copy_2d(p, stream, 0);
}

CUEMU_ALSO(cuMemcpy2DAsync_v2, cuMemcpy2DAsync);

/* ---------------------------------------------------------------- fills */

typedef struct {
    uint64_t dst, pitch, width, height; /* bytes */
    uint64_t value;
    unsigned value_size;
} cuemu_fill_t;

static CUresult cuemu_fill_run_one(cuemu_stream_t *stream,
                                   const cuemu_fill_t *fill, int sync)
{
    cuemu_time_t at = cuemu_now() + cuemu_cost(CUEMU_CALL_COPY_ASYNC);
    cuemu_gparams_t params = {.fill = {
        .dst = fill->dst, .pitch = fill->pitch,
        .value = (unsigned)fill->value, .elementSize = fill->value_size,
        .width = fill->width / fill->value_size, .height = fill->height
    }};
    cuemu_work_t work;
    cuemu_range_t dst;
    cuemu_op_id_t op = 0;
    int is_captured;
    CUresult result;

    if ((fill->width == 0) || (fill->height == 0)) {
        return CUDA_SUCCESS;
    }

    if ((fill->dst % fill->value_size) || (fill->pitch < fill->width) ||
        (fill->pitch % fill->value_size)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    result = cuemu_capture_use(stream, &is_captured);
    if (result != CUDA_SUCCESS) {
        return result;
    }

    cuemu_lock();
    result = cuemu_mem_resolve(fill->dst,
                               (fill->height - 1) * fill->pitch + fill->width,
                               stream->ctx, &dst);
    if ((result == CUDA_SUCCESS) &&
        (dst.pageable ||
         ((dst.gpu >= 0) && (dst.gpu != stream->ctx->gpu) && !dst.reached))) {
        result = CUDA_ERROR_INVALID_VALUE; /* the latter on H200 */
    }

    if ((result == CUDA_SUCCESS) && !is_captured) {
        /* takes the time of a copy inside the same memory */
        cuemu_work_set_move(&work, &dst, fill->pitch, &dst, fill->pitch,
                            fill->width, fill->height);
        work.payload.kind       = CUEMU_PAYLOAD_FILL;
        work.payload.stream     = (dst.gpu < 0) ?
                                          (uint64_t)(uintptr_t)stream->ctx :
                                          0;
        work.payload.value      = fill->value;
        work.payload.value_size = fill->value_size;
        op                      = cuemu_work_submit(stream, &work, NULL, 0, at);
    }
    cuemu_unlock();

    if ((result == CUDA_SUCCESS) && is_captured) {
        return cuemu_capture_add(stream, CU_GRAPH_NODE_TYPE_MEMSET, &params,
                                 stream->ctx);
    }

    if (result == CUDA_SUCCESS) {
        cuemu_work_spend_until(at);
        if (sync && ((dst.gpu < 0) || dst.sync_memops ||
                     (stream->ctx->flags & CU_CTX_SYNC_MEMOPS))) {
            cuemu_work_wait(op);
        }
    }

    return result;
}

static CUresult cuemu_fill_run(cuemu_stream_t *stream, const cuemu_fill_t *fill,
                               int sync)
{
    cuemu_fill_t part = *fill;
    uint64_t left     = fill->width;
    CUresult result   = CUDA_SUCCESS;

    if (fill->height != 1) {
        return cuemu_fill_run_one(stream, fill, sync);
    }

    while ((left > 0) && (result == CUDA_SUCCESS)) {
        cuemu_lock();
        part.width = cuemu_mem_run(part.dst, left);
        cuemu_unlock();
        part.pitch = part.width;
        result     = cuemu_fill_run_one(stream, &part, sync);
        part.dst  += part.width;
        left      -= part.width;
    }

    return result;
}

static CUresult cuemu_fill_sync(const cuemu_fill_t *fill)
{
    cuemu_context_t *ctx = cuemu_context_current();

    return (ctx == NULL) ? cuemu_context_error() :
                           cuemu_fill_run(ctx->null_stream, fill, 1);
}

static CUresult cuemu_fill_async(const cuemu_fill_t *fill, CUstream handle)
{
    cuemu_stream_t *stream;
    CUresult result;

    if (cuemu_context_current() == NULL) {
        return cuemu_context_error();
    }

    result = cuemu_stream_resolve(handle, &stream);
    return (result != CUDA_SUCCESS) ? result : cuemu_fill_run(stream, fill, 0);
}

static cuemu_fill_t cuemu_fill_make(uint64_t dst, uint64_t pitch,
                                    uint64_t value, unsigned size,
                                    uint64_t width, uint64_t height)
{
    cuemu_fill_t fill = {
        .dst = dst, .pitch = (height > 1) ? pitch : (width * size),
        .width = width * size, .height = height, .value = value,
        .value_size = size
    };

    return fill;
}

#define CUEMU_FILL_1D(_name, _alias, _type) \
    CUEMU_ENTRY(#_name, cuemu_in_##_name, "cuemu_in_" #_name, \
                cuemu_do_##_name, 0, (CUdeviceptr dst, _type value, \
                size_t count), (dst, value, count)) \
    { \
        cuemu_fill_t fill = cuemu_fill_make(dst, 0, value, sizeof(_type), \
                                            count, 1); \
        return cuemu_fill_sync(&fill); \
    } \
    CUEMU_THUNK(#_alias, "cuemu_in_" #_name)

CUEMU_FILL_1D(cuMemsetD8, cuMemsetD8_v2, unsigned char);
CUEMU_FILL_1D(cuMemsetD16, cuMemsetD16_v2, unsigned short);
CUEMU_FILL_1D(cuMemsetD32, cuMemsetD32_v2, unsigned int);

#define CUEMU_FILL_1D_ASYNC(_name, _type) \
    CUEMU_ENTRY(#_name, cuemu_in_##_name, "cuemu_in_" #_name, \
                cuemu_do_##_name, 0, (CUdeviceptr dst, _type value, \
                size_t count, CUstream stream), (dst, value, count, stream)) \
    { \
        cuemu_fill_t fill = cuemu_fill_make(dst, 0, value, sizeof(_type), \
                                            count, 1); \
        return cuemu_fill_async(&fill, stream); \
    }

CUEMU_FILL_1D_ASYNC(cuMemsetD8Async, unsigned char)
CUEMU_FILL_1D_ASYNC(cuMemsetD16Async, unsigned short)
CUEMU_FILL_1D_ASYNC(cuMemsetD32Async, unsigned int)

/* Write a word after the stream's earlier work. Takes the time of a fill,
   slightly more than on a GPU. */
CUEMU_API(cuStreamWriteValue32,
          (CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned flags),
          (stream, addr, value, flags))
{
    cuemu_fill_t fill = cuemu_fill_make(addr, 0, value, sizeof(value), 1, 1);

    return (flags > CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER) ?
                   CUDA_ERROR_INVALID_VALUE :
                   cuemu_fill_async(&fill, stream);
}

CUEMU_ALSO(cuStreamWriteValue32_v2, cuStreamWriteValue32);

#define CUEMU_FILL_2D(_name, _alias, _type) \
    CUEMU_ENTRY(#_name, cuemu_in_##_name, "cuemu_in_" #_name, \
                cuemu_do_##_name, 0, (CUdeviceptr dst, size_t pitch, \
                _type value, size_t width, size_t height), \
                (dst, pitch, value, width, height)) \
    { \
        cuemu_fill_t fill = cuemu_fill_make(dst, pitch, value, \
                                            sizeof(_type), width, height); \
        return cuemu_fill_sync(&fill); \
    } \
    CUEMU_THUNK(#_alias, "cuemu_in_" #_name)

CUEMU_FILL_2D(cuMemsetD2D8, cuMemsetD2D8_v2, unsigned char);
CUEMU_FILL_2D(cuMemsetD2D16, cuMemsetD2D16_v2, unsigned short);
CUEMU_FILL_2D(cuMemsetD2D32, cuMemsetD2D32_v2, unsigned int);

#define CUEMU_FILL_2D_ASYNC(_name, _type) \
    CUEMU_ENTRY(#_name, cuemu_in_##_name, "cuemu_in_" #_name, \
                cuemu_do_##_name, 0, (CUdeviceptr dst, size_t pitch, \
                _type value, size_t width, size_t height, CUstream stream), \
                (dst, pitch, value, width, height, stream)) \
    { \
        cuemu_fill_t fill = cuemu_fill_make(dst, pitch, value, \
                                            sizeof(_type), width, height); \
        return cuemu_fill_async(&fill, stream); \
    }

CUEMU_FILL_2D_ASYNC(cuMemsetD2D8Async, unsigned char)
CUEMU_FILL_2D_ASYNC(cuMemsetD2D16Async, unsigned short)
CUEMU_FILL_2D_ASYNC(cuMemsetD2D32Async, unsigned int)
