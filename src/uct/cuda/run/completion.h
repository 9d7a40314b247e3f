/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When a transfer has ended: events behind its last copies, one a stream that
 * writes to the destination. Joining these in one more stream would cost each
 * transfer 5 us (3 to 7 us, measured on H200).
 */
#ifndef UCT_CUDA_MP_COMPLETION_H
#define UCT_CUDA_MP_COMPLETION_H

#include <uct/cuda/run/resources.h>

BEGIN_C_DECLS


/** Streams that a transfer's last copies can be on: those of the lanes into its
 *  destination, and two that graphs are launched in. */
#define UCT_CUDA_MP_MAX_COMPLETION_EVENTS (UCT_CUDA_NUM_ENDS + 2)


/** Streams that the transfer which is being submitted has work on. */
typedef struct {
    unsigned count;
    struct {
        CUstream stream;
        int      device;  /**< Whose context it belongs to */
        bool     is_last; /**< Has work that no other work waits for */
    } streams[UCT_CUDA_MP_NUM_LANES + 2];
} uct_cuda_mp_used_t;


/** Behind the last copy of one stream. */
typedef struct {
    CUevent            event;
    int                device; /**< Whose context it is of ... */
    unsigned long long ctx_id; /**< ... which may be gone since */
} uct_cuda_mp_completion_event_t;


/** The first num_pending have not been seen to happen. */
typedef struct {
    unsigned                       count;
    unsigned                       num_pending;
    unsigned                       turn;
    uct_cuda_mp_completion_event_t events[UCT_CUDA_MP_MAX_COMPLETION_EVENTS];
} uct_cuda_mp_completion_t;


/** There is work on this stream of a device's context, and with @a is_last some
 *  that no other work waits for. */
void uct_cuda_mp_used_add(uct_cuda_mp_used_t *used, int device, CUstream stream,
                          bool is_last);


/** Wait for all of these streams, and forget them. */
void uct_cuda_mp_used_wait(uct_cuda_mp_used_t *used, uct_cuda_mp_rsc_t *rsc);


/**
 * Have events happen when all that is on these streams has ended; the streams
 * are forgotten then. Events go back with uct_cuda_mp_completion_put().
 *
 * @param device  One whose context is there.
 * @return UCS_OK, or an error (logged): there are no events.
 */
ucs_status_t
uct_cuda_mp_completion_record(uct_cuda_mp_rsc_t *rsc, int device,
                              uct_cuda_mp_used_t *used,
                              uct_cuda_mp_completion_t *completion);


/** Have all happened? UCS_OK, UCS_INPROGRESS, or the driver's error (logged).
 *  As a rule one event query. Any thread. */
ucs_status_t
uct_cuda_mp_completion_test(uct_cuda_mp_completion_t *completion);


/** Wait until all have happened, whatever the driver says of them. */
void uct_cuda_mp_completion_wait(uct_cuda_mp_completion_t *completion);


/** Have the driver call @a func once all have happened; from a stream of
 *  @a device's context. UCS_ERR_IO_ERROR if that is gone. */
ucs_status_t
uct_cuda_mp_completion_notify(uct_cuda_mp_rsc_t *rsc, int device,
                              const uct_cuda_mp_completion_t *completion,
                              CUhostFn func, void *arg);


void uct_cuda_mp_completion_put(uct_cuda_mp_rsc_t *rsc,
                                const uct_cuda_mp_completion_t *completion);


END_C_DECLS

#endif
