/* SPDX-License-Identifier: BSD-3-Clause */
/* Submission costs, measured on 4 x H200 (driver 580.159): copy nodes over four
 * contexts in chains of four; medians. */
#include <uct/cuda/multipath/cost.h>

#include <uct/cuda/multipath/model.h>

#include <stddef.h>


#define MICRO 1e-6

/* cuMemcpyAsync; events and waits of staged copies come on top */
#define STREAM_COPY (uct_cuda_mp_model_builtin.submit_copy)

/* Two of them, with these */
#define STREAM_CHUNK (uct_cuda_mp_model_builtin.submit_chunk)


/* Of a graph's life, microseconds for all its nodes together */
typedef struct {
    double nodes;
    double add;
    double instantiate;
    double first_launch;
    double launch;
    double update;
} graph_cost_t;


static const graph_cost_t graph_costs[] = {
    {1, 0.5, 39, 14, 1.7, 4.5},
    {4, 2, 34, 13, 5.6, 3.2},
    {16, 7, 43, 22, 19, 8.2},
    {64, 19, 172, 75, 76, 32}
};

#define NUM_COSTS (sizeof(graph_costs) / sizeof(graph_costs[0]))


/* Between the rows, and on behind the last one, in straight lines */
static double between(unsigned copies, size_t column)
{
    const graph_cost_t *row = graph_costs;
    double from, to;

    while ((row < &graph_costs[NUM_COSTS - 2]) && (copies > row[1].nodes)) {
        ++row;
    }

    from = *(const double*)((const char*)&row[0] + column);
    to   = *(const double*)((const char*)&row[1] + column);
    return (from + (to - from) * (copies - row[0].nodes) /
                           (row[1].nodes - row[0].nodes)) *
           MICRO;
}

double uct_cuda_mp_cost_streams(unsigned copies)
{
    return copies * STREAM_COPY;
}

double uct_cuda_mp_cost_retarget(unsigned copies)
{
    return between(copies, offsetof(graph_cost_t, launch)) +
           between(copies, offsetof(graph_cost_t, update));
}

double uct_cuda_mp_cost_build(unsigned copies)
{
    return between(copies, offsetof(graph_cost_t, add)) +
           between(copies, offsetof(graph_cost_t, instantiate)) +
           between(copies, offsetof(graph_cost_t, first_launch));
}

unsigned uct_cuda_mp_cost_patience(unsigned copies)
{
    double streams = uct_cuda_mp_cost_streams(copies);
    double saved   = streams - uct_cuda_mp_cost_retarget(copies);
    double extra   = uct_cuda_mp_cost_build(copies);

    if (saved * (UCT_CUDA_MP_COST_NEVER - 1) <= extra) {
        return UCT_CUDA_MP_COST_NEVER;
    }

    return (extra <= 0) ? 1 : 1 + (unsigned)(extra / saved);
}

/* Have streams submitted each round of chunks in half of the time that links
 * take for the round before? */
static bool streams_keep_up(const uct_cuda_mp_plan_t *plan)
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
           (plan->seconds >= 2 * rounds * staged * STREAM_CHUNK);
}

bool uct_cuda_mp_cost_wants_graph(const uct_cuda_mp_plan_t *plan,
                                  const uct_cuda_mp_config_t *config,
                                  unsigned *patience_p)
{
    uct_cuda_mp_ternary_t graph = config->graph;
    unsigned patience           = 0;

    /* The user's word, then the tuning table's, then what it costs */
    if (graph == UCT_CUDA_MP_AUTO) {
        graph = (uct_cuda_mp_ternary_t)plan->graph;
    }

    if ((graph == UCT_CUDA_MP_NO) || (plan->num_steps < 2) ||
        uct_cuda_mp_plan_is_host(plan) ||
        ((config->graph_min_size != UCT_CUDA_MP_SIZE_AUTO) &&
         (plan->size < config->graph_min_size))) {
        return false;
    }

    if ((config->graph == UCT_CUDA_MP_AUTO) &&
        (config->graph_cache_size == 0)) {
        /* Each transfer would build one */
        patience = UCT_CUDA_MP_COST_NEVER;
    } else if ((graph == UCT_CUDA_MP_AUTO) && streams_keep_up(plan)) {
        patience = UCT_CUDA_MP_COST_NEVER;
    } else if (graph == UCT_CUDA_MP_AUTO) {
        patience = uct_cuda_mp_cost_patience(plan->num_steps);
        if ((patience != UCT_CUDA_MP_COST_NEVER) &&
            (plan->seconds > uct_cuda_mp_cost_build(plan->num_steps))) {
            patience = 1; /* built behind the copies, at no cost in time */
        }
    }

    if (patience_p != NULL) {
        *patience_p = patience;
    }

    return patience != UCT_CUDA_MP_COST_NEVER;
}
