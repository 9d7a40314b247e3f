/* SPDX-License-Identifier: BSD-3-Clause */
/* Classes of equal pairs of ends, and the search for their smallest plans. */
#include <uct/cuda/plan/min_sizes.h>

#include <uct/cuda/base/hash.h>
#include <uct/cuda/plan/transfer_paths.h>
#include <uct/cuda/plan/transfer_planner.h>

#include <ucs/sys/math.h>

#include <string.h>


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
static void hash_add_candidates(pair_hash_t *hash,
                                const uct_cuda_plan_problem_t *problem)
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
 * plans for the same sizes while no link is busy. Not inlined: its variables
 * would stay on the stack. */
static uint64_t __attribute__((noinline))
hash_pair(const uct_cuda_plan_knowledge_t *know, uct_cuda_end_t src,
          uct_cuda_end_t dst)
{
    pair_hash_t hash = {.value = UCT_CUDA_HASH64};
    uct_cuda_plan_model_path_t *next;
    uct_cuda_plan_problem_t problem;

    uct_cuda_plan_problem_init(&problem, know, src, dst, 0);
    hash_add(&hash, problem.is_unlinked);
    (void)uct_cuda_plan_problem_add(&problem, uct_cuda_end_none());
    /* the driver's copy between unlinked GPUs, also if the host path is none of
     * the candidates */
    next = &problem.candidates[problem.num_candidates];
    problem.num_candidates += uct_cuda_plan_model_path(&problem.query,
                                                       uct_cuda_end_host(),
                                                       next);
    (void)uct_cuda_plan_problem_add(&problem, uct_cuda_end_host());
    hash_add_candidates(&hash, &problem);
    problem.num_candidates = 0;
    if (know->config->num_paths > 0) {
        (void)uct_cuda_plan_problem_set_paths(&problem);
    } else {
        uct_cuda_plan_problem_add_relays(&problem);
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
                         classes_t *classes)
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
            !uct_cuda_plan_are_joined(know, src, dst)) {
            continue;
        }

        hashes[classes->count] = hash_pair(know, src, dst);
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
    size_t low     = 2 * UCT_CUDA_PLAN_ALIGN;
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
    find_classes(&loaded, is_host, &classes);
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
