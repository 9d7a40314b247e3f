/* SPDX-License-Identifier: BSD-3-Clause */
/* Rates, shares, chunks and times of a transfer over several paths. */
#include <uct/cuda/plan/model.h>

#include <ucs/sys/math.h>

#include <float.h>
#include <stddef.h>


/* Smaller relative differences of bandwidth are rounding errors */
#define ROUNDING 1e-9

#define ALIGN UCT_CUDA_PLAN_ALIGN

/* Transfers of a window considered by a plan */
#define MAX_PIPED 4u

/* The same for paths in round robin: several rounds on any node */
#define MAX_TURNS 24u

/* Part of the slower PCIe link's rate that a copy of the driver gets between
 * GPUs without peer access: 0.67 (8 x H100, NVIDIA/nccl issue 1264), 0.77 (2 x
 * RTX 5090, aikitoria/open-gpu-kernel-modules issue 9) */
#define DRIVER_STAGING 0.75

/* Iterations until chunks and time, depending on each other, settle */
#define ROUNDS 3

/* Maximum chunks that the model chooses for a path, unless its slots need more
 * */
#define MAX_CHOSEN 32u


typedef uct_cuda_plan_query_t      query_t;
typedef uct_cuda_plan_model_path_t candidate_t;
typedef uct_cuda_plan_split_t      split_t;


/* Return a transfer's share of a limit. Between GPUs it is one copy's share, as
 * relays leave the others theirs; for host memory and its links it grows with
 * the number of copies. */
static double limit_share(const query_t *query, const split_t *split,
                          int limit)
{
    const unsigned others = query->others[limit];
    unsigned own          = 0;
    unsigned i, j;

    if ((others == 0) ||
        !uct_cuda_plan_ends_host(query->src, query->dst)) {
        return query->limits[limit];
    }

    for (i = 0; i < split->count; ++i) {
        for (j = 0; j < split->paths[i]->way.count; ++j) {
            own += (split->paths[i]->way.resources[j] == limit);
        }
    }

    return uct_cuda_plan_model_limit(query, limit) * own / (own + others);
}

void uct_cuda_plan_model_rates(const query_t *query, const split_t *split,
                               double *rates)
{
    uct_cuda_plan_share_resource_t limits[UCT_CUDA_TOPO_MAX_LIMITS];
    uct_cuda_plan_share_flow_t flows[UCT_CUDA_PLAN_MAX_PATHS];
    uct_cuda_plan_share_flow_t *open[UCT_CUDA_PLAN_MAX_PATHS];
    unsigned num_open = 0;
    const uct_cuda_plan_share_way_t *way;
    unsigned i, j;

    for (i = 0; i < split->count; ++i) {
        way            = &split->paths[i]->way;
        flows[i].way   = way;
        flows[i].count = 1;
        flows[i].cap   = split->paths[i]->cap;
        flows[i].rate  = split->paths[i]->cap;
        if (way->count > 0) {
            open[num_open++] = &flows[i];
        }
        for (j = 0; j < way->count; ++j) {
            limits[way->resources[j]].users = 0;
        }
    }

    for (i = 0; i < split->count; ++i) {
        way = flows[i].way;
        for (j = 0; j < way->count; ++j) {
            uct_cuda_plan_share_add(&limits[way->resources[j]],
                                    limit_share(query, split,
                                                way->resources[j]),
                                    1);
        }
    }

    uct_cuda_plan_share(limits, open, num_open);
    for (i = 0; i < split->count; ++i) {
        rates[i] = flows[i].rate;
    }
}

/* Count the transfers that share one fill and drain of the paths, up to a
 * limit: plans in a long window are equal */
static unsigned num_piped(const query_t *query)
{
    return (query->queued < MAX_PIPED) ? 1 + query->queued : MAX_PIPED;
}

double uct_cuda_plan_model_single(const query_t *query, const split_t *split)
{
    const bool is_piped = (num_piped(query) > 1);
    double rate;

    uct_cuda_plan_model_rates(query, split, &rate);
    return (is_piped ? 0 : split->paths[0]->latency) + query->size / rate;
}

double uct_cuda_plan_model_unlinked(const query_t *query)
{
    candidate_t host;

    if (!uct_cuda_plan_model_path(query, uct_cuda_end_host(), &host)) {
        return DBL_MAX;
    }

    return ((num_piped(query) > 1) ? 0 :
                                     host.latency - query->model->start_host) +
           query->size / (host.cap * DRIVER_STAGING);
}

uint64_t uct_cuda_plan_slot_size(const uct_cuda_plan_config_t *config)
{
    return (config->staging_size / UCT_CUDA_PLAN_STAGING_SLOTS) & ~(ALIGN - 1);
}

uint64_t uct_cuda_plan_model_chunk(const query_t *query, uint64_t bytes,
                                   unsigned chunks)
{
    const uint64_t slot = uct_cuda_plan_slot_size(query->config);
    uint64_t chunk      = bytes / chunks;

    /* within the limits of a plan's chunks and of a slot */
    chunk = ucs_max(chunk, (bytes + UCT_CUDA_PLAN_MAX_CHUNKS - 1) /
                                   UCT_CUDA_PLAN_MAX_CHUNKS);

    return (chunk > slot) ? slot : ((chunk + ALIGN - 1) & ~(ALIGN - 1));
}

/* Dependencies among a transfer's paths */
typedef struct {
    unsigned direct; /* copies submitted before all staged ones */
    unsigned staged; /* number of staged paths */
    bool     is_piped;
} concurrency_t;


/* Time of a path by one of its bounds:  start + bytes * cost */
typedef struct {
    double   start;
    double   cost;
    unsigned chunks;
} line_t;


/* Bounds of a staged path's end */
enum {
    BOUND_LINKS,  /* Links are busy from their first chunk on */
    BOUND_FIRST,  /* First copy of the last chunk is submitted late */
    BOUND_SECOND, /* Second copy of the last chunk is submitted late */
    NUM_BOUNDS
};


/* Return the bytes/s of a hop: a reduced shared limit usually holds for both
 * hops */
static double hop_rate(const candidate_t *path, unsigned hop, double rate)
{
    return ((rate < path->cap * (1 - ROUNDING)) && !path->is_free[hop]) ?
                   rate :
                   path->rates[hop];
}

/* Staged path number `number` of a transfer, with its bytes/s */
typedef struct {
    const query_t       *query;
    const concurrency_t *concurrency;
    const candidate_t   *path;
    unsigned            number;
    double              rate;
} staged_t;


/* Compute the bounds of a staged path's time with this many chunks. Copies are
 * submitted chunk by chunk: for each chunk the first hops of all staged paths,
 * then the second hops. The latency of each hop includes a submission and a
 * poll: subtract both, and count them once for the path. */
static void staged_bounds(const staged_t *staged, unsigned chunks,
                          line_t bounds[NUM_BOUNDS])
{
    const concurrency_t *concurrency   = staged->concurrency;
    const uct_cuda_plan_model_t *model = staged->query->model;
    const candidate_t *path            = staged->path;
    const double copy                  = model->submit_chunk / 2;
    const double first                 = hop_rate(path, 0, staged->rate);
    const double second                = hop_rate(path, 1, staged->rate);
    double latency, begin, late;
    unsigned i;

    for (i = 0; i < NUM_BOUNDS; ++i) {
        bounds[i].chunks = chunks;
    }

    if (concurrency->is_piped) {
        for (i = 0; i < NUM_BOUNDS; ++i) {
            bounds[i].start = chunks * path->gap;
            bounds[i].cost  = 1 / staged->rate;
        }
        return;
    }

    latency = path->latency - 2 * (model->submit_copy + model->poll);
    begin   = (concurrency->direct + 1) * model->submit_copy +
              staged->number * copy + model->poll + model->join;
    late    = (chunks - 1) * 2 * concurrency->staged * copy;

    bounds[BOUND_LINKS].start  = begin + latency + model->wait +
                                 (chunks - 1) * path->gap;
    bounds[BOUND_LINKS].cost   = 1 / ucs_min(first, second) +
                                 1 / (chunks * ucs_max(first, second));
    bounds[BOUND_FIRST].start  = begin + latency + model->wait + late;
    bounds[BOUND_FIRST].cost   = (1 / first + 1 / second) / chunks;
    bounds[BOUND_SECOND].start = begin + concurrency->staged * copy +
                                 latency / 2 + late;
    bounds[BOUND_SECOND].cost  = 1 / (chunks * second);
}

/* Return the bytes that a path with this many chunks carries until a time, and
 * the bound that limits them. Negative: the path cannot start by then. */
static double staged_bytes(const staged_t *staged, unsigned chunks,
                           double seconds, line_t *line)
{
    line_t bounds[NUM_BOUNDS];
    double bytes, least;
    unsigned i;

    staged_bounds(staged, chunks, bounds);
    least = DBL_MAX;
    for (i = 0; i < NUM_BOUNDS; ++i) {
        bytes = (seconds - bounds[i].start) / bounds[i].cost;
        if (bytes < least) {
            least = bytes;
            *line = bounds[i];
        }
    }

    return least;
}

/* Return the fewest chunks of this part that fit into slots */
static unsigned least_chunks(const query_t *query, double bytes)
{
    uint64_t slot = uct_cuda_plan_slot_size(query->config);

    return (unsigned)(((uint64_t)bytes + slot - 1) / slot);
}

/* Return the number of chunks with the most bytes carried until a time. More
 * chunks fill the pipeline faster, but each one costs a gap: the derivative of
 *   (time - (c - 1) gap) / (1 + 1/c)
 * is 0 at c = sqrt(2 + time / gap) - 1. */
static unsigned
most_chunks(const staged_t *staged, double seconds, double start)
{
    const query_t *query    = staged->query;
    const candidate_t *path = staged->path;
    unsigned chunks         = 1;
    double time, gap;

    if (staged->concurrency->is_piped) {
        /* several transfers share one fill and sum up their gaps; stay within
         * the processor's submission rate */
        gap = path->gap * num_piped(query);
        while ((chunks < MAX_CHOSEN) &&
               ((chunks + 1) * (chunks + 1) * gap <= seconds) &&
               ((chunks + 1) * query->model->submit_chunk *
                        staged->concurrency->staged <= seconds)) {
            ++chunks;
        }

        return chunks;
    }

    time = seconds - start;
    while ((chunks < MAX_CHOSEN) &&
           ((chunks + 1.5) * (chunks + 1.5) * path->gap <=
            2 * path->gap + time)) {
        ++chunks;
    }

    return chunks;
}

/* Choose the line of a staged path ending at a time, with the chunks that carry
 * the most by then; fewer if the processor cannot submit them in time */
static void
staged_choose(const staged_t *staged, double seconds, line_t *line)
{
    unsigned chunks = staged->path->chunks;
    double bytes, fewer;
    unsigned least;
    line_t other;

    if (chunks > 0) {
        (void)staged_bytes(staged, chunks, seconds, line);
        return;
    }

    bytes  = staged_bytes(staged, 1, seconds, line);
    chunks = most_chunks(staged, seconds, line->start);
    least  = least_chunks(staged->query, ucs_max(bytes, 0));
    chunks = (chunks < least) ? least : chunks;
    bytes  = staged_bytes(staged, chunks, seconds, line);
    while (!staged->concurrency->is_piped && (chunks > 1) &&
           (chunks > least)) {
        fewer = staged_bytes(staged, chunks - 1, seconds, &other);
        if (fewer < bytes) {
            break;
        }

        *line = other;
        bytes = fewer;
        --chunks;
    }
}

/* Choose the lines of all paths for a transfer ending at a time */
static void choose_lines(const query_t *query, const concurrency_t *concurrency,
                         const split_t *split, const double *rates,
                         double seconds, line_t *lines)
{
    staged_t staged = {.query = query, .concurrency = concurrency};
    unsigned i;

    for (i = 0; i < split->count; ++i) {
        if (split->paths[i]->hops > 1) {
            staged.path = split->paths[i];
            staged.rate = rates[i];
            staged_choose(&staged, seconds, &lines[i]);
            ++staged.number;
        } else {
            lines[i].start  = concurrency->is_piped ?
                                      0 :
                                      split->paths[i]->latency +
                                              query->model->join;
            lines[i].cost   = 1 / rates[i];
            lines[i].chunks = 0;
        }
    }
}

/* Return the common end time, s. *dropped_p is the mask of the paths that could
 * not start before it and carry nothing. */
static double end_together(const query_t *query, const split_t *split,
                           const line_t *lines, unsigned *dropped_p)
{
    unsigned dropped = 0;
    double seconds, weight;
    bool is_done;
    unsigned i;

    do {
        seconds = query->size;
        weight  = 0;
        for (i = 0; i < split->count; ++i) {
            if (!(dropped & (1u << i))) {
                seconds += lines[i].start / lines[i].cost;
                weight  += 1 / lines[i].cost;
            }
        }

        seconds /= weight;
        is_done  = true;
        for (i = 0; i < split->count; ++i) {
            if (!(dropped & (1u << i)) && (lines[i].start >= seconds)) {
                dropped |= 1u << i;
                is_done  = false;
            }
        }
    } while (!is_done);

    *dropped_p = dropped;
    return seconds;
}

/* Return the processor time to submit a path, s */
static double path_submit_time(const query_t *query,
                               const candidate_t *path, unsigned chunks)
{
    return (path->hops > 1) ? chunks * query->model->submit_chunk :
                              query->model->submit_copy;
}

/* Return the processor time of all paths, s: to submit them and, in a window
 * between GPUs, for the rest of the message. Between host memory and a GPU
 * uct_cuda_plan_model_window() adds that. */
static double submit_time(const query_t *query, const split_t *split,
                          const line_t *lines)
{
    const uct_cuda_plan_model_t *model = query->model;
    double seconds                     = model->join;
    unsigned i;

    if ((num_piped(query) > 1) &&
        !uct_cuda_plan_ends_host(query->src, query->dst)) {
        seconds += model->message + split->count * model->path;
    }

    for (i = 0; i < split->count; ++i) {
        seconds += path_submit_time(query, split->paths[i],
                                    lines[i].chunks);
    }

    return seconds;
}

/* Divide by given weights, whose sum is 1: fill bytes, chunks and seconds. The
 * lines become those of each path's own end. */
static void
solve_weights(const query_t *query, const concurrency_t *concurrency,
              split_t *split, const double *rates, const double *weights,
              line_t *lines)
{
    staged_t staged = {.query = query, .concurrency = concurrency};
    line_t bounds[NUM_BOUNDS];
    double bytes;
    unsigned i, b;

    split->seconds = submit_time(query, split, lines);
    for (i = 0; i < split->count; ++i) {
        bytes           = query->size * weights[i];
        split->bytes[i] = bytes;
        bounds[0]       = bounds[1] = bounds[2] = lines[i];
        if (split->paths[i]->hops > 1) {
            /* use this path's end, not that of all */
            staged.path = split->paths[i];
            staged.rate = rates[i];
            staged_choose(&staged, lines[i].start + bytes * lines[i].cost,
                          &lines[i]);
            staged_bounds(&staged, lines[i].chunks, bounds);
            ++staged.number;
        }

        split->chunks[i] = lines[i].chunks;
        for (b = 0; b < NUM_BOUNDS; ++b) {
            split->seconds = ucs_max(split->seconds,
                                        bounds[b].start +
                                                bytes * bounds[b].cost);
        }
    }
}

void uct_cuda_plan_model_solve(const query_t *query, split_t *split)
{
    concurrency_t concurrency = {.is_piped = (num_piped(query) > 1)};
    double total_rate         = 0;
    double total_share        = 0;
    double total_speed        = 0;
    unsigned dropped          = 0;
    double rates[UCT_CUDA_PLAN_MAX_PATHS];
    double weights[UCT_CUDA_PLAN_MAX_PATHS];
    line_t lines[UCT_CUDA_PLAN_MAX_PATHS];
    double seconds;
    unsigned i, round;

    uct_cuda_plan_model_rates(query, split, rates);
    for (i = 0; i < split->count; ++i) {
        total_rate     += rates[i];
        total_share    += split->paths[i]->share;
        concurrency.staged += (split->paths[i]->hops > 1);
        concurrency.direct += (split->paths[i]->hops == 1);
    }

    seconds = query->size / total_rate;
    for (round = 0; round < ROUNDS; ++round) {
        choose_lines(query, &concurrency, split, rates, seconds, lines);
        seconds = end_together(query, split, lines, &dropped);
    }

    /* Configured shares; or, with several paths forced, shares by speed */
    if ((total_share > 0) || (query->config->enable == UCT_CUDA_PLAN_YES)) {
        for (i = 0; i < split->count; ++i) {
            total_speed += 1 / lines[i].cost;
        }

        for (i = 0; i < split->count; ++i) {
            weights[i] = (total_share > 0) ?
                                 split->paths[i]->share / total_share :
                                 1 / (lines[i].cost * total_speed);
        }

        solve_weights(query, &concurrency, split, rates, weights, lines);
        return;
    }

    /* a window is not faster than its submission */
    split->seconds = ucs_max(seconds, submit_time(query, split, lines));
    for (i = 0; i < split->count; ++i) {
        split->chunks[i] = lines[i].chunks;
        split->bytes[i]  = (dropped & (1u << i)) ?
                                   0 :
                                   (seconds - lines[i].start) / lines[i].cost;
    }
}

/* Compute the link time and processor time of a complete transfer over one
 * path. Fills of a path behind other transfers are hidden, so few chunks
 * suffice. */
static void message_times(const query_t *query, split_t *split, unsigned path,
                          double rate, double *seconds_p, double *work_p)
{
    const candidate_t *candidate = split->paths[path];
    unsigned chunks              = 0;
    unsigned least;

    if (candidate->hops > 1) {
        least  = least_chunks(query, query->size);
        chunks = ucs_max(candidate->chunks, least);
    }

    split->bytes[path]  = query->size;
    split->chunks[path] = chunks;
    *seconds_p          = query->size / rate + chunks * candidate->gap;
    *work_p             = path_submit_time(query, candidate, chunks) +
                          query->model->message + query->model->path;
}

static unsigned window_of(const query_t *query)
{
    const unsigned window = (query->load == NULL) ? 0 :
                                                      query->load->window;

    return (window == 0) ? 1 : (window < MAX_TURNS) ? window : MAX_TURNS;
}

void uct_cuda_plan_model_cycle(const query_t *query, split_t *split,
                               double *rates)
{
    const unsigned window = window_of(query);
    double submitted      = 0;
    double end            = 0;
    double seconds[UCT_CUDA_PLAN_MAX_PATHS];
    double work[UCT_CUDA_PLAN_MAX_PATHS];
    double ends[UCT_CUDA_PLAN_MAX_PATHS];
    unsigned i, next, message;

    uct_cuda_plan_model_rates(query, split, rates);
    for (i = 0; i < split->count; ++i) {
        message_times(query, split, i, rates[i], &seconds[i], &work[i]);
        ends[i] = 0;
    }

    for (message = 0; message < window; ++message) {
        next = 0;
        for (i = 1; i < split->count; ++i) {
            if (ends[i] + seconds[i] < ends[next] + seconds[next]) {
                next = i;
            }
        }

        submitted += work[next];
        ends[next] = ucs_max(ends[next], submitted) + seconds[next];
        end        = ucs_max(end, ends[next]);
    }

    split->seconds = end / window;
}

double uct_cuda_plan_model_window(const query_t *query, const split_t *split)
{
    double work = query->model->join;
    double rate = 0;
    double rates[UCT_CUDA_PLAN_MAX_PATHS];
    unsigned i;

    uct_cuda_plan_model_rates(query, split, rates);
    for (i = 0; i < split->count; ++i) {
        rate += rates[i];
        work += path_submit_time(query, split->paths[i], split->chunks[i]);
    }

    work += query->model->message + split->count * query->model->path;
    return ucs_max(split->seconds,
                      work + query->size / rate / window_of(query));
}
