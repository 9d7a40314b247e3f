/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Agreement: what the ranks of a group tell each other on its page, and read
 * there. Each says what it does in a call, and all go the same way, since each
 * decides by what all have said.
 */
#ifndef UCT_CUDA_COLL_AGREE_H
#define UCT_CUDA_COLL_AGREE_H

#include <uct/cuda/collective/verdict.h>
#include <uct/cuda/collective_api.h>
#include <uct/cuda/node/page.h>
#include <uct/cuda/plan/collective_plan.h>

BEGIN_C_DECLS


/** A rank's side of it, of one call at a time. Zeroed, but for the first
 *  four. */
typedef struct {
    uct_cuda_coll_page_t       *page;
    unsigned                   rank, size;
    uint64_t                   sequence; /**< Of the call */
    const uct_cuda_coll_call_t *what;
    uint64_t                   bytes; /**< Of it, once they are known */
    uct_cuda_coll_post_t       posts[UCT_CUDA_COLL_MAX_RANKS]; /**< Its */
    bool                       is_new, is_lost; /**< So one of these says */
    uct_cuda_coll_verdict_t    verdict; /**< On it, if it is not DONE */

    /** The node and the ranks' GPUs in it, the same on all ranks; no GPUs: not
     *  known yet */
    uct_cuda_topo_t            topo;
    uct_cuda_mp_model_t        transfers; /**< Constants of it */
    int                        gpus[UCT_CUDA_COLL_MAX_RANKS];

    bool                       is_whole; /**< All joined before this call */
    uint64_t                   deadline; /**< Of waiting for that, ns; 0: none
                                              yet */

    /* Waiting, in this call */
    unsigned                   spins;
    uint64_t                   looked;    /**< For others, ns */
    unsigned                   waits_for; /**< A rank that has not ... */
    const char                 *wanted;   /**< ... done this; NULL: is told */
    uint64_t                   began;     /**< To wait for it, ns; or 0 */
    uint64_t                   told;      /**< When that was last looked at */
    char                       *why;
    size_t                     why_size;
} uct_cuda_coll_agreement_t;


/**
 * The next call; what is done in it is not said yet.
 *
 * @param why  Filled with a sentence where ranks disagree or one is gone.
 */
void uct_cuda_coll_agree_begin(uct_cuda_coll_agreement_t *agreement,
                               const uct_cuda_coll_call_t *what, char *why,
                               size_t why_size);


/** "collective 7: all-reduce of 4096 bytes, 2 ranks", for the log. */
const char *
uct_cuda_coll_agree_name(const uct_cuda_coll_agreement_t *agreement, char *text,
                         size_t size);


/** Why the call is not carried out, for its line in the log. */
void uct_cuda_coll_agree_judge(uct_cuda_coll_agreement_t *agreement,
                               uct_cuda_coll_reason_t reason, int rank,
                               ucs_status_t status);


/** Say that this rank does it another way, and why; so will all. */
void uct_cuda_coll_agree_pass(uct_cuda_coll_agreement_t *agreement,
                              uct_cuda_coll_reason_t reason,
                              ucs_status_t status);


/**
 * Has every rank come to the page before this call, so that it says there what
 * it does? The first call with GPU buffers gives the others' first ones a
 * moment: who sees them on all ranks at once need stage none. A rank whose
 * buffers are in host memory may not come. @return false: this rank has passed.
 */
bool uct_cuda_coll_agree_is_whole(uct_cuda_coll_agreement_t *agreement);


/** Say what this rank does, and read it of all. @return DONE: they do the same,
 *  by GPUs. */
uct_cuda_coll_result_t
uct_cuda_coll_agree(uct_cuda_coll_agreement_t *agreement,
                    const uct_cuda_coll_post_t *post);


/** Wait until all ranks have got there. @return The first failure of any, the
 *  same on all ranks unless one has died; the verdict says of which. */
ucs_status_t uct_cuda_coll_agree_meet(uct_cuda_coll_agreement_t *agreement,
                                      uct_cuda_coll_phase_t phase,
                                      ucs_status_t status);


/** Steps are about to be carried out. */
void uct_cuda_coll_agree_run(uct_cuda_coll_agreement_t *agreement);

/** One round of waiting in them, for the GPU or for other ranks' steps, which
 *  may never end: whether it is of any use to go on. */
ucs_status_t uct_cuda_coll_agree_idle(void *agreement);


/** Rank 0 sees the node for all, before it says what it does in a call. */
void uct_cuda_coll_agree_tell_node(uct_cuda_coll_agreement_t *agreement);

/** Fill in the node, as rank 0 sees it, and the GPUs that all ranks have said.
 *  @return false: these are more than plans know; on all ranks. */
bool uct_cuda_coll_agree_find_gpus(uct_cuda_coll_agreement_t *agreement);

/** Can one of the GPUs, this rank's and another's, reach the other? */
bool uct_cuda_coll_agree_is_peer(const uct_cuda_coll_agreement_t *agreement,
                                 unsigned rank);


END_C_DECLS

#endif
