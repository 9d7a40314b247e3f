/* SPDX-License-Identifier: BSD-3-Clause */
/* Smallest transfers with a plan, found by the planner itself. */
#ifndef UCT_CUDA_PLAN_MIN_SIZES_H
#define UCT_CUDA_PLAN_MIN_SIZES_H

#include <uct/cuda/plan/knowledge.h>

BEGIN_C_DECLS


/** Smallest sizes, bytes (within 7 %), with a plan for any pair of GPUs, or
 *  of host memory and a GPU. SIZE_MAX: none. Behind other transfers smaller
 *  ones gain, because slow paths start before they are needed. */
typedef struct {
    size_t alone;     /**< Without transfers ahead */
    /** Behind other transfers; larger than alone where the processor's time
     *  for a message is longer than that of its copies */
    size_t behind;
    size_t by_relays; /**< For both, if host=auto excludes the host path */
} uct_cuda_plan_min_sizes_t;


/**
 * Find the smallest sizes with a plan, by planning one pair of each class of
 * equal pairs. Takes up to 1 ms, more on nodes without symmetry.
 *
 * @param know     Its load is ignored, except for is_known.
 * @param is_host  Of host memory and a GPU; false: of two GPUs.
 * @param scratch  Memory for the plans tried.
 * @param sizes    Filled.
 */
void uct_cuda_plan_min_sizes(const uct_cuda_plan_knowledge_t *know,
                             bool is_host, uct_cuda_plan_t *scratch,
                             uct_cuda_plan_min_sizes_t *sizes);


END_C_DECLS

#endif
