/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Trees: which way a slice of the data takes. Along one tree its parts from all
 * ranks come together at a root and are added on the way; along another the sum
 * goes out from there. Every algorithm but one kernel is a choice of trees:
 * stars are the flat one, stars of stars the hierarchical one.
 */
#ifndef UCT_CUDA_COLL_TREES_H
#define UCT_CUDA_COLL_TREES_H

#include <uct/cuda/base/topo.h>
#include <uct/cuda/plan/collective_plan.h>

BEGIN_C_DECLS


/** Slices of a plan at most. */
#define UCT_CUDA_COLL_MAX_TREES 64


/** "Over no relay". */
#define UCT_CUDA_COLL_DIRECT 0xff


/** The way of one slice. Each rank but the root has a rank that it sends to,
 *  and one that it gets the sum from; the root has itself. A collective that
 *  does not reduce has no use for the former, one that does not spread none for
 *  the latter. */
typedef struct {
    uint8_t root;
    uint8_t in[UCT_CUDA_COLL_MAX_RANKS];  /**< Adds what this rank has */
    uint8_t out[UCT_CUDA_COLL_MAX_RANKS]; /**< Sends this rank the sum */
    uint8_t in_over[UCT_CUDA_COLL_MAX_RANKS];  /**< The relay in between, */
    uint8_t out_over[UCT_CUDA_COLL_MAX_RANKS]; /**< or DIRECT */
} uct_cuda_coll_tree_t;


/** Trees of a plan, of equal slices. */
typedef struct {
    uct_cuda_coll_algorithm_t algorithm;
    bool                      rotates; /**< Copy engines push to one rank after
                                            the other, each beginning with
                                            another one */
    unsigned                  count;
    uint8_t                   num_relays; /**< That they go over */
    uint8_t                   relays[UCT_CUDA_COLL_MAX_RELAYS]; /**< GPUs */
    uct_cuda_coll_tree_t      trees[UCT_CUDA_COLL_MAX_TREES];
} uct_cuda_coll_trees_t;


/** Where ranks are. */
typedef struct {
    const uct_cuda_topo_t *topo;
    unsigned              num_ranks;
    const int             *gpus;    /**< Of each rank */
    double                memory;   /**< Bytes/s of a GPU's own */
    uint8_t               kind;     /**< uct_cuda_coll_kind_t */
    uint8_t               root;
    unsigned              num_relays;
    int                   relays[UCT_CUDA_COLL_MAX_RELAYS]; /**< Other GPUs */
} uct_cuda_coll_ranks_t;


/** Does all that leaves a rank's GPU share its ports to a switch? Ways round
 *  are of no use then. */
bool uct_cuda_coll_trees_is_switched(const uct_cuda_coll_ranks_t *ranks);


/** Hops from a root that packed trees are worth trying with, at most. */
unsigned uct_cuda_coll_trees_deepest(const uct_cuda_coll_ranks_t *ranks);


/** A star around every rank, or around the root alone. */
void uct_cuda_coll_trees_star(const uct_cuda_coll_ranks_t *ranks,
                              uct_cuda_coll_trees_t *trees);


/**
 * Stars around every rank, all alike. With three ranks or more behind a switch
 * they rotate: on 4 H200 each GPU got 355 GB/s where all pushed to one after
 * the other (256 MiB in all, beginning with different ones), 275 where they
 * pushed to all at once, and 192 and 124 where they pulled.
 *
 * Where there is a root, each other rank is the middle of a star instead, at
 * whose end the root is: what goes from or to the root crosses its links once
 * then, and not once a rank. These do not rotate: the root would stop a rank
 * that it sends to from getting anything of others.
 */
void uct_cuda_coll_trees_flat(const uct_cuda_coll_ranks_t *ranks,
                              uct_cuda_coll_trees_t *trees);


/**
 * Trees that follow the links: every rank is the root of as many, or the root
 * of all of them, and together they load the fullest link as little as was
 * found. On two sockets those are three stages: inside, between, inside.
 *
 * @param ranks      With relays: a copy goes over one of them where those links
 *                   are emptier than the direct one.
 * @param per_rank   Trees of each rank, at most MAX_TREES in all.
 * @param max_depth  Hops from a root at most, from 1 on.
 * @return False if there is none: not all ranks can be reached like that, or
 *         there are so many that looking for them would take too long.
 */
bool uct_cuda_coll_trees_pack(const uct_cuda_coll_ranks_t *ranks,
                              unsigned per_rank, unsigned max_depth,
                              uct_cuda_coll_trees_t *trees);


/** Seconds a byte of the whole that the fullest link is busy. */
double uct_cuda_coll_trees_load(const uct_cuda_coll_ranks_t *ranks,
                                const uct_cuda_coll_trees_t *trees);


END_C_DECLS

#endif
