/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Run kernels.
 *
 * A GPU runs a grid's blocks, and accesses memory, during the whole time of the
 * kernel. Here the first half of the blocks runs at the kernel's beginning and
 * the other half at its end. So a program gets wrong bytes if it reads the
 * results, or changes the input, too early. The bytes moved by the first half
 * determine the kernel's time: they occupy links as copies do.
 */
#include "cuemu_gate.h"
#include "cuemu_kernel.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Rate of a kernel's accesses over NVLink, relative to a copy engine's: 340 of
 * 397 GB/s in each direction when two GPUs read from and write to each other at
 * once (the one-kernel all-reduce of 256 MiB to 1 GiB, measured on 2 x H200).
 */
#define CUEMU_KERNEL_LINK_RATE 0.86

/* Added to the time of a kernel for each peer whose memory it uses: one round
   trip, assumed */
#define CUEMU_KERNEL_PEER_TIME (1 * CUEMU_PS_PER_US)

/* Instructions of a thread per second: 1.4 GHz (data sheets of V100 to H200:
   1.38 to 1.98 GHz) */
#define CUEMU_KERNEL_RATE 1.4e9

/* Threads that a multiprocessor runs at once: four schedulers, 32 each */
#define CUEMU_SM_LANES 128

/* Default of cuemu_kernel_limit(), more than any test runs */
#define CUEMU_KERNEL_LIMIT 20000000000ull

/* Instructions, times threads, after which a count without stores ends: the
   kernel may be waiting for its own store, and its time is known well enough */
#define CUEMU_KERNEL_DRY_LIMIT 100000000ull

/* Most unfinished launches of a process: as many as the driver queues */
#define CUEMU_MAX_LAUNCHES 1024

#define CUEMU_MAX_DELAY (1000000 * CUEMU_PS_PER_SEC)

/* With CUEMU_TIME_ONLY: number of blocks run at each end of a grid; their bytes
   and instructions are scaled to the whole grid */
#define CUEMU_KERNEL_SAMPLE 32

/* Address of a cooperative kernel's barrier: no process and no GPU uses it */
#define CUEMU_BARRIER_ADDRESS 0x0400000000000000ull

/* Threads resident on a multiprocessor of V100, A100 and H100 (programming
   guide, table of technical specifications) */
#define CUEMU_SM_THREADS 2048

struct cuemu_job {
    cuemu_job_t        *next;    /* next job that waits for the GPU */
    cuemu_context_t    *ctx;
    cuemu_module_t     *module;
    cuemu_ptx_kernel_t *kernel;
    cuemu_ptx_launch_t  launch;
    cuemu_ptx_count_t   count;
    unsigned            refs;    /* references; graph nodes launch copies of the
                                    job */
    size_t              size;    /* size of this struct with `params`, bytes */
    cuemu_op_id_t       end;     /* operation lasting until the kernel ends */
    uint64_t            blocks;
    uint64_t            threads; /* threads it occupies on its GPU */
    int                 has_begun;
    uint64_t            barrier[8]; /* of a cooperative kernel's blocks */
    char                params[];
};

/* Threads occupied on each GPU by the kernels of this process, and the jobs
   that wait for free ones. Kernels of other processes do not count: a GPU runs
   processes alternately, in time slices. Protected by its lock. */
static struct {
    pthread_mutex_t lock;
    uint64_t        threads[CUEMU_MAX_GPUS];
    cuemu_job_t    *first[CUEMU_MAX_GPUS], **last[CUEMU_MAX_GPUS];
} cuemu_occupancy = {.lock = PTHREAD_MUTEX_INITIALIZER};

static unsigned cuemu_num_jobs;


/* Mark the job's context as failed: each later call returns `result`, as with
   the real driver. */
static void cuemu_job_fail_with(cuemu_job_t *job, CUresult result,
                                const char *error)
{
    fprintf(stderr, "cuemu: GPU %d: %s\n", job->ctx->gpu, error);
    cuemu_context_fail(job->ctx, result);
}

static void cuemu_job_fail(cuemu_job_t *job, cuemu_ptx_status_t status,
                           const char *error)
{
    CUresult result = (status == CUEMU_PTX_BAD_ADDRESS) ?
                      CUDA_ERROR_ILLEGAL_ADDRESS :
                      (status == CUEMU_PTX_MISALIGNED) ?
                      CUDA_ERROR_MISALIGNED_ADDRESS :
                      (status == CUEMU_PTX_NO_MEMORY) ?
                      CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES :
                      (status == CUEMU_PTX_ASSERT) ? CUDA_ERROR_ASSERT :
                      ((status == CUEMU_PTX_TRAP) ||
                       (status == CUEMU_PTX_NOT_KNOWN)) ?
                      CUDA_ERROR_LAUNCH_FAILED : CUDA_ERROR_LAUNCH_TIMEOUT;

    cuemu_job_fail_with(job, result, error);
}

/* ------------------------------------------------------------- execution */

static void cuemu_job_map(void *arg, uint64_t address,
                          cuemu_ptx_range_t *range)
{
    cuemu_job_t *job = arg;

    if (address - CUEMU_BARRIER_ADDRESS < sizeof(job->barrier)) {
        range->begin    = CUEMU_BARRIER_ADDRESS;
        range->end      = CUEMU_BARRIER_ADDRESS + sizeof(job->barrier);
        range->memory   = (char*)job->barrier;
        range->writable = 1;
        range->place    = job->ctx->gpu;
        return;
    }
    cuemu_mem_page(job->ctx, address, CUEMU_PTX_PAGE, range);
}

static uint64_t cuemu_job_clock(void *arg)
{
    return (uint64_t)(cuemu_now() / CUEMU_PS_PER_NS);
}

/* Return the number of instructions, times threads, after which a kernel counts
   as endless. */
static uint64_t cuemu_kernel_limit(void)
{
    const char *env = getenv("CUEMU_KERNEL_LIMIT");
    double limit    = (env == NULL) ? 0 : cuemu_strtod(env, NULL);

    return (limit >= 1) ? (uint64_t)limit : CUEMU_KERNEL_LIMIT;
}

static void cuemu_job_run(cuemu_job_t *job, uint64_t first, uint64_t last,
                          int dry)
{
    cuemu_ptx_launch_t launch = job->launch;
    char error[CUEMU_PTX_ERROR_SIZE];
    cuemu_ptx_status_t status;

    if ((first == last) || (cuemu_context_fault(job->ctx) != CUDA_SUCCESS)) {
        return;
    }

    launch.first = first;
    launch.last  = last;
    launch.dry   = dry;
    if (dry && (launch.max_instructions > CUEMU_KERNEL_DRY_LIMIT)) {
        launch.max_instructions = CUEMU_KERNEL_DRY_LIMIT;
    }
    status = cuemu_ptx_run(job->kernel, &launch, &job->count, error);
    if ((status != CUEMU_PTX_OK) && !dry) {
        cuemu_job_fail(job, status, error);
    }
}

/* Return the number of blocks that run at the kernel's beginning: half of them,
   all if they wait for each other, or with CUEMU_TIME_ONLY a sample. The same
   number of last blocks, or one more, runs at its end. */
static uint64_t cuemu_job_half(const cuemu_job_t *job)
{
    uint64_t half = job->blocks / 2;

    if (job->launch.together) {
        return job->blocks;
    }
    return ((cuemu_session.shared->time_only > 0) &&
            (half > CUEMU_KERNEL_SAMPLE)) ? CUEMU_KERNEL_SAMPLE : half;
}

/* ------------------------------------------------------------------- time */

typedef struct {
    cuemu_op_id_t ids[2 * CUEMU_NUM_PLACES + 2];
    unsigned      count;
} cuemu_flows_t;

/* Add an operation of the kernel to the simulation and to `flows`; to neither
   if the simulation is full. Call with the session's lock. */
static void cuemu_flow_add(cuemu_flows_t *flows, cuemu_op_desc_t *desc)
{
    cuemu_payload_t payload = {.kind = CUEMU_PAYLOAD_NONE, .move = -1};

    desc->owner = CUEMU_OWNER_COPY(cuemu_session.slot);
    memcpy(&desc->payload, &payload, sizeof(payload));
    if (cuemu_sim_op_add(cuemu_session.sim, cuemu_now(), desc, NULL, 0,
                         &flows->ids[flows->count]) == CUEMU_OK) {
        ++flows->count;
    }
}

static void cuemu_flow_copy(cuemu_flows_t *flows, int src, int dst,
                            double bytes)
{
    cuemu_op_desc_t desc = {
        .kind = CUEMU_OP_COPY, .flags = CUEMU_OP_STREAMED, .src = src,
        .dst = dst, .bytes = (uint64_t)bytes
    };

    if (desc.bytes > 0) {
        cuemu_flow_add(flows, &desc);
    }
}

/* Return the number of threads of a block. */
static uint64_t cuemu_job_block_threads(const cuemu_job_t *job)
{
    return (uint64_t)job->launch.block[0] * job->launch.block[1] *
           job->launch.block[2];
}

/* Add the operations whose end is the kernel's end: its accesses to each place,
   and its instructions. `scale`: number of all blocks divided by those run so
   far. */
static void cuemu_job_flows(const cuemu_job_t *job, double scale,
                            cuemu_flows_t *flows)
{
    const cuemu_node_t *node = cuemu_session.node;
    int gpu                  = job->ctx->gpu, place;
    int sm_count             = node->gpus[gpu].sm_count;
    double busy = (double)((job->blocks < (uint64_t)sm_count) ?
                           (int)job->blocks : sm_count);
    double lanes = (double)cuemu_job_block_threads(job) *
                   ceil((double)job->blocks / sm_count);
    double seconds = (double)job->count.instructions * scale /
                     (busy * CUEMU_KERNEL_RATE * fmin(lanes, CUEMU_SM_LANES));
    cuemu_op_desc_t desc = {.kind = CUEMU_OP_DELAY};
    double read, written, rate;

    desc.duration = (cuemu_time_t)(seconds * (double)CUEMU_PS_PER_SEC) +
                    job->count.slept * CUEMU_PS_PER_NS;
    if (desc.duration < node->cost.kernel) {
        desc.duration = node->cost.kernel;
    }

    for (place = 0; place < CUEMU_NUM_PLACES; ++place) {
        read    = (double)job->count.read[place] * scale;
        written = (double)job->count.written[place] * scale;
        if (read + written == 0) {
            continue;
        }

        if (place == gpu) {
            /* a copy inside a GPU reads as many bytes as it writes */
            cuemu_flow_copy(flows, gpu, gpu, (read + written) / 2);
            continue;
        }

        rate = (place < CUEMU_MAX_GPUS) ? CUEMU_KERNEL_LINK_RATE : 1;
        cuemu_flow_copy(flows, place, gpu, read / rate);
        cuemu_flow_copy(flows, gpu, place, written / rate);
        if (place < CUEMU_MAX_GPUS) {
            desc.duration += CUEMU_KERNEL_PEER_TIME;
        }
    }
    cuemu_flow_add(flows, &desc);
}

/*
 * Reserve threads of its GPU for a kernel. Return 0 if too few are free for one
 * block. A kernel occupies all free threads that it needs: its other blocks
 * follow when the first ones end. Kernels of a GPU begin in the order of their
 * launch, so a waiting kernel delays the later ones. Copies never wait for
 * kernels' threads. Call with cuemu_occupancy's lock.
 */
static int cuemu_job_reserve_threads(cuemu_job_t *job)
{
    int gpu        = job->ctx->gpu;
    uint64_t all   = (uint64_t)cuemu_session.node->gpus[gpu].sm_count *
                     CUEMU_SM_THREADS;
    uint64_t wants = cuemu_job_block_threads(job) * job->blocks;
    uint64_t left  = all - cuemu_occupancy.threads[gpu];

    if (left < cuemu_job_block_threads(job)) {
        return 0;
    }

    job->threads                  = (wants < left) ? wants : left;
    cuemu_occupancy.threads[gpu] += job->threads;
    return 1;
}

/* Return non-zero if the kernel may begin. Otherwise append it to the list of
   waiting jobs. */
static int cuemu_job_admit(cuemu_job_t *job)
{
    int gpu = job->ctx->gpu, has;

    pthread_mutex_lock(&cuemu_occupancy.lock);
    has = (cuemu_occupancy.first[gpu] == NULL) &&
          cuemu_job_reserve_threads(job);
    if (!has) {
        if (cuemu_occupancy.first[gpu] == NULL) {
            cuemu_occupancy.last[gpu] = &cuemu_occupancy.first[gpu];
        }
        job->next             = NULL;
        *cuemu_occupancy.last[gpu] = job;
        cuemu_occupancy.last[gpu]  = &job->next;
    }
    pthread_mutex_unlock(&cuemu_occupancy.lock);
    return has;
}

static void cuemu_job_begin(cuemu_job_t *job);
static void cuemu_kernel_serve(uint64_t arg);

/* Free the job's threads and begin the jobs that wait for them. */
static void cuemu_job_release_threads(const cuemu_job_t *job)
{
    int gpu = job->ctx->gpu;
    cuemu_job_t *next;

    pthread_mutex_lock(&cuemu_occupancy.lock);
    cuemu_occupancy.threads[gpu] -= job->threads;
    while (((next = cuemu_occupancy.first[gpu]) != NULL) &&
           cuemu_job_reserve_threads(next)) {
        cuemu_occupancy.first[gpu] = next->next;
        pthread_mutex_unlock(&cuemu_occupancy.lock);
        cuemu_job_begin(next);
        pthread_mutex_lock(&cuemu_occupancy.lock);
    }
    pthread_mutex_unlock(&cuemu_occupancy.lock);
}

static void cuemu_job_begin(cuemu_job_t *job)
{
    int only_one        = (job->blocks == 1) && !job->launch.together;
    uint64_t half       = only_one ? 1 : cuemu_job_half(job);
    cuemu_flows_t flows = {.count = 0};
    cuemu_payload_t payload = {
        .kind = CUEMU_PAYLOAD_KERNEL, .move = -1,
        .func = (uint64_t)(uintptr_t)cuemu_kernel_serve,
        .arg = (uint64_t)(uintptr_t)job
    };
    cuemu_op_desc_t mark = {
        .kind = CUEMU_OP_MARK,
        .flags = CUEMU_OP_NEEDS_SERVICE | CUEMU_OP_OWNER_ONLY,
        .owner = CUEMU_OWNER_COPY(cuemu_session.slot)
    };
    CUresult fault      = cuemu_gate_fault("kernel");
    cuemu_status_t status;

    if (fault != CUDA_SUCCESS) {
        cuemu_job_fail_with(job, fault, "a kernel fails, as CUEMU_FAULT says");
    }

    cuemu_job_run(job, 0, half, only_one);
    job->has_begun = 1;
    memcpy(&mark.payload, &payload, sizeof(payload));

    cuemu_session_lock();
    cuemu_job_flows(job, (double)job->blocks / (double)half, &flows);
    status = cuemu_sim_op_add(cuemu_session.sim, cuemu_now(), &mark, flows.ids,
                              flows.count, NULL);
    cuemu_session_unlock();

    if (status != CUEMU_OK) {
        /* the operations in flight cannot end before this one is served */
        fprintf(stderr, "cuemu: more operations are in progress than the "
                        "emulated node supports\n");
        abort();
    }
}

void cuemu_job_hold(cuemu_job_t *job)
{
    __atomic_add_fetch(&job->refs, 1, __ATOMIC_RELAXED);
}

void cuemu_job_drop(cuemu_job_t *job)
{
    if (__atomic_sub_fetch(&job->refs, 1, __ATOMIC_ACQ_REL) == 0) {
        cuemu_module_release(job->module);
        free(job);
    }
}

static void cuemu_job_end(cuemu_job_t *job)
{
    uint64_t half  = cuemu_job_half(job);
    uint64_t first = (half < job->blocks / 2) ? (job->blocks - half) : half;

    cuemu_job_run(job, first, job->blocks, 0);

    cuemu_session_lock();
    cuemu_sim_op_end(cuemu_session.sim, job->end);
    cuemu_session_unlock();

    cuemu_job_release_threads(job);
    cuemu_job_drop(job);
    __atomic_sub_fetch(&cuemu_num_jobs, 1, __ATOMIC_RELAXED);
}

/* Serve a kernel's operation; `arg` is from its payload. The first call begins
   the kernel, or lets it wait for free threads of its GPU; the second call ends
   it. */
static void cuemu_kernel_serve(uint64_t arg)
{
    cuemu_job_t *job = (cuemu_job_t*)(uintptr_t)arg;

    /* the launching call has not set it yet */
    while (__atomic_load_n(&job->end, __ATOMIC_ACQUIRE) == 0) {
        cuemu_clock_source->sleep(20000);
    }

    if (job->has_begun) {
        cuemu_job_end(job);
    } else if (cuemu_job_admit(job)) {
        cuemu_job_begin(job);
    }
}

/* ----------------------------------------------------------------- launch */

/* Copy the parameters of a launch to `buffer`, from an array of pointers or
   packed (CU_LAUNCH_PARAM_*). */
static CUresult cuemu_job_params(const cuemu_function_t *function,
                                 void **params, void **extra, char *buffer)
{
    const void *packed = NULL;
    uint32_t offset, size;
    size_t given = 0;
    unsigned i;

    if (params != NULL) {
        for (i = 0; i < function->info.num_params; ++i) {
            cuemu_ptx_kernel_param(function->kernel, i, &offset, &size);
            if (params[i] == NULL) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            memcpy(buffer + offset, params[i], size);
        }
        return CUDA_SUCCESS;
    }

    for (i = 0; (extra != NULL) && (extra[i] != CU_LAUNCH_PARAM_END); i += 2) {
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
            packed = extra[i + 1];
        } else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
            given = *(const size_t*)extra[i + 1];
        } else {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }

    if (function->info.params_size == 0) {
        return CUDA_SUCCESS;
    }
    if ((packed == NULL) || (given < function->info.params_size)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(buffer, packed, function->info.params_size);
    return CUDA_SUCCESS;
}

int cuemu_job_is_cooperative(const CUlaunchConfig *config)
{
    unsigned i;

    for (i = 0; i < config->numAttrs; ++i) {
        if ((config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) &&
            (config->attrs[i].value.cooperative != 0)) {
            return 1;
        }
    }
    return 0;
}

CUresult cuemu_job_new(const cuemu_function_t *function,
                       const CUlaunchConfig *config, void **params,
                       void **extra, cuemu_job_t **job_p)
{
    size_t size      = sizeof(cuemu_job_t) + function->info.params_size + 8;
    cuemu_job_t *job = calloc(1, size);
    CUresult result;

    if (job == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    __atomic_add_fetch(&function->module->refs, 1, __ATOMIC_RELAXED);
    job->refs = 1;
    job->size = size;

    job->ctx                     = function->module->ctx;
    job->module                  = function->module;
    job->kernel                  = function->kernel;
    job->launch.grid[0]          = config->gridDimX;
    job->launch.grid[1]          = config->gridDimY;
    job->launch.grid[2]          = config->gridDimZ;
    job->launch.block[0]         = config->blockDimX;
    job->launch.block[1]         = config->blockDimY;
    job->launch.block[2]         = config->blockDimZ;
    job->launch.dynamic_shared   = config->sharedMemBytes;
    job->launch.params           = job->params;
    job->launch.max_instructions = cuemu_kernel_limit();
    job->launch.map              = cuemu_job_map;
    job->launch.clock            = cuemu_job_clock;
    job->launch.arg              = job;
    job->launch.together         = cuemu_job_is_cooperative(config);
    job->launch.workspace        = job->launch.together ?
                                   CUEMU_BARRIER_ADDRESS : 0;
    job->blocks                  = (uint64_t)config->gridDimX *
                                   config->gridDimY * config->gridDimZ;

    result = cuemu_job_params(function, params, extra, job->params);
    if (result != CUDA_SUCCESS) {
        cuemu_job_drop(job);
        return result;
    }

    *job_p = job;
    return CUDA_SUCCESS;
}

void cuemu_job_reserve(unsigned count)
{
    while (__atomic_load_n(&cuemu_num_jobs, __ATOMIC_RELAXED) + count >
           CUEMU_MAX_LAUNCHES) {
        cuemu_work_pause();
    }
}

/* Describe the kernel's first operation: serving it begins the kernel. Counts
   the launch as unfinished. Call with cuemu_lock(), after
   cuemu_job_reserve(). */
static void cuemu_job_begin_work(cuemu_job_t *job, cuemu_work_t *work)
{
    __atomic_add_fetch(&cuemu_num_jobs, 1, __ATOMIC_RELAXED);
    cuemu_work_set_call(work, CUEMU_PAYLOAD_KERNEL, (void*)cuemu_kernel_serve,
                        job);
}

/* Describe the kernel's second operation, lasting until the kernel ends. */
static void cuemu_job_end_work(cuemu_work_t *work)
{
    memset(work, 0, sizeof(*work));
    work->desc.kind     = CUEMU_OP_DELAY;
    work->desc.duration = CUEMU_MAX_DELAY;
}

cuemu_op_id_t cuemu_job_launch(const cuemu_job_t *job,
                               const cuemu_op_id_t *deps, unsigned num_deps,
                               cuemu_time_t at)
{
    cuemu_job_t *copy = malloc(job->size);
    cuemu_op_id_t begin, end;
    cuemu_work_t work;

    if (copy == NULL) {
        return 0;
    }

    memcpy(copy, job, job->size);
    copy->refs          = 1;
    copy->launch.params = copy->params;
    copy->launch.arg    = copy;
    __atomic_add_fetch(&copy->module->refs, 1, __ATOMIC_RELAXED);
    cuemu_job_begin_work(copy, &work);
    begin = cuemu_work_add(&work, deps, num_deps, at);
    cuemu_job_end_work(&work);
    end = cuemu_work_add(&work, &begin, 1, at);
    __atomic_store_n(&copy->end, end, __ATOMIC_RELEASE);
    return end;
}

void cuemu_job_submit(cuemu_job_t *job, cuemu_stream_t *stream, cuemu_time_t at)
{
    cuemu_op_id_t begin, end;
    cuemu_work_t work;

    cuemu_job_reserve(1);
    cuemu_lock();
    cuemu_job_begin_work(job, &work);
    begin = cuemu_work_submit(stream, &work, NULL, 0,
                              at + cuemu_session.node->cost.kernel_start);
    cuemu_job_end_work(&work);
    end = cuemu_work_submit(stream, &work, &begin, 1, at);
    __atomic_store_n(&job->end, end, __ATOMIC_RELEASE);
    cuemu_unlock();

    cuemu_work_spend_until(at);
}
