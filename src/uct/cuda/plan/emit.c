/* SPDX-License-Identifier: BSD-3-Clause */
/* Shards, chunks, scratch memory, and the steps of a chunk along a tree. */
#include <uct/cuda/plan/emit.h>

#include <uct/cuda/plan/builder.h>
#include <uct/cuda/plan/emit_blocks.h>

#include <ucs/sys/math.h>

#include <stdlib.h>
#include <string.h>


#define MAX_RANKS UCT_CUDA_PLAN_COLL_MAX_RANKS

/* Alignment of shards and chunks, bytes: the small one for vector loads of
 * kernels, the large one for copy engines */
#define ALIGN_SMALL 16
#define ALIGN_LARGE 4096
#define LARGE       (1ul << 20)

/* Alignment of a scratch slot, enough for any load of a kernel */
#define SLOT_ALIGN 256ul

/* Slots of a rank for data from one other rank: one is filled while the other
 * is added */
#define SLOTS 2

/* After all other levels: see level_of() */
#define LAST_LEVEL(_plan) \
    ((2 * (_plan)->chunks + 4 * (_plan)->num_ranks + 2) * (_plan)->num_ranks)


typedef uct_cuda_plan_builder_t builder_t;
typedef uct_cuda_plan_coll_t    plan_t;


/* Data of a shard in scratch memory, for each rank */
typedef enum {
    SLOT_SENT,      /* data it sends, in its parent's scratch */
    SLOT_SUM,       /* its partial sum, in its own scratch */
    SLOT_RELAY_IN,  /* data it sends, in the relay's scratch */
    SLOT_RELAY_OUT, /* data it gets, in the relay's scratch */
    SLOT_LAST,
    /* its block until all ranks have read the inputs below it; for all
     * shards */
    SLOT_RESULT = SLOT_LAST
} scratch_use_t;


/* A shard with its trees and slots */
typedef struct {
    const uct_cuda_plan_coll_tree_t *tree;
    uint64_t offset;      /* in the complete data, bytes */
    uint64_t bytes;
    uint64_t chunk;       /* bytes of all chunks except the last */
    unsigned chunks;
    uint64_t in[MAX_RANKS];    /* mask of children on the way in */
    uint64_t out[MAX_RANKS];   /* mask of children on the way out */
    uint8_t  depth[MAX_RANKS]; /* in reductions; 0: leaf */
    uint64_t slots[SLOT_LAST][MAX_RANKS];
    uint64_t slot;        /* bytes of a slot */
} shard_t;


/* Steps of a chunk awaited by the next user of its slots, by rank */
typedef struct {
    uint32_t sums[MAX_RANKS];  /* reading the slots filled by others */
    uint32_t reads[MAX_RANKS]; /* reading the slot of this rank's sums */
    uint32_t in[MAX_RANKS];    /* reading the relay's slot to the parent */
    uint32_t out[MAX_RANKS];   /* reading the relay's slot from the parent */
} slots_t;


static uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

/* Return the alignment of pieces of a block, or of the complete data, of this
 * many bytes: bytes, a multiple of the element */
static uint64_t unit_of(const plan_t *plan, uint64_t bytes)
{
    const uint64_t share = uct_cuda_coll_kind(plan->kind)->has_blocks ?
                                   bytes :
                                   bytes / plan->num_ranks;
    const uint64_t align = (share >= LARGE) ? ALIGN_LARGE : ALIGN_SMALL;
    uint64_t unit        = align;

    while (unit % plan->element != 0) {
        unit += align;
    }

    return unit;
}

/* Return the start of a part that has this share of all bytes before it */
static uint64_t cut(uint64_t bytes, uint64_t unit, double share)
{
    const double units = (double)round_up(bytes, unit) / (double)unit;

    return ucs_min((uint64_t)(units * share + 0.5) * unit, bytes);
}

/* Lay out the data of a tree: an equal part of the complete data or of its
 * root's block. @return Its alignment */
static uint64_t lay_out_shard(const plan_t *plan,
                              const uct_cuda_plan_coll_trees_t *trees,
                              unsigned tree, shard_t *shard)
{
    const unsigned root = trees->trees[tree].root;
    uint64_t begin      = 0;
    uint64_t bytes      = plan->bytes;
    unsigned part       = tree;
    unsigned parts      = trees->count;
    uint64_t unit;
    unsigned t;

    if (uct_cuda_coll_kind(plan->kind)->has_blocks) {
        begin = plan->blocks[root];
        bytes = plan->blocks[root + 1] - begin;
        for (t = part = parts = 0; t < trees->count; ++t) {
            part  += (trees->trees[t].root == root) && (t < tree);
            parts += (trees->trees[t].root == root);
        }
    }

    unit          = unit_of(plan, bytes);
    shard->tree   = &trees->trees[tree];
    shard->offset = cut(bytes, unit, (double)part / parts);
    shard->bytes  = cut(bytes, unit, (double)(part + 1) / parts) -
                    shard->offset;
    shard->offset += begin;
    return unit;
}

static bool is_leaf(const shard_t *shard, unsigned rank)
{
    return shard->depth[rank] == 0;
}

/* Return whether a rank's partial sums need scratch memory */
static bool has_sums(const plan_t *plan, const shard_t *shard, unsigned rank)
{
    return !uct_cuda_coll_kind(plan->kind)->spreads &&
           (rank != shard->tree->root) && !is_leaf(shard, rank);
}

/* Return whether a rank's results must wait for other ranks to read their
 * inputs */
static bool has_late_result(const plan_t *plan, unsigned rank)
{
    return uct_cuda_coll_kind(plan->kind)->reduces && plan->is_in_place &&
           (plan->blocks[rank] > 0) &&
           (plan->blocks[rank + 1] > plan->blocks[rank]);
}

/* A partial sum overwrites the one of two chunks before. The parent has read
 * that one if it adds no more than two levels later, so levels are raised where
 * needed. */
static void raise_depths(unsigned num_ranks, shard_t *shard)
{
    const uct_cuda_plan_coll_tree_t *tree = shard->tree;
    bool is_raised                        = true;
    unsigned rank, least;

    while (is_raised) {
        is_raised = false;
        for (rank = 0; rank < num_ranks; ++rank) {
            least = shard->depth[tree->in[rank]];
            least = (least > SLOTS) ? least - SLOTS : 0;
            if (!is_leaf(shard, rank) && (shard->depth[rank] < least)) {
                shard->depth[rank] = (uint8_t)least;
                is_raised          = true;
            }
        }
    }
}

/* Fill the masks of children and, in reductions, the depths: how many additions
 * in a row a rank's sum contains, raised where slots need it */
static void measure(const plan_t *plan, shard_t *shard)
{
    const uct_cuda_plan_coll_tree_t *tree = shard->tree;
    const bool reduces = uct_cuda_coll_kind(plan->kind)->reduces;
    unsigned rank, at, depth;

    memset(shard->in, 0, sizeof(shard->in));
    memset(shard->out, 0, sizeof(shard->out));
    memset(shard->depth, 0, sizeof(shard->depth));
    for (rank = 0; rank < plan->num_ranks; ++rank) {
        if (rank == tree->root) {
            continue;
        }

        shard->in[tree->in[rank]]   |= 1ull << rank;
        shard->out[tree->out[rank]] |= 1ull << rank;
        for (at = rank, depth = 1; reduces && (at != tree->root);
             at = tree->in[at], ++depth) {
            shard->depth[tree->in[at]] = (uint8_t)
                ucs_max(shard->depth[tree->in[at]], depth);
        }
    }
    raise_depths(plan->num_ranks, shard);
}

static uint64_t take_slots(const shard_t *shard, uint64_t *used)
{
    const uint64_t offset = *used;

    *used += ucs_min(shard->chunks, SLOTS) * shard->slot;
    return offset;
}

/* Assign slots in the parents' scratch memory for data from each rank, and in
 * its own for its sums */
static void lay_out_slots(const plan_t *plan, bool kernels, shard_t *shard,
                          uint64_t *used)
{
    unsigned rank, parent;

    for (rank = 0; rank < plan->num_ranks; ++rank) {
        parent = shard->tree->in[rank];
        if ((parent != rank) && !kernels) {
            shard->slots[SLOT_SENT][rank] = take_slots(shard, &used[parent]);
        }
        if (has_sums(plan, shard, rank)) {
            shard->slots[SLOT_SUM][rank] = take_slots(shard, &used[rank]);
        }
    }
}

/* Assign slots in the scratch memory of relays */
static void lay_out_relays(shard_t *shard, unsigned num_ranks, uint64_t *used)
{
    const uct_cuda_plan_coll_tree_t *tree = shard->tree;
    unsigned rank;

    for (rank = 0; rank < num_ranks; ++rank) {
        if (tree->in_over[rank] != UCT_CUDA_PLAN_COLL_DIRECT) {
            shard->slots[SLOT_RELAY_IN][rank] =
                    take_slots(shard, &used[tree->in_over[rank]]);
        }
        if (tree->out_over[rank] != UCT_CUDA_PLAN_COLL_DIRECT) {
            shard->slots[SLOT_RELAY_OUT][rank] =
                    take_slots(shard, &used[tree->out_over[rank]]);
        }
    }
}

/* Fill a plan except for its steps: split the data into shards and chunks, and
 * assign scratch memory. results[rank] is set to the offset in the rank's
 * scratch memory of its result of an in-place reduce-scatter. */
static void lay_out(const plan_t *signature,
                    const uct_cuda_plan_coll_trees_t *trees, bool kernels,
                    unsigned chunks, shard_t *shards, uint64_t *results,
                    plan_t *plan)
{
    uint64_t relays[UCT_CUDA_PLAN_COLL_MAX_RELAYS] = {0};
    uint64_t used[MAX_RANKS]                       = {0};
    shard_t *shard;
    uint64_t unit;
    unsigned t, rank;

    *plan               = *signature;
    plan->algorithm     = (uint8_t)trees->algorithm;
    plan->num_relays    = trees->num_relays;
    memcpy(plan->relays, trees->relays, sizeof(plan->relays));
    plan->chunks        = 1;
    plan->scratch       = 0;
    plan->relay_scratch = 0;
    for (t = 0; t < trees->count; ++t) {
        shard         = &shards[t];
        unit          = lay_out_shard(plan, trees, t, shard);
        shard->chunk  = round_up((shard->bytes + chunks - 1) / chunks, unit);
        shard->chunks = (shard->bytes == 0) ?
                                0 :
                                (unsigned)((shard->bytes + shard->chunk - 1) /
                                           shard->chunk);
        shard->slot   = round_up(ucs_min(shard->chunk, shard->bytes),
                                 SLOT_ALIGN);
        measure(plan, shard);
        if (uct_cuda_coll_kind(plan->kind)->reduces) {
            lay_out_slots(plan, kernels, shard, used);
        }
        lay_out_relays(shard, plan->num_ranks, relays);
        plan->chunks = ucs_max(plan->chunks, shard->chunks);
    }

    for (rank = 0; rank < plan->num_ranks; ++rank) {
        results[rank] = used[rank];
        if (has_late_result(plan, rank)) {
            used[rank] += plan->blocks[rank + 1] - plan->blocks[rank];
        }
        plan->scratch = ucs_max(plan->scratch, used[rank]);
    }
    for (t = 0; t < plan->num_relays; ++t) {
        plan->relay_scratch = ucs_max(plan->relay_scratch, relays[t]);
    }
}


/* A chunk of a shard */
typedef struct {
    builder_t      *builder;
    const plan_t   *plan;
    const shard_t  *shard;
    unsigned       tree;   /* of the shard */
    unsigned       num_ranks;
    bool           kernels;
    const uct_cuda_plan_coll_trees_t *trees;
    unsigned       index;  /* in the shard */
    slots_t        *before; /* steps of the chunk that used the same slots */
    slots_t        own;     /* steps of this chunk */
    /* copies of each rank's data to its parent's scratch */
    uint32_t       copies[MAX_RANKS];
} shard_chunk_t;


/* Remove the first rank of a set and return it */
static unsigned take_first(uint64_t *set)
{
    const unsigned first = (unsigned)__builtin_ctzll(*set);

    *set &= *set - 1;
    return first;
}

/* Add a step of a chunk; fill() sets its length and offsets */
static uint32_t add_step(shard_chunk_t *chunk, uct_cuda_plan_step_type_t type,
                         unsigned rank, unsigned queue, unsigned level)
{
    const uint32_t index = uct_cuda_plan_builder_step(chunk->builder, type,
                                                      rank, queue, 0, level);
    uct_cuda_plan_step_t *step = &chunk->builder->plan->list.steps[index];

    step->part  = (uint8_t)chunk->tree;
    step->chunk = (uint8_t)chunk->index;
    return index;
}

/* Add the chunk's place in a rank's buffer */
static void add_place(builder_t *builder, bool is_source, unsigned rank,
                      uct_cuda_buffer_t buffer)
{
    const plan_t *plan = builder->plan;

    if ((plan->kind == UCT_CUDA_COLL_KIND_ALLGATHER) && plan->is_in_place) {
        buffer = UCT_CUDA_BUFFER_RECV;
    }
    uct_cuda_plan_builder_place(builder, is_source, rank, buffer, 0);
}

/* Add a rank's slot in the scratch memory of a rank or relay */
static void add_slot(builder_t *builder, bool is_source, unsigned owner,
                     scratch_use_t slot, unsigned rank)
{
    plan_t *plan = builder->plan;

    uct_cuda_plan_builder_place(builder, is_source, owner,
                                UCT_CUDA_BUFFER_SCRATCH, 0);
    plan->list.places[plan->list.num_places - 1].slot =
            (uint16_t)(slot * MAX_RANKS + rank);
}

/* Return the schedule level. Kernels have odd levels. Rotating pushes of each
 * rank begin with the next rank. */
static unsigned level_of(const shard_chunk_t *chunk, unsigned level,
                         unsigned from, unsigned to)
{
    const unsigned away = (to + chunk->num_ranks - from) % chunk->num_ranks;

    return (level + 2 * chunk->index) * chunk->num_ranks +
           (chunk->trees->rotates ? away : 0);
}

/* Add the place of a rank's data for its parent: SEND, RECV, or the slot of its
 * sum. As a destination the slot waits until the parent has read it. */
static void add_handed(shard_chunk_t *chunk, bool is_source, unsigned rank)
{
    if (!has_sums(chunk->plan, chunk->shard, rank)) {
        add_place(chunk->builder, is_source, rank,
                  is_leaf(chunk->shard, rank) ? UCT_CUDA_BUFFER_SEND :
                                                UCT_CUDA_BUFFER_RECV);
        return;
    }

    add_slot(chunk->builder, is_source, rank, SLOT_SUM, rank);
    if (!is_source) {
        uct_cuda_plan_builder_wait(chunk->builder, chunk->before->reads[rank]);
    }
}

/* Add the place of the sum, or of original data at the root */
static void add_source(shard_chunk_t *chunk, unsigned from)
{
    const bool is_first = (from == chunk->shard->tree->root) &&
                          !uct_cuda_coll_kind(chunk->plan->kind)->reduces;

    add_place(chunk->builder, true, from,
              is_first ? UCT_CUDA_BUFFER_SEND : UCT_CUDA_BUFFER_RECV);
}

/* Copy through a relay: one rank pushes, the other pulls. @a arrived: step that
 * brought the data to @a from, or NO_STEP. @return Step of the pull */
static uint32_t forward(shard_chunk_t *chunk, bool is_in, unsigned from,
                        unsigned to, unsigned level, uint32_t arrived)
{
    const uct_cuda_plan_coll_tree_t *tree = chunk->shard->tree;
    builder_t *builder                    = chunk->builder;
    const unsigned child                  = is_in ? from : to;
    const unsigned relay                  = is_in ? tree->in_over[child] :
                                                    tree->out_over[child];
    const scratch_use_t slot = is_in ? SLOT_RELAY_IN : SLOT_RELAY_OUT;
    uint32_t first, second;

    first = add_step(chunk, UCT_CUDA_PLAN_STEP_COPY, from,
                     UCT_CUDA_PLAN_QUEUE_RELAY(is_in, true, relay), level);
    if (is_in) {
        add_handed(chunk, true, from);
        chunk->own.reads[from] = first;
    } else {
        add_source(chunk, from);
    }
    add_slot(builder, false, chunk->num_ranks + relay, slot, child);
    uct_cuda_plan_builder_wait(builder, arrived);
    uct_cuda_plan_builder_wait(builder, (is_in ? chunk->before->in :
                                                 chunk->before->out)[child]);

    second = add_step(chunk, UCT_CUDA_PLAN_STEP_COPY, to,
                      UCT_CUDA_PLAN_QUEUE_RELAY(is_in, false, relay), level);
    add_slot(builder, true, chunk->num_ranks + relay, slot, child);
    if (is_in) {
        add_slot(builder, false, to, SLOT_SENT, from);
        uct_cuda_plan_builder_wait(builder, chunk->before->sums[to]);
    } else {
        add_place(builder, false, to, UCT_CUDA_BUFFER_RECV);
    }
    uct_cuda_plan_builder_wait(builder, first);
    (is_in ? chunk->own.in : chunk->own.out)[child] = second;
    return second;
}

/* Bring the children's data into scratch memory, pulled or pushed */
static void fetch(shard_chunk_t *chunk, unsigned rank)
{
    builder_t *builder = chunk->builder;
    const bool rotates = chunk->trees->rotates;
    uint64_t children  = chunk->shard->in[rank];
    unsigned child, level;

    while (children != 0) {
        child = take_first(&children);
        level = level_of(chunk, 2 * (chunk->shard->depth[rank] - 1), child,
                         rank);
        if (chunk->shard->tree->in_over[child] != UCT_CUDA_PLAN_COLL_DIRECT) {
            chunk->copies[child] = forward(chunk, true, child, rank, level,
                                           chunk->own.sums[child]);
            continue;
        }

        chunk->copies[child] = add_step(
                chunk, UCT_CUDA_PLAN_STEP_COPY, rotates ? child : rank,
                rotates ? UCT_CUDA_PLAN_QUEUE_PUSHES :
                          UCT_CUDA_PLAN_QUEUE_FROM(child),
                level);
        chunk->own.reads[child] = chunk->copies[child];
        add_handed(chunk, true, child);
        add_slot(builder, false, rank, SLOT_SENT, child);
        uct_cuda_plan_builder_wait(builder, chunk->own.sums[child]);
        uct_cuda_plan_builder_wait(builder, chunk->before->sums[rank]);
    }
}

/* Add the destinations of a sum: the next rank, or the final buffers */
static void add_sum(shard_chunk_t *chunk, unsigned rank)
{
    const plan_t *plan = chunk->plan;
    uint64_t to        = 1ull << rank;

    if (rank != chunk->shard->tree->root) {
        add_handed(chunk, false, rank);
        return;
    }

    if (has_late_result(plan, rank)) {
        add_slot(chunk->builder, false, rank, SLOT_RESULT, rank);
        return;
    }

    if (chunk->kernels && uct_cuda_coll_kind(plan->kind)->spreads) {
        to |= chunk->shard->out[rank];
    }
    while (to != 0) {
        add_place(chunk->builder, false, take_first(&to), UCT_CUDA_BUFFER_RECV);
    }
}

/* Emit the step that sums a rank's data and its children's, in rank order */
static void add(shard_chunk_t *chunk, unsigned rank)
{
    builder_t *builder = chunk->builder;
    uint64_t from      = chunk->shard->in[rank] | (1ull << rank);
    unsigned peer;

    chunk->own.sums[rank] = add_step(
            chunk, UCT_CUDA_PLAN_STEP_REDUCE, rank, UCT_CUDA_PLAN_QUEUE_KERNELS,
            level_of(chunk, 2 * chunk->shard->depth[rank] - 1, rank, rank));
    while (from != 0) {
        peer = take_first(&from);
        if (peer == rank) {
            add_place(builder, true, rank, UCT_CUDA_BUFFER_SEND);
        } else if (chunk->kernels) {
            add_handed(chunk, true, peer);
            uct_cuda_plan_builder_wait(builder, chunk->own.sums[peer]);
            chunk->own.reads[peer] = chunk->own.sums[rank];
        } else {
            add_slot(builder, true, rank, SLOT_SENT, peer);
            uct_cuda_plan_builder_wait(builder, chunk->copies[peer]);
        }
    }

    add_sum(chunk, rank);
}

static void emit_in(shard_chunk_t *chunk)
{
    const shard_t *shard = chunk->shard;
    unsigned depth, rank;

    for (depth = 1; depth <= shard->depth[shard->tree->root]; ++depth) {
        for (rank = 0; rank < chunk->num_ranks; ++rank) {
            if (shard->depth[rank] == depth) {
                if (!chunk->kernels) {
                    fetch(chunk, rank);
                }
                add(chunk, rank);
            }
        }
    }
}

/* Return whether a rank's own block must be copied to its receive buffer */
static bool has_own_copy(const plan_t *plan)
{
    return (plan->kind == UCT_CUDA_COLL_KIND_ALLGATHER) && !plan->is_in_place;
}

/* Send to one rank by a copy engine, or to all children by a kernel, as a sum
 * of one source. @a arrived: step that brought the data to @a from, or NO_STEP.
 * @return Step after which the data is at @a to */
static uint32_t push(shard_chunk_t *chunk, unsigned from, unsigned to,
                     unsigned level, uint32_t arrived)
{
    const uct_cuda_plan_coll_tree_t *tree = chunk->shard->tree;
    const plan_t *plan                    = chunk->plan;
    builder_t *builder                    = chunk->builder;
    const bool rotates = chunk->trees->rotates && (from != to);
    const bool is_first                   = (from == tree->root) &&
                          !uct_cuda_coll_kind(plan->kind)->reduces;
    uint64_t receivers               = 1ull << to;
    uint32_t step;

    if (tree->out_over[to] != UCT_CUDA_PLAN_COLL_DIRECT) {
        return forward(chunk, false, from, to,
                       level_of(chunk, 2 * level, from, to), arrived);
    }

    /* When rotating, the way in of the next chunk goes first, so that no rank
     * waits for the sum of this chunk */
    step = add_step(chunk,
                    chunk->kernels ? UCT_CUDA_PLAN_STEP_REDUCE :
                                     UCT_CUDA_PLAN_STEP_COPY,
                    from,
                    chunk->kernels ? UCT_CUDA_PLAN_QUEUE_KERNELS :
                    rotates        ? UCT_CUDA_PLAN_QUEUE_PUSHES :
                                     UCT_CUDA_PLAN_QUEUE_TO(to),
                    level_of(chunk, 2 * level + rotates, from, to));
    add_source(chunk, from);
    if (chunk->kernels) {
        receivers |= chunk->shard->out[from] |
                     ((uint64_t)(is_first && has_own_copy(plan)) << from);
    }
    while (receivers != 0) {
        add_place(builder, false, take_first(&receivers), UCT_CUDA_BUFFER_RECV);
    }
    uct_cuda_plan_builder_wait(builder, arrived);
    return step;
}

static void emit_out(shard_chunk_t *chunk)
{
    const uct_cuda_plan_coll_tree_t *tree = chunk->shard->tree;
    uint32_t arrived[MAX_RANKS];
    unsigned level[MAX_RANKS];
    unsigned from, to, first, count = 0;
    uint8_t queue[MAX_RANKS];
    uint64_t children;
    uint32_t step;

    if (has_own_copy(chunk->plan) && !chunk->kernels) {
        push(chunk, tree->root, tree->root, 0, UCT_CUDA_NO_STEP);
    }

    /* ranks in the order of arrival */
    queue[count++]      = tree->root;
    arrived[tree->root] = chunk->own.sums[tree->root];
    level[tree->root]   = chunk->shard->depth[tree->root];
    for (first = 0; first < count; ++first) {
        from = queue[first];
        step = UCT_CUDA_NO_STEP;
        if (chunk->kernels && (from == tree->root)) {
            step = chunk->own.sums[from]; /* its kernel has written to them */
        }

        for (children = chunk->shard->out[from]; children != 0;) {
            to = take_first(&children);
            if (!chunk->kernels || (step == UCT_CUDA_NO_STEP)) {
                step = push(chunk, from, to, level[from], arrived[from]);
            }
            arrived[to]    = step;
            level[to]      = level[from] + 1;
            queue[count++] = (uint8_t)to;
        }
    }
}

static void emit_chunk(builder_t *builder,
                       const uct_cuda_plan_coll_trees_t *trees,
                       const shard_t *shards, unsigned tree, bool kernels,
                       unsigned index, slots_t *slots)
{
    const plan_t *plan  = builder->plan;
    shard_chunk_t chunk = {
        .builder = builder, .plan = plan, .shard = &shards[tree], .tree = tree,
        .num_ranks = plan->num_ranks, .kernels = kernels, .trees = trees,
        .index = index, .before = slots
    };

    memset(&chunk.own, 0xff, sizeof(chunk.own)); /* NO_STEP */
    if (uct_cuda_coll_kind(plan->kind)->reduces) {
        emit_in(&chunk);
    }
    if (uct_cuda_coll_kind(plan->kind)->spreads) {
        emit_out(&chunk);
    }
    *slots = chunk.own;
}

/* Move results to the receive buffers after all trees have read the inputs.
 * `last`: steps of the last chunk of each tree */
static void emit_results(builder_t *builder,
                         const uct_cuda_plan_coll_trees_t *trees,
                         const shard_t *shards, slots_t *const *last,
                         const uint64_t *results)
{
    const plan_t *plan = builder->plan;
    unsigned rank, t;
    uint64_t bytes;
    uint32_t read;

    for (rank = 0; rank < plan->num_ranks; ++rank) {
        if (!has_late_result(plan, rank)) {
            continue;
        }

        bytes = plan->blocks[rank + 1] - plan->blocks[rank];
        uct_cuda_plan_builder_step(builder, UCT_CUDA_PLAN_STEP_COPY, rank,
                                   UCT_CUDA_PLAN_QUEUE_TO(rank), bytes,
                                   LAST_LEVEL(plan));
        uct_cuda_plan_builder_place(builder, true, rank,
                                    UCT_CUDA_BUFFER_SCRATCH, results[rank]);
        uct_cuda_plan_builder_place(builder, false, rank, UCT_CUDA_BUFFER_RECV,
                                    0);
        for (t = 0; t < trees->count; ++t) {
            if ((last[t] != NULL) && ((shards[t].offset < bytes) ||
                                      (trees->trees[t].root == rank))) {
                read = is_leaf(&shards[t], rank) ? last[t]->reads[rank] :
                                                   last[t]->sums[rank];
                uct_cuda_plan_builder_wait(builder, read);
            }
        }
    }
}

static void emit_trees(builder_t *builder,
                       const uct_cuda_plan_coll_trees_t *trees,
                       const shard_t *shards, slots_t (*slots)[SLOTS],
                       const uint64_t *results, bool kernels)
{
    const plan_t *plan = builder->plan;
    slots_t *last[UCT_CUDA_PLAN_COLL_MAX_TREES] = {NULL};
    unsigned t, c;

    memset(slots, 0xff, trees->count * sizeof(*slots)); /* NO_STEP */
    for (c = 0; c < plan->chunks; ++c) {
        for (t = 0; t < trees->count; ++t) {
            if (c < shards[t].chunks) {
                emit_chunk(builder, trees, shards, t, kernels, c,
                           &slots[t][c % SLOTS]);
                last[t] = &slots[t][c % SLOTS];
            }
        }
    }

    emit_results(builder, trees, shards, last, results);
}

/* Return the offset in its buffer of a chunk at `offset` of the complete data.
 * is_block[buffer]: ranks have their block only there */
static uint64_t place_offset(const plan_t *plan, const shard_t *shard,
                             unsigned chunk, uint64_t offset,
                             const uint64_t *results, const bool *is_block,
                             const uct_cuda_plan_place_t *place)
{
    const unsigned slot = place->slot / MAX_RANKS;
    const unsigned rank = place->slot % MAX_RANKS;

    if (place->buffer == UCT_CUDA_BUFFER_SCRATCH) {
        return (slot == SLOT_RESULT) ?
                       results[rank] + offset - plan->blocks[rank] :
                       shard->slots[slot][rank] + chunk % SLOTS * shard->slot;
    }

    return is_block[place->buffer] ? offset - plan->blocks[place->owner] :
                                     offset;
}

/* Set lengths and offsets of all steps with a shard */
static void fill(plan_t *plan, const shard_t *shards, const uint64_t *results)
{
    const uct_cuda_coll_kind_desc_t *kind = uct_cuda_coll_kind(plan->kind);
    const bool is_block[]                 = {
        [UCT_CUDA_BUFFER_SEND] = (kind->send[0] == UCT_CUDA_COLL_PART_BLOCK),
        [UCT_CUDA_BUFFER_RECV] = (kind->recv[0] == UCT_CUDA_COLL_PART_BLOCK)
    };
    uct_cuda_plan_place_t *place;
    uct_cuda_plan_step_t *step;
    const shard_t *shard;
    uint64_t before;
    unsigned p;

    for (step = plan->list.steps;
         step < plan->list.steps + plan->list.num_steps; ++step) {
        if (step->part == UCT_CUDA_PLAN_STEP_NO_PART) {
            continue;
        }

        shard       = &shards[step->part];
        before      = step->chunk * shard->chunk;
        step->bytes = ucs_min(shard->chunk, shard->bytes - before);
        place       = &plan->list.places[step->places];
        for (p = 0; p < step->num_sources + step->num_destinations; ++p) {
            place[p].offset = place_offset(plan, shard, step->chunk,
                                           shard->offset + before, results,
                                           is_block, &place[p]);
        }
    }
}

/* Return whether the steps of another plan can be reused: its shards have as
 * many chunks as these, and every step belongs to a shard */
static bool is_like(const plan_t *like, const shard_t *shards, unsigned count)
{
    unsigned chunks[UCT_CUDA_PLAN_COLL_MAX_TREES] = {0};
    const uct_cuda_plan_step_t *step;
    unsigned t;

    for (step = like->list.steps;
         step < like->list.steps + like->list.num_steps; ++step) {
        if (step->part == UCT_CUDA_PLAN_STEP_NO_PART) {
            return false;
        }
        chunks[step->part] = ucs_max(chunks[step->part], step->chunk + 1u);
    }

    for (t = 0; (t < count) && (chunks[t] == shards[t].chunks); ++t) {
    }
    return t == count;
}

ucs_status_t uct_cuda_plan_coll_emit(const uct_cuda_plan_coll_t *signature,
                                     const uct_cuda_plan_coll_trees_t *trees,
                                     bool kernels, unsigned chunks,
                                     uint64_t max_scratch,
                                     const uct_cuda_plan_coll_t *like,
                                     uct_cuda_plan_coll_t *plan)
{
    const size_t num_ranks = signature->num_ranks;
    slots_t(*slots)[SLOTS];
    shard_t *shards = malloc((trees->count + 1) *
                             (sizeof(*shards) + sizeof(*slots)));
    uint64_t results[MAX_RANKS];
    builder_t builder;
    ucs_status_t status;
    size_t pieces;

    memset(plan, 0, sizeof(*plan));
    if (shards == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    slots = (void*)&shards[trees->count + 1];

    lay_out(signature, trees, kernels, chunks, shards, results, plan);
    while ((ucs_max(plan->scratch, plan->relay_scratch) > max_scratch) &&
           (chunks < UCT_CUDA_PLAN_COLL_MAX_CHUNKS)) {
        chunks = ucs_min(2 * chunks, UCT_CUDA_PLAN_COLL_MAX_CHUNKS);
        lay_out(signature, trees, kernels, chunks, shards, results, plan);
    }

    if (ucs_max(plan->scratch, plan->relay_scratch) > max_scratch) {
        status = UCS_ERR_NO_RESOURCE;
        goto out;
    }

    if ((like != NULL) && is_like(like, shards, trees->count)) {
        plan->num_queues = like->num_queues;
        status           = uct_cuda_plan_steps_copy(&like->list, &plan->list);
        goto out_fill;
    }

    /* For each chunk: n - 1 pulls and as many pushes, each doubled by a relay,
     * and at most n sums with n - 1 sources from other ranks and one of each
     * rank's own. Without trees: n blocks for each rank. In-place results: one
     * for each rank, waiting for all trees. */
    pieces = trees->count * (size_t)plan->chunks + num_ranks;
    status = uct_cuda_plan_builder_init(&builder, plan, pieces * 5 * num_ranks,
                                        pieces * 12 * num_ranks,
                                        (pieces * 10 + trees->count) *
                                                num_ranks);
    if (status != UCS_OK) {
        goto out;
    }

    if (num_ranks == 1) {
        uct_cuda_plan_coll_emit_alone(&builder);
    } else if (trees->count == 0) {
        uct_cuda_plan_coll_emit_blocks(&builder, kernels, trees->rotates);
    } else {
        emit_trees(&builder, trees, shards, slots, results, kernels);
    }

    status = uct_cuda_plan_builder_finish(&builder);
out_fill:
    if (status == UCS_OK) {
        fill(plan, shards, results);
    }
out:
    if (status != UCS_OK) {
        uct_cuda_plan_coll_release(plan);
    }
    free(shards);
    return status;
}
