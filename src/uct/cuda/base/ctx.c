/* SPDX-License-Identifier: BSD-3-Clause */
/* Retained contexts, the context stack, peer access, choice of a context. */
#include <uct/cuda/base/ctx.h>

#include <uct/cuda/base/capture.h>
#include <uct/cuda/base/clock.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/pointer.h>

#include <pthread.h>


/* Id of a context if the driver does not report it */
#define ID_UNKNOWN (~0ull)

/* Time without idle queries after one has invalidated a capture: 10 s */
#define REFUSED_NS (UINT64_C(10) * 1000 * 1000 * 1000)

/* Time for which a GPU found busy is assumed to be busy: 1 s */
#define BUSY_NS (UINT64_C(1000) * 1000 * 1000)

/* Longest wait for an idle GPU. Falling back takes milliseconds, too. */
#define WAIT_NS (2 * 1000 * 1000)

/* For this time after a wait that timed out, others last no longer than
 * UCT_CUDA_CTX_ANSWER_NS */
#define SHORT_WAITS_NS (100 * 1000 * 1000)


typedef enum {
    PEER_UNKNOWN,
    PEER_ENABLED,
    PEER_IMPOSSIBLE
} peer_state_t;


static struct {
    pthread_mutex_t lock; /* order: base/thread.h */
    struct {
        unsigned           refcount;
        CUcontext          cuda; /* while retained */
        unsigned long long id;   /* of cuda, which the program may reset */
        /* once created, retained or not. Created under a lock of its own:
         * own_ctx() reads it. */
        CUcontext          own;
    } kept[UCT_CUDA_MAX_GPUS];
    /* [device][peer], while both contexts are retained */
    uint8_t peers[UCT_CUDA_MAX_GPUS][UCT_CUDA_MAX_GPUS];
} ctxs = {.lock = PTHREAD_MUTEX_INITIALIZER};


static bool device_is_valid(int device)
{
    return (device >= 0) && (device < UCT_CUDA_MAX_GPUS);
}

int uct_cuda_device_count(void)
{
    int count;

    if (UCT_CUDA_CALL_NOLOG(cuDeviceGetCount, &count) != UCS_OK) {
        return 0;
    }

    return (count < UCT_CUDA_MAX_GPUS) ? count : UCT_CUDA_MAX_GPUS;
}

/* Return whether a context is retained and was not reset. Call with the lock
 * held */
static bool kept_is_alive(int device)
{
    return (ctxs.kept[device].refcount > 0) &&
           uct_cuda_ctx_is_alive(ctxs.kept[device].cuda, ctxs.kept[device].id);
}

/* Forget the access enabled to and from a context, which ends with the context.
 * For a context still alive this costs one more driver call. Call with the lock
 * held */
static void forget_peers(int device)
{
    int i;

    for (i = 0; i < UCT_CUDA_MAX_GPUS; ++i) {
        ctxs.peers[device][i] = PEER_UNKNOWN;
        ctxs.peers[i][device] = PEER_UNKNOWN;
    }
}

bool uct_cuda_ctx_retain_kept(int device, CUcontext *cuda_p)
{
    bool is_alive;

    if (!device_is_valid(device)) {
        return false;
    }

    pthread_mutex_lock(&ctxs.lock);
    is_alive = kept_is_alive(device);
    if (is_alive) {
        ++ctxs.kept[device].refcount;
        *cuda_p = ctxs.kept[device].cuda;
    }
    pthread_mutex_unlock(&ctxs.lock);

    return is_alive;
}

static CUcontext own_ctx(int device)
{
    return __atomic_load_n(&ctxs.kept[device].own, __ATOMIC_RELAXED);
}

/* Return whether the primary context is in this state; false if unknown */
static bool primary_is(int device, bool active)
{
    unsigned flags;
    int is_active;

    return (UCT_CUDA_CALL_NOLOG(cuDevicePrimaryCtxGetState, device, &flags,
                                &is_active) == UCS_OK) &&
           ((is_active != 0) == active);
}

/* Create a context without kernels. A driver that refuses smaller limits uses
 * its own */
static ucs_status_t create_own(int device, CUcontext *cuda_p)
{
    static const CUlimit limits[] = {
        CU_LIMIT_STACK_SIZE,
        CU_LIMIT_PRINTF_FIFO_SIZE,
        CU_LIMIT_MALLOC_HEAP_SIZE
    };
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    ucs_status_t status;
    unsigned i;

    status = UCT_CUDA_CALL(cuCtxCreate_v2, cuda_p, 0, device);
    if (status != UCS_OK) {
        return status;
    }

    for (i = 0; i < sizeof(limits) / sizeof(limits[0]); ++i) {
        (void)driver->cuCtxSetLimit(limits[i], 0);
    }

    uct_cuda_ctx_pop(); /* creation has made it current */
    return UCS_OK;
}

/* One thread creates it; the driver creates one context at a time */
static ucs_status_t find_own(int device, CUcontext *cuda_p)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    ucs_status_t status         = UCS_OK;

    pthread_mutex_lock(&lock);
    if (ctxs.kept[device].own == NULL) {
        status = create_own(device, cuda_p);
        if (status == UCS_OK) {
            __atomic_store_n(&ctxs.kept[device].own, *cuda_p, __ATOMIC_RELAXED);
        }
    }

    *cuda_p = ctxs.kept[device].own;
    pthread_mutex_unlock(&lock);
    return status;
}

ucs_status_t uct_cuda_ctx_own(int device, CUcontext *cuda_p)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();

    if ((driver == NULL) || (driver->cuCtxCreate_v2 == NULL) ||
        (driver->cuCtxSetLimit == NULL) || !device_is_valid(device)) {
        return UCS_ERR_UNSUPPORTED;
    }

    return find_own(device, cuda_p);
}

ucs_status_t
uct_cuda_ctx_retain(int device, bool is_copy_only, CUcontext *cuda_p)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    ucs_status_t status;
    CUcontext cuda;
    bool is_own;

    if (!device_is_valid(device)) {
        uct_cuda_error("there is no GPU %d", device);
        return UCS_ERR_INVALID_PARAM;
    }

    if (uct_cuda_ctx_retain_kept(device, cuda_p)) {
        return UCS_OK;
    }

    /* not under the lock: callers for another device need not wait */
    is_own = is_copy_only && (driver != NULL) &&
             (driver->cuCtxCreate_v2 != NULL) &&
             (driver->cuCtxSetLimit != NULL) && primary_is(device, false);
    status = is_own ? find_own(device, &cuda) :
                      UCT_CUDA_CALL(cuDevicePrimaryCtxRetain, &cuda, device);
    if (status != UCS_OK) {
        return status;
    }

    pthread_mutex_lock(&ctxs.lock);
    if (!kept_is_alive(device)) {
        /* a reset leaves the driver's reference count: of the two references
         * one is enough */
        if (ctxs.kept[device].refcount > 0) {
            (void)UCT_CUDA_CALL(cuDevicePrimaryCtxRelease, device);
        }

        ctxs.kept[device].cuda = cuda;
        ctxs.kept[device].id   = uct_cuda_ctx_id(cuda);
        forget_peers(device);
    } else if (!is_own) {
        /* another thread was faster: one of the driver's references is
         * enough */
        (void)UCT_CUDA_CALL(cuDevicePrimaryCtxRelease, device);
    }

    ++ctxs.kept[device].refcount;

    *cuda_p = ctxs.kept[device].cuda;
    pthread_mutex_unlock(&ctxs.lock);

    return UCS_OK;
}

/* Call with the lock held */
static bool kept_is_own(int device)
{
    return (ctxs.kept[device].cuda != NULL) &&
           (ctxs.kept[device].cuda == own_ctx(device));
}

bool uct_cuda_ctx_has_two(int device)
{
    bool result;

    if (!device_is_valid(device)) {
        return false;
    }

    pthread_mutex_lock(&ctxs.lock);
    result = kept_is_own(device);
    pthread_mutex_unlock(&ctxs.lock);

    return result && primary_is(device, true);
}

bool uct_cuda_ctx_is_active(int device)
{
    bool is_kept;

    if (!device_is_valid(device)) {
        return false;
    }

    pthread_mutex_lock(&ctxs.lock);
    is_kept = kept_is_alive(device) || (own_ctx(device) != NULL);
    pthread_mutex_unlock(&ctxs.lock);

    return is_kept || primary_is(device, true);
}

void uct_cuda_ctx_release(int device)
{
    if (!device_is_valid(device)) {
        return;
    }

    pthread_mutex_lock(&ctxs.lock);
    if ((ctxs.kept[device].refcount > 0) &&
        (--ctxs.kept[device].refcount == 0)) {
        if (!kept_is_own(device)) {
            (void)UCT_CUDA_CALL(cuDevicePrimaryCtxRelease, device);
        }

        ctxs.kept[device].cuda = NULL;
        forget_peers(device); /* the context may be gone */
    }
    pthread_mutex_unlock(&ctxs.lock);
}

bool uct_cuda_ctx_get_id(CUcontext cuda, unsigned long long *id_p)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();

    *id_p = (uintptr_t)cuda;
    return (driver->cuCtxGetId == NULL) ||
           (driver->cuCtxGetId(cuda, id_p) == CUDA_SUCCESS);
}

ucs_status_t uct_cuda_ctx_current(CUcontext *cuda_p, unsigned long long *id_p)
{
    return ((uct_cuda_driver_get()->cuCtxGetCurrent(cuda_p) == CUDA_SUCCESS) &&
            (*cuda_p != NULL) && uct_cuda_ctx_get_id(*cuda_p, id_p)) ?
                   UCS_OK :
                   UCS_ERR_IO_ERROR;
}

static bool is_lost(CUresult result)
{
    return (result == CUDA_ERROR_CONTEXT_IS_DESTROYED) ||
           (result == CUDA_ERROR_INVALID_CONTEXT) ||
           (result == CUDA_ERROR_DEINITIALIZED);
}

unsigned long long uct_cuda_ctx_id(CUcontext cuda)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    unsigned long long id           = (uintptr_t)cuda;
    CUresult result;

    result = (driver->cuCtxGetId == NULL) ? CUDA_SUCCESS :
                                            driver->cuCtxGetId(cuda, &id);
    return (result == CUDA_SUCCESS) ? id : is_lost(result) ? 0 : ID_UNKNOWN;
}

bool uct_cuda_ctx_is_alive(CUcontext cuda, unsigned long long id)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    unsigned long long current;
    CUresult result;

    if (driver->cuCtxGetId == NULL) {
        return true;
    }

    /* if the driver does not tell, assume that it is alive: resources must not
     * leak */
    result = driver->cuCtxGetId(cuda, &current);
    return (result == CUDA_SUCCESS) ? (id == ID_UNKNOWN) || (current == id) :
                                      !is_lost(result);
}

ucs_status_t uct_cuda_ctx_push(CUcontext cuda)
{
    return UCT_CUDA_CALL(cuCtxPushCurrent, cuda);
}

bool uct_cuda_ctx_push_alive(CUcontext cuda, unsigned long long id)
{
    return uct_cuda_ctx_is_alive(cuda, id) &&
           (uct_cuda_driver_get()->cuCtxPushCurrent(cuda) == CUDA_SUCCESS);
}

void uct_cuda_ctx_pop(void)
{
    CUcontext popped;

    (void)UCT_CUDA_CALL(cuCtxPopCurrent, &popped);
}

/* Call with the lock held */
static ucs_status_t ctx_query_peer(int device, int peer)
{
    ucs_status_t status;
    int can_access;

    status = UCT_CUDA_CALL(cuDeviceCanAccessPeer, &can_access, device, peer);
    if (status != UCS_OK) {
        return status;
    }

    if (!can_access) {
        uct_cuda_debug("GPU %d cannot reach GPU %d's memory", device, peer);
        return UCS_ERR_UNREACHABLE;
    }

    status = uct_cuda_ctx_push(ctxs.kept[device].cuda);
    if (status != UCS_OK) {
        return status;
    }

    status = UCT_CUDA_CALL_NOLOG(cuCtxEnablePeerAccess, ctxs.kept[peer].cuda,
                                 0);
    uct_cuda_ctx_pop();

    if ((status != UCS_OK) && (status != UCS_ERR_ALREADY_EXISTS)) {
        uct_cuda_error("cuCtxEnablePeerAccess from GPU %d to GPU %d failed",
                       device, peer);
        return status;
    }

    return UCS_OK;
}

ucs_status_t uct_cuda_ctx_enable_peer(int device, int peer)
{
    ucs_status_t status = UCS_OK;
    uint8_t *state;

    if (device == peer) {
        return UCS_OK;
    }

    if (!device_is_valid(device) || !device_is_valid(peer)) {
        return UCS_ERR_INVALID_PARAM;
    }

    pthread_mutex_lock(&ctxs.lock);
    state = &ctxs.peers[device][peer];
    if ((ctxs.kept[device].refcount == 0) ||
        (ctxs.kept[peer].refcount == 0)) {
        status = UCS_ERR_INVALID_PARAM;
    } else if (*state == PEER_IMPOSSIBLE) {
        status = UCS_ERR_UNREACHABLE;
    } else if (*state == PEER_UNKNOWN) {
        status = ctx_query_peer(device, peer);
        if (status == UCS_OK) {
            *state = PEER_ENABLED;
        } else if (status == UCS_ERR_UNREACHABLE) {
            *state = PEER_IMPOSSIBLE;
        }
    }
    pthread_mutex_unlock(&ctxs.lock);

    return status;
}

ucs_status_t
uct_cuda_ctx_reach_peer(int device, int peer, CUdeviceptr memory, bool *ours_p)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    bool is_the_programs, is_reached;

    if (!device_is_valid(device) || !device_is_valid(peer)) {
        return UCS_ERR_INVALID_PARAM;
    }

    pthread_mutex_lock(&ctxs.lock);
    is_the_programs = (driver->cuCtxCreate_v2 != NULL) &&
                      (ctxs.kept[device].refcount > 0) &&
                      (ctxs.kept[peer].refcount > 0) &&
                      !kept_is_own(device) && !kept_is_own(peer) &&
                      (ctxs.peers[device][peer] != PEER_ENABLED);
    is_reached      = is_the_programs &&
                      uct_cuda_ctx_has_peer(ctxs.kept[device].cuda, memory);
    pthread_mutex_unlock(&ctxs.lock);

    *ours_p = !is_the_programs;
    if (is_reached) {
        return UCS_OK;
    } else if (is_the_programs) {
        uct_cuda_debug("the program has not enabled peer access from GPU %d to "
                       "GPU %d",
                       device, peer);
        return UCS_ERR_UNREACHABLE;
    }

    return uct_cuda_ctx_enable_peer(device, peer);
}

bool uct_cuda_ctx_has_peer(CUcontext cuda, CUdeviceptr memory)
{
    CUdeviceptr pointer;
    ucs_status_t status;

    if (uct_cuda_ctx_push(cuda) != UCS_OK) {
        return false;
    }

    status = UCT_CUDA_CALL_NOLOG(cuPointerGetAttribute, &pointer,
                                 CU_POINTER_ATTRIBUTE_DEVICE_POINTER, memory);
    uct_cuda_ctx_pop();
    return status == UCS_OK;
}

CUcontext
uct_cuda_ctx_own_for(int device, CUcontext owner, CUdeviceptr memory)
{
    ucs_status_t status;
    CUcontext cuda;

    if ((uct_cuda_ctx_own(device, &cuda) != UCS_OK) || (cuda == owner) ||
        (uct_cuda_ctx_push(cuda) != UCS_OK)) {
        return NULL;
    }

    status = UCT_CUDA_CALL_NOLOG(cuCtxEnablePeerAccess, owner, 0);
    uct_cuda_ctx_pop();
    if (((status != UCS_OK) && (status != UCS_ERR_ALREADY_EXISTS)) ||
        !uct_cuda_ctx_has_peer(cuda, memory)) {
        uct_cuda_debug("GPU %d cannot access memory %#llx of this process",
                       device, memory);
        return NULL;
    }

    return cuda;
}


/* ---------------------------------------------------------- enter and leave */

static void release(const uct_cuda_ctx_scope_t *context)
{
    if (context->retained == UCT_CUDA_CTX_RETAINED_PRIMARY) {
        (void)uct_cuda_driver_get()->cuDevicePrimaryCtxRelease(context->device);
    } else if (context->retained == UCT_CUDA_CTX_RETAINED_KEPT) {
        uct_cuda_ctx_release(context->device);
    }
}

/* Push a context, or release it */
static ucs_status_t push(CUcontext cuda, int device,
                         uct_cuda_ctx_retained_t retained,
                         uct_cuda_ctx_scope_t *context)
{
    context->cuda      = cuda;
    context->device    = device;
    context->retained  = retained;
    context->is_pushed = uct_cuda_driver_get()->cuCtxPushCurrent(cuda) ==
                         CUDA_SUCCESS;
    if (!context->is_pushed) {
        release(context);
    }

    return context->is_pushed ? UCS_OK : UCS_ERR_IO_ERROR;
}

/* Retain and push a device's primary context, if it is active */
static ucs_status_t push_primary(int device, uct_cuda_ctx_scope_t *context)
{
    CUcontext cuda;

    if (!primary_is(device, true)) {
        return UCS_ERR_NO_DEVICE;
    }

    return (uct_cuda_driver_get()->cuDevicePrimaryCtxRetain(&cuda, device) !=
            CUDA_SUCCESS) ?
                   UCS_ERR_IO_ERROR :
                   push(cuda, device, UCT_CUDA_CTX_RETAINED_PRIMARY, context);
}

ucs_status_t uct_cuda_ctx_enter_kept(int device, uct_cuda_ctx_scope_t *context)
{
    CUcontext cuda;

    context->is_pushed = false;
    return uct_cuda_ctx_retain_kept(device, &cuda) ?
                   push(cuda, device, UCT_CUDA_CTX_RETAINED_KEPT, context) :
                   UCS_ERR_NO_DEVICE;
}

/* Return whether a GPU can access memory, if any */
static bool fits(int device, CUdeviceptr memory)
{
    return (memory == 0) ||
           uct_cuda_pointer_has_access(uct_cuda_driver_get(), device, memory,
                                       CU_MEM_ACCESS_FLAGS_PROT_READ);
}

/* Use the current context. One that was reset is still current, but
 * unusable. */
static bool use_current(uct_cuda_ctx_scope_t *context)
{
    unsigned long long id;

    context->is_pushed = false;
    return (uct_cuda_ctx_current(&context->cuda, &id) == UCS_OK) &&
           (uct_cuda_driver_get()->cuCtxGetDevice(&context->device) ==
            CUDA_SUCCESS);
}

ucs_status_t uct_cuda_ctx_enter(CUcontext cuda, int device,
                                uct_cuda_ctx_scope_t *context)
{
    CUcontext current = NULL;

    if (cuda == NULL) {
        return ((push_primary(device, context) == UCS_OK) ||
                (use_current(context) && (context->device == device))) ?
                       UCS_OK :
                       uct_cuda_ctx_enter_kept(device, context);
    }

    if ((uct_cuda_driver_get()->cuCtxGetCurrent(&current) == CUDA_SUCCESS) &&
        (current == cuda)) {
        context->cuda      = cuda;
        context->device    = device;
        context->is_pushed = false;
        return UCS_OK;
    }

    return push(cuda, device, UCT_CUDA_CTX_RETAINED_NONE, context);
}

ucs_status_t uct_cuda_ctx_enter_any(uct_cuda_end_t gpu, CUdeviceptr memory,
                                    uct_cuda_ctx_scope_t *context)
{
    int i, count;

    if (use_current(context) &&
        ((gpu.kind == UCT_CUDA_END_NONE) || (gpu.device == context->device)) &&
        fits(context->device, memory)) {
        return UCS_OK;
    }

    if (gpu.kind != UCT_CUDA_END_NONE) {
        return push_primary(gpu.device, context);
    }

    count = uct_cuda_device_count();
    for (i = 0; i < count; ++i) {
        if (fits(i, memory) && (push_primary(i, context) == UCS_OK)) {
            return UCS_OK;
        }
    }

    return UCS_ERR_NO_DEVICE;
}

ucs_status_t uct_cuda_ctx_enter_for(int device, CUdeviceptr memory,
                                    uct_cuda_ctx_scope_t *context)
{
    ucs_status_t status;
    CUcontext own;

    if ((uct_cuda_ctx_enter(NULL, device, context) == UCS_OK) ||
        (uct_cuda_ctx_enter_any(uct_cuda_end_none(), memory, context) ==
         UCS_OK)) {
        return UCS_OK;
    }

    status = uct_cuda_ctx_own(device, &own);
    return (status == UCS_OK) ? uct_cuda_ctx_enter(own, device, context) :
                                status;
}

void uct_cuda_ctx_leave_entered(const uct_cuda_ctx_scope_t *context)
{
    CUcontext popped;

    (void)uct_cuda_driver_get()->cuCtxPopCurrent(&popped);
    release(context);
}


/* ----------------------------------------------------------- idle contexts */

/* time when a context was last found busy; 0: not since */
static uint64_t busy;

bool uct_cuda_ctx_was_busy(void)
{
    const uint64_t when = __atomic_load_n(&busy, __ATOMIC_RELAXED);

    return (when != 0) && (uct_cuda_now_ns() - when < BUSY_NS);
}

/* Return whether a blocking stream of the current context is under capture. The
 * query leaves the capture intact (manual of cuStreamIsCapturing). */
static bool blocking_stream_is_captured(void)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    CUstreamCaptureStatus status;

    return (driver->cuStreamIsCapturing != NULL) &&
           (driver->cuStreamIsCapturing(CU_STREAM_LEGACY, &status) ==
            CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
}

bool uct_cuda_ctx_is_idle(uint64_t wait_ns)
{
    static uint64_t refused; /* time, ns; 0: never */
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    const uint64_t start            = uct_cuda_now_ns();
    const uint64_t before = __atomic_load_n(&refused, __ATOMIC_RELAXED);
    CUresult result       = CUDA_ERROR_UNKNOWN;
    CUcontext cuda;
    CUevent event;

    if ((driver->cuCtxRecordEvent == NULL) ||
        ((before != 0) && (start - before < REFUSED_NS)) ||
        blocking_stream_is_captured()) {
        return true;
    }

    if ((UCT_CUDA_CALL(cuCtxGetCurrent, &cuda) != UCS_OK) ||
        (UCT_CUDA_CALL(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING) !=
         UCS_OK)) {
        return false;
    }

    result = driver->cuCtxRecordEvent(cuda, event);
    if (uct_cuda_capture_is_refusal(result)) {
        __atomic_store_n(&refused, start, __ATOMIC_RELAXED);
        result = CUDA_SUCCESS;
    } else if (result == CUDA_SUCCESS) {
        do {
            result = driver->cuEventQuery(event);
        } while ((result == CUDA_ERROR_NOT_READY) &&
                 (uct_cuda_now_ns() - start < wait_ns));
    }

    (void)UCT_CUDA_CALL(cuEventDestroy, event);
    __atomic_store_n(&busy, (result == CUDA_SUCCESS) ? 0 : start,
                     __ATOMIC_RELAXED);
    return result == CUDA_SUCCESS;
}

bool uct_cuda_ctx_wait_idle(uint64_t *busy_p)
{
    const uint64_t before = __atomic_load_n(busy_p, __ATOMIC_RELAXED);
    const bool has_waited = (before != 0) &&
                            (uct_cuda_now_ns() - before < SHORT_WAITS_NS);

    if (uct_cuda_ctx_is_idle(has_waited ? UCT_CUDA_CTX_ANSWER_NS :
                                          WAIT_NS)) {
        return true;
    }

    if (!has_waited) {
        __atomic_store_n(busy_p, uct_cuda_now_ns(), __ATOMIC_RELAXED);
    }
    return false;
}
