/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The page of a group: shared memory in which the ranks of a node say what they
 * are about to do, and how far they are. Every line of it is written by one
 * rank alone; the others read it.
 *
 * Ranks make the same calls in the same order and number them, from 1. They
 * come to the page before different calls, each for itself, and say from then
 * on what they do in each: nothing can be done by GPUs before all have come.
 * Of two calls in a row each has a line of its own. Who passes, or has seen
 * another pass, may be any number ahead of someone who still reads, and writes
 * lines again: what is read is a copy, and of one call.
 */
#ifndef UCT_CUDA_COLL_PAGE_H
#define UCT_CUDA_COLL_PAGE_H

#include <ucs/sys/compiler_def.h>
#include <ucs/type/status.h>
#include <uct/cuda/base/topo.h>
#include <uct/cuda/node/board.h>
#include <uct/cuda/node/handle.h>
#include <uct/cuda/plan/model.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

BEGIN_C_DECLS


#define UCT_CUDA_COLL_PAGE_EXPORTS 32 /**< Allocations a rank shows at once */
#define UCT_CUDA_COLL_PAGE_LINE    64


/** A rank's memory: where in which of the allocations that it shows. */
typedef struct {
    uint32_t index;      /**< Which of them */
    uint32_t generation; /**< Which one that has been there */
    uint64_t offset;     /**< Bytes */
} uct_cuda_coll_shown_t;


typedef enum {
    UCT_CUDA_COLL_POST_PASS,   /**< Does it another way */
    UCT_CUDA_COLL_POST_GPU,
    UCT_CUDA_COLL_POST_WRITING /**< It is about to be said */
} uct_cuda_coll_post_kind_t;


/** What a rank says at the beginning of a call. */
typedef struct {
    uint64_t               said;     /**< Number of the call, and the kind;
                                          written last */
    uint64_t               bytes;    /**< Of a buffer or block, as its count
                                          is; of all blocks if they differ */
    uint8_t                kind;     /**< uct_cuda_coll_post_kind_t */
    uint8_t                op;       /**< ucx_mp_op_t */
    uint8_t                type;     /**< ucx_mp_type_t */
    uint8_t                is_in_place;
    uint8_t                is_new;   /**< Something of it has to be mapped */
    uint8_t                is_lost;  /**< All that it had mapped is gone */
    uint8_t                is_short; /**< A buffer ends before its bytes do */
    uint8_t                call;     /**< uct_cuda_coll_kind_t */
    uint8_t                root;
    uint8_t                reason;   /**< Of who passes: why, as the group has
                                          it; 0: it was further already */
    uint8_t                status;   /**< ... its ucs_status_t, negated */
    uint8_t                reserved;
    uint32_t               counts;   /**< What tells blocks' counts apart; 0:
                                          they are all alike */
    uct_cuda_coll_shown_t  send;     /**< As recv if in place */
    uct_cuda_coll_shown_t  recv;
} uct_cuda_coll_post_t;


/** How far a rank is: number of the call, and how it went. */
typedef enum {
    UCT_CUDA_COLL_PHASE_PLANNED, /**< It has a plan that it had not before, or
                                      knows that there can be none */
    UCT_CUDA_COLL_PHASE_MADE,  /**< What it shows to others is there */
    UCT_CUDA_COLL_PHASE_READY, /**< All of the others' is mapped */
    UCT_CUDA_COLL_PHASE_DONE,  /**< Its steps have ended */
    UCT_CUDA_COLL_PHASE_LAST
} uct_cuda_coll_phase_t;


typedef struct uct_cuda_coll_page uct_cuda_coll_page_t;


/**
 * Come to the page of a group.
 *
 * @param key      The group's, on the board.
 * @param members  Numbers of its ranks on the board.
 * @return UCS_OK, UCS_ERR_INVALID_PARAM, or as uct_cuda_coll_board_get().
 */
ucs_status_t uct_cuda_coll_page_open(uct_cuda_coll_board_t *board,
                                     uint64_t key, unsigned rank,
                                     unsigned size, const unsigned *members,
                                     uct_cuda_coll_page_t **page_p);

void uct_cuda_coll_page_close(uct_cuda_coll_page_t *page);

/** This rank says what it does in this call and in all after it. */
void uct_cuda_coll_page_join(uct_cuda_coll_page_t *page, uint64_t first);

/** The first call that a rank says something of; 0: it has not come yet. */
uint64_t uct_cuda_coll_page_joined(const uct_cuda_coll_page_t *page,
                                   unsigned rank);

/** What rank 0 says for all, before it joins; of the node, before it posts its
 *  first call on GPUs. */
typedef struct {
    int32_t         algorithm; /**< uct_cuda_coll_algorithm_t, or AUTO */
    int32_t         multipath; /**< 0, 1, or AUTO */
    bool            has_topo;
    uct_cuda_topo_t topo;      /**< The node as rank 0 sees it */
    uct_cuda_mp_model_t transfers; /**< Their constants on it, likewise */
} uct_cuda_coll_common_t;

uct_cuda_coll_common_t *
uct_cuda_coll_page_common(uct_cuda_coll_page_t *page);


/** Say what this rank does in call @a sequence; what the post has for the
 *  number is ignored. */
void uct_cuda_coll_page_post(uct_cuda_coll_page_t *page, uint64_t sequence,
                             const uct_cuda_coll_post_t *post);

/** The shortest post: this rank passes, for a reason other than 0. */
void uct_cuda_coll_page_pass(uct_cuda_coll_page_t *page, uint64_t sequence,
                             uint8_t reason, ucs_status_t status);

/**
 * What a rank does in a call, if it has said so. Of one that passes only the
 * kind and the reason are filled in, and a rank that is further already has
 * passed: it did not wait for this one.
 */
bool uct_cuda_coll_page_read(const uct_cuda_coll_page_t *page, unsigned rank,
                             uint64_t sequence, uct_cuda_coll_post_t *post);


/** Say that this rank has got to a phase of a call, with this status. */
void uct_cuda_coll_page_reach(uct_cuda_coll_page_t *page,
                              uct_cuda_coll_phase_t phase, uint64_t sequence,
                              ucs_status_t status);

/** @return The status with which a rank got there; UCS_INPROGRESS: not yet. */
ucs_status_t uct_cuda_coll_page_reached(const uct_cuda_coll_page_t *page,
                                        unsigned rank,
                                        uct_cuda_coll_phase_t phase,
                                        uint64_t sequence);


/** The GPU that a rank's buffers are on, its UUID; said with a post that is
 *  lost. */
void uct_cuda_coll_page_set_gpu(uct_cuda_coll_page_t *page,
                                const uint8_t uuid[16]);

const uint8_t *uct_cuda_coll_page_gpu(const uct_cuda_coll_page_t *page,
                                      unsigned rank);


/** Steps of a call that a rank has ended on one of its queues, in order. */
void uct_cuda_coll_page_step(uct_cuda_coll_page_t *page, unsigned queue,
                             uint64_t sequence, uint32_t steps);

uint32_t uct_cuda_coll_page_steps(const uct_cuda_coll_page_t *page,
                                  unsigned rank, unsigned queue,
                                  uint64_t sequence);


/**
 * An allocation that this rank shows, before it says so.
 *
 * @param handle  NULL: it is gone, and mappings of it are to go.
 * @return Its generation.
 */
uint32_t uct_cuda_coll_page_show(uct_cuda_coll_page_t *page, unsigned index,
                                 const uct_cuda_node_handle_t *handle);

/** One of another rank's, with its generation; NULL: there is none. */
const uct_cuda_node_handle_t *
uct_cuda_coll_page_shown(const uct_cuda_coll_page_t *page, unsigned rank,
                         unsigned index, uint32_t *generation_p);


/**
 * Is the process of a rank there, and has it not left the group? Takes a system
 * call. Works across pid namespaces.
 */
bool uct_cuda_coll_page_is_alive(const uct_cuda_coll_page_t *page,
                                 unsigned rank);


END_C_DECLS

#endif
