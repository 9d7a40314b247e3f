/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Choice of paths, shares and chunks, as configured or by the model, and output
 * of the steps.
 */
#include <uct/cuda/plan/transfer_planner.h>

#include <uct/cuda/base/hash.h>
#include <uct/cuda/plan/reason.h>

#include <ucs/sys/math.h>

#include <float.h>
#include <string.h>


#define ALIGN UCT_CUDA_PLAN_ALIGN

/* Smallest transfer striped by force, without asking the model */
#define FORCED_MIN_SIZE (1ul << 20)


/* Smaller relative differences of rate are rounding errors */
#define RATE_ROUNDING 1e-6


/* Smallest speedup for round robin over paths: the processor's part varies by
 * half between machines (4 x H200), and such windows end unevenly */
#define ROTATION_MIN_GAIN 1.25


typedef struct {
    uct_cuda_plan_query_t query;
    double             single_seconds; /* of a plain copy */
    bool               is_unlinked;    /* GPUs without peer access */
    uint32_t           absent;         /* relays */
    const uct_cuda_plan_constraints_t *constraints; /* or NULL */
    unsigned           num_candidates;
    uct_cuda_plan_model_path_t        candidates[UCT_CUDA_MAX_GPUS + 1];
} problem_t;


static bool is_absent(const problem_t *problem, uct_cuda_end_t via)
{
    return !uct_cuda_end_is_none(via) &&
           (problem->absent & uct_cuda_end_bit(via));
}

static bool is_link_absent(const uct_cuda_plan_constraints_t *constraints,
                           uint16_t link)
{
    const uct_cuda_end_t from = uct_cuda_plan_link_from(link);
    const uct_cuda_end_t to   = uct_cuda_plan_link_to(link);

    return (constraints != NULL) &&
           (constraints->absent_links[uct_cuda_end_index(from)] &
            uct_cuda_end_bit(to));
}

/* Return whether sources disagree about a link. Such a link carries plain
 * copies only. */
static bool is_link_doubtful(const uct_cuda_topo_t *topo, uint16_t link)
{
    return uct_cuda_topo_link(topo, uct_cuda_plan_link_from(link),
                              uct_cuda_plan_link_to(link))
            ->is_doubtful;
}

/* Add the path staged at an end, or with none the direct path, as a candidate.
 * @return false: the hardware has no such path, or its relay or a link of it is
 * absent or doubtful */
static bool problem_add(problem_t *problem, uct_cuda_end_t via)
{
    const uct_cuda_plan_config_t *config = problem->query.config;
    uct_cuda_plan_model_path_t *candidate =
            &problem->candidates[problem->num_candidates];
    unsigned hop;

    if (is_absent(problem, via) ||
        !uct_cuda_plan_model_path(&problem->query, via, candidate)) {
        return false;
    }

    /* A link of doubtful bandwidth is no relay unless all paths are forced, or
     * the driver's copy uses the same links */
    for (hop = 0; hop < candidate->hops; ++hop) {
        if (is_link_absent(problem->constraints, candidate->links[hop]) ||
            ((candidate->hops > 1) && (config->enable == UCT_CUDA_PLAN_AUTO) &&
             !problem->is_unlinked &&
             is_link_doubtful(problem->query.topo, candidate->links[hop]))) {
            return false;
        }
    }

    candidate->chunks = (config->num_chunks == 1) ? config->chunks[0] : 0;
    ++problem->num_candidates;
    return true;
}

/* The host path pays only without traffic into the source or out of the
 * destination, which one process cannot see for others. In a ring the
 * neighbours' messages cross, not those of the pair: 4 H200 lost 13 % with
 * windows of one message when all of a ring used the host at once.
 *
 * Unless the user asks for several paths, some transfers must have ended
 * without such traffic. Preparing the path blocks the program's driver calls
 * (20 ms in 0.2 to 0.3 s, 2 x H100), which a program that exchanges data would
 * pay for nothing. */
bool uct_cuda_plan_may_use_host(const uct_cuda_plan_config_t *config,
                                const uct_cuda_plan_load_t *load,
                                uct_cuda_end_t src, uct_cuda_end_t dst,
                                double size)
{
    if (config->host != UCT_CUDA_PLAN_AUTO) {
        return config->host == UCT_CUDA_PLAN_YES;
    }

    return (load != NULL) && load->is_known &&
           uct_cuda_plan_is_uncrossed(config, load->uncrossed, size) &&
           !uct_cuda_plan_load_is_crossed(load, src, dst);
}

bool uct_cuda_plan_is_uncrossed(const uct_cuda_plan_config_t *config,
                                uint64_t uncrossed, double size)
{
    return (config->host != UCT_CUDA_PLAN_AUTO) ||
           (config->enable == UCT_CUDA_PLAN_YES) ||
           ((double)uncrossed >= UCT_CUDA_PLAN_HOST_PROOF * size);
}

/* Move the relays worth using to the front and return their number.
 *
 * A relay whose links are busy only moves bandwidth from another transfer to
 * this one. If all relays are busy one is still used, provided that the others
 * use its links as relays, too: a transfer that came first and took several
 * finds that one busy, and gives it up. A transfer whose ends the link connects
 * cannot give it up: with traffic both ways round a ring (4 GPUs, beluga,
 * modelled) one relay each made all slower, to 0.78 of one path. This includes
 * limits shared with such a link, as between sockets (mist: 0.85). Candidates
 * are sorted. */
static unsigned
yield_relays(uct_cuda_plan_model_path_t *relays, unsigned num_relays)
{
    unsigned count = 0;
    unsigned i;

    for (i = 0; i < num_relays; ++i) {
        if (!relays[i].is_busy && !relays[i].is_taken) {
            relays[count++] = relays[i];
        }
    }

    for (i = 0; (count == 0) && (i < num_relays); ++i) {
        if (!relays[i].is_taken) {
            relays[count++] = relays[i];
        }
    }

    return count;
}

/* Choose the relays to use. Candidates: direct path, relays by bandwidth,
 * host. */
static void problem_choose_relays(problem_t *problem, bool has_host)
{
    const uct_cuda_plan_config_t *config = problem->query.config;
    uct_cuda_plan_model_path_t *relays   = &problem->candidates[1];
    unsigned found = problem->num_candidates - 1 - (has_host ? 1 : 0);
    unsigned count = found;

    /* Links to host memory are shared: transfers using one offer their own. In
     * windows a transfer that yields loses its link anyway. */
    if ((config->enable == UCT_CUDA_PLAN_AUTO) &&
        !uct_cuda_plan_ends_host(problem->query.src,
                                 problem->query.dst)) {
        count = yield_relays(relays, found);
    }

    if (count > config->max_gpu_paths - 1) {
        count = config->max_gpu_paths - 1;
    }

    problem->num_candidates = 1 + count;
    if (has_host) {
        problem->candidates[problem->num_candidates++] = relays[found];
    }
}

/* Return whether a relay's link to the host crosses sockets to the buffer */
static bool is_far(const uct_cuda_plan_query_t *query,
                   const uct_cuda_plan_model_path_t *relay)
{
    const int gpu = uct_cuda_end_device(relay->via);

    return uct_cuda_plan_ends_host(query->src, query->dst) &&
           (query->topo->gpus[gpu].numa != query->numa);
}

static bool is_better_relay(const uct_cuda_plan_query_t *query,
                            const uct_cuda_plan_model_path_t *a,
                            const uct_cuda_plan_model_path_t *b)
{
    const bool a_is_far = is_far(query, a);
    const bool b_is_far = is_far(query, b);

    return (a_is_far != b_is_far) ? b_is_far : (a->cap > b->cap);
}

/* Add relays by bandwidth; equal ones in the order (relay - source) mod n, so
 * that symmetric patterns of transfers collide as rarely as possible */
static void problem_add_relays(problem_t *problem)
{
    const uct_cuda_plan_query_t *query = &problem->query;
    unsigned first                       = problem->num_candidates;
    const int start = uct_cuda_end_device(
            uct_cuda_plan_gpu_end(query->src, query->dst));
    uct_cuda_plan_model_path_t moved;
    unsigned i;
    int n, gpu;

    for (n = 1; n < query->topo->num_gpus; ++n) {
        gpu = (start + n) % query->topo->num_gpus;
        if (!problem_add(problem, uct_cuda_end_gpu(gpu))) {
            continue;
        }

        i     = problem->num_candidates - 1;
        moved = problem->candidates[i];
        for (; (i > first) &&
               is_better_relay(query, &moved, &problem->candidates[i - 1]);
             --i) {
            problem->candidates[i] = problem->candidates[i - 1];
        }
        problem->candidates[i] = moved;
    }
}

/* Return the bytes/s of the first candidates and one more */
static double rate_with(const problem_t *problem, unsigned count,
                        unsigned candidate)
{
    double rates[UCT_CUDA_PLAN_MAX_PATHS];
    double sum = 0;
    uct_cuda_plan_split_t split;
    unsigned i;

    for (i = 0; i < count; ++i) {
        split.paths[i] = &problem->candidates[i];
    }

    split.paths[count] = &problem->candidates[candidate];
    split.count        = count + 1;
    uct_cuda_plan_model_rates(&problem->query, &split, rates);
    for (i = 0; i <= count; ++i) {
        sum += rates[i];
    }

    return sum;
}

/* Relays of host memory share switches and socket links on the way: choose next
 * the relay that adds the most, the first one among equals */
static void problem_sort_host_relays(problem_t *problem)
{
    unsigned most = problem->query.config->max_gpu_paths;
    unsigned count, best, i;
    uct_cuda_plan_model_path_t moved;
    double rate, highest;

    if (most > UCT_CUDA_PLAN_MAX_PATHS) {
        most = UCT_CUDA_PLAN_MAX_PATHS;
    }

    for (count = 1; (count < most) && (count < problem->num_candidates);
         ++count) {
        best    = count;
        highest = rate_with(problem, count, count);
        for (i = count + 1; i < problem->num_candidates; ++i) {
            rate = rate_with(problem, count, i);
            if (rate > highest * (1 + RATE_ROUNDING)) {
                highest = rate;
                best    = i;
            }
        }

        moved = problem->candidates[best];
        for (i = best; i > count; --i) {
            problem->candidates[i] = problem->candidates[i - 1];
        }
        problem->candidates[count] = moved;
    }
}

static void take_all(const problem_t *problem, uct_cuda_plan_split_t *split)
{
    unsigned i;

    split->count = problem->num_candidates;
    if (split->count > UCT_CUDA_PLAN_MAX_PATHS) {
        split->count = UCT_CUDA_PLAN_MAX_PATHS;
    }

    for (i = 0; i < split->count; ++i) {
        split->paths[i] = &problem->candidates[i];
    }
}

static void split_of_all(const problem_t *problem, uct_cuda_plan_split_t *split)
{
    take_all(problem, split);
    uct_cuda_plan_model_solve(&problem->query, split);
}

/* Return whether a split beats a plain copy by the smallest gain of the model
 * and by more than the uncertainty of its paths */
static bool
is_worthwhile(const problem_t *problem, const uct_cuda_plan_split_t *split)
{
    double margin = 0;
    unsigned i;

    for (i = 0; i < split->count; ++i) {
        if ((split->bytes[i] > 0) && (split->paths[i]->margin > margin)) {
            margin = split->paths[i]->margin;
        }
    }

    return split->seconds * problem->query.model->min_gain + margin <=
           problem->single_seconds;
}

/* Find the best of: the direct path, with the first few relays, with or without
 * the host. Candidates are in that order, the host last. Without peer access
 * the first relay, or else the host, takes the direct path's place. Count 0:
 * none is worthwhile. */
static void split_best(const problem_t *problem, bool has_host,
                       uct_cuda_plan_split_t *best)
{
    unsigned relays = problem->num_candidates - 1 - (has_host ? 1 : 0);
    unsigned most   = problem->query.config->max_gpu_paths - 1;
    double tolerance, least;
    uct_cuda_plan_split_t split;
    unsigned i;
    int host;

    if (most > relays) {
        most = relays;
    }

    if (most > (unsigned)(UCT_CUDA_PLAN_MAX_PATHS - 2)) {
        most = UCT_CUDA_PLAN_MAX_PATHS - 2;
    }

    /* Host memory bandwidth varies by a fifth from day to day (measured beside
     * H200), so an extra link to it that costs almost nothing is accepted */
    tolerance     = uct_cuda_plan_ends_host(problem->query.src,
                                            problem->query.dst) ?
                            problem->query.model->min_gain :
                            1;
    least         = DBL_MAX;
    best->seconds = DBL_MAX;
    best->count   = 0;
    for (i = 0; i <= most; ++i) {
        split.paths[i] = &problem->candidates[i];
        for (host = 0; host <= has_host; ++host) {
            split.count = i + 1 + host;
            if (host) {
                split.paths[i + 1] =
                        &problem->candidates[problem->num_candidates - 1];
            }

            if ((split.count < 2) && !problem->is_unlinked) {
                continue;
            }

            uct_cuda_plan_model_solve(&problem->query, &split);
            if ((split.seconds < least * tolerance) &&
                is_worthwhile(problem, &split)) {
                least = (split.seconds < least) ? split.seconds : least;
                *best = split;
            }
        }
    }
}

/* Return the path in round robin that ends this transfer first, behind the
 * traffic on its links */
static unsigned next_path(const problem_t *problem,
                          const uct_cuda_plan_split_t *split,
                          const double *rates)
{
    const uct_cuda_plan_load_t *load = problem->query.load;
    double least                     = DBL_MAX;
    unsigned best                    = 0;
    double seconds;
    uint64_t ahead;
    unsigned i, hop;

    for (i = 0; i < split->count; ++i) {
        ahead = 0;
        for (hop = 0; hop < split->paths[i]->hops; ++hop) {
            if (load->ahead[split->paths[i]->links[hop]] > ahead) {
                ahead = load->ahead[split->paths[i]->links[hop]];
            }
        }

        seconds = split->paths[i]->latency +
                  ((double)ahead + problem->query.size) / rates[i];
        if (seconds < least) {
            least = seconds;
            best  = i;
        }
    }

    return best;
}

/* Compute a window whose transfers use one path each, in round robin. @return
 * true: it beats all paths, or one, for each transfer. @a others is the best
 * without round robin, in the middle of the window. */
static bool rotate(const problem_t *problem,
                   const uct_cuda_plan_split_t *others,
                   uct_cuda_plan_split_t *rotation, double *rates)
{
    const uct_cuda_plan_query_t *query = &problem->query;
    uct_cuda_plan_split_t single       = {
        .count   = 1,
        .paths   = {&problem->candidates[0]},
        .seconds = problem->single_seconds
    };

    take_all(problem, rotation);
    others = (others->count > 0) ? others : &single;
    uct_cuda_plan_model_cycle(query, rotation, rates);
    return (rotation->seconds * ROTATION_MIN_GAIN <=
            uct_cuda_plan_model_window(query, others)) &&
           is_worthwhile(problem, rotation);
}

/* Plan a transfer in a window of transfers from host memory. If they are small,
 * submitting copies over all paths takes longer than the links need: then give
 * each transfer one path, in round robin. Callers do not use this for transfers
 * to host memory: there such windows stalled for milliseconds at a time (4 x
 * H200, MPI; not with the same copies by hand; cause unknown).
 *
 * @return true: @a split is this transfer's one path; false: @a split is the
 * best split without round robin. */
static bool split_window(problem_t *problem, uct_cuda_plan_split_t *split)
{
    uct_cuda_plan_query_t *query = &problem->query;
    const unsigned queued        = query->queued;
    const double single_seconds  = problem->single_seconds;
    double rates[UCT_CUDA_PLAN_MAX_PATHS];
    uct_cuda_plan_split_t rotation;
    unsigned next;
    bool rotates;

    if (queued == 0) {
        /* evaluated as if other transfers were ahead */
        query->queued           = 1;
        rotation.count          = 1;
        rotation.paths[0]       = &problem->candidates[0];
        problem->single_seconds = uct_cuda_plan_model_single(query, &rotation);
    }

    split_best(problem, false, split);
    rotates                 = rotate(problem, split, &rotation, rates);
    query->queued           = queued;
    problem->single_seconds = single_seconds;
    if (rotates) {
        next             = next_path(problem, &rotation, rates);
        split->count     = 1;
        split->seconds   = rotation.seconds;
        split->paths[0]  = rotation.paths[next];
        split->bytes[0]  = rotation.bytes[next];
        split->chunks[0] = rotation.chunks[next];
    } else if (queued == 0) {
        split_best(problem, false, split);
    }

    return rotates;
}

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
cut_into_chunks(const problem_t *problem, const uct_cuda_plan_split_t *split,
                unsigned path, uct_cuda_plan_path_share_t *part)
{
    part->chunk  = part->bytes;
    part->chunks = 1;
    part->slots  = 0;
    if (split->paths[path]->hops > 1) {
        part->chunk  = uct_cuda_plan_model_chunk(&problem->query, part->bytes,
                                                 split->chunks[path]);
        part->chunks = (uint16_t)((part->bytes + part->chunk - 1) /
                                  part->chunk);
        part->slots  = ucs_min(part->chunks, UCT_CUDA_PLAN_SLOTS);
    }

    return part->chunks <= UCT_CUDA_PLAN_MAX_CHUNKS;
}

/* Turn shares into aligned parts, and parts into steps. num_paths 0: a part has
 * too many chunks for a plan. */
static void plan_write(const problem_t *problem, uct_cuda_plan_split_t *split,
                       uint64_t size, uct_cuda_plan_t *plan)
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
    plan->paths[rest].bytes = size - offset;
    writer.offsets[rest]    = offset;
    for (i = 0; i < split->count; ++i) {
        if (!cut_into_chunks(problem, split, i, &plan->paths[i])) {
            plan->num_paths = 0;
            return;
        }
    }

    write_steps(&writer);
}

size_t uct_cuda_plan_piece_size(size_t size, size_t largest)
{
    size_t pieces = (size + largest - 1) / largest;
    size_t piece  = (size + pieces - 1) / pieces;

    if (pieces > 1) {
        piece = (piece + ALIGN - 1) & ~(ALIGN - 1);
    }

    return (piece > largest) ? largest : piece;
}

size_t uct_cuda_plan_max_size(const uct_cuda_plan_config_t *config)
{
    uint64_t most = UCT_CUDA_PLAN_MAX_CHUNKS * uct_cuda_plan_slot_size(config);

    return (most < UCT_CUDA_PLAN_MAX_SIZE) ? most :
                                                UCT_CUDA_PLAN_MAX_SIZE;
}

/* Use configured paths, shares and chunks. @return false: the hardware has none
 * of the paths */
static bool problem_set_paths(problem_t *problem)
{
    const uct_cuda_plan_config_t *config = problem->query.config;
    uct_cuda_plan_model_path_t *candidate;
    unsigned i;

    problem->num_candidates = 0;
    for (i = 0; i < config->num_paths; ++i) {
        candidate = &problem->candidates[problem->num_candidates];
        if (!problem_add(problem, config->paths[i])) {
            continue;
        }

        if (config->num_shares > 0) {
            candidate->share = config->shares[i];
        }

        if (config->num_chunks > 1) {
            candidate->chunks = config->chunks[i];
        }
    }

    return problem->num_candidates > 0;
}

/* Return whether the driver refuses peer access between two GPUs: it copies
 * through host memory */
static bool is_unlinked(const uct_cuda_topo_t *topo, uct_cuda_end_t src,
                        uct_cuda_end_t dst)
{
    return !uct_cuda_plan_ends_host(src, dst) &&
           (uct_cuda_topo_link(topo, src, dst)->bandwidth <= 0);
}

/* Return whether data can be copied between two ends */
static bool are_joined(const uct_cuda_plan_knowledge_t *know,
                       uct_cuda_end_t src, uct_cuda_end_t dst)
{
    if (!uct_cuda_topo_has_end(know->topo, src) ||
        !uct_cuda_topo_has_end(know->topo, dst) ||
        uct_cuda_end_equal(src, dst)) {
        return false;
    }

    return is_unlinked(know->topo, src, dst) ||
           ((uct_cuda_topo_link(know->topo, src, dst)->bandwidth > 0) &&
            !is_link_absent(know->constraints, uct_cuda_plan_link(src, dst)));
}

/* Return the NUMA node of host memory on the way */
static int find_numa(const uct_cuda_plan_knowledge_t *know, uct_cuda_end_t src,
                     uct_cuda_end_t dst)
{
    if (uct_cuda_plan_ends_host(src, dst) && (know->numa != NULL)) {
        return *know->numa;
    }

    return know->topo
            ->gpus[uct_cuda_end_device(uct_cuda_plan_gpu_end(src, dst))]
            .numa;
}

static const uct_cuda_plan_model_t *
model_of(const uct_cuda_plan_knowledge_t *know)
{
    return (know->model != NULL) ? know->model :
                                   uct_cuda_plan_tuning_model(know->tuning);
}

/* Check the conditions known before looking at paths */
static uct_cuda_plan_reason_t
find_refusal(const uct_cuda_plan_knowledge_t *know, uct_cuda_end_t src,
             uct_cuda_end_t dst, size_t size)
{
    const uct_cuda_plan_config_t *config = know->config;

    if (config->enable == UCT_CUDA_PLAN_NO) {
        return UCT_CUDA_PLAN_NO_OFF;
    } else if (!are_joined(know, src, dst)) {
        return UCT_CUDA_PLAN_NO_LINK;
    } else if ((config->min_size != UCT_CUDA_PLAN_SIZE_AUTO) &&
               (size < config->min_size)) {
        return UCT_CUDA_PLAN_NO_MIN_SIZE;
    } else if ((size < 2 * ALIGN) ||
               (size > uct_cuda_plan_max_size(know->config)) ||
               ((config->min_size == UCT_CUDA_PLAN_SIZE_AUTO) &&
                (config->enable == UCT_CUDA_PLAN_YES) &&
                (size < FORCED_MIN_SIZE))) {
        return UCT_CUDA_PLAN_NO_GAIN;
    }

    return UCT_CUDA_PLAN_ADMITTED;
}

static void
problem_init(problem_t *problem, const uct_cuda_plan_knowledge_t *know,
             const uct_cuda_plan_t *plan)
{
    uct_cuda_plan_query_t *query = &problem->query;

    query->numa             = find_numa(know, plan->src, plan->dst);
    query->topo             = know->topo;
    query->config           = know->config;
    query->load             = know->load;
    query->model            = model_of(know);
    query->src              = plan->src;
    query->dst              = plan->dst;
    query->size             = (double)plan->size;
    problem->num_candidates = 0;
    problem->absent         = know->absent;
    problem->constraints    = know->constraints;
    problem->is_unlinked    = is_unlinked(know->topo, plan->src, plan->dst);
    uct_cuda_plan_model_start(query);
}

/* Choose the paths; the direct path, if there is one, is the first candidate.
 * The split has count 0 if no paths are worthwhile. @return true: it has one
 * path of a round robin */
static bool choose_split(const uct_cuda_plan_knowledge_t *know,
                         problem_t *problem, uct_cuda_plan_t *plan,
                         uct_cuda_plan_split_t *split)
{
    const uct_cuda_plan_config_t *config = problem->query.config;
    const bool is_host                   = uct_cuda_plan_is_host(plan);
    bool has_host;

    problem_add_relays(problem);
    if (is_host) {
        problem_sort_host_relays(problem);
    }

    has_host = !is_host &&
               (problem->is_unlinked ?
                        (config->host != UCT_CUDA_PLAN_NO) :
                        uct_cuda_plan_may_use_host(config, know->load,
                                                   plan->src, plan->dst,
                                                   problem->query.size)) &&
               problem_add(problem, uct_cuda_end_host());
    if (problem->num_candidates == 0) {
        split->count = 0;
        return false;
    }

    has_host = has_host && (problem->num_candidates > 1);
    problem_choose_relays(problem, has_host);
    if (config->enable == UCT_CUDA_PLAN_YES) {
        split_of_all(problem, split);
    } else if (uct_cuda_end_is_host(plan->src) && (know->load != NULL) &&
               (know->load->window > 1)) {
        return split_window(problem, split);
    } else {
        split_best(problem, has_host, split);
    }

    return false;
}

/* Split as configured, or best. @return false: use a plain copy */
static bool
plan_split(const uct_cuda_plan_knowledge_t *know, uct_cuda_plan_t *plan)
{
    const uct_cuda_plan_config_t *config = know->config;
    bool rotates                         = false;
    problem_t problem;
    uct_cuda_plan_split_t split;

    problem_init(&problem, know, plan);
    plan->numa = (int16_t)problem.query.numa;

    /* time of a plain copy, for comparison */
    if (problem.is_unlinked) {
        problem.single_seconds = uct_cuda_plan_model_unlinked(&problem.query);
    } else {
        (void)problem_add(&problem, uct_cuda_end_none());
        split_of_all(&problem, &split);
        problem.single_seconds = uct_cuda_plan_model_single(&problem.query,
                                                            &split);
    }
    plan->single_seconds   = problem.single_seconds;
    if (config->num_paths == 0) {
        rotates = choose_split(know, &problem, plan, &split);
    } else if (problem_set_paths(&problem)) {
        split_of_all(&problem, &split);
    } else {
        return false;
    }

    if ((split.count == 0) ||
        ((config->enable == UCT_CUDA_PLAN_AUTO) &&
         !is_worthwhile(&problem, &split))) {
        return false;
    }

    plan->seconds = split.seconds;
    plan_write(&problem, &split, plan->size, plan);
    return rotates || (plan->num_paths != 1) ||
           !uct_cuda_end_is_none(plan->paths[0].via);
}

/* Initialise a plan without paths and steps */
static void plan_init(uct_cuda_end_t src, uct_cuda_end_t dst,
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

void uct_cuda_plan_make(const uct_cuda_plan_knowledge_t *know,
                        uct_cuda_end_t src, uct_cuda_end_t dst, size_t size,
                        uct_cuda_plan_t *plan)
{
    plan_init(src, dst, know->remote, size, plan);
    plan->is_pulled = know->is_pulled;
    plan->slot_size = uct_cuda_plan_slot_size(know->config);
    plan->reason    = (uint8_t)find_refusal(know, src, dst, size);
    if (plan->reason != UCT_CUDA_PLAN_ADMITTED) {
        return;
    }

    if (!plan_split(know, plan) || (plan->num_paths == 0)) {
        plan->reason    = UCT_CUDA_PLAN_NO_GAIN;
        plan->num_paths = 0;
        plan->num_steps = 0;
    }
}

void uct_cuda_plan_single(uct_cuda_end_t src, uct_cuda_end_t dst,
                          uct_cuda_end_t remote, size_t size,
                          uct_cuda_plan_t *plan)
{
    uct_cuda_plan_path_share_t *part = &plan->paths[0];

    plan_init(src, dst, remote, size, plan);
    plan->num_paths = 1;
    part->via    = uct_cuda_end_none();
    part->bytes  = part->chunk = size;
    part->chunks = 1;
    part->slots  = 0;
    add_step(plan, 0, 0, size, end_place(src, UCT_CUDA_BUFFER_SEND, 0),
             end_place(dst, UCT_CUDA_BUFFER_RECV, 0), UCT_CUDA_NO_STEP);
}

/* Hash of the properties of a pair of ends on which its plans depend */
typedef struct {
    uint64_t value;
    unsigned num_limits;
    /* Numbers of limits in the order of first use, from 1; 0: not used yet */
    unsigned numbers[UCT_CUDA_TOPO_MAX_LIMITS];
} pair_hash_t;


static void hash_add(pair_hash_t *hash, double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof(bits));
    hash->value = uct_cuda_hash64(hash->value, bits >> 32);
    hash->value = uct_cuda_hash64(hash->value, (uint32_t)bits);
}

/* Add the candidates to a hash. Limits count by their bandwidth and by the
 * candidates that share them, whatever their indices. */
static void hash_add_candidates(pair_hash_t *hash, const problem_t *problem)
{
    const uct_cuda_plan_model_path_t *candidate;
    unsigned c, i, limit;

    hash_add(hash, problem->num_candidates);
    for (c = 0; c < problem->num_candidates; ++c) {
        candidate = &problem->candidates[c];
        hash_add(hash, candidate->via.kind);
        hash_add(hash, candidate->cap);
        for (i = 0; i < candidate->hops; ++i) {
            hash_add(hash, candidate->rates[i]);
            hash_add(hash, candidate->is_free[i]);
        }

        hash_add(hash, candidate->latency);
        hash_add(hash, candidate->margin);
        hash_add(hash, candidate->gap);
        hash_add(hash, candidate->share);
        hash_add(hash, candidate->chunks);
        hash_add(hash, candidate->way.count);
        for (i = 0; i < candidate->way.count; ++i) {
            limit = (unsigned)candidate->way.resources[i];
            if (hash->numbers[limit] == 0) {
                hash->numbers[limit] = ++hash->num_limits;
            }

            hash_add(hash, hash->numbers[limit]);
            hash_add(hash, problem->query.limits[limit]);
        }
    }
}

/* Return a hash of all candidates of a pair. Pairs with the same hash have
 * plans for the same sizes while no link is busy. */
static uint64_t hash_pair(const uct_cuda_plan_knowledge_t *know,
                          uct_cuda_end_t src, uct_cuda_end_t dst,
                          uct_cuda_plan_t *scratch)
{
    pair_hash_t hash = {.value = UCT_CUDA_HASH64};
    uct_cuda_plan_model_path_t *next;
    problem_t problem;

    plan_init(src, dst, know->remote, 0, scratch);
    problem_init(&problem, know, scratch);
    hash_add(&hash, problem.is_unlinked);
    (void)problem_add(&problem, uct_cuda_end_none());
    /* the driver's copy between unlinked GPUs, also if the host path is none of
     * the candidates */
    next = &problem.candidates[problem.num_candidates];
    problem.num_candidates += uct_cuda_plan_model_path(&problem.query,
                                                       uct_cuda_end_host(),
                                                       next);
    (void)problem_add(&problem, uct_cuda_end_host());
    hash_add_candidates(&hash, &problem);
    problem.num_candidates = 0;
    if (know->config->num_paths > 0) {
        (void)problem_set_paths(&problem);
    } else {
        problem_add_relays(&problem);
    }

    hash_add_candidates(&hash, &problem);
    return hash.value;
}

/* Pairs of ends, one of each class with plans for the same sizes */
typedef struct {
    unsigned count;
    uint16_t links[UCT_CUDA_PLAN_NUM_LINKS];
} classes_t;


/* Find the classes of pairs of GPUs, or of host memory and a GPU */
static void find_classes(const uct_cuda_plan_knowledge_t *know, bool is_host,
                         uct_cuda_plan_t *scratch, classes_t *classes)
{
    uint64_t hashes[UCT_CUDA_PLAN_NUM_LINKS];
    uct_cuda_end_t src, dst;
    uint16_t link;
    unsigned i;

    classes->count = 0;
    for (link = 0; link < UCT_CUDA_PLAN_NUM_LINKS; ++link) {
        src = uct_cuda_plan_link_from(link);
        dst = uct_cuda_plan_link_to(link);
        if ((uct_cuda_plan_ends_host(src, dst) != is_host) ||
            !are_joined(know, src, dst)) {
            continue;
        }

        hashes[classes->count] = hash_pair(know, src, dst, scratch);
        for (i = 0; hashes[i] != hashes[classes->count]; ++i) {
        }

        if (i == classes->count) {
            classes->links[classes->count++] = link;
        }
    }
}

/* Return whether any class has a plan for this size */
static bool any_plan(const uct_cuda_plan_knowledge_t *know,
                     const classes_t *classes, size_t size,
                     uct_cuda_plan_t *scratch)
{
    unsigned i;

    for (i = 0; i < classes->count; ++i) {
        uct_cuda_plan_make(know, uct_cuda_plan_link_from(classes->links[i]),
                           uct_cuda_plan_link_to(classes->links[i]), size,
                           scratch);
        if (scratch->num_paths > 0) {
            return true;
        }
    }

    return false;
}

static size_t find_min_size(const uct_cuda_plan_knowledge_t *know,
                            const classes_t *classes, uct_cuda_plan_t *scratch)
{
    size_t largest = uct_cuda_plan_max_size(know->config);
    size_t low     = 2 * ALIGN;
    size_t high    = low;
    size_t middle;

    while (!any_plan(know, classes, high, scratch)) {
        if (high >= largest) {
            return SIZE_MAX;
        }

        low  = high;
        high = (2 * high < largest) ? 2 * high : largest;
    }

    while (high - low > high / 16) {
        middle = low + (high - low) / 2;
        if (any_plan(know, classes, middle, scratch)) {
            high = middle;
        } else {
            low = middle;
        }
    }

    return high;
}

void uct_cuda_plan_min_sizes(const uct_cuda_plan_knowledge_t *know,
                             bool is_host, uct_cuda_plan_t *scratch,
                             uct_cuda_plan_min_sizes_t *sizes)
{
    uct_cuda_plan_load_t load        = {.is_known  = (know->load != NULL) &&
                                                     know->load->is_known,
                                        .uncrossed = UINT64_MAX};
    uct_cuda_plan_knowledge_t loaded = *know;
    classes_t classes;

    loaded.load   = &load;
    find_classes(&loaded, is_host, scratch, &classes);
    sizes->alone  = find_min_size(&loaded, &classes, scratch);
    load.queued   = UINT16_MAX;
    load.window   = UINT16_MAX;
    sizes->behind = find_min_size(&loaded, &classes, scratch);

    load.uncrossed   = 0;
    sizes->by_relays = find_min_size(&loaded, &classes, scratch);
    load.queued      = 0;
    load.window      = 0;
    sizes->by_relays = ucs_min(sizes->by_relays,
                               find_min_size(&loaded, &classes, scratch));
}
