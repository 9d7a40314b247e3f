/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Planner of collectives: makes a plan from the node and the agreed request. A
 * pure function without driver calls: equal requests give equal plans, so ranks
 * need not exchange plans.
 */
#ifndef UCT_CUDA_PLAN_COLLECTIVE_PLANNER_H
#define UCT_CUDA_PLAN_COLLECTIVE_PLANNER_H

#include <ucs/type/status.h>
#include <uct/cuda/base/topo.h>
#include <uct/cuda/plan/collective_cost.h>
#include <uct/cuda/plan/collective_plan.h>
#include <uct/cuda/plan/trees.h>

BEGIN_C_DECLS


/** The planner decides. */
#define UCT_CUDA_PLAN_COLL_AUTO (-1)


/** Maximum scratch memory of a call on each GPU, bytes: enough for two
 *  chunks of 1 GiB on two GPUs, and 3 % of the smallest GPU's memory. The
 *  rest belongs to the program. */
#define UCT_CUDA_PLAN_COLL_MAX_SCRATCH (512ul << 20)


/** Maximum elements of a rank, and maximum bytes of an element. */
#define UCT_CUDA_PLAN_COLL_MAX_COUNT   (1ull << 38)
#define UCT_CUDA_PLAN_COLL_MAX_ELEMENT 64


/** How a plan is made: plain numbers, reused for sizes near the one they
 *  were chosen for. */
typedef struct {
    uct_cuda_plan_coll_algorithm_t algorithm;
    unsigned chunks;    /**< Chunks of a shard */
    unsigned shards;    /**< HIERARCHICAL, multipath: shards of each rank */
    /** HIERARCHICAL, multipath: maximum hops from a shard's root */
    unsigned depth;
    bool     kernels;   /**< Kernels copy as well; always set for ONE_KERNEL */
    bool     multipath; /**< Copies may be relayed by GPUs without a rank */
    double   seconds;   /**< Modelled time */
    uct_cuda_plan_coll_other_t other; /**< Best one not chosen */
} uct_cuda_plan_coll_choice_t;


/** Maximum sets of trees for one collective. */
#define UCT_CUDA_PLAN_COLL_MAX_TREE_SETS 32


/** Cached trees of a choice */
typedef struct {
    /** Its chunks and kernels do not matter */
    uct_cuda_plan_coll_choice_t      choice;
    const uct_cuda_plan_coll_trees_t *trees; /**< NULL: no such trees */
    /** Load of the fullest link, s/byte */
    double                           load;
} uct_cuda_plan_coll_cached_trees_t;


/** Tree cache. Finding trees takes most of a choice's time, and they depend
 *  on links, ranks, kind and root, but not on sizes. Zeroed: empty. */
typedef struct {
    unsigned                          count;
    uct_cuda_plan_coll_cached_trees_t entries[UCT_CUDA_PLAN_COLL_MAX_TREE_SETS];
} uct_cuda_plan_coll_tree_cache_t;


/** Return whether several ranks share a GPU, taking turns on it. */
bool uct_cuda_plan_coll_shares_gpus(const int *gpus, unsigned num_ranks);


/** Return whether two choices give the same plan: all members are equal,
 *  except for times and alternatives. */
bool uct_cuda_plan_coll_choice_is_same(const uct_cuda_plan_coll_choice_t *a,
                                       const uct_cuda_plan_coll_choice_t *b);

void uct_cuda_plan_coll_tree_cache_release(
    uct_cuda_plan_coll_tree_cache_t *tree_cache);


/** Input of a plan. Ranks may see GPU ordinals and driver answers
 *  differently, so one rank's topology, with its ordinals, serves all of
 *  them. */
typedef struct {
    const uct_cuda_topo_t *topo;
    unsigned num_ranks;   /**< 1 to UCT_CUDA_PLAN_COLL_MAX_RANKS */
    /** GPU of each rank; ranks may share one */
    int      gpus[UCT_CUDA_PLAN_COLL_MAX_RANKS];
    int      kind;        /**< uct_cuda_coll_kind_t */
    unsigned root;        /**< 0 if the kind has no root */
    uint64_t count;       /**< Elements, as in collective_api.h */
    /** Elements of each rank's block instead, or NULL */
    const uint64_t *counts;
    uint32_t element;     /**< Bytes of an element */
    bool     is_in_place; /**< On all ranks or none; with a root, on the root */
    uint64_t max_scratch; /**< Maximum bytes for each rank; 0: no limit */
    int      algorithm;   /**< uct_cuda_plan_coll_algorithm_t, or AUTO */
    int      chunks;      /**< Chunks of a shard, or AUTO */
    /** Relay copies through GPUs without a rank: 0, 1 (where possible), or
     *  AUTO (where faster) */
    int      multipath;
    /** Constants measured on this node, the same on all ranks; NULL: the
     *  built-in ones */
    const uct_cuda_plan_model_t *transfers;
    /** NULL: derived from transfers */
    const uct_cuda_plan_coll_model_t *model;
} uct_cuda_plan_coll_request_t;


/**
 * Fill the signature of a request: the fields of a plan that describe the
 * collective, such as buffer sizes. They do not depend on topology and GPUs.
 *
 * @param plan  Filled with kind to blocks; all else is 0. Not to be released.
 * @return UCS_OK; UCS_ERR_INVALID_PARAM: ranks, root, element, counts or kind
 *         are out of range, or the kind allows no such counts or in-place flag.
 */
ucs_status_t
uct_cuda_plan_coll_signature(const uct_cuda_plan_coll_request_t *request,
                             uct_cuda_plan_coll_t *plan);


/**
 * Choose how to carry out a collective: the plan with the least modelled time
 * for this size. Takes up to 20 ms with 8 ranks, and up to 0.2 s on nodes with
 * unequal links; see plan_cache.h.
 *
 * @param tree_cache  Tree cache for requests with different sizes and equal
 *                 otherwise, or NULL; missing trees are added.
 * @param choice   Filled with UCS_OK, else undefined. With multipath 1 it is
 *                 the best choice with relays or, if there is none, without.
 * @return UCS_OK; UCS_ERR_INVALID_PARAM: invalid request; UCS_ERR_UNSUPPORTED:
 *         GPUs lack peer access needed by every algorithm, or the requested
 *         algorithm does not exist on this node; UCS_ERR_NO_RESOURCE:
 *         max_scratch is too small; UCS_ERR_NO_MEMORY.
 */
ucs_status_t
uct_cuda_plan_coll_choose(const uct_cuda_plan_coll_request_t *request,
                          uct_cuda_plan_coll_tree_cache_t *tree_cache,
                          uct_cuda_plan_coll_choice_t *choice);


/**
 * Make the plan of a choice. Algorithm, chunks and multipath of the request are
 * ignored.
 *
 * The order of additions depends on the request and the choice only, and is the
 * same on all ranks; see docs/collectives.md.
 *
 * @param tree_cache  As for uct_cuda_plan_coll_choose().
 * @param like     NULL, or a plan of the same choice for a request with other
 *                 sizes, used as a template to save time.
 * @param plan     Filled; release it with uct_cuda_plan_coll_release(). Without
 *                 elements it has no steps. Zeroed on failure.
 * @return As uct_cuda_plan_coll_choose().
 */
ucs_status_t
uct_cuda_plan_coll_make(const uct_cuda_plan_coll_request_t *request,
                        uct_cuda_plan_coll_tree_cache_t *tree_cache,
                        const uct_cuda_plan_coll_choice_t *choice,
                        const uct_cuda_plan_coll_t *like,
                        uct_cuda_plan_coll_t *plan);


END_C_DECLS

#endif
