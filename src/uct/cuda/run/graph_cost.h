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


/** Seconds to launch a graph of this many copies: after all of them have been
 *  given other addresses; @a is_new: after building it. What graphs cost goes
 *  with what a copy costs: both are the processor's and the driver's. */
double uct_cuda_mp_cost_graph(const uct_cuda_mp_model_t *model, unsigned copies,
                              bool is_new);


/**
 * How often a plan's shape is to go through streams before a graph is built
 * behind them, and launched from then on.
 *
 * MULTIPATH_GRAPH=y: 0, a graph is built at once. AUTO: once what graphs would
 * have saved by then is what building one costs, so that no more than about
 * twice the least time possible has been spent whatever comes later; or 1, if
 * the transfer takes longer than the building. NEVER where launches are not
 * cheaper than streams, or streams submit the chunks well before the links can
 * take them. Nothing of a graph moves before all of it is submitted, nor before
 * the graph ahead has ended; the direct copy of streams does. Lone puts of
 * 64 MiB with a host path of 4 chunks took 168 us, by graphs 175, and windows
 * of them went at 424 GB/s, by graphs 408 (measured on H200).
 *
 * @param model  The node's, as the plan's seconds are.
 */
unsigned uct_cuda_mp_cost_threshold(const uct_cuda_mp_plan_t *plan,
                                    const uct_cuda_mp_config_t *config,
                                    const uct_cuda_mp_model_t *model);


END_C_DECLS

#endif
