/* SPDX-License-Identifier: BSD-3-Clause */
/* Release and names of collective plans. */
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
    return plan->is_in_place && uct_cuda_plan_coll_kind_reduces(plan->kind) &&
           ((plan->kind != UCT_CUDA_COLL_KIND_REDUCE) || (rank == plan->root));
}

uint64_t uct_cuda_plan_coll_size(const uct_cuda_plan_coll_t *plan,
                                 unsigned rank, uct_cuda_buffer_t buffer)
{
    const bool is_root = (rank == plan->root);
    const bool is_send = (buffer == UCT_CUDA_BUFFER_SEND);
    uint64_t block, or_none;

    if (rank >= plan->num_ranks) {
        return (buffer == UCT_CUDA_BUFFER_SCRATCH) ? plan->relay_scratch : 0;
    } else if (buffer == UCT_CUDA_BUFFER_SCRATCH) {
        return plan->scratch;
    }

    block   = plan->blocks[rank + 1] - plan->blocks[rank];
    or_none = plan->is_in_place ? 0 : block;

    switch (plan->kind) {
    case UCT_CUDA_COLL_KIND_REDUCE:
        return (is_send || is_root) ? plan->bytes : 0;
    case UCT_CUDA_COLL_KIND_REDUCE_SCATTER:
        return (is_send || plan->is_in_place) ? plan->bytes : block;
    case UCT_CUDA_COLL_KIND_BCAST:
        return (is_send == is_root) ? plan->bytes : 0;
    case UCT_CUDA_COLL_KIND_ALLGATHER:
        return is_send ? or_none : plan->bytes;
    case UCT_CUDA_COLL_KIND_GATHER:
        return is_send ? (is_root ? or_none : block) :
                         (is_root ? plan->bytes : 0);
    case UCT_CUDA_COLL_KIND_SCATTER:
        return is_send ? (is_root ? plan->bytes : 0) :
                         (is_root ? or_none : block);
    default:
        return plan->bytes;
    }
}

const char *uct_cuda_plan_coll_algorithm_str(unsigned algorithm)
{
    static const char *names[] = {"one kernel", "flat", "hierarchical"};

    return (algorithm < UCT_CUDA_PLAN_COLL_ALGORITHM_LAST) ? names[algorithm] :
                                                        "unknown";
}

/* Name used by the module, and word of the MPI call */
static const struct {
    const char *name, *word;
} kinds[] = {
    [UCT_CUDA_COLL_KIND_ALLREDUCE]      = {"all-reduce", "allreduce"},
    [UCT_CUDA_COLL_KIND_REDUCE]         = {"reduce", "reduce"},
    [UCT_CUDA_COLL_KIND_REDUCE_SCATTER] = {"reduce-scatter", "reduce_scatter"},
    [UCT_CUDA_COLL_KIND_BCAST]          = {"broadcast", "bcast"},
    [UCT_CUDA_COLL_KIND_ALLGATHER]      = {"all-gather", "allgather"},
    [UCT_CUDA_COLL_KIND_GATHER]         = {"gather", "gather"},
    [UCT_CUDA_COLL_KIND_SCATTER]        = {"scatter", "scatter"},
    [UCT_CUDA_COLL_KIND_ALLTOALL]       = {"all-to-all", "alltoall"}
};

const char *uct_cuda_plan_coll_kind_str(unsigned kind)
{
    return (kind < UCT_CUDA_COLL_KIND_LAST) ? kinds[kind].name : "unknown";
}

int uct_cuda_plan_coll_kind_find(const char *word)
{
    int kind;

    for (kind = 0; kind < UCT_CUDA_COLL_KIND_LAST; ++kind) {
        if (strcmp(word, kinds[kind].word) == 0) {
            return kind;
        }
    }
    return -1;
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
