/* SPDX-License-Identifier: BSD-3-Clause */
/* Choice of algorithm and number of chunks: the model prices all candidates,
 * and the fastest wins. */
#include <uct/cuda/plan/collective_planner.h>

#include <uct/cuda/plan/emit.h>
#include <ucs/sys/math.h>

#include <assert.h>
#include <float.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>


#define MAX_RANKS UCT_CUDA_PLAN_COLL_MAX_RANKS

/* Smallest chunk tried, bytes, and most steps of a plan with several chunks. A
 * plan with one chunk may have more steps or a smaller chunk. */
#define MIN_CHUNK (128ul << 10)
#define MAX_STEPS 6000

/* For longer plans the model prices fewer chunks, at least MIN_PRICED, and each
 * further pair costs as much as the last two of these */
#define PRICED_STEPS 2500
#define MIN_PRICED   4

/* Trees whose single chunk is slower than the best by this factor are not tried
 * with more chunks */
#define NEAR     1.2
/* the same for one shard for each rank, which gains most from chunks */
#define NEAR_ONE 1.4

/* Trees slower than the best by this factor are not tried with still more
 * chunks */
#define FAR 2

/* Smallest speedup with which a later candidate replaces the best one */
#define MIN_GAIN      1.01

/* Choices tried with one chunk */
#define MAX_TRIALS 64

/* Speedup from which a simpler algorithm is preferred: times that differ less
 * are equal, except for lengths rounded to elements. Below it, the smallest
 * speedup that justifies copies and scratch memory over kernels, for which the
 * model is more accurate. */
#define NO_LOSS (1 - 1e-4)
#define MIN_GAIN_COPY 1.03

/* Smallest gain that justifies GPUs possibly used by other programs */
#define MIN_GAIN_MULTIPATH 1.02


typedef uct_cuda_plan_coll_request_t      request_t;
typedef uct_cuda_plan_coll_choice_t       choice_t;
typedef uct_cuda_plan_coll_cached_trees_t cached_trees_t;


typedef struct {
    const request_t                  *request;
    const uct_cuda_plan_coll_model_t *model;
    uct_cuda_plan_coll_model_t       constants; /* of this node */
    uct_cuda_plan_coll_t             signature;
    uct_cuda_plan_coll_ranks_t       ranks;
    uct_cuda_plan_coll_tree_cache_t  *tree_cache;
    /* for a planner without one */
    uct_cuda_plan_coll_tree_cache_t  own_cache;
    uct_cuda_plan_coll_search_t      *search;
    /* storage for trees that are not cached */
    uct_cuda_plan_coll_trees_t       *trees;
    unsigned                         num_trials;
    choice_t                         trials[MAX_TRIALS];
    /* several numbers of chunks are tried */
    bool                             is_chunked;
    /* least time of copies in one chunk, s; 0: none yet */
    double                           alone;
    int                              algorithm; /* or AUTO */
    uint64_t                         scratch; /* maximum bytes for each rank */
    bool                             are_all_peers;
    bool                             is_switched;
    choice_t                         best;    /* seconds is 0: none yet */
    /* best time of each algorithm, s, or 0 */
    double                           least[UCT_CUDA_PLAN_COLL_ALGORITHM_LAST];
    ucs_status_t                     status;  /* why there is no plan */
} planner_t;


ucs_status_t uct_cuda_plan_coll_signature(const request_t *request,
                                          uct_cuda_plan_coll_t *plan)
{
    const uct_cuda_coll_kind_desc_t *kind = uct_cuda_coll_kind(request->kind);
    uint64_t count;
    unsigned rank;

    memset(plan, 0, sizeof(*plan));
    if ((request->num_ranks == 0) || (request->num_ranks > MAX_RANKS) ||
        (request->element == 0) ||
        (request->element > UCT_CUDA_PLAN_COLL_MAX_ELEMENT) ||
        (request->kind < 0) || (request->kind >= UCT_CUDA_COLL_KIND_LAST) ||
        (request->root >= request->num_ranks) ||
        (request->is_in_place &&
         (kind->in_place == UCT_CUDA_COLL_IN_PLACE_NEVER)) ||
        ((request->counts != NULL) && !kind->has_counts)) {
        return UCS_ERR_INVALID_PARAM;
    }

    plan->kind        = (uint8_t)request->kind;
    plan->root        = (uint8_t)request->root;
    plan->num_ranks   = (uint8_t)request->num_ranks;
    plan->is_in_place = request->is_in_place &&
                        (kind->in_place == UCT_CUDA_COLL_IN_PLACE_ALLOWED);
    plan->element     = request->element;
    for (rank = 0; rank < (kind->has_blocks ? request->num_ranks : 1); ++rank) {
        count = (request->counts == NULL) ? request->count :
                                            request->counts[rank];
        if (count > UCT_CUDA_PLAN_COLL_MAX_COUNT) {
            return UCS_ERR_INVALID_PARAM;
        }

        plan->bytes += count * request->element;
        if (kind->has_blocks) {
            plan->blocks[rank + 1] = plan->bytes;
        }
    }

    return UCS_OK;
}

static ucs_status_t check(const request_t *request)
{
    unsigned rank;

    if ((request->algorithm < UCT_CUDA_PLAN_COLL_AUTO) ||
        (request->algorithm >= UCT_CUDA_PLAN_COLL_ALGORITHM_LAST) ||
        (request->chunks == 0) || (request->chunks < UCT_CUDA_PLAN_COLL_AUTO) ||
        (request->chunks > UCT_CUDA_PLAN_COLL_MAX_CHUNKS) ||
        (request->multipath < UCT_CUDA_PLAN_COLL_AUTO) ||
        (request->multipath > 1)) {
        return UCS_ERR_INVALID_PARAM;
    }

    for (rank = 0; rank < request->num_ranks; ++rank) {
        if ((request->gpus[rank] < 0) ||
            (request->gpus[rank] >= request->topo->num_gpus)) {
            return UCS_ERR_INVALID_PARAM;
        }
    }

    return UCS_OK;
}

static bool are_peers(const request_t *request, unsigned a, unsigned b)
{
    const int from = request->gpus[a];
    const int to   = request->gpus[b];

    return (from == to) || ((request->topo->links[from][to].bandwidth > 0) &&
                            (request->topo->links[to][from].bandwidth > 0));
}

static bool are_all_peers(const request_t *request)
{
    unsigned a, b;

    for (a = 0; a < request->num_ranks; ++a) {
        for (b = 0; b < a; ++b) {
            if (!are_peers(request, a, b)) {
                return false;
            }
        }
    }

    return true;
}

static const uct_cuda_coll_kind_desc_t *kind_of(const planner_t *planner)
{
    return uct_cuda_coll_kind(planner->signature.kind);
}

/* Find the GPUs without a rank, at most MAX_RELAYS of them */
static void find_relays(planner_t *planner)
{
    const request_t *request = planner->request;
    uint32_t taken           = 0;
    unsigned rank;
    int gpu;

    for (rank = 0; rank < request->num_ranks; ++rank) {
        taken |= 1u << request->gpus[rank];
    }

    for (gpu = 0; (gpu < request->topo->num_gpus) &&
                  (planner->ranks.num_relays < UCT_CUDA_PLAN_COLL_MAX_RELAYS);
         ++gpu) {
        if (!((taken >> gpu) & 1)) {
            planner->ranks.relays[planner->ranks.num_relays++] = gpu;
        }
    }
}

static void release(planner_t *planner)
{
    uct_cuda_plan_coll_tree_cache_release(&planner->own_cache);
    free(planner->search);
    free(planner->trees);
}

/* @a tree_cache: or NULL */
static ucs_status_t init(planner_t *planner, const request_t *request,
                         uct_cuda_plan_coll_tree_cache_t *tree_cache)
{
    ucs_status_t status;
    double ports;

    memset(planner, 0, sizeof(*planner));
    status = uct_cuda_plan_coll_signature(request, &planner->signature);
    if (status == UCS_OK) {
        status = check(request);
    }
    if (status != UCS_OK) {
        return status;
    }

    planner->request = request;
    planner->tree_cache = (tree_cache == NULL) ? &planner->own_cache :
                                                 tree_cache;
    planner->ranks.topo       = request->topo;
    planner->ranks.num_ranks  = request->num_ranks;
    planner->ranks.gpus       = request->gpus;
    planner->ranks.kind       = planner->signature.kind;
    planner->ranks.root       = planner->signature.root;
    planner->scratch          = (request->max_scratch == 0) ?
                                        UINT64_MAX :
                                        request->max_scratch;
    planner->algorithm        = request->algorithm;
    planner->are_all_peers    = are_all_peers(request);
    ports                     = uct_cuda_plan_coll_trees_ports(&planner->ranks);
    planner->is_switched      = ports > 0;
    planner->model            = request->model;
    if (request->model == NULL) {
        uct_cuda_plan_coll_model_of((request->transfers == NULL) ?
                                            &uct_cuda_plan_model_builtin :
                                            request->transfers,
                                    ports, &planner->constants);
        planner->model = &planner->constants;
    }

    if (!kind_of(planner)->has_trees &&
        (request->algorithm > UCT_CUDA_PLAN_COLL_FLAT)) {
        /* not available for this kind */
        planner->algorithm = UCT_CUDA_PLAN_COLL_AUTO;
    }

    if ((request->num_ranks > 1) && kind_of(planner)->has_trees &&
        !planner->is_switched) {
        find_relays(planner);
    }

    planner->ranks.memory     = planner->model->memory;
    planner->status           = UCS_ERR_UNSUPPORTED;
    planner->search           = uct_cuda_plan_coll_search_create();
    planner->trees            = malloc(sizeof(*planner->trees));
    if ((planner->search == NULL) || (planner->trees == NULL)) {
        release(planner);
        return UCS_ERR_NO_MEMORY;
    }
    return UCS_OK;
}


/* ------------------------------------------------------------------- plans */

static bool pack_trees(const planner_t *planner, const choice_t *choice,
                       uct_cuda_plan_coll_trees_t *trees)
{
    uct_cuda_plan_coll_ranks_t ranks = planner->ranks;
    bool is_packed;

    if (!choice->multipath) {
        ranks.num_relays = 0;
    }

    is_packed = (choice->shards > 0) &&
                (choice->shards * ranks.num_ranks <=
                 UCT_CUDA_PLAN_COLL_MAX_TREES) &&
                uct_cuda_plan_coll_trees_pack(&ranks, choice->shards,
                                              choice->depth, planner->search,
                                              trees) &&
                (!choice->multipath || (trees->num_relays > 0));
    trees->algorithm = choice->algorithm;
    return is_packed;
}

static bool make_trees(const planner_t *planner, const choice_t *choice,
                       uct_cuda_plan_coll_trees_t *trees)
{
    if (choice->multipath) {
        return !choice->kernels && pack_trees(planner, choice, trees);
    }

    switch (choice->algorithm) {
    case UCT_CUDA_PLAN_COLL_ONE_KERNEL:
    case UCT_CUDA_PLAN_COLL_FLAT:
        if ((planner->ranks.num_ranks > UCT_CUDA_PLAN_COLL_MAX_FAN) &&
            (kind_of(planner)->reduces ||
             (kind_of(planner)->has_trees &&
              (choice->algorithm == UCT_CUDA_PLAN_COLL_ONE_KERNEL)))) {
            return false;
        }
        if (choice->algorithm == UCT_CUDA_PLAN_COLL_ONE_KERNEL) {
            uct_cuda_plan_coll_trees_star(&planner->ranks, trees);
        } else {
            uct_cuda_plan_coll_trees_flat(&planner->ranks, trees);
        }
        trees->rotates &= !choice->kernels;
        trees->count    = kind_of(planner)->has_trees ? trees->count : 0;
        return planner->are_all_peers;
    case UCT_CUDA_PLAN_COLL_HIERARCHICAL:
        return kind_of(planner)->has_trees &&
               pack_trees(planner, choice, trees);
    default:
        return false;
    }
}

void uct_cuda_plan_coll_tree_cache_release(
    uct_cuda_plan_coll_tree_cache_t *tree_cache)
{
    unsigned i;

    for (i = 0; i < tree_cache->count; ++i) {
        free((void*)tree_cache->entries[i].trees);
    }
    memset(tree_cache, 0, sizeof(*tree_cache));
}

/* Find the cache entry with the trees of a choice. If there is none, return the
 * first unused entry: the caller fills it and counts it. NULL: the cache is
 * full, or the trees are stars, which need no cache. */
static cached_trees_t *find_cached_trees(const planner_t *planner,
                                         const choice_t *choice)
{
    uct_cuda_plan_coll_tree_cache_t *tree_cache = planner->tree_cache;
    cached_trees_t *cached_trees;
    unsigned i;

    if (choice->shards == 0) {
        return NULL;
    }

    for (i = 0; i < tree_cache->count; ++i) {
        cached_trees = &tree_cache->entries[i];
        if ((cached_trees->choice.algorithm == choice->algorithm) &&
            (cached_trees->choice.shards == choice->shards) &&
            (cached_trees->choice.depth == choice->depth) &&
            (cached_trees->choice.multipath == choice->multipath)) {
            return cached_trees;
        }
    }

    return (i < UCT_CUDA_PLAN_COLL_MAX_TREE_SETS) ? &tree_cache->entries[i] :
                                                    NULL;
}

/* Find the trees of a choice in the cache, or make and cache them. `load_p`:
 * load of the fullest link, seconds for each byte of the data. @return Trees
 * valid until the next call; NULL: no such trees */
static const uct_cuda_plan_coll_trees_t *
find_trees(const planner_t *planner, const choice_t *choice, double *load_p)
{
    uct_cuda_plan_coll_tree_cache_t *tree_cache = planner->tree_cache;
    cached_trees_t *cached_trees = find_cached_trees(planner, choice);
    uct_cuda_plan_coll_trees_t *own             = planner->trees;
    uct_cuda_plan_coll_trees_t *trees           = own;
    bool exist;

    if ((cached_trees != NULL) &&
        (cached_trees < &tree_cache->entries[tree_cache->count])) {
        *load_p = cached_trees->load;
        return cached_trees->trees;
    }

    exist   = make_trees(planner, choice, own);
    *load_p = exist ? uct_cuda_plan_coll_trees_load(&planner->ranks, own,
                                                    planner->search) :
                      0;
    if ((cached_trees != NULL) && exist) {
        trees = malloc(sizeof(*trees));
        if (trees == NULL) {
            return own;
        }
        *trees = *own;
    }
    if (cached_trees != NULL) {
        cached_trees->choice = *choice;
        cached_trees->trees  = exist ? trees : NULL;
        cached_trees->load   = *load_p;
        ++tree_cache->count;
    }
    return exist ? trees : NULL;
}

/* Make the plan of a choice with known trees */
static ucs_status_t emit(const planner_t *planner,
                         const uct_cuda_plan_coll_t *signature,
                         const choice_t *choice, unsigned chunks,
                         const uct_cuda_plan_coll_trees_t *trees,
                         const uct_cuda_plan_coll_t *like,
                         uct_cuda_plan_coll_t *plan)
{
    return uct_cuda_plan_coll_emit(signature, trees,
                                   choice->kernels ||
                                       (choice->algorithm ==
                                        UCT_CUDA_PLAN_COLL_ONE_KERNEL),
                                   chunks, planner->scratch, like, plan);
}

ucs_status_t uct_cuda_plan_coll_make(
    const request_t *request, uct_cuda_plan_coll_tree_cache_t *tree_cache,
    const choice_t *choice, const uct_cuda_plan_coll_t *like,
    uct_cuda_plan_coll_t *plan)
{
    const uct_cuda_plan_coll_trees_t *trees;
    ucs_status_t status;
    planner_t planner;
    double load;

    memset(plan, 0, sizeof(*plan));
    if ((choice->chunks == 0) ||
        (choice->chunks > UCT_CUDA_PLAN_COLL_MAX_CHUNKS)) {
        return UCS_ERR_INVALID_PARAM;
    }

    status = init(&planner, request, tree_cache);
    if (status != UCS_OK) {
        return status;
    }

    trees  = find_trees(&planner, choice, &load);
    status = (trees == NULL) ? UCS_ERR_UNSUPPORTED :
                               emit(&planner, &planner.signature, choice,
                                    choice->chunks, trees, like, plan);
    if (status == UCS_OK) {
        plan->seconds = choice->seconds;
        plan->other   = choice->other;
    }

    release(&planner);
    return status;
}

/* ------------------------------------------------------------------ choice */

/* Return whether a choice should replace the best one: there is none yet, or
 * the choice is faster by the margin required of copies, relays or later
 * candidates. A simpler algorithm may be slower by NO_LOSS. */
static bool is_better(const choice_t *choice, const choice_t *best)
{
    double min_gain = MIN_GAIN;

    if (best->kernels && !choice->kernels) {
        min_gain = ucs_max(min_gain, MIN_GAIN_COPY);
    }
    if (choice->multipath && !best->multipath) {
        min_gain = ucs_max(min_gain, MIN_GAIN_MULTIPATH);
    }

    if ((choice->algorithm < best->algorithm) &&
        (choice->kernels == best->kernels)) {
        min_gain = ucs_min(min_gain, NO_LOSS); /* prefer the simpler one */
    }

    return (best->seconds == 0) || (choice->seconds * min_gain < best->seconds);
}

/* Compute the time with this many chunks, each as long as one of the choice */
static ucs_status_t price_chunks(const planner_t *planner,
                                 const choice_t *choice,
                                 const uct_cuda_plan_coll_trees_t *trees,
                                 unsigned chunks, double limit,
                                 double *seconds_p)
{
    const request_t *request = planner->request;
    uct_cuda_plan_coll_t signature = planner->signature;
    uct_cuda_plan_coll_t plan;
    ucs_status_t status;
    unsigned rank;

    signature.bytes = signature.bytes / choice->chunks * chunks;
    for (rank = 0; rank <= request->num_ranks; ++rank) {
        signature.blocks[rank] = signature.blocks[rank] / choice->chunks *
                                 chunks;
    }

    status = emit(planner, &signature, choice, chunks, trees, NULL, &plan);
    if (status == UCS_OK) {
        status = uct_cuda_plan_coll_cost(&plan, request->topo, request->gpus,
                                         planner->model, limit, seconds_p);
        uct_cuda_plan_coll_release(&plan);
    }
    return status;
}

/* Estimate the steps of one chunk */
static uint32_t count_steps(const planner_t *planner,
                            const uct_cuda_plan_coll_trees_t *trees)
{
    return trees->count * planner->signature.num_ranks *
           (kind_of(planner)->reduces +
            kind_of(planner)->spreads);
}

/* Compute the time of a choice. A long plan is priced with fewer chunks; the
 * time of further ones is extrapolated. */
static ucs_status_t price(const planner_t *planner, const choice_t *choice,
                          const uct_cuda_plan_coll_trees_t *trees, double limit,
                          double *seconds_p)
{
    const uint32_t steps = count_steps(planner, trees);
    unsigned chunks      = choice->chunks;
    ucs_status_t status;
    double less;

    while ((chunks * steps > PRICED_STEPS) && (chunks >= 2 * MIN_PRICED)) {
        chunks /= 2;
    }

    status = price_chunks(planner, choice, trees, chunks, limit, seconds_p);
    if ((status == UCS_OK) && (chunks < choice->chunks) &&
        (*seconds_p <= limit)) {
        status      = price_chunks(planner, choice, trees, chunks - 2, limit,
                                   &less);
        *seconds_p += (*seconds_p - less) * (choice->chunks - chunks) / 2;
    }
    return status;
}

/* Price a choice, and record it where it is the best of all or of its
 * algorithm; record the status of a failure. @return Seconds, or DBL_MAX: more
 * than the limit, or impossible */
static double try_choice(planner_t *planner, choice_t choice,
                         const uct_cuda_plan_coll_trees_t *trees, double limit)
{
    double *least             = &planner->least[choice.algorithm];
    const ucs_status_t status = price(planner, &choice, trees, limit,
                                      &choice.seconds);

    if (status != UCS_OK) {
        /* NO_RESOURCE tells more than UNSUPPORTED. Without memory other ranks
         * could still choose this plan, so the failure must win. */
        if ((planner->status == UCS_ERR_UNSUPPORTED) ||
            (status == UCS_ERR_NO_MEMORY)) {
            planner->status = status;
        }
        return DBL_MAX;
    }

    if (choice.seconds > limit) {
        return DBL_MAX;
    }

    if (is_better(&choice, &planner->best)) {
        planner->best = choice;
    }
    if ((*least == 0) || (choice.seconds < *least)) {
        *least = choice.seconds;
    }
    return choice.seconds;
}

bool uct_cuda_plan_coll_choice_is_same(const choice_t *a, const choice_t *b)
{
    return (a->algorithm == b->algorithm) && (a->chunks == b->chunks) &&
           (a->shards == b->shards) && (a->depth == b->depth) &&
           (a->kernels == b->kernels) && (a->multipath == b->multipath);
}

/* Find the price with one chunk. @return Seconds; DBL_MAX: not tried, or
 * impossible */
static double find_trial(const planner_t *planner, const choice_t *choice)
{
    unsigned i;

    for (i = 0; i < planner->num_trials; ++i) {
        if (uct_cuda_plan_coll_choice_is_same(&planner->trials[i], choice)) {
            return planner->trials[i].seconds;
        }
    }
    return DBL_MAX;
}

/* Return whether a plan with this many chunks need not be priced: it has too
 * many steps or too small chunks, or its submission alone takes longer than the
 * best plan */
static bool is_too_long(const planner_t *planner, unsigned chunks,
                        unsigned num_trees, uint32_t num_steps)
{
    return (num_steps > MAX_STEPS) ||
           ((double)planner->signature.bytes <
            (double)MIN_CHUNK * num_trees * chunks) ||
           (num_steps * planner->model->submit / planner->request->num_ranks >
            NEAR * planner->best.seconds);
}

/* Return whether only chunks can overlap the stages: the single-chunk time of
 * such a plan says little about many chunks */
static bool is_pipe(const choice_t *choice)
{
    return choice->algorithm == UCT_CUDA_PLAN_COLL_FLAT;
}

/* Return the single-chunk time up to which more chunks are tried, s; DBL_MAX:
 * any */
static double limit_alone(const planner_t *planner, const choice_t *choice)
{
    const double least = choice->kernels ? planner->best.seconds :
                                           planner->alone;

    return ((least == 0) || is_pipe(choice)) ? DBL_MAX :
           (choice->shards == 1) ? NEAR_ONE * least : NEAR * least;
}

/* Return the time up to which still more chunks are tried, s: with as many
 * chunks as stages, each stage is idle half of the time */
static double limit_chunks(const planner_t *planner, const choice_t *choice)
{
    const double stages = (choice->algorithm == UCT_CUDA_PLAN_COLL_FLAT) ?
                                  3 :
                                  planner->request->num_ranks;

    return (is_pipe(choice) ? 1 + stages / choice->chunks : FAR) *
           planner->best.seconds;
}

/* Price a choice with one chunk, and record the time for find_trial(). Kernels
 * are not recorded: they never get more chunks. */
static void try_alone(planner_t *planner, choice_t choice,
                      const uct_cuda_plan_coll_trees_t *trees)
{
    choice.seconds = try_choice(planner, choice, trees,
                                limit_alone(planner, &choice));
    if (choice.kernels || (choice.seconds == DBL_MAX)) {
        return;
    }

    assert(planner->num_trials < MAX_TRIALS);
    planner->trials[planner->num_trials++] = choice;
    if ((planner->alone == 0) || (choice.seconds < planner->alone)) {
        planner->alone = choice.seconds;
    }
}

static unsigned most_chunks(const planner_t *planner, const choice_t *choice)
{
    const bool is_in_few = planner->is_switched &&
                           !kind_of(planner)->has_root &&
                           (choice->algorithm == UCT_CUDA_PLAN_COLL_FLAT);

    return (choice->kernels || !kind_of(planner)->has_trees ||
            (planner->request->chunks != UCT_CUDA_PLAN_COLL_AUTO)) ? 1 :
           is_in_few ? planner->model->switched_chunks :
                       UCT_CUDA_PLAN_COLL_MAX_CHUNKS;
}

/* Double the chunks of a choice and price it, until two tries (flat: one) bring
 * no gain. Does nothing if one chunk was not priced or is too slow. */
static void try_chunks(planner_t *planner, choice_t choice,
                       const uct_cuda_plan_coll_trees_t *trees)
{
    const unsigned most = most_chunks(planner, &choice);
    unsigned tries      = is_pipe(&choice) ? 1 : 2;
    uint32_t num_steps  = count_steps(planner, trees);
    double least        = find_trial(planner, &choice);
    double seconds;

    if ((least == DBL_MAX) || (least > limit_alone(planner, &choice))) {
        return;
    }

    while (tries > 0) {
        num_steps     *= 2;
        choice.chunks *= 2;
        if ((choice.chunks > most) ||
            is_too_long(planner, choice.chunks, trees->count, num_steps)) {
            break;
        }

        seconds = try_choice(planner, choice, trees,
                             ucs_min(least, limit_chunks(planner, &choice)));
        tries  -= (seconds == DBL_MAX);
        least   = ucs_min(least, seconds);
    }
}

/* Return whether packed trees cannot help. Behind a switch all links share a
 * GPU's ports, so longer ways are tried only on request, or if one GPU's ports
 * are the bottleneck. The model favours their many copies, but copy engines do
 * not (see switched_chunks in the model, measured with all GPUs sending). Ranks
 * beyond the sources of one kernel need packed trees. */
static bool is_skipped(const planner_t *planner, const choice_t *choice)
{
    return planner->is_switched && !kind_of(planner)->has_root &&
           (planner->request->num_ranks <= UCT_CUDA_PLAN_COLL_MAX_FAN) &&
           (planner->algorithm == UCT_CUDA_PLAN_COLL_AUTO) &&
           (choice->algorithm == UCT_CUDA_PLAN_COLL_HIERARCHICAL);
}

static void try_trees(planner_t *planner, const choice_t *choice)
{
    const request_t *request                = planner->request;
    const uct_cuda_plan_coll_model_t *model = planner->model;
    const double bytes                      = (double)planner->signature.bytes;
    const int copies                        = kind_of(planner)->reduces +
                                              kind_of(planner)->spreads;
    choice_t trial   = *choice;
    const uct_cuda_plan_coll_trees_t *trees;
    double least, load;

    if (((planner->algorithm != UCT_CUDA_PLAN_COLL_AUTO) &&
         (planner->algorithm != (int)choice->algorithm) &&
         (request->num_ranks > 1)) ||
        is_skipped(planner, choice)) {
        return;
    }

    trees = find_trees(planner, choice, &load);
    if (trees == NULL) {
        return;
    }

    /* lower bound: a kernel, copies in and out, and the fullest link */
    least = model->begin + model->end + model->submit +
            (kind_of(planner)->reduces ?
                 model->start :
                 0) +
            (choice->kernels ? 0 : copies * model->copy_start) +
            bytes * load /
                (choice->kernels ? model->kernel_rate : model->copy_rate);
    if ((planner->best.seconds == 0) ||
        (least < (planner->is_chunked ? 1 : NEAR) * planner->best.seconds)) {
        trial.chunks = (request->chunks == UCT_CUDA_PLAN_COLL_AUTO) ?
                               1 :
                               (unsigned)request->chunks;
        if (planner->is_chunked) {
            try_chunks(planner, trial, trees);
        } else {
            try_alone(planner, trial, trees);
        }
    }
}

static void try_hierarchical(planner_t *planner, bool kernels)
{
    static const unsigned shards[] = {1, 2, 3, 4};
    const unsigned deepest         = uct_cuda_plan_coll_trees_deepest(
            &planner->ranks);
    choice_t choice = {
        .algorithm = UCT_CUDA_PLAN_COLL_HIERARCHICAL, .kernels = kernels
    };
    unsigned i;

    for (i = 0; i < sizeof(shards) / sizeof(shards[0]); ++i) {
        for (choice.depth = 2; choice.depth <= deepest; ++choice.depth) {
            choice.shards = shards[i];
            try_trees(planner, &choice);
        }
    }
}

bool uct_cuda_plan_coll_shares_gpus(const int *gpus, unsigned num_ranks)
{
    unsigned seen = 0;
    unsigned rank;

    for (rank = 0; rank < num_ranks; ++rank) {
        if (seen & (1u << gpus[rank])) {
            return true;
        }
        seen |= 1u << gpus[rank];
    }
    return false;
}

/* Try copies relayed by other GPUs, flat or through several ranks */
static void try_multipath(planner_t *planner)
{
    static const unsigned shards[] = {1, 2, 3, 4, 6};
    choice_t choice                = {.multipath = true};
    unsigned i;

    if ((planner->ranks.num_relays == 0) ||
        (planner->request->multipath == 0)) {
        return;
    }

    for (i = 0; i < sizeof(shards) / sizeof(shards[0]); ++i) {
        choice.shards = shards[i];
        for (choice.depth = 1; choice.depth <= 3; ++choice.depth) {
            choice.algorithm = (choice.depth == 1) ?
                                       UCT_CUDA_PLAN_COLL_FLAT :
                                       UCT_CUDA_PLAN_COLL_HIERARCHICAL;
            try_trees(planner, &choice);
        }
    }
}

static void try_single(planner_t *planner)
{
    choice_t choice = {.algorithm = UCT_CUDA_PLAN_COLL_ONE_KERNEL,
                       .kernels   = true};

    try_trees(planner, &choice);
    if (planner->request->num_ranks > 1) {
        try_hierarchical(planner, true);
        choice.algorithm = UCT_CUDA_PLAN_COLL_FLAT;
        choice.kernels   = false;
        try_trees(planner, &choice);
        try_hierarchical(planner, false);
    }
}

/* Try all candidates with one chunk, then the best with more */
static void try_both(planner_t *planner, void (*try)(planner_t *planner))
{
    planner->alone      = 0;
    planner->is_chunked = false;
    try(planner);
    planner->is_chunked = true;
    try(planner);
}

static void find_other(const planner_t *planner, choice_t *choice)
{
    unsigned i;

    for (i = 0; i < UCT_CUDA_PLAN_COLL_ALGORITHM_LAST; ++i) {
        if ((i != choice->algorithm) && (planner->least[i] > 0) &&
            ((choice->other.seconds == 0) ||
             (planner->least[i] < choice->other.seconds))) {
            choice->other.algorithm = (uint8_t)i;
            choice->other.seconds   = planner->least[i];
        }
    }
}

ucs_status_t
uct_cuda_plan_coll_choose(const request_t *request,
                          uct_cuda_plan_coll_tree_cache_t *tree_cache,
                          choice_t *choice_p)
{
    ucs_status_t status;
    planner_t planner;
    choice_t single;

    memset(choice_p, 0, sizeof(*choice_p));
    status = init(&planner, request, tree_cache);
    if (status != UCS_OK) {
        return status;
    }

    try_both(&planner, try_single);
    single = planner.best;
    if (request->multipath == 1) {
        planner.best.seconds = 0; /* find the best one with multipath */
    }
    try_both(&planner, try_multipath);
    release(&planner);
    *choice_p = (planner.best.seconds == 0) ? single : planner.best;
    find_other(&planner, choice_p);
    return ((choice_p->seconds == 0) ||
            (planner.status == UCS_ERR_NO_MEMORY)) ?
                   planner.status :
                   UCS_OK;
}
