/* SPDX-License-Identifier: BSD-3-Clause */
/* Adds steps to a plan, one after the other, and brings them into order. */
#ifndef UCT_CUDA_COLL_BUILDER_H
#define UCT_CUDA_COLL_BUILDER_H

#include <ucs/type/status.h>
#include <uct/cuda/plan/collective_plan.h>

BEGIN_C_DECLS


typedef struct {
    uct_cuda_coll_plan_t *plan;
    uint32_t             *waves; /**< Of each step; see _finish() */
    uint32_t             max_steps;
    uint32_t             max_places;
    uint32_t             max_waits;
} uct_cuda_coll_builder_t;


/**
 * Begin to fill @a plan, which has no steps yet, with at most so many.
 *
 * @return UCS_OK, or UCS_ERR_NO_MEMORY with nothing held.
 */
ucs_status_t uct_cuda_coll_builder_init(uct_cuda_coll_builder_t *builder,
                                        uct_cuda_coll_plan_t *plan,
                                        size_t max_steps, size_t max_places,
                                        size_t max_waits);


/**
 * Add a step; its sources, then its destinations, and its waits follow by the
 * functions below.
 *
 * @param queue  Any number; see _finish().
 * @param wave   When it is likely to run: steps come in that order, those of
 *               one wave as they were added.
 * @return Its index.
 */
uint32_t uct_cuda_coll_builder_step(uct_cuda_coll_builder_t *builder,
                                    uct_cuda_step_type_t type,
                                    unsigned rank, unsigned queue,
                                    uint64_t bytes, unsigned wave);

void uct_cuda_coll_builder_place(uct_cuda_coll_builder_t *builder,
                                 bool is_source, unsigned rank,
                                 uct_cuda_buffer_t buffer, uint64_t offset);

/** The step added last waits for an earlier one, or for NO_STEP: nothing. */
void uct_cuda_coll_builder_wait(uct_cuda_coll_builder_t *builder,
                                uint32_t step);


/**
 * Sort the steps by waves, number each rank's queues from 0 on, and leave out
 * waits that others imply. No step may wait for one of a later wave.
 *
 * @return UCS_OK; UCS_ERR_NO_MEMORY: the plan is released. Either way the
 *         builder holds nothing any more.
 */
ucs_status_t uct_cuda_coll_builder_finish(uct_cuda_coll_builder_t *builder);


END_C_DECLS

#endif
