/* SPDX-License-Identifier: BSD-3-Clause */
/* What streams and graphs cost, from the model's constants. */
#include <uct/cuda/run/graph_cost.h>

#include <stddef.h>


/* Beside the model's processor: between the rows, and on behind the last one,
 * in straight lines */
static double graph_cost(const uct_cuda_mp_model_t *model, unsigned copies,
                         size_t column)
{
    const uct_cuda_mp_graph_cost_t *row = model->graphs;
    double from, to;

    while ((row < &model->graphs[UCT_CUDA_MP_GRAPH_COSTS - 2]) &&
           (copies > row[1].nodes)) {
        ++row;
    }

    from = *(const double*)((const char*)&row[0] + column);
    to   = *(const double*)((const char*)&row[1] + column);
    return (from + (to - from) * (copies - row[0].nodes) /
                           (row[1].nodes - row[0].nodes)) *
           model->graph * model->submit_copy /
           uct_cuda_mp_model_builtin.submit_copy;
}

#define GRAPH_COST(_model, _copies, _column) \
    graph_cost(_model, _copies, offsetof(uct_cuda_mp_graph_cost_t, _column))

double uct_cuda_mp_cost_streams(const uct_cuda_mp_model_t *model,
                                unsigned copies)
{
    /* Events and waits of staged copies come on top */
    return copies * model->submit_copy;
}

double uct_cuda_mp_cost_retarget(const uct_cuda_mp_model_t *model,
                                 unsigned copies)
{
    return GRAPH_COST(model, copies, launch) +
           GRAPH_COST(model, copies, update);
}

double uct_cuda_mp_cost_build(const uct_cuda_mp_model_t *model, unsigned copies)
{
    return GRAPH_COST(model, copies, add) +
           GRAPH_COST(model, copies, instantiate) +
           GRAPH_COST(model, copies, first_launch);
}

unsigned uct_cuda_mp_cost_build_threshold(const uct_cuda_mp_model_t *model,
                                          unsigned copies)
{
    double saved = uct_cuda_mp_cost_streams(model, copies) -
                   uct_cuda_mp_cost_retarget(model, copies);
    double extra = uct_cuda_mp_cost_build(model, copies);

    if (saved * (UCT_CUDA_MP_COST_NEVER - 1) <= extra) {
        return UCT_CUDA_MP_COST_NEVER;
    }

    return 1 + (unsigned)(extra / saved);
}

/* Have streams submitted each round of chunks in half of the time that links
 * take for the round before? */
static bool streams_keep_up(const uct_cuda_mp_plan_t *plan,
                            const uct_cuda_mp_model_t *model)
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

bool uct_cuda_mp_cost_wants_graph(const uct_cuda_mp_plan_t *plan,
                                  const uct_cuda_mp_config_t *config,
                                  const uct_cuda_mp_model_t *model,
                                  unsigned *threshold_p)
{
    uct_cuda_mp_ternary_t graph = config->graph;
    unsigned threshold          = 0;

    /* The user's word, then the tuning table's, then what it costs */
    if (graph == UCT_CUDA_MP_AUTO) {
        graph = (uct_cuda_mp_ternary_t)plan->graph;
    }

    if ((graph == UCT_CUDA_MP_NO) || (plan->num_steps < 2) ||
        uct_cuda_mp_plan_is_host(plan)) {
        return false;
    }

    if ((config->graph == UCT_CUDA_MP_AUTO) &&
        (config->graph_cache_size == 0)) {
        /* Each transfer would build one */
        threshold = UCT_CUDA_MP_COST_NEVER;
    } else if ((graph == UCT_CUDA_MP_AUTO) && streams_keep_up(plan, model)) {
        threshold = UCT_CUDA_MP_COST_NEVER;
    } else if (graph == UCT_CUDA_MP_AUTO) {
        threshold = uct_cuda_mp_cost_build_threshold(model, plan->num_steps);
        if ((threshold != UCT_CUDA_MP_COST_NEVER) &&
            (plan->seconds > uct_cuda_mp_cost_build(model, plan->num_steps))) {
            threshold = 1; /* built behind the copies, at no cost in time */
        }
    }

    if (threshold_p != NULL) {
        *threshold_p = threshold;
    }

    return threshold != UCT_CUDA_MP_COST_NEVER;
}
