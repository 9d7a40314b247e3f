/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Choosing paths, shares and chunks by a simple model of the node.
 *
 * A path takes  start + bytes * cost  seconds. A direct path's cost is
 * 1 / rate. A staged path of c chunks fills and drains a pipeline of two
 * copies, so that its cost is (1 + 1/c) / rate. Shares are such that all paths
 * end together.
 */
#include <uct/cuda/multipath/planner.h>

#include <float.h>
#include <string.h>


/* What the processor needs for one chunk of a staged path: two copies of 2.9 us
 * and four event operations of 0.35 us. Measured on H200. */
#define SUBMIT_COPY  2.9e-6
#define SUBMIT_CHUNK (2 * SUBMIT_COPY + 4 * 0.35e-6)

/* What a staged path loses between two chunks that follow each other; measured
 * on H200 over paths of 16 to 64 chunks */
#define CHUNK_GAP_GPU  3e-6
#define CHUNK_GAP_HOST 14e-6

/* What is left of a link to host memory while the same memory is read and
 * written; on H200 51.5 of 55 GB/s */
#define HOST_STAGING_EFFICIENCY 0.93

/* Joining the paths into one completion, against one copy that has its own */
#define JOIN 2e-6

/* Transfers of a window that a plan reckons with */
#define MAX_PIPED 4u

/* Less gain than this is not worth the trouble */
#define MIN_GAIN 1.02

/* Parts and chunks begin at multiples of this, which copy engines like */
#define ALIGN 4096ul

/* Bandwidths that differ by less are the same */
#define ROUNDING 1e-9

/* Without a model's word, below this size forced striping is not tried */
#define FORCED_MIN_SIZE (1ul << 20)

#define MAX_HOPS 2


typedef struct {
    uct_cuda_mp_path_t path;
    unsigned           hops;
    uint16_t           lanes[MAX_HOPS];
    double             cap; /* bytes/s, with nothing else in this transfer */
    double             latency;
    double             gap; /* seconds that a chunk costs the path */
    unsigned           num_limits;
    int16_t            limits[MAX_HOPS * UCT_CUDA_TOPO_LINK_LIMITS];
    double             share; /* configured, or 0 */
    bool               is_busy; /* others use one of its lanes */
} candidate_t;


/* A set of paths with its cost */
typedef struct {
    unsigned          count;
    const candidate_t *paths[UCT_CUDA_MP_MAX_PATHS];
    double            bytes[UCT_CUDA_MP_MAX_PATHS];
    double            seconds;
} split_t;


typedef struct {
    const uct_cuda_topo_t      *topo;
    const uct_cuda_mp_config_t *config;
    const uct_cuda_mp_load_t   *load;
    int                        src;
    int                        dst;
    double                     size;
    double                     limits[UCT_CUDA_TOPO_MAX_LIMITS];
    unsigned                   num_candidates;
    candidate_t                candidates[UCT_CUDA_TOPO_MAX_GPUS + 1];
} problem_t;


static double min_double(double a, double b)
{
    return (a < b) ? a : b;
}

static double max_double(double a, double b)
{
    return (a > b) ? a : b;
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return (a > b) ? a : b;
}

static const uct_cuda_topo_link_t *
lane_link(const uct_cuda_topo_t *topo, uint16_t lane)
{
    int from = uct_cuda_mp_lane_from(lane);
    int to   = uct_cuda_mp_lane_to(lane);

    if (from == UCT_CUDA_MP_LANE_HOST) {
        return &topo->gpus[to].from_host;
    } else if (to == UCT_CUDA_MP_LANE_HOST) {
        return &topo->gpus[from].to_host;
    }

    return &topo->links[from][to];
}

/* Shared limits, less what others' transfers take of them */
static void problem_set_limits(problem_t *problem)
{
    const uct_cuda_topo_t *topo = problem->topo;
    unsigned users[UCT_CUDA_TOPO_MAX_LIMITS];
    const uct_cuda_topo_link_t *link;
    int from, to, i;
    uint16_t lane;

    memcpy(problem->limits, topo->limits,
           topo->num_limits * sizeof(problem->limits[0]));
    if (problem->load == NULL) {
        return;
    }

    memset(users, 0, sizeof(users));
    for (from = 0; from < UCT_CUDA_MP_LANE_ENDS; ++from) {
        for (to = 0; to < UCT_CUDA_MP_LANE_ENDS; ++to) {
            lane = uct_cuda_mp_lane(from, to);
            if ((from == to) || (problem->load->active[lane] == 0)) {
                continue;
            }

            link = lane_link(topo, lane);
            for (i = 0; i < UCT_CUDA_TOPO_LINK_LIMITS; ++i) {
                if (link->limits[i] != UCT_CUDA_TOPO_NO_LIMIT) {
                    users[link->limits[i]] += problem->load->active[lane];
                }
            }
        }
    }

    for (i = 0; i < topo->num_limits; ++i) {
        problem->limits[i] /= 1 + users[i];
    }
}

/* A lane's link; one that ends in the host ends at the source's NUMA node */
static uct_cuda_topo_link_t hop_link(const problem_t *problem, uint16_t lane)
{
    int numa = problem->topo->gpus[problem->src].numa;
    int from = uct_cuda_mp_lane_from(lane);
    int to   = uct_cuda_mp_lane_to(lane);

    if (from == UCT_CUDA_MP_LANE_HOST) {
        return uct_cuda_topo_host_link(problem->topo, to, numa, false);
    } else if (to == UCT_CUDA_MP_LANE_HOST) {
        return uct_cuda_topo_host_link(problem->topo, from, numa, true);
    }

    return problem->topo->links[from][to];
}

static void candidate_add_hop(const problem_t *problem, candidate_t *candidate,
                              int from, int to)
{
    uint16_t lane             = uct_cuda_mp_lane(from, to);
    uct_cuda_topo_link_t link = hop_link(problem, lane);
    double bandwidth          = link.bandwidth;
    unsigned i;

    if (problem->load != NULL) {
        bandwidth          /= 1 + problem->load->active[lane];
        candidate->is_busy |= (problem->load->active[lane] > 0);
    }

    if ((candidate->hops == 0) || (bandwidth < candidate->cap)) {
        candidate->cap = bandwidth;
    }

    candidate->lanes[candidate->hops++] = lane;
    candidate->latency                 += link.latency;
    for (i = 0; i < UCT_CUDA_TOPO_LINK_LIMITS; ++i) {
        if (link.limits[i] != UCT_CUDA_TOPO_NO_LIMIT) {
            candidate->limits[candidate->num_limits++] = link.limits[i];
        }
    }
}

/* Describe a path, if the hardware has it. Returns whether it was added. */
static bool problem_add(problem_t *problem, const uct_cuda_mp_path_t *path,
                        double share)
{
    candidate_t *candidate = &problem->candidates[problem->num_candidates];
    int via                = (path->route == UCT_CUDA_MP_ROUTE_HOST) ?
                                     UCT_CUDA_MP_LANE_HOST :
                                     path->gpu;

    if ((path->route == UCT_CUDA_MP_ROUTE_GPU) &&
        ((path->gpu < 0) || (path->gpu >= problem->topo->num_gpus) ||
         (path->gpu == problem->src) || (path->gpu == problem->dst))) {
        return false;
    }

    memset(candidate, 0, sizeof(*candidate));
    candidate->path  = *path;
    candidate->share = share;
    if (path->route == UCT_CUDA_MP_ROUTE_DIRECT) {
        candidate_add_hop(problem, candidate, problem->src, problem->dst);
    } else {
        candidate_add_hop(problem, candidate, problem->src, via);
        candidate_add_hop(problem, candidate, via, problem->dst);
    }

    if (path->route == UCT_CUDA_MP_ROUTE_HOST) {
        candidate->cap *= HOST_STAGING_EFFICIENCY;
        candidate->gap  = CHUNK_GAP_HOST;
    } else {
        candidate->gap = CHUNK_GAP_GPU;
    }

    if (!(candidate->cap > 0)) {
        return false;
    }

    ++problem->num_candidates;
    return true;
}

/* Host staging pays only while the other direction is quiet, and one process
 * alone cannot know that */
static bool host_is_free(const problem_t *problem)
{
    const uct_cuda_mp_load_t *load = problem->load;
    const int host                 = UCT_CUDA_MP_LANE_HOST;

    if (problem->config->host != UCT_CUDA_MP_AUTO) {
        return problem->config->host == UCT_CUDA_MP_YES;
    }

    return (load != NULL) && load->is_known &&
           (load->active[uct_cuda_mp_lane(problem->dst, problem->src)] == 0) &&
           (load->active[uct_cuda_mp_lane(problem->dst, host)] == 0) &&
           (load->active[uct_cuda_mp_lane(host, problem->src)] == 0);
}

/* A relay on links of others takes from them what it gives to us. Of relays
 * that all are busy one is used nevertheless: who came first and took several
 * will find that one busy, and leave it. Candidates are sorted. */
static void problem_yield_relays(problem_t *problem, unsigned first)
{
    unsigned count = first;
    unsigned i;

    for (i = first; i < problem->num_candidates; ++i) {
        if (!problem->candidates[i].is_busy) {
            problem->candidates[count++] = problem->candidates[i];
        }
    }

    if ((count == first) && (problem->num_candidates > first)) {
        ++count;
    }

    problem->num_candidates = count;
}

/* Relays by bandwidth; equal ones in the order (relay - source) mod n, so that
 * symmetric patterns of transfers meet as rarely as possible */
static void problem_add_relays(problem_t *problem)
{
    unsigned first          = problem->num_candidates;
    uct_cuda_mp_path_t path = {UCT_CUDA_MP_ROUTE_GPU, -1};
    candidate_t moved;
    unsigned i;
    int n;

    for (n = 1; n < problem->topo->num_gpus; ++n) {
        path.gpu = (problem->src + n) % problem->topo->num_gpus;
        if (!problem_add(problem, &path, 0)) {
            continue;
        }

        i     = problem->num_candidates - 1;
        moved = problem->candidates[i];
        for (; (i > first) && (problem->candidates[i - 1].cap < moved.cap);
             --i) {
            problem->candidates[i] = problem->candidates[i - 1];
        }
        problem->candidates[i] = moved;
    }
}

/* Max-min fair rates of paths that run at the same time, bytes/s */
static void split_rates(const problem_t *problem, const split_t *split,
                        double *rates)
{
    unsigned open = (1u << split->count) - 1;
    double left[UCT_CUDA_TOPO_MAX_LIMITS];
    unsigned users[UCT_CUDA_TOPO_MAX_LIMITS];
    const candidate_t *path;
    double step, room;
    unsigned i, j, full;
    bool has_limits = false;

    for (i = 0; i < split->count; ++i) {
        rates[i]   = 0;
        has_limits = has_limits || (split->paths[i]->num_limits > 0);
        for (j = 0; j < split->paths[i]->num_limits; ++j) {
            left[split->paths[i]->limits[j]] =
                    problem->limits[split->paths[i]->limits[j]];
        }
    }

    if (!has_limits) {
        for (i = 0; i < split->count; ++i) {
            rates[i] = split->paths[i]->cap;
        }
        return;
    }

    /* Raise all open paths alike until one of them meets a limit */
    while (open != 0) {
        for (i = 0; i < split->count; ++i) {
            for (j = 0; j < split->paths[i]->num_limits; ++j) {
                users[split->paths[i]->limits[j]] = 0;
            }
        }

        for (i = 0; i < split->count; ++i) {
            for (j = 0; (open & (1u << i)) && (j < split->paths[i]->num_limits);
                 ++j) {
                ++users[split->paths[i]->limits[j]];
            }
        }

        step = DBL_MAX;
        full = 0;
        for (i = 0; i < split->count; ++i) {
            if (!(open & (1u << i))) {
                continue;
            }

            path = split->paths[i];
            room = path->cap - rates[i];
            for (j = 0; j < path->num_limits; ++j) {
                room = min_double(room, left[path->limits[j]] /
                                                users[path->limits[j]]);
            }

            room = max_double(room, 0);
            if (room < step) {
                /* Paths that met a limit only a rounding error ago stay in */
                full = (room < step * (1 - ROUNDING)) ? 0 : full;
                step = room;
            }
            if (room <= step * (1 + ROUNDING)) {
                full |= 1u << i;
            }
        }

        for (i = 0; i < split->count; ++i) {
            if (!(open & (1u << i))) {
                continue;
            }

            rates[i] += step;
            for (j = 0; j < split->paths[i]->num_limits; ++j) {
                left[split->paths[i]->limits[j]] -= step;
            }
        }

        open &= ~full;
    }
}

/* Transfers that fill their paths once, and drain them once. Of a long window
 * the plans are all alike: one shape is enough. */
static unsigned num_piped(const uct_cuda_mp_load_t *load)
{
    const unsigned queued = (load == NULL) ? 0 : load->queued;

    return (queued < MAX_PIPED) ? 1 + queued : MAX_PIPED;
}

/* Chunks for a staged path. More of them fill the pipeline faster, but each one
 * costs a gap on the link, so that sqrt(seconds / gap) are best (where one fill
 * serves several transfers, their gaps count together); and no more than the
 * submitting processor can keep up with. */
static unsigned choose_chunks(const uct_cuda_mp_config_t *config,
                              const uct_cuda_mp_load_t *load,
                              const candidate_t *path, double seconds,
                              unsigned staged)
{
    const double submit = SUBMIT_CHUNK * staged;
    const double gap    = path->gap * num_piped(load);
    unsigned chunks     = 1;

    if (config->chunks > 0) {
        return config->chunks;
    }

    while ((chunks < config->max_chunks) &&
           ((chunks + 1) * (chunks + 1) * gap <= seconds) &&
           ((chunks + 1) * submit <= seconds)) {
        ++chunks;
    }

    return chunks;
}

static uint64_t slot_size(const uct_cuda_mp_config_t *config)
{
    return (config->staging_size / UCT_CUDA_MP_STAGING_SLOTS) & ~(ALIGN - 1);
}

/* Chunk length for a part; the last chunk may be shorter */
static uint64_t choose_chunk(const uct_cuda_mp_config_t *config,
                             const uct_cuda_mp_load_t *load,
                             const candidate_t *path, uint64_t bytes,
                             double seconds, unsigned staged)
{
    uint64_t slot = slot_size(config);
    uint64_t chunk;

    if (config->chunk_size != UCT_CUDA_MP_SIZE_AUTO) {
        chunk = config->chunk_size;
    } else {
        chunk = bytes / choose_chunks(config, load, path, seconds, staged);
    }

    /* Whatever was asked for: the plan holds so many, and a slot one chunk */
    chunk = max_u64(chunk, (bytes + UCT_CUDA_MP_MAX_CHUNKS - 1) /
                                   UCT_CUDA_MP_MAX_CHUNKS);

    return (chunk > slot) ? slot : ((chunk + ALIGN - 1) & ~(ALIGN - 1));
}

/* Give every path its bytes: so that all end together (behind a transfer whose
 * paths all end together, that is what their rates say), paths that could not
 * even start before the others are done getting none; or as configured */
static void split_solve(const problem_t *problem, split_t *split)
{
    double rates[UCT_CUDA_MP_MAX_PATHS];
    double start[UCT_CUDA_MP_MAX_PATHS];
    double cost[UCT_CUDA_MP_MAX_PATHS];
    double total_rate  = 0;
    double total_share = 0;
    double total_speed = 0;
    unsigned staged    = 0;
    unsigned dropped   = 0;
    double submit      = JOIN;
    bool is_piped      = (num_piped(problem->load) > 1);
    double seconds, weight, chunks, chunk;
    bool is_done;
    unsigned i;

    split_rates(problem, split, rates);
    for (i = 0; i < split->count; ++i) {
        total_rate  += rates[i];
        total_share += split->paths[i]->share;
        staged      += (split->paths[i]->hops > 1);
    }

    seconds = problem->size / total_rate;
    for (i = 0; i < split->count; ++i) {
        start[i] = is_piped ? 0 : split->paths[i]->latency + JOIN;
        cost[i]  = 1 / rates[i];
        if (split->paths[i]->hops > 1) {
            chunk     = (double)choose_chunk(problem->config, problem->load,
                                             split->paths[i],
                                             (uint64_t)(seconds * rates[i]),
                                             seconds, staged);
            chunk     = max_double(chunk, 1);
            chunks    = max_double(seconds * rates[i] / chunk, 1);
            start[i] += chunks * split->paths[i]->gap;
            if (!is_piped) {
                start[i] += SUBMIT_COPY;
                cost[i]  *= 1 + 1 / chunks;
            }
            submit   += chunks * SUBMIT_CHUNK;
        } else {
            submit   += SUBMIT_COPY;
        }
        total_speed += 1 / cost[i];
    }

    /* Configured shares; or with no model asked, all paths that there are, each
     * as it is fast */
    if ((total_share > 0) || (problem->config->enable == UCT_CUDA_MP_YES)) {
        split->seconds = submit;
        for (i = 0; i < split->count; ++i) {
            weight          = (total_share > 0) ?
                                      split->paths[i]->share / total_share :
                                      1 / (cost[i] * total_speed);
            split->bytes[i] = problem->size * weight;
            split->seconds  = max_double(split->seconds,
                                         start[i] + split->bytes[i] * cost[i]);
        }
        return;
    }

    do {
        seconds = problem->size;
        weight  = 0;
        for (i = 0; i < split->count; ++i) {
            if (!(dropped & (1u << i))) {
                seconds += start[i] / cost[i];
                weight  += 1 / cost[i];
            }
        }

        seconds /= weight;
        is_done  = true;
        for (i = 0; i < split->count; ++i) {
            if (!(dropped & (1u << i)) && (start[i] >= seconds)) {
                dropped |= 1u << i;
                is_done  = false;
            }
        }
    } while (!is_done);

    /* A window of transfers cannot go faster than it is submitted */
    split->seconds = max_double(seconds, submit);
    for (i = 0; i < split->count; ++i) {
        split->bytes[i] = (dropped & (1u << i)) ?
                                  0 :
                                  (seconds - start[i]) / cost[i];
    }
}

static void split_of_all(const problem_t *problem, split_t *split)
{
    unsigned i;

    split->count = problem->num_candidates;
    if (split->count > UCT_CUDA_MP_MAX_PATHS) {
        split->count = UCT_CUDA_MP_MAX_PATHS;
    }

    for (i = 0; i < split->count; ++i) {
        split->paths[i] = &problem->candidates[i];
    }

    split_solve(problem, split);
}

/* The best of: the direct path, with the first few relays, with or without the
 * host. Candidates are in that order, the host last. */
static void split_best(const problem_t *problem, bool has_host, split_t *best)
{
    unsigned relays = problem->num_candidates - 1 - (has_host ? 1 : 0);
    unsigned most   = problem->config->max_gpu_paths - 1;
    split_t split;
    unsigned i;
    int host;

    if (most > relays) {
        most = relays;
    }

    if (most > (unsigned)(UCT_CUDA_MP_MAX_PATHS - 2)) {
        most = UCT_CUDA_MP_MAX_PATHS - 2;
    }

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

            if (split.count < 2) {
                continue;
            }

            split_solve(problem, &split);
            if (split.seconds < best->seconds) {
                *best = split;
            }
        }
    }
}

static void set_place(uct_cuda_mp_place_t *place, uct_cuda_mp_place_type_t type,
                      int owner, unsigned slot)
{
    place->type  = type;
    place->owner = (uint8_t)owner;
    place->slot  = (uint8_t)slot;
}

static void add_step(uct_cuda_mp_plan_t *plan, const uct_cuda_mp_place_t *from,
                     uint64_t from_offset, const uct_cuda_mp_place_t *to,
                     uint64_t to_offset, uint64_t bytes, unsigned path,
                     uint16_t lane, int wait)
{
    uct_cuda_mp_step_t *step = &plan->steps[plan->num_steps++];

    step->from        = *from;
    step->to          = *to;
    step->path        = (uint8_t)path;
    step->lane        = lane;
    step->waits[0]    = (int16_t)wait;
    step->waits[1]    = UCT_CUDA_MP_NO_STEP;
    step->from_offset = from_offset;
    step->to_offset   = to_offset;
    step->bytes       = bytes;
}

/* Steps: the direct part at once, then chunk by chunk over all staged paths, so
 * that none of them waits for the submission of another's last chunk */
static void plan_write_steps(const problem_t *problem, const split_t *split,
                             const uint64_t *offsets, uct_cuda_mp_plan_t *plan)
{
    const uct_cuda_mp_place_t source      = {UCT_CUDA_MP_PLACE_SOURCE, 0, 0};
    const uct_cuda_mp_place_t destination = {UCT_CUDA_MP_PLACE_DESTINATION, 0,
                                             0};
    int16_t drains[UCT_CUDA_MP_MAX_PATHS][UCT_CUDA_MP_MAX_CHUNKS];
    int16_t fills[UCT_CUDA_MP_MAX_PATHS];
    const uct_cuda_mp_plan_path_t *part;
    uct_cuda_mp_place_t slot;
    uint64_t begin, bytes;
    unsigned p, chunk, last, hop;
    int wait;

    last = 0;
    for (p = 0; p < plan->num_paths; ++p) {
        part = &plan->paths[p];
        if (part->slots == 0) {
            add_step(plan, &source, offsets[p], &destination, offsets[p],
                     part->bytes, p, split->paths[p]->lanes[0],
                     UCT_CUDA_MP_NO_STEP);
        } else if (part->chunks > last) {
            last = part->chunks;
        }
    }

    for (chunk = 0; chunk < last; ++chunk) {
        for (hop = 0; hop < MAX_HOPS; ++hop) {
            for (p = 0; p < plan->num_paths; ++p) {
                part = &plan->paths[p];
                if ((part->slots == 0) || (chunk >= part->chunks)) {
                    continue;
                }

                begin = chunk * part->chunk;
                bytes = (part->bytes - begin < part->chunk) ?
                                part->bytes - begin :
                                part->chunk;
                if (part->path.route == UCT_CUDA_MP_ROUTE_HOST) {
                    set_place(&slot, UCT_CUDA_MP_PLACE_STAGING_HOST, plan->numa,
                              chunk % part->slots);
                } else {
                    set_place(&slot, UCT_CUDA_MP_PLACE_STAGING_GPU,
                              part->path.gpu, chunk % part->slots);
                }

                if (hop == 0) {
                    wait = (chunk >= part->slots) ?
                                   drains[p][chunk - part->slots] :
                                   UCT_CUDA_MP_NO_STEP;
                    fills[p] = (int16_t)plan->num_steps;
                    add_step(plan, &source, offsets[p] + begin, &slot, 0, bytes,
                             p, split->paths[p]->lanes[0], wait);
                } else {
                    drains[p][chunk] = (int16_t)plan->num_steps;
                    add_step(plan, &slot, 0, &destination, offsets[p] + begin,
                             bytes, p, split->paths[p]->lanes[1], fills[p]);
                }
            }
        }
    }
}

/* Turn shares into whole parts, and parts into steps */
static void plan_write(const problem_t *problem, split_t *split, uint64_t size,
                       uct_cuda_mp_plan_t *plan)
{
    uint64_t offsets[UCT_CUDA_MP_MAX_PATHS];
    const uint64_t most = UCT_CUDA_MP_MAX_CHUNKS * plan->slot_size;
    uct_cuda_mp_plan_path_t *part;
    uint64_t offset = 0;
    unsigned staged = 0;
    unsigned count  = 0;
    unsigned rest   = 0;
    unsigned i;
    double seconds;

    /* Whole pages for everybody; what that leaves over goes to the direct path
     * (to the largest where there is none), which lies last in the buffer */
    for (i = 0; i < split->count; ++i) {
        if ((split->bytes[i] < ALIGN) && (split->count - i + count > 1)) {
            continue;
        }

        split->paths[count] = split->paths[i];
        split->bytes[count] = split->bytes[i];
        if ((split->paths[count]->hops == 1) ||
            ((split->paths[rest]->hops > 1) &&
             (split->bytes[count] > split->bytes[rest]))) {
            rest = count;
        }
        staged += (split->paths[count]->hops > 1);
        ++count;
    }

    split->count    = count;
    plan->num_paths = (uint16_t)count;
    for (i = 0; i < count; ++i) {
        part        = &plan->paths[i];
        part->path  = split->paths[i]->path;
        part->bytes = (uint64_t)split->bytes[i] & ~(ALIGN - 1);
        if ((split->paths[i]->hops > 1) && (part->bytes > most)) {
            part->bytes = most;
        }

        if (i != rest) {
            offsets[i] = offset;
            offset    += part->bytes;
        }
    }

    plan->paths[rest].bytes = size - offset;
    offsets[rest]           = offset;
    for (i = 0; i < count; ++i) {
        part         = &plan->paths[i];
        part->chunk  = part->bytes;
        part->chunks = 1;
        part->slots  = 0;
        if (split->paths[i]->hops > 1) {
            seconds      = part->bytes / split->paths[i]->cap;
            part->chunk  = choose_chunk(problem->config, problem->load,
                                        split->paths[i], part->bytes, seconds,
                                        staged);
            part->chunks = (uint16_t)((part->bytes + part->chunk - 1) /
                                      part->chunk);
            part->slots  = (part->chunks < UCT_CUDA_MP_PLAN_SLOTS) ?
                                   part->chunks :
                                   UCT_CUDA_MP_PLAN_SLOTS;
            if (part->chunks > UCT_CUDA_MP_MAX_CHUNKS) {
                plan->num_paths = 0;
                return;
            }
        }
    }

    plan_write_steps(problem, split, offsets, plan);
}

size_t uct_cuda_mp_plan_max_size(const uct_cuda_mp_config_t *config)
{
    uint64_t most = UCT_CUDA_MP_MAX_CHUNKS * slot_size(config);

    return (most < UCT_CUDA_MP_PLAN_MAX_SIZE) ? most :
                                                UCT_CUDA_MP_PLAN_MAX_SIZE;
}

void uct_cuda_mp_plan_make(const uct_cuda_topo_t *topo,
                           const uct_cuda_mp_config_t *config,
                           const uct_cuda_mp_load_t *load, int src_device,
                           int dst_device, size_t size,
                           uct_cuda_mp_plan_t *plan)
{
    uct_cuda_mp_path_t direct = {UCT_CUDA_MP_ROUTE_DIRECT, -1};
    uct_cuda_mp_path_t host   = {UCT_CUDA_MP_ROUTE_HOST, -1};
    bool has_host             = false;
    double single_rate;
    problem_t problem;
    split_t split;
    unsigned i;

    plan->src_device = (int16_t)src_device;
    plan->dst_device = (int16_t)dst_device;
    plan->numa       = 0;
    plan->num_paths  = 0;
    plan->num_steps  = 0;
    plan->size       = size;
    plan->slot_size  = slot_size(config);
    plan->seconds    = plan->single_seconds = 0;

    if ((config->enable == UCT_CUDA_MP_NO) || (src_device < 0) ||
        (dst_device < 0) || (src_device >= topo->num_gpus) ||
        (dst_device >= topo->num_gpus) || (src_device == dst_device) ||
        (size < 2 * ALIGN) || (size > uct_cuda_mp_plan_max_size(config)) ||
        !(topo->links[src_device][dst_device].bandwidth > 0)) {
        return;
    }

    if (config->min_size != UCT_CUDA_MP_SIZE_AUTO) {
        if (size < config->min_size) {
            return;
        }
    } else if ((config->enable == UCT_CUDA_MP_YES) &&
               (size < FORCED_MIN_SIZE)) {
        return;
    }

    plan->numa             = (int16_t)topo->gpus[src_device].numa;
    problem.topo           = topo;
    problem.config         = config;
    problem.load           = load;
    problem.src            = src_device;
    problem.dst            = dst_device;
    problem.size           = (double)size;
    problem.num_candidates = 0;
    problem_set_limits(&problem);

    /* What one plain copy takes, to compare with */
    (void)problem_add(&problem, &direct, 0);
    split_of_all(&problem, &split);
    split_rates(&problem, &split, &single_rate);
    plan->single_seconds = split.paths[0]->latency + size / single_rate;

    if (config->num_paths > 0) {
        problem.num_candidates = 0;
        for (i = 0; i < config->num_paths; ++i) {
            (void)problem_add(&problem, &config->paths[i],
                              (config->num_shares > 0) ? config->shares[i] :
                                                         0);
        }

        if (problem.num_candidates == 0) {
            return;
        }

        split_of_all(&problem, &split);
    } else {
        problem_add_relays(&problem);
        if (config->enable == UCT_CUDA_MP_AUTO) {
            problem_yield_relays(&problem, 1);
        }

        if (problem.num_candidates > config->max_gpu_paths) {
            problem.num_candidates = config->max_gpu_paths;
        }

        has_host = host_is_free(&problem) && problem_add(&problem, &host, 0);
        if (config->enable == UCT_CUDA_MP_YES) {
            split_of_all(&problem, &split);
        } else {
            split_best(&problem, has_host, &split);
        }
    }

    if ((split.count == 0) ||
        ((config->enable == UCT_CUDA_MP_AUTO) &&
         (split.seconds * MIN_GAIN > plan->single_seconds))) {
        return;
    }

    plan->seconds = split.seconds;
    plan_write(&problem, &split, size, plan);
    if ((plan->num_paths == 1) &&
        (plan->paths[0].path.route == UCT_CUDA_MP_ROUTE_DIRECT)) {
        plan->num_paths = 0;
        plan->num_steps = 0;
    }
}

void uct_cuda_mp_plan_single(int src_device, int dst_device, size_t size,
                             uct_cuda_mp_plan_t *plan)
{
    const uct_cuda_mp_place_t source      = {UCT_CUDA_MP_PLACE_SOURCE, 0, 0};
    const uct_cuda_mp_place_t destination = {UCT_CUDA_MP_PLACE_DESTINATION, 0,
                                             0};
    uct_cuda_mp_plan_path_t *part         = &plan->paths[0];

    plan->src_device = (int16_t)src_device;
    plan->dst_device = (int16_t)dst_device;
    plan->numa       = 0;
    plan->num_paths  = 1;
    plan->num_steps  = 0;
    plan->size       = size;
    plan->slot_size  = 0;
    plan->seconds    = plan->single_seconds = 0;
    part->path.route = UCT_CUDA_MP_ROUTE_DIRECT;
    part->path.gpu   = -1;
    part->bytes      = part->chunk = size;
    part->chunks     = 1;
    part->slots      = 0;
    add_step(plan, &source, 0, &destination, 0, size, 0,
             uct_cuda_mp_lane(src_device, dst_device), UCT_CUDA_MP_NO_STEP);
}

/* Does any pair of GPUs get a plan for this size? */
static bool any_plan(const uct_cuda_topo_t *topo,
                     const uct_cuda_mp_config_t *config,
                     const uct_cuda_mp_load_t *load, size_t size,
                     uct_cuda_mp_plan_t *scratch)
{
    int src, dst;

    for (src = 0; src < topo->num_gpus; ++src) {
        for (dst = 0; dst < topo->num_gpus; ++dst) {
            uct_cuda_mp_plan_make(topo, config, load, src, dst, size, scratch);
            if (scratch->num_paths > 0) {
                return true;
            }
        }
    }

    return false;
}

size_t uct_cuda_mp_plan_min_size(const uct_cuda_topo_t *topo,
                                 const uct_cuda_mp_config_t *config,
                                 const uct_cuda_mp_load_t *load,
                                 uct_cuda_mp_plan_t *scratch)
{
    size_t largest = uct_cuda_mp_plan_max_size(config);
    size_t low     = 2 * ALIGN;
    size_t high    = low;
    size_t middle;

    while (!any_plan(topo, config, load, high, scratch)) {
        if (high >= largest) {
            return SIZE_MAX;
        }

        low  = high;
        high = (2 * high < largest) ? 2 * high : largest;
    }

    while (high - low > high / 16) {
        middle = low + (high - low) / 2;
        if (any_plan(topo, config, load, middle, scratch)) {
            high = middle;
        } else {
            low = middle;
        }
    }

    return high;
}
