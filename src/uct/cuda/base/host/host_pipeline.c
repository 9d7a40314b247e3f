/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads take chunks of the oldest copy in round robin. Each thread has
 * page-locked slots, and a stream in every context used. Its slots form a ring:
 * one is filled while the GPU copies the earlier ones, and chunks of
 * consecutive copies follow without a gap.
 *
 * There is one lock. It is held for moments, and while the streams of a context
 * are created; only the log's lock is taken under it.
 */
#include <uct/cuda/base/host/host_pipeline.h>

#include <uct/cuda/base/context_data.h>
#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/host/host_block.h>
#include <uct/cuda/base/host/host_cpus.h>
#include <uct/cuda/base/host/host_limits.h>
#include <uct/cuda/base/host/host_pieces.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/thread.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif


#define MAX_THREADS UCT_CUDA_HOST_MAX_THREADS
#define MAX_CHUNK   UCT_CUDA_HOST_MAX_CHUNK
#define NUM_SLOTS   4

/* Stream for all data from a GPU; to it each thread has its own */
#define FROM_GPU    MAX_THREADS
#define NUM_STREAMS (MAX_THREADS + 1)

#define BUS_ID_SIZE 32


/* Resources of a context; each context has its own */
typedef struct {
    char     bus_id[BUS_ID_SIZE]; /* of its GPU; or empty */
    CUstream streams[NUM_STREAMS];
    CUevent  events[MAX_THREADS][NUM_SLOTS];
} resources_t;


struct uct_cuda_host_job {
    uct_cuda_host_job_t *next; /* next younger one */
    uct_cuda_context_t  *context;
    resources_t         *resources; /* of context */
    CUdeviceptr         gpu;
    char                *host;
    uct_cuda_host_remote_t remote; /* copy is NULL: memory of this process */
    size_t              length;
    size_t              chunk;       /* bytes */
    size_t              taken;       /* bytes taken by threads */
    unsigned            num_chunks;  /* chunks under way */
    bool                to_gpu;
    unsigned            max_threads; /* threads below this number take part */
    ucs_status_t        status;      /* UCS_INPROGRESS until the end */
    ucs_status_t        error;
    CUhostFn            func;
    void                *arg;
};


/* Chunk under way, in the slot with the same number */
typedef struct {
    uct_cuda_host_job_t *job;
    size_t              offset; /* in the job, bytes */
    size_t              length;
    bool                is_direct; /* by the driver, without a slot */
} host_chunk_t;


/* Slots of a thread in use, oldest first */
typedef struct {
    unsigned     first;
    unsigned     count;
    host_chunk_t chunks[NUM_SLOTS];
} slot_ring_t;


static struct {
    pthread_mutex_t     lock;
    pthread_cond_t      work; /* there is a job */
    pthread_cond_t      over; /* a job has ended */
    uct_cuda_host_job_t *jobs; /* with chunks left to take, oldest first */
    unsigned            num_jobs; /* not ended */
    unsigned            wanted;   /* configured threads */
    unsigned            num_threads;
    bool                has_hook; /* fork hook is installed */
    bool                is_foreign; /* this is a forked child */
    uct_cuda_host_block_t blocks[MAX_THREADS]; /* slots of each thread */
} pipeline = {
    .lock   = PTHREAD_MUTEX_INITIALIZER,
    .work   = PTHREAD_COND_INITIALIZER,
    .over   = PTHREAD_COND_INITIALIZER,
    .wanted = UCT_CUDA_HOST_PIPELINE_AUTO
};


/* ----------------------------------------------------------------- threads */

static char *slot_of(unsigned thread, unsigned slot)
{
    return pipeline.blocks[thread].memory + (slot * MAX_CHUNK);
}

/*
 * Copy without polluting the program's caches: written data is not read first
 * and evicts nothing. From a GPU's slots one thread does 17 instead of 12 GB/s
 * (measured on H200). Slots, which the GPU reads at once, are filled through
 * the caches: 8 threads do 46 instead of 27 to 34 GB/s of 256 MiB (measured
 * there), since host memory has less to move.
 */
static void copy_past_caches(char *dst, const char *src, size_t length)
{
#ifdef __SSE2__
    const size_t head = (16 - ((uintptr_t)dst % 16)) % 16;
    __m128i a, b, c, d;

    if (length >= 64 + head) {
        memcpy(dst, src, head);
        dst    += head;
        src    += head;
        length -= head;
        for (; length >= 64; dst += 64, src += 64, length -= 64) {
            a = _mm_loadu_si128((const __m128i*)src);
            b = _mm_loadu_si128((const __m128i*)(src + 16));
            c = _mm_loadu_si128((const __m128i*)(src + 32));
            d = _mm_loadu_si128((const __m128i*)(src + 48));
            _mm_stream_si128((__m128i*)dst, a);
            _mm_stream_si128((__m128i*)(dst + 16), b);
            _mm_stream_si128((__m128i*)(dst + 32), c);
            _mm_stream_si128((__m128i*)(dst + 48), d);
        }
        _mm_sfence();
    }
#endif
    memcpy(dst, src, length);
}

/* Take the next chunk of the oldest copy for this thread; call with the lock
 * held. False: none */
static bool take_chunk(unsigned thread, host_chunk_t *chunk)
{
    uct_cuda_host_job_t **link = &pipeline.jobs;
    uct_cuda_host_job_t *job;
    size_t left;

    while (((job = *link) != NULL) && (thread >= job->max_threads)) {
        link = &job->next;
    }

    if (job == NULL) {
        return false;
    }

    left          = job->length - job->taken;
    chunk->job    = job;
    chunk->offset = job->taken;
    chunk->length = (left < job->chunk) ? left : job->chunk;
    job->taken   += chunk->length;
    ++job->num_chunks;
    if (job->taken == job->length) {
        *link = job->next;
    }

    return true;
}

/* Fill a slot from host memory, or empty it */
static ucs_status_t copy_slot(const uct_cuda_host_job_t *job, char *slot,
                              const host_chunk_t *chunk)
{
    char *host = job->host + chunk->offset;

    if (job->remote.copy != NULL) {
        return job->remote.copy(job->remote.arg, slot, (uintptr_t)host,
                                chunk->length, job->to_gpu);
    }

    if (job->to_gpu) {
        memcpy(slot, host, chunk->length);
    } else {
        copy_past_caches(host, slot, chunk->length);
    }

    return UCS_OK;
}

/* A copy engine loses 10 us between copies of different streams from a GPU, and
 * 3 to it: from a GPU 8 threads with one stream move 256 MiB at 46 GB/s, with 8
 * streams at 36; to the GPU 8 streams do 46, 2 do 42 (measured on H200). */
static CUstream stream_of(const uct_cuda_host_job_t *job, unsigned thread)
{
    return job->resources->streams[job->to_gpu ? thread : FROM_GPU];
}

/* Let the GPU copy a chunk to or from the slot, with its context current */
static ucs_status_t submit_chunk(unsigned thread, unsigned slot,
                                 host_chunk_t *chunk)
{
    const uct_cuda_host_job_t *job = chunk->job;
    CUstream stream                = stream_of(job, thread);
    CUdeviceptr gpu                = job->gpu + chunk->offset;
    char *host                     = job->host + chunk->offset;
    ucs_status_t status;

    /* The thread itself locks the slots, so that they are on its NUMA node. If
     * the driver cannot lock memory its own method is used. */
    status           = uct_cuda_host_block_lock(&pipeline.blocks[thread],
                                                NUM_SLOTS * MAX_CHUNK);
    chunk->is_direct = (status != UCS_OK) && (job->remote.copy == NULL);
    if (chunk->is_direct) {
        status = uct_cuda_host_copy(gpu, host, chunk->length, job->to_gpu,
                                    stream);
    } else if (pipeline.blocks[thread].memory == NULL) {
        return status;
    } else if (job->to_gpu) {
        status = copy_slot(job, slot_of(thread, slot), chunk);
        if (status == UCS_OK) {
            status = UCT_CUDA_CALL(cuMemcpyHtoDAsync, gpu,
                                   slot_of(thread, slot), chunk->length,
                                   stream);
        }
    } else {
        status = UCT_CUDA_CALL(cuMemcpyDtoHAsync, slot_of(thread, slot), gpu,
                               chunk->length, stream);
    }

    if (status == UCS_OK) {
        status = UCT_CUDA_CALL(cuEventRecord,
                               job->resources->events[thread][slot], stream);
    }

    if (status != UCS_OK) {
        /* no data may move after the caller is notified */
        (void)UCT_CUDA_CALL_NOLOG(cuStreamSynchronize, stream);
    }

    return status;
}

static ucs_status_t begin_chunk(unsigned thread, unsigned slot,
                                host_chunk_t *chunk)
{
    ucs_status_t status;

    /* the program may have reset the GPU in the meantime */
    if (!uct_cuda_context_push(chunk->job->context)) {
        uct_cuda_error("cannot copy %zu bytes: their CUDA context was "
                       "destroyed",
                       chunk->job->length);
        return UCS_ERR_IO_ERROR;
    }

    status = submit_chunk(thread, slot, chunk);
    uct_cuda_ctx_pop();
    return status;
}

/* Finish a chunk whose GPU copy has ended; data from a GPU is copied out of the
 * slot. @return UCS_INPROGRESS: not ended, and wait is not set. */
static ucs_status_t end_chunk(unsigned thread, unsigned slot,
                              const host_chunk_t *chunk, bool wait)
{
    const uct_cuda_host_job_t *job = chunk->job;
    CUevent event = job->resources->events[thread][slot];
    ucs_status_t status;

    if (!uct_cuda_context_push(job->context)) {
        return UCS_ERR_IO_ERROR;
    }

    status = wait ? UCT_CUDA_CALL(cuEventSynchronize, event) :
                    UCT_CUDA_CALL_NOLOG(cuEventQuery, event);
    uct_cuda_ctx_pop();
    if (status == UCS_ERR_NO_RESOURCE) {
        status = UCS_INPROGRESS; /* a capture prevents waiting */
    }
    if ((status == UCS_OK) && !job->to_gpu && !chunk->is_direct) {
        status = copy_slot(job, slot_of(thread, slot), chunk);
    }

    return status;
}

/* Call with the lock held */
static void list_remove(uct_cuda_host_job_t *job)
{
    uct_cuda_host_job_t **link = &pipeline.jobs;

    while ((*link != NULL) && (*link != job)) {
        link = &(*link)->next;
    }

    if (*link != NULL) {
        *link = job->next;
    }
}

/* End a chunk; call with the lock held */
static void leave_chunk(uct_cuda_host_job_t *job, ucs_status_t status)
{
    if ((status != UCS_OK) && (job->error == UCS_OK)) {
        job->error = status;
        job->taken = job->length; /* stop taking chunks */
        list_remove(job);
    }

    --job->num_chunks;
    if ((job->num_chunks > 0) || (job->taken < job->length)) {
        return;
    }

    /* A caller woken up too early waits for the lock. Set the status last: the
     * job may be freed then. */
    if (job->func != NULL) {
        job->func(job->arg);
    }
    __atomic_fetch_sub(&pipeline.num_jobs, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&job->status, job->error, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&pipeline.over);
}

/* Remove a thread's oldest chunk from its ring if it has ended; the lock is
 * held, and released meanwhile */
static void end_oldest(unsigned thread, slot_ring_t *ring, bool wait)
{
    const host_chunk_t *chunk = &ring->chunks[ring->first];
    ucs_status_t status;

    pthread_mutex_unlock(&pipeline.lock);
    status = end_chunk(thread, ring->first, chunk, wait);
    pthread_mutex_lock(&pipeline.lock);
    if (status != UCS_INPROGRESS) {
        leave_chunk(chunk->job, status);
        ring->first = (ring->first + 1) % NUM_SLOTS;
        --ring->count;
    }
}

static void *thread_main(void *arg)
{
    const unsigned thread  = (unsigned)(uintptr_t)arg;
    char near[BUS_ID_SIZE] = "";
    slot_ring_t ring       = {.first = 0, .count = 0};
    ucs_status_t status;
    host_chunk_t *chunk;
    unsigned slot;

    pthread_mutex_lock(&pipeline.lock);
    for (;;) {
        /* a caller may be waiting for ended chunks */
        if (ring.count > 0) {
            end_oldest(thread, &ring, false);
        }

        slot  = (ring.first + ring.count) % NUM_SLOTS;
        chunk = &ring.chunks[slot];
        if ((ring.count < NUM_SLOTS) && take_chunk(thread, chunk)) {
            pthread_mutex_unlock(&pipeline.lock);
            if (strcmp(near, chunk->job->resources->bus_id) != 0) {
                strcpy(near, chunk->job->resources->bus_id);
                uct_cuda_host_cpus_run_near(near);
            }

            status = begin_chunk(thread, slot, chunk);
            pthread_mutex_lock(&pipeline.lock);
            if (status == UCS_OK) {
                ++ring.count;
            } else {
                leave_chunk(chunk->job, status);
            }
        } else if (ring.count > 0) {
            end_oldest(thread, &ring, true);
        } else {
            pthread_cond_wait(&pipeline.work, &pipeline.lock);
        }
    }

    return NULL;
}


/* ------------------------------------------------------------------ set-up */

static void on_fork(void)
{
    pipeline.is_foreign = true;
}

/* Return the number of threads for a copy now. One processor is for the waiting
 * thread; a single thread is no faster than the driver. */
static unsigned max_threads(void)
{
    const unsigned wanted = __atomic_load_n(&pipeline.wanted, __ATOMIC_RELAXED);
    unsigned share;

    if (wanted != UCT_CUDA_HOST_PIPELINE_AUTO) {
        return (wanted < MAX_THREADS) ? wanted : MAX_THREADS;
    }

    share = uct_cuda_host_cpus_share();
    return (share > MAX_THREADS) ? MAX_THREADS :
           (share > 2)           ? share - 1 :
                                   0;
}

/* Start threads up to a number, if possible; call with the lock held */
static void start_threads(unsigned count)
{
    pthread_t thread;

    if (!pipeline.has_hook) {
        if (pthread_atfork(NULL, NULL, on_fork) != 0) {
            return;
        }

        pipeline.has_hook = true;
    }

    while ((pipeline.num_threads < count) &&
           uct_cuda_thread_start(thread_main,
                                 (void*)(uintptr_t)pipeline.num_threads,
                                 &thread)) {
        (void)pthread_detach(thread);
        ++pipeline.num_threads;
        uct_cuda_debug("%u threads copy pageable memory", pipeline.num_threads);
    }
}

static void resources_release(const resources_t *resources)
{
    unsigned i, k;

    for (i = 0; i < MAX_THREADS; ++i) {
        for (k = 0; k < NUM_SLOTS; ++k) {
            if (resources->events[i][k] != NULL) {
                (void)UCT_CUDA_CALL(cuEventDestroy, resources->events[i][k]);
            }
        }
    }

    for (i = 0; i < NUM_STREAMS; ++i) {
        if (resources->streams[i] != NULL) {
            (void)UCT_CUDA_CALL(cuStreamDestroy, resources->streams[i]);
        }
    }
}

static ucs_status_t resources_create(void *arg)
{
    resources_t *resources = arg;
    ucs_status_t status    = UCS_OK;
    CUdevice device;
    unsigned i, k;

    if ((UCT_CUDA_CALL_NOLOG(cuCtxGetDevice, &device) != UCS_OK) ||
        (UCT_CUDA_CALL_NOLOG(cuDeviceGetPCIBusId, resources->bus_id,
                             sizeof(resources->bus_id), device) != UCS_OK)) {
        resources->bus_id[0] = '\0';
    }

    for (i = 0; (i < NUM_STREAMS) && (status == UCS_OK); ++i) {
        status = UCT_CUDA_CALL(cuStreamCreate, &resources->streams[i],
                               CU_STREAM_NON_BLOCKING);
    }

    for (i = 0; (i < MAX_THREADS) && (status == UCS_OK); ++i) {
        for (k = 0; (k < NUM_SLOTS) && (status == UCS_OK); ++k) {
            status = UCT_CUDA_CALL(cuEventCreate, &resources->events[i][k],
                                   CU_EVENT_DISABLE_TIMING);
        }
    }

    if (status != UCS_OK) {
        resources_release(resources);
    }

    return status;
}

static const uct_cuda_context_kind_t resources_kind = {
    .size   = sizeof(resources_t),
    .create = resources_create
};


/* --------------------------------------------------------------- interface */

void uct_cuda_host_pipeline_enable(unsigned num_threads)
{
    if (pipeline.is_foreign) {
        return;
    }

    pthread_mutex_lock(&pipeline.lock);
    __atomic_store_n(&pipeline.wanted, num_threads, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&pipeline.lock);
}

/* several chunks for each thread */
static size_t chunk_size(size_t length, unsigned num_threads)
{
    size_t size = length / (2 * num_threads);

    size = (size + UCT_CUDA_HOST_CHUNK_STEP - 1) / UCT_CUDA_HOST_CHUNK_STEP *
           UCT_CUDA_HOST_CHUNK_STEP;
    return (size < UCT_CUDA_HOST_MIN_CHUNK) ? UCT_CUDA_HOST_MIN_CHUNK :
           (size > MAX_CHUNK)               ? MAX_CHUNK :
                                              size;
}

/* Call with the lock held */
static void job_append(uct_cuda_host_job_t *job)
{
    uct_cuda_host_job_t **link = &pipeline.jobs;

    while (*link != NULL) {
        link = &(*link)->next;
    }

    *link = job;
    __atomic_fetch_add(&pipeline.num_jobs, 1, __ATOMIC_RELAXED);
    pthread_cond_broadcast(&pipeline.work);
}

static ucs_status_t
job_start(CUdeviceptr gpu, void *host, size_t length, bool to_gpu,
          const uct_cuda_host_remote_t *remote, unsigned count,
          uct_cuda_host_job_t **job_p)
{
    uct_cuda_host_job_t *job;
    ucs_status_t status;
    void *resources;

    if (pipeline.is_foreign || (count == 0)) {
        return UCS_ERR_UNSUPPORTED;
    }

    job = calloc(1, sizeof(*job));
    if (job == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    pthread_mutex_lock(&pipeline.lock);
    start_threads(count);
    status = (pipeline.num_threads == 0) ?
                     UCS_ERR_UNSUPPORTED :
                     uct_cuda_context_hold_member(&resources_kind,
                                                  &job->context, &resources);
    if (status == UCS_OK) {
        job->resources   = resources;
        job->gpu         = gpu;
        job->host        = host;
        job->length      = length;
        job->chunk       = chunk_size(length, count);
        job->max_threads = count;
        job->to_gpu      = to_gpu;
        job->status      = UCS_INPROGRESS;
        job->error       = UCS_OK;
        if (remote != NULL) {
            job->remote = *remote;
        }
        job_append(job);
    }
    pthread_mutex_unlock(&pipeline.lock);

    if (status != UCS_OK) {
        free(job);
        return status;
    }

    *job_p = job;
    return UCS_OK;
}

/* Return the threads for a copy without another method */
static unsigned min_threads(void)
{
    const unsigned count = max_threads();

    return (count > 0) ? count : 1;
}

ucs_status_t uct_cuda_host_pipeline_start(CUdeviceptr gpu, void *host,
                                          size_t length, bool to_gpu,
                                          uct_cuda_host_job_t **job_p)
{
    if ((length < UCT_CUDA_HOST_AWAKE_MIN_SIZE) ||
        ((length < UCT_CUDA_HOST_THREADS_MIN_SIZE) &&
         (__atomic_load_n(&pipeline.num_jobs, __ATOMIC_RELAXED) == 0))) {
        return UCS_ERR_UNSUPPORTED;
    }

    return job_start(gpu, host, length, to_gpu, NULL, max_threads(), job_p);
}

ucs_status_t
uct_cuda_host_pipeline_start_remote(CUdeviceptr gpu, uint64_t address,
                                    size_t length, bool to_gpu,
                                    const uct_cuda_host_remote_t *remote,
                                    uct_cuda_host_job_t **job_p)
{
    return job_start(gpu, (void*)(uintptr_t)address, length, to_gpu, remote,
                     min_threads(), job_p);
}

ucs_status_t uct_cuda_host_pipeline_test(const uct_cuda_host_job_t *job)
{
    const ucs_status_t status = __atomic_load_n(&job->status, __ATOMIC_ACQUIRE);

    /* a forked child has no threads, and none of its parent's copies */
    return ((status == UCS_INPROGRESS) && pipeline.is_foreign) ?
                   UCS_ERR_IO_ERROR :
                   status;
}

void uct_cuda_host_pipeline_notify(uct_cuda_host_job_t *job, CUhostFn func,
                                   void *arg)
{
    if (pipeline.is_foreign) {
        func(arg);
        return;
    }

    pthread_mutex_lock(&pipeline.lock);
    if (job->status == UCS_INPROGRESS) {
        job->func = func;
        job->arg  = arg;
    } else {
        func(arg);
    }
    pthread_mutex_unlock(&pipeline.lock);
}

void uct_cuda_host_pipeline_release(uct_cuda_host_job_t *job)
{
    /* in a forked child the lock may be held by a thread that does not exist */
    if (!pipeline.is_foreign) {
        pthread_mutex_lock(&pipeline.lock);
        while (job->status == UCS_INPROGRESS) {
            pthread_cond_wait(&pipeline.over, &pipeline.lock);
        }
        pthread_mutex_unlock(&pipeline.lock);
    }

    if (job->remote.release != NULL) {
        job->remote.release(job->remote.arg);
    }
    uct_cuda_context_put(job->context);
    free(job);
}
