/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One collective call as a state machine without waits. A team carries out one
 * call at a time (queue.h).
 */
#ifndef UCT_CUDA_COLLECTIVE_CALL_H
#define UCT_CUDA_COLLECTIVE_CALL_H

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/collective/team.h>
#include <uct/cuda/collective_api.h>

BEGIN_C_DECLS


/** Buffer of this rank */
typedef struct {
    const void *address;
    uint64_t   bytes; /**< 0: no buffer, or the same as the other one */
} uct_cuda_coll_buffer_t;


/** Next event of the call: the announcements of all ranks, the
 *  arrival of all ranks at a phase (ENDED: phase DONE), or the end of this
 *  rank's steps. */
typedef enum {
    UCT_CUDA_COLL_OPERATION_AGREEING,
    UCT_CUDA_COLL_OPERATION_PLANNED, /**< The order is that of the phases */
    UCT_CUDA_COLL_OPERATION_MADE,
    UCT_CUDA_COLL_OPERATION_READY,
    UCT_CUDA_COLL_OPERATION_ENDED,
    UCT_CUDA_COLL_OPERATION_RUNNING  /**< The end of this rank's steps */
} uct_cuda_coll_operation_state_t;


/** A request, first as this rank makes it, then as all ranks have agreed on
 *  it. Zeroed, except for the first three members. */
typedef struct {
    const uct_cuda_coll_call_t    *what;
    char                          *why;
    size_t                        why_size;
    uint32_t                      size;    /**< Bytes of one element */
    bool                          reduces;
    ucx_mp_op_t                   op;      /**< Of the kernels */
    ucx_mp_type_t                 type;
    uct_cuda_plan_coll_request_t  request; /**< Input of the planner */
    /** Storage of request */
    uint64_t                      counts[UCT_CUDA_PLAN_COLL_MAX_RANKS];
    uct_cuda_plan_coll_t          signature;
    uct_cuda_coll_buffer_t        send, recv;
    const uct_cuda_plan_coll_t    *plan; /**< Plan carried out, or NULL */

    uct_cuda_coll_operation_state_t state;
    bool                          differs; /**< The ranks' arguments differ */
    uct_cuda_coll_kept_schedule_t *kept;   /**< NULL: not chosen yet */
    uct_cuda_run_coll_call_t      run;
    ucs_status_t                  begun;       /**< Of the steps */
    uint64_t                      steps_began; /**< For the timeline */
    uint64_t                      began; /**< Start, ns; 0: not logged */
} uct_cuda_coll_operation_t;


/** Get the numbers of this process's calls carried out on GPUs, and of calls
 *  with another result. */
void uct_cuda_coll_counts(uint64_t *done_p, uint64_t *staged_p);

/** Return whether no rank announces anything in the team's current call. */
static inline bool
uct_cuda_coll_operation_is_paused(const uct_cuda_coll_team_t *team)
{
    return team->is_off || (team->agreement.sequence < team->resume);
}

/**
 * Begin the team's next call. Waits only in the team's first calls with GPU
 * buffers, until all ranks have joined.
 *
 * @param pushed  Filled with the context of the buffers if it became current;
 *                the caller leaves it, with any result.
 * @return PENDING, or STAGE.
 */
uct_cuda_coll_result_t
uct_cuda_coll_operation_begin(uct_cuda_coll_operation_t *call,
                              uct_cuda_coll_team_t *team,
                              uct_cuda_ctx_scope_t *pushed);

/**
 * Carry on, with the context of the buffers current.
 *
 * @param waited  Result of the wait since the last call
 *                (uct_cuda_coll_agree_check()).
 * @return PENDING: call again. Otherwise the result: the caller ends the call
 *         with uct_cuda_coll_operation_end().
 */
uct_cuda_coll_result_t
uct_cuda_coll_operation_test(uct_cuda_coll_operation_t *call,
                             uct_cuda_coll_team_t *team,
                             ucs_status_t waited);

/** Count and log a call at its end. */
void uct_cuda_coll_operation_end(const uct_cuda_coll_operation_t *call,
                                 uct_cuda_coll_team_t *team,
                                 uct_cuda_coll_result_t result);


END_C_DECLS

#endif
