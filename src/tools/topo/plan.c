/* SPDX-License-Identifier: BSD-3-Clause */
/* --plan: the plan that a transfer would get, and what others would take. */
#include "tool.h"

#include <uct/cuda/multipath/admit.h>
#include <uct/cuda/multipath/checker.h>
#include <uct/cuda/multipath/cost.h>
#include <uct/cuda/multipath/planner.h>

#include <stdlib.h>
#include <string.h>


#define GIGA 1e9
#define MEGA 1e6

#define VAR_PREFIX "UCX_CUDA_IPC_"

/* Sets of paths that are compared: all of them while there are few */
#define MAX_SETS       128
#define MAX_SETS_SHOWN 12

extern char **environ;


/* A set of paths with what the model says of it */
typedef struct {
    unsigned           count;
    uct_cuda_mp_path_t paths[UCT_CUDA_MP_MAX_PATHS];
    double             seconds; /* 0: no plan, since no gain */
} path_set_t;


static bool is_var(const char *name, size_t length)
{
    const uct_cuda_mp_config_var_t *var;

    for (var = uct_cuda_mp_config_vars; var->name != NULL; ++var) {
        if ((strlen(var->name) == length) &&
            (strncmp(var->name, name, length) == 0)) {
            return true;
        }
    }

    return false;
}

void ucx_mp_topo_config_read(uct_cuda_mp_config_t *config)
{
    const uct_cuda_mp_config_var_t *var;
    const char *value, *name;
    char error[512];
    char full[64];
    char **env;
    size_t length;

    uct_cuda_mp_config_init(config);
    for (var = uct_cuda_mp_config_vars; var->name != NULL; ++var) {
        snprintf(full, sizeof(full), VAR_PREFIX "%s", var->name);
        value = getenv(full);
        if ((value != NULL) &&
            (uct_cuda_mp_config_set(config, var->name, value, error,
                                    sizeof(error)) != UCS_OK)) {
            ucx_mp_topo_die(UCX_MP_TOPO_USAGE, "%s: %s", full, error);
        }
    }

    if (uct_cuda_mp_config_check(config, error, sizeof(error)) != UCS_OK) {
        ucx_mp_topo_die(UCX_MP_TOPO_USAGE, VAR_PREFIX "MULTIPATH variables: %s",
                        error);
    }

    for (env = environ; *env != NULL; ++env) {
        if (strncmp(*env, VAR_PREFIX "MULTIPATH",
                    strlen(VAR_PREFIX "MULTIPATH")) == 0) {
            name   = *env + strlen(VAR_PREFIX);
            length = strcspn(name, "=");
            if (!is_var(name, length)) {
                fprintf(stderr, "ucx_mp_topo: " VAR_PREFIX
                        "%.*s is no variable, and is passed over\n",
                        (int)length, name);
            }
        }
    }
}

static void make(const uct_cuda_topo_t *topo,
                 const uct_cuda_mp_config_t *config,
                 const uct_cuda_mp_tuning_t *tuning,
                 const ucx_mp_topo_options_t *options, size_t size,
                 uct_cuda_mp_plan_t *plan)
{
    /* With a ledger all processes' transfers are known; here there are none */
    const uct_cuda_mp_load_t idle      = {.is_known = config->ledger[0] !=
                                                      '\0'};
    const uct_cuda_mp_knowledge_t know = {
        .topo = topo, .config = config, .load = &idle, .tuning = tuning
    };

    uct_cuda_mp_plan_make(&know, options->src, options->dst, size, plan);
}

/* Transfers beyond a plan's size go in equal pieces; this is one of them */
static size_t piece_size(const uct_cuda_mp_config_t *config, size_t size,
                         size_t *count_p)
{
    size_t most = uct_cuda_mp_plan_max_size(config);

    *count_p = (size + most - 1) / most;
    return (size + *count_p - 1) / *count_p;
}

void ucx_mp_topo_plan_make(const uct_cuda_topo_t *topo,
                           const ucx_mp_topo_options_t *options,
                           ucx_mp_topo_plan_t *plan)
{
    uct_cuda_mp_tuning_t *tuning = NULL;
    char error[512];

    if (uct_cuda_mp_tuning_get(plan->config.tuning_file, topo, error,
                               sizeof(error), &tuning) != UCS_OK) {
        fprintf(stderr, "ucx_mp_topo: the tuning table is not used: %s\n",
                error);
        tuning = NULL;
    }

    plan->piece = piece_size(&plan->config, options->size, &plan->pieces);
    plan->model = *uct_cuda_mp_tuning_model(tuning);
    make(topo, &plan->config, tuning, options, plan->piece, &plan->plan);
    free(tuning);
    if ((plan->plan.num_paths > 0) &&
        (uct_cuda_mp_plan_check(&plan->plan, error, sizeof(error)) !=
         UCS_OK)) {
        ucx_mp_topo_die(UCX_MP_TOPO_FAILED,
                        "the planner's plan is unsound, please report it: %s",
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
                                 uct_cuda_mp_path_str(&set->paths[i], name,
                                                      sizeof(name)));
    }

    return buffer;
}

static void set_cost(const uct_cuda_topo_t *topo,
                     const ucx_mp_topo_options_t *options,
                     const ucx_mp_topo_plan_t *plan, path_set_t *set)
{
    static uct_cuda_mp_plan_t scratch;
    uct_cuda_mp_config_t config = plan->config;

    config.enable     = UCT_CUDA_MP_AUTO;
    config.host       = UCT_CUDA_MP_AUTO;
    config.min_size   = 0;
    config.num_shares = 0;
    config.num_paths  = set->count;
    memcpy(config.paths, set->paths, sizeof(config.paths));
    make(topo, &config, NULL, options, plan->piece, &scratch);
    set->seconds = (set->count == 1)        ? plan->plan.single_seconds :
                   (scratch.num_paths == 0) ? 0 :
                                              scratch.seconds;
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

/* Between two GPUs, or the host and one; none has one to itself */
static bool has_link(const uct_cuda_topo_t *topo, uct_cuda_end_t from,
                     uct_cuda_end_t to)
{
    return !uct_cuda_end_equal(from, to) &&
           (uct_cuda_mp_model_bandwidth(topo, uct_cuda_mp_lane(from, to)) > 0);
}

/* Every set of the direct path with some of the relays and perhaps the host;
 * with many relays only the first so many of them, by bandwidth */
static unsigned list_sets(const uct_cuda_topo_t *topo,
                          const ucx_mp_topo_options_t *options,
                          path_set_t *sets)
{
    const uct_cuda_mp_path_t direct = {UCT_CUDA_MP_ROUTE_DIRECT, 0};
    const uct_cuda_mp_path_t host   = {UCT_CUDA_MP_ROUTE_HOST, 0};
    const uct_cuda_end_t memory     = uct_cuda_end_host();
    const int start                 = uct_cuda_end_device(
            uct_cuda_mp_plan_gpu_end(options->src, options->dst));
    uct_cuda_end_t relay;
    int relays[UCT_CUDA_MAX_GPUS];
    unsigned count = 0;
    unsigned total = 0;
    unsigned mask, i, with_host;
    path_set_t *set;
    int gpu, n;

    for (n = 1; n < topo->num_gpus; ++n) {
        gpu   = (start + n) % topo->num_gpus;
        relay = uct_cuda_end_gpu(gpu);
        if (has_link(topo, options->src, relay) &&
            has_link(topo, relay, options->dst) &&
            (count < UCT_CUDA_MP_MAX_PATHS - 2)) {
            relays[count++] = gpu;
        }
    }

    for (mask = 0; mask < (1u << count); ++mask) {
        for (with_host = 0; with_host < 2; ++with_host) {
            if (with_host && !(has_link(topo, options->src, memory) &&
                               has_link(topo, memory, options->dst))) {
                continue;
            }

            set                       = &sets[total++];
            set->count                = 0;
            set->paths[set->count++] = direct;
            for (i = 0; i < count; ++i) {
                if (mask & (1u << i)) {
                    set->paths[set->count].route = UCT_CUDA_MP_ROUTE_GPU;
                    set->paths[set->count++].gpu = relays[i];
                }
            }
            if (with_host) {
                set->paths[set->count++] = host;
            }
        }
    }

    return total;
}

static void print_sets(const uct_cuda_topo_t *topo,
                       const ucx_mp_topo_options_t *options,
                       const ucx_mp_topo_plan_t *plan, FILE *stream)
{
    path_set_t sets[MAX_SETS];
    unsigned count, hidden, i;
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
        } else if ((i < MAX_SETS_SHOWN) || (sets[i].count == 1)) {
            fprintf(stream, "  %9.1f us  %6.1f GB/s  %5.2fx  %s\n",
                    sets[i].seconds * MEGA,
                    plan->piece / sets[i].seconds / GIGA,
                    plan->plan.single_seconds / sets[i].seconds, name);
        }
    }

    if (hidden > 0) {
        fprintf(stream, "  no sure gain over one path: %u other set%s of "
                        "paths\n",
                hidden, (hidden > 1) ? "s" : "");
    }
}


/* ------------------------------------------------------------ why this plan */

/* What a message would be told, with nothing ahead of it */
static uct_cuda_mp_reason_t find_reason(const ucx_mp_topo_options_t *options,
                                        const ucx_mp_topo_plan_t *plan)
{
    const uct_cuda_mp_thresholds_t thresholds = {
        .is_off = (plan->config.enable == UCT_CUDA_MP_NO)
    };
    const uct_cuda_mp_request_t request       = {
        .src_end = options->src,
        .dst_end = options->dst,
        .size    = options->size
    };
    const uct_cuda_mp_reason_t reason = uct_cuda_mp_admit_by(&thresholds,
                                                             &request);

    return (reason == UCT_CUDA_MP_ADMITTED) ?
                   (uct_cuda_mp_reason_t)plan->plan.reason :
                   reason;
}

static void print_reasons(const ucx_mp_topo_options_t *options,
                          const ucx_mp_topo_plan_t *plan, FILE *stream)
{
    const uct_cuda_mp_config_t *config = &plan->config;
    const uct_cuda_mp_reason_t reason  = find_reason(options, plan);
    const uct_cuda_mp_config_var_t *var;
    const char *value;
    char full[64];

    if (reason != UCT_CUDA_MP_ADMITTED) {
        fprintf(stream, "why: %s\n", uct_cuda_mp_reason_str(reason));
    } else if (plan->plan.is_tuned) {
        fprintf(stream, "why: the tuning table has a line for it\n");
    } else {
        fprintf(stream, "why: %s\n",
                (config->num_shares > 0) ? "paths and shares are given" :
                (config->num_paths > 0)  ? "the paths are given, their shares "
                                           "are the model's" :
                (config->enable == UCT_CUDA_MP_YES) ?
                                           "UCX_CUDA_IPC_MULTIPATH is y: every "
                                           "path there is" :
                                           "the least time by the model");
    }

    for (var = uct_cuda_mp_config_vars; var->name != NULL; ++var) {
        snprintf(full, sizeof(full), VAR_PREFIX "%s", var->name);
        value = getenv(full);
        if (value != NULL) {
            fprintf(stream, "     %s=%s\n", full, value);
        }
    }

    if ((reason == UCT_CUDA_MP_NO_OFF) || (reason == UCT_CUDA_MP_NO_LINK)) {
        return;
    }

    if (config->ledger[0] != '\0') {
        fprintf(stream, "     on an idle node; what other processes move is "
                        "reckoned with by the node's ledger\n");
    } else if ((config->num_paths == 0) &&
               (config->host == UCT_CUDA_MP_AUTO) &&
               !uct_cuda_mp_plan_is_host(&plan->plan)) {
        fprintf(stream, "     no host path: without a ledger nobody knows "
                        "whether the other direction uses it\n");
    }
}

static const char *executor_str(const ucx_mp_topo_plan_t *plan)
{
    unsigned threshold;

    if ((plan->plan.num_paths == 0) ||
        !uct_cuda_mp_cost_wants_graph(&plan->plan, &plan->config, &plan->model,
                                      &threshold)) {
        return "streams";
    }

    return (threshold == 0) ? "graph" : "auto";
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

    uct_cuda_mp_plan_print(&plan->plan, options->steps, stream);
    if (plan->plan.num_paths > 0) {
        print_executor(plan, stream);
    }
    print_reasons(options, plan, stream);
    if (plan->plan.single_seconds > 0) {
        print_sets(topo, options, plan, stream);
    }
}

/* A GPU's ordinal; -1 is host memory */
static int json_end(uct_cuda_end_t end)
{
    return uct_cuda_end_is_host(end) ? -1 : uct_cuda_end_device(end);
}

void ucx_mp_topo_plan_json(const ucx_mp_topo_plan_t *plan, FILE *stream)
{
    const uct_cuda_mp_plan_path_t *path;
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
                uct_cuda_mp_path_str(&path->path, name, sizeof(name)),
                (unsigned long long)path->bytes, path->chunks,
                (unsigned long long)path->chunk, path->slots);
    }
    fprintf(stream, "]}");
}
