/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What it costs the calling thread to submit a plan, through streams and as a
 * CUDA graph, and so which of them it is to be.
 */
#ifndef UCT_CUDA_MP_COST_H
#define UCT_CUDA_MP_COST_H

#include <uct/cuda/plan/config.h>
#include <uct/cuda/plan/model.h>
#include <uct/cuda/plan/transfer_plan.h>

#include <stdbool.h>

BEGIN_C_DECLS


/** "Never worth a graph". */
#define UCT_CUDA_MP_COST_NEVER 0xffffu


/** Seconds to submit this many copies through streams. */
double uct_cuda_mp_cost_streams(const uct_cuda_mp_model_t *model,
                                unsigned copies);


/** Seconds to launch a graph of this many copies after all of them have been
 *  given other addresses. What graphs cost goes with what a copy costs: both
 *  are the processor's and the driver's. */
double uct_cuda_mp_cost_retarget(const uct_cuda_mp_model_t *model,
                                 unsigned copies);


/** Seconds to build a graph of this many copies and to launch it once. */
double uct_cuda_mp_cost_build(const uct_cuda_mp_model_t *model,
                              unsigned copies);


/**
 * How often a shape is to go through streams before a graph is built for it:
 * once what graphs would have saved by then is what building one costs.
 * Whatever comes later, no more than about twice the least time possible has
 * been spent.
 *
 * @return At least 1, or UCT_CUDA_MP_COST_NEVER if a launch saves nothing.
 */
unsigned uct_cuda_mp_cost_build_threshold(const uct_cuda_mp_model_t *model,
                                          unsigned copies);


/**
 * Is a plan to be carried out as a graph, once there is one of its shape?
 * MULTIPATH_GRAPH=y: always. AUTO: where launches are kept and cheaper than
 * streams: not where streams submit the chunks well before the
 * links can take them. Nothing of a graph moves before all of it is submitted,
 * nor before the graph ahead has ended; the direct copy of streams does. Lone
 * puts of 64 MiB with a host path of 4 chunks took 168 us, by graphs 175, and
 * windows of them went at 424 GB/s, by graphs 408 (measured on H200).
 *
 * @param model        The node's, as the plan's seconds are.
 * @param threshold_p  Filled if so: how often the shape goes through streams
 *                     before a graph is built behind them. Once, if the
 *                     transfer takes longer than the building. 0: a graph is
 *                     built at once, and launched. May be NULL.
 */
bool uct_cuda_mp_cost_wants_graph(const uct_cuda_mp_plan_t *plan,
                                  const uct_cuda_mp_config_t *config,
                                  const uct_cuda_mp_model_t *model,
                                  unsigned *threshold_p);


END_C_DECLS

#endif
