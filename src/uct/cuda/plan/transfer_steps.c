/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts, chunks and steps of a plan. */
#include <uct/cuda/plan/transfer_steps.h>

#include <ucs/sys/math.h>

#include <string.h>


#define ALIGN UCT_CUDA_PLAN_ALIGN


/* Writer of a plan's steps */
typedef struct {
    uct_cuda_plan_t *plan;
    uint64_t offsets[UCT_CUDA_PLAN_MAX_PATHS]; /* of the parts */
    uint32_t drains[UCT_CUDA_PLAN_MAX_PATHS][UCT_CUDA_PLAN_MAX_CHUNKS];
    uint32_t fills[UCT_CUDA_PLAN_MAX_PATHS];
} writer_t;


/* Add a copy of a chunk on a path. @return Its number */
static uint32_t
add_step(uct_cuda_plan_t *plan, unsigned path, unsigned chunk,
         uint64_t bytes, uct_cuda_plan_place_t from, uct_cuda_plan_place_t to,
         uint32_t wait)
{
    const uint16_t number = plan->num_steps++;

    plan->steps[number] = (uct_cuda_plan_step_t){
        .bytes            = bytes,
                          .places           = 2u * number,
                          .waits            = number,
                          .num_waits        = (wait != UCT_CUDA_NO_STEP),
                          .num_sources      = 1,
                          .num_destinations = 1,
                          .type             = UCT_CUDA_PLAN_STEP_COPY,
        .queue = uct_cuda_plan_link(uct_cuda_end_at(from.owner),
                                    uct_cuda_end_at(to.owner)),
        .part = (uint8_t)path, .chunk = (uint8_t)chunk
    };
    plan->places[2 * number]     = from;
    plan->places[2 * number + 1] = to;
    plan->waits[number]          = wait;
    return number;
}

static uct_cuda_plan_place_t
end_place(uct_cuda_end_t end, uct_cuda_buffer_t buffer, uint64_t offset)
{
    const uct_cuda_plan_place_t place = {
        .offset = offset, .owner = (uint8_t)uct_cuda_end_index(end),
        .buffer = (uint8_t)buffer
    };

    return place;
}

/* Add a part's only copy, or a hop of a chunk. The first hop fills a slot,
 * after the previous chunk has left it; the second hop waits for the first. */
static void add_hop(writer_t *writer, unsigned p, unsigned chunk, unsigned hop)
{
    const uct_cuda_plan_t *plan      = writer->plan;
    const uct_cuda_plan_path_share_t *part = &plan->paths[p];
    const uint64_t begin             = chunk * part->chunk;
    const uint64_t bytes             = ucs_min(part->bytes - begin,
                                               part->chunk);
    const uct_cuda_plan_place_t source = end_place(plan->src,
                                                   UCT_CUDA_BUFFER_SEND,
                                                   writer->offsets[p] + begin);
    const uct_cuda_plan_place_t destination =
        end_place(plan->dst, UCT_CUDA_BUFFER_RECV, writer->offsets[p] + begin);
    uct_cuda_plan_place_t slot;

    if (part->slots == 0) {
        add_step(writer->plan, p, chunk, bytes, source, destination,
                 UCT_CUDA_NO_STEP);
        return;
    }

    slot      = end_place(part->via, UCT_CUDA_BUFFER_SCRATCH, 0);
    slot.slot = (uint16_t)(chunk % part->slots);
    if (hop == 0) {
        writer->fills[p] = add_step(writer->plan, p, chunk, bytes, source,
                                    slot,
                                    (chunk >= part->slots) ?
                                            writer->drains[p][chunk -
                                                              part->slots] :
                                            UCT_CUDA_NO_STEP);
    } else {
        writer->drains[p][chunk] = add_step(writer->plan, p, chunk, bytes,
                                            slot, destination,
                                            writer->fills[p]);
    }
}

/* Write the steps: the direct part first, then chunk by chunk over all staged
 * paths, so that no path waits for the submission of another's last chunk */
static void write_steps(writer_t *writer)
{
    uct_cuda_plan_t *plan = writer->plan;
    unsigned last         = 0;
    unsigned p, chunk, hop;

    for (p = 0; p < plan->num_paths; ++p) {
        if (plan->paths[p].slots == 0) {
            add_hop(writer, p, 0, 0);
        } else {
            last = ucs_max(last, plan->paths[p].chunks);
        }
    }

    for (chunk = 0; chunk < last; ++chunk) {
        for (hop = 0; hop < UCT_CUDA_PLAN_MAX_HOPS; ++hop) {
            for (p = 0; p < plan->num_paths; ++p) {
                if ((plan->paths[p].slots > 0) &&
                    (chunk < plan->paths[p].chunks)) {
                    add_hop(writer, p, chunk, hop);
                }
            }
        }
    }
}

/* Drop the paths with less than ALIGN bytes, but keep at least one. @return
 * Index of the path that gets the bytes left over by rounding: the direct one,
 * else the one with the most bytes */
static unsigned keep_whole_parts(uct_cuda_plan_split_t *split)
{
    unsigned count = 0;
    unsigned rest  = 0;
    unsigned i;

    for (i = 0; i < split->count; ++i) {
        if ((split->bytes[i] < ALIGN) && (split->count - i + count > 1)) {
            continue;
        }

        split->paths[count]  = split->paths[i];
        split->bytes[count]  = split->bytes[i];
        split->chunks[count] = split->chunks[i];
        if ((split->paths[count]->hops == 1) ||
            ((split->paths[rest]->hops > 1) &&
             (split->bytes[count] > split->bytes[rest]))) {
            rest = count;
        }
        ++count;
    }

    split->count = count;
    return rest;
}

/* Set chunk, chunks and slots of a part; a direct path has one chunk and no
 * slot. @return false: too many chunks for a plan */
static bool
cut_into_chunks(const uct_cuda_plan_query_t *query,
                const uct_cuda_plan_split_t *split, unsigned path,
                uct_cuda_plan_path_share_t *part)
{
    part->chunk  = part->bytes;
    part->chunks = 1;
    part->slots  = 0;
    if (split->paths[path]->hops > 1) {
        part->chunk  = uct_cuda_plan_model_chunk(query, part->bytes,
                                                 split->chunks[path]);
        part->chunks = (uint16_t)((part->bytes + part->chunk - 1) /
                                  part->chunk);
        part->slots  = ucs_min(part->chunks, UCT_CUDA_PLAN_SLOTS);
    }

    return part->chunks <= UCT_CUDA_PLAN_MAX_CHUNKS;
}

void uct_cuda_plan_write(const uct_cuda_plan_query_t *query,
                         uct_cuda_plan_split_t *split, uct_cuda_plan_t *plan)
{
    const uint64_t most = UCT_CUDA_PLAN_MAX_CHUNKS * plan->slot_size;
    const unsigned rest = keep_whole_parts(split);
    uint64_t offset     = 0;
    uct_cuda_plan_path_share_t *part;
    writer_t writer;
    unsigned i;

    writer.plan     = plan;
    plan->num_paths = (uint16_t)split->count;
    for (i = 0; i < split->count; ++i) {
        part        = &plan->paths[i];
        part->via   = split->paths[i]->via;
        part->bytes = (uint64_t)split->bytes[i] & ~(ALIGN - 1);
        if ((split->paths[i]->hops > 1) && (part->bytes > most)) {
            part->bytes = most;
        }

        if (i != rest) {
            writer.offsets[i] = offset;
            offset           += part->bytes;
        }
    }

    /* it is last in the buffer */
    plan->paths[rest].bytes = plan->size - offset;
    writer.offsets[rest]    = offset;
    for (i = 0; i < split->count; ++i) {
        if (!cut_into_chunks(query, split, i, &plan->paths[i])) {
            plan->num_paths = 0;
            return;
        }
    }

    write_steps(&writer);
}

void uct_cuda_plan_init(uct_cuda_end_t src, uct_cuda_end_t dst,
                        uct_cuda_end_t remote, size_t size,
                        uct_cuda_plan_t *plan)
{
    const bool is_get        = uct_cuda_end_is_gpu(src) &&
                               uct_cuda_end_is_gpu(dst) &&
                               uct_cuda_end_equal(src, remote);
    const uct_cuda_end_t own = is_get ? dst :
                                        uct_cuda_plan_gpu_end(src, dst);

    memset(plan, 0, offsetof(uct_cuda_plan_t, paths));
    plan->src    = src;
    plan->dst    = dst;
    plan->remote = remote;
    plan->local  = (int16_t)uct_cuda_end_device(own);
    plan->size   = size;
}

void uct_cuda_plan_single(uct_cuda_end_t src, uct_cuda_end_t dst,
                          uct_cuda_end_t remote, size_t size,
                          uct_cuda_plan_t *plan)
{
    uct_cuda_plan_path_share_t *part = &plan->paths[0];

    uct_cuda_plan_init(src, dst, remote, size, plan);
    plan->num_paths = 1;
    part->via    = uct_cuda_end_none();
    part->bytes  = part->chunk = size;
    part->chunks = 1;
    part->slots  = 0;
    add_step(plan, 0, 0, size, end_place(src, UCT_CUDA_BUFFER_SEND, 0),
             end_place(dst, UCT_CUDA_BUFFER_RECV, 0), UCT_CUDA_NO_STEP);
}
