/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A transfer from start to release: admission, plan, resources, submission,
 * completion. Wherever a phase fails, the caller makes one plain copy.
 */
#include <uct/cuda/multipath/core.h>

#include <uct/cuda/check/transfer_check.h>
#include <uct/cuda/base/clock.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/trace.h>
#include <uct/cuda/multipath/admit.h>
#include <uct/cuda/plan/transfer_paths.h>
#include <uct/cuda/plan/transfer_steps.h>

#include <ucs/sys/math.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>


/* Return a free transfer, or allocate one if more are running than ever
 * before */
static uct_cuda_mp_transfer_t *get_transfer(uct_cuda_mp_core_t *core)
{
    uct_cuda_mp_transfer_t *transfer = LIST_FIRST(&core->free);

    if (transfer != NULL) {
        LIST_REMOVE(transfer, list);
    } else {
        transfer = malloc(sizeof(*transfer));
        if (transfer == NULL) {
            return NULL;
        }
    }

    transfer->core   = core;
    transfer->held   = NULL;
    transfer->status = UCS_INPROGRESS;
    return transfer;
}

static void put_transfer(uct_cuda_mp_transfer_t *transfer)
{
    LIST_INSERT_HEAD(&transfer->core->free, transfer, list);
}


/* -------------------------------------------------------------------- plan */

/* Return the start time of a phase if its duration will be logged; else 0 */
static uint64_t phase_begin(void)
{
    return (uct_cuda_log_is_on(UCT_CUDA_LOG_DEBUG) || uct_cuda_trace_is_on) ?
                   uct_cuda_now_ns() :
                   0;
}

/* Return the microseconds since the start of a phase */
static double phase_us(uint64_t begin)
{
    return (double)(uct_cuda_now_ns() - begin) * 1e-3;
}

/* Explain why the planner may or may not use the host path */
static const char *
host_path_str(const uct_cuda_mp_core_t *core,
              const uct_cuda_run_request_t *request, char *text, size_t max)
{
    const uct_cuda_plan_load_t *load     = &core->load;
    const uct_cuda_plan_config_t *config = &core->config;
    const double size                    = (double)request->size;

    if (uct_cuda_run_request_is_host(request)) {
        return "not needed";
    } else if (config->host != UCT_CUDA_PLAN_AUTO) {
        return (config->host == UCT_CUDA_PLAN_YES) ? "on" : "off";
    } else if (uct_cuda_plan_may_use_host(config, load, request->src_end,
                                          request->dst_end, size)) {
        return "allowed";
    } else if (!load->is_known) {
        return "off, no ledger of other processes' traffic";
    } else if (uct_cuda_plan_load_is_crossed(load, request->src_end,
                                             request->dst_end)) {
        return "off, there is or was traffic the other way";
    }

    snprintf(text, max,
             "off until %.0f MB more have gone without traffic the other way",
             (UCT_CUDA_PLAN_HOST_PROOF * size - (double)load->uncrossed) *
                 1e-6);
    return text;
}

static void log_plan(const uct_cuda_mp_core_t *core,
                     const uct_cuda_run_request_t *request)
{
    const uct_cuda_plan_t *plan = &core->plan;
    char from[16], to[16], paths[256], host[128];

    if (!uct_cuda_log_is_on(UCT_CUDA_LOG_DEBUG)) {
        return;
    }

    uct_cuda_debug("%s to %s, %zu bytes: %u paths (%s), %u copies; %u "
                   "transfers ahead; %s; host path %s",
                   uct_cuda_end_str(plan->src, from, sizeof(from)),
                   uct_cuda_end_str(plan->dst, to, sizeof(to)),
                   (size_t)plan->size, plan->num_paths,
                   uct_cuda_plan_paths_str(plan, paths, sizeof(paths)),
                   plan->num_steps, core->load.queued,
                   uct_cuda_plan_reason_str(
                       (uct_cuda_plan_reason_t)plan->reason),
                   host_path_str(core, request, host, sizeof(host)));
}

/* Make a plan with all its resources, for the transfer or a piece. @return
 * Reason for no plan, or ADMITTED */
static uct_cuda_plan_reason_t make_plan(uct_cuda_mp_core_t *core,
                                        const uct_cuda_run_request_t *request,
                                        uct_cuda_run_memory_t *memory,
                                        size_t size)
{
    const uct_cuda_end_t src        = request->src_end;
    const uct_cuda_end_t dst        = request->dst_end;
    uct_cuda_plan_t *plan           = &core->plan;
    uct_cuda_mp_acquired_t acquired = UCT_CUDA_MP_REPLAN;
    uct_cuda_plan_knowledge_t know;
    uint64_t begin;

    uct_cuda_mp_acquire_drop_constraints(core, uct_cuda_mp_kind(src, dst),
                                         memory->allocation);
    uct_cuda_mp_core_planner_input(core, uct_cuda_mp_kind(src, dst),
                                   &core->load, &know);
    know.remote    = request->remote;
    know.is_pulled = request->is_unowned;
    know.numa      = (request->host_numa != UCT_CUDA_TOPO_NO_NUMA) ?
                             &request->host_numa :
                             NULL;
    while (acquired == UCT_CUDA_MP_REPLAN) {
        know.absent |= core->absent | core->full;
        uct_cuda_plan_make(&know, src, dst, size, plan);
        log_plan(core, request);
        if (plan->num_paths == 0) {
            break;
        }

        begin    = phase_begin();
        acquired = uct_cuda_mp_acquire(core, memory, &know.absent);
        uct_cuda_debug("%s, after %.1f us",
                       (acquired == UCT_CUDA_MP_ACQUIRED) ?
                               "resources ready" :
                       (acquired == UCT_CUDA_MP_REPLAN) ?
                               "resources missing, trying another plan" :
                               "resources not ready, using one path",
                       phase_us(begin));
        if (acquired == UCT_CUDA_MP_GIVE_UP) {
            plan->num_paths = 0;
            plan->reason    = UCT_CUDA_PLAN_NO_RESOURCES;
        }
    }

    return (uct_cuda_plan_reason_t)plan->reason;
}


/* ------------------------------------------------------------------ submit */

/* Submit the engine's plan as a graph if that is cheaper and available, else
 * through streams */
static ucs_status_t submit_plan(uct_cuda_mp_core_t *core,
                                uct_cuda_mp_transfer_t *transfer,
                                const uct_cuda_run_memory_t *memory)
{
    const uct_cuda_run_work_t work = {
        .plan     = &core->plan,
        .config   = &core->config,
        .model    = uct_cuda_plan_tuning_model(core->tuning),
        .is_alone = transfer->is_alone && (core->plan.size == transfer->size),
        .used     = &core->used,
        .held     = &transfer->held
    };
    ucs_status_t status;
#ifdef ENABLE_DEBUG
    char error[256];

    if (uct_cuda_plan_check(&core->plan, error, sizeof(error)) != UCS_OK) {
        uct_cuda_error("internal error: invalid plan: %s", error);
        return UCS_ERR_INVALID_PARAM;
    }
#endif

    if (uct_cuda_log_is_on(UCT_CUDA_LOG_INFO)) {
        uct_cuda_mp_summary_add(&core->summary, &core->plan);
    }

    status = uct_cuda_run_graphs_submit(core->graphs, &work, memory);
    if (status == UCS_ERR_NO_RESOURCE) {
        status = uct_cuda_run_streams_submit(core->streams, &work, memory);
        if (status == UCS_OK) {
            uct_cuda_run_graphs_build_wanted(core->graphs);
        }
    }

    return status;
}

/* Plan the last piece, which is smaller than the others: by another plan, or as
 * one copy */
static ucs_status_t plan_rest(uct_cuda_mp_core_t *core,
                              const uct_cuda_run_request_t *request,
                              uct_cuda_run_memory_t *memory, size_t size)
{
    uint32_t absent = 0;

    if (make_plan(core, request, memory, size) == UCT_CUDA_PLAN_ADMITTED) {
        return UCS_OK;
    }

    uct_cuda_plan_single(request->src_end, request->dst_end, request->remote,
                         size, &core->plan);
    return (uct_cuda_mp_acquire(core, memory, &absent) ==
            UCT_CUDA_MP_ACQUIRED) ?
                   UCS_OK :
                   UCS_ERR_NO_RESOURCE;
}

/* Submit a transfer: one plan or, if it is larger than a plan's maximum, equal
 * pieces. All pieces are submitted at once, so that the links never pause. */
static ucs_status_t submit_pieces(uct_cuda_mp_core_t *core,
                                  uct_cuda_mp_transfer_t *transfer,
                                  const uct_cuda_run_request_t *request,
                                  uct_cuda_run_memory_t *memory, size_t piece)
{
    const uct_cuda_plan_t *plan = &core->plan;
    size_t *offset              = &memory->offset;
    ucs_status_t status;
    size_t size;

    /* the first one is planned already */
    status              = submit_plan(core, transfer, memory);
    transfer->num_steps = plan->num_steps;
    transfer->seconds   = plan->seconds;
    for (*offset = plan->size; (status == UCS_OK) && (*offset < request->size);
         *offset += size) {
        size = ucs_min(request->size - *offset, piece);
        if (size != plan->size) {
            status = plan_rest(core, request, memory, size);
        }

        if (status == UCS_OK) {
            status               = submit_plan(core, transfer, memory);
            transfer->num_steps += plan->num_steps;
            transfer->seconds   += plan->seconds;
        }
    }

    return status;
}

static ucs_status_t submit(uct_cuda_mp_core_t *core,
                           uct_cuda_mp_transfer_t *transfer,
                           const uct_cuda_run_request_t *request,
                           uct_cuda_run_memory_t *memory, size_t piece)
{
    const bool is_alone = LIST_EMPTY(&core->active);
    ucs_status_t status;

    if (is_alone) {
        uct_cuda_run_rsc_idle(core->rsc);
    }

    transfer->src       = request->src_end;
    transfer->dst       = request->dst_end;
    transfer->size      = request->size;
    transfer->begin     = phase_begin();
    transfer->num_ahead = core->load.queued;
    transfer->local     = core->plan.local;
    transfer->is_alone  = is_alone && core->was_alone;
    core->was_alone     = is_alone;
    uct_cuda_mp_flow_of_plan(&core->plan, request->size, &transfer->flow);
    status = submit_pieces(core, transfer, request, memory, piece);
    if (status == UCS_OK) {
        status = uct_cuda_run_completion_record(core->rsc, transfer->local,
                                                &core->used,
                                                &transfer->completion);
    }

    if (status != UCS_OK) {
        uct_cuda_run_used_wait(&core->used, core->rsc);
        uct_cuda_run_graphs_release(core->graphs, transfer->held);
        return status;
    }

    core->summary.split += uct_cuda_log_is_on(UCT_CUDA_LOG_INFO) &&
                           (transfer->num_steps > 1);
    uct_cuda_mp_traffic_begin(core->traffic, &transfer->flow);
    LIST_INSERT_HEAD(&core->active, transfer, list);
    uct_cuda_debug("transfer %p: %zu bytes submitted as %u copies%s in %.1f us",
                   (void*)transfer, transfer->size, transfer->num_steps,
                   (transfer->held != NULL) ? ", by graphs," : "",
                   phase_us(transfer->begin));
    return UCS_OK;
}


/* ------------------------------------------------------------------- start */

/* Probe the node at the first transfer. @return Whether the transfer is
 * admitted with the sizes found */
static bool
probe_node(uct_cuda_mp_core_t *core, const uct_cuda_run_request_t *request)
{
    return core->is_learned || (uct_cuda_mp_core_learn(core) &&
                                (uct_cuda_mp_admit(&core->super, request) ==
                                 UCT_CUDA_PLAN_ADMITTED));
}

/* Return whether relays gain nothing, so that only the host path can */
static bool needs_host_path(const uct_cuda_mp_core_t *core,
                            const uct_cuda_run_request_t *request)
{
    return !uct_cuda_run_request_is_host(request) &&
           (request->size <
            core->kinds[UCT_CUDA_MP_KIND_GPU].relays_min_size);
}

/* Return whether crossing traffic excludes the host path, without a look at
 * the node's load: most transfers of programs whose ranks send to each other
 * end here */
static bool was_crossed(const uct_cuda_mp_core_t *core,
                        const uct_cuda_run_request_t *request)
{
    return !uct_cuda_plan_is_uncrossed(
            &core->config,
            uct_cuda_mp_traffic_uncrossed(core->traffic, request->src_end,
                                          request->dst_end),
            (double)request->size);
}

/* Plan the first piece; the others have its size */
static uct_cuda_plan_reason_t plan_first(uct_cuda_mp_core_t *core,
                                         const uct_cuda_run_request_t *request,
                                         uct_cuda_run_memory_t *memory,
                                         size_t *piece_p)
{
    const uct_cuda_end_t src = request->src_end;
    const uct_cuda_end_t dst = request->dst_end;
    char text[128];

    /* at debug level the line below reports the load, too */
    if (needs_host_path(core, request) && was_crossed(core, request) &&
        !uct_cuda_log_is_on(UCT_CUDA_LOG_DEBUG)) {
        return UCT_CUDA_PLAN_NO_GAIN;
    }

    uct_cuda_mp_traffic_load(core->traffic, src, dst, &core->load);
    if (needs_host_path(core, request) &&
        !uct_cuda_plan_may_use_host(&core->config, &core->load, src, dst,
                                    (double)request->size)) {
        uct_cuda_debug("host path %s",
                       host_path_str(core, request, text, sizeof(text)));
        return UCT_CUDA_PLAN_NO_GAIN;
    }

    uct_cuda_mp_core_drop_lost(core);
    *piece_p = uct_cuda_plan_piece_size(request->size,
                                        uct_cuda_plan_max_size(&core->config));
    return make_plan(core, request, memory, *piece_p);
}

static ucs_status_t
start(uct_cuda_mp_core_t *core, const uct_cuda_run_request_t *request,
      uct_cuda_run_memory_t *memory, uct_cuda_mp_transfer_t **transfer_p)
{
    uct_cuda_mp_transfer_t *transfer;
    uct_cuda_plan_reason_t reason;
    ucs_status_t status;
    size_t piece;

    memset(memory->mapped, 0, sizeof(memory->mapped));
    memory->offset = 0;
    reason         = plan_first(core, request, memory, &piece);
    if (reason != UCT_CUDA_PLAN_ADMITTED) {
        uct_cuda_mp_log_one_path(request, reason);
        return UCS_OK;
    }

    transfer = get_transfer(core);
    if (transfer == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    status = submit(core, transfer, request, memory, piece);
    if (status != UCS_OK) {
        put_transfer(transfer);
        return status;
    }

    *transfer_p = transfer;
    return UCS_OK;
}

ucs_status_t uct_cuda_mp_start(uct_cuda_mp_engine_t *super,
                               const uct_cuda_run_request_t *request,
                               uct_cuda_run_memory_t *memory,
                               uct_cuda_mp_transfer_t **transfer_p)
{
    uct_cuda_mp_core_t *core = uct_cuda_mp_core(super);
    ucs_status_t status      = UCS_OK;

    *transfer_p = NULL;
    if (uct_cuda_mp_admit(super, request) != UCT_CUDA_PLAN_ADMITTED) {
        return UCS_OK;
    }

    pthread_mutex_lock(&core->lock);
    if (probe_node(core, request)) {
        status = start(core, request, memory, transfer_p);
    }
    pthread_mutex_unlock(&core->lock);

    return status;
}


/* ---------------------------------------------------------------- complete */

/* Report a transfer's end: free its links for other transfers, and log it */
static void end(uct_cuda_mp_transfer_t *transfer)
{
    uct_cuda_mp_traffic_end(transfer->core->traffic, &transfer->flow);
    uct_cuda_debug("transfer %p: ended after %.1f us, %.1f by the model, "
                   "behind %u others; status %d",
                   (void*)transfer, phase_us(transfer->begin),
                   transfer->seconds * 1e6, transfer->num_ahead,
                   transfer->status);
    uct_cuda_trace_bar(false, transfer->src, transfer->dst, transfer->size,
                       (transfer->held != NULL) ? "graph" : "streams",
                       transfer->begin);
}

ucs_status_t uct_cuda_mp_test(uct_cuda_mp_transfer_t *transfer)
{
    if (transfer->status == UCS_INPROGRESS) {
        transfer->status = uct_cuda_run_completion_test(&transfer->completion);
        if (UCS_STATUS_IS_ERR(transfer->status)) {
            /* nothing may be written after the caller has been notified */
            uct_cuda_run_completion_wait(&transfer->completion);
        }

        if (transfer->status != UCS_INPROGRESS) {
            end(transfer);
        }
    }

    return transfer->status;
}

ucs_status_t uct_cuda_mp_notify(uct_cuda_mp_transfer_t *transfer, CUhostFn func,
                                void *arg)
{
    uct_cuda_mp_core_t *core = transfer->core;
    ucs_status_t status;

    pthread_mutex_lock(&core->lock);
    status = uct_cuda_run_completion_notify(
            core->rsc, transfer->local,
            uct_cuda_plan_link(transfer->src, transfer->dst),
            &transfer->completion, func, arg);
    pthread_mutex_unlock(&core->lock);

    return status;
}

void uct_cuda_mp_release(uct_cuda_mp_transfer_t *transfer)
{
    uct_cuda_mp_core_t *core = transfer->core;

    if (transfer->status == UCS_INPROGRESS) {
        uct_cuda_run_completion_wait(&transfer->completion);
        end(transfer);
    }

    pthread_mutex_lock(&core->lock);
    uct_cuda_run_completion_put(core->rsc, &transfer->completion);
    uct_cuda_run_graphs_release(core->graphs, transfer->held);
    LIST_REMOVE(transfer, list);
    put_transfer(transfer);
    pthread_mutex_unlock(&core->lock);
}

unsigned uct_cuda_mp_num_steps(const uct_cuda_mp_transfer_t *transfer)
{
    return transfer->num_steps;
}

