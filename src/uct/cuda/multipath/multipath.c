/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine: asks the planner, has the executor do it, and steps back to one
 * path wherever that does not work out.
 */
#include <uct/cuda/multipath/multipath.h>

#include <uct/cuda/base/clock.h>
#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/host/host_cpus.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/topo.h>
#include <uct/cuda/base/trace.h>
#include <uct/cuda/multipath/checker.h>
#include <uct/cuda/multipath/completion.h>
#include <uct/cuda/multipath/executor.h>
#include <uct/cuda/multipath/ledger.h>
#include <uct/cuda/multipath/planner.h>
#include <uct/cuda/multipath/resources.h>
#include <uct/cuda/multipath/starter.h>
#include <uct/cuda/multipath/traffic.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>


/* Transfers below this never look at the node, which costs NVML's start */
#define LEARN_MIN_SIZE (256ul << 10)

/* Staging memory shrinks to this before a path is given up */
#define STAGING_MIN_SIZE (1ul << 20)

#define PIECE_ALIGN 4096ul

/* Tests of a transfer between two looks at who else is there: some 20 us */
#define TESTS_A_LOOK 16

/* With the lane of a copy that was counted; no lane has this bit */
#define COUNTED_LARGE 0x8000u


/* Transfers between GPUs, and those with host memory */
enum {
    KIND_GPU,
    KIND_HOST,
    NUM_KINDS
};


/* What an engine knows of the node for transfers of one kind: whatever did not
 * work is taken out */
typedef struct {
    uct_cuda_topo_t topo;
    size_t          alone_min_size; /* with nothing ahead of it; 0: unknown */
} view_t;


typedef struct {
    uct_cuda_mp_engine_t   super;
    pthread_mutex_t        lock; /* for all below; order: base/thread.h */
    uct_cuda_mp_config_t   config;
    uct_cuda_mp_rsc_t *rsc;
    uct_cuda_mp_starter_t  *starter; /* NULL: whoever needs something waits */
    uct_cuda_mp_executors_t executors;
    uct_cuda_mp_used_t     used; /* by the transfer being started */
    uct_cuda_mp_traffic_t  *traffic;
    uct_cuda_mp_transfer_t *free;
    uct_cuda_mp_transfer_t *active; /* started and not yet released */
    bool                   is_learned;
    bool                   is_hidden_told;
    bool                   is_shrink_told;
    view_t                 views[NUM_KINDS];
    bool                   was_alone; /* the transfer before this one */
    uct_cuda_mp_tuning_t   *tuning; /* or NULL */
    uct_cuda_mp_load_t     load; /* that the transfer being started meets */
    uct_cuda_mp_plan_t     plan;
} engine_t;


struct uct_cuda_mp_transfer {
    engine_t               *engine;
    uct_cuda_mp_transfer_t *next; /* on either list */
    uct_cuda_mp_transfer_t *prev; /* on the list of active ones */
    uct_cuda_mp_completion_t completion;
    int                    device; /* of the local end */
    uct_cuda_mp_held_t     *held;  /* until it has ended */
    ucs_status_t           status;
    unsigned               num_steps;
    unsigned               num_tests;
    uct_cuda_mp_flow_t     flow;
};


/* What is being started */
typedef struct {
    uct_cuda_mp_ends_t     ends;
    size_t                 size;
    uct_cuda_mp_map_func_t map;
    void                   *arg;
    int                    host_numa; /* -1: unknown */
    bool                   is_mapped[UCT_CUDA_MAX_GPUS];
    bool                   is_alone; /* as the last one was */
    uct_cuda_mp_held_t     *held;
} start_t;


static engine_t *engine_of(uct_cuda_mp_engine_t *super)
{
    return (engine_t*)super;
}

static void set_min_size(engine_t *engine, int kind, size_t size)
{
    __atomic_store_n((kind == KIND_HOST) ? &engine->super.host_min_size :
                                           &engine->super.min_size,
                     size, __ATOMIC_RELAXED);
}

static int kind_of(const uct_cuda_mp_ends_t *ends)
{
    return uct_cuda_mp_ends_is_host(ends) ? KIND_HOST : KIND_GPU;
}

static ucs_status_t
engine_create_executors(engine_t *engine, const uct_cuda_mp_config_t *config)
{
    ucs_status_t status;

    status = uct_cuda_mp_rsc_create(&engine->rsc);
    if (status != UCS_OK) {
        return status;
    }

    status = uct_cuda_mp_executors_create(engine->rsc, config,
                                          &engine->executors);
    if (status != UCS_OK) {
        uct_cuda_mp_rsc_destroy(engine->rsc);
    }

    return status;
}

static void engine_destroy_executors(engine_t *engine)
{
    uct_cuda_mp_executors_destroy(&engine->executors);
    uct_cuda_mp_rsc_destroy(engine->rsc);
}

ucs_status_t uct_cuda_mp_engine_create(const uct_cuda_mp_config_t *config,
                                       uct_cuda_mp_engine_t **engine_p)
{
    size_t min_size = LEARN_MIN_SIZE;
    ucs_status_t status;
    char error[256];
    engine_t *engine;
    int kind;

    status = uct_cuda_mp_config_check(config, error, sizeof(error));
    if (status != UCS_OK) {
        uct_cuda_error("%s", error);
        return status;
    }

    engine = calloc(1, sizeof(*engine));
    if (engine == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    status = engine_create_executors(engine, config);
    if (status != UCS_OK) {
        goto err_free;
    }

    status = uct_cuda_mp_traffic_create(config->ledger, &engine->traffic);
    if (status != UCS_OK) {
        goto err_destroy_executors;
    }

    if (config->start == UCT_CUDA_MP_START_BACKGROUND) {
        status = uct_cuda_mp_starter_create(engine->rsc, &engine->starter);
        if (status != UCS_OK) {
            goto err_destroy_traffic;
        }
    }

    uct_cuda_trace_start(config->trace);
    pthread_mutex_init(&engine->lock, NULL);
    engine->config    = *config;
    engine->was_alone = true;
    if (config->enable == UCT_CUDA_MP_NO) {
        min_size = SIZE_MAX;
    } else if (config->min_size != UCT_CUDA_MP_SIZE_AUTO) {
        min_size = config->min_size;
    }

    for (kind = 0; kind < NUM_KINDS; ++kind) {
        set_min_size(engine, kind, min_size);
    }

    *engine_p = &engine->super;
    return UCS_OK;

err_destroy_traffic:
    uct_cuda_mp_traffic_destroy(engine->traffic);
err_destroy_executors:
    engine_destroy_executors(engine);
err_free:
    free(engine);
    return status;
}

/* The program may have reset a device since the last transfer */
static void engine_renew(engine_t *engine)
{
    const uint32_t lost = uct_cuda_mp_rsc_lost(engine->rsc);

    if (lost != 0) {
        uct_cuda_mp_executors_lose(&engine->executors, lost);
        uct_cuda_mp_rsc_lose(engine->rsc, lost);
    }
}

void uct_cuda_mp_engine_destroy(uct_cuda_mp_engine_t *super)
{
    engine_t *engine = engine_of(super);
    uct_cuda_mp_transfer_t *transfer;

    while (engine->active != NULL) {
        uct_cuda_mp_release(engine->active);
    }

    if (engine->starter != NULL) {
        uct_cuda_mp_starter_destroy(engine->starter);
    }

    uct_cuda_trace_flush();
    engine_renew(engine);
    engine_destroy_executors(engine);
    uct_cuda_mp_traffic_destroy(engine->traffic);
    while (engine->free != NULL) {
        transfer     = engine->free;
        engine->free = transfer->next;
        free(transfer);
    }

    pthread_mutex_destroy(&engine->lock);
    free(engine->tuning);
    free(engine);
}

static void engine_know(const engine_t *engine, int kind,
                        const uct_cuda_mp_load_t *load,
                        uct_cuda_mp_knowledge_t *know_p)
{
    memset(know_p, 0, sizeof(*know_p));
    know_p->topo   = &engine->views[kind].topo;
    know_p->config = &engine->config;
    know_p->load   = load;
    know_p->tuning = engine->tuning;
}

static size_t engine_min_size(engine_t *engine, int kind,
                              const uct_cuda_mp_load_t *load)
{
    uct_cuda_mp_knowledge_t know;

    engine_know(engine, kind, load, &know);
    return (kind == KIND_HOST) ?
                   uct_cuda_mp_plan_min_size_host(&know, &engine->plan) :
                   uct_cuda_mp_plan_min_size(&know, &engine->plan);
}

/* From what size on is it worth asking? Behind others, smaller ones gain: paths
 * that take long to begin do so before they are needed. */
static void engine_update_min_size(engine_t *engine, int kind)
{
    static const char *names[] = {"", " from or to host memory"};
    uct_cuda_mp_load_t load    = {.is_known = engine->load.is_known};
    view_t *view               = &engine->views[kind];
    size_t size;

    __atomic_store_n(&view->alone_min_size,
                     engine_min_size(engine, kind, &load), __ATOMIC_RELAXED);
    load.queued          = UINT16_MAX;
    load.window          = UINT16_MAX;
    size                 = engine_min_size(engine, kind, &load);
    if (view->alone_min_size < size) {
        size = view->alone_min_size;
    }

    if ((size == SIZE_MAX) && (kind == KIND_GPU)) {
        uct_cuda_info("no transfer between this process's %d GPUs gains by "
                      "several paths: one path is used",
                      view->topo.num_gpus);
    } else {
        uct_cuda_debug("transfers%s from %zu bytes on use several paths, "
                       "behind others from %zu",
                       names[kind], view->alone_min_size, size);
    }

    set_min_size(engine, kind, size);
}

/* False: not yet */
static bool engine_learn(engine_t *engine)
{
    const uct_cuda_topo_t *topo;
    char error[512];
    int kind;

    if (engine->is_learned) {
        return true;
    }

    if ((engine->starter != NULL) &&
        !uct_cuda_mp_starter_knows_node(engine->starter)) {
        return false;
    }

    engine->is_learned = true;
    topo               = uct_cuda_topo_get();
    if (topo == NULL) {
        for (kind = 0; kind < NUM_KINDS; ++kind) {
            set_min_size(engine, kind, SIZE_MAX);
        }
        return true;
    }

    if (uct_cuda_mp_tuning_get(engine->config.tuning_file, topo, error,
                               sizeof(error), &engine->tuning) != UCS_OK) {
        uct_cuda_warn("the tuning table is not used, a model of the node is: "
                      "%s", error);
    }

    /* Whether there is a ledger decides which paths may be used at all */
    uct_cuda_mp_traffic_load(engine->traffic, uct_cuda_end_gpu(0),
                             uct_cuda_end_gpu(0), &engine->load);
    for (kind = 0; kind < NUM_KINDS; ++kind) {
        engine->views[kind].topo = *topo;
        engine_update_min_size(engine, kind);
    }

    return true;
}

/* A path between GPUs */
static void drop_gpu_path(engine_t *engine, const uct_cuda_mp_path_t *path,
                          int src, int dst, ucs_status_t status)
{
    uct_cuda_topo_t *topo = &engine->views[KIND_GPU].topo;
    int i;

    switch (path->route) {
    case UCT_CUDA_MP_ROUTE_DIRECT:
        topo->links[src][dst].bandwidth = 0;
        break;
    case UCT_CUDA_MP_ROUTE_HOST:
        for (i = 0; i < topo->num_gpus; ++i) {
            topo->gpus[i].to_host.bandwidth   = 0;
            topo->gpus[i].from_host.bandwidth = 0;
        }
        break;
    default:
        /* Its relays are told by their rank among all of them */
        if (engine->tuning != NULL) {
            engine->tuning->num_lines = 0;
        }
        for (i = 0; i < topo->num_gpus; ++i) {
            /* An unreachable pair says nothing of the relay's other links */
            if ((status != UCS_ERR_UNREACHABLE) || (i == src)) {
                topo->links[i][path->gpu].bandwidth = 0;
            }
        }
        break;
    }
}

/* A path with host memory at one end: links between GPUs are for relays only */
static void drop_host_path(engine_t *engine, const uct_cuda_mp_path_t *path,
                           bool from_host, int gpu, ucs_status_t status)
{
    uct_cuda_topo_t *topo = &engine->views[KIND_HOST].topo;
    int i;

    if (path->route == UCT_CUDA_MP_ROUTE_DIRECT) {
        (from_host ? &topo->gpus[gpu].from_host : &topo->gpus[gpu].to_host)
                ->bandwidth = 0;
        return;
    }

    for (i = 0; i < topo->num_gpus; ++i) {
        if ((status != UCS_ERR_UNREACHABLE) || (i == gpu)) {
            (from_host ? &topo->links[path->gpu][i] :
                         &topo->links[i][path->gpu])
                    ->bandwidth = 0;
        }
    }
}

/* Take a path that does not work out of this engine's view of the node */
static void engine_drop_path(engine_t *engine, const uct_cuda_mp_path_t *path,
                             const uct_cuda_mp_ends_t *ends,
                             ucs_status_t status)
{
    const uct_cuda_end_t src = ends->src_end;
    const uct_cuda_end_t dst = ends->dst_end;
    char name[16], from[16], to[16];

    if (kind_of(ends) == KIND_HOST) {
        drop_host_path(engine, path, uct_cuda_end_is_host(src),
                       uct_cuda_mp_ends_local(ends), status);
    } else {
        drop_gpu_path(engine, path, uct_cuda_end_device(src),
                      uct_cuda_end_device(dst), status);
    }

    uct_cuda_mp_path_str(path, name, sizeof(name));
    uct_cuda_end_str(src, from, sizeof(from));
    uct_cuda_end_str(dst, to, sizeof(to));
    if (status == UCS_ERR_UNREACHABLE) {
        uct_cuda_info("path \"%s\" from %s to %s cannot be used", name, from,
                      to);
    } else {
        uct_cuda_warn("path \"%s\" from %s to %s could not be set up (%s) and "
                      "is not used any more",
                      name, from, to,
                      (status == UCS_ERR_NO_MEMORY) ? "out of memory" :
                                                      "see above");
    }

    engine_update_min_size(engine, kind_of(ends));
}

/* Out of staging memory: less of it may do */
static bool engine_shrink_staging(engine_t *engine)
{
    if (engine->config.staging_size <= STAGING_MIN_SIZE) {
        return false;
    }

    engine->config.staging_size /= 4;
    if (engine->config.staging_size < STAGING_MIN_SIZE) {
        engine->config.staging_size = STAGING_MIN_SIZE;
    }

    if (!engine->is_shrink_told) {
        engine->is_shrink_told = true;
        uct_cuda_warn("out of memory for staging: trying less than "
                      "MULTIPATH_STAGING_SIZE");
    }

    return true;
}

/* Have a device's context see the remote end */
static ucs_status_t engine_map(engine_t *engine, start_t *start, int device)
{
    ucs_status_t status;

    status = uct_cuda_ctx_push(uct_cuda_mp_rsc_ctx(engine->rsc,
                                                       device));
    if (status != UCS_OK) {
        return status;
    }

    status = start->map(start->arg, device, &start->ends.mapped[device]);
    uct_cuda_ctx_pop();
    if (status != UCS_OK) {
        return UCS_ERR_UNREACHABLE;
    }

    start->is_mapped[device] = true;
    return UCS_OK;
}

static ucs_status_t engine_prepare(engine_t *engine, start_t *start,
                                   unsigned *path_p)
{
    const uct_cuda_mp_plan_t *plan = &engine->plan;
    uct_cuda_end_t reader;
    ucs_status_t status;
    unsigned i;

    status = uct_cuda_mp_rsc_prepare(engine->rsc, plan, &start->ends,
                                         path_p);
    for (i = 0; (status == UCS_OK) && (i < plan->num_steps); ++i) {
        reader = uct_cuda_mp_rsc_remote_reader(&start->ends, &plan->steps[i]);
        if (uct_cuda_end_is_gpu(reader) &&
            !start->is_mapped[uct_cuda_end_device(reader)]) {
            *path_p = plan->steps[i].path;
            status  = engine_map(engine, start, uct_cuda_end_device(reader));
        }
    }

    return status;
}

/* Make a plan whose needs are met. No paths: one plain copy is best. */
static void engine_plan(engine_t *engine, start_t *start, size_t size)
{
    uct_cuda_mp_plan_t *plan = &engine->plan;
    const uct_cuda_end_t src = start->ends.src_end;
    const uct_cuda_end_t dst = start->ends.dst_end;
    uct_cuda_mp_knowledge_t know;
    char from[16], to[16];
    uct_cuda_mp_path_t path;
    ucs_status_t status;
    unsigned failed;

    engine_know(engine, kind_of(&start->ends), &engine->load, &know);
    know.numa = (start->host_numa >= 0) ? &start->host_numa : NULL;
    for (;;) {
        uct_cuda_mp_plan_make(&know, src, dst, size, plan);
        uct_cuda_debug("%s to %s, %zu bytes: %u paths, %u copies; %u transfers "
                       "ahead",
                       uct_cuda_end_str(src, from, sizeof(from)),
                       uct_cuda_end_str(dst, to, sizeof(to)), size,
                       plan->num_paths, plan->num_steps, engine->load.queued);
        if (plan->num_paths == 0) {
            return;
        }

        status = (engine->starter == NULL) ?
                         UCS_OK :
                         uct_cuda_mp_starter_check(engine->starter, plan,
                                                   &start->ends, &know.absent,
                                                   &failed);
        if (status == UCS_INPROGRESS) {
            if (know.absent != UCT_CUDA_MP_ABSENT_ALL) {
                continue; /* By what is there */
            }

            plan->num_paths = 0;
            return;
        }

        if (status == UCS_OK) {
            status = engine_prepare(engine, start, &failed);
        }

        if (status == UCS_OK) {
            return;
        }

        /* Every turn leaves fewer paths or less staging, so this ends */
        path = plan->paths[failed].path;
        if ((status != UCS_ERR_NO_MEMORY) || !engine_shrink_staging(engine)) {
            engine_drop_path(engine, &path, &start->ends, status);
        }
    }
}

static ucs_status_t engine_submit(engine_t *engine, start_t *start,
                                  size_t offset)
{
    const uct_cuda_mp_work_t work = {
        .plan     = &engine->plan,
        .ends     = &start->ends,
        .config   = &engine->config,
        .model    = uct_cuda_mp_tuning_model(engine->tuning),
        .offset   = offset,
        .is_alone = start->is_alone && (engine->plan.size == start->size),
        .used     = &engine->used,
        .held     = &start->held
    };
#ifdef ENABLE_DEBUG
    char error[256];

    if (uct_cuda_mp_plan_check(&engine->plan, error, sizeof(error)) !=
        UCS_OK) {
        uct_cuda_error("unsound plan: %s", error);
        return UCS_ERR_INVALID_PARAM;
    }
#endif

    return uct_cuda_mp_executors_submit(&engine->executors, &work);
}

/* A plan has a largest size; what is larger goes in equal pieces. All of them
 * are submitted at once, and the lanes work through them without a gap. */
static ucs_status_t engine_submit_pieces(engine_t *engine, start_t *start,
                                         size_t piece, unsigned *num_steps_p)
{
    uct_cuda_mp_plan_t *plan = &engine->plan;
    size_t offset            = plan->size;
    ucs_status_t status;
    unsigned failed;
    size_t size;

    /* The first one has been planned already */
    status       = engine_submit(engine, start, 0);
    *num_steps_p = plan->num_steps;
    while ((status == UCS_OK) && (offset < start->size)) {
        size = start->size - offset;
        size = (size > piece) ? piece : size;
        if (size != plan->size) {
            engine_plan(engine, start, size);
            if (plan->num_paths == 0) {
                uct_cuda_mp_plan_single(start->ends.src_end,
                                        start->ends.dst_end, size, plan);
                status = engine_prepare(engine, start, &failed);
                if (status != UCS_OK) {
                    return status;
                }
            }
        }

        status        = engine_submit(engine, start, offset);
        *num_steps_p += plan->num_steps;
        offset       += size;
    }

    return status;
}

static size_t piece_size(size_t size, size_t largest)
{
    size_t pieces = (size + largest - 1) / largest;
    size_t piece  = (size + pieces - 1) / pieces;

    if (pieces > 1) {
        piece = (piece + PIECE_ALIGN - 1) & ~(PIECE_ALIGN - 1);
    }

    return (piece > largest) ? largest : piece;
}

static uct_cuda_mp_transfer_t *get_transfer(engine_t *engine)
{
    uct_cuda_mp_transfer_t *transfer = engine->free;

    if (transfer != NULL) {
        engine->free = transfer->next;
    } else {
        transfer = malloc(sizeof(*transfer));
    }

    return transfer;
}

static void put_transfer(engine_t *engine, uct_cuda_mp_transfer_t *transfer)
{
    transfer->next = engine->free;
    engine->free   = transfer;
}

static void list_active(engine_t *engine, uct_cuda_mp_transfer_t *transfer)
{
    transfer->prev = NULL;
    transfer->next = engine->active;
    if (transfer->next != NULL) {
        transfer->next->prev = transfer;
    }

    engine->active = transfer;
}

static void unlist_active(engine_t *engine, uct_cuda_mp_transfer_t *transfer)
{
    if (transfer->prev != NULL) {
        transfer->prev->next = transfer->next;
    } else {
        engine->active = transfer->next;
    }

    if (transfer->next != NULL) {
        transfer->next->prev = transfer->prev;
    }
}

/* Is this a transfer that several paths might carry? */
static bool request_is_ours(engine_t *engine,
                            const uct_cuda_mp_request_t *request)
{
    const uct_cuda_end_t src = request->src_end;
    const uct_cuda_end_t dst = request->dst_end;

    if (uct_cuda_end_is_hidden(src) || uct_cuda_end_is_hidden(dst)) {
        if (!engine->is_hidden_told) {
            engine->is_hidden_told = true;
            uct_cuda_info("the peer's GPU is not visible to this process "
                          "(CUDA_VISIBLE_DEVICES): one path is used");
        }
        return false;
    }

    return !uct_cuda_end_equal(src, dst) && uct_cuda_end_has_index(src) &&
           uct_cuda_end_has_index(dst);
}

static bool engine_wants(engine_t *engine, const start_t *start)
{
    return (kind_of(&start->ends) == KIND_HOST) ?
                   uct_cuda_mp_wants_host(&engine->super, start->size) :
                   uct_cuda_mp_wants(&engine->super, start->size);
}

/* A GPU was a relay before the program had memory there: the engine's streams
 * are not of its context, where the peer's memory is mapped */
static bool end_has_two_contexts(const uct_cuda_mp_ends_t *ends)
{
    const uct_cuda_end_t list[] = {ends->src_end, ends->dst_end};
    unsigned i;

    for (i = 0; i < 2; ++i) {
        if (uct_cuda_end_is_gpu(list[i]) &&
            !uct_cuda_end_equal(list[i], ends->remote) &&
            uct_cuda_ctx_has_two(uct_cuda_end_device(list[i]))) {
            return true;
        }
    }

    return false;
}

/* Others are before a transfer or, with host memory, were behind those before
 * it */
static bool has_company(int kind, unsigned queued, unsigned window)
{
    return (kind == KIND_HOST) ? (window > 1) : (queued > 0);
}

static ucs_status_t engine_start(engine_t *engine, start_t *start,
                                 uct_cuda_mp_transfer_t **transfer_p)
{
    const uct_cuda_mp_load_t *load = &engine->load;
    const int kind                 = kind_of(&start->ends);
    uct_cuda_mp_transfer_t *transfer;
    ucs_status_t status;
    bool is_alone;
    size_t piece;

    if (!engine_learn(engine) || !engine_wants(engine, start) ||
        end_has_two_contexts(&start->ends)) {
        return UCS_OK;
    }

    uct_cuda_mp_traffic_load(engine->traffic, start->ends.src_end,
                             start->ends.dst_end, &engine->load);
    if (!has_company(kind, load->queued, load->window) &&
        (start->size < engine->views[kind].alone_min_size)) {
        return UCS_OK;
    }

    engine_renew(engine);
    do {
        /* Staging memory that turns out to be scarce makes pieces smaller */
        piece = piece_size(start->size,
                           uct_cuda_mp_plan_max_size(&engine->config));
        engine_plan(engine, start, piece);
    } while (piece > uct_cuda_mp_plan_max_size(&engine->config));

    if (engine->plan.num_paths == 0) {
        return UCS_OK;
    }

    transfer = get_transfer(engine);
    if (transfer == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    transfer->engine = engine;
    transfer->device = uct_cuda_mp_ends_local(&start->ends);
    transfer->status = UCS_INPROGRESS;
    transfer->num_tests = 0;

    is_alone = (engine->active == NULL);
    if (is_alone) {
        uct_cuda_mp_rsc_idle(engine->rsc);
    }

    start->is_alone   = is_alone && engine->was_alone;
    engine->was_alone = is_alone;
    uct_cuda_mp_flow_of_plan(&engine->plan, start->size, &transfer->flow);
    status = engine_submit_pieces(engine, start, piece, &transfer->num_steps);
    if (status == UCS_OK) {
        status = uct_cuda_mp_completion_record(engine->rsc, &start->ends,
                                               &engine->used,
                                               &transfer->completion);
    }

    if (status != UCS_OK) {
        uct_cuda_mp_used_wait(&engine->used, engine->rsc);
        uct_cuda_mp_executors_release(start->held);
        put_transfer(engine, transfer);
        return status;
    }

    uct_cuda_mp_traffic_begin(engine->traffic, &transfer->flow);
    transfer->held = start->held;
    list_active(engine, transfer);
    *transfer_p = transfer;
    return UCS_OK;
}

bool uct_cuda_mp_may_split(const uct_cuda_mp_engine_t *super,
                           uct_cuda_end_t src, uct_cuda_end_t dst, size_t size)
{
    const engine_t *engine = (const engine_t*)super;
    const int kind         = uct_cuda_mp_plan_ends_host(src, dst) ? KIND_HOST :
                                                                    KIND_GPU;
    unsigned queued, window;

    /* Who asks about a GPU that is not visible is to be told why */
    if ((size >= __atomic_load_n(&engine->views[kind].alone_min_size,
                                 __ATOMIC_RELAXED)) ||
        !uct_cuda_end_has_index(src) || !uct_cuda_end_has_index(dst)) {
        return true;
    }

    uct_cuda_mp_traffic_peek(engine->traffic, src, dst, &queued, &window);
    return has_company(kind, queued, window);
}

ucs_status_t uct_cuda_mp_start_remote(uct_cuda_mp_engine_t *super,
                                      const uct_cuda_mp_request_t *request,
                                      uct_cuda_mp_remote_t remote,
                                      uct_cuda_mp_map_func_t map, void *arg,
                                      uct_cuda_mp_transfer_t **transfer_p)
{
    engine_t *engine    = engine_of(super);
    ucs_status_t status = UCS_OK;
    start_t start       = {
        .ends = {
            .src     = request->src,
            .dst     = request->dst,
            .src_end = request->src_end,
            .dst_end = request->dst_end,
            .remote  = (remote == UCT_CUDA_MP_REMOTE_SRC) ? request->src_end :
                       (remote == UCT_CUDA_MP_REMOTE_DST) ?
                                                            request->dst_end :
                                                            uct_cuda_end_none()
        },
        .size      = request->size,
        .map       = map,
        .arg       = arg,
        .host_numa = request->host_numa
    };

    if (uct_cuda_mp_ends_is_host(&start.ends)) {
        start.ends.num_cuts = request->num_cuts;
        start.ends.cuts     = request->cuts;
    }

    *transfer_p = NULL;
    pthread_mutex_lock(&engine->lock);
    if (request_is_ours(engine, request) &&
        ((remote == UCT_CUDA_MP_REMOTE_NONE) || (map != NULL))) {
        status = engine_start(engine, &start, transfer_p);
    }
    pthread_mutex_unlock(&engine->lock);

    return status;
}

ucs_status_t uct_cuda_mp_start(uct_cuda_mp_engine_t *super,
                               const uct_cuda_mp_request_t *request,
                               uct_cuda_mp_transfer_t **transfer_p)
{
    return uct_cuda_mp_start_remote(super, request, UCT_CUDA_MP_REMOTE_NONE,
                                    NULL, NULL, transfer_p);
}

/* The links are free for others as soon as we know */
static void transfer_over(uct_cuda_mp_transfer_t *transfer)
{
    uct_cuda_mp_traffic_look(transfer->engine->traffic, &transfer->flow);
    uct_cuda_mp_traffic_end(transfer->engine->traffic, &transfer->flow);
}

ucs_status_t uct_cuda_mp_test(uct_cuda_mp_transfer_t *transfer)
{
    if (transfer->status == UCS_INPROGRESS) {
        transfer->status = uct_cuda_mp_completion_test(&transfer->completion);
        if (UCS_STATUS_IS_ERR(transfer->status)) {
            /* Nothing may be written once the caller has been told */
            uct_cuda_mp_completion_wait(&transfer->completion);
        }

        if (transfer->status != UCS_INPROGRESS) {
            transfer_over(transfer);
        } else if ((++transfer->num_tests % TESTS_A_LOOK) == 0) {
            uct_cuda_mp_traffic_look(transfer->engine->traffic,
                                     &transfer->flow);
        }
    }

    return transfer->status;
}

ucs_status_t uct_cuda_mp_notify(uct_cuda_mp_transfer_t *transfer, CUhostFn func,
                                void *arg)
{
    engine_t *engine = transfer->engine;
    ucs_status_t status;

    pthread_mutex_lock(&engine->lock);
    status = uct_cuda_mp_completion_notify(engine->rsc, transfer->device,
                                           &transfer->completion, func, arg);
    pthread_mutex_unlock(&engine->lock);

    return status;
}

void uct_cuda_mp_release(uct_cuda_mp_transfer_t *transfer)
{
    engine_t *engine = transfer->engine;

    if (transfer->status == UCS_INPROGRESS) {
        uct_cuda_mp_completion_wait(&transfer->completion);
        transfer_over(transfer);
    }

    pthread_mutex_lock(&engine->lock);
    uct_cuda_mp_completion_put(engine->rsc, &transfer->completion);
    uct_cuda_mp_executors_release(transfer->held);
    unlist_active(engine, transfer);
    put_transfer(engine, transfer);
    pthread_mutex_unlock(&engine->lock);
}

unsigned uct_cuda_mp_num_steps(const uct_cuda_mp_transfer_t *transfer)
{
    return transfer->num_steps;
}

void uct_cuda_mp_share_cpus(uct_cuda_mp_engine_t *super)
{
    static uint64_t next; /* ns; the processors are the process's */
    const uint64_t now = uct_cuda_now_ns();
    uint32_t pids[UCT_CUDA_MP_LEDGER_MAX_SLOTS];

    if (now >= __atomic_load_n(&next, __ATOMIC_RELAXED)) {
        __atomic_store_n(&next, now + UCT_CUDA_MP_LEDGER_STALE,
                         __ATOMIC_RELAXED);
        uct_cuda_host_cpus_set_others(
                pids, uct_cuda_mp_traffic_others(
                              engine_of(super)->traffic, pids,
                              UCT_CUDA_MP_LEDGER_MAX_SLOTS));
    }
}

uint16_t uct_cuda_mp_single_begin(uct_cuda_mp_engine_t *super,
                                  uct_cuda_end_t src, uct_cuda_end_t dst,
                                  size_t size)
{
    const bool is_host = uct_cuda_mp_plan_ends_host(src, dst);
    uct_cuda_mp_flow_t flow;
    bool is_large;

    if (!uct_cuda_end_has_index(src) || !uct_cuda_end_has_index(dst) ||
        uct_cuda_end_equal(src, dst)) {
        return UCT_CUDA_MP_NOT_COUNTED;
    }

    is_large = is_host ? uct_cuda_mp_wants_host(super, size) :
                         (size >= UCT_CUDA_MP_LARGE_MIN_SIZE);
    uct_cuda_mp_flow_single(src, dst, is_large, &flow);
    uct_cuda_mp_traffic_begin(engine_of(super)->traffic, &flow);
    return flow.lanes[0] | (is_large ? COUNTED_LARGE : 0);
}

void uct_cuda_mp_single_end(uct_cuda_mp_engine_t *super, uint16_t counted)
{
    uint16_t lane = counted & ~COUNTED_LARGE;
    uct_cuda_mp_flow_t flow;

    if (counted == UCT_CUDA_MP_NOT_COUNTED) {
        return;
    }

    uct_cuda_mp_flow_single(uct_cuda_mp_lane_from(lane),
                            uct_cuda_mp_lane_to(lane),
                            (counted & COUNTED_LARGE) != 0, &flow);
    uct_cuda_mp_traffic_end(engine_of(super)->traffic, &flow);
}
