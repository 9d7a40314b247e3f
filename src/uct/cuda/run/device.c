/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams and kernels by context, in a list that only grows. */
#include <uct/cuda/run/device.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/plan/collective_plan.h>

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>


/* Fewest words that are had at a time, a page of them */
#define MIN_WORDS 1024

/* How long the GPU may have something to do before it counts as busy with what
   may last for ever; what is to be done otherwise takes milliseconds, too */
#define IDLE_WAIT_NS (2 * 1000 * 1000)


struct uct_cuda_coll_words {
    uct_cuda_coll_words_t *next;
    unsigned              count;
    uint32_t              *words;
};

struct uct_cuda_coll_device {
    uct_cuda_coll_device_t *next;
    CUcontext              context;
    unsigned long long     id;
    unsigned               max_blocks;
    ucx_mp_kernels_t       *kernels;
    uct_cuda_coll_words_t  *words; /* that nobody has */
    CUstream               streams[UCT_CUDA_COLL_MAX_QUEUES];
};

/* A context that is reset leaves its entry behind: what that names went with
 * it, and no other context gets its number */
static struct {
    pthread_mutex_t        lock; /* order: base/thread.h */
    uct_cuda_coll_device_t *head;
} devices = {.lock = PTHREAD_MUTEX_INITIALIZER};


static ucs_status_t device_create(int cuda_device, CUcontext context,
                                  unsigned long long id,
                                  uct_cuda_coll_device_t **device_p)
{
    const uct_cuda_driver_t *driver        = uct_cuda_driver_get();
    const ucx_mp_kernels_driver_t functions = {
        .ModuleLoadData    = driver->cuModuleLoadData,
        .ModuleGetFunction = driver->cuModuleGetFunction,
        .ModuleUnload      = driver->cuModuleUnload,
        .LaunchKernel      = driver->cuLaunchKernel
    };
    uct_cuda_coll_device_t *device;
    ucs_status_t status;
    int blocks;

    if ((functions.ModuleLoadData == NULL) ||
        (functions.ModuleGetFunction == NULL) ||
        (functions.ModuleUnload == NULL) ||
        (functions.LaunchKernel == NULL)) {
        return UCS_ERR_UNSUPPORTED;
    }

    status = UCT_CUDA_CALL(cuDeviceGetAttribute, &blocks,
                           CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                           cuda_device);
    if (status != UCS_OK) {
        return status;
    }

    device = calloc(1, sizeof(*device));
    if (device == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    device->kernels = ucx_mp_kernels_create(&functions);
    if (device->kernels == NULL) {
        free(device);
        return UCS_ERR_NO_MEMORY;
    }

    device->context    = context;
    device->id         = id;
    device->max_blocks = (blocks > 0) ? (unsigned)blocks : 1;
    device->next       = devices.head;
    devices.head       = device;
    *device_p          = device;
    return UCS_OK;
}

ucs_status_t uct_cuda_coll_device_get(int cuda_device, CUcontext context,
                                      unsigned long long id,
                                      uct_cuda_coll_device_t **device_p)
{
    ucs_status_t status = UCS_OK;
    uct_cuda_coll_device_t *device;

    pthread_mutex_lock(&devices.lock);
    for (device = devices.head; device != NULL; device = device->next) {
        if ((device->context == context) && (device->id == id)) {
            *device_p = device;
            goto out;
        }
    }

    status = device_create(cuda_device, context, id, device_p);
out:
    pthread_mutex_unlock(&devices.lock);
    return status;
}

/* Of the highest priority (what is beyond the range is clamped): the host and
   all other ranks wait for what is in it */
static ucs_status_t stream_create(CUstream *stream_p)
{
    if (uct_cuda_driver_get()->cuStreamCreateWithPriority == NULL) {
        return UCT_CUDA_CALL(cuStreamCreate, stream_p, CU_STREAM_NON_BLOCKING);
    }
    return UCT_CUDA_CALL(cuStreamCreateWithPriority, stream_p,
                         CU_STREAM_NON_BLOCKING, INT_MIN);
}

ucs_status_t uct_cuda_coll_device_stream(uct_cuda_coll_device_t *device,
                                         unsigned queue, CUstream *stream_p)
{
    ucs_status_t status = UCS_OK;

    *stream_p = __atomic_load_n(&device->streams[queue], __ATOMIC_ACQUIRE);
    if (*stream_p != NULL) {
        return UCS_OK;
    }

    pthread_mutex_lock(&devices.lock);
    if (device->streams[queue] == NULL) {
        status = stream_create(stream_p);
        if (status == UCS_OK) {
            __atomic_store_n(&device->streams[queue], *stream_p,
                             __ATOMIC_RELEASE);
        }
    }
    *stream_p = device->streams[queue];
    pthread_mutex_unlock(&devices.lock);
    return status;
}

static uct_cuda_coll_words_t *words_new(unsigned count)
{
    uct_cuda_coll_words_t *words = malloc(sizeof(*words));

    if (words == NULL) {
        return NULL;
    }

    for (words->count = MIN_WORDS; words->count < count; words->count *= 2) {
    }
    if (UCT_CUDA_CALL(cuMemHostAlloc, (void**)&words->words,
                      words->count * sizeof(*words->words),
                      CU_MEMHOSTALLOC_PORTABLE) != UCS_OK) {
        free(words);
        return NULL;
    }
    return words;
}

uct_cuda_coll_words_t *
uct_cuda_coll_device_get_words(uct_cuda_coll_device_t *device, unsigned count,
                               uint32_t **words_p)
{
    uct_cuda_coll_words_t **link, *words;

    *words_p = NULL;
    if (uct_cuda_driver_get()->cuStreamWriteValue32 == NULL) {
        return NULL;
    }

    pthread_mutex_lock(&devices.lock);
    for (link = &device->words; (*link != NULL) && ((*link)->count < count);
         link = &(*link)->next) {
    }
    words = *link;
    if (words != NULL) {
        *link = words->next;
    }
    pthread_mutex_unlock(&devices.lock);

    words = (words == NULL) ? words_new(count) : words;
    if (words != NULL) {
        memset(words->words, 0, words->count * sizeof(*words->words));
        *words_p = words->words;
    }
    return words;
}

void uct_cuda_coll_device_put_words(uct_cuda_coll_device_t *device,
                                    uct_cuda_coll_words_t *words)
{
    pthread_mutex_lock(&devices.lock);
    words->next   = device->words;
    device->words = words;
    pthread_mutex_unlock(&devices.lock);
}

ucs_status_t uct_cuda_coll_device_load(uct_cuda_coll_device_t *device,
                                       ucx_mp_op_t op, ucx_mp_type_t type)
{
    CUresult result;

    if (ucx_mp_kernels_are_loaded(device->kernels, op, type)) {
        return UCS_OK;
    }

    if (!uct_cuda_ctx_is_idle(IDLE_WAIT_NS)) {
        return UCS_ERR_BUSY;
    }

    result = ucx_mp_kernels_load(device->kernels, op, type);
    if (result != CUDA_SUCCESS) {
        uct_cuda_warn("no kernel for collectives: %s",
                      uct_cuda_result_name(result));
    }
    return uct_cuda_status(result);
}

ucs_status_t
uct_cuda_coll_device_reduce(uct_cuda_coll_device_t *device, ucx_mp_op_t op,
                            ucx_mp_type_t type,
                            const ucx_mp_reduce_args_t *args, CUstream stream)
{
    return uct_cuda_driver_check(
            __FILE__, __LINE__, __func__, "cuLaunchKernel",
            ucx_mp_kernels_reduce(device->kernels, op, type, args,
                                  device->max_blocks, stream));
}
