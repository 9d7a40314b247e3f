/* SPDX-License-Identifier: BSD-3-Clause */
/* Comparison of collective plans. */
#ifndef UCT_CUDA_COLL_TEST_PLANS_H
#define UCT_CUDA_COLL_TEST_PLANS_H

#include <uct/cuda/plan/collective_plan.h>

#include <cstring>


/** Return whether the steps are the same; the model's times are ignored. */
inline bool plans_equal(const uct_cuda_plan_coll_t &a,
                        const uct_cuda_plan_coll_t &b)
{
    return (a.kind == b.kind) && (a.root == b.root) &&
           (memcmp(a.blocks, b.blocks, sizeof(a.blocks)) == 0) &&
           (a.algorithm == b.algorithm) && (a.num_ranks == b.num_ranks) &&
           (a.num_queues == b.num_queues) &&
           (a.is_in_place == b.is_in_place) && (a.chunks == b.chunks) &&
           (a.element == b.element) && (a.bytes == b.bytes) &&
           (a.scratch == b.scratch) && (a.relay_scratch == b.relay_scratch) &&
           (a.num_relays == b.num_relays) &&
           (memcmp(a.relays, b.relays, a.num_relays) == 0) &&
           uct_cuda_plan_steps_equal(&a.list, &b.list);
}

#endif
