/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Plan of a collective: copies and reductions among ranks, and their order
 * (plan/steps.h). Every rank of a node computes the same plan from the same
 * input, carries out its own steps, and waits for those of other ranks. Two
 * waits are not part of the plan: no step begins before all ranks have called,
 * so scratch memory of the call before is free; and no call ends before all
 * steps touching the rank's buffers have ended.
 */
#ifndef UCT_CUDA_PLAN_COLLECTIVE_PLAN_H
#define UCT_CUDA_PLAN_COLLECTIVE_PLAN_H

#include <ucs/sys/compiler_def.h>
#include <uct/cuda/collective_kinds.h>
#include <uct/cuda/plan/steps.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

BEGIN_C_DECLS


/** Maximum ranks of a plan; several may share a GPU. */
#define UCT_CUDA_PLAN_COLL_MAX_RANKS 64

/** Maximum sources, and maximum destinations, of one kernel
 *  (UCX_MP_REDUCE_MAX). */
#define UCT_CUDA_PLAN_COLL_MAX_FAN 16

/** Maximum relays of a plan: GPUs without a rank, used for staged copies. */
#define UCT_CUDA_PLAN_COLL_MAX_RELAYS 6

/** Owners of memory in a plan: ranks, followed by relays. */
#define UCT_CUDA_PLAN_COLL_MAX_MEMBERS \
    (UCT_CUDA_PLAN_COLL_MAX_RANKS + UCT_CUDA_PLAN_COLL_MAX_RELAYS)

/** Maximum queues (streams) of a rank: one for kernels, one for rotating
 *  pushes, one from and one to each other rank (beyond MAX_FAN ranks some
 *  share them), and four for each relay: from and to it, on the way in and on
 *  the way out. */
#define UCT_CUDA_PLAN_COLL_MAX_QUEUES \
    (2 + 2 * UCT_CUDA_PLAN_COLL_MAX_FAN + 4 * UCT_CUDA_PLAN_COLL_MAX_RELAYS)


typedef enum {
    /** Each rank reduces a shard with one kernel, reading and writing all
     *  ranks' memory */
    UCT_CUDA_PLAN_COLL_ONE_KERNEL,
    /** Two stages: copy engines bring each rank its shard; it reduces and
     *  pushes the result */
    UCT_CUDA_PLAN_COLL_FLAT,
    /** Trees packed onto the links, two or three hops deep. On two sockets:
     *  inside a socket, between the sockets, inside a socket */
    UCT_CUDA_PLAN_COLL_HIERARCHICAL,
    UCT_CUDA_PLAN_COLL_ALGORITHM_LAST
} uct_cuda_plan_coll_algorithm_t;


/*
 * Meaning of uct_cuda_buffer_t in a collective's plan: memory of a rank, with
 * the sizes of uct_cuda_plan_coll_size(). For an in-place
 * reduction SEND and RECV are the same memory, used under both names. For an
 * in-place copying collective the rank's own block is at its place in RECV
 * (GATHER, ALLGATHER) or stays in SEND (SCATTER). A relay has SCRATCH only.
 * Places begin at whole elements in SEND and RECV, at multiples of 256 bytes in
 * SCRATCH. A step's part is a shard.
 */

/** Best of the algorithms not chosen. */
typedef struct {
    uint8_t algorithm; /**< uct_cuda_plan_coll_algorithm_t */
    double  seconds;   /**< Modelled time; 0: no other was near */
} uct_cuda_plan_coll_other_t;


/** Plan of a collective. Its complete data is the buffer that all ranks reduce
 *  or receive; with blocks, all blocks in rank order. */
typedef struct {
    uint8_t  kind;          /**< uct_cuda_coll_kind_t */
    uint8_t  root;          /**< 0 if the kind has no root */
    uint8_t  algorithm;     /**< uct_cuda_plan_coll_algorithm_t */
    uint8_t  num_ranks;
    uint8_t  num_queues;    /**< Of the rank with the most queues */
    bool     is_in_place;   /**< On all ranks; with a root, on the root */
    uint32_t chunks;        /**< Chunks of each shard */
    uint32_t element;       /**< Bytes of an element */
    uint64_t bytes;         /**< Bytes of the complete data */
    /** Start of each rank's block, then the end; 0 without blocks */
    uint64_t blocks[UCT_CUDA_PLAN_COLL_MAX_RANKS + 1];
    uint64_t scratch;       /**< Bytes of SCRATCH of each rank */
    uint64_t relay_scratch; /**< Bytes of SCRATCH of each relay */
    uint8_t  num_relays;
    uint8_t  relays[UCT_CUDA_PLAN_COLL_MAX_RELAYS]; /**< GPUs of the topology */
    double   seconds;       /**< Modelled time, s */
    uct_cuda_plan_coll_other_t other; /**< Best one not chosen */
    uct_cuda_plan_steps_t list;
} uct_cuda_plan_coll_t;


/** Return the size of a buffer of a rank, or of a relay behind the ranks,
 *  bytes; 0: none, or it is part of the other buffer. Where SEND and RECV are
 *  the same memory both have its size. */
uint64_t uct_cuda_plan_coll_size(const uct_cuda_plan_coll_t *plan,
                                 unsigned rank, uct_cuda_buffer_t buffer);

/** Return whether SEND and RECV of a rank are the same memory. */
bool uct_cuda_plan_coll_is_same(const uct_cuda_plan_coll_t *plan,
                                unsigned rank);


/** Free a plan's memory and zero the plan, which may be zeroed already. */
void uct_cuda_plan_coll_release(uct_cuda_plan_coll_t *plan);


/** Return "one kernel", "flat", "hierarchical" or "unknown". */
const char *uct_cuda_plan_coll_algorithm_str(unsigned algorithm);


/**
 * Format a step's places, "0.send+0 -> 1.scratch+256", or "relay5+0" for
 * scratch memory of a relay, GPU 5. Returns @a buffer, truncated to @a size.
 */
const char *uct_cuda_plan_coll_places_str(const uct_cuda_plan_coll_t *plan,
                                          const uct_cuda_plan_step_t *step,
                                          char *buffer, size_t size);


END_C_DECLS

#endif
