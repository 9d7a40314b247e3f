/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Executors: carry out plans as graphs or through streams. A graph is used if
 * it is cheaper (graph_cost.h) and available; streams carry out any plan. Not
 * thread safe.
 */
#ifndef UCT_CUDA_RUN_EXECUTOR_H
#define UCT_CUDA_RUN_EXECUTOR_H

#include <uct/cuda/plan/config.h>
#include <uct/cuda/plan/model_constants.h>
#include <uct/cuda/plan/transfer_plan.h>
#include <uct/cuda/run/completion.h>
#include <uct/cuda/run/resources.h>

BEGIN_C_DECLS


typedef struct uct_cuda_run_graph   uct_cuda_run_graph_t;
typedef struct uct_cuda_run_graphs  uct_cuda_run_graphs_t;
typedef struct uct_cuda_run_streams uct_cuda_run_streams_t;


/** Plan to carry out. Its resources are ready: uct_cuda_run_rsc_prepare(). */
typedef struct {
    const uct_cuda_plan_t        *plan;
    const uct_cuda_plan_config_t *config;
    const uct_cuda_plan_model_t  *model;
    /** No transfer is in flight, and none is likely to begin before this one
     *  ends */
    bool                         is_alone;
    /** Streams of the transfer's copies, added by the executors */
    uct_cuda_run_used_t          *used;
    /** Graphs in use until the transfer ends, added by the executors */
    uct_cuda_run_graph_t         **held;
} uct_cuda_run_work_t;


/**
 * Create the executor of graphs. The resources must outlive it.
 *
 * @return UCS_OK or UCS_ERR_NO_MEMORY.
 */
ucs_status_t uct_cuda_run_graphs_create(uct_cuda_run_rsc_t *rsc,
                                        uct_cuda_run_graphs_t **graphs_p);

/** Destroy the executor, with nothing in flight. */
void uct_cuda_run_graphs_destroy(uct_cuda_run_graphs_t *graphs);

/**
 * Submit a plan's copies as a graph, without waiting for them.
 *
 * @return As uct_cuda_run_streams_submit(), or UCS_ERR_NO_RESOURCE: no graph
 *         for this plan now, and nothing is submitted.
 */
ucs_status_t uct_cuda_run_graphs_submit(uct_cuda_run_graphs_t *graphs,
                                        const uct_cuda_run_work_t *work,
                                        const uct_cuda_run_memory_t *memory);

/** Build a graph if worthwhile, after the plan was submitted to streams: while
 *  their copies run, the thread would only wait. */
void uct_cuda_run_graphs_build_wanted(uct_cuda_run_graphs_t *graphs);

/** Release the graphs of a transfer that has ended. */
void uct_cuda_run_graphs_release(uct_cuda_run_graphs_t *graphs,
                                 uct_cuda_run_graph_t *held);

/** Drop the graphs using contexts lost on these devices (a mask); graphs in use
 *  are dropped at their release. Call this before uct_cuda_run_rsc_lose(). */
void uct_cuda_run_graphs_lose(uct_cuda_run_graphs_t *graphs, uint32_t devices);


/**
 * Create the executor of streams. The resources must outlive it.
 *
 * @return UCS_OK or UCS_ERR_NO_MEMORY.
 */
ucs_status_t uct_cuda_run_streams_create(uct_cuda_run_rsc_t *rsc,
                                         uct_cuda_run_streams_t **streams_p);

void uct_cuda_run_streams_destroy(uct_cuda_run_streams_t *streams);

/**
 * Submit a plan's copies through streams, without waiting for them.
 *
 * @return UCS_OK, or an error (logged): the caller waits for the submitted
 *         copies, and the transfer fails.
 */
ucs_status_t uct_cuda_run_streams_submit(uct_cuda_run_streams_t *streams,
                                         const uct_cuda_run_work_t *work,
                                         const uct_cuda_run_memory_t *memory);


END_C_DECLS

#endif
