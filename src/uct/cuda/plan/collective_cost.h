/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cost model of collective plans: simulates the steps over time as flows of
 * bytes, with max-min fair sharing of links.
 */
#ifndef UCT_CUDA_PLAN_COLLECTIVE_COST_H
#define UCT_CUDA_PLAN_COLLECTIVE_COST_H

#include <ucs/type/status.h>
#include <uct/cuda/base/topo.h>
#include <uct/cuda/plan/collective_plan.h>
#include <uct/cuda/plan/model_constants.h>

BEGIN_C_DECLS


/** Constants of the model; seconds, unless said otherwise. */
typedef struct {
    /** From the call to the first submission, with all ranks present */
    double begin;
    /** From the end of the last step until all ranks know */
    double end;
    double submit;      /**< Processor time of a step, including events */
    double word;        /**< Added for a step awaited by another rank */
    /** From a kernel's turn in its queue to its first byte; also of a copy
     *  behind a copy */
    double start;
    double copy_start;  /**< The same for any other copy */
    double wait;        /**< Added after waiting for another queue */
    double remote_wait; /**< Added after waiting for another rank */
    double peer;        /**< Kernel time for each other GPU accessed */
    /** Fraction of a link's bandwidth for copies while all other links are
     *  busy */
    double copy_rate;
    double kernel_rate; /**< The same for kernels */
    /** Bytes/s read and written by a kernel in its own GPU's memory */
    double memory;
    /** Maximum chunks of a flat plan's shard behind a switch */
    unsigned switched_chunks;
} uct_cuda_plan_coll_model_t;


/** Constants for nodes without measurement. */
extern const uct_cuda_plan_coll_model_t uct_cuda_coll_model_builtin;


/**
 * Fill the constants of a node with measured transfers.
 *
 * @param transfers  Measured constants of transfers.
 * @param ports      Bytes/s between a GPU and its switch, which identify the
 *                   GPU generation; 0: no switch.
 */
void uct_cuda_plan_coll_model_of(const uct_cuda_plan_model_t *transfers,
                                 double ports,
                                 uct_cuda_plan_coll_model_t *model);


/**
 * Compute the time from the call until all ranks know that it has ended, on an
 * otherwise idle node.
 *
 * @param gpus       GPU of each rank, an ordinal of @a topo.
 * @param limit      The simulation stops once the time exceeds this, s.
 * @param seconds_p  Filled; a value above @a limit is a lower bound only.
 * @return UCS_OK; UCS_ERR_UNSUPPORTED: a step joins GPUs without peer access;
 *         UCS_ERR_NO_MEMORY.
 */
ucs_status_t uct_cuda_plan_coll_cost(const uct_cuda_plan_coll_t *plan,
                                     const uct_cuda_topo_t *topo,
                                     const int *gpus,
                                     const uct_cuda_plan_coll_model_t *model,
                                     double limit, double *seconds_p);


END_C_DECLS

#endif
