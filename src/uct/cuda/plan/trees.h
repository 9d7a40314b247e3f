/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Trees: routes of the shards of a collective. Along one tree the data of all
 * ranks is added on its way to a root; along another the sum goes out from
 * there. An algorithm is a choice of trees and of what moves the bytes: one
 * kernel and the flat plan use stars, the hierarchical plan packed trees.
 */
#ifndef UCT_CUDA_PLAN_TREES_H
#define UCT_CUDA_PLAN_TREES_H

#include <uct/cuda/base/topo.h>
#include <uct/cuda/plan/collective_plan.h>

BEGIN_C_DECLS


/** Maximum shards of a plan. */
#define UCT_CUDA_PLAN_COLL_MAX_TREES 64


/** Not relayed. */
#define UCT_CUDA_PLAN_COLL_DIRECT 0xff


/**
 * Route of a shard. Each rank except the root has a parent for its data and one
 * that sends it the sum; the root's parent is itself. Without reduction @a in
 * is unused; @a out is unused if only the root needs the result.
 */
typedef struct {
    uint8_t root;
    /** Parent that adds this rank's data */
    uint8_t in[UCT_CUDA_PLAN_COLL_MAX_RANKS];
    /** Parent that sends this rank the sum */
    uint8_t out[UCT_CUDA_PLAN_COLL_MAX_RANKS];
    /** Relay on the way in, or DIRECT */
    uint8_t in_over[UCT_CUDA_PLAN_COLL_MAX_RANKS];
    /** Relay on the way out, or DIRECT */
    uint8_t out_over[UCT_CUDA_PLAN_COLL_MAX_RANKS];
} uct_cuda_plan_coll_tree_t;


/** Trees of a plan, for shards of equal size. */
typedef struct {
    uct_cuda_plan_coll_algorithm_t algorithm;
    /** Copy engines push to one rank after the other, each starting with
     *  another rank */
    bool                           rotates;
    unsigned                       count;
    uint8_t                        num_relays; /**< Relays in use */
    uint8_t relays[UCT_CUDA_PLAN_COLL_MAX_RELAYS]; /**< GPUs */
    uct_cuda_plan_coll_tree_t      trees[UCT_CUDA_PLAN_COLL_MAX_TREES];
} uct_cuda_plan_coll_trees_t;


/** Location of the ranks. */
typedef struct {
    const uct_cuda_topo_t *topo;
    unsigned              num_ranks;
    const int             *gpus;    /**< GPU of each rank */
    double                memory;   /**< Bytes/s of a GPU's own memory */
    uint8_t               kind;     /**< uct_cuda_coll_kind_t */
    uint8_t               root;
    unsigned              num_relays;
    int relays[UCT_CUDA_PLAN_COLL_MAX_RELAYS]; /**< Other GPUs */
} uct_cuda_plan_coll_ranks_t;


/** Memory of a search for trees, too large for the stack of a small thread. */
typedef struct uct_cuda_plan_coll_search uct_cuda_plan_coll_search_t;


/** Allocate memory for one search after the other; free() releases it.
 *  @return NULL: no memory. */
uct_cuda_plan_coll_search_t *uct_cuda_plan_coll_search_create(void);


/** Return the bytes/s of the ports to a switch that all links of a rank's GPU
 *  share, so that detours are useless; 0: there is no switch. */
double
uct_cuda_plan_coll_trees_ports(const uct_cuda_plan_coll_ranks_t *ranks);


/** Return the maximum depth worth trying for packed trees, in hops from the
 *  root. */
unsigned
uct_cuda_plan_coll_trees_deepest(const uct_cuda_plan_coll_ranks_t *ranks);


/** Make a star around every rank, or around the root only. */
void uct_cuda_plan_coll_trees_star(const uct_cuda_plan_coll_ranks_t *ranks,
                                   uct_cuda_plan_coll_trees_t *trees);


/**
 * Make equal stars around every rank. With three or more ranks behind a switch
 * they rotate: on 4 H200 each GPU got 355 GB/s pushing to one after the other
 * (256 MiB in all, with different starts), 275 pushing to all at once, and 192
 * and 124 pulling.
 *
 * With a root, each other rank is the centre of a star that ends at the root:
 * data from or to the root crosses its links once, not once for each rank.
 * These do not rotate: a rank that receives from the root could not receive
 * from others at the same time.
 */
void uct_cuda_plan_coll_trees_flat(const uct_cuda_plan_coll_ranks_t *ranks,
                                   uct_cuda_plan_coll_trees_t *trees);


/**
 * Pack trees that follow the links: every rank is the root of the same number
 * of trees, or one rank of all, and together they load the fullest link as
 * little as possible. On two sockets they have three stages: inside, between,
 * inside.
 *
 * @param ranks      With relays, a copy is relayed where those links are less
 *                   loaded than the direct one.
 * @param per_rank   Trees of each rank, at most MAX_TREES in total.
 * @param max_depth  Maximum hops from a root, at least 1.
 * @return false: some ranks cannot be reached, or the search would take too
 *         long.
 */
bool uct_cuda_plan_coll_trees_pack(const uct_cuda_plan_coll_ranks_t *ranks,
                                   unsigned per_rank, unsigned max_depth,
                                   uct_cuda_plan_coll_search_t *search,
                                   uct_cuda_plan_coll_trees_t *trees);


/** Return the load of the fullest link, seconds for each byte of the data. */
double uct_cuda_plan_coll_trees_load(const uct_cuda_plan_coll_ranks_t *ranks,
                                     const uct_cuda_plan_coll_trees_t *trees,
                                     uct_cuda_plan_coll_search_t *search);


END_C_DECLS

#endif
