/* SPDX-License-Identifier: BSD-3-Clause */
/* A plan as one rank carries it out. */
#ifndef UCT_CUDA_COLL_PROGRAM_H
#define UCT_CUDA_COLL_PROGRAM_H

#include <uct/cuda/base/log.h>
#include <uct/cuda/node/page.h>
#include <uct/cuda/plan/collective_plan.h>
#include <uct/cuda/run/device.h>

BEGIN_C_DECLS


/** What has waited for so long says, at debug level, what for (ns). */
#define UCT_CUDA_COLL_TOLD_NS (1000ul * 1000 * 1000)


typedef struct uct_cuda_coll_program uct_cuda_coll_program_t;


/** Events of one context, for one program at a time, and a word of page-locked
 *  memory for each. The GPU writes the turn into the word of a step that has
 *  ended (cuStreamWriteValue32), and the host looks there: a question to the
 *  driver takes a lock that the program's other threads want for each kernel.
 *  Zeroed: none yet. */
typedef struct {
    CUevent  *events;
    unsigned count;
    uct_cuda_coll_words_t *words_of; /**< What the words are of, or NULL */
    uint32_t *words; /**< NULL: the driver cannot, and is asked */
    uint32_t turn;   /**< Of the program that runs */
} uct_cuda_coll_events_t;


/** One call: where everything is, and who else takes part. */
typedef struct {
    uct_cuda_coll_device_t *device; /**< Of the current context */
    uct_cuda_coll_events_t *events; /**< Of the current context */
    uct_cuda_coll_page_t   *page;
    uint64_t               sequence;
    ucx_mp_op_t            op;
    ucx_mp_type_t          type;
    const int              *gpus; /**< Of the ranks, for the timeline */
    CUdeviceptr            places[UCT_CUDA_COLL_MAX_MEMBERS]
                                 [UCT_CUDA_BUFFER_LAST];

    /** There is nothing to do at the moment. Anything but UCS_OK ends the call
     *  with this status. */
    ucs_status_t           (*idle)(void *arg);
    void                   *arg;
    uct_cuda_log_level_t   level; /**< At which it says what it waits for */
} uct_cuda_coll_run_t;


/**
 * What @a rank does of a plan.
 *
 * @param plan  Taken over; released also in case of a failure.
 * @return UCS_OK, UCS_ERR_NO_MEMORY.
 */
ucs_status_t uct_cuda_coll_program_create(uct_cuda_coll_plan_t *plan,
                                          unsigned rank,
                                          uct_cuda_coll_program_t **program_p);

/** NULL is none. */
void uct_cuda_coll_program_destroy(uct_cuda_coll_program_t *program);

const uct_cuda_coll_plan_t *
uct_cuda_coll_program_plan(const uct_cuda_coll_program_t *program);


/** Make the streams and events that a program needs, so that running it has not
 *  to; with the context current. */
ucs_status_t
uct_cuda_coll_program_prepare(const uct_cuda_coll_program_t *program,
                              const uct_cuda_coll_run_t *run);


/**
 * Carry the rank's steps out and wait until they have ended. What others wait
 * for is told on the page.
 *
 * @return UCS_OK; otherwise nothing of it is under way any more.
 *         UCS_ERR_ENDPOINT_TIMEOUT: the context is of no use any more, since a
 *         kernel or a copy in it has failed.
 */
ucs_status_t uct_cuda_coll_program_run(uct_cuda_coll_program_t *program,
                                       const uct_cuda_coll_run_t *run);


/** Give the events back, with their context current; or, @a is_alive false,
 *  forget them. */
void uct_cuda_coll_events_release(uct_cuda_coll_events_t *events,
                                  uct_cuda_coll_device_t *device,
                                  bool is_alive);


END_C_DECLS

#endif
