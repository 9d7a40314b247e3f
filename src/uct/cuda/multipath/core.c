/* SPDX-License-Identifier: BSD-3-Clause */
/* Knowledge of an engine about the node, and decisions based on it. */
#include <uct/cuda/multipath/core.h>

#include <uct/cuda/base/log.h>
#include <uct/cuda/base/topo.h>

#include <ucs/sys/math.h>

#include <stdio.h>
#include <string.h>


#define MIB 1048576.


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
        uct_cuda_run_graphs_lose(core->graphs, lost);
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

/* Log from which sizes on transfers use several paths, alone and behind
 * others; SIZE_MAX: from none */
static void log_min_sizes(int kind, const uct_cuda_plan_min_sizes_t *sizes)
{
    static const char *names[] = {"", " from or to host memory"};

    if (sizes->alone == SIZE_MAX) {
        uct_cuda_debug("transfers%s behind others from %zu bytes on use "
                       "several paths, none alone",
                       names[kind], sizes->behind);
    } else if (sizes->behind == SIZE_MAX) {
        uct_cuda_debug("transfers%s from %zu bytes on use several paths, none "
                       "behind others",
                       names[kind], sizes->alone);
    } else {
        uct_cuda_debug("transfers%s from %zu bytes on use several paths, "
                       "behind others from %zu",
                       names[kind], sizes->alone, sizes->behind);
    }
}

/* Compute the smallest sizes of a kind of transfers, with core->plan for
 * trials */
static void find_min_sizes(uct_cuda_mp_core_t *core, int kind,
                           uct_cuda_plan_min_sizes_t *sizes)
{
    uct_cuda_plan_knowledge_t know;

    uct_cuda_mp_core_planner_input(core, kind, &core->load, &know);
    uct_cuda_plan_min_sizes(&know, kind == UCT_CUDA_MP_KIND_HOST, &core->plan,
                            sizes);
}

static void set_min_sizes(uct_cuda_mp_core_t *core, int kind,
                          const uct_cuda_plan_min_sizes_t *sizes)
{
    const size_t least = ucs_min(sizes->alone, sizes->behind);

    core->kinds[kind].relays_min_size = sizes->by_relays;
    __atomic_store_n(&core->kinds[kind].alone_min_size, sizes->alone,
                     __ATOMIC_RELAXED);
    __atomic_store_n((kind == UCT_CUDA_MP_KIND_HOST) ?
                             &core->super.host_behind_min_size :
                             &core->super.behind_min_size,
                     sizes->behind, __ATOMIC_RELAXED);
    if ((least == SIZE_MAX) && (kind == UCT_CUDA_MP_KIND_GPU)) {
        uct_cuda_info("several paths gain nothing between the %d GPUs of this "
                      "process; using one path",
                      core->topo->num_gpus);
    } else if (least != SIZE_MAX) {
        log_min_sizes(kind, sizes);
    }

    uct_cuda_mp_core_set_min_size(core, kind, least);
}

void uct_cuda_mp_core_update_min_size(uct_cuda_mp_core_t *core, int kind)
{
    uct_cuda_plan_min_sizes_t sizes;

    find_min_sizes(core, kind, &sizes);
    set_min_sizes(core, kind, &sizes);
}

/* Return whether transfers use one path while a thread probes the node */
static bool is_probed_meanwhile(const uct_cuda_plan_config_t *config)
{
    return (config->start == UCT_CUDA_PLAN_START_BACKGROUND) ||
           ((config->start == UCT_CUDA_PLAN_START_AUTO) &&
            (config->enable == UCT_CUDA_PLAN_AUTO));
}

/* Read the tuning table. One that is ignored costs a sentence: a warning,
 * unless it is for GPUs of this node that are hidden from this process. */
static void read_tuning(uct_cuda_mp_core_t *core)
{
    ucs_status_t status;
    char error[512];

    status = uct_cuda_plan_tuning_get(core->config.tuning_file, core->topo,
                                      error, sizeof(error), &core->tuning);
    if (status == UCS_ERR_NO_DEVICE) {
        uct_cuda_info("the tuning table is not used: %s", error);
    } else if (status != UCS_OK) {
        uct_cuda_warn("cannot use the tuning table, using the built-in model: "
                      "%s", error);
    } else if (error[0] != '\0') {
        uct_cuda_warn("%s", error);
    }
}

/* Probe the node, in a thread or at the first transfer: what takes long.
 * Transfers use none of the members set here before is_learned. */
static void probe(void *arg)
{
    uct_cuda_mp_core_t *core = arg;
    int kind;

    core->is_probed = true;
    core->topo      = uct_cuda_topo_get();
    if (core->topo == NULL) {
        return;
    }

    read_tuning(core);
    /* find out whether there is a ledger, which decides on the paths allowed */
    uct_cuda_mp_traffic_load(core->traffic, uct_cuda_end_gpu(0),
                             uct_cuda_end_gpu(0), &core->load);
    for (kind = 0; kind < UCT_CUDA_MP_NUM_KINDS; ++kind) {
        find_min_sizes(core, kind, &core->probed_sizes[kind]);
    }
}

bool uct_cuda_mp_core_learn(uct_cuda_mp_core_t *core)
{
    int kind;

    if (core->is_learned) {
        return true;
    }

    if (is_probed_meanwhile(&core->config) &&
        !uct_cuda_run_background_knows_node(core->background, probe, core)) {
        return false;
    }

    if (!core->is_probed) {
        probe(core);
    }

    core->is_learned = true;
    for (kind = 0; kind < UCT_CUDA_MP_NUM_KINDS; ++kind) {
        if (core->topo == NULL) {
            uct_cuda_mp_core_set_min_size(core, kind, SIZE_MAX);
        } else {
            set_min_sizes(core, kind, &core->probed_sizes[kind]);
        }
    }

    return true;
}

void uct_cuda_mp_summary_add(uct_cuda_mp_summary_t *summary,
                             const uct_cuda_plan_t *plan)
{
    uct_cuda_end_t via;
    unsigned i;

    for (i = 0; i < plan->num_paths; ++i) {
        via = plan->paths[i].via;
        if (uct_cuda_end_is_none(via)) {
            summary->direct += plan->paths[i].bytes;
        } else {
            summary->via[uct_cuda_end_index(via)] += plan->paths[i].bytes;
        }
    }

    /* a piece without a plan has no times */
    if (plan->seconds > 0) {
        summary->seconds        += plan->seconds;
        summary->single_seconds += plan->single_seconds;
    }
}

void uct_cuda_mp_summary_log(const uct_cuda_mp_summary_t *summary)
{
    char text[400] = "";
    size_t used    = 0;
    char name[16];
    int i;

    if (summary->messages == 0) {
        return;
    } else if ((summary->split == 0) || !(summary->seconds > 0)) {
        uct_cuda_info("%llu messages, none over several paths",
                      (unsigned long long)summary->messages);
        return;
    }

    for (i = 0; (i < (int)UCT_CUDA_NUM_ENDS) && (used < sizeof(text)); ++i) {
        if (summary->via[i] > 0) {
            used += (size_t)snprintf(text + used, sizeof(text) - used,
                                     ", %s %.1f",
                                     uct_cuda_end_str(uct_cuda_end_at(i), name,
                                                      sizeof(name)),
                                     (double)summary->via[i] / MIB);
        }
    }

    uct_cuda_info("%llu messages, %llu over several paths: direct %.1f%s MiB; "
                  "%.2fx of one path by the model",
                  (unsigned long long)summary->messages,
                  (unsigned long long)summary->split,
                  (double)summary->direct / MIB, text,
                  summary->single_seconds / summary->seconds);
}
