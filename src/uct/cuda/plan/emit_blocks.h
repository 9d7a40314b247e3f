/* SPDX-License-Identifier: BSD-3-Clause */
/* Steps of collectives without trees. */
#ifndef UCT_CUDA_PLAN_EMIT_BLOCKS_H
#define UCT_CUDA_PLAN_EMIT_BLOCKS_H

#include <uct/cuda/plan/builder.h>

BEGIN_C_DECLS


/**
 * Add the steps of a kind without trees, for two or more ranks. Each block
 * moves by one step from the rank that has it to the rank that gets it.
 *
 * @param builder  Of a plan with kind, root, ranks and blocks.
 * @param kernels  The steps are kernels, all in one queue of a rank; otherwise
 *                 copies, in a queue for each other rank.
 * @param rotates  All pushes of a rank share a queue, in the order of distance:
 *                 no two ranks push to the same one at a time.
 */
void uct_cuda_plan_coll_emit_blocks(uct_cuda_plan_builder_t *builder,
                                    bool kernels, bool rotates);


/** Add the step of any kind for a single rank: one copy, or none if it is in
 *  place, empty or a broadcast. */
void uct_cuda_plan_coll_emit_alone(uct_cuda_plan_builder_t *builder);


END_C_DECLS

#endif
