/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Processor time to submit a plan through streams or as a CUDA graph, and the
 * choice between them.
 */
#ifndef UCT_CUDA_RUN_GRAPH_COST_H
#define UCT_CUDA_RUN_GRAPH_COST_H

#include <uct/cuda/plan/config.h>
#include <uct/cuda/plan/model_constants.h>
#include <uct/cuda/plan/transfer_plan.h>

#include <stdbool.h>

BEGIN_C_DECLS


/** A graph is never worth building. */
#define UCT_CUDA_RUN_COST_NEVER 0xffffu


/**
 * Return the seconds to launch a graph with this many copies, after changing
 * all addresses or, with @a is_new, after building it. Costs of graphs are
 * proportional to those of a copy: both depend on processor and driver.
 */
double uct_cuda_run_cost_graph(const uct_cuda_plan_model_t *model,
                               unsigned copies, bool is_new);


/**
 * Return how often a plan's shape is submitted through streams before its graph
 * is built.
 *
 * NEVER for one copy, for transfers with host memory at an end, and with
 * MULTIPATH_GRAPH=n.
 *
 * MULTIPATH_GRAPH=y: 0, build at once. AUTO: the count at which graphs would
 * have saved the cost of building one, so that the total cost is at most about
 * twice the optimum; or 1 if the transfer takes longer than the building. NEVER
 * if launches are not cheaper than streams, or if streams submit chunks well
 * before the links need them. A graph's copies start only after its complete
 * submission and after the graph before it; with streams the direct copy starts
 * earlier. Single puts of 64 MiB with a host path of 4 chunks took 168 us, as
 * graphs 175, and windows of them ran at 424 GB/s, as graphs 408 (measured on
 * H200).
 *
 * @param model  Constants of the node, as used for the plan.
 */
unsigned uct_cuda_run_cost_threshold(const uct_cuda_plan_t *plan,
                                     const uct_cuda_plan_config_t *config,
                                     const uct_cuda_plan_model_t *model);


END_C_DECLS

#endif
