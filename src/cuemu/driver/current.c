/* SPDX-License-Identifier: BSD-3-Clause */

/* The process's devices, the calling thread's contexts, and the streams that
   handles stand for. */
#include "cuemu_context.h"

#include <stdlib.h>
#include <string.h>

/* Most contexts in which a thread uses its per-thread default stream */
#define CUEMU_MAX_THREAD_STREAMS 16

static __thread struct {
    cuemu_context_t *ctx;
    uint64_t         ctx_id;
    cuemu_stream_t  *stream;
} cuemu_thread_streams[CUEMU_MAX_THREAD_STREAMS];

cuemu_process_t cuemu_process;

__thread cuemu_context_t *cuemu_ctx_stack[CUEMU_CTX_STACK];
__thread int cuemu_ctx_depth   = 0;
__thread int cuemu_in_callback = 0;

static unsigned cuemu_num_faulted; /* contexts with a fault so far */


int cuemu_device_of_gpu(int gpu)
{
    int i;

    for (i = 0; i < cuemu_process.num_devices; ++i) {
        if (cuemu_process.gpu[i] == gpu) {
            return i;
        }
    }

    return -1;
}

/* -------------------------------------------------------------- contexts */

cuemu_context_t *cuemu_context_top(void)
{
    return (cuemu_ctx_depth == 0) ? NULL : cuemu_ctx_stack[cuemu_ctx_depth - 1];
}

cuemu_context_t *cuemu_context_current(void)
{
    cuemu_context_t *ctx = cuemu_context_top();

    return ((ctx != NULL) &&
            (cuemu_object_check(ctx, CUEMU_OBJ_CONTEXT) != NULL) &&
            ctx->alive) ? ctx : NULL;
}

cuemu_context_t *cuemu_context_find(CUcontext handle)
{
    cuemu_context_t *ctx = (handle == NULL) ?
                           cuemu_context_current() :
                           cuemu_object_check(handle, CUEMU_OBJ_CONTEXT);

    return ((ctx != NULL) && ctx->alive) ? ctx : NULL;
}

CUresult cuemu_context_error(void)
{
    return (cuemu_context_top() != NULL) ? CUDA_ERROR_CONTEXT_IS_DESTROYED :
                                           CUDA_ERROR_INVALID_CONTEXT;
}

int cuemu_context_find_peer(const cuemu_context_t *ctx,
                            const cuemu_context_t *peer)
{
    int i;

    for (i = 0; i < CUEMU_MAX_PEERS; ++i) {
        if (__atomic_load_n(&ctx->peers[i], __ATOMIC_ACQUIRE) == peer) {
            return i;
        }
    }

    return -1;
}

CUresult cuemu_context_fault(const cuemu_context_t *ctx)
{
    return (CUresult)__atomic_load_n(&ctx->fault, __ATOMIC_ACQUIRE);
}

void cuemu_context_fail(cuemu_context_t *ctx, CUresult result)
{
    __atomic_store_n(&ctx->fault, (int)result, __ATOMIC_RELEASE);
    __atomic_add_fetch(&cuemu_num_faulted, 1, __ATOMIC_RELAXED);
}

/* After a fault only queries and the destruction of the context still work. */
CUresult cuemu_context_fault_of(const char *call)
{
    static const char *const good[] = {
        "cuCtxGet", "cuCtxSetCurrent", "cuCtxPush", "cuCtxPop", "cuCtxDestroy",
        "cuDevice", "cuDriver", "cuGet", "cuInit", "cuPointerGet"
    };
    const cuemu_context_t *ctx;
    size_t i;

    if (__atomic_load_n(&cuemu_num_faulted, __ATOMIC_RELAXED) == 0) {
        return CUDA_SUCCESS;
    }

    for (i = 0; i < sizeof(good) / sizeof(good[0]); ++i) {
        if (strncmp(call, good[i], strlen(good[i])) == 0) {
            return CUDA_SUCCESS;
        }
    }

    ctx = cuemu_context_current();
    return (ctx == NULL) ? CUDA_SUCCESS : cuemu_context_fault(ctx);
}

/* --------------------------------------------------------------- streams */

cuemu_stream_t *cuemu_stream_new(cuemu_context_t *ctx, unsigned flags,
                                 int priority)
{
    cuemu_stream_t *stream;

    stream = cuemu_object_new(CUEMU_OBJ_STREAM, sizeof(*stream));
    if (stream == NULL) {
        return NULL;
    }

    stream->ctx      = ctx;
    stream->flags    = flags;
    stream->priority = priority;
    stream->id       = cuemu_unique_id();
    if (ctx->null_stream != NULL) {
        stream->next = ctx->streams;
        ctx->streams = stream;
    }

    return stream;
}

static cuemu_stream_t *cuemu_stream_of_thread(cuemu_context_t *ctx)
{
    int i, empty = -1;

    for (i = 0; i < CUEMU_MAX_THREAD_STREAMS; ++i) {
        if (cuemu_thread_streams[i].stream == NULL) {
            empty = (empty < 0) ? i : empty;
        } else if ((cuemu_thread_streams[i].ctx == ctx) &&
                   (cuemu_thread_streams[i].ctx_id == ctx->id)) {
            return cuemu_thread_streams[i].stream;
        }
    }

    empty = (empty < 0) ? 0 : empty;
    cuemu_lock();
    cuemu_thread_streams[empty].ctx    = ctx;
    cuemu_thread_streams[empty].ctx_id = ctx->id;
    cuemu_thread_streams[empty].stream = cuemu_stream_new(ctx, 0, 0);
    cuemu_unlock();
    return cuemu_thread_streams[empty].stream;
}

cuemu_stream_t *cuemu_stream_check(CUstream handle)
{
    if (cuemu_object_is_stale(handle, CUEMU_OBJ_STREAM)) {
        cuemu_die("stream", handle);
    }

    return cuemu_object_check(handle, CUEMU_OBJ_STREAM);
}

CUresult cuemu_stream_resolve(CUstream handle, cuemu_stream_t **stream_p)
{
    cuemu_context_t *ctx;

    if ((handle != NULL) && (handle != CU_STREAM_LEGACY) &&
        (handle != CU_STREAM_PER_THREAD)) {
        *stream_p = cuemu_stream_check(handle);
        return (*stream_p == NULL) ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
    }

    ctx = cuemu_context_current();
    if (ctx == NULL) {
        return cuemu_context_error();
    }

    *stream_p = (handle == CU_STREAM_PER_THREAD) ? cuemu_stream_of_thread(ctx) :
                                                   ctx->null_stream;
    return (*stream_p == NULL) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

void cuemu_front_clear(cuemu_front_t *front)
{
    free(front->nodes);
    front->nodes = NULL;
    front->count = 0;
}

void cuemu_event_forget_capture(cuemu_event_t *event)
{
    if (event->capture != 0) {
        event->capture = 0;
        cuemu_front_clear(&event->front);
    }
}
