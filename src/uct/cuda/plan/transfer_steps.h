/* SPDX-License-Identifier: BSD-3-Clause */
/* Steps of a transfer's plan. A new kind of chain begins here. */
#ifndef UCT_CUDA_PLAN_TRANSFER_STEPS_H
#define UCT_CUDA_PLAN_TRANSFER_STEPS_H

#include <uct/cuda/plan/model.h>

BEGIN_C_DECLS


/** Initialize a plan without paths and steps. @a remote as in
 *  uct_cuda_plan_knowledge_t. */
void uct_cuda_plan_init(uct_cuda_end_t src, uct_cuda_end_t dst,
                        uct_cuda_end_t remote, size_t size,
                        uct_cuda_plan_t *plan);


/**
 * Turn shares into aligned parts, and parts into steps: the direct part first,
 * then chunk by chunk over all staged paths.
 *
 * @param split  Its paths with less than UCT_CUDA_PLAN_ALIGN bytes are dropped.
 * @param plan   Initialized, with its slot size. num_paths becomes 0 if a part
 *               has too many chunks for a plan.
 */
void uct_cuda_plan_write(const uct_cuda_plan_query_t *query,
                         uct_cuda_plan_split_t *split, uct_cuda_plan_t *plan);


/**
 * Make the plan of a plain copy: a single step. @a remote as in
 * uct_cuda_plan_knowledge_t.
 */
void uct_cuda_plan_single(uct_cuda_end_t src, uct_cuda_end_t dst,
                          uct_cuda_end_t remote, size_t size,
                          uct_cuda_plan_t *plan);


END_C_DECLS

#endif
