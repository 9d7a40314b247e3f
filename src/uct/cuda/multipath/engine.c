/* SPDX-License-Identifier: BSD-3-Clause */
/* Creation and destruction of engines, and accounting of plain copies. */
#include <uct/cuda/multipath/core.h>

#include <uct/cuda/base/clock.h>
#include <uct/cuda/base/host/host_cpus.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/trace.h>
#include <uct/cuda/node/ledger.h>

#include <stdlib.h>


/* Set with the link of a counted large copy; no link has this bit */
#define COUNTED_LARGE 0x8000u


static ucs_status_t engine_create_executors(uct_cuda_mp_core_t *core)
{
    ucs_status_t status;

    status = uct_cuda_run_rsc_create(&core->rsc);
    if (status != UCS_OK) {
        return status;
    }

    status = uct_cuda_run_graphs_create(core->rsc, &core->graphs);
    if (status != UCS_OK) {
        goto err_destroy_rsc;
    }

    status = uct_cuda_run_streams_create(core->rsc, &core->streams);
    if (status != UCS_OK) {
        goto err_destroy_graphs;
    }

    return UCS_OK;

err_destroy_graphs:
    uct_cuda_run_graphs_destroy(core->graphs);
err_destroy_rsc:
    uct_cuda_run_rsc_destroy(core->rsc);
    return status;
}

static void engine_destroy_executors(uct_cuda_mp_core_t *core)
{
    uct_cuda_run_graphs_destroy(core->graphs);
    uct_cuda_run_streams_destroy(core->streams);
    uct_cuda_run_rsc_destroy(core->rsc);
}

ucs_status_t uct_cuda_mp_engine_create(const uct_cuda_plan_config_t *config,
                                       uct_cuda_mp_engine_t **engine_p)
{
    size_t min_size = UCT_CUDA_PLAN_LEARN_MIN_SIZE;
    ucs_status_t status;
    char error[256];
    uct_cuda_mp_core_t *core;
    int kind;

    status = uct_cuda_plan_config_check(config, error, sizeof(error));
    if (status != UCS_OK) {
        uct_cuda_error("%s", error);
        return status;
    }

    core = calloc(1, sizeof(*core));
    if (core == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    status = engine_create_executors(core);
    if (status != UCS_OK) {
        goto err_free;
    }

    status = uct_cuda_mp_traffic_create(config->ledger, &core->traffic);
    if (status != UCS_OK) {
        goto err_destroy_executors;
    }

    if (config->start != UCT_CUDA_PLAN_START_WAIT) {
        status = uct_cuda_run_background_create(core->rsc, &core->background);
        if (status != UCS_OK) {
            goto err_destroy_traffic;
        }
    }

    uct_cuda_trace_start(config->trace);
    pthread_mutex_init(&core->lock, NULL);
    core->config    = *config;
    core->was_alone = true;
    if (config->enable == UCT_CUDA_PLAN_NO) {
        min_size = SIZE_MAX;
    } else if (config->min_size != UCT_CUDA_PLAN_SIZE_AUTO) {
        min_size = config->min_size;
    }

    for (kind = 0; kind < UCT_CUDA_MP_NUM_KINDS; ++kind) {
        uct_cuda_mp_core_set_min_size(core, kind, min_size);
    }

    *engine_p = &core->super;
    return UCS_OK;

err_destroy_traffic:
    uct_cuda_mp_traffic_destroy(core->traffic);
err_destroy_executors:
    engine_destroy_executors(core);
err_free:
    free(core);
    return status;
}

void uct_cuda_mp_engine_destroy(uct_cuda_mp_engine_t *super)
{
    uct_cuda_mp_core_t *core = uct_cuda_mp_core(super);
    uct_cuda_mp_transfer_t *transfer;

    while (!LIST_EMPTY(&core->active)) {
        uct_cuda_mp_release(LIST_FIRST(&core->active));
    }

    if (core->background != NULL) {
        uct_cuda_run_background_destroy(core->background);
    }

    uct_cuda_mp_summary_log(&core->summary);
    uct_cuda_trace_flush();
    uct_cuda_mp_core_drop_lost(core);
    engine_destroy_executors(core);
    uct_cuda_mp_traffic_destroy(core->traffic);
    while ((transfer = LIST_FIRST(&core->free)) != NULL) {
        LIST_REMOVE(transfer, list);
        free(transfer);
    }

    pthread_mutex_destroy(&core->lock);
    free(core->tuning);
    free(core);
}

void uct_cuda_mp_count(uct_cuda_mp_engine_t *super)
{
    (void)__atomic_add_fetch(&uct_cuda_mp_core(super)->summary.messages, 1,
                             __ATOMIC_RELAXED);
}

void uct_cuda_mp_share_cpus(uct_cuda_mp_engine_t *super)
{
    /* ns; processors belong to the process, not to an engine */
    static uint64_t next;
    const uint64_t now = uct_cuda_now_ns();
    uint32_t pids[UCT_CUDA_NODE_LEDGER_MAX_SLOTS];

    if (now >= __atomic_load_n(&next, __ATOMIC_RELAXED)) {
        __atomic_store_n(&next, now + UCT_CUDA_NODE_LEDGER_STALE,
                         __ATOMIC_RELAXED);
        uct_cuda_host_cpus_set_others(
                pids, uct_cuda_mp_traffic_others(
                              uct_cuda_mp_core(super)->traffic, pids,
                              UCT_CUDA_NODE_LEDGER_MAX_SLOTS));
    }
}

uint16_t uct_cuda_mp_single_begin(uct_cuda_mp_engine_t *super,
                                  uct_cuda_end_t src, uct_cuda_end_t dst,
                                  size_t size)
{
    const bool is_host = uct_cuda_plan_ends_host(src, dst);
    uct_cuda_mp_flow_t flow;
    bool is_large;

    if (!uct_cuda_end_has_index(src) || !uct_cuda_end_has_index(dst) ||
        uct_cuda_end_equal(src, dst)) {
        return UCT_CUDA_MP_NOT_COUNTED;
    }

    is_large = is_host ? uct_cuda_mp_may_split_host(super, size) :
                         (size >= UCT_CUDA_MP_LARGE_MIN_SIZE);
    uct_cuda_mp_flow_single(uct_cuda_plan_link(src, dst), size, is_large,
                            &flow);
    uct_cuda_mp_traffic_begin(uct_cuda_mp_core(super)->traffic, &flow);
    return flow.links[0] | (is_large ? COUNTED_LARGE : 0);
}

void uct_cuda_mp_single_end(uct_cuda_mp_engine_t *super, uint16_t counted)
{
    uct_cuda_mp_flow_t flow;

    if (counted == UCT_CUDA_MP_NOT_COUNTED) {
        return;
    }

    uct_cuda_mp_flow_single(counted & ~COUNTED_LARGE, 0,
                            (counted & COUNTED_LARGE) != 0, &flow);
    uct_cuda_mp_traffic_end(uct_cuda_mp_core(super)->traffic, &flow);
}
