/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams and kernels of a context. */
#include <uct/cuda/run/device.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/plan/collective_plan.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>


/* Smallest allocation of words, one page */
#define MIN_WORDS 1024


struct uct_cuda_coll_words {
    uct_cuda_run_coll_words_t *next;
    unsigned                  count;
    uint32_t                  *words;
};

struct uct_cuda_coll_device {
    unsigned                   max_blocks;
    ucx_mp_kernels_t           *kernels;
    uct_cuda_run_coll_words_t  *words; /* free ones */
    uint64_t                   busy;   /* see uct_cuda_ctx_wait_idle() */
    CUstream                   streams[UCT_CUDA_PLAN_COLL_MAX_QUEUES];
};

/* Lock of all devices' streams and words; order: base/thread.h */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;


static ucs_status_t device_create(void *arg)
{
    uct_cuda_run_coll_device_t *device = arg;
    ucx_mp_kernels_driver_t functions;
    ucs_status_t status;
    CUdevice number;
    int blocks;

    if (!uct_cuda_driver_kernels(uct_cuda_driver_get(), &functions)) {
        return UCS_ERR_UNSUPPORTED;
    }

    status = UCT_CUDA_CALL(cuCtxGetDevice, &number);
    if (status == UCS_OK) {
        status = UCT_CUDA_CALL(cuDeviceGetAttribute, &blocks,
                               CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                               number);
    }
    if (status != UCS_OK) {
        return status;
    }

    device->max_blocks = (blocks > 0) ? (unsigned)blocks : 1;
    device->kernels    = ucx_mp_kernels_create(&functions);
    return (device->kernels == NULL) ? UCS_ERR_NO_MEMORY : UCS_OK;
}

/* Free the kernels and the records of free words; the words' memory went with
 * the context */
static void device_destroy(void *arg)
{
    uct_cuda_run_coll_device_t *device = arg;
    uct_cuda_run_coll_words_t *words;

    while ((words = device->words) != NULL) {
        device->words = words->next;
        free(words);
    }
    ucx_mp_kernels_destroy(device->kernels);
}

ucs_status_t uct_cuda_run_coll_device_get(uct_cuda_context_t *context,
                                          uct_cuda_run_coll_device_t **device_p)
{
    static const uct_cuda_context_kind_t kind = {
        .size    = sizeof(uct_cuda_run_coll_device_t),
        .create  = device_create,
        .destroy = device_destroy
    };
    ucs_status_t status;
    void *device;

    status = uct_cuda_context_member(context, &kind, &device);
    if (status == UCS_OK) {
        *device_p = device;
    }

    return status;
}

ucs_status_t uct_cuda_run_coll_device_stream(uct_cuda_run_coll_device_t *device,
                                             unsigned queue, CUstream *stream_p)
{
    ucs_status_t status = UCS_OK;

    *stream_p = __atomic_load_n(&device->streams[queue], __ATOMIC_ACQUIRE);
    if (*stream_p != NULL) {
        return UCS_OK;
    }

    pthread_mutex_lock(&lock);
    if (device->streams[queue] == NULL) {
        status = uct_cuda_context_create_stream(stream_p);
        if (status == UCS_OK) {
            __atomic_store_n(&device->streams[queue], *stream_p,
                             __ATOMIC_RELEASE);
        }
    }
    *stream_p = device->streams[queue];
    pthread_mutex_unlock(&lock);
    return status;
}

static uct_cuda_run_coll_words_t *words_new(unsigned count)
{
    uct_cuda_run_coll_words_t *words = malloc(sizeof(*words));

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

uct_cuda_run_coll_words_t *
uct_cuda_run_coll_device_get_words(uct_cuda_run_coll_device_t *device,
                                   unsigned count, uint32_t **words_p)
{
    uct_cuda_run_coll_words_t **link, *words;

    *words_p = NULL;
    if (uct_cuda_driver_get()->cuStreamWriteValue32 == NULL) {
        return NULL;
    }

    pthread_mutex_lock(&lock);
    for (link = &device->words; (*link != NULL) && ((*link)->count < count);
         link = &(*link)->next) {
    }
    words = *link;
    if (words != NULL) {
        *link = words->next;
    }
    pthread_mutex_unlock(&lock);

    words = (words == NULL) ? words_new(count) : words;
    if (words != NULL) {
        memset(words->words, 0, words->count * sizeof(*words->words));
        *words_p = words->words;
    }
    return words;
}

void uct_cuda_run_coll_device_put_words(uct_cuda_run_coll_device_t *device,
                                        uct_cuda_run_coll_words_t *words)
{
    pthread_mutex_lock(&lock);
    words->next   = device->words;
    device->words = words;
    pthread_mutex_unlock(&lock);
}

ucs_status_t uct_cuda_run_coll_device_load(uct_cuda_run_coll_device_t *device,
                                           ucx_mp_op_t op, ucx_mp_type_t type)
{
    CUresult result;

    if (ucx_mp_kernels_are_loaded(device->kernels, op, type)) {
        return UCS_OK;
    }

    if (!uct_cuda_ctx_wait_idle(&device->busy)) {
        return UCS_ERR_BUSY;
    }

    result = ucx_mp_kernels_load(device->kernels, op, type);
    if (result != CUDA_SUCCESS) {
        uct_cuda_warn("cannot load a kernel for collectives: %s; the MPI "
                      "carries them out",
                      uct_cuda_result_name(result));
    }
    return uct_cuda_status(result);
}

ucs_status_t uct_cuda_run_coll_device_reduce(uct_cuda_run_coll_device_t *device,
                                             ucx_mp_op_t op, ucx_mp_type_t type,
                                             const ucx_mp_reduce_args_t *args,
                                             CUstream stream)
{
    return uct_cuda_driver_check(
            __FILE__, __LINE__, __func__, "cuLaunchKernel",
            ucx_mp_kernels_reduce(device->kernels, op, type, args,
                                  device->max_blocks, stream));
}
