/* SPDX-License-Identifier: BSD-3-Clause */
/* Slices, chunks, scratch, and the steps of one chunk. */
#include <uct/cuda/collective/emit.h>

#include <uct/cuda/collective/builder.h>
#include <ucs/sys/math.h>

#include <stdlib.h>
#include <string.h>


#define MAX_RANKS UCT_CUDA_COLL_MAX_RANKS

/* Where slices and chunks begin, bytes: vector loads of kernels want the one,
 * copy engines like the other */
#define ALIGN_SMALL 16
#define ALIGN_LARGE 4096
#define LARGE       (1ul << 20)

/* A scratch slot's start; any kernel's load does with it */
#define SLOT_ALIGN 256ul

/* Slots of a rank for what one other rank sends: one fills, one is added */
#define SLOTS 2

/* Queues of a rank by what they are for */
#define QUEUE_KERNELS    0
#define QUEUE_FROM(_rank) (1 + (_rank))
#define QUEUE_TO(_rank)   (1 + MAX_RANKS + (_rank))
#define QUEUE_PUSHES      (1 + 2 * MAX_RANKS)


typedef uct_cuda_coll_builder_t builder_t;


/* One slice on its way */
typedef struct {
    const uct_cuda_coll_tree_t *tree;
    uint64_t offset;      /* bytes */
    uint64_t bytes;
    uint64_t chunk;       /* bytes of its chunks but the last */
    unsigned chunks;
    unsigned depth[MAX_RANKS]; /* in reductions: 0 is a leaf */
    uint64_t slots[MAX_RANKS]; /* in the parent's scratch */
    uint64_t slot;        /* bytes of one */
} slice_t;


static uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

/* Bytes that pieces begin at multiples of: of whole elements */
static uint64_t unit_of(const uct_cuda_coll_data_t *data)
{
    const uint64_t total = data->count * data->element;
    const uint64_t align = (total / data->num_ranks >= LARGE) ? ALIGN_LARGE :
                                                                ALIGN_SMALL;
    uint64_t unit        = align;

    while (unit % data->element != 0) {
        unit += align;
    }

    return unit;
}

/* Where a part begins that so much of the whole is in front of */
static uint64_t cut(const uct_cuda_coll_data_t *data, double share)
{
    const uint64_t total = data->count * data->element;
    const uint64_t unit  = unit_of(data);
    const double units   = (double)round_up(total, unit) / (double)unit;

    return ucs_min((uint64_t)(units * share + 0.5) * unit, total);
}

static bool is_leaf(const slice_t *slice, unsigned rank)
{
    return slice->depth[rank] == 0;
}

/* How many additions deep what each rank hands on is */
static void measure(slice_t *slice, unsigned num_ranks)
{
    unsigned rank, at, depth;

    memset(slice->depth, 0, sizeof(slice->depth));
    for (rank = 0; rank < num_ranks; ++rank) {
        depth = 0;
        for (at = rank; at != slice->tree->root; at = slice->tree->in[at]) {
            ++depth;
            slice->depth[slice->tree->in[at]] =
                    ucs_max(slice->depth[slice->tree->in[at]], depth);
        }
    }
}

/* Slots in the parents' scratch for what each rank sends there */
static void lay_out_slots(slice_t *slice, unsigned num_ranks, uint64_t *used)
{
    unsigned rank, parent;

    for (rank = 0; rank < num_ranks; ++rank) {
        parent = slice->tree->in[rank];
        if (parent != rank) {
            slice->slots[rank] = used[parent];
            used[parent]      += ucs_min(slice->chunks, SLOTS) * slice->slot;
        }
    }
}

/* The plan but for its steps: slices with their chunks, and scratch */
static void lay_out(const uct_cuda_coll_data_t *data,
                    const uct_cuda_coll_trees_t *trees, bool kernels,
                    unsigned chunks, slice_t *slices,
                    uct_cuda_coll_plan_t *plan)
{
    uint64_t used[MAX_RANKS] = {0};
    const uint64_t unit      = unit_of(data);
    slice_t *slice;
    unsigned t, rank;

    plan->algorithm   = (uint8_t)trees->algorithm;
    plan->num_ranks   = (uint8_t)data->num_ranks;
    plan->is_in_place = data->is_in_place;
    plan->element     = data->element;
    plan->bytes       = data->count * data->element;
    plan->chunks      = 1;
    plan->scratch     = 0;
    for (t = 0; t < trees->count; ++t) {
        slice         = &slices[t];
        slice->tree   = &trees->trees[t];
        slice->offset = cut(data, (double)t / trees->count);
        slice->bytes  = cut(data, (double)(t + 1) / trees->count) -
                        slice->offset;
        slice->chunk  = round_up((slice->bytes + chunks - 1) / chunks, unit);
        slice->chunks = (slice->bytes == 0) ?
                                0 :
                                (unsigned)((slice->bytes + slice->chunk - 1) /
                                           slice->chunk);
        slice->slot   = round_up(ucs_min(slice->chunk, slice->bytes),
                                 SLOT_ALIGN);
        measure(slice, data->num_ranks);
        if (!kernels) {
            lay_out_slots(slice, data->num_ranks, used);
        }
        plan->chunks = ucs_max(plan->chunks, slice->chunks);
    }

    for (rank = 0; rank < data->num_ranks; ++rank) {
        plan->scratch = ucs_max(plan->scratch, used[rank]);
    }
}

/* One chunk of a slice */
typedef struct {
    builder_t     *builder;
    const slice_t *slice;
    unsigned      num_ranks;
    bool          kernels;
    const uct_cuda_coll_trees_t *trees;
    unsigned      index;  /* of the slice's */
    uint64_t      offset;
    uint64_t      bytes;
    uint32_t      *slots; /* by rank: what reads the slots that it takes */
    uint32_t      sums[MAX_RANKS]; /* steps that add ... */
} chunk_t;


static bool is_child(const uint8_t *parents, unsigned child, unsigned rank)
{
    return (parents[child] == rank) && (child != rank);
}

/* Where a rank has what it hands on */
static uct_cuda_coll_buffer_t buffer_of(const chunk_t *chunk, unsigned rank)
{
    return is_leaf(chunk->slice, rank) ? UCT_CUDA_COLL_SEND :
                                         UCT_CUDA_COLL_RECV;
}

/* Kernels run in odd waves. Ranks that push in turn begin with different ones,
 * each with the next rank. */
static unsigned wave_of(const chunk_t *chunk, unsigned wave, unsigned from,
                        unsigned to)
{
    const unsigned turn = (to + chunk->num_ranks - from) % chunk->num_ranks;

    return (wave + 2 * chunk->index) * chunk->num_ranks +
           (chunk->trees->in_turn ? turn : 0);
}

static uint64_t slot_of(const chunk_t *chunk, unsigned child)
{
    return chunk->slice->slots[child] +
           (chunk->index % SLOTS) * chunk->slice->slot;
}

/* What the children have, into scratch: pulled, or pushed by them */
static void fetch(chunk_t *chunk, unsigned rank, uint32_t *copies)
{
    builder_t *builder = chunk->builder;
    const bool in_turn = chunk->trees->in_turn;
    unsigned child;

    for (child = 0; child < chunk->num_ranks; ++child) {
        if (!is_child(chunk->slice->tree->in, child, rank)) {
            continue;
        }

        copies[child] = uct_cuda_coll_builder_step(
                builder, UCT_CUDA_COLL_COPY, in_turn ? child : rank,
                in_turn ? QUEUE_PUSHES : QUEUE_FROM(child), chunk->bytes,
                wave_of(chunk, 2 * (chunk->slice->depth[rank] - 1), child,
                        rank));
        uct_cuda_coll_builder_source(builder, child, buffer_of(chunk, child),
                                     chunk->offset);
        uct_cuda_coll_builder_destination(builder, rank, UCT_CUDA_COLL_SCRATCH,
                                          slot_of(chunk, child));
        uct_cuda_coll_builder_wait(builder, chunk->sums[child]);
        uct_cuda_coll_builder_wait(builder, chunk->slots[rank]);
    }
}

/* A rank's own and what the children have, in the order of ranks */
static void add(chunk_t *chunk, unsigned rank, const uint32_t *copies)
{
    const uct_cuda_coll_tree_t *tree = chunk->slice->tree;
    builder_t *builder               = chunk->builder;
    unsigned peer;

    chunk->sums[rank] = uct_cuda_coll_builder_step(
            builder, UCT_CUDA_COLL_REDUCE, rank, QUEUE_KERNELS, chunk->bytes,
            wave_of(chunk, 2 * chunk->slice->depth[rank] - 1, rank, rank));
    for (peer = 0; peer < chunk->num_ranks; ++peer) {
        if (peer == rank) {
            uct_cuda_coll_builder_source(builder, rank, UCT_CUDA_COLL_SEND,
                                         chunk->offset);
        } else if (is_child(tree->in, peer, rank) && chunk->kernels) {
            uct_cuda_coll_builder_source(builder, peer, buffer_of(chunk, peer),
                                         chunk->offset);
            uct_cuda_coll_builder_wait(builder, chunk->sums[peer]);
        } else if (is_child(tree->in, peer, rank)) {
            uct_cuda_coll_builder_source(builder, rank, UCT_CUDA_COLL_SCRATCH,
                                         slot_of(chunk, peer));
            uct_cuda_coll_builder_wait(builder, copies[peer]);
        }
    }

    for (peer = 0; peer < chunk->num_ranks; ++peer) {
        if ((peer == rank) || (chunk->kernels && (rank == tree->root) &&
                               is_child(tree->out, peer, rank))) {
            uct_cuda_coll_builder_destination(builder, peer,
                                              UCT_CUDA_COLL_RECV,
                                              chunk->offset);
        }
    }
}

static void emit_in(chunk_t *chunk)
{
    const slice_t *slice = chunk->slice;
    uint32_t copies[MAX_RANKS];
    unsigned depth, rank;

    for (depth = 1; depth <= slice->depth[slice->tree->root]; ++depth) {
        for (rank = 0; rank < chunk->num_ranks; ++rank) {
            if (slice->depth[rank] == depth) {
                if (!chunk->kernels) {
                    fetch(chunk, rank, copies);
                }
                add(chunk, rank, copies);
            }
        }
    }
}

/* To one rank by a copy engine, or to all children by a kernel: a copy that is
 * a sum of one */
static uint32_t push(chunk_t *chunk, unsigned from, unsigned to, unsigned level,
                     uint32_t arrived)
{
    const uint8_t *parents = chunk->slice->tree->out;
    builder_t *builder     = chunk->builder;
    const bool in_turn     = chunk->trees->in_turn;
    uint32_t step;
    unsigned rank;

    /* In turn, the next chunk's way in goes first: nobody has to wait then for
     * this one's sum */
    step = uct_cuda_coll_builder_step(
            builder,
            chunk->kernels ? UCT_CUDA_COLL_REDUCE : UCT_CUDA_COLL_COPY, from,
            chunk->kernels ? QUEUE_KERNELS :
            in_turn        ? QUEUE_PUSHES :
                             QUEUE_TO(to),
            chunk->bytes, wave_of(chunk, 2 * level + in_turn, from, to));
    uct_cuda_coll_builder_source(builder, from, UCT_CUDA_COLL_RECV,
                                 chunk->offset);
    for (rank = 0; rank < chunk->num_ranks; ++rank) {
        if ((rank == to) || (chunk->kernels && is_child(parents, rank, from))) {
            uct_cuda_coll_builder_destination(builder, rank,
                                              UCT_CUDA_COLL_RECV,
                                              chunk->offset);
        }
    }
    uct_cuda_coll_builder_wait(builder, arrived);
    return step;
}

static void emit_out(chunk_t *chunk)
{
    const uct_cuda_coll_tree_t *tree = chunk->slice->tree;
    uint32_t arrived[MAX_RANKS];
    unsigned level[MAX_RANKS];
    unsigned from, to, first, count = 0;
    uint8_t queue[MAX_RANKS];
    uint32_t step;

    /* Ranks in the order in which they get it */
    queue[count++]      = tree->root;
    arrived[tree->root] = chunk->sums[tree->root];
    level[tree->root]   = chunk->slice->depth[tree->root];
    for (first = 0; first < count; ++first) {
        from = queue[first];
        step = UCT_CUDA_COLL_NO_STEP;
        if (chunk->kernels && (from == tree->root)) {
            step = chunk->sums[from]; /* has written to them */
        }

        for (to = 0; to < chunk->num_ranks; ++to) {
            if (is_child(tree->out, to, from)) {
                if (!chunk->kernels || (step == UCT_CUDA_COLL_NO_STEP)) {
                    step = push(chunk, from, to, level[from], arrived[from]);
                }
                arrived[to]    = step;
                level[to]      = level[from] + 1;
                queue[count++] = (uint8_t)to;
            }
        }
    }
}

/* Nobody to add anything of */
static void emit_alone(const uct_cuda_coll_data_t *data, builder_t *builder)
{
    if (!data->is_in_place && (data->count > 0)) {
        uct_cuda_coll_builder_step(builder, UCT_CUDA_COLL_COPY, 0, 0,
                                   data->count * data->element, 0);
        uct_cuda_coll_builder_source(builder, 0, UCT_CUDA_COLL_SEND, 0);
        uct_cuda_coll_builder_destination(builder, 0, UCT_CUDA_COLL_RECV, 0);
    }
}

static void emit_chunk(builder_t *builder, const uct_cuda_coll_data_t *data,
                       const uct_cuda_coll_trees_t *trees,
                       const slice_t *slice, bool kernels, unsigned index,
                       uint32_t *slots)
{
    chunk_t chunk = {
        .builder = builder, .slice = slice, .num_ranks = data->num_ranks,
        .kernels = kernels, .trees = trees, .index = index,
        .offset = slice->offset + index * slice->chunk,
        .bytes = ucs_min(slice->chunk, slice->bytes - index * slice->chunk),
        .slots = slots
    };

    memset(chunk.sums, 0xff, sizeof(chunk.sums)); /* NO_STEP */
    emit_in(&chunk);
    emit_out(&chunk);
    memcpy(slots, chunk.sums, sizeof(chunk.sums));
}

ucs_status_t uct_cuda_coll_emit(const uct_cuda_coll_data_t *data,
                                const uct_cuda_coll_trees_t *trees,
                                bool kernels, unsigned chunks,
                                uint64_t max_scratch,
                                uct_cuda_coll_plan_t *plan)
{
    const size_t num_ranks = data->num_ranks;
    slice_t slices[UCT_CUDA_COLL_MAX_TREES];
    uint32_t slots[UCT_CUDA_COLL_MAX_TREES][SLOTS][MAX_RANKS];
    builder_t builder;
    ucs_status_t status;
    size_t pieces;
    unsigned t, c;

    memset(plan, 0, sizeof(*plan));
    lay_out(data, trees, kernels, chunks, slices, plan);
    while ((plan->scratch > max_scratch) &&
           (chunks < UCT_CUDA_COLL_MAX_CHUNKS)) {
        chunks = ucs_min(2 * chunks, UCT_CUDA_COLL_MAX_CHUNKS);
        lay_out(data, trees, kernels, chunks, slices, plan);
    }

    if (plan->scratch > max_scratch) {
        memset(plan, 0, sizeof(*plan));
        return UCS_ERR_NO_RESOURCE;
    }

    /* Of a chunk: n - 1 pulls, as many pushes, and at most n sums, which have
     * n - 1 sources from others and one each of their own */
    pieces = trees->count * (size_t)plan->chunks;
    status = uct_cuda_coll_builder_init(&builder, plan, pieces * 3 * num_ranks,
                                        pieces * 8 * num_ranks,
                                        pieces * 4 * num_ranks);
    if (status != UCS_OK) {
        return status;
    }

    memset(slots, 0xff, sizeof(slots)); /* NO_STEP */
    for (c = 0; (c < plan->chunks) && (num_ranks > 1); ++c) {
        for (t = 0; t < trees->count; ++t) {
            if (c < slices[t].chunks) {
                emit_chunk(&builder, data, trees, &slices[t], kernels, c,
                           slots[t][c % SLOTS]);
            }
        }
    }

    if (num_ranks == 1) {
        emit_alone(data, &builder);
    }

    return uct_cuda_coll_builder_finish(&builder);
}
