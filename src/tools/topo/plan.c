/* SPDX-License-Identifier: BSD-3-Clause */
/* --plan: print the plan of a transfer, and the times of other sets of
 * paths. */
#include "tool.h"

#include <uct/cuda/check/print.h>
#include <uct/cuda/check/transfer_check.h>
#include <uct/cuda/multipath/admit.h>
#include <uct/cuda/plan/min_sizes.h>
#include <uct/cuda/plan/transfer_paths.h>
#include <uct/cuda/plan/transfer_planner.h>
#include <uct/cuda/run/graph_cost.h>

#include <ucs/sys/math.h>

#include <stdlib.h>
#include <string.h>


#define GIGA 1e9
#define MEGA 1e6

/* Relays of the sets of paths to compare: GPUs, and memory outside the GPUs */
#define MAX_RELAYS     (UCT_CUDA_PLAN_MAX_PATHS - 1)
#define MAX_RELAY_GPUS \
    (MAX_RELAYS - (UCT_CUDA_NUM_ENDS - UCT_CUDA_MAX_GPUS))
#define MAX_SETS       (1u << MAX_RELAYS)
#define MAX_SETS_SHOWN 12


typedef struct {
    unsigned       count;
    uct_cuda_end_t ends[MAX_RELAYS];
} relays_t;


/* A set of paths with the model's results */
typedef struct {
    unsigned             count;
    /* ends at which they are staged; none: direct */
    uct_cuda_end_t       paths[UCT_CUDA_PLAN_MAX_PATHS];
    double               seconds; /* 0: no plan, since there is no gain */
    bool                 is_chosen;
    const char           *forbidden; /* reason against it, or NULL */
} path_set_t;


/* Return the load of an idle node, as a ledger without transfers reports it. */
static uct_cuda_plan_load_t idle_load(const uct_cuda_plan_config_t *config)
{
    return (uct_cuda_plan_load_t){.is_known = (config->ledger[0] != '\0'),
                                .uncrossed  = UINT64_MAX};
}

/* Return the reason by which the module decides about a message before
   planning, with no messages ahead of it. */
static uct_cuda_plan_reason_t admit(const uct_cuda_plan_knowledge_t *know,
                                    const ucx_mp_topo_options_t *options,
                                    ucx_mp_topo_plan_t *plan)
{
    uct_cuda_mp_thresholds_t thresholds = {
        .is_off = (plan->config.enable == UCT_CUDA_PLAN_NO)
    };
    const uct_cuda_run_request_t request = {
        .src_end = options->src,
        .dst_end = options->dst,
        .size    = options->size
    };
    uct_cuda_plan_min_sizes_t sizes;

    if (!thresholds.is_off) {
        uct_cuda_plan_min_sizes(know, uct_cuda_run_request_is_host(&request),
                                &plan->plan, &sizes);
        thresholds.alone_min_size  = sizes.alone;
        thresholds.behind_min_size = sizes.behind;
        thresholds.min_size        = ucs_min(sizes.alone, sizes.behind);
    }

    plan->min_size = thresholds.alone_min_size;
    return uct_cuda_mp_admit_by(&thresholds, &request);
}

/* Read the tuning table of the configuration, or return NULL; the caller frees
   it. */
static uct_cuda_plan_tuning_t *
tuning_read(const uct_cuda_plan_config_t *config, const uct_cuda_topo_t *topo)
{
    uct_cuda_plan_tuning_t *tuning = NULL;
    char error[512];

    if (uct_cuda_plan_tuning_get(config->tuning_file, topo, error,
                                 sizeof(error), &tuning) != UCS_OK) {
        fprintf(stderr, "ucx_mp_topo: the tuning table is not used: %s\n",
                error);
        return NULL;
    }
    if (error[0] != '\0') {
        fprintf(stderr, "ucx_mp_topo: %s\n", error);
    }
    return tuning;
}

void ucx_mp_topo_plan_make(const uct_cuda_topo_t *topo,
                           const ucx_mp_topo_options_t *options,
                           ucx_mp_topo_plan_t *plan)
{
    const uct_cuda_plan_load_t idle = idle_load(&plan->config);
    uct_cuda_plan_tuning_t *tuning  = tuning_read(&plan->config, topo);
    uct_cuda_plan_knowledge_t know  = {
        .topo = topo, .config = &plan->config, .load = &idle, .tuning = tuning
    };
    uct_cuda_plan_reason_t reason;
    char error[512];

    plan->model  = *uct_cuda_plan_tuning_model(tuning);
    plan->piece  = uct_cuda_plan_piece_size(
            options->size, uct_cuda_plan_max_size(&plan->config));
    plan->pieces = (options->size + plan->piece - 1) / plan->piece;
    reason       = admit(&know, options, plan);
    uct_cuda_plan_make(&know, options->src, options->dst, plan->piece,
                       &plan->plan);
    free(tuning);
    /* A variable or the hardware decides: use the plan's own reason */
    if ((reason != UCT_CUDA_PLAN_ADMITTED) &&
        ((plan->plan.num_paths > 0) ||
         (plan->plan.reason == UCT_CUDA_PLAN_NO_GAIN))) {
        plan->plan.reason    = (uint8_t)reason;
        plan->plan.num_paths = 0;
        plan->plan.num_steps = 0;
    }

    if ((plan->plan.num_paths > 0) &&
        (uct_cuda_plan_check(&plan->plan, error, sizeof(error)) !=
         UCS_OK)) {
        ucx_mp_tool_die(UCX_MP_TOOL_FAILED,
                        "internal error: the planner made an invalid plan; "
                        "please report it: %s",
                        error);
    }
}


/* ------------------------------------------------------ other sets of paths */

static const char *set_name(const path_set_t *set, char *buffer, size_t size)
{
    size_t used = 0;
    char name[16];
    unsigned i;

    buffer[0] = '\0';
    for (i = 0; (i < set->count) && (used < size); ++i) {
        used += (size_t)snprintf(buffer + used, size - used, "%s%s",
                                 (i > 0) ? "," : "",
                                 uct_cuda_plan_path_str(set->paths[i], name,
                                                        sizeof(name)));
    }

    return buffer;
}

/* Return whether there is a plan for this size, below the smallest planned
   message. */
static bool is_below(const ucx_mp_topo_plan_t *plan)
{
    return (plan->plan.reason == UCT_CUDA_PLAN_NO_SMALL) ||
           (plan->plan.reason == UCT_CUDA_PLAN_NO_ALONE);
}

/* Return whether it is a plain copy */
static bool is_single(const path_set_t *set)
{
    return (set->count == 1) && uct_cuda_end_is_none(set->paths[0]);
}

/* Return whether the plan has these paths, in any order. */
static bool is_chosen(const uct_cuda_plan_t *plan, const path_set_t *set)
{
    unsigned found = 0;
    unsigned i, j;

    for (i = 0; i < set->count; ++i) {
        for (j = 0; j < plan->num_paths; ++j) {
            found += uct_cuda_end_equal(set->paths[i], plan->paths[j].via);
        }
    }

    return (found == set->count) &&
           ((plan->num_paths == found) ||
            ((plan->num_paths == 0) && is_single(set)));
}

static const char *
find_forbidden(const ucx_mp_topo_plan_t *plan, const path_set_t *set)
{
    const uct_cuda_plan_config_t *config = &plan->config;
    unsigned gpu_paths = 0;
    bool has_host      = false;
    unsigned i;

    for (i = 0; i < set->count; ++i) {
        has_host  |= uct_cuda_end_is_host(set->paths[i]);
        gpu_paths += !uct_cuda_end_is_host(set->paths[i]);
    }

    return ((set->count > 1) && is_below(plan)) ?
                   "not below that size" :
           (has_host && (config->host == UCT_CUDA_PLAN_NO)) ?
                   "not by " UCX_MP_TOOL_PREFIX "MULTIPATH_HOST" :
           (has_host && (config->host == UCT_CUDA_PLAN_AUTO) &&
            uct_cuda_end_is_none(set->paths[0]) &&
            (config->ledger[0] == '\0')) ?
                   "not without a ledger" :
           (gpu_paths > config->max_gpu_paths) ?
                   "not by " UCX_MP_TOOL_PREFIX "MULTIPATH_PATHS" :
                   NULL;
}

static void set_cost(const uct_cuda_topo_t *topo,
                     const ucx_mp_topo_options_t *options,
                     const ucx_mp_topo_plan_t *plan, path_set_t *set)
{
    static uct_cuda_plan_t scratch;
    const uct_cuda_plan_load_t idle      = idle_load(&plan->config);
    uct_cuda_plan_config_t config        = plan->config;
    const uct_cuda_plan_knowledge_t know = {
        .topo   = topo,
        .config = &config,
        .load   = &idle,
        .model  = &plan->model
    };

    config.enable     = UCT_CUDA_PLAN_AUTO;
    config.host       = UCT_CUDA_PLAN_AUTO;
    config.min_size   = 0;
    config.num_shares = 0;
    config.num_chunks = (config.num_chunks == 1); /* not the variable's
                                                     chunks */
    config.num_paths  = set->count;
    memcpy(config.paths, set->paths, sizeof(config.paths));
    uct_cuda_plan_make(&know, options->src, options->dst, plan->piece,
                       &scratch);
    set->forbidden = find_forbidden(plan, set);
    set->is_chosen = is_chosen(&plan->plan, set);
    /* Use the plan's own time, if the model made the plan: its paths may be in
       another order, with a slightly different time. The planner drops a path
       with less than a page, which gives another set. */
    set->seconds   = is_single(set) ? plan->plan.single_seconds :
                     (set->is_chosen && (plan->config.num_shares == 0)) ?
                                         plan->plan.seconds :
                     (scratch.num_paths == set->count) ? scratch.seconds :
                                                         0;
}

/* Return whether the planner skips a set. It tries the first few relays in one
   order. If relays add links to host memory, it takes one more relay at nearly
   no cost. */
static bool is_passed_over(const ucx_mp_topo_plan_t *plan,
                           const path_set_t *set)
{
    return (plan->plan.num_paths > 0) && (plan->config.num_paths == 0) &&
           (plan->config.enable == UCT_CUDA_PLAN_AUTO) &&
           (set->seconds < plan->plan.seconds);
}

static int set_compare(const void *a, const void *b)
{
    const path_set_t *x = a;
    const path_set_t *y = b;

    if ((x->seconds == 0) || (y->seconds == 0)) {
        return (x->seconds == 0) - (y->seconds == 0);
    }

    return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

/* Return whether there is a link between two ends, one of them a GPU; no end
   has a link to itself. */
static bool has_link(const uct_cuda_topo_t *topo, uct_cuda_end_t from,
                     uct_cuda_end_t to)
{
    return !uct_cuda_end_equal(from, to) &&
           (uct_cuda_end_is_gpu(from) || uct_cuda_end_is_gpu(to)) &&
           (uct_cuda_topo_link(topo, from, to)->bandwidth > 0);
}

/* Add an end to the relays if messages can be staged there and there are fewer
   than `most`. */
static void add_relay(const uct_cuda_topo_t *topo,
                      const ucx_mp_topo_options_t *options, uct_cuda_end_t via,
                      unsigned most, relays_t *relays)
{
    if ((relays->count < most) && has_link(topo, options->src, via) &&
        has_link(topo, via, options->dst)) {
        relays->ends[relays->count++] = via;
    }
}

/* List the direct path, or the driver's copy without peer access; and every set
   of some relays, with the direct path if there is one. Relays are GPUs, with
   many only the first ones, and behind them memory outside the GPUs. */
static unsigned list_sets(const uct_cuda_topo_t *topo,
                          const ucx_mp_topo_options_t *options,
                          path_set_t *sets)
{
    const int start = uct_cuda_end_device(
            uct_cuda_plan_gpu_end(options->src, options->dst));
    relays_t relays = {0};
    unsigned mask, i;
    path_set_t *set;
    int n;

    for (n = 1; n < topo->num_gpus; ++n) {
        add_relay(topo, options,
                  uct_cuda_end_gpu((start + n) % topo->num_gpus),
                  MAX_RELAY_GPUS, &relays);
    }

    for (i = UCT_CUDA_MAX_GPUS; i < UCT_CUDA_NUM_ENDS; ++i) {
        add_relay(topo, options, uct_cuda_end_at(i), MAX_RELAYS, &relays);
    }

    for (mask = 0; mask < (1u << relays.count); ++mask) {
        set        = &sets[mask];
        set->count = 0;
        if (has_link(topo, options->src, options->dst) || (mask == 0)) {
            set->paths[set->count++] = uct_cuda_end_none();
        }
        for (i = 0; i < relays.count; ++i) {
            if (mask & (1u << i)) {
                set->paths[set->count++] = relays.ends[i];
            }
        }
    }

    return 1u << relays.count;
}

static void print_sets(const uct_cuda_topo_t *topo,
                       const ucx_mp_topo_options_t *options,
                       const ucx_mp_topo_plan_t *plan, FILE *stream)
{
    path_set_t sets[MAX_SETS];
    unsigned count, hidden, i;
    const char *mark;
    char name[128];

    count = list_sets(topo, options, sets);
    for (i = 0; i < count; ++i) {
        set_cost(topo, options, plan, &sets[i]);
    }

    qsort(sets, count, sizeof(sets[0]), set_compare);
    fprintf(stream, "\nby the model%s:\n",
            (plan->pieces > 1) ? ", for one piece" : "");
    hidden = 0;
    for (i = 0; i < count; ++i) {
        set_name(&sets[i], name, sizeof(name));
        if (sets[i].seconds == 0) {
            ++hidden;
        } else if ((i < MAX_SETS_SHOWN) || (sets[i].count == 1) ||
                   sets[i].is_chosen) {
            mark = sets[i].is_chosen              ? "<- chosen" :
                   (sets[i].forbidden != NULL)    ? sets[i].forbidden :
                   is_passed_over(plan, &sets[i]) ?
                           "not tried, or within the tolerance" :
                           NULL;
            fprintf(stream, "  %9.1f us  %6.1f GB/s  %5.2fx  %s%s%s\n",
                    sets[i].seconds * MEGA,
                    plan->piece / sets[i].seconds / GIGA,
                    plan->plan.single_seconds / sets[i].seconds, name,
                    (mark != NULL) ? "  " : "", (mark != NULL) ? mark : "");
        }
    }

    if (hidden > 0) {
        fprintf(stream, "  no sure gain over one path: %u other set%s of "
                        "paths\n",
                hidden, (hidden > 1) ? "s" : "");
    }
}

static bool takes_host_path(const uct_cuda_plan_t *plan)
{
    unsigned i;

    for (i = 0; i < plan->num_paths; ++i) {
        if (uct_cuda_end_is_host(plan->paths[i].via)) {
            return true;
        }
    }

    return false;
}


/* ------------------------------------------------------------ why this plan */

static void print_reasons(const uct_cuda_topo_t *topo,
                          const ucx_mp_topo_options_t *options,
                          const ucx_mp_topo_plan_t *plan, FILE *stream)
{
    const uct_cuda_plan_config_t *config = &plan->config;
    const uct_cuda_plan_reason_t reason  = (uct_cuda_plan_reason_t)
                                              plan->plan.reason;
    const uct_cuda_plan_config_var_t *var;
    const char *value;
    char full[64];

    if (reason != UCT_CUDA_PLAN_ADMITTED) {
        fprintf(stream, "why: %s\n", uct_cuda_plan_reason_str(reason));
    } else {
        fprintf(stream, "why: %s\n",
                (config->num_shares > 0) ? "paths and shares are given" :
                (config->num_paths > 0)  ? "the paths are given, their shares "
                                           "are the model's" :
                (config->enable == UCT_CUDA_PLAN_YES) ?
                                           "UCX_CUDA_IPC_MULTIPATH=y: all "
                                           "paths" :
                                           "the least time by the model");
    }

    for (var = uct_cuda_plan_config_vars; var->name != NULL; ++var) {
        snprintf(full, sizeof(full), UCX_MP_TOOL_PREFIX "%s", var->name);
        value = getenv(full);
        if (value != NULL) {
            fprintf(stream, "     %s=%s\n", full, value);
        }
    }

    if ((reason == UCT_CUDA_PLAN_NO_OFF) || (reason == UCT_CUDA_PLAN_NO_LINK)) {
        return;
    }

    if (is_below(plan) && (plan->min_size != SIZE_MAX)) {
        fprintf(stream, "     messages of this kind are planned from %zu bytes "
                        "on\n", plan->min_size);
    } else if ((reason == UCT_CUDA_PLAN_ADMITTED) &&
               (config->min_size == UCT_CUDA_PLAN_SIZE_AUTO) &&
               (options->size < UCT_CUDA_PLAN_LEARN_MIN_SIZE)) {
        fprintf(stream,
                "     after a first message of %lu bytes or more: a process "
                "probes the node only then\n",
                UCT_CUDA_PLAN_LEARN_MIN_SIZE);
    }

    if ((config->enable == UCT_CUDA_PLAN_AUTO) &&
        (config->host == UCT_CUDA_PLAN_AUTO) && (config->num_paths == 0) &&
        takes_host_path(&plan->plan) &&
        has_link(topo, options->src, options->dst)) {
        fprintf(stream,
                "     after %d such messages without traffic in the other "
                "direction; without the host path before\n",
                UCT_CUDA_PLAN_HOST_PROOF);
    }

    if (config->ledger[0] != '\0') {
        fprintf(stream, "     on an idle node; the ledger accounts for "
                        "transfers of other processes\n");
    } else if ((config->num_paths == 0) &&
               (config->host == UCT_CUDA_PLAN_AUTO) &&
               !uct_cuda_plan_is_host(&plan->plan)) {
        fprintf(stream, "     no host path: without a ledger the load of "
                        "the other direction is unknown\n");
    }
}

static const char *executor_str(const ucx_mp_topo_plan_t *plan)
{
    const unsigned threshold = uct_cuda_run_cost_threshold(&plan->plan,
                                                           &plan->config,
                                                           &plan->model);

    return ((plan->plan.num_paths == 0) ||
            (threshold == UCT_CUDA_RUN_COST_NEVER)) ? "streams" :
           (threshold == 0)                        ? "graph" :
                                                     "auto";
}

static void print_executor(const ucx_mp_topo_plan_t *plan, FILE *stream)
{
    const char *name = executor_str(plan);

    fprintf(stream, "submitted %s\n",
            (strcmp(name, "auto") == 0) ?
                    "through streams at first, as a graph when it comes again" :
            (strcmp(name, "graph") == 0) ? "as a graph" :
                                           "through streams");
}

void ucx_mp_topo_plan_text(const uct_cuda_topo_t *topo,
                           const ucx_mp_topo_options_t *options,
                           const ucx_mp_topo_plan_t *plan, FILE *stream)
{
    char from[16], to[16];

    if (plan->pieces > 1) {
        fprintf(stream, "%s -> %s, %zu bytes go in %zu pieces like this:\n",
                uct_cuda_end_str(options->src, from, sizeof(from)),
                uct_cuda_end_str(options->dst, to, sizeof(to)),
                options->size, plan->pieces);
    }

    uct_cuda_plan_print(&plan->plan, options->steps, stream);
    if (plan->plan.num_paths > 0) {
        print_executor(plan, stream);
    }
    print_reasons(topo, options, plan, stream);
    if (plan->plan.single_seconds > 0) {
        print_sets(topo, options, plan, stream);
    }
}

/* Return a GPU's ordinal; -1 for host memory. */
static int json_end(uct_cuda_end_t end)
{
    return uct_cuda_end_is_host(end) ? -1 : uct_cuda_end_device(end);
}

void ucx_mp_topo_plan_json(const ucx_mp_topo_plan_t *plan, FILE *stream)
{
    const uct_cuda_plan_path_share_t *path;
    char name[16];
    unsigned i;

    fprintf(stream, ",\n  \"plan\": {\"src\": %d, \"dst\": %d, "
                    "\"pieces\": %zu, \"bytes\": %zu, \"seconds\": %.9f, "
                    "\"single_path_seconds\": %.9f,\n    \"copies\": %u, "
                    "\"executor\": \"%s\", \"paths\": [",
            json_end(plan->plan.src), json_end(plan->plan.dst), plan->pieces,
            plan->piece,
            (plan->plan.num_paths > 0) ? plan->plan.seconds :
                                         plan->plan.single_seconds,
            plan->plan.single_seconds, plan->plan.num_steps,
            executor_str(plan));
    for (i = 0; i < plan->plan.num_paths; ++i) {
        path = &plan->plan.paths[i];
        fprintf(stream, "%s\n    {\"path\": \"%s\", \"bytes\": %llu, "
                        "\"chunks\": %u, \"chunk\": %llu, \"slots\": %u}",
                (i > 0) ? "," : "",
                uct_cuda_plan_path_str(path->via, name, sizeof(name)),
                (unsigned long long)path->bytes, path->chunks,
                (unsigned long long)path->chunk, path->slots);
    }
    fprintf(stream, "]}");
}
