/* SPDX-License-Identifier: BSD-3-Clause */
/* First phase of a transfer: admission and its reason. */
#include <uct/cuda/multipath/admit.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/multipath/core.h>


void uct_cuda_mp_log_one_path(const uct_cuda_run_request_t *request,
                              uct_cuda_plan_reason_t reason)
{
    char from[16], to[16];

    uct_cuda_debug("%s to %s, %zu bytes: one path, since %s",
                   uct_cuda_end_str(request->src_end, from, sizeof(from)),
                   uct_cuda_end_str(request->dst_end, to, sizeof(to)),
                   request->size, uct_cuda_plan_reason_str(reason));
}

static bool has_others(const uct_cuda_mp_thresholds_t *thresholds,
                        const uct_cuda_run_request_t *request)
{
    return uct_cuda_run_request_is_host(request) ? (thresholds->window > 1) :
                                               (thresholds->queued > 0);
}

uct_cuda_plan_reason_t
uct_cuda_mp_admit_by(const uct_cuda_mp_thresholds_t *thresholds,
                     const uct_cuda_run_request_t *request)
{
    if (thresholds->is_off) {
        return UCT_CUDA_PLAN_NO_OFF;
    } else if (uct_cuda_end_is_hidden(request->src_end) ||
               uct_cuda_end_is_hidden(request->dst_end)) {
        return UCT_CUDA_PLAN_NO_HIDDEN;
    } else if (!uct_cuda_end_has_index(request->src_end) ||
               !uct_cuda_end_has_index(request->dst_end)) {
        return UCT_CUDA_PLAN_NO_INDEX;
    } else if (uct_cuda_end_equal(request->src_end, request->dst_end)) {
        return UCT_CUDA_PLAN_NO_SAME_END;
    } else if (!uct_cuda_end_is_none(request->remote) &&
               !request->is_mappable) {
        return UCT_CUDA_PLAN_NO_MAPPING;
    } else if (request->size < thresholds->min_size) {
        return UCT_CUDA_PLAN_NO_SMALL;
    } else if (has_others(thresholds, request)) {
        return (request->size < thresholds->behind_min_size) ?
                       UCT_CUDA_PLAN_NO_SMALL :
                       UCT_CUDA_PLAN_ADMITTED;
    }

    return (request->size < thresholds->alone_min_size) ?
                   UCT_CUDA_PLAN_NO_ALONE :
                   UCT_CUDA_PLAN_ADMITTED;
}

/* Return whether a local GPU of the transfer was a relay before the program had
 * memory there: the engine's streams then belong to another context than the
 * mapping of the peer's memory */
static bool end_has_two_contexts(const uct_cuda_run_request_t *request)
{
    const uct_cuda_end_t ends[] = {request->src_end, request->dst_end};
    unsigned i;

    for (i = 0; i < 2; ++i) {
        if (uct_cuda_end_is_gpu(ends[i]) &&
            !uct_cuda_end_equal(ends[i], request->remote) &&
            uct_cuda_ctx_has_two(uct_cuda_end_device(ends[i]))) {
            return true;
        }
    }

    return false;
}

/* Log at debug level why a transfer uses one path and, once for each engine, at
 * info level that a GPU is hidden by CUDA_VISIBLE_DEVICES: the user can change
 * it */
static void log_reason(uct_cuda_mp_core_t *core,
                       const uct_cuda_run_request_t *request,
                       uct_cuda_plan_reason_t reason)
{
    if ((reason == UCT_CUDA_PLAN_NO_HIDDEN) &&
        !__atomic_exchange_n(&core->is_hidden_logged, true, __ATOMIC_RELAXED)) {
        uct_cuda_info("%s; using one path", uct_cuda_plan_reason_str(reason));
    }

    uct_cuda_mp_log_one_path(request, reason);
}

uct_cuda_plan_reason_t uct_cuda_mp_admit(uct_cuda_mp_engine_t *super,
                                         const uct_cuda_run_request_t *request)
{
    uct_cuda_mp_core_t *core            = uct_cuda_mp_core(super);
    const bool is_host                  = uct_cuda_run_request_is_host(request);
    uct_cuda_mp_thresholds_t thresholds = {
        .is_off         = (core->config.enable == UCT_CUDA_PLAN_NO),
        .min_size       = __atomic_load_n(is_host ? &super->host_min_size :
                                                    &super->min_size,
                                          __ATOMIC_RELAXED),
        .alone_min_size = __atomic_load_n(&core->kinds[is_host].alone_min_size,
                                          __ATOMIC_RELAXED),
        .behind_min_size =
                __atomic_load_n(is_host ? &super->host_behind_min_size :
                                          &super->behind_min_size,
                                __ATOMIC_RELAXED)
    };
    uct_cuda_plan_reason_t reason;

    if (uct_cuda_end_has_index(request->src_end) &&
        uct_cuda_end_has_index(request->dst_end)) {
        uct_cuda_mp_traffic_peek(core->traffic, request->src_end,
                                 request->dst_end, &thresholds.queued,
                                 &thresholds.window);
    }

    reason = uct_cuda_mp_admit_by(&thresholds, request);
    if ((reason == UCT_CUDA_PLAN_ADMITTED) && end_has_two_contexts(request)) {
        reason = UCT_CUDA_PLAN_NO_TWO_CONTEXTS;
    } else if ((reason == UCT_CUDA_PLAN_NO_SMALL) &&
               uct_cuda_plan_is_below_min_size(&core->config, request->size)) {
        reason = UCT_CUDA_PLAN_NO_MIN_SIZE;
    }

    if (reason != UCT_CUDA_PLAN_ADMITTED) {
        log_reason(core, request, reason);
    } else {
        uct_cuda_debug("%zu bytes: admitted to planning, %u transfers ahead",
                       request->size, thresholds.queued);
    }

    return reason;
}
