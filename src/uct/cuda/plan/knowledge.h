/* SPDX-License-Identifier: BSD-3-Clause */
/* Input of the planner of transfers. */
#ifndef UCT_CUDA_PLAN_KNOWLEDGE_H
#define UCT_CUDA_PLAN_KNOWLEDGE_H

#include <uct/cuda/plan/model_path.h>
#include <uct/cuda/plan/tuning.h>

BEGIN_C_DECLS


/** Resources not available to plans. Zeroed: all are available. */
typedef struct {
    /** Mask of the ends of absent links (uct_cuda_end_bit()), for each start */
    uint32_t absent_links[UCT_CUDA_NUM_ENDS];
} uct_cuda_plan_constraints_t;


/** Input of a plan. Members added later must mean "unknown" when NULL, so
 *  that callers need no change. */
typedef struct {
    const uct_cuda_topo_t        *topo;
    const uct_cuda_plan_config_t *config;
    const uct_cuda_plan_load_t   *load;   /**< NULL: no other traffic known */
    const uct_cuda_plan_tuning_t *tuning; /**< NULL: no table */
    /** NULL: the table's constants, or built-in ones */
    const uct_cuda_plan_model_t  *model;
    /** NUMA node of the host memory end; NULL: the GPU's node */
    const int                    *numa;
    const uct_cuda_plan_constraints_t *constraints; /**< NULL: none */
    /** Mask of temporarily unusable relays: uct_cuda_end_bit() */
    uint32_t                   absent;
    uct_cuda_end_t             remote;  /**< End of another process, or none */
    /** No other GPU has access to the local GPU's memory */
    bool                       is_pulled;
} uct_cuda_plan_knowledge_t;


END_C_DECLS

#endif
