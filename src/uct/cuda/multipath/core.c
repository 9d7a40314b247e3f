/* SPDX-License-Identifier: BSD-3-Clause */
/* Knowledge of an engine about the node, and decisions based on it. */
#include <uct/cuda/multipath/core.h>

#include <uct/cuda/base/log.h>
#include <uct/cuda/base/topo.h>

#include <ucs/sys/math.h>

#include <string.h>


void uct_cuda_mp_core_set_min_size(uct_cuda_mp_core_t *core, int kind,
                                   size_t size)
{
    __atomic_store_n((kind == UCT_CUDA_MP_KIND_HOST) ?
                             &core->super.host_min_size :
                             &core->super.min_size,
                     size, __ATOMIC_RELAXED);
}

/* The program may have reset a device since the last transfer */
void uct_cuda_mp_core_drop_lost(uct_cuda_mp_core_t *core)
{
    const uint32_t lost = uct_cuda_run_rsc_lost(core->rsc);

    if (lost != 0) {
        uct_cuda_run_graphs_lose(core->executors.graphs, lost);
        uct_cuda_run_rsc_lose(core->rsc, lost);
    }
}

void uct_cuda_mp_core_planner_input(const uct_cuda_mp_core_t *core, int kind,
                                    const uct_cuda_plan_load_t *load,
                                    uct_cuda_plan_knowledge_t *know_p)
{
    memset(know_p, 0, sizeof(*know_p));
    know_p->topo        = core->topo;
    know_p->config      = &core->config;
    know_p->load        = load;
    know_p->tuning      = core->tuning;
    know_p->constraints = &core->kinds[kind].constraints;
    know_p->absent      = core->absent;
}

void uct_cuda_mp_core_update_min_size(uct_cuda_mp_core_t *core, int kind)
{
    static const char *names[] = {"", " from or to host memory"};
    uct_cuda_plan_knowledge_t know;
    uct_cuda_plan_min_sizes_t sizes;
    size_t least;

    uct_cuda_mp_core_planner_input(core, kind, &core->load, &know);
    uct_cuda_plan_min_sizes(&know, kind == UCT_CUDA_MP_KIND_HOST,
                            &core->plan, &sizes);
    core->kinds[kind].relays_min_size = sizes.by_relays;
    __atomic_store_n(&core->kinds[kind].alone_min_size, sizes.alone,
                     __ATOMIC_RELAXED);
    __atomic_store_n((kind == UCT_CUDA_MP_KIND_HOST) ?
                             &core->super.host_behind_min_size :
                             &core->super.behind_min_size,
                     sizes.behind, __ATOMIC_RELAXED);
    least = ucs_min(sizes.alone, sizes.behind);
    if ((least == SIZE_MAX) && (kind == UCT_CUDA_MP_KIND_GPU)) {
        uct_cuda_info("several paths gain nothing between the %d GPUs of this "
                      "process; using one path",
                      core->topo->num_gpus);
    } else {
        uct_cuda_debug("transfers%s from %zu bytes on use several paths, "
                       "behind others from %zu",
                       names[kind], sizes.alone, sizes.behind);
    }

    uct_cuda_mp_core_set_min_size(core, kind, least);
}

/* Return whether transfers use one path while a thread probes the node */
static bool is_probed_meanwhile(const uct_cuda_plan_config_t *config)
{
    return (config->start == UCT_CUDA_PLAN_START_BACKGROUND) ||
           ((config->start == UCT_CUDA_PLAN_START_AUTO) &&
            (config->enable == UCT_CUDA_PLAN_AUTO));
}

bool uct_cuda_mp_core_learn(uct_cuda_mp_core_t *core)
{
    const uct_cuda_topo_t *topo;
    char error[512];
    int kind;

    if (core->is_learned) {
        return true;
    }

    if (is_probed_meanwhile(&core->config) &&
        !uct_cuda_run_background_knows_node(core->background)) {
        return false;
    }

    core->is_learned = true;
    topo             = uct_cuda_topo_get();
    if (topo == NULL) {
        for (kind = 0; kind < UCT_CUDA_MP_NUM_KINDS; ++kind) {
            uct_cuda_mp_core_set_min_size(core, kind, SIZE_MAX);
        }
        return true;
    }

    if (uct_cuda_plan_tuning_get(core->config.tuning_file, topo, error,
                                 sizeof(error), &core->tuning) != UCS_OK) {
        uct_cuda_warn("cannot use the tuning table, using the built-in model: "
                      "%s", error);
    } else if (error[0] != '\0') {
        uct_cuda_warn("%s", error);
    }

    core->topo = topo;
    /* find out whether there is a ledger, which decides on the paths allowed */
    uct_cuda_mp_traffic_load(core->traffic, uct_cuda_end_gpu(0),
                             uct_cuda_end_gpu(0), &core->load);
    for (kind = 0; kind < UCT_CUDA_MP_NUM_KINDS; ++kind) {
        uct_cuda_mp_core_update_min_size(core, kind);
    }

    return true;
}
