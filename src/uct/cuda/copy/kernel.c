/* SPDX-License-Identifier: BSD-3-Clause */
/* Launch, cancel and check the copy kernel. It has a stream, a second stream
 * for cancellations, and words of GPU memory by which host and kernel agree on
 * a cancellation (kernels/copy.cu). */
#include <uct/cuda/copy/kernel.h>

#include <uct/cuda/base/alarm.h>
#include <uct/cuda/base/clock.h>
#include <uct/cuda/base/context_data.h>
#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/device_memory.h>
#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/gpu.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/memory.h>
#include <uct/cuda/base/pointer.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>


#define MAX_WARPS UCT_CUDA_COPY_KERNEL_MAX_WARPS
#define NUM_WORDS UCX_MP_COPY_WORDS(UCT_CUDA_COPY_KERNEL_MAX_BLOCKS)

_Static_assert(UCT_CUDA_QUEUE_MAX_STEPS < UCX_MP_COPY_OFF,
               "a launch that is under way has a word of its own");

/* Time until a busy GPU is queried again, doubled each time: the query has a
 * cost (uct_cuda_ctx_is_idle()) */
#define MIN_PAUSE_NS (10ul * 1000 * 1000)
#define MAX_PAUSE_NS (1000ul * 1000 * 1000)


/* Kernel of a context */
typedef struct {
    ucx_mp_copy_t functions; /* NULL: not loaded, or unavailable */
    bool          is_refused;
    uint64_t      asked;     /* last query that found the GPU busy */
    uint64_t      pause;
} kernel_t;

static const uct_cuda_context_kind_t kernel_kind = {
    .size = sizeof(kernel_t)
};

struct uct_cuda_copy_kernel {
    const uct_cuda_context_t *context;
    ucx_mp_copy_t         functions;
    CUstream              stream;
    CUstream              beside;
    CUstream              wake_up; /* for callbacks; NULL: none yet */
    CUevent               off;    /* after a cancelled launch */
    bool                  is_off;
    CUdeviceptr           words;
    uint64_t              serial; /* of the last launch */
    uint64_t              read[MAX_WARPS]; /* words, read by read_words() */
};

/* For all kernels; order: base/thread.h */
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;


static void load_kernel(kernel_t *kernel)
{
    const uint64_t now = uct_cuda_now_ns();
    ucx_mp_kernels_driver_t functions;
    CUresult result;

    if (!uct_cuda_driver_kernels(uct_cuda_driver_get(), &functions)) {
        kernel->is_refused = true;
        return;
    }

    if ((kernel->asked != 0) && (now - kernel->asked < kernel->pause)) {
        return;
    }

    if (!uct_cuda_ctx_is_idle(0)) {
        kernel->pause = (kernel->asked == 0)               ? MIN_PAUSE_NS :
                        (2 * kernel->pause < MAX_PAUSE_NS) ? 2 * kernel->pause :
                                                             MAX_PAUSE_NS;
        kernel->asked = now;
        return;
    }

    result = ucx_mp_copy_load(&functions, &kernel->functions);
    if (result != CUDA_SUCCESS) {
        uct_cuda_debug("no kernel for small blocks: %s",
                       uct_cuda_result_name(result));
        kernel->functions.copy = NULL;
        kernel->is_refused     = true;
    }
}

/* Return the kernel's functions. @return false: unavailable, or not now */
static bool get_kernel(uct_cuda_context_t *context, bool may_load,
                       ucx_mp_copy_t *functions)
{
    kernel_t *kernel;
    void *member;

    if (uct_cuda_context_member(context, &kernel_kind, &member) != UCS_OK) {
        return false;
    }

    kernel = member;
    pthread_mutex_lock(&loading);
    if ((kernel->functions.copy == NULL) && !kernel->is_refused && may_load) {
        load_kernel(kernel);
    }
    *functions = kernel->functions;
    pthread_mutex_unlock(&loading);
    return functions->copy != NULL;
}

bool uct_cuda_copy_kernel_can_access(CUdeviceptr address, int device)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    uct_cuda_pointer_sharing_t sharing;
    CUcontext context;

    if (!uct_cuda_pointer_is_mapped(driver, address, &context)) {
        return false;
    }
    if (context != NULL) {
        return true;
    }

    uct_cuda_pointer_sharing(driver, address, &sharing);
    return !sharing.is_vmm ||
           uct_cuda_pointer_has_access(driver, device, address,
                                       CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

/* Free all resources; a cancelled launch that has not run yet still reads the
 * words */
static void release(uct_cuda_copy_kernel_t *copy_kernel)
{
    if ((copy_kernel->words != 0) && !copy_kernel->is_off) {
        UCT_CUDA_DEVICE_MEMORY_FREE(copy_kernel->words, false);
    }
    if (copy_kernel->off != NULL) {
        (void)UCT_CUDA_CALL(cuEventDestroy, copy_kernel->off);
    }
    if (copy_kernel->wake_up != NULL) {
        (void)UCT_CUDA_CALL(cuStreamDestroy, copy_kernel->wake_up);
    }
    if (copy_kernel->beside != NULL) {
        (void)UCT_CUDA_CALL(cuStreamDestroy, copy_kernel->beside);
    }
    if (copy_kernel->stream != NULL) {
        (void)UCT_CUDA_CALL(cuStreamDestroy, copy_kernel->stream);
    }
}

static ucs_status_t create(uct_cuda_copy_kernel_t *copy_kernel)
{
    static const uint64_t zeros[NUM_WORDS];
    ucs_status_t status;

    status = uct_cuda_context_create_stream(&copy_kernel->stream);
    if (status == UCS_OK) {
        status = uct_cuda_context_create_stream(&copy_kernel->beside);
    }
    if (status == UCS_OK) {
        status = UCT_CUDA_CALL(cuEventCreate, &copy_kernel->off,
                               CU_EVENT_DISABLE_TIMING);
    }
    if (status == UCS_OK) {
        status = UCT_CUDA_CALL_NOLOG(cuMemAlloc, &copy_kernel->words,
                                     sizeof(zeros));
    }
    if (status == UCS_OK) {
        status = UCT_CUDA_CALL(cuMemcpyHtoDAsync, copy_kernel->words, zeros,
                               sizeof(zeros), copy_kernel->beside);
    }
    /* kernels and cancellations come after the zeroing of the words */
    if (status == UCS_OK) {
        status = UCT_CUDA_CALL(cuEventRecord, copy_kernel->off,
                               copy_kernel->beside);
    }
    if (status == UCS_OK) {
        status = UCT_CUDA_CALL(cuStreamWaitEvent, copy_kernel->stream,
                               copy_kernel->off, 0);
    }

    if (status != UCS_OK) {
        release(copy_kernel);
    }
    return status;
}

void uct_cuda_copy_kernel_prepare(void)
{
    uct_cuda_ctx_scope_t current;
    uct_cuda_context_t *context;
    ucx_mp_copy_t functions;
    int i;

    for (i = 0; i < uct_cuda_gpu_count(); ++i) {
        if (uct_cuda_ctx_enter(NULL, i, &current) != UCS_OK) {
            continue;
        }

        if (uct_cuda_context_hold(&context) == UCS_OK) {
            (void)get_kernel(context, true, &functions);
            uct_cuda_context_put(context);
        }
        uct_cuda_ctx_leave(&current);
    }
}

static uct_cuda_copy_kernel_t *
make_copy_kernel(uct_cuda_context_t *context, bool may_load)
{
    uct_cuda_copy_kernel_t *copy_kernel;
    ucx_mp_copy_t functions;

    if (!get_kernel(context, may_load, &functions)) {
        return NULL;
    }

    copy_kernel = calloc(1, sizeof(*copy_kernel));
    if (copy_kernel == NULL) {
        return NULL;
    }

    if (create(copy_kernel) != UCS_OK) {
        free(copy_kernel);
        return NULL;
    }

    copy_kernel->context   = context;
    copy_kernel->functions = functions;
    return copy_kernel;
}

uct_cuda_copy_kernel_t *uct_cuda_copy_kernel_get(uct_cuda_pool_t *pool,
                                                 bool may_load)
{
    uct_cuda_copy_kernel_t *copy_kernel = pool->copy_kernel;

    if (copy_kernel == NULL) {
        return pool->copy_kernel = make_copy_kernel(pool->context, may_load);
    }

    if (copy_kernel->is_off) {
        copy_kernel->is_off = uct_cuda_driver_get()->cuEventQuery(
                                      copy_kernel->off) != CUDA_SUCCESS;
    }

    return copy_kernel->is_off ? NULL : copy_kernel;
}

void uct_cuda_copy_kernel_destroy(uct_cuda_copy_kernel_t *copy_kernel,
                                  bool is_alive)
{
    if (is_alive) {
        release(copy_kernel);
    }
    free(copy_kernel);
}

/* Return the base of uniform copies' addresses: the first address is in the
 * middle of the representable range */
static CUdeviceptr uniform_base(CUdeviceptr first)
{
    return first - ((CUdeviceptr)UCX_MP_COPY_UNIT << 31);
}

static bool is_uniform(CUdeviceptr address, CUdeviceptr first)
{
    const CUdeviceptr offset = address - uniform_base(first);

    return ((offset % UCX_MP_COPY_UNIT) == 0) &&
           (offset / UCX_MP_COPY_UNIT <= UINT32_MAX);
}

void uct_cuda_copy_list_add(uct_cuda_copy_list_t *list, CUdeviceptr dst,
                            CUdeviceptr src, size_t length, bool may_merge)
{
    const unsigned last = list->count - 1;

    if (may_merge && (dst == list->dst[last] + list->length[last]) &&
        (src == list->src[last] + list->length[last])) {
        list->length[last] += length;
        list->is_uniform    = list->is_uniform && (list->count == 1);
        return;
    }

    list->is_uniform = (list->count == 0) ||
                     (list->is_uniform && (length == list->length[0]) &&
                      is_uniform(dst, list->dst[0]) &&
                      is_uniform(src, list->src[0]));
    list->dst[list->count]    = dst;
    list->src[list->count]    = src;
    list->length[list->count] = length;
    ++list->count;
}

static CUresult launch_any(uct_cuda_copy_kernel_t *copy_kernel,
                           const uct_cuda_copy_list_t *list,
                           unsigned blocks)
{
    ucx_mp_kernels_driver_t functions;
    ucx_mp_copy_args_t args;
    unsigned i;

    (void)uct_cuda_driver_kernels(uct_cuda_driver_get(), &functions);
    for (i = 0; i < list->count; ++i) {
        args.dst[i]  = list->dst[i];
        args.src[i]  = list->src[i];
        args.size[i] = (unsigned)list->length[i];
    }

    args.count  = list->count;
    args.serial = copy_kernel->serial;
    args.words  = copy_kernel->words;
    return ucx_mp_copy_launch(&functions, &copy_kernel->functions, blocks,
                              &args, copy_kernel->stream);
}

static CUresult launch_uniform(uct_cuda_copy_kernel_t *copy_kernel,
                               const uct_cuda_copy_list_t *list,
                               unsigned blocks)
{
    ucx_mp_kernels_driver_t functions;
    ucx_mp_copy_alike_args_t args;
    unsigned i;

    (void)uct_cuda_driver_kernels(uct_cuda_driver_get(), &functions);
    args.base_dst = uniform_base(list->dst[0]);
    args.base_src = uniform_base(list->src[0]);
    for (i = 0; i < list->count; ++i) {
        args.dst[i] = (unsigned)((list->dst[i] - args.base_dst) /
                                 UCX_MP_COPY_UNIT);
        args.src[i] = (unsigned)((list->src[i] - args.base_src) /
                                 UCX_MP_COPY_UNIT);
    }

    args.size   = list->length[0];
    args.count  = list->count;
    args.serial = copy_kernel->serial;
    args.words  = copy_kernel->words;
    return ucx_mp_copy_launch_alike(&functions, &copy_kernel->functions, blocks,
                                    &args, copy_kernel->stream);
}

ucs_status_t uct_cuda_copy_kernel_launch(uct_cuda_copy_kernel_t *copy_kernel,
                                         const uct_cuda_copy_list_t *list,
                                         unsigned blocks, CUevent event,
                                         uct_cuda_copy_launch_t *launch)
{
    CUresult result;
    ucs_status_t status;

    ++copy_kernel->serial;
    result = list->is_uniform ? launch_uniform(copy_kernel, list, blocks) :
                              launch_any(copy_kernel, list, blocks);
    status = uct_cuda_driver_check(__FILE__, __LINE__, __func__,
                                   "cuLaunchKernel", result);
    if (status != UCS_OK) {
        return status;
    }

    launch->copy_kernel = copy_kernel;
    launch->serial      = copy_kernel->serial;
    launch->warps       = blocks * UCX_MP_COPY_WARPS;
    launch->is_off      = false;
    launch->start       = uct_cuda_now_ns();

    status = UCT_CUDA_CALL(cuEventRecord, event, copy_kernel->stream);
    if (status != UCS_OK) {
        (void)uct_cuda_driver_get()->cuStreamSynchronize(copy_kernel->stream);
    }
    return status;
}

static ucs_status_t read_words(const uct_cuda_copy_launch_t *launch)
{
    uct_cuda_copy_kernel_t *copy_kernel = launch->copy_kernel;
    ucs_status_t status;

    status = UCT_CUDA_CALL(cuMemcpyDtoHAsync, copy_kernel->read,
                           copy_kernel->words +
                                   UCX_MP_COPY_OFF * sizeof(uint64_t),
                           launch->warps * sizeof(uint64_t),
                           copy_kernel->beside);
    return (status == UCS_OK) ?
                   UCT_CUDA_CALL(cuStreamSynchronize, copy_kernel->beside) :
                   status;
}

ucs_status_t uct_cuda_copy_kernel_cancel(uct_cuda_copy_launch_t *launch,
                                         bool *has_begun_p)
{
    uct_cuda_copy_kernel_t *copy_kernel = launch->copy_kernel;
    const CUdeviceptr word              = copy_kernel->words +
                             (launch->serial % UCX_MP_COPY_OFF) *
                                          sizeof(launch->serial);
    ucs_status_t status;
    unsigned i;

    launch->is_off = true;
    status = UCT_CUDA_CALL(cuMemcpyHtoDAsync, word, &launch->serial,
                           sizeof(launch->serial), copy_kernel->beside);
    if (status == UCS_OK) {
        copy_kernel->is_off = true;
        status = UCT_CUDA_CALL(cuEventRecord, copy_kernel->off,
                               copy_kernel->stream);
    }
    if (status == UCS_OK) {
        status = read_words(launch);
    }
    if (status != UCS_OK) {
        return status;
    }

    *has_begun_p = true;
    memset(launch->begun, 0, sizeof(launch->begun));
    for (i = 0; i < launch->warps; ++i) {
        if (copy_kernel->read[i] >= UCX_MP_COPY_BEGUN(launch->serial)) {
            launch->begun[i / 64] |= UINT64_C(1) << (i % 64);
        } else {
            *has_begun_p = false;
        }
    }
    return UCS_OK;
}

/* A word written by a later launch shows that this launch has ended */
ucs_status_t
uct_cuda_copy_kernel_has_ended(const uct_cuda_copy_launch_t *launch,
                               bool *has_ended_p, bool *has_copied_p)
{
    const uint64_t *words = launch->copy_kernel->read;
    ucs_status_t status;
    unsigned i;

    status = read_words(launch);
    if (status != UCS_OK) {
        return status;
    }

    *has_ended_p = *has_copied_p = true;
    for (i = 0; i < launch->warps; ++i) {
        if ((launch->begun[i / 64] >> (i % 64) & 1) &&
            (words[i] <= UCX_MP_COPY_BEGUN(launch->serial))) {
            *has_ended_p = false;
        }
        if (words[i] != UCX_MP_COPY_COPIED(launch->serial)) {
            *has_copied_p = false;
        }
    }
    return UCS_OK;
}

/* Work behind a callback in its stream waits until it has run, so callbacks
 * have their own stream */
ucs_status_t uct_cuda_copy_kernel_notify(const uct_cuda_copy_launch_t *launch,
                                         CUevent event, uint64_t patience,
                                         CUhostFn func, void *arg)
{
    uct_cuda_copy_kernel_t *copy_kernel = launch->copy_kernel;
    ucs_status_t status                 = UCS_OK;

    if (!uct_cuda_alarm_set(launch->start + patience, func, arg)) {
        return UCS_ERR_BUSY;
    }

    if (!uct_cuda_context_push(copy_kernel->context)) {
        return UCS_ERR_IO_ERROR;
    }

    if (copy_kernel->wake_up == NULL) {
        status = UCT_CUDA_CALL(cuStreamCreate, &copy_kernel->wake_up,
                               CU_STREAM_NON_BLOCKING);
    }
    if (status == UCS_OK) {
        status = UCT_CUDA_CALL(cuStreamWaitEvent, copy_kernel->wake_up, event,
                               0);
    }
    if (status == UCS_OK) {
        status = UCT_CUDA_CALL(cuLaunchHostFunc, copy_kernel->wake_up, func,
                               arg);
    }

    uct_cuda_ctx_pop();
    return status;
}

void uct_cuda_copy_kernel_wait(const uct_cuda_copy_kernel_t *copy_kernel)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();

    if (uct_cuda_context_push(copy_kernel->context)) {
        (void)driver->cuStreamSynchronize(copy_kernel->stream);
        (void)driver->cuStreamSynchronize(copy_kernel->beside);
        uct_cuda_ctx_pop();
    }
}

CUstream uct_cuda_copy_kernel_stream(const uct_cuda_copy_kernel_t *copy_kernel)
{
    return copy_kernel->stream;
}

CUstream
uct_cuda_copy_kernel_second_stream(const uct_cuda_copy_kernel_t *copy_kernel)
{
    return copy_kernel->beside;
}
