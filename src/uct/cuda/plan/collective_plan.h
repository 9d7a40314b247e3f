/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A collective plan: who copies and adds what, where, and in which order
 * (plan/steps.h). Every rank of a node computes it for itself from the same
 * input, carries out the steps that it submits and waits for those of others.
 * Nothing begins before all ranks have
 * called, and no rank's call ends before the steps of all ranks that touch its
 * buffers have: those two waits are no part of the plan. The first keeps a
 * scratch buffer whole that the call before used.
 */
#ifndef UCT_CUDA_COLL_PLAN_H
#define UCT_CUDA_COLL_PLAN_H

#include <ucs/sys/compiler_def.h>
#include <ucs/type/status.h>
#include <uct/cuda/collective_api.h>
#include <uct/cuda/plan/steps.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

BEGIN_C_DECLS


/** Ranks of a plan, several of which may share a GPU. */
#define UCT_CUDA_COLL_MAX_RANKS 64

/** Places that one kernel reads at once, and that it writes
 *  (UCX_MP_REDUCE_MAX). */
#define UCT_CUDA_COLL_MAX_FAN 16

/** Relays of a plan: GPUs of the node that no rank has, over whose memory
 *  copies between ranks go. */
#define UCT_CUDA_COLL_MAX_RELAYS 6

/** Who has memory in a plan: its ranks, and behind them its relays. */
#define UCT_CUDA_COLL_MAX_MEMBERS \
    (UCT_CUDA_COLL_MAX_RANKS + UCT_CUDA_COLL_MAX_RELAYS)

/** Queues (streams) of a rank at most: for its kernels, for pushes in turn,
 *  from and to other ranks, and from and to each relay on the way in and on the
 *  way out. */
#define UCT_CUDA_COLL_MAX_QUEUES \
    (2 + 2 * UCT_CUDA_COLL_MAX_FAN + 4 * UCT_CUDA_COLL_MAX_RELAYS)


typedef enum {
    UCT_CUDA_COLL_ONE_KERNEL,   /**< Each rank reduces a slice by one kernel,
                                     from all ranks' memory to all ranks' */
    UCT_CUDA_COLL_FLAT,         /**< Two stages: copy engines bring each rank
                                     its slice, it reduces, they push it */
    UCT_CUDA_COLL_HIERARCHICAL, /**< Three: inside groups, between, inside */
    UCT_CUDA_COLL_ALGORITHM_LAST
} uct_cuda_coll_algorithm_t;


/*
 * A rank's memory; how much of it, uct_cuda_coll_plan_size() says. Where a
 * reduction is in place, SEND and RECV are the same and both names are used;
 * where a copying collective is, what the rank has itself is in its place in
 * RECV (GATHER, ALLGATHER) or stays in SEND (SCATTER). A relay has SCRATCH
 * alone. Places begin at whole elements in SEND and RECV, at 256 bytes in
 * SCRATCH. A step's part is a slice.
 */

/** The best of the algorithms that were not chosen. */
typedef struct {
    uint8_t algorithm; /**< uct_cuda_coll_algorithm_t */
    double  seconds;   /**< What the model expects of it; 0: none was near */
} uct_cuda_coll_other_t;


/** The whole is what a rank has in an all-reduce; of collectives that deal with
 *  a block of each rank, all of these in the order of ranks. */
typedef struct {
    uint8_t  kind;          /**< uct_cuda_coll_kind_t */
    uint8_t  root;          /**< Of those that have one, or 0 */
    uint8_t  algorithm;     /**< uct_cuda_coll_algorithm_t */
    uint8_t  num_ranks;
    uint8_t  num_queues;    /**< Of the rank that has the most */
    bool     is_in_place;   /**< On all ranks; at the root, if there is one */
    uint32_t chunks;        /**< Pieces that each slice is cut into */
    uint32_t element;       /**< Bytes of an element */
    uint64_t bytes;         /**< Of the whole */
    uint64_t blocks[UCT_CUDA_COLL_MAX_RANKS + 1]; /**< Where each rank's block
                                 of the whole begins, then the whole's end; 0
                                 where there are none */
    uint64_t scratch;       /**< Bytes of SCRATCH that each rank needs */
    uint64_t relay_scratch; /**< ... and each relay */
    uint8_t  num_relays;
    uint8_t  relays[UCT_CUDA_COLL_MAX_RELAYS]; /**< GPUs of the topology */
    double   seconds;       /**< What the model expects */
    uct_cuda_coll_other_t other; /**< That was not taken */
    uct_cuda_steps_t list;
} uct_cuda_coll_plan_t;


/** Do ranks' inputs get added to each other? */
static inline bool uct_cuda_coll_kind_reduces(unsigned kind)
{
    return (kind == UCT_CUDA_COLL_KIND_ALLREDUCE) ||
           (kind == UCT_CUDA_COLL_KIND_REDUCE) ||
           (kind == UCT_CUDA_COLL_KIND_REDUCE_SCATTER);
}

/** Do all ranks get all of the result? */
static inline bool uct_cuda_coll_kind_spreads(unsigned kind)
{
    return (kind == UCT_CUDA_COLL_KIND_ALLREDUCE) ||
           (kind == UCT_CUDA_COLL_KIND_BCAST) ||
           (kind == UCT_CUDA_COLL_KIND_ALLGATHER);
}

static inline bool uct_cuda_coll_kind_has_root(unsigned kind)
{
    return (kind == UCT_CUDA_COLL_KIND_REDUCE) ||
           (kind == UCT_CUDA_COLL_KIND_BCAST) ||
           (kind == UCT_CUDA_COLL_KIND_GATHER) ||
           (kind == UCT_CUDA_COLL_KIND_SCATTER);
}

static inline bool uct_cuda_coll_kind_has_blocks(unsigned kind)
{
    return (kind == UCT_CUDA_COLL_KIND_REDUCE_SCATTER) ||
           (kind == UCT_CUDA_COLL_KIND_ALLGATHER) ||
           (kind == UCT_CUDA_COLL_KIND_GATHER) ||
           (kind == UCT_CUDA_COLL_KIND_SCATTER) ||
           (kind == UCT_CUDA_COLL_KIND_ALLTOALL);
}


/** Bytes of a rank's buffer; 0: it has none, or it is the other one in part. */
uint64_t uct_cuda_coll_plan_size(const uct_cuda_coll_plan_t *plan,
                                 unsigned rank, uct_cuda_buffer_t buffer);

/** Are SEND and RECV of a rank the same memory? */
bool uct_cuda_coll_plan_is_same(const uct_cuda_coll_plan_t *plan,
                                unsigned rank);


/** Free what a plan holds, also a zeroed one; it is zeroed. */
void uct_cuda_coll_plan_release(uct_cuda_coll_plan_t *plan);


/** "one kernel", "flat", "hierarchical"; "unknown". */
const char *uct_cuda_coll_algorithm_str(unsigned algorithm);


/** "all-reduce", "broadcast", ...; "unknown". */
const char *uct_cuda_coll_kind_str(unsigned kind);

/** uct_cuda_coll_kind_t by the word of MPI's call: "allreduce", "bcast", ...;
 *  -1: there is none. */
int uct_cuda_coll_kind_find(const char *word);


/** A step's places, "0.send+0 -> 1.scratch+256". Returns @a buffer. */
const char *uct_cuda_coll_plan_places_str(const uct_cuda_coll_plan_t *plan,
                                          const uct_cuda_step_t *step,
                                          char *buffer, size_t size);


END_C_DECLS

#endif
