/* SPDX-License-Identifier: BSD-3-Clause */
/* Print a plan's summary, and one line per step. */
#include "print.h"



#define GIGA 1e9
#define MEGA 1e6


static void print_waits(const uct_cuda_plan_steps_t *list,
                        const uct_cuda_plan_step_t *step, FILE *stream)
{
    uint32_t w;

    for (w = 0; w < step->num_waits; ++w) {
        fprintf(stream, "%s%u", (w == 0) ? ", after " : " ",
                uct_cuda_plan_step_waits(list, step)[w]);
    }
    fprintf(stream, "\n");
}

static void print_transfer_steps(const uct_cuda_plan_t *plan, FILE *stream)
{
    const uct_cuda_plan_steps_t list = uct_cuda_plan_list(plan);
    const uct_cuda_plan_step_t *step;
    char from[16], to[16], places[256];
    uint32_t i;

    for (i = 0; i < list.num_steps; ++i) {
        step = &list.steps[i];
        fprintf(stream, "  %4u  %5s > %-5s  %llu bytes  %s", i,
                uct_cuda_end_str(uct_cuda_plan_link_from(step->queue), from,
                                 sizeof(from)),
                uct_cuda_end_str(uct_cuda_plan_link_to(step->queue), to,
                                 sizeof(to)),
                (unsigned long long)step->bytes,
                uct_cuda_plan_places_str(plan, step, places,
                                         sizeof(places)));
        print_waits(&list, step, stream);
    }
}

void uct_cuda_plan_print(const uct_cuda_plan_t *plan, bool steps,
                         FILE *stream)
{
    const uct_cuda_plan_path_share_t *path;
    char from[16], to[16], name[16];
    unsigned i;

    fprintf(stream, "%s -> %s, %llu bytes: ",
            uct_cuda_end_str(plan->src, from, sizeof(from)),
            uct_cuda_end_str(plan->dst, to, sizeof(to)),
            (unsigned long long)plan->size);
    if (plan->num_paths == 0) {
        fprintf(stream, "one plain copy\n");
        return;
    }

    fprintf(stream,
            "%u paths, %u copies; model: %.1f us, %.1f GB/s, %.2fx of one "
            "path\n",
            plan->num_paths, plan->num_steps, plan->seconds * MEGA,
            plan->size / plan->seconds / GIGA,
            plan->single_seconds / plan->seconds);

    for (i = 0; i < plan->num_paths; ++i) {
        path = &plan->paths[i];
        fprintf(stream, "  %-7s %5.1f %%  %llu bytes",
                uct_cuda_plan_path_str(path->via, name, sizeof(name)),
                100. * path->bytes / plan->size,
                (unsigned long long)path->bytes);
        if (path->slots > 0) {
            fprintf(stream, " as %u chunks of %llu through %u slots",
                    path->chunks, (unsigned long long)path->chunk,
                    path->slots);
        }
        fprintf(stream, "\n");
    }

    if (steps) {
        print_transfer_steps(plan, stream);
    }
}

/* Return the factor of NCCL's tests from algorithm bandwidth to bus
   bandwidth. */
static double bus_factor(const uct_cuda_plan_coll_t *plan)
{
    const double share = (plan->num_ranks - 1.) / plan->num_ranks;

    if (plan->kind == UCT_CUDA_COLL_KIND_ALLREDUCE) {
        return 2 * share;
    }
    return uct_cuda_coll_kind(plan->kind)->has_blocks ? share : 1;
}

static void
print_collective_steps(const uct_cuda_plan_coll_t *plan, FILE *stream)
{
    const uct_cuda_plan_step_t *step;
    char places[2048];
    uint32_t i;

    for (i = 0; i < plan->list.num_steps; ++i) {
        step = &plan->list.steps[i];
        fprintf(stream, "  %4u  rank %u queue %u  %s%llu bytes  %s", i,
                step->rank, step->queue,
                (step->type == UCT_CUDA_PLAN_STEP_COPY) ? "" : "reduce ",
                (unsigned long long)step->bytes,
                uct_cuda_plan_coll_places_str(plan, step, places,
                                              sizeof(places)));
        print_waits(&plan->list, step, stream);
    }
}

void uct_cuda_plan_coll_print(const uct_cuda_plan_coll_t *plan, bool steps,
                              FILE *stream)
{
    uint32_t copies = 0;
    uint32_t i;

    for (i = 0; i < plan->list.num_steps; ++i) {
        copies += (plan->list.steps[i].type == UCT_CUDA_PLAN_STEP_COPY);
    }

    fprintf(stream, "%s, %u ranks, %llu bytes%s: ",
            uct_cuda_coll_kind(plan->kind)->name, plan->num_ranks,
            (unsigned long long)plan->bytes,
            plan->is_in_place ? " in place" : "");
    if (plan->list.num_steps == 0) {
        fprintf(stream, "nothing to do\n");
        return;
    }

    fprintf(stream,
            "%s, chunks per shard: %u; %u copies, %u kernels, %llu bytes of "
            "scratch memory per rank\n",
            uct_cuda_plan_coll_algorithm_str(plan->algorithm), plan->chunks,
            copies, plan->list.num_steps - copies,
            (unsigned long long)plan->scratch);
    for (i = 0; i < plan->num_relays; ++i) {
        fprintf(stream, "%s GPU %u", (i == 0) ? "also over" : " and",
                plan->relays[i]);
    }
    if (plan->num_relays > 0) {
        fprintf(stream, ", %llu bytes of scratch memory each\n",
                (unsigned long long)plan->relay_scratch);
    }
    if (plan->seconds > 0) {
        fprintf(stream,
                "model: %.1f us, %.1f GB/s, bus bandwidth %.1f GB/s\n",
                plan->seconds * MEGA, plan->bytes / plan->seconds / GIGA,
                plan->bytes / plan->seconds / GIGA * bus_factor(plan));
    }

    if (steps) {
        print_collective_steps(plan, stream);
    }
}
