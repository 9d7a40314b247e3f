/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Life of a job: it is started, when idle, by a holder of the engine's lock,
 * ends in its thread, and its results are taken by a later holder of that lock.
 * The job's state hands the results over; no other lock is shared with the
 * thread.
 *
 * Threads are joined when their engine is destroyed. If the program ends or
 * unloads the module earlier, an exit handler joins them. It runs before the
 * driver's handlers, registered earlier, and before the code is unloaded.
 */
#include <uct/cuda/run/background.h>

#include <uct/cuda/base/clock.h>
#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/host/host_cpus.h>
#include <uct/cuda/base/log.h>

#include <pthread.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <unistd.h>


#define NS_PER_MS 1e6

/* Mask of GPUs and the host */
#define ALL_RELAYS ((1u << UCT_CUDA_NUM_ENDS) - 1)


/* Jobs of an engine: one for the node, one for each staging memory and its
 * context */
enum {
    JOB_OF_NODE,
    JOB_OF_STAGING,
    NUM_JOBS = JOB_OF_STAGING + UCT_CUDA_RUN_NUM_STAGING
};


typedef enum {
    JOB_IDLE,
    JOB_RUNNING, /* Owned by the thread */
    JOB_DONE,    /* Results are ready */
    JOB_TAKEN    /* Results were taken; not started again */
} job_state_t;

typedef struct job job_t;

struct job {
    void                   (*make)(job_t *job);
    void                   (*probe)(void *arg); /* Of the node */
    void                   *arg;
    job_state_t            state;
    bool                   has_thread; /* Under the lock of all */
    pthread_t              thread;
    int                    device;     /* Device of the context */
    bool                   is_copy_only;
    uct_cuda_end_t         end;        /* Of staging memory and its context */
    int                    numa;       /* Of host memory */
    size_t                 slot_size;  /* 0: no staging memory */
    CUcontext              ctx;
    unsigned long long     ctx_id;
    ucs_status_t           status;
    uct_cuda_run_staging_t staging;    /* base is 0: none */
};

struct uct_cuda_run_background {
    LIST_ENTRY(uct_cuda_run_background) link;
    uct_cuda_run_rsc_t                 *rsc;
    job_t                              jobs[NUM_JOBS];
};


/* Jobs of all engines of the process. Their threads never take the lock. */
static struct {
    pthread_mutex_t                     lock; /* order: base/thread.h */
    LIST_HEAD(, uct_cuda_run_background) list;
    pid_t                               pid; /* Owner of the threads, or 0 */
    bool                                is_over; /* The exit handler has run */
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};


/* Return true in a forked child: it has no threads, and the lock's state is
 * unknown */
static bool is_foreign(void)
{
    pid_t pid = __atomic_load_n(&all.pid, __ATOMIC_RELAXED);

    return (pid != 0) && (pid != getpid());
}

static job_state_t job_state(const job_t *job)
{
    return __atomic_load_n(&job->state, __ATOMIC_ACQUIRE);
}

static void job_set_state(job_t *job, job_state_t state)
{
    __atomic_store_n(&job->state, state, __ATOMIC_RELEASE);
}


/* -------------------------------------------------------- work in threads */

static void make_node(job_t *job)
{
    job->probe(job->arg);
}

/* Allocate a job's staging memory, if it has any. Missing memory is no failure:
 * preparing a plan will detect it and do without it. */
static void make_staging(job_t *job)
{
    if ((job->slot_size == 0) ||
        !uct_cuda_ctx_push_alive(job->ctx, job->ctx_id)) {
        return;
    }

    (void)uct_cuda_run_staging_alloc(&job->staging, job->end, job->numa,
                                     job->device, job->slot_size);
    uct_cuda_ctx_pop();
}

static void make_memory(job_t *job)
{
    const uint64_t begin = uct_cuda_now_ns();
    const bool is_gpu    = uct_cuda_end_is_gpu(job->end);

    job->status = uct_cuda_ctx_retain(job->device, job->is_copy_only,
                                      &job->ctx);
    if (job->status == UCS_OK) {
        job->ctx_id = uct_cuda_ctx_id(job->ctx);
        make_staging(job);
    } else if (job->status == UCS_ERR_NO_MEMORY) {
        /* after NO_MEMORY the engine tries again, and a message waits */
        job->status = UCS_ERR_NO_RESOURCE;
    }

    uct_cuda_debug("%s %d is %s in the background, %.1f ms",
                   is_gpu ? "gpu" : "numa",
                   is_gpu ? job->device : job->numa,
                   (job->status == UCS_OK) ? "ready" : "not available",
                   (double)(uct_cuda_now_ns() - begin) / NS_PER_MS);
}

static void *job_run(void *arg)
{
    job_t *job = arg;

    job->make(job);
    job_set_state(job, JOB_DONE);
    return NULL;
}


/* ----------------------------------------------------------------- threads */

/* Wait for the end of an engine's threads; call with the lock held */
static void background_join(uct_cuda_run_background_t *init)
{
    unsigned i;

    for (i = 0; i < NUM_JOBS; ++i) {
        if (init->jobs[i].has_thread) {
            init->jobs[i].has_thread = false;
            pthread_join(init->jobs[i].thread, NULL);
        }
    }
}

static void on_exit_of_program(void)
{
    uct_cuda_run_background_t *init;

    if (is_foreign()) {
        return;
    }

    pthread_mutex_lock(&all.lock);
    all.is_over = true;
    LIST_FOREACH(init, &all.list, link)
    {
        background_join(init);
    }
    pthread_mutex_unlock(&all.lock);
}

/* Return whether threads may be started; call with the lock held */
static bool may_begin(void)
{
    if (all.is_over) {
        return false;
    }

    if (all.pid == 0) {
        if (atexit(on_exit_of_program) != 0) {
            return false;
        }

        __atomic_store_n(&all.pid, getpid(), __ATOMIC_RELAXED);
    }

    return true;
}

/* Start a job. @return true: it has a thread */
static bool job_begin(job_t *job, void (*make)(job_t *job))
{
    if (is_foreign()) {
        return false;
    }

    pthread_mutex_lock(&all.lock);
    if (may_begin()) {
        job->make = make;
        job_set_state(job, JOB_RUNNING);
        job->has_thread = uct_cuda_host_cpus_start_beside(job_run, job,
                                                          &job->thread);
    }

    if (!job->has_thread) {
        job_set_state(job, JOB_TAKEN);
    }
    pthread_mutex_unlock(&all.lock);

    return job_state(job) != JOB_TAKEN;
}

ucs_status_t uct_cuda_run_background_create(uct_cuda_run_rsc_t *rsc,
                                            uct_cuda_run_background_t **init_p)
{
    uct_cuda_run_background_t *init = calloc(1, sizeof(*init));

    if (init == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    init->rsc = rsc;
    if (!is_foreign()) {
        pthread_mutex_lock(&all.lock);
        LIST_INSERT_HEAD(&all.list, init, link);
        pthread_mutex_unlock(&all.lock);
    }

    *init_p = init;
    return UCS_OK;
}

/* Move a job's results to the resources, as far as needed. After a reset of the
 * device they are gone, and the next user waits for new ones. @return Status of
 * the job; UCS_OK after a reset */
static ucs_status_t job_take(uct_cuda_run_background_t *init, job_t *job)
{
    job_set_state(job, JOB_TAKEN);
    if ((job->status == UCS_OK) &&
        !uct_cuda_ctx_is_alive(job->ctx, job->ctx_id)) {
        uct_cuda_run_staging_lose(&job->staging);
        uct_cuda_ctx_release(job->device);
        return UCS_OK;
    }

    if ((job->staging.base != 0) && (uct_cuda_ctx_push(job->ctx) == UCS_OK)) {
        uct_cuda_run_rsc_adopt_staging(init->rsc, job->numa, &job->staging);
        uct_cuda_ctx_pop();
    } else if (!uct_cuda_end_is_gpu(job->end)) {
        uct_cuda_run_staging_free(&job->staging); /* needs no context */
    }

    if (job->status == UCS_OK) {
        uct_cuda_run_rsc_adopt_ctx(init->rsc, job->device, job->ctx,
                                   job->ctx_id);
    }

    return job->status;
}

void uct_cuda_run_background_destroy(uct_cuda_run_background_t *init)
{
    unsigned i;

    if (is_foreign()) {
        return; /* the thread's memory may be reused */
    }

    pthread_mutex_lock(&all.lock);
    background_join(init);
    LIST_REMOVE(init, link);
    pthread_mutex_unlock(&all.lock);

    for (i = JOB_OF_STAGING; i < NUM_JOBS; ++i) {
        if (job_state(&init->jobs[i]) == JOB_DONE) {
            (void)job_take(init, &init->jobs[i]);
        }
    }

    free(init);
}


/* ------------------------------------------------------------------ checks */

bool uct_cuda_run_background_knows_node(uct_cuda_run_background_t *init,
                                        void (*probe)(void *arg), void *arg)
{
    job_t *job = &init->jobs[JOB_OF_NODE];

    if ((job_state(job) == JOB_IDLE) && !uct_cuda_topo_is_known()) {
        job->probe = probe;
        job->arg   = arg;
        (void)job_begin(job, make_node);
    }

    return job_state(job) != JOB_RUNNING;
}

/* Check a job. @return UCS_OK: ready, or as fast to create for its user */
static ucs_status_t check_job(uct_cuda_run_background_t *init, job_t *job)
{
    switch (job_state(job)) {
    case JOB_IDLE:
        return job_begin(job, make_memory) ? UCS_INPROGRESS : UCS_OK;
    case JOB_RUNNING:
        return UCS_INPROGRESS;
    case JOB_DONE:
        return job_take(init, job);
    default:
        return UCS_OK;
    }
}

/* Return the job of the staging memory at an end, or NULL if it has none */
static job_t *job_of_staging(uct_cuda_run_background_t *init,
                             uct_cuda_end_t via, int numa)
{
    const int number = uct_cuda_run_staging_number(via, numa);

    return (number < 0) ? NULL : &init->jobs[JOB_OF_STAGING + number];
}

static ucs_status_t check_gpu(uct_cuda_run_background_t *init, int device,
                              bool is_copy_only, size_t slot_size)
{
    const uct_cuda_end_t gpu = uct_cuda_end_gpu(device);
    job_t *job               = job_of_staging(init, gpu, 0);

    if (job_state(job) == JOB_IDLE) {
        /* contexts of the program are ready */
        if (uct_cuda_ctx_is_active(device)) {
            return UCS_OK;
        }

        job->device       = device;
        job->is_copy_only = is_copy_only;
        job->end          = gpu;
        job->slot_size    = slot_size;
    }

    return check_job(init, job);
}

/* Check staging memory outside the GPUs */
static ucs_status_t check_staging(uct_cuda_run_background_t *init,
                                  const uct_cuda_plan_t *plan,
                                  uct_cuda_end_t via)
{
    job_t *job = job_of_staging(init, via, plan->numa);

    if (job == NULL) {
        return UCS_OK;
    }

    if (job_state(job) == JOB_IDLE) {
        if (uct_cuda_run_rsc_has_staging(init->rsc, via, plan->numa)) {
            return UCS_OK;
        }

        job->device    = plan->local;
        job->end       = via;
        job->numa      = plan->numa;
        job->slot_size = plan->slot_size;
    }

    return check_job(init, job);
}

/* Return whether a path is staged outside the GPUs */
static bool is_outside(uct_cuda_end_t via)
{
    return !uct_cuda_end_is_none(via) && !uct_cuda_end_is_gpu(via);
}

static ucs_status_t check_path(uct_cuda_run_background_t *init,
                               const uct_cuda_plan_t *plan,
                               uct_cuda_end_t via)
{
    const uint32_t missing = uct_cuda_run_rsc_path_devices(plan, via) &
                             ~uct_cuda_run_rsc_devices(init->rsc);
    ucs_status_t result    = UCS_OK;
    ucs_status_t status;
    int device;

    for (device = 0; device < UCT_CUDA_MAX_GPUS; ++device) {
        if (!(missing & (1u << device))) {
            continue;
        }

        status = check_gpu(init, device,
                           !uct_cuda_plan_is_local_gpu(plan, device),
                           uct_cuda_end_is_device(via, device) ?
                                   plan->slot_size :
                                   0);
        if (UCS_STATUS_IS_ERR(status)) {
            return status;
        }

        result = (status == UCS_OK) ? result : status;
    }

    if ((result == UCS_OK) && is_outside(via)) {
        result = check_staging(init, plan, via);
    }

    return result;
}

static uint32_t path_bit(uct_cuda_end_t via)
{
    return uct_cuda_end_is_none(via) ? UCT_CUDA_RUN_ABSENT_ALL :
                                       uct_cuda_end_bit(via);
}

ucs_status_t uct_cuda_run_background_check(uct_cuda_run_background_t *init,
                                           const uct_cuda_plan_t *plan,
                                           bool is_all, uint32_t *absent_p,
                                           unsigned *path_p)
{
    uint32_t absent = 0;
    uint32_t ready  = 0;
    uct_cuda_end_t via;
    ucs_status_t status;
    unsigned i;

    for (i = 0; i < plan->num_paths; ++i) {
        via = plan->paths[i].via;
        if (!is_all && !is_outside(via)) {
            continue;
        }

        status = check_path(init, plan, via);
        if (status == UCS_INPROGRESS) {
            absent |= path_bit(via);
        } else if (status != UCS_OK) {
            *path_p = i;
            return status;
        } else if (!uct_cuda_end_is_none(via)) {
            ready |= path_bit(via);
        }
    }

    *absent_p |= absent;
    if (absent == 0) {
        return UCS_OK;
    } else if (!is_all) {
        return UCS_INPROGRESS;
    }

    /* the next plan must not use relays unused by this plan: it would start
     * them */
    ready |= uct_cuda_run_rsc_devices(init->rsc);
    for (i = UCT_CUDA_MAX_GPUS; i < UCT_CUDA_NUM_ENDS; ++i) {
        via = uct_cuda_end_at(i);
        if (uct_cuda_run_rsc_has_staging(init->rsc, via, plan->numa)) {
            ready |= uct_cuda_end_bit(via);
        }
    }

    *absent_p |= ALL_RELAYS & ~ready;
    return UCS_INPROGRESS;
}
