/* SPDX-License-Identifier: BSD-3-Clause */
/* Release, sizes and names of collective plans. */
#include <uct/cuda/plan/collective_plan.h>

#include <stdio.h>
#include <string.h>


void uct_cuda_plan_coll_release(uct_cuda_plan_coll_t *plan)
{
    uct_cuda_plan_steps_release(&plan->list);
    memset(plan, 0, sizeof(*plan));
}

bool uct_cuda_plan_coll_is_same(const uct_cuda_plan_coll_t *plan, unsigned rank)
{
    const uct_cuda_coll_kind_desc_t *kind = uct_cuda_coll_kind(plan->kind);

    return plan->is_in_place && kind->reduces &&
           (!kind->has_root || (rank == plan->root));
}

uint64_t uct_cuda_plan_coll_size(const uct_cuda_plan_coll_t *plan,
                                 unsigned rank, uct_cuda_buffer_t buffer)
{
    const uct_cuda_coll_kind_desc_t *kind = uct_cuda_coll_kind(plan->kind);
    const bool is_other                   = (rank != plan->root);
    uint8_t part;

    if (rank >= plan->num_ranks) {
        return (buffer == UCT_CUDA_BUFFER_SCRATCH) ? plan->relay_scratch : 0;
    } else if (buffer == UCT_CUDA_BUFFER_SCRATCH) {
        return plan->scratch;
    } else if (uct_cuda_plan_coll_is_same(plan, rank)) {
        return plan->bytes;
    }

    part = (buffer == UCT_CUDA_BUFFER_SEND) ? kind->send[is_other] :
                                              kind->recv[is_other];
    if (part != UCT_CUDA_COLL_PART_BLOCK) {
        return (part == UCT_CUDA_COLL_PART_ALL) ? plan->bytes : 0;
    }

    /* in place, the block is in the other buffer */
    return (plan->is_in_place && (!kind->has_root || !is_other)) ?
                   0 :
                   plan->blocks[rank + 1] - plan->blocks[rank];
}

const char *uct_cuda_plan_coll_algorithm_str(unsigned algorithm)
{
    static const char *names[] = {"one kernel", "flat", "hierarchical"};

    return (algorithm < UCT_CUDA_PLAN_COLL_ALGORITHM_LAST) ? names[algorithm] :
                                                        "unknown";
}

static const char *place_str(const void *arg,
                             const uct_cuda_plan_place_t *place, char *buffer,
                             size_t size)
{
    static const char *names[]       = {"send", "recv", "scratch"};
    const uct_cuda_plan_coll_t *plan = arg;
    const unsigned long long at      = place->offset;

    if (place->owner < plan->num_ranks) {
        snprintf(buffer, size, "%u.%s+%llu", place->owner,
                 (place->buffer < UCT_CUDA_BUFFER_LAST) ?
                         names[place->buffer] :
                         "?",
                 at);
    } else {
        snprintf(buffer, size, "relay%u+%llu",
                 plan->relays[place->owner - plan->num_ranks], at);
    }
    return buffer;
}

const char *uct_cuda_plan_coll_places_str(const uct_cuda_plan_coll_t *plan,
                                          const uct_cuda_plan_step_t *step,
                                          char *buffer, size_t size)
{
    return uct_cuda_plan_step_places_str(&plan->list, step, plan, place_str,
                                         buffer, size);
}
