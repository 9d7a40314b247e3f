/* SPDX-License-Identifier: BSD-3-Clause */
/* Steps that move blocks from rank to rank. */
#include <uct/cuda/plan/emit_blocks.h>


typedef uct_cuda_plan_builder_t builder_t;
typedef uct_cuda_plan_coll_t    plan_t;


/* Move a block from one rank to another or to the same one, by one step; an
 * empty block has none */
static void emit_block(builder_t *builder, bool kernels, bool rotates,
                       unsigned from, unsigned to)
{
    const plan_t *plan    = builder->plan;
    const bool is_gather  = (plan->kind == UCT_CUDA_COLL_KIND_GATHER);
    const bool is_scatter = (plan->kind == UCT_CUDA_COLL_KIND_SCATTER);
    const unsigned mover  = is_scatter && (kernels || !rotates) ? to : from;
    const unsigned away   = (to + plan->num_ranks - from) % plan->num_ranks;
    const unsigned block  = is_gather ? from : to;
    const uint64_t bytes  = plan->blocks[block + 1] - plan->blocks[block];
    unsigned queue;

    if (bytes == 0) {
        return;
    }

    queue = kernels                   ? UCT_CUDA_PLAN_QUEUE_KERNELS :
            (rotates && (from != to)) ? UCT_CUDA_PLAN_QUEUE_PUSHES :
            (mover == from)           ? UCT_CUDA_PLAN_QUEUE_TO(to) :
                                        UCT_CUDA_PLAN_QUEUE_FROM(from);
    uct_cuda_plan_builder_step(builder,
                               kernels ? UCT_CUDA_PLAN_STEP_REDUCE :
                                         UCT_CUDA_PLAN_STEP_COPY,
                               mover, queue, bytes, away);
    uct_cuda_plan_builder_place(builder, true, from, UCT_CUDA_BUFFER_SEND,
                                is_gather ? 0 : plan->blocks[to]);
    uct_cuda_plan_builder_place(builder, false, to, UCT_CUDA_BUFFER_RECV,
                                is_scatter ? 0 : plan->blocks[from]);
}

void uct_cuda_plan_coll_emit_blocks(builder_t *builder, bool kernels,
                                    bool rotates)
{
    const plan_t *plan = builder->plan;
    unsigned from, to;

    for (from = 0; from < plan->num_ranks; ++from) {
        for (to = 0; to < plan->num_ranks; ++to) {
            if (((plan->kind == UCT_CUDA_COLL_KIND_GATHER) &&
                 (to != plan->root)) ||
                ((plan->kind == UCT_CUDA_COLL_KIND_SCATTER) &&
                 (from != plan->root)) ||
                (plan->is_in_place && (from == to))) {
                continue;
            }
            emit_block(builder, kernels, rotates, from, to);
        }
    }
}

void uct_cuda_plan_coll_emit_alone(builder_t *builder)
{
    const plan_t *plan = builder->plan;

    if (!plan->is_in_place && (plan->bytes > 0) &&
        (uct_cuda_coll_kind(plan->kind)->recv[0] != UCT_CUDA_COLL_PART_NONE)) {
        uct_cuda_plan_builder_step(builder, UCT_CUDA_PLAN_STEP_COPY, 0, 0,
                                   plan->bytes, 0);
        uct_cuda_plan_builder_place(builder, true, 0, UCT_CUDA_BUFFER_SEND, 0);
        uct_cuda_plan_builder_place(builder, false, 0, UCT_CUDA_BUFFER_RECV, 0);
    }
}
