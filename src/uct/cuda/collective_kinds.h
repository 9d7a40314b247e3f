/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kinds of collectives, and what planner, checker, agreement and the MPI
 * interposition library ask about a kind. They read this table and name a kind
 * only for what is its own.
 */
#ifndef UCT_CUDA_COLLECTIVE_KINDS_H
#define UCT_CUDA_COLLECTIVE_KINDS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif


/** Kind of collective, as MPI defines them. "count" is NCCL's: elements of a
 *  rank's buffer, or of one block where each rank has a block. The buffer of
 *  all blocks then holds n blocks in rank order, for n ranks. The numbers
 *  are part of the interface and stay fixed. */
typedef enum {
    UCT_CUDA_COLL_KIND_ALLREDUCE,
    /** Result on the root. In place: on the root only */
    UCT_CUDA_COLL_KIND_REDUCE,
    /** n blocks to one. In place: the result goes to the start of recvbuf */
    UCT_CUDA_COLL_KIND_REDUCE_SCATTER,
    /** Root's sendbuf to the recvbuf of the other ranks */
    UCT_CUDA_COLL_KIND_BCAST,
    /** One block to n. In place: a rank's block is in recvbuf already */
    UCT_CUDA_COLL_KIND_ALLGATHER,
    /** One block to n on the root. In place: as for ALLGATHER */
    UCT_CUDA_COLL_KIND_GATHER,
    /** n blocks of the root to one each. In place: the root keeps its block */
    UCT_CUDA_COLL_KIND_SCATTER,
    /** n blocks to n; never in place */
    UCT_CUDA_COLL_KIND_ALLTOALL,
    UCT_CUDA_COLL_KIND_LAST
} uct_cuda_coll_kind_t;


/** Data in a buffer of a rank. */
typedef enum {
    UCT_CUDA_COLL_PART_NONE,  /**< MPI ignores the buffer */
    UCT_CUDA_COLL_PART_BLOCK, /**< The rank's own block */
    UCT_CUDA_COLL_PART_ALL    /**< All data; all blocks in rank order */
} uct_cuda_coll_part_t;


/** Meaning of MPI_IN_PLACE. */
typedef enum {
    UCT_CUDA_COLL_IN_PLACE_NEVER,
    UCT_CUDA_COLL_IN_PLACE_IGNORED,
    /** Reductions: both buffers are the same memory. Copies: the rank's block
     *  is in the other buffer already. With a root, on the root only */
    UCT_CUDA_COLL_IN_PLACE_ALLOWED
} uct_cuda_coll_in_place_t;


/** Properties of a kind. */
typedef struct {
    const char *name;      /**< In log lines, "all-reduce"; or "unknown" */
    const char *word;      /**< Of the MPI call, "allreduce" */
    bool       reduces;    /**< Adds inputs of ranks */
    bool       spreads;    /**< All ranks get the complete result */
    bool       has_root;
    bool       has_blocks; /**< Each rank has a block of the complete data */
    bool       has_counts; /**< Blocks may differ in size */
    /** Data goes along trees, to one sum or from one source. Otherwise
     *  emit_blocks.c writes the steps */
    bool       has_trees;
    uint8_t    in_place;   /**< uct_cuda_coll_in_place_t */
    /** uct_cuda_coll_part_t of the root, and of the other ranks; equal without
     *  a root */
    uint8_t    send[2];
    uint8_t    recv[2];
} uct_cuda_coll_kind_desc_t;


/** By uct_cuda_coll_kind_t; behind them an unknown kind without properties. */
extern const uct_cuda_coll_kind_desc_t
        uct_cuda_coll_kinds[UCT_CUDA_COLL_KIND_LAST + 1];


/** Return the properties of a kind, which may be any number. */
static inline const uct_cuda_coll_kind_desc_t *uct_cuda_coll_kind(unsigned kind)
{
    return &uct_cuda_coll_kinds[(kind < UCT_CUDA_COLL_KIND_LAST) ?
                                        kind :
                                        UCT_CUDA_COLL_KIND_LAST];
}

/** Return the uct_cuda_coll_kind_t for the word of an MPI call, or -1. */
int uct_cuda_coll_kind_find(const char *word);


#ifdef __cplusplus
}
#endif

#endif
