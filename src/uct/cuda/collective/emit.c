/* SPDX-License-Identifier: BSD-3-Clause */
/* Slices, chunks, scratch, and the steps of one chunk. */
#include <uct/cuda/collective/emit.h>

#include <uct/cuda/collective/builder.h>
#include <ucs/sys/math.h>

#include <stdlib.h>
#include <string.h>


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
#define QUEUE_TO(_rank)   (1 + UCT_CUDA_COLL_MAX_RANKS + (_rank))


/* One slice on its way */
typedef struct {
    const uct_cuda_coll_tree_t *tree;
    uint64_t offset;      /* bytes */
    uint64_t bytes;
    uint64_t chunk;       /* bytes of its chunks but the last */
    unsigned chunks;
    unsigned depth[UCT_CUDA_COLL_MAX_RANKS]; /* in reductions: 0 is a leaf */
    uint64_t slots[UCT_CUDA_COLL_MAX_RANKS]; /* in the parent's scratch */
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

static void init_plan(const uct_cuda_coll_data_t *data,
                      uct_cuda_coll_algorithm_t algorithm,
                      uct_cuda_coll_plan_t *plan)
{
    memset(plan, 0, sizeof(*plan));
    plan->algorithm   = (uint8_t)algorithm;
    plan->num_ranks   = (uint8_t)data->num_ranks;
    plan->is_in_place = data->is_in_place;
    plan->element     = data->element;
    plan->bytes       = data->count * data->element;
    plan->chunks      = 1;
}

ucs_status_t uct_cuda_coll_emit_one_kernel(const uct_cuda_coll_data_t *data,
                                           uct_cuda_coll_plan_t *plan)
{
    const unsigned num_ranks = data->num_ranks;
    uct_cuda_coll_builder_t builder;
    ucs_status_t status;
    uint64_t begin, end;
    unsigned rank, peer;

    init_plan(data, UCT_CUDA_COLL_ONE_KERNEL, plan);
    status = uct_cuda_coll_builder_init(&builder, plan, num_ranks,
                                        2ul * num_ranks * num_ranks, 0);
    if (status != UCS_OK) {
        return status;
    }

    for (rank = 0; rank < num_ranks; ++rank) {
        begin = cut(data, (double)rank / num_ranks);
        end   = cut(data, (double)(rank + 1) / num_ranks);
        if ((begin == end) || ((num_ranks == 1) && data->is_in_place)) {
            continue;
        }

        uct_cuda_coll_builder_step(&builder,
                                   (num_ranks == 1) ? UCT_CUDA_COLL_COPY :
                                                      UCT_CUDA_COLL_REDUCE,
                                   rank, QUEUE_KERNELS, end - begin, 0);
        for (peer = 0; peer < num_ranks; ++peer) {
            uct_cuda_coll_builder_source(&builder, peer, UCT_CUDA_COLL_SEND,
                                         begin);
        }
        for (peer = 0; peer < num_ranks; ++peer) {
            uct_cuda_coll_builder_destination(&builder, peer,
                                              UCT_CUDA_COLL_RECV, begin);
        }
    }

    return uct_cuda_coll_builder_finish(&builder);
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

/* Slices with their chunks, and where they are put in scratch */
static void lay_out(const uct_cuda_coll_data_t *data,
                    const uct_cuda_coll_trees_t *trees, unsigned chunks,
                    slice_t *slices, uct_cuda_coll_plan_t *plan)
{
    uint64_t used[UCT_CUDA_COLL_MAX_RANKS] = {0};
    const uint64_t unit                    = unit_of(data);
    double share                           = 0;
    slice_t *slice;
    unsigned t, rank, parent;

    for (t = 0; t < trees->count; ++t) {
        slice         = &slices[t];
        slice->tree   = &trees->trees[t];
        slice->offset = cut(data, share);
        share        += slice->tree->weight;
        slice->bytes  = ((t + 1 == trees->count) ? plan->bytes :
                                                   cut(data, share)) -
                        slice->offset;
        slice->chunk  = round_up((slice->bytes + chunks - 1) / chunks, unit);
        slice->chunks = (slice->bytes == 0) ?
                                0 :
                                (unsigned)((slice->bytes + slice->chunk - 1) /
                                           slice->chunk);
        slice->slot   = round_up(ucs_min(slice->chunk, slice->bytes),
                                 SLOT_ALIGN);
        measure(slice, data->num_ranks);

        for (rank = 0; rank < data->num_ranks; ++rank) {
            if (rank != slice->tree->root) {
                parent             = slice->tree->in[rank];
                slice->slots[rank] = used[parent];
                used[parent]      += ucs_min(slice->chunks, SLOTS) *
                                     slice->slot;
            }
        }

        plan->chunks = ucs_max(plan->chunks, slice->chunks);
    }

    plan->scratch = 0;
    for (rank = 0; rank < data->num_ranks; ++rank) {
        plan->scratch = ucs_max(plan->scratch, used[rank]);
    }
}

/* The steps of one chunk. `last` has the reductions of chunks before it whose
 * slots it takes, by rank; filled with its own */
static void emit_in(uct_cuda_coll_builder_t *builder, const slice_t *slice,
                    unsigned num_ranks, unsigned c, uint64_t bytes,
                    uint32_t (*last)[UCT_CUDA_COLL_MAX_RANKS])
{
    const uint64_t offset = slice->offset + c * slice->chunk;
    uint32_t *before      = last[c % SLOTS];
    uint32_t reductions[UCT_CUDA_COLL_MAX_RANKS];
    uint32_t pulls[UCT_CUDA_COLL_MAX_RANKS];
    uint64_t scratch[UCT_CUDA_COLL_MAX_RANKS];
    unsigned depth, rank, child;

    for (rank = 0; rank < num_ranks; ++rank) {
        reductions[rank] = UCT_CUDA_COLL_NO_STEP;
        scratch[rank]    = slice->slots[rank] + (c % SLOTS) * slice->slot;
    }

    for (depth = 1; depth <= slice->depth[slice->tree->root]; ++depth) {
        for (rank = 0; rank < num_ranks; ++rank) {
            if (slice->depth[rank] != depth) {
                continue;
            }

            for (child = 0; child < num_ranks; ++child) {
                if ((child == slice->tree->root) ||
                    (slice->tree->in[child] != rank)) {
                    continue;
                }

                pulls[child] = uct_cuda_coll_builder_step(
                        builder, UCT_CUDA_COLL_COPY, rank, QUEUE_FROM(child),
                        bytes, 2 * (depth - 1 + c));
                uct_cuda_coll_builder_source(builder, child,
                                             is_leaf(slice, child) ?
                                                     UCT_CUDA_COLL_SEND :
                                                     UCT_CUDA_COLL_RECV,
                                             offset);
                uct_cuda_coll_builder_destination(
                        builder, rank, UCT_CUDA_COLL_SCRATCH, scratch[child]);
                uct_cuda_coll_builder_wait(builder, reductions[child]);
                uct_cuda_coll_builder_wait(builder, before[rank]);
            }

            reductions[rank] = uct_cuda_coll_builder_step(
                    builder, UCT_CUDA_COLL_REDUCE, rank, QUEUE_KERNELS, bytes,
                    2 * (depth + c) - 1);
            for (child = 0; child < num_ranks; ++child) {
                if (child == rank) {
                    uct_cuda_coll_builder_source(
                            builder, rank, UCT_CUDA_COLL_SEND, offset);
                } else if ((child != slice->tree->root) &&
                           (slice->tree->in[child] == rank)) {
                    uct_cuda_coll_builder_source(builder, rank,
                                                 UCT_CUDA_COLL_SCRATCH,
                                                 scratch[child]);
                    uct_cuda_coll_builder_wait(builder, pulls[child]);
                }
            }
            uct_cuda_coll_builder_destination(builder, rank,
                                              UCT_CUDA_COLL_RECV, offset);
        }
    }

    memcpy(before, reductions, sizeof(reductions));
}

/* ... and out again, from the root's sum on */
static void emit_out(uct_cuda_coll_builder_t *builder, const slice_t *slice,
                     unsigned num_ranks, unsigned c, uint64_t bytes,
                     uint32_t sum)
{
    const unsigned root   = slice->tree->root;
    const uint64_t offset = slice->offset + c * slice->chunk;
    uint32_t arrived[UCT_CUDA_COLL_MAX_RANKS];
    unsigned level[UCT_CUDA_COLL_MAX_RANKS];
    unsigned known, rank, from, round;

    memset(level, 0, sizeof(level));
    arrived[root] = sum;
    level[root]   = slice->depth[root];
    known         = 1u << root;
    for (round = 1; round < num_ranks; ++round) {
        const unsigned before = known;

        for (rank = 0; rank < num_ranks; ++rank) {
            from = slice->tree->out[rank];
            if ((known & (1u << rank)) || !(before & (1u << from))) {
                continue;
            }

            arrived[rank] = uct_cuda_coll_builder_step(
                    builder, UCT_CUDA_COLL_COPY, from, QUEUE_TO(rank), bytes,
                    2 * (level[from] + c));
            uct_cuda_coll_builder_source(builder, from, UCT_CUDA_COLL_RECV,
                                         offset);
            uct_cuda_coll_builder_destination(builder, rank,
                                              UCT_CUDA_COLL_RECV, offset);
            uct_cuda_coll_builder_wait(builder, arrived[from]);
            level[rank] = level[from] + 1;
            known      |= 1u << rank;
        }
    }
}

ucs_status_t uct_cuda_coll_emit_trees(const uct_cuda_coll_data_t *data,
                                      const uct_cuda_coll_trees_t *trees,
                                      unsigned chunks, uint64_t max_scratch,
                                      uct_cuda_coll_plan_t *plan)
{
    const size_t num_ranks = data->num_ranks;
    slice_t slices[UCT_CUDA_COLL_MAX_TREES];
    uint32_t last[UCT_CUDA_COLL_MAX_TREES][SLOTS][UCT_CUDA_COLL_MAX_RANKS];
    uct_cuda_coll_builder_t builder;
    ucs_status_t status;
    uint64_t bytes;
    size_t pieces;
    unsigned t, c;

    init_plan(data, UCT_CUDA_COLL_FLAT, plan);
    lay_out(data, trees, chunks, slices, plan);
    while ((plan->scratch > max_scratch) &&
           (chunks < UCT_CUDA_COLL_MAX_CHUNKS)) {
        chunks = ucs_min(2 * chunks, UCT_CUDA_COLL_MAX_CHUNKS);
        lay_out(data, trees, chunks, slices, plan);
    }

    if (plan->scratch > max_scratch) {
        memset(plan, 0, sizeof(*plan));
        return UCS_ERR_NO_RESOURCE;
    }

    /* Of a chunk: n - 1 pulls, as many pushes, and at most n - 1 sums, which
     * have n - 1 sources from others and one each of their own */
    pieces = trees->count * (size_t)plan->chunks;
    status = uct_cuda_coll_builder_init(&builder, plan, pieces * 3 * num_ranks,
                                        pieces * 7 * num_ranks,
                                        pieces * 4 * num_ranks);
    if (status != UCS_OK) {
        return status;
    }

    memset(last, 0xff, sizeof(last)); /* NO_STEP */
    for (c = 0; c < plan->chunks; ++c) {
        for (t = 0; t < trees->count; ++t) {
            if (c >= slices[t].chunks) {
                continue;
            }

            bytes = ucs_min(slices[t].chunk,
                            slices[t].bytes - c * slices[t].chunk);
            emit_in(&builder, &slices[t], data->num_ranks, c, bytes, last[t]);
            emit_out(&builder, &slices[t], data->num_ranks, c, bytes,
                     last[t][c % SLOTS][slices[t].tree->root]);
        }
    }

    return uct_cuda_coll_builder_finish(&builder);
}
