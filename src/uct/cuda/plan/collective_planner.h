/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The planner of collectives: from the node and what all ranks agreed on to a
 * plan. A pure function: it asks nobody, and gives the same plan for the same
 * request, so that ranks need not exchange plans.
 */
#ifndef UCT_CUDA_COLL_PLANNER_H
#define UCT_CUDA_COLL_PLANNER_H

#include <ucs/type/status.h>
#include <uct/cuda/base/topo.h>
#include <uct/cuda/plan/collective_cost.h>
#include <uct/cuda/plan/collective_plan.h>
#include <uct/cuda/plan/trees.h>

BEGIN_C_DECLS


/** "The planner decides". */
#define UCT_CUDA_COLL_AUTO (-1)


/** Memory that a call may take of each GPU, bytes: what two chunks of 1 GiB on
 *  two GPUs need, and 3 % of the smallest GPU's. The program wants the rest. */
#define UCT_CUDA_COLL_MAX_SCRATCH (512ul << 20)


/** Elements of a rank at most, and bytes of one. */
#define UCT_CUDA_COLL_MAX_COUNT   (1ull << 38)
#define UCT_CUDA_COLL_MAX_ELEMENT 64


/** How a plan is made; plain numbers that may be kept and used again for sizes
 *  near the one that it was chosen for. */
typedef struct {
    uct_cuda_coll_algorithm_t algorithm;
    unsigned chunks;    /**< Pieces of a slice */
    unsigned slices;    /**< HIERARCHICAL, multipath: of each rank */
    unsigned depth;     /**< ... hops from a slice's root at most */
    bool     kernels;   /**< Kernels copy as well; always so of ONE_KERNEL */
    bool     multipath; /**< Copies go over GPUs that no rank has as well */
    double   seconds;   /**< What the model expects */
    uct_cuda_coll_other_t other; /**< That it was preferred to */
} uct_cuda_coll_choice_t;


/** Sets of trees of one collective at most. */
#define UCT_CUDA_COLL_MAX_FORESTS 32


/** Trees that were looked for, which takes most of a choice's time: links,
 *  ranks, kind and root have the same of them whatever the size. Zeroed: none
 *  yet. */
typedef struct {
    uct_cuda_coll_choice_t      choice; /**< Trees are the same whatever its
                                             chunks and kernels are */
    const uct_cuda_coll_trees_t *trees; /**< NULL: there are none */
    double                      load;   /**< Seconds a byte */
} uct_cuda_coll_forest_t;


typedef struct {
    unsigned               count;
    uct_cuda_coll_forest_t entries[UCT_CUDA_COLL_MAX_FORESTS];
} uct_cuda_coll_forests_t;


/** Has a GPU several ranks? They take turns on it. */
bool uct_cuda_coll_shares_gpus(const int *gpus, unsigned num_ranks);


/** Apart from their seconds, and others'. */
bool uct_cuda_coll_choice_is_same(const uct_cuda_coll_choice_t *a,
                                  const uct_cuda_coll_choice_t *b);

void uct_cuda_coll_forests_release(uct_cuda_coll_forests_t *forests);


/**
 * All that a plan is made from. What ranks may see differently (GPUs'
 * ordinals, what a driver lets them know) has to be agreed on before: one
 * rank's topology, with the ordinals of that topology, serves all.
 */
typedef struct {
    const uct_cuda_topo_t *topo;
    unsigned num_ranks;   /**< 1 to UCT_CUDA_COLL_MAX_RANKS */
    int      gpus[UCT_CUDA_COLL_MAX_RANKS]; /**< Of each rank; several ranks may
                                                 share one */
    int      kind;        /**< uct_cuda_coll_kind_t */
    unsigned root;        /**< Of those that have one, else 0 */
    uint64_t count;       /**< Elements, as in api.h */
    const uint64_t *counts; /**< ... of each rank's block instead, or NULL */
    uint32_t element;     /**< Bytes of one */
    bool     is_in_place; /**< On all ranks, or on none; at the root */
    uint64_t max_scratch; /**< Bytes a rank at most; 0: as much as is best */
    int      algorithm;   /**< uct_cuda_coll_algorithm_t, or AUTO */
    int      chunks;      /**< Pieces of a slice, or AUTO */
    int      multipath;   /**< Whether copies may go over GPUs that no rank has:
                               0, 1 where they can, or AUTO: where it gains */
    const uct_cuda_mp_model_t *transfers; /**< Constants that were measured on
                               this node, the same on all ranks; NULL: the
                               built-in ones */
    const uct_cuda_coll_model_t *model; /**< NULL: what follows from these */
} uct_cuda_coll_request_t;


/**
 * Which collective it is, in the words of a plan: sizes of buffers for
 * instance, of which topology and GPUs tell nothing.
 *
 * @param plan  Filled, but for how it is done.
 * @return UCS_OK, UCS_ERR_INVALID_PARAM.
 */
ucs_status_t uct_cuda_coll_frame(const uct_cuda_coll_request_t *request,
                                 uct_cuda_coll_plan_t *plan);


/**
 * Choose how to carry out a collective among GPUs of a node: what takes least
 * time by the model, of this very size. Up to 20 ms with 8 ranks; see book.h.
 *
 * @param forests  Of requests that differ in their sizes alone, or NULL; filled
 *                 by what was not there.
 * @return UCS_OK; UCS_ERR_INVALID_PARAM for a request that makes no sense;
 *         UCS_ERR_UNSUPPORTED where GPUs are no peers and no algorithm can do
 *         without, or the named one is none for this node;
 *         UCS_ERR_NO_RESOURCE: max_scratch is too little; UCS_ERR_NO_MEMORY.
 */
ucs_status_t uct_cuda_coll_choose(const uct_cuda_coll_request_t *request,
                                  uct_cuda_coll_forests_t *forests,
                                  uct_cuda_coll_choice_t *choice);


/**
 * Make the plan of a choice. What the request says of algorithm, chunks and
 * multipath does not count.
 *
 * Sums are in an order that depends on the request and the choice
 * alone, and that is the same on all ranks; see docs/collectives.md.
 *
 * @param forests  As above.
 * @param like     NULL, or a plan of the same choice and of a request that
 *                 differs in its sizes alone: most of it is taken over, which
 *                 takes less time.
 * @param plan     Filled; to be released. No elements: no steps.
 * @return As above.
 */
ucs_status_t uct_cuda_coll_make(const uct_cuda_coll_request_t *request,
                                uct_cuda_coll_forests_t *forests,
                                const uct_cuda_coll_choice_t *choice,
                                const uct_cuda_coll_plan_t *like,
                                uct_cuda_coll_plan_t *plan);


END_C_DECLS

#endif
