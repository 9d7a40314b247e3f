/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Trees: which way a slice of the data takes. Along one tree its parts from all
 * ranks come together at a root and are added on the way; along another the sum
 * goes out from there. Every algorithm but one kernel is a choice of trees:
 * stars are the flat one, stars of stars the hierarchical one, chains a ring.
 */
#ifndef UCT_CUDA_COLL_TREES_H
#define UCT_CUDA_COLL_TREES_H

#include <uct/cuda/collective/plan.h>

BEGIN_C_DECLS


/** Slices of a plan at most. */
#define UCT_CUDA_COLL_MAX_TREES 64


/** The way of one slice. Each rank but the root has a rank that it sends to,
 *  and one that it gets the sum from; the root has itself. */
typedef struct {
    double  weight; /**< Its share of the data; those of a plan add up to 1 */
    uint8_t root;
    uint8_t in[UCT_CUDA_COLL_MAX_RANKS];  /**< Adds what this rank has */
    uint8_t out[UCT_CUDA_COLL_MAX_RANKS]; /**< Sends this rank the sum */
} uct_cuda_coll_tree_t;


typedef struct {
    unsigned             count;
    uct_cuda_coll_tree_t trees[UCT_CUDA_COLL_MAX_TREES];
} uct_cuda_coll_trees_t;


/** A star around every rank, all alike. */
void uct_cuda_coll_trees_flat(unsigned num_ranks, uct_cuda_coll_trees_t *trees);


END_C_DECLS

#endif
