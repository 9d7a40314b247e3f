/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether a transfer has a plan, as configured or by the model. */
#include <uct/cuda/plan/transfer_planner.h>

#include <uct/cuda/plan/reason.h>
#include <uct/cuda/plan/transfer_paths.h>
#include <uct/cuda/plan/transfer_steps.h>


#define ALIGN UCT_CUDA_PLAN_ALIGN

/* Smallest transfer striped by force, without asking the model */
#define FORCED_MIN_SIZE (1ul << 20)


size_t uct_cuda_plan_piece_size(size_t size, size_t largest)
{
    size_t pieces = (size + largest - 1) / largest;
    size_t piece  = (size + pieces - 1) / pieces;

    if (pieces > 1) {
        piece = (piece + ALIGN - 1) & ~(ALIGN - 1);
    }

    return (piece > largest) ? largest : piece;
}

size_t uct_cuda_plan_max_size(const uct_cuda_plan_config_t *config)
{
    uint64_t most = UCT_CUDA_PLAN_MAX_CHUNKS * uct_cuda_plan_slot_size(config);

    return (most < UCT_CUDA_PLAN_MAX_SIZE) ? most :
                                                UCT_CUDA_PLAN_MAX_SIZE;
}

bool uct_cuda_plan_is_below_min_size(const uct_cuda_plan_config_t *config,
                                     size_t size)
{
    if (config->min_size != UCT_CUDA_PLAN_SIZE_AUTO) {
        return size < config->min_size;
    }

    return (config->enable == UCT_CUDA_PLAN_YES) && (size < FORCED_MIN_SIZE);
}

/* Check the conditions known before looking at paths */
static uct_cuda_plan_reason_t
find_refusal(const uct_cuda_plan_knowledge_t *know, uct_cuda_end_t src,
             uct_cuda_end_t dst, size_t size)
{
    const uct_cuda_plan_config_t *config = know->config;

    if (config->enable == UCT_CUDA_PLAN_NO) {
        return UCT_CUDA_PLAN_NO_OFF;
    } else if (!uct_cuda_plan_are_joined(know, src, dst)) {
        return UCT_CUDA_PLAN_NO_LINK;
    } else if (uct_cuda_plan_is_below_min_size(config, size)) {
        return UCT_CUDA_PLAN_NO_MIN_SIZE;
    } else if ((size < 2 * ALIGN) ||
               (size > uct_cuda_plan_max_size(know->config))) {
        return UCT_CUDA_PLAN_NO_GAIN;
    }

    return UCT_CUDA_PLAN_ADMITTED;
}

/* Split as configured, or best. @return false: use a plain copy */
static bool
plan_split(const uct_cuda_plan_knowledge_t *know, uct_cuda_plan_t *plan)
{
    const uct_cuda_plan_config_t *config = know->config;
    bool rotates                         = false;
    uct_cuda_plan_problem_t problem;
    uct_cuda_plan_split_t split;

    uct_cuda_plan_problem_init(&problem, know, plan->src, plan->dst,
                               plan->size);
    plan->numa = (int16_t)problem.query.numa;

    /* time of a plain copy, for comparison */
    if (problem.is_unlinked) {
        problem.single_seconds = uct_cuda_plan_model_unlinked(&problem.query);
    } else {
        (void)uct_cuda_plan_problem_add(&problem, uct_cuda_end_none());
        uct_cuda_plan_problem_split_all(&problem, &split);
        problem.single_seconds = uct_cuda_plan_model_single(&problem.query,
                                                            &split);
    }
    plan->single_seconds = problem.single_seconds;
    if (config->num_paths == 0) {
        rotates = uct_cuda_plan_problem_choose(&problem, &split);
    } else if (uct_cuda_plan_problem_set_paths(&problem)) {
        uct_cuda_plan_problem_split_all(&problem, &split);
    } else {
        return false;
    }

    if ((split.count == 0) ||
        ((config->enable == UCT_CUDA_PLAN_AUTO) &&
         !uct_cuda_plan_problem_is_worthwhile(&problem, &split))) {
        return false;
    }

    plan->seconds = split.seconds;
    uct_cuda_plan_write(&problem.query, &split, plan);
    return rotates || (plan->num_paths != 1) ||
           !uct_cuda_end_is_none(plan->paths[0].via);
}

void uct_cuda_plan_make(const uct_cuda_plan_knowledge_t *know,
                        uct_cuda_end_t src, uct_cuda_end_t dst, size_t size,
                        uct_cuda_plan_t *plan)
{
    uct_cuda_plan_init(src, dst, know->remote, size, plan);
    plan->is_pulled = know->is_pulled;
    plan->slot_size = uct_cuda_plan_slot_size(know->config);
    plan->reason    = (uint8_t)find_refusal(know, src, dst, size);
    if (plan->reason != UCT_CUDA_PLAN_ADMITTED) {
        return;
    }

    if (!plan_split(know, plan) || (plan->num_paths == 0)) {
        plan->reason    = UCT_CUDA_PLAN_NO_GAIN;
        plan->num_paths = 0;
        plan->num_steps = 0;
    }
}
