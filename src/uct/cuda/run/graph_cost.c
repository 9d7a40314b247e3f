/* SPDX-License-Identifier: BSD-3-Clause */
/* Costs of streams and graphs, from the model's constants. */
#include <uct/cuda/run/graph_cost.h>


static double row_cost(const uct_cuda_plan_graph_cost_t *row, bool is_new)
{
    return is_new ? row->add + row->instantiate + row->first_launch :
                    row->update + row->launch;
}

/* Interpolate between the model's rows, extrapolate behind the last one, and
 * scale to this processor */
double uct_cuda_run_cost_graph(const uct_cuda_plan_model_t *model,
                               unsigned copies, bool is_new)
{
    const uct_cuda_plan_graph_cost_t *row = model->graphs;
    double from, to;

    while ((row < &model->graphs[UCT_CUDA_PLAN_GRAPH_COSTS - 2]) &&
           (copies > row[1].nodes)) {
        ++row;
    }

    from = row_cost(&row[0], is_new);
    to   = row_cost(&row[1], is_new);
    return (from + (to - from) * (copies - row[0].nodes) /
                           (row[1].nodes - row[0].nodes)) *
           model->graph * model->submit_copy /
           uct_cuda_plan_model_builtin.submit_copy;
}

/* Return whether streams submit each round of chunks in half of the time that
 * links need for the round before, and the plan has a direct path */
static bool streams_keep_up(const uct_cuda_plan_t *plan,
                            const uct_cuda_plan_model_t *model)
{
    unsigned staged = 0;
    unsigned rounds = 1;
    unsigned p;

    for (p = 0; p < plan->num_paths; ++p) {
        if (plan->paths[p].slots > 0) {
            ++staged;
            rounds = (plan->paths[p].chunks > rounds) ? plan->paths[p].chunks :
                                                        rounds;
        }
    }

    return (staged < plan->num_paths) &&
           (plan->seconds >= 2 * rounds * staged * model->submit_chunk);
}

unsigned uct_cuda_run_cost_threshold(const uct_cuda_plan_t *plan,
                                     const uct_cuda_plan_config_t *config,
                                     const uct_cuda_plan_model_t *model)
{
    const unsigned copies = plan->num_steps;
    double saved, extra;

    if ((config->graph == UCT_CUDA_PLAN_NO) || (copies < 2) ||
        uct_cuda_plan_is_host(plan)) {
        return UCT_CUDA_RUN_COST_NEVER;
    }

    if (config->graph == UCT_CUDA_PLAN_YES) {
        return 0;
    } else if (streams_keep_up(plan, model)) {
        return UCT_CUDA_RUN_COST_NEVER;
    }

    /* events and waits of staged copies in streams are not counted */
    saved = copies * model->submit_copy -
            uct_cuda_run_cost_graph(model, copies, false);
    extra = uct_cuda_run_cost_graph(model, copies, true);
    if (saved * (UCT_CUDA_RUN_COST_NEVER - 1) <= extra) {
        return UCT_CUDA_RUN_COST_NEVER;
    }

    return (plan->seconds > extra) ? 1 : 1 + (unsigned)(extra / saved);
}
