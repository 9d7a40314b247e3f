/* SPDX-License-Identifier: BSD-3-Clause */
/* Candidates of a transfer, and the choice among them. */
#include <uct/cuda/plan/transfer_paths.h>

#include <float.h>
#include <math.h>


/* Smaller relative differences of rate are rounding errors */
#define RATE_ROUNDING 1e-6

/* Smallest speedup for round robin over paths: the processor's part varies by
 * half between machines (4 x H200), and such windows end unevenly */
#define ROTATION_MIN_GAIN 1.25


typedef uct_cuda_plan_problem_t problem_t;
typedef uct_cuda_plan_split_t   split_t;


/* -------------------------------------------------------------- candidates */

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

/* Return whether the driver refuses peer access between two GPUs: it copies
 * through host memory */
static bool is_unlinked(const uct_cuda_topo_t *topo, uct_cuda_end_t src,
                        uct_cuda_end_t dst)
{
    return !uct_cuda_plan_ends_host(src, dst) &&
           (uct_cuda_topo_link(topo, src, dst)->bandwidth <= 0);
}

/* Return whether a message may begin or end here, not only be staged */
static bool is_message_end(const uct_cuda_topo_t *topo, uct_cuda_end_t end)
{
    return (uct_cuda_end_is_gpu(end) || uct_cuda_end_is_host(end)) &&
           uct_cuda_topo_has_end(topo, end);
}

bool uct_cuda_plan_are_joined(const uct_cuda_plan_knowledge_t *know,
                              uct_cuda_end_t src, uct_cuda_end_t dst)
{
    if (!is_message_end(know->topo, src) || !is_message_end(know->topo, dst) ||
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

void uct_cuda_plan_problem_init(problem_t *problem,
                                const uct_cuda_plan_knowledge_t *know,
                                uct_cuda_end_t src, uct_cuda_end_t dst,
                                size_t size)
{
    uct_cuda_plan_query_t *query = &problem->query;

    query->numa             = find_numa(know, src, dst);
    query->topo             = know->topo;
    query->config           = know->config;
    query->load             = know->load;
    query->model            = model_of(know);
    query->src              = src;
    query->dst              = dst;
    query->size             = (double)size;
    problem->num_candidates = 0;
    problem->has_host       = false;
    problem->absent         = know->absent;
    problem->constraints    = know->constraints;
    problem->is_unlinked    = is_unlinked(know->topo, src, dst);
    uct_cuda_plan_model_start(query);
}

bool uct_cuda_plan_problem_add(problem_t *problem, uct_cuda_end_t via)
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

bool uct_cuda_plan_problem_set_paths(problem_t *problem)
{
    const uct_cuda_plan_config_t *config = problem->query.config;
    uct_cuda_plan_model_path_t *candidate;
    unsigned i;

    problem->num_candidates = 0;
    for (i = 0; i < config->num_paths; ++i) {
        candidate = &problem->candidates[problem->num_candidates];
        if (!uct_cuda_plan_problem_add(problem, config->paths[i])) {
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
static void problem_choose_relays(problem_t *problem)
{
    const uct_cuda_plan_config_t *config = problem->query.config;
    uct_cuda_plan_model_path_t *relays   = &problem->candidates[1];
    unsigned found = problem->num_candidates - 1 - problem->has_host;
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
    if (problem->has_host) {
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
void uct_cuda_plan_problem_add_relays(problem_t *problem)
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
        if (!uct_cuda_plan_problem_add(problem, uct_cuda_end_gpu(gpu))) {
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
    split_t split;
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


/* ------------------------------------------------------------------ choice */

static void take_all(const problem_t *problem, split_t *split)
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

void uct_cuda_plan_problem_split_all(const problem_t *problem, split_t *split)
{
    take_all(problem, split);
    uct_cuda_plan_model_solve(&problem->query, split);
}

bool uct_cuda_plan_problem_is_worthwhile(const problem_t *problem,
                                         const split_t *split)
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
static void split_best(const problem_t *problem, split_t *best)
{
    unsigned relays = problem->num_candidates - 1 - problem->has_host;
    unsigned most   = problem->query.config->max_gpu_paths - 1;
    double tolerance, least;
    split_t split;
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
    least         = INFINITY; /* its product raises no floating-point exception,
                                 which a program may have made fatal */
    best->seconds = DBL_MAX;
    best->count   = 0;
    for (i = 0; i <= most; ++i) {
        split.paths[i] = &problem->candidates[i];
        for (host = 0; host <= problem->has_host; ++host) {
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
                uct_cuda_plan_problem_is_worthwhile(problem, &split)) {
                least = (split.seconds < least) ? split.seconds : least;
                *best = split;
            }
        }
    }
}

/* Return the path in round robin that ends this transfer first, behind the
 * traffic on its links */
static unsigned next_path(const problem_t *problem,
                          const split_t *split,
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
                   const split_t *others,
                   split_t *rotation, double *rates)
{
    const uct_cuda_plan_query_t *query = &problem->query;
    split_t single       = {
        .count   = 1,
        .paths   = {&problem->candidates[0]},
        .seconds = problem->single_seconds
    };

    take_all(problem, rotation);
    others = (others->count > 0) ? others : &single;
    uct_cuda_plan_model_cycle(query, rotation, rates);
    return (rotation->seconds * ROTATION_MIN_GAIN <=
            uct_cuda_plan_model_window(query, others)) &&
           uct_cuda_plan_problem_is_worthwhile(problem, rotation);
}

/* Plan a transfer in a window of transfers from host memory. If they are small,
 * submitting copies over all paths takes longer than the links need: then give
 * each transfer one path, in round robin. Callers do not use this for transfers
 * to host memory: there such windows stalled for milliseconds at a time (4 x
 * H200, MPI; not with the same copies by hand; cause unknown).
 *
 * @return true: @a split is this transfer's one path; false: @a split is the
 * best split without round robin. */
static bool split_window(problem_t *problem, split_t *split)
{
    uct_cuda_plan_query_t *query = &problem->query;
    const unsigned queued        = query->queued;
    const double single_seconds  = problem->single_seconds;
    double rates[UCT_CUDA_PLAN_MAX_PATHS];
    split_t rotation;
    unsigned next;
    bool rotates;

    if (queued == 0) {
        /* evaluated as if other transfers were ahead */
        query->queued           = 1;
        rotation.count          = 1;
        rotation.paths[0]       = &problem->candidates[0];
        problem->single_seconds = uct_cuda_plan_model_single(query, &rotation);
    }

    split_best(problem, split);
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
        split_best(problem, split);
    }

    return rotates;
}

bool uct_cuda_plan_problem_choose(problem_t *problem, split_t *split)
{
    const uct_cuda_plan_query_t *query   = &problem->query;
    const uct_cuda_plan_config_t *config = query->config;
    const bool is_host = uct_cuda_plan_ends_host(query->src, query->dst);

    uct_cuda_plan_problem_add_relays(problem);
    if (is_host) {
        problem_sort_host_relays(problem);
    }

    problem->has_host =
            !is_host &&
            (problem->is_unlinked ?
                     (config->host != UCT_CUDA_PLAN_NO) :
                     uct_cuda_plan_may_use_host(config, query->load, query->src,
                                                query->dst, query->size)) &&
            uct_cuda_plan_problem_add(problem, uct_cuda_end_host());
    if (problem->num_candidates == 0) {
        split->count = 0;
        return false;
    }

    problem->has_host = problem->has_host && (problem->num_candidates > 1);
    problem_choose_relays(problem);
    if (config->enable == UCT_CUDA_PLAN_YES) {
        uct_cuda_plan_problem_split_all(problem, split);
    } else if (uct_cuda_end_is_host(query->src) && (query->load != NULL) &&
               (query->load->window > 1)) {
        return split_window(problem, split);
    } else {
        split_best(problem, split);
    }

    return false;
}
