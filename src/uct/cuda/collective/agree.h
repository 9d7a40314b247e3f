/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Agreement: ranks of a team announce their arguments on the team's control
 * block and read those of the others. Every rank decides by the same
 * announcements, so all ranks decide the same.
 */
#ifndef UCT_CUDA_COLLECTIVE_AGREE_H
#define UCT_CUDA_COLLECTIVE_AGREE_H

#include <uct/cuda/collective/fallback.h>
#include <uct/cuda/collective_api.h>
#include <uct/cuda/node/control.h>
#include <uct/cuda/plan/collective_plan.h>

BEGIN_C_DECLS


/** One rank's state of the agreement, for one call at a time. Zeroed, except
 *  for control, rank, size and sequence. */
typedef struct {
    uct_cuda_node_control_t      *control;
    unsigned                     rank, size;
    uint64_t                     sequence; /**< Of the current call */
    const uct_cuda_coll_call_t   *what;
    /** Size of the call, bytes; 0 until known */
    uint64_t                     bytes;
    /** All ranks' announcements */
    uct_cuda_node_announcement_t posts[UCT_CUDA_PLAN_COLL_MAX_RANKS];
    /** Whether any rank's announcement has is_new or is_lost set */
    bool                         is_new, is_lost;
    uct_cuda_coll_fallback_t     fallback; /**< Why the call is not DONE */

    /** Node and GPUs of the ranks, the same on all ranks; no GPUs: not known
     *  yet */
    uct_cuda_topo_t              topo;
    uct_cuda_plan_model_t        transfers; /**< Model constants of the node */
    int                          gpus[UCT_CUDA_PLAN_COLL_MAX_RANKS];

    bool is_joined; /**< All ranks joined before this call */
    /** End of waiting for ranks to join, ns; 0: none yet */
    uint64_t                     deadline;

    /* Waiting, in this call */
    /** First rank whose announcement or phase is still missing */
    unsigned                     next;
    uct_cuda_node_phase_t        phase; /**< Last phase of this rank */
    ucs_status_t                 result; /**< Of that phase, so far */
    unsigned                     first_failed;
    unsigned                     looks; /**< since a rank has ended */
    bool                         is_running; /**< The steps have started */
    unsigned                     spins;
    /** Time of the last liveness check, ns */
    uint64_t                     looked;
    unsigned                     waits_for; /**< Rank to wait for */
    /** Its missing action; NULL: reported elsewhere */
    const char                   *wanted;
    uint64_t began;     /**< Start of the wait, ns; 0: none */
    /** Time of the last check whether to log a long wait, ns. A long gap means
     *  that this process stood still: the wait then starts anew. */
    uint64_t                     checked;
    char                         *why;
    size_t                       why_size;
} uct_cuda_coll_agreement_t;


/**
 * Begin the next call. This rank announces nothing yet.
 *
 * @param why  Set to "" now. It must stay valid until the call ends: a later
 *             function writes a sentence if ranks disagree or one has died.
 */
void uct_cuda_coll_agree_begin(uct_cuda_coll_agreement_t *agreement,
                               const uct_cuda_coll_call_t *what, char *why,
                               size_t why_size);


/** Format "collective 7: all-reduce of 4096 bytes, 2 ranks", for the log. */
const char *
uct_cuda_coll_agree_name(const uct_cuda_coll_agreement_t *agreement, char *text,
                         size_t size);


/** Record why the call is not carried out, for its line in the log. */
void uct_cuda_coll_agree_set_reason(uct_cuda_coll_agreement_t *agreement,
                                    uct_cuda_coll_reason_t reason, int rank,
                                    ucs_status_t status);


/** Announce that this rank declines the call, and why. All ranks then fall
 *  back. */
void uct_cuda_coll_agree_decline(uct_cuda_coll_agreement_t *agreement,
                                 uct_cuda_coll_reason_t reason,
                                 ucs_status_t status);


/**
 * Wait for the other ranks to join the team before this call, so that all
 * announce their arguments. The first call with GPU buffers waits a short time,
 * so programs whose ranks all use GPU buffers never fall back. Later calls do
 * not wait: a rank with host buffers may never join.
 *
 * @return false: a rank has not joined, and this rank has declined the call.
 */
bool uct_cuda_coll_agree_all_joined(uct_cuda_coll_agreement_t *agreement);


/** Announce this rank's arguments. */
void uct_cuda_coll_agree_announce(uct_cuda_coll_agreement_t *agreement,
                                  const uct_cuda_node_announcement_t *post);

/**
 * Read all ranks' announcements, without waiting.
 *
 * @param waited  Result of the wait since the last call: not UCS_OK ends it.
 * @return PENDING: a rank has not announced yet. DONE: all ranks make the same
 *         call on GPUs. DIFFERS: they do not; all ranks must reach the next
 *         phase. STAGE: a rank has declined, or types are mixed. FAILED: @a
 *         waited has ended the wait.
 */
uct_cuda_coll_result_t
uct_cuda_coll_agree_test(uct_cuda_coll_agreement_t *agreement,
                         ucs_status_t waited);


/** Announce that this rank has reached a phase, with a status. */
void uct_cuda_coll_agree_reach(uct_cuda_coll_agreement_t *agreement,
                               uct_cuda_node_phase_t phase,
                               ucs_status_t status);

/**
 * Return whether all ranks have reached this rank's phase.
 *
 * @param waited  As for uct_cuda_coll_agree_test().
 * @return UCS_INPROGRESS: not yet. UCS_OK: all have. Otherwise @a waited, or
 *         the first failure of any rank, the same on all ranks unless one has
 *         died. The fallback names that rank.
 */
ucs_status_t uct_cuda_coll_agree_reached(uct_cuda_coll_agreement_t *agreement,
                                         ucs_status_t waited);


/** Mark the start of the steps: from here on the rank schedule logs long
 *  waits. */
void uct_cuda_coll_agree_run(uct_cuda_coll_agreement_t *agreement);

/**
 * Look for a reason to stop waiting for the GPU or for other ranks, and log a
 * long wait once. Never blocks.
 *
 * @return UCS_OK: continue waiting; otherwise a rank failed, and the wait may
 *         never end.
 */
ucs_status_t uct_cuda_coll_agree_check(uct_cuda_coll_agreement_t *agreement);

/** Do one round of waiting: spin, later also yield the processor, and in some
 *  rounds call the MPI's progress and uct_cuda_coll_agree_check(). @return As
 *  that function; UCS_OK in the other rounds. */
ucs_status_t uct_cuda_coll_agree_idle(uct_cuda_coll_agreement_t *agreement);


/** Publish the node's topology and model constants as seen by this rank. Rank 0
 *  calls this before it announces its arguments. Only the first topology
 *  counts; if it is unknown, nothing is published. */
void uct_cuda_coll_agree_publish_node(uct_cuda_coll_agreement_t *agreement);

/**
 * Fill in the node as seen by rank 0, and the GPUs announced by all ranks.
 *
 * @return false: more GPUs than plans support; on all ranks.
 */
bool uct_cuda_coll_agree_find_gpus(uct_cuda_coll_agreement_t *agreement);

/** Return whether this rank's GPU can access the other rank's, or the
 *  reverse. */
bool uct_cuda_coll_agree_is_peer(const uct_cuda_coll_agreement_t *agreement,
                                 unsigned rank);


END_C_DECLS

#endif
