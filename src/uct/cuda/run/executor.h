/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Executors: the two ways to carry plans out. A plan is a graph where that is
 * cheaper (graph_cost.h) and there is one; streams take every plan. Not
 * thread-safe.
 */
#ifndef UCT_CUDA_MP_EXECUTOR_H
#define UCT_CUDA_MP_EXECUTOR_H

#include <uct/cuda/plan/config.h>
#include <uct/cuda/plan/model.h>
#include <uct/cuda/plan/transfer_plan.h>
#include <uct/cuda/run/completion.h>
#include <uct/cuda/run/resources.h>

BEGIN_C_DECLS


typedef struct uct_cuda_mp_graph   uct_cuda_mp_graph_t;
typedef struct uct_cuda_mp_graphs  uct_cuda_mp_graphs_t;
typedef struct uct_cuda_mp_streams uct_cuda_mp_streams_t;


/** An engine's executors. */
typedef struct {
    uct_cuda_mp_graphs_t  *graphs;
    uct_cuda_mp_streams_t *streams;
} uct_cuda_mp_executors_t;


/** A plan to carry out. What it needs is there: uct_cuda_mp_rsc_prepare(). */
typedef struct {
    const uct_cuda_mp_plan_t   *plan;
    const uct_cuda_mp_config_t *config;
    const uct_cuda_mp_model_t  *model;
    bool                       is_alone; /**< Nothing is in flight, and no other
                                              transfer is likely to begin
                                              before this one ends */
    uct_cuda_mp_used_t         *used; /**< Streams of the transfer's copies:
                                           executors add theirs */
    uct_cuda_mp_graph_t        **held; /**< Graphs that the transfer has until
                                            it has ended: added to */
} uct_cuda_mp_work_t;


/** UCS_OK or UCS_ERR_NO_MEMORY. The resources outlive them. */
ucs_status_t uct_cuda_mp_executors_create(uct_cuda_mp_rsc_t *rsc,
                                          uct_cuda_mp_executors_t *executors);

/** Nothing is in flight. */
void uct_cuda_mp_executors_destroy(uct_cuda_mp_executors_t *executors);


/** Submit a plan's copies of this memory, without waiting for any of them.
 *  UCS_OK, or an error (logged): what has been submitted is waited for, and the
 *  transfer fails. */
ucs_status_t uct_cuda_mp_executors_submit(uct_cuda_mp_executors_t *executors,
                                          const uct_cuda_mp_work_t *work,
                                          const uct_cuda_mp_memory_t *memory);


/** UCS_OK or UCS_ERR_NO_MEMORY. */
ucs_status_t uct_cuda_mp_graphs_create(uct_cuda_mp_rsc_t *rsc,
                                       uct_cuda_mp_graphs_t **graphs_p);

void uct_cuda_mp_graphs_destroy(uct_cuda_mp_graphs_t *graphs);

/** As of the executors, or UCS_ERR_NO_RESOURCE: not this plan, not now, nothing
 *  is submitted. */
ucs_status_t uct_cuda_mp_graphs_submit(uct_cuda_mp_graphs_t *graphs,
                                       const uct_cuda_mp_work_t *work,
                                       const uct_cuda_mp_memory_t *memory);

/** Streams have been given what submit did not take: its copies are under way,
 *  and the thread has time. */
void uct_cuda_mp_graphs_passed(uct_cuda_mp_graphs_t *graphs);

/** What was held for a transfer that has ended is not needed any more. */
void uct_cuda_mp_graphs_release(uct_cuda_mp_graphs_t *graphs,
                                uct_cuda_mp_graph_t *held);

/** Contexts of these devices, a bit each, are gone: forget the graphs that have
 *  to do with them. The resources do so next, and wait for the others. */
void uct_cuda_mp_graphs_lose(uct_cuda_mp_graphs_t *graphs, uint32_t devices);


/** UCS_OK or UCS_ERR_NO_MEMORY. */
ucs_status_t uct_cuda_mp_streams_create(uct_cuda_mp_rsc_t *rsc,
                                        uct_cuda_mp_streams_t **streams_p);

void uct_cuda_mp_streams_destroy(uct_cuda_mp_streams_t *streams);

ucs_status_t uct_cuda_mp_streams_submit(uct_cuda_mp_streams_t *streams,
                                        const uct_cuda_mp_work_t *work,
                                        const uct_cuda_mp_memory_t *memory);


END_C_DECLS

#endif
