/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long a collective plan takes on a node: its steps are run against time,
 * as flows of bytes that share links max-min fairly.
 */
#ifndef UCT_CUDA_COLL_COST_H
#define UCT_CUDA_COLL_COST_H

#include <ucs/type/status.h>
#include <uct/cuda/base/topo.h>
#include <uct/cuda/plan/collective_plan.h>
#include <uct/cuda/plan/model.h>

BEGIN_C_DECLS


/** Constants; seconds, unless said otherwise. */
typedef struct {
    double begin;       /**< From the call to the first submission: all ranks
                             are there */
    double end;         /**< From the last step's end until all ranks know */
    double submit;      /**< Processor time of a step, events included */
    double word;        /**< ... more of one that another rank waits for */
    double start;       /**< From a kernel's turn to its first byte, or that of
                             a copy behind another one */
    double copy_start;  /**< ... of any other copy */
    double wait;        /**< ... more where it waited for another queue */
    double remote_wait; /**< ... or for another rank's */
    double peer;        /**< Time of a kernel for each other GPU that it reads
                             or writes */
    double copy_rate;   /**< What copies get of a link's bandwidth while all
                             others are busy, too */
    double kernel_rate; /**< ... and kernels */
    double memory;      /**< Bytes/s that a kernel reads and writes of its own
                             GPU's memory */
    unsigned switched_chunks; /**< Pieces of a flat plan's slice behind a switch
                                   at most */
} uct_cuda_coll_model_t;


/** What is used when nobody has measured this node. */
extern const uct_cuda_coll_model_t uct_cuda_coll_model_builtin;


/**
 * ... and somebody has measured transfers on it.
 *
 * @param transfers  Their constants.
 * @param ports      Bytes/s that its GPUs have to a switch, which tell their
 *                   generation; 0: there is no switch.
 */
void uct_cuda_coll_model_of(const uct_cuda_mp_model_t *transfers, double ports,
                            uct_cuda_coll_model_t *model);


/**
 * Seconds from the call until all ranks know that it has ended, with nothing
 * else going on.
 *
 * @param gpus       Of each rank, an ordinal of @a topo.
 * @param limit      Longer plans have some time above it.
 * @param seconds_p  Filled.
 * @return UCS_OK; UCS_ERR_UNSUPPORTED: a step is for GPUs that are no peers;
 *         UCS_ERR_NO_MEMORY.
 */
ucs_status_t uct_cuda_coll_cost(const uct_cuda_coll_plan_t *plan,
                                const uct_cuda_topo_t *topo, const int *gpus,
                                const uct_cuda_coll_model_t *model,
                                double limit, double *seconds_p);


END_C_DECLS

#endif
