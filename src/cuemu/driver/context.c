/* SPDX-License-Identifier: BSD-3-Clause */

/* Contexts: primary ones, created ones, the stack of a thread, peers. */
#include "cuemu_gate.h"
#include "cuemu_kernel.h"

#include <stdlib.h>
#include <string.h>

#define CUEMU_CTX_FLAG_MASK 0x1ff /* CU_CTX_FLAGS_MASK, later bits included */

/* Limits of a new context, the units that new values are rounded up to, and the
   largest values (an H200's, driver 580; a thread's local memory is at most 512
   KiB). Initially 0: not supported. They have no effect. */
static const struct {
    size_t initial, unit, most;
} cuemu_limits[CUEMU_NUM_LIMITS] = {
    [CU_LIMIT_STACK_SIZE]                       = {1024, 1, 524288},
    [CU_LIMIT_PRINTF_FIFO_SIZE]                 = {8650752, 524288, SIZE_MAX},
    [CU_LIMIT_MALLOC_HEAP_SIZE]                 = {8388608, 1, SIZE_MAX},
    [CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = {2048, 1, SIZE_MAX},
    [CU_LIMIT_MAX_L2_FETCH_GRANULARITY]         = {64, 1, SIZE_MAX},
    [CU_LIMIT_PERSISTING_L2_CACHE_SIZE]         = {11796480, 3932160, SIZE_MAX},
    [7 /* CU_LIMIT_SHMEM_SIZE */]               = {232448, 1, SIZE_MAX}
};

/* Return the context of a handle, also a destroyed one: handles stay valid for
   the process's life (seen on H100, driver 580). NULL if the handle never was a
   context. */
static cuemu_context_t *cuemu_context_any(CUcontext handle)
{
    return cuemu_object_is_stale(handle, CUEMU_OBJ_CONTEXT) ?
           (cuemu_context_t*)handle :
           cuemu_object_check(handle, CUEMU_OBJ_CONTEXT);
}

/* Initialise a context in an object that is new, or was a context before. One
   in which a kernel failed never works again. */
static CUresult cuemu_context_begin(cuemu_context_t *ctx, int device,
                                    unsigned flags)
{
    int i;

    if (ctx->fault != 0) {
        return CUDA_ERROR_DEVICE_UNAVAILABLE; /* H200, driver 580 */
    }

    for (i = 0; i < CUEMU_NUM_LIMITS; ++i) {
        ctx->limits[i] = cuemu_limits[i].initial;
    }
    ctx->device      = device;
    ctx->gpu         = cuemu_process.gpu[device];
    ctx->flags       = flags;
    ctx->id          = cuemu_unique_id();
    ctx->streams     = NULL;
    ctx->null_stream = NULL;
    ctx->orphans[0]  = 0;
    ctx->orphans[1]  = 0;
    ctx->null_stream = cuemu_stream_new(ctx, 0, 0);
    ctx->alive       = (ctx->null_stream != NULL);
    return ctx->alive ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult cuemu_context_new(int device, unsigned flags,
                                  cuemu_context_t **ctx_p)
{
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    cuemu_context_t *ctx;

    ctx = cuemu_object_new(CUEMU_OBJ_CONTEXT, sizeof(*ctx));
    if (ctx != NULL) {
        result = cuemu_context_begin(ctx, device, flags);
        if (result != CUDA_SUCCESS) {
            cuemu_object_delete(ctx);
        }
    }

    *ctx_p = ctx;
    return result;
}

static void cuemu_context_set_peer(cuemu_context_t *ctx, int i,
                                   cuemu_context_t *peer)
{
    __atomic_store_n(&ctx->peers[i], peer, __ATOMIC_RELEASE);
}

/* Remove all peer access from and to a context that ends. Call with the
   lock. */
static void cuemu_context_drop_peers(cuemu_context_t *ctx)
{
    cuemu_context_t *other;
    int i;

    for (i = 0; i < CUEMU_MAX_PEERS; ++i) {
        cuemu_context_set_peer(ctx, i, NULL);
    }

    for (other = cuemu_object_next(CUEMU_OBJ_CONTEXT, NULL); other != NULL;
         other = cuemu_object_next(CUEMU_OBJ_CONTEXT, other)) {
        i = cuemu_context_find_peer(other, ctx);
        if (i >= 0) {
            cuemu_context_set_peer(other, i, NULL);
        }
    }
}

static void cuemu_context_end(cuemu_context_t *ctx)
{
    cuemu_context_wait(ctx);

    cuemu_lock();
    ctx->alive = 0;
    cuemu_ipc_drop_context(ctx);
    cuemu_mem_drop_context(ctx);
    cuemu_context_drop_peers(ctx);
    cuemu_stream_retire(ctx);
    cuemu_module_retire(ctx);
    cuemu_object_retire(ctx);
    cuemu_unlock();
}

/* -------------------------------------------------------------- primary */

static int cuemu_device_is_valid(CUdevice device)
{
    return (device >= 0) && (device < cuemu_process.num_devices);
}

static int cuemu_primary_exists(CUdevice device)
{
    int exists;

    cuemu_lock();
    exists = (cuemu_process.primary[device] != NULL) &&
             cuemu_process.primary[device]->alive;
    cuemu_unlock();
    return exists;
}

CUEMU_API(cuDevicePrimaryCtxRetain, (CUcontext *ctx_p, CUdevice device),
          (ctx_p, device))
{
    CUresult result = CUDA_SUCCESS;
    cuemu_context_t *ctx;

    if (!cuemu_device_is_valid(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }

    if (ctx_p == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    if (!cuemu_primary_exists(device)) {
        cuemu_work_spend_held(CUEMU_CALL_CONTEXT, CUEMU_CALL_CONTEXT_HOLD);
    }

    cuemu_lock();
    ctx = cuemu_process.primary[device];
    if (ctx == NULL) {
        result = cuemu_context_new(device, cuemu_process.primary_flags[device],
                                   &ctx);
        if (result == CUDA_SUCCESS) {
            ctx->primary                  = 1;
            cuemu_process.primary[device] = ctx;
        }
    } else if (!ctx->alive) {
        result = cuemu_context_begin(ctx, device,
                                     cuemu_process.primary_flags[device]);
        if (result == CUDA_SUCCESS) {
            cuemu_object_revive(ctx);
        }
    }

    if (result == CUDA_SUCCESS) {
        ++ctx->refs;
        *ctx_p = (CUcontext)ctx;
    }
    cuemu_unlock();

    return result;
}

CUEMU_API(cuDevicePrimaryCtxRelease, (CUdevice device), (device))
{
    CUresult result = CUDA_ERROR_INVALID_CONTEXT;
    int last        = 0;
    cuemu_context_t *ctx;

    if (!cuemu_device_is_valid(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }

    cuemu_lock();
    ctx = cuemu_process.primary[device];
    if ((ctx != NULL) && (ctx->refs > 0)) {
        last   = (--ctx->refs == 0) && ctx->alive;
        result = CUDA_SUCCESS;
    }
    cuemu_unlock();

    if (last) {
        cuemu_context_end(ctx);
    }

    return result;
}

CUEMU_ALSO(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease);

/* Reset a primary context. Its references stay and have to be released. Handles
   of its streams, events and executable graphs become invalid. */
CUEMU_API(cuDevicePrimaryCtxReset, (CUdevice device), (device))
{
    if (!cuemu_device_is_valid(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }

    if (cuemu_primary_exists(device)) {
        cuemu_context_end(cuemu_process.primary[device]);
    }

    return CUDA_SUCCESS;
}

CUEMU_ALSO(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset);

CUEMU_API(cuDevicePrimaryCtxGetState,
          (CUdevice device, unsigned *flags, int *active),
          (device, flags, active))
{
    if (!cuemu_device_is_valid(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }

    if ((flags == NULL) || (active == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    cuemu_lock();
    *active = (cuemu_process.primary[device] != NULL) &&
              cuemu_process.primary[device]->alive;
    *flags  = *active ? cuemu_process.primary[device]->flags :
                        cuemu_process.primary_flags[device];
    cuemu_unlock();
    return CUDA_SUCCESS;
}

CUEMU_API(cuDevicePrimaryCtxSetFlags, (CUdevice device, unsigned flags),
          (device, flags))
{
    if (!cuemu_device_is_valid(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }

    if (flags & ~(unsigned)CUEMU_CTX_FLAG_MASK) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    cuemu_lock();
    cuemu_process.primary_flags[device] = flags;
    if (cuemu_process.primary[device] != NULL) {
        cuemu_process.primary[device]->flags = flags;
    }
    cuemu_unlock();
    return CUDA_SUCCESS;
}

CUEMU_ALSO(cuDevicePrimaryCtxSetFlags_v2, cuDevicePrimaryCtxSetFlags);

/* ---------------------------------------------------------------- stack */

static CUresult cuemu_context_push(cuemu_context_t *ctx)
{
    if (cuemu_ctx_depth == CUEMU_CTX_STACK) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    cuemu_ctx_stack[cuemu_ctx_depth++] = ctx;
    return CUDA_SUCCESS;
}

static CUresult cuemu_context_create(CUcontext *ctx_p, unsigned flags,
                                     CUdevice device)
{
    cuemu_context_t *ctx;
    CUresult result;

    if (!cuemu_device_is_valid(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }

    if ((ctx_p == NULL) || (flags & ~(unsigned)CUEMU_CTX_FLAG_MASK)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    cuemu_work_spend_held(CUEMU_CALL_CONTEXT, CUEMU_CALL_CONTEXT_HOLD);
    cuemu_lock();
    result = cuemu_context_new(device, flags, &ctx);
    cuemu_unlock();
    if (result == CUDA_SUCCESS) {
        result = cuemu_context_push(ctx);
        *ctx_p = (CUcontext)ctx;
    }

    return result;
}

CUEMU_API(cuCtxCreate, (CUcontext *ctx, unsigned flags, CUdevice device),
          (ctx, flags, device))
{
    return cuemu_context_create(ctx, flags, device);
}

CUEMU_ALSO(cuCtxCreate_v2, cuCtxCreate);

/* Create a context. Execution affinity, which limits it to some of the
   multiprocessors, is refused. */
CUEMU_API(cuCtxCreate_v3,
          (CUcontext *ctx, void *affinity, int num_affinity, unsigned flags,
           CUdevice device),
          (ctx, affinity, num_affinity, flags, device))
{
    return (num_affinity != 0) ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY :
                                 cuemu_context_create(ctx, flags, device);
}

/* Create a context. The parameters (execution affinity, CIG) are ignored. */
CUEMU_API(cuCtxCreate_v4,
          (CUcontext *ctx, void *params, unsigned flags, CUdevice device),
          (ctx, params, flags, device))
{
    return cuemu_context_create(ctx, flags, device);
}

CUEMU_API(cuCtxDestroy, (CUcontext handle), (handle))
{
    cuemu_context_t *ctx = cuemu_object_check(handle, CUEMU_OBJ_CONTEXT);

    if ((ctx == NULL) || !ctx->alive || ctx->primary) {
        return (handle == NULL) ? CUDA_ERROR_INVALID_VALUE :
                                  CUDA_ERROR_INVALID_CONTEXT;
    }

    if (cuemu_context_current() == ctx) {
        --cuemu_ctx_depth;
    }

    cuemu_context_end(ctx);
    return CUDA_SUCCESS;
}

CUEMU_ALSO(cuCtxDestroy_v2, cuCtxDestroy);

/* Push a context, also a destroyed one: later calls fail, not this one. */
CUEMU_API(cuCtxPushCurrent, (CUcontext handle), (handle))
{
    cuemu_context_t *ctx = cuemu_context_any(handle);

    if (ctx == NULL) {
        return (handle == NULL) ? CUDA_ERROR_INVALID_VALUE :
                                  CUDA_ERROR_INVALID_CONTEXT;
    }

    cuemu_work_spend_until(cuemu_now() +
                           cuemu_cost(CUEMU_CALL_CTX_SWITCH) / 2);
    return cuemu_context_push(ctx);
}

CUEMU_ALSO(cuCtxPushCurrent_v2, cuCtxPushCurrent);

CUEMU_API(cuCtxPopCurrent, (CUcontext *ctx_p), (ctx_p))
{
    if (cuemu_ctx_depth == 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }

    cuemu_work_spend_until(cuemu_now() +
                           cuemu_cost(CUEMU_CALL_CTX_SWITCH) / 2);
    --cuemu_ctx_depth;
    if (ctx_p != NULL) {
        *ctx_p = (CUcontext)cuemu_ctx_stack[cuemu_ctx_depth];
    }

    return CUDA_SUCCESS;
}

CUEMU_ALSO(cuCtxPopCurrent_v2, cuCtxPopCurrent);

CUEMU_API(cuCtxSetCurrent, (CUcontext handle), (handle))
{
    cuemu_context_t *ctx = cuemu_context_any(handle);

    if (handle == NULL) {
        cuemu_ctx_depth -= (cuemu_ctx_depth > 0);
        return CUDA_SUCCESS;
    }

    if (ctx == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }

    if (cuemu_ctx_depth == 0) {
        return cuemu_context_push(ctx);
    }

    cuemu_ctx_stack[cuemu_ctx_depth - 1] = ctx;
    return CUDA_SUCCESS;
}

CUEMU_API(cuCtxGetCurrent, (CUcontext *ctx_p), (ctx_p))
{
    if (ctx_p == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    *ctx_p = (CUcontext)cuemu_context_top();
    return CUDA_SUCCESS;
}

CUEMU_API(cuCtxGetDevice, (CUdevice *device), (device))
{
    const cuemu_context_t *ctx = cuemu_context_top();

    if (ctx == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }

    if (device == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    *device = ctx->device;
    return CUDA_SUCCESS;
}

CUEMU_CTX_API(cuCtxGetFlags, (unsigned *flags), (flags))
{
    cuemu_context_t *ctx = cuemu_context_top();

    if (flags == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    *flags = ctx->flags;
    return CUDA_SUCCESS;
}

CUEMU_API(cuCtxSetFlags, (unsigned flags), (flags))
{
    cuemu_context_t *ctx = cuemu_context_current();

    if ((ctx == NULL) &&
        (cuemu_context_error() == CUDA_ERROR_CONTEXT_IS_DESTROYED)) {
        cuemu_die("context", cuemu_context_top());
    }

    if (ctx == NULL) {
        return cuemu_context_error();
    }

    if (flags & ~(unsigned)CUEMU_CTX_FLAG_MASK) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    cuemu_context_wait(ctx); /* seen on H100, driver 580 */
    ctx->flags |= flags;
    return CUDA_SUCCESS;
}

static CUresult cuemu_context_or_current(CUcontext handle,
                                         cuemu_context_t **ctx_p)
{
    *ctx_p = cuemu_context_find(handle);
    return (*ctx_p != NULL) ? CUDA_SUCCESS :
           (handle == NULL) ? CUDA_ERROR_INVALID_CONTEXT :
                              CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUEMU_API(cuCtxGetId, (CUcontext handle, unsigned long long *id), (handle, id))
{
    cuemu_context_t *ctx;
    CUresult result = cuemu_context_or_current(handle, &ctx);

    if (id == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    if (result == CUDA_SUCCESS) {
        *id = ctx->id;
    }

    return result;
}

CUEMU_API(cuCtxGetApiVersion, (CUcontext handle, unsigned *version),
          (handle, version))
{
    cuemu_context_t *ctx;
    CUresult result = cuemu_context_or_current(handle, &ctx);

    if (version == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    if (result == CUDA_SUCCESS) {
        *version = 3020;
    }

    return result;
}

CUEMU_CTX_API(cuCtxSynchronize, (void), ())
{
    cuemu_context_t *ctx = cuemu_context_top();

    cuemu_context_wait(ctx);
    cuemu_pool_collect();
    cuemu_work_spend(CUEMU_CALL_QUERY_DONE);
    return cuemu_context_fault(ctx);
}

CUEMU_CTX_API(cuCtxGetStreamPriorityRange, (int *least, int *greatest),
              (least, greatest))
{
    if (least != NULL) {
        *least = 0;
    }

    if (greatest != NULL) {
        *greatest = -5;
    }

    return CUDA_SUCCESS;
}

/* Return SUCCESS, or the error of a call about this limit. */
static CUresult cuemu_limit_check(CUlimit limit)
{
    if ((unsigned)limit >= CUEMU_NUM_LIMITS) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return (cuemu_limits[limit].initial == 0) ? CUDA_ERROR_UNSUPPORTED_LIMIT :
                                                CUDA_SUCCESS;
}

CUEMU_CTX_API(cuCtxGetLimit, (size_t *value, CUlimit limit), (value, limit))
{
    CUresult result = (value == NULL) ? CUDA_ERROR_INVALID_VALUE :
                                        cuemu_limit_check(limit);

    if (result == CUDA_SUCCESS) {
        *value = cuemu_context_top()->limits[limit];
    }
    return result;
}

CUEMU_CTX_API(cuCtxSetLimit, (CUlimit limit, size_t value), (limit, value))
{
    CUresult result = cuemu_limit_check(limit);
    size_t unit;

    if ((result == CUDA_SUCCESS) && (value > cuemu_limits[limit].most)) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        unit = cuemu_limits[limit].unit;
        cuemu_context_top()->limits[limit] = (value + unit - 1) / unit * unit;
    }
    return result;
}

/* ---------------------------------------------------------------- peers */

/*
 * Peer access is from one context to another and has a direction. Memory opened
 * by handle is accessible independently of it, and opening such memory enables
 * no access to other memory (2 x H100, driver 580; the manual says that it is
 * enabled "as if" by cuCtxEnablePeerAccess()).
 */

CUEMU_API(cuCtxEnablePeerAccess, (CUcontext handle, unsigned flags),
          (handle, flags))
{
    cuemu_context_t *ctx  = cuemu_context_current();
    cuemu_context_t *peer = cuemu_object_check(handle, CUEMU_OBJ_CONTEXT);
    const cuemu_route_t *route;
    CUresult result = CUDA_SUCCESS;
    int room;

    if (flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    if ((ctx == NULL) || (peer == NULL) || !peer->alive || (peer == ctx)) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }

    if (peer->gpu == ctx->gpu) {
        return CUDA_ERROR_INVALID_DEVICE;
    }

    route = cuemu_node_route(cuemu_session.node, ctx->gpu, peer->gpu);
    if ((route == NULL) || !route->p2p) {
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    }

    cuemu_lock();
    room = cuemu_context_find_peer(ctx, NULL);
    if (cuemu_context_has_peer(ctx, peer)) {
        result = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    } else if (room < 0) {
        result = CUDA_ERROR_TOO_MANY_PEERS;
    } else {
        cuemu_context_set_peer(ctx, room, peer);
    }
    cuemu_unlock();
    return result;
}

CUEMU_API(cuCtxDisablePeerAccess, (CUcontext handle), (handle))
{
    cuemu_context_t *ctx  = cuemu_context_current();
    cuemu_context_t *peer = cuemu_object_check(handle, CUEMU_OBJ_CONTEXT);
    CUresult result       = CUDA_SUCCESS;
    int i;

    if ((ctx == NULL) || (peer == NULL) || !peer->alive) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }

    cuemu_lock();
    i = cuemu_context_find_peer(ctx, peer);
    if (i >= 0) {
        cuemu_context_set_peer(ctx, i, NULL);
    } else {
        result = CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    }
    cuemu_unlock();
    return result;
}
