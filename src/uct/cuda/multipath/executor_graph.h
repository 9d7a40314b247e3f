/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Carries plans out as one CUDA Graph each: a copy node a step, in the context
 * that the streams executor would use, behind the steps that it waits for and
 * the one before it on its lane. Not thread-safe.
 */
#ifndef UCT_CUDA_MP_EXECUTOR_GRAPH_H
#define UCT_CUDA_MP_EXECUTOR_GRAPH_H

#include <uct/cuda/multipath/graph_cache.h>
#include <uct/cuda/multipath/resources.h>

BEGIN_C_DECLS


typedef struct uct_cuda_mp_graphs uct_cuda_mp_graphs_t;


/** @param cache_size  Most executable graphs that are kept; 0: none, each is
 *                     built for one transfer. */
ucs_status_t uct_cuda_mp_graphs_create(uct_cuda_mp_rsc_t *rsc,
                                       unsigned cache_size,
                                       uct_cuda_mp_graphs_t **graphs_p);


/** No graph may be in flight. Destroy it before the resources. */
void uct_cuda_mp_graphs_destroy(uct_cuda_mp_graphs_t *graphs);


/**
 * Launch a prepared plan. Does not wait for it. A graph in flight is never
 * changed: while all graphs of a shape are, another one is wanted if the cache
 * has room.
 *
 * @param offset    Where the plan's first byte is in the transfer, bytes.
 * @param is_alone  No other transfer is likely to begin before it ends: its
 *                  graph leaves out what lets two in flight share lanes.
 * @param patience  How often a shape goes another way before a graph is wanted
 *                  for it. 0: it is built at once; else when the caller says
 *                  so, uct_cuda_mp_graphs_build().
 * @param held      List of the transfer's graphs, NULL at first. Goes to
 *                  uct_cuda_mp_graphs_put() once the transfer has ended.
 * @return UCS_OK; UCS_ERR_NO_RESOURCE if there is no graph for this plan:
 *         nothing is submitted, streams can do it; another error (logged):
 *         abort the transfer.
 */
ucs_status_t uct_cuda_mp_graphs_submit(uct_cuda_mp_graphs_t *graphs,
                                       const uct_cuda_mp_plan_t *plan,
                                       const uct_cuda_mp_ends_t *ends,
                                       size_t offset, bool is_alone,
                                       unsigned patience,
                                       uct_cuda_mp_graph_t **held);


/**
 * Build what uct_cuda_mp_graphs_submit() wanted last, if anything, while
 * streams carry that same plan out: the thread would only wait for them, and
 * the next transfer of the shape finds its graph. What fails is left for
 * another time.
 */
void uct_cuda_mp_graphs_build(uct_cuda_mp_graphs_t *graphs,
                              const uct_cuda_mp_ends_t *ends);


/** Contexts of these devices, a bit each, are gone: so are graphs that have
 *  nodes there, those of a transfer in flight (NULL: none) among them. */
void uct_cuda_mp_graphs_lose(uct_cuda_mp_graphs_t *graphs, uint32_t devices,
                             uct_cuda_mp_graph_t *held);


/** A transfer has ended: its graphs are idle. */
void uct_cuda_mp_graphs_put(uct_cuda_mp_graphs_t *graphs,
                            uct_cuda_mp_graph_t *held);


const uct_cuda_mp_graph_counters_t *
uct_cuda_mp_graphs_counters(const uct_cuda_mp_graphs_t *graphs);


END_C_DECLS

#endif
