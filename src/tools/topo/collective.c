/* SPDX-License-Identifier: BSD-3-Clause */
/* --plan COLLECTIVE: print the plan of a collective, its bound by the links,
   and the times of other algorithms. */
#include "tool.h"

#include <uct/cuda/check/collective_bound.h>
#include <uct/cuda/check/collective_check.h>
#include <uct/cuda/check/print.h>
#include <uct/cuda/collective/options.h>

#include <stdlib.h>
#include <string.h>


#define GIGA 1e9
#define MEGA 1e6

/* Largest number of steps that are proved before a plan is shown; the proof's
   time grows with its square */
#define MAX_PROVED 8000


/* Read a list "0,1" without repeated GPUs. */
static void read_gpus(const char *name, const char *text,
                      uct_cuda_plan_coll_request_t *request)
{
    const char *next = text;
    unsigned rank;
    long gpu;
    char *end;

    do {
        gpu = strtol(next, &end, 10);
        if ((end == next) || ((*end != '\0') && (*end != ',')) || (gpu < 0) ||
            (gpu >= request->topo->num_gpus)) {
            ucx_mp_tool_die(UCX_MP_TOOL_USAGE,
                            "--plan %s: '%s': expected GPUs from 0 to "
                            "%d, separated by commas",
                            name, text, request->topo->num_gpus - 1);
        }

        for (rank = 0; rank < request->num_ranks; ++rank) {
            if (request->gpus[rank] == gpu) {
                ucx_mp_tool_die(UCX_MP_TOOL_USAGE,
                                "--plan %s: '%s' has GPU %ld twice", name,
                                text, gpu);
            }
        }
        request->gpus[request->num_ranks++] = (int)gpu;
        next                                = end + 1;
    } while (*end == ',');
}

/* Read the switch as the module does. */
static int read_multipath(void)
{
    static const char name[] = "UCX_CUDA_IPC_COLLECTIVES_MULTIPATH";
    const char *value        = getenv(name);
    uct_cuda_plan_ternary_t multipath = UCT_CUDA_PLAN_AUTO;

    if ((value != NULL) && !uct_cuda_plan_ternary_parse(value, &multipath)) {
        ucx_mp_tool_die(UCX_MP_TOOL_USAGE, "%s: '%s' is neither y, n nor auto",
                        name, value);
    }
    return (multipath == UCT_CUDA_PLAN_AUTO) ? UCT_CUDA_PLAN_COLL_AUTO :
                                               (int)multipath;
}

static int read_algorithm(void)
{
    static const char name[] = "UCX_CUDA_IPC_COLLECTIVES_ALGORITHM";
    const char *value        = getenv(name);
    int algorithm            = UCT_CUDA_PLAN_COLL_AUTO;

    if ((value != NULL) &&
        (uct_cuda_coll_algorithm_parse(value, &algorithm) != UCS_OK)) {
        ucx_mp_tool_die(UCX_MP_TOOL_USAGE, "%s: there is no algorithm '%s'",
                        name, value);
    }
    return algorithm;
}

void ucx_mp_topo_collective_make(const uct_cuda_topo_t *topo,
                                 const ucx_mp_topo_options_t *options,
                                 ucx_mp_topo_collective_t *collective)
{
    uct_cuda_plan_coll_request_t *request = &collective->request;
    uct_cuda_plan_tuning_t *tuning = NULL;
    uct_cuda_plan_config_t config;
    char error[512];
    ucs_status_t status;
    unsigned parts;
    int gpu;

    ucx_mp_tool_config_read(&config);
    /* If ranks see fewer GPUs than the table's node has, use the built-in
       constants without a message, as the module does */
    (void)uct_cuda_plan_tuning_get(config.tuning_file, topo, error,
                                   sizeof(error), &tuning);
    memset(collective, 0, sizeof(*collective));
    collective->transfers = *uct_cuda_plan_tuning_model(tuning);
    free(tuning);
    request->transfers   = &collective->transfers;
    request->topo        = topo;
    request->kind        = options->kind;
    request->is_in_place = (options->kind == UCT_CUDA_COLL_KIND_ALLREDUCE);
    request->max_scratch = UCT_CUDA_PLAN_COLL_MAX_SCRATCH;
    request->algorithm   = read_algorithm();
    request->chunks      = UCT_CUDA_PLAN_COLL_AUTO;
    request->multipath   = read_multipath();
    if (options->gpus != NULL) {
        read_gpus(options->collective, options->gpus, request);
    } else {
        for (gpu = 0; gpu < topo->num_gpus; ++gpu) {
            request->gpus[request->num_ranks++] = gpu;
        }
    }

    parts            = uct_cuda_coll_kind(options->kind)->has_blocks ?
                               request->num_ranks :
                               1;
    request->element = (options->size % (parts * sizeof(float)) == 0) ?
                               sizeof(float) :
                               1;
    request->count   = options->size / request->element / parts;

    status = uct_cuda_plan_coll_choose(request, NULL, &collective->choice);
    if (status == UCS_OK) {
        status = uct_cuda_plan_coll_make(request, NULL, &collective->choice,
                                         NULL, &collective->plan);
    }
    if (status == UCS_ERR_UNSUPPORTED) {
        ucx_mp_tool_die(UCX_MP_TOOL_FAILED,
                        "--plan %s: some GPUs cannot reach each other; the "
                        "collective goes through the host",
                        options->collective);
    } else if (status != UCS_OK) {
        ucx_mp_tool_die(UCX_MP_TOOL_FAILED,
                        "--plan %s: this size has no plan, or memory is "
                        "exhausted",
                        options->collective);
    }

    if ((collective->plan.list.num_steps <= MAX_PROVED) &&
        (uct_cuda_plan_coll_check(&collective->plan, error, sizeof(error)) !=
         UCS_OK)) {
        ucx_mp_tool_die(UCX_MP_TOOL_FAILED,
                        "internal error: the planner made an invalid plan; "
                        "please report it: %s",
                        error);
    }
}

/* Find the bound for copies of the request, even if no copy is needed. */
static void find_bound(const uct_cuda_plan_coll_request_t *request,
                       bool use_host, uct_cuda_coll_bound_t *bound)
{
    uct_cuda_coll_bound(request->topo, request->gpus, request->num_ranks,
                        request->multipath != 0, use_host, bound);
}

static void print_bound(const ucx_mp_topo_collective_t *collective,
                        bool use_host, FILE *stream)
{
    const double bytes = (double)collective->plan.bytes;
    uct_cuda_coll_bound_t bound;

    find_bound(&collective->request, use_host, &bound);
    if (bound.rate > 0) {
        fprintf(stream, "  %-21s %9.1f us  %6.1f GB/s = %.1f GB/s between ",
                use_host ? "bound by links, host" : "bound by links",
                bytes / bound.rate * MEGA, bound.rate / GIGA,
                bound.links / GIGA);
        uct_cuda_coll_bound_print_groups(&bound, stream);
        fprintf(stream, " / (2 x %u); this plan %.1f %%\n",
                bound.num_groups - 1,
                100 * bytes / collective->plan.seconds / bound.rate);
    }
}

/* Print the best plan with an algorithm, with or without copies over other
   GPUs. The scratch memory may have required more chunks */
static void print_other(const uct_cuda_plan_coll_request_t *request,
                        const uct_cuda_plan_coll_choice_t *chosen, FILE *stream)
{
    uct_cuda_plan_coll_choice_t choice;
    uct_cuda_plan_coll_t plan;

    if ((uct_cuda_plan_coll_choose(request, NULL, &choice) != UCS_OK) ||
        ((int)choice.algorithm != request->algorithm) ||
        (choice.multipath != (request->multipath == 1)) ||
        (uct_cuda_plan_coll_make(request, NULL, &choice, NULL, &plan) !=
         UCS_OK)) {
        return;
    }

    fprintf(stream, "  %-21s %9.1f us  %6.1f GB/s, chunks %u%s%s%s\n",
            uct_cuda_plan_coll_algorithm_str((unsigned)request->algorithm),
            choice.seconds * MEGA, plan.bytes / choice.seconds / GIGA,
            plan.chunks,
            (choice.kernels &&
             (choice.algorithm != UCT_CUDA_PLAN_COLL_ONE_KERNEL)) ?
                ", kernels alone" :
                "",
            choice.multipath ? ", also over other GPUs" : "",
            ((choice.algorithm == chosen->algorithm) &&
             (choice.multipath == chosen->multipath)) ?
                "  <- chosen" :
                "");
    uct_cuda_plan_coll_release(&plan);
}

static void print_others(const ucx_mp_topo_collective_t *collective,
                         FILE *stream)
{
    const uct_cuda_plan_coll_choice_t *chosen = &collective->choice;
    uct_cuda_plan_coll_request_t request      = collective->request;

    for (request.algorithm = 0;
         request.algorithm < UCT_CUDA_PLAN_COLL_ALGORITHM_LAST;
         ++request.algorithm) {
        request.multipath = 0;
        print_other(&request, chosen, stream);
        if ((collective->request.multipath != 0) &&
            ((int)request.num_ranks < request.topo->num_gpus)) {
            request.multipath = 1;
            print_other(&request, chosen, stream);
        }
    }
}

void ucx_mp_topo_collective_text(const ucx_mp_topo_options_t *options,
                                 const ucx_mp_topo_collective_t *collective,
                                 FILE *stream)
{
    uct_cuda_plan_coll_print(&collective->plan, options->steps, stream);
    if (collective->plan.num_ranks > 1) {
        fprintf(stream, "by the model, of the idle node:\n");
        print_others(collective, stream);
    }
    if ((collective->plan.num_ranks > 1) &&
        (collective->plan.kind == UCT_CUDA_COLL_KIND_ALLREDUCE)) {
        print_bound(collective, false, stream);
        print_bound(collective, true, stream);
    }
}

void ucx_mp_topo_collective_json(const ucx_mp_topo_collective_t *collective,
                                 const char *name,
                                 FILE *stream)
{
    const uct_cuda_plan_coll_request_t *request = &collective->request;
    const uct_cuda_plan_coll_t *plan            = &collective->plan;
    uct_cuda_coll_bound_t bound, host;

    find_bound(request, false, &bound);
    find_bound(request, true, &host);
    fprintf(stream,
            ",\n  \"%s\": {\"ranks\": %u, \"bytes\": %llu, "
            "\"algorithm\": \"%s\", \"chunks\": %u,\n    \"kernels_alone\": "
            "%s, \"several_paths\": %s, \"steps\": %u, \"scratch\": %llu,\n"
            "    \"seconds\": %.9f",
            name, request->num_ranks, (unsigned long long)plan->bytes,
            uct_cuda_plan_coll_algorithm_str(plan->algorithm), plan->chunks,
            collective->choice.kernels ? "true" : "false",
            collective->choice.multipath ? "true" : "false",
            plan->list.num_steps, (unsigned long long)plan->scratch,
            plan->seconds);
    if (plan->kind == UCT_CUDA_COLL_KIND_ALLREDUCE) {
        fprintf(stream,
                ", \"links_allow\": %.0f, \"links_and_host_allow\": %.0f",
                bound.rate, host.rate);
    }
    fprintf(stream, "}");
}
