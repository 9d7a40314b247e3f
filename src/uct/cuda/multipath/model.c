/* SPDX-License-Identifier: BSD-3-Clause */
/* Rates, shares, chunks and times of a transfer over several paths. */
#include <uct/cuda/multipath/model.h>

#include <float.h>
#include <string.h>


/* Bandwidths that differ by less are the same */
#define ROUNDING 1e-9

#define ALIGN UCT_CUDA_MP_ALIGN

/* Transfers of a window that a plan reckons with */
#define MAX_PIPED 4u


typedef uct_cuda_mp_case_t       problem_t;
typedef uct_cuda_mp_model_path_t candidate_t;
typedef uct_cuda_mp_split_t      split_t;


/* Measured on H200: 2.9 us a copy and 0.35 us an event operation, of which a
 * chunk has four; 3 and 14 us lost between chunks, over paths of 16 to 64 of
 * them; 51.5 of 55 GB/s of a PCIe link in host staging.
 *
 * start_host, from 4 x H200 behind an NVSwitch (driver 580.159): direct and
 * host path by shares and chunks of this model without it, against one path;
 * 64, 128 and 256 MiB. Each cell is an equation: what was gained is what was
 * foreseen (8, 24 and 56 us) less start_host, since both paths were to end
 * together.
 *   put         -22,  7, 47 us gained, so that it is 30, 16,  9 us
 *   MPI         -23,  7, 40                          31, 17, 15
 *   MPI, auto   -48, 11, 35                          56, 12, 20
 * Their median is 17 and their mean 23; from 20 they are 10 us off on average,
 * which is doubt_host. So one path is left from 101 MiB on there: all cells of
 * 64 MiB lost, all of 128 MiB won. With four chunks, and shares of .08 and .10
 * given, the host's part came sooner on another day than even without
 * start_host. */
const uct_cuda_mp_model_t uct_cuda_mp_model_builtin = {
    .submit_copy     = 2.9e-6,
    .submit_chunk    = 2 * 2.9e-6 + 4 * 0.35e-6,
    .gap_gpu         = 3e-6,
    .gap_host        = 14e-6,
    .start_host      = 20e-6,
    .doubt_host      = 10e-6,
    .host_efficiency = 0.93,
    .join            = 2e-6,
    .min_gain        = 1.02
};


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
void uct_cuda_mp_model_start(problem_t *problem)
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

bool uct_cuda_mp_model_path(const problem_t *problem,
                            const uct_cuda_mp_path_t *path,
                            candidate_t *candidate)
{
    int via = (path->route == UCT_CUDA_MP_ROUTE_HOST) ? UCT_CUDA_MP_LANE_HOST :
                                                        path->gpu;

    if ((path->route == UCT_CUDA_MP_ROUTE_GPU) &&
        ((path->gpu < 0) || (path->gpu >= problem->topo->num_gpus) ||
         (path->gpu == problem->src) || (path->gpu == problem->dst))) {
        return false;
    }

    memset(candidate, 0, sizeof(*candidate));
    candidate->path  = *path;
    if (path->route == UCT_CUDA_MP_ROUTE_DIRECT) {
        candidate_add_hop(problem, candidate, problem->src, problem->dst);
    } else {
        candidate_add_hop(problem, candidate, problem->src, via);
        candidate_add_hop(problem, candidate, via, problem->dst);
    }

    if (path->route == UCT_CUDA_MP_ROUTE_HOST) {
        candidate->cap *= problem->model->host_efficiency;
        candidate->gap      = problem->model->gap_host;
        candidate->latency += problem->model->start_host;
        candidate->doubt    = problem->model->doubt_host;
    } else {
        candidate->gap = problem->model->gap_gpu;
    }

    return candidate->cap > 0;
}

void uct_cuda_mp_model_rates(const problem_t *problem, const split_t *split,
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

double uct_cuda_mp_model_single(const problem_t *problem, const split_t *split)
{
    const bool is_piped = (num_piped(problem->load) > 1);
    double rate;

    uct_cuda_mp_model_rates(problem, split, &rate);
    return (is_piped ? 0 : split->paths[0]->latency) + problem->size / rate;
}

/* Chunks for a staged path. More of them fill the pipeline faster, but each one
 * costs a gap on the link, so that sqrt(seconds / gap) are best (where one fill
 * serves several transfers, their gaps count together); and no more than the
 * submitting processor can keep up with. */
static unsigned choose_chunks(const problem_t *problem, const candidate_t *path,
                              double seconds, unsigned staged)
{
    const uct_cuda_mp_config_t *config = problem->config;
    const double submit                = problem->model->submit_chunk * staged;
    const double gap                   = path->gap * num_piped(problem->load);
    unsigned chunks                    = 1;

    if (config->chunks > 0) {
        return config->chunks;
    }

    if (path->chunks > 0) {
        return path->chunks;
    }

    while ((chunks < config->max_chunks) &&
           ((chunks + 1) * (chunks + 1) * gap <= seconds) &&
           ((chunks + 1) * submit <= seconds)) {
        ++chunks;
    }

    return chunks;
}

uint64_t uct_cuda_mp_slot_size(const uct_cuda_mp_config_t *config)
{
    return (config->staging_size / UCT_CUDA_MP_STAGING_SLOTS) & ~(ALIGN - 1);
}

uint64_t uct_cuda_mp_model_chunk(const problem_t *problem,
                                 const candidate_t *path, uint64_t bytes,
                                 double seconds, unsigned staged)
{
    const uct_cuda_mp_config_t *config = problem->config;
    uint64_t slot                      = uct_cuda_mp_slot_size(config);
    uint64_t chunk;

    if (config->chunk_size != UCT_CUDA_MP_SIZE_AUTO) {
        chunk = config->chunk_size;
    } else {
        chunk = bytes / choose_chunks(problem, path, seconds, staged);
    }

    /* Whatever was asked for: the plan holds so many, and a slot one chunk */
    chunk = max_u64(chunk, (bytes + UCT_CUDA_MP_MAX_CHUNKS - 1) /
                                   UCT_CUDA_MP_MAX_CHUNKS);

    return (chunk > slot) ? slot : ((chunk + ALIGN - 1) & ~(ALIGN - 1));
}

void uct_cuda_mp_model_solve(const problem_t *problem, split_t *split)
{
    double rates[UCT_CUDA_MP_MAX_PATHS];
    double start[UCT_CUDA_MP_MAX_PATHS];
    double cost[UCT_CUDA_MP_MAX_PATHS];
    double total_rate  = 0;
    double total_share = 0;
    double total_speed = 0;
    unsigned staged    = 0;
    unsigned dropped   = 0;
    double submit      = problem->model->join;
    bool is_piped      = (num_piped(problem->load) > 1);
    double seconds, weight, chunks, chunk;
    bool is_done;
    unsigned i;

    uct_cuda_mp_model_rates(problem, split, rates);
    for (i = 0; i < split->count; ++i) {
        total_rate  += rates[i];
        total_share += split->paths[i]->share;
        staged      += (split->paths[i]->hops > 1);
    }

    seconds = problem->size / total_rate;
    for (i = 0; i < split->count; ++i) {
        start[i] = is_piped ?
                           0 :
                           split->paths[i]->latency + problem->model->join;
        cost[i]  = 1 / rates[i];
        if (split->paths[i]->hops > 1) {
            chunk     = (double)uct_cuda_mp_model_chunk(
                    problem, split->paths[i],
                    (uint64_t)(seconds * rates[i]), seconds, staged);
            chunk     = max_double(chunk, 1);
            chunks    = max_double(seconds * rates[i] / chunk, 1);
            start[i] += chunks * split->paths[i]->gap;
            if (!is_piped) {
                start[i] += problem->model->submit_copy;
                cost[i]  *= 1 + 1 / chunks;
            }
            submit   += chunks * problem->model->submit_chunk;
        } else {
            submit   += problem->model->submit_copy;
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

