/* SPDX-License-Identifier: BSD-3-Clause */
/* Builder: adds steps to a plan and puts them in order. */
#ifndef UCT_CUDA_PLAN_BUILDER_H
#define UCT_CUDA_PLAN_BUILDER_H

#include <ucs/type/status.h>
#include <uct/cuda/plan/collective_plan.h>

BEGIN_C_DECLS


/** Queues of a rank by purpose; with many ranks some share a queue. */
#define UCT_CUDA_PLAN_QUEUE_KERNELS 0
#define UCT_CUDA_PLAN_QUEUE_FROM(_rank) \
    (1 + (_rank) % UCT_CUDA_PLAN_COLL_MAX_FAN)
#define UCT_CUDA_PLAN_QUEUE_TO(_rank) \
    (1 + UCT_CUDA_PLAN_COLL_MAX_FAN + (_rank) % UCT_CUDA_PLAN_COLL_MAX_FAN)
#define UCT_CUDA_PLAN_QUEUE_PUSHES (1 + 2 * UCT_CUDA_PLAN_COLL_MAX_FAN)
#define UCT_CUDA_PLAN_QUEUE_RELAY(_is_in, _is_first, _relay) \
    (2 + 2 * UCT_CUDA_PLAN_COLL_MAX_FAN + \
     (2 * (_is_in) + (_is_first)) * UCT_CUDA_PLAN_COLL_MAX_RELAYS + (_relay))


typedef struct {
    uct_cuda_plan_coll_t *plan;
    /** Schedule level of each step; see uct_cuda_plan_builder_finish() */
    uint32_t             *levels;
    uint32_t             max_steps;
    uint32_t             max_places;
    uint32_t             max_waits;
} uct_cuda_plan_builder_t;


/**
 * Start filling @a plan, which has no steps yet. At most the given numbers of
 * steps, places and waits may be added.
 *
 * @return UCS_OK; UCS_ERR_NO_MEMORY: nothing is allocated, and the plan is
 *         zeroed.
 */
ucs_status_t uct_cuda_plan_builder_init(uct_cuda_plan_builder_t *builder,
                                        uct_cuda_plan_coll_t *plan,
                                        size_t max_steps, size_t max_places,
                                        size_t max_waits);


/**
 * Add a step. Its sources, then its destinations, and its waits follow by the
 * functions below.
 *
 * @param queue  Any number below 256; renumbered at the end.
 * @param level  Schedule level: steps are sorted by it, and within a level stay
 *               in the order of their addition.
 * @return Index of the step.
 */
uint32_t uct_cuda_plan_builder_step(uct_cuda_plan_builder_t *builder,
                                    uct_cuda_plan_step_type_t type,
                                    unsigned rank, unsigned queue,
                                    uint64_t bytes, unsigned level);

/** Add a place to the last step: all sources first, then the destinations. */
void uct_cuda_plan_builder_place(uct_cuda_plan_builder_t *builder,
                                 bool is_source, unsigned rank,
                                 uct_cuda_buffer_t buffer, uint64_t offset);

/** Let the last step wait for an earlier one; NO_STEP: no wait. */
void uct_cuda_plan_builder_wait(uct_cuda_plan_builder_t *builder,
                                uint32_t step);


/**
 * Sort the steps by schedule level, number each rank's queues from 0, and
 * remove waits implied by others (not in very long plans). No step may wait for
 * one of a later level.
 *
 * @return UCS_OK; UCS_ERR_NO_MEMORY: the plan is released and zeroed. In both
 *         cases the builder's memory is freed: do not use it again.
 */
ucs_status_t uct_cuda_plan_builder_finish(uct_cuda_plan_builder_t *builder);


END_C_DECLS

#endif
