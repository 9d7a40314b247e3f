/* SPDX-License-Identifier: BSD-3-Clause */
/* --plan COLLECTIVE: its plan, what the links allow, and what others take. */
#include "tool.h"

#include <uct/cuda/collective/bound.h>
#include <uct/cuda/collective/plan_check.h>

#include <string.h>


#define GIGA 1e9
#define MEGA 1e6

/* Steps of plans that are proved before they are shown; the proof's time grows
 * with their square */
#define MAX_PROVED 8000


void ucx_mp_topo_collective_make(const uct_cuda_topo_t *topo,
                                 const ucx_mp_topo_options_t *options,
                                 const uct_cuda_mp_config_t *config,
                                 ucx_mp_topo_collective_t *collective)
{
    uct_cuda_coll_request_t *request = &collective->request;
    char error[512];
    ucs_status_t status;
    unsigned parts;
    int gpu;

    memset(collective, 0, sizeof(*collective));
    request->topo        = topo;
    request->num_ranks   = (unsigned)topo->num_gpus;
    request->kind        = options->kind;
    parts                = uct_cuda_coll_kind_has_blocks(options->kind) ?
                                   request->num_ranks :
                                   1;
    request->element     = (options->size % (parts * sizeof(float)) == 0) ?
                                   sizeof(float) :
                                   1;
    request->count       = options->size / request->element / parts;
    request->is_in_place = (options->kind == UCT_CUDA_COLL_KIND_ALLREDUCE);
    request->max_scratch = UCT_CUDA_COLL_MAX_SCRATCH;
    request->algorithm   = UCT_CUDA_COLL_AUTO;
    request->chunks      = UCT_CUDA_COLL_AUTO;
    request->multipath   = (config->enable == UCT_CUDA_MP_NO) ?
                                   0 :
                                   UCT_CUDA_COLL_AUTO;
    for (gpu = 0; gpu < topo->num_gpus; ++gpu) {
        request->gpus[gpu] = gpu;
    }

    status = uct_cuda_coll_choose(request, &collective->choice);
    if (status == UCS_OK) {
        status = uct_cuda_coll_make(request, &collective->choice,
                                              &collective->plan);
    }
    if (status == UCS_ERR_UNSUPPORTED) {
        ucx_mp_topo_die(UCX_MP_TOPO_FAILED,
                        "--plan %s: not all GPUs can be reached from each "
                        "other; it goes through the host",
                        options->collective);
    } else if (status != UCS_OK) {
        ucx_mp_topo_die(UCX_MP_TOPO_FAILED,
                        "--plan %s: there is no plan for that size, or no "
                        "memory for it",
                        options->collective);
    }

    if ((collective->plan.num_steps <= MAX_PROVED) &&
        (uct_cuda_coll_plan_check(&collective->plan, error, sizeof(error)) !=
         UCS_OK)) {
        ucx_mp_topo_die(UCX_MP_TOPO_FAILED,
                        "the planner's plan is unsound, please report it: %s",
                        error);
    }
}

static void print_bound(const ucx_mp_topo_collective_t *collective,
                        bool use_host, FILE *stream)
{
    const uct_cuda_coll_request_t *request = &collective->request;
    const double bytes                     = (double)collective->plan.bytes;
    uct_cuda_coll_bound_t bound;

    uct_cuda_coll_bound(request->topo, request->gpus, request->num_ranks,
                        use_host, &bound);
    if (bound.rate > 0) {
        fprintf(stream, "  %-21s %9.1f us  %6.1f GB/s = %.1f GB/s between ",
                use_host ? "links and host allow" : "links allow",
                bytes / bound.rate * MEGA, bound.rate / GIGA,
                bound.links / GIGA);
        uct_cuda_coll_bound_print_groups(&bound, request->gpus,
                                         request->num_ranks, stream);
        fprintf(stream, " / (2 x %u); this plan %.1f %%\n",
                bound.num_groups - 1,
                100 * bytes / collective->plan.seconds / bound.rate);
    }
}

static void print_rings(const ucx_mp_topo_collective_t *collective,
                        FILE *stream)
{
    const uct_cuda_coll_request_t *request = &collective->request;
    const double bytes                     = (double)collective->plan.bytes;
    double rate, through;

    rate = uct_cuda_coll_bound_rings(request->topo, request->gpus,
                                     request->num_ranks, &through);
    if (rate > 0) {
        fprintf(stream,
                "  %-21s %9.1f us  %6.1f GB/s = %.1f GB/s through any cut x %u "
                "/ (2 x %u); this plan %.2fx\n",
                "rings at their best", bytes / rate * MEGA, rate / GIGA,
                through / GIGA, request->num_ranks, request->num_ranks - 1,
                bytes / rate / collective->plan.seconds);
    }
}

static void print_others(const ucx_mp_topo_collective_t *collective,
                         FILE *stream)
{
    uct_cuda_coll_request_t request = collective->request;
    const double bytes              = (double)collective->plan.bytes;
    uct_cuda_coll_choice_t choice;

    for (request.algorithm = 0;
         request.algorithm < UCT_CUDA_COLL_ALGORITHM_LAST;
         ++request.algorithm) {
        if ((uct_cuda_coll_choose(&request, &choice) == UCS_OK) &&
            ((int)choice.algorithm == request.algorithm)) {
            fprintf(stream, "  %-21s %9.1f us  %6.1f GB/s, chunks %u%s%s%s\n",
                    uct_cuda_coll_algorithm_str((unsigned)request.algorithm),
                    choice.seconds * MEGA, bytes / choice.seconds / GIGA,
                    choice.chunks,
                    (choice.kernels &&
                     (choice.algorithm != UCT_CUDA_COLL_ONE_KERNEL)) ?
                            ", kernels alone" :
                            "",
                    choice.multipath ? ", copies over several paths" : "",
                    (choice.algorithm == collective->choice.algorithm) ?
                            "  <- chosen" :
                            "");
        }
    }
}

void ucx_mp_topo_collective_text(const ucx_mp_topo_options_t *options,
                                 const ucx_mp_topo_collective_t *collective,
                                 FILE *stream)
{
    uct_cuda_coll_plan_print(&collective->plan, options->steps, stream);
    if (collective->plan.num_ranks > 1) {
        fprintf(stream, "by the model, of the whole and idle node:\n");
        print_others(collective, stream);
    }
    if ((collective->plan.num_ranks > 1) &&
        (collective->plan.kind == UCT_CUDA_COLL_KIND_ALLREDUCE)) {
        print_bound(collective, false, stream);
        print_bound(collective, true, stream);
        print_rings(collective, stream);
    }
}

void ucx_mp_topo_collective_json(const ucx_mp_topo_collective_t *collective,
                                 const char *name,
                                 FILE *stream)
{
    const uct_cuda_coll_request_t *request = &collective->request;
    const uct_cuda_coll_plan_t *plan       = &collective->plan;
    uct_cuda_coll_bound_t bound, host;
    double rings;

    uct_cuda_coll_bound(request->topo, request->gpus, request->num_ranks,
                        false, &bound);
    uct_cuda_coll_bound(request->topo, request->gpus, request->num_ranks, true,
                        &host);
    rings = uct_cuda_coll_bound_rings(request->topo, request->gpus,
                                      request->num_ranks, NULL);
    fprintf(stream,
            ",\n  \"%s\": {\"ranks\": %u, \"bytes\": %llu, "
            "\"algorithm\": \"%s\", \"chunks\": %u,\n    \"kernels_alone\": "
            "%s, \"several_paths\": %s, \"steps\": %u, \"scratch\": %llu,\n"
            "    \"seconds\": %.9f",
            name, request->num_ranks, (unsigned long long)plan->bytes,
            uct_cuda_coll_algorithm_str(plan->algorithm), plan->chunks,
            collective->choice.kernels ? "true" : "false",
            collective->choice.multipath ? "true" : "false", plan->num_steps,
            (unsigned long long)plan->scratch, plan->seconds);
    if (plan->kind == UCT_CUDA_COLL_KIND_ALLREDUCE) {
        fprintf(stream,
                ", \"links_allow\": %.0f, \"links_and_host_allow\": %.0f, "
                "\"rings\": %.0f",
                bound.rate, host.rate, rings);
    }
    fprintf(stream, "}");
}
