/* SPDX-License-Identifier: BSD-3-Clause */
/* Table of the kinds of collectives. */
#include <uct/cuda/collective_kinds.h>

#include <string.h>


#define KIND(_kind) [UCT_CUDA_COLL_KIND_##_kind]

#define IN_PLACE(_meaning) .in_place = UCT_CUDA_COLL_IN_PLACE_##_meaning

/* Buffers of the root, and of the other ranks */
#define SEND(_root, _others) \
    .send = {UCT_CUDA_COLL_PART_##_root, UCT_CUDA_COLL_PART_##_others}
#define RECV(_root, _others) \
    .recv = {UCT_CUDA_COLL_PART_##_root, UCT_CUDA_COLL_PART_##_others}


/* clang-format off */
const uct_cuda_coll_kind_desc_t
uct_cuda_coll_kinds[UCT_CUDA_COLL_KIND_LAST + 1] = {
    KIND(ALLREDUCE) = {
        .name = "all-reduce", .word = "allreduce",
        .reduces = true, .spreads = true, .has_trees = true,
        IN_PLACE(ALLOWED), SEND(ALL, ALL), RECV(ALL, ALL)
    },
    KIND(REDUCE) = {
        .name = "reduce", .word = "reduce",
        .reduces = true, .has_root = true, .has_trees = true,
        IN_PLACE(ALLOWED), SEND(ALL, ALL), RECV(ALL, NONE)
    },
    KIND(REDUCE_SCATTER) = {
        .name = "reduce-scatter", .word = "reduce_scatter",
        .reduces = true, .has_blocks = true, .has_counts = true,
        .has_trees = true,
        IN_PLACE(ALLOWED), SEND(ALL, ALL), RECV(BLOCK, BLOCK)
    },
    KIND(BCAST) = {
        .name = "broadcast", .word = "bcast",
        .spreads = true, .has_root = true, .has_trees = true,
        IN_PLACE(IGNORED), SEND(ALL, NONE), RECV(NONE, ALL)
    },
    KIND(ALLGATHER) = {
        .name = "all-gather", .word = "allgather",
        .spreads = true, .has_blocks = true, .has_counts = true,
        .has_trees = true,
        IN_PLACE(ALLOWED), SEND(BLOCK, BLOCK), RECV(ALL, ALL)
    },
    KIND(GATHER) = {
        .name = "gather", .word = "gather",
        .has_root = true, .has_blocks = true,
        IN_PLACE(ALLOWED), SEND(BLOCK, BLOCK), RECV(ALL, NONE)
    },
    KIND(SCATTER) = {
        .name = "scatter", .word = "scatter",
        .has_root = true, .has_blocks = true,
        IN_PLACE(ALLOWED), SEND(ALL, NONE), RECV(BLOCK, BLOCK)
    },
    KIND(ALLTOALL) = {
        .name = "all-to-all", .word = "alltoall",
        .has_blocks = true,
        IN_PLACE(NEVER), SEND(ALL, ALL), RECV(ALL, ALL)
    },
    KIND(LAST) = {.name = "unknown", .word = ""}
};
/* clang-format on */


int uct_cuda_coll_kind_find(const char *word)
{
    int kind;

    for (kind = 0; kind < UCT_CUDA_COLL_KIND_LAST; ++kind) {
        if (strcmp(word, uct_cuda_coll_kinds[kind].word) == 0) {
            return kind;
        }
    }

    return -1;
}
