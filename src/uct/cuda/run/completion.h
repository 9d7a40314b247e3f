/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Completion of a transfer: events after its last copies, one for each stream
 * writing to the destination. Joining them in one more stream would cost each
 * transfer 5 us (3 to 7 us, measured on H200).
 */
#ifndef UCT_CUDA_RUN_COMPLETION_H
#define UCT_CUDA_RUN_COMPLETION_H

#include <uct/cuda/run/resources.h>

BEGIN_C_DECLS


/** Maximum streams with last copies of a transfer: those of the links into
 *  its destination, and two for launches of graphs. */
#define UCT_CUDA_RUN_MAX_COMPLETION_EVENTS (UCT_CUDA_NUM_ENDS + 2)


/** Streams with work of the transfer being submitted. */
typedef struct {
    unsigned count;
    struct {
        CUstream stream;
        int      device;  /**< Device of its context */
        bool     is_last; /**< Has work that no other work waits for */
    } streams[UCT_CUDA_PLAN_NUM_LINKS + 2];
} uct_cuda_run_used_t;


/** Event after the last copy of a stream. */
typedef struct {
    CUevent            event;
    int                device; /**< Device of its context */
    unsigned long long ctx_id; /**< Id of its context, which may be gone */
} uct_cuda_run_completion_event_t;


/** Events of a transfer; the first num_pending have not been seen complete. */
typedef struct {
    unsigned                        count;
    unsigned                        num_pending;
    unsigned                        next_pending;
    uct_cuda_run_completion_event_t events[UCT_CUDA_RUN_MAX_COMPLETION_EVENTS];
} uct_cuda_run_completion_t;


/**
 * Add a stream of a device's context. With @a is_last it has work that no other
 * work waits for.
 */
void uct_cuda_run_used_add(uct_cuda_run_used_t *used, int device,
                           CUstream stream, bool is_last);


/** Wait for all these streams and remove them. */
void uct_cuda_run_used_wait(uct_cuda_run_used_t *used, uct_cuda_run_rsc_t *rsc);


/**
 * Record an event after the work of each stream marked is_last, and remove all
 * streams from @a used. Release the events with uct_cuda_run_completion_put().
 *
 * @param device  Any device with a context.
 * @return UCS_OK, or an error (logged): there are no events, and the streams
 *         stay in @a used.
 */
ucs_status_t
uct_cuda_run_completion_record(uct_cuda_run_rsc_t *rsc, int device,
                               uct_cuda_run_used_t *used,
                               uct_cuda_run_completion_t *completion);


/** Return UCS_OK if all events are complete, UCS_INPROGRESS, or the driver's
 *  error (logged). Usually one event query. Uses no resources of the engine,
 *  so it does not need the engine's lock; one caller at a time. */
ucs_status_t
uct_cuda_run_completion_test(uct_cuda_run_completion_t *completion);


/** Wait until all events are complete or have failed. */
void uct_cuda_run_completion_wait(uct_cuda_run_completion_t *completion);


/**
 * Let the driver call @a func after all events, in a stream of @a device's
 * context for transfers between the ends of @a link.
 *
 * @return UCS_OK, UCS_ERR_IO_ERROR if the context is gone, or the driver's
 *         error (logged).
 */
ucs_status_t
uct_cuda_run_completion_notify(uct_cuda_run_rsc_t *rsc, int device,
                               uint16_t link,
                               const uct_cuda_run_completion_t *completion,
                               CUhostFn func, void *arg);


/** Release the events to the resources; drop those whose context is gone. */
void uct_cuda_run_completion_put(uct_cuda_run_rsc_t *rsc,
                                 const uct_cuda_run_completion_t *completion);


END_C_DECLS

#endif
