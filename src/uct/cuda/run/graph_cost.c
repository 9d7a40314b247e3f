/* SPDX-License-Identifier: BSD-3-Clause */
/* What streams and graphs cost. */
#include <uct/cuda/run/graph_cost.h>


/* Seconds of the processor, whatever a graph has and for each of its copies: to
 * launch it after all copies have been given other addresses, and to build it,
 * its first launch included. Of 4, 16 and 64 copies 8.8, 27.2 and 108 us, and
 * 49, 72 and 266 us (4 x H200, driver 580.159, copies over four contexts in
 * chains of four; medians). */
#define LAUNCH_GRAPH 2.6e-6
#define LAUNCH_COPY  1.65e-6
#define BUILD_GRAPH  32e-6
#define BUILD_COPY   3.4e-6


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

unsigned uct_cuda_mp_cost_threshold(const uct_cuda_mp_plan_t *plan,
                                    const uct_cuda_mp_config_t *config,
                                    const uct_cuda_mp_model_t *model)
{
    /* What graphs cost goes with what a copy costs: both are the processor's
     * and the driver's */
    const double scale    = model->graph * model->submit_copy /
                            uct_cuda_mp_model_builtin.submit_copy;
    const unsigned copies = plan->num_steps;
    double saved, extra;

    if ((config->graph == UCT_CUDA_MP_NO) || (copies < 2) ||
        uct_cuda_mp_plan_is_host(plan)) {
        return UCT_CUDA_MP_COST_NEVER;
    }

    if (config->graph == UCT_CUDA_MP_YES) {
        return 0;
    } else if (streams_keep_up(plan, model)) {
        return UCT_CUDA_MP_COST_NEVER;
    }

    /* Events and waits of streams' staged copies come on top */
    saved = copies * model->submit_copy -
            (LAUNCH_GRAPH + copies * LAUNCH_COPY) * scale;
    extra = (BUILD_GRAPH + copies * BUILD_COPY) * scale;
    if (saved * (UCT_CUDA_MP_COST_NEVER - 1) <= extra) {
        return UCT_CUDA_MP_COST_NEVER;
    }

    return (plan->seconds > extra) ? 1 : 1 + (unsigned)(extra / saved);
}
