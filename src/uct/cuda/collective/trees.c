/* SPDX-License-Identifier: BSD-3-Clause */
/* Which trees an algorithm has on a node. */
#include <uct/cuda/collective/trees.h>


void uct_cuda_coll_trees_flat(unsigned num_ranks, uct_cuda_coll_trees_t *trees)
{
    uct_cuda_coll_tree_t *tree;
    unsigned root, rank;

    trees->count = num_ranks;
    for (root = 0; root < num_ranks; ++root) {
        tree         = &trees->trees[root];
        tree->root   = (uint8_t)root;
        tree->weight = 1. / num_ranks;
        for (rank = 0; rank < num_ranks; ++rank) {
            tree->in[rank]  = (uint8_t)root;
            tree->out[rank] = (uint8_t)root;
        }
    }
}
