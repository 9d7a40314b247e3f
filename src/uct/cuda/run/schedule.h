/* SPDX-License-Identifier: BSD-3-Clause */
/* Rank schedule: one rank's part of a collective plan. */
#ifndef UCT_CUDA_RUN_SCHEDULE_H
#define UCT_CUDA_RUN_SCHEDULE_H

#include <uct/cuda/base/log.h>
#include <uct/cuda/node/control.h>
#include <uct/cuda/plan/collective_plan.h>
#include <uct/cuda/run/device.h>

BEGIN_C_DECLS


/** Wait after which a rank reports its cause in the log (ns). */
#define UCT_CUDA_RUN_REPORT_NS (1000ul * 1000 * 1000)


typedef struct uct_cuda_run_schedule uct_cuda_run_schedule_t;


/** Events of a context, for one rank schedule at a time, and a word of
 *  page-locked memory for each. When a step has ended the GPU writes the
 *  call's number into its word (cuStreamWriteValue32), and the host polls
 *  the word: a driver query takes a lock needed by the program's other
 *  threads for each kernel. Zeroed: none yet. */
typedef struct {
    CUevent  *events;
    unsigned count;
    uct_cuda_run_coll_words_t *words_of; /**< Owner of words, or NULL */
    uint32_t *words; /**< NULL: events are queried instead */
    uint32_t run_number;   /**< Number of the running call */
} uct_cuda_run_coll_events_t;


/** A call: addresses and peers. */
typedef struct {
    uct_cuda_run_coll_device_t *device; /**< Of the current context */
    uct_cuda_run_coll_events_t *events; /**< Of the current context */
    uct_cuda_node_control_t    *control;
    uint64_t                   sequence;
    ucx_mp_op_t                op;
    ucx_mp_type_t              type;
    const int                  *gpus; /**< GPU of each rank, for the timeline */
    CUdeviceptr                places[UCT_CUDA_PLAN_COLL_MAX_MEMBERS]
                                 [UCT_CUDA_BUFFER_LAST];
    uct_cuda_log_level_t   level; /**< Log level of reports on waits */
} uct_cuda_run_coll_call_t;


/**
 * Create the schedule of @a rank in a plan.
 *
 * @param plan  Ownership passes to the schedule; released on failure as well.
 * @return UCS_OK, UCS_ERR_NO_MEMORY.
 */
ucs_status_t uct_cuda_run_schedule_create(uct_cuda_plan_coll_t *plan,
                                          unsigned rank,
                                          uct_cuda_run_schedule_t **schedule_p);

/** Destroy a schedule; NULL is allowed. */
void uct_cuda_run_schedule_destroy(uct_cuda_run_schedule_t *schedule);

const uct_cuda_plan_coll_t *
uct_cuda_run_schedule_plan(const uct_cuda_run_schedule_t *schedule);


/** Create the streams and events of a schedule in advance, with the context
 *  current. */
ucs_status_t
uct_cuda_run_schedule_prepare(const uct_cuda_run_schedule_t *schedule,
                              const uct_cuda_run_coll_call_t *run);


/**
 * Start the rank's steps. The call must stay as it is until they have ended.
 *
 * @return Status for uct_cuda_run_schedule_test(), which must follow.
 */
ucs_status_t uct_cuda_run_schedule_begin(uct_cuda_run_schedule_t *schedule,
                                         const uct_cuda_run_coll_call_t *run);

/**
 * Submit the steps that are ready, and report steps awaited by other ranks in
 * the control block. Never waits, except for submitted steps after a failure.
 *
 * @param status  UCS_OK, or a failure elsewhere: the steps are cancelled.
 * @return UCS_INPROGRESS: call again. UCS_OK: all steps have ended. Otherwise
 *         no step is under way any more. UCS_ERR_ENDPOINT_TIMEOUT: the context
 *         is unusable after a failed kernel or copy.
 */
ucs_status_t uct_cuda_run_schedule_test(uct_cuda_run_schedule_t *schedule,
                                        ucs_status_t status);


/**
 * Destroy the events with their context current, and return their words to the
 * device. With @a is_alive false the context is gone, and the events are only
 * forgotten. @a events is zeroed.
 */
void uct_cuda_run_coll_events_release(uct_cuda_run_coll_events_t *events,
                                      uct_cuda_run_coll_device_t *device,
                                      bool is_alive);


END_C_DECLS

#endif
