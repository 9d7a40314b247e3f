/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Carries plans out with one stream a lane, and events for the waits between
 * lanes. Knows nothing of why a plan looks as it does. Not thread-safe.
 *
 * A transfer is one or more plans: prepare and submit each of them, then finish
 * the whole, or abort it.
 */
#ifndef UCT_CUDA_MP_EXECUTOR_STREAMS_H
#define UCT_CUDA_MP_EXECUTOR_STREAMS_H

#include <uct/cuda/base/driver.h>
#include <uct/cuda/multipath/plan.h>

BEGIN_C_DECLS


typedef struct uct_cuda_mp_streams uct_cuda_mp_streams_t;


/** Where a transfer's two ends are. */
typedef struct {
    CUdeviceptr src;
    CUdeviceptr dst;
    int         src_device;
    int         dst_device;
    /** The device, or -1, whose memory is another process's: src or dst is
     *  good for the other end's context only. */
    int         remote_device;
    /** The remote end's address in the contexts of the other devices */
    CUdeviceptr mapped[UCT_CUDA_TOPO_MAX_GPUS];
} uct_cuda_mp_ends_t;


/** The end that is this process's own, or the source if both are. */
static inline int uct_cuda_mp_ends_local(const uct_cuda_mp_ends_t *ends)
{
    return (ends->src_device == ends->remote_device) ? ends->dst_device :
                                                       ends->src_device;
}


/** UCS_OK or UCS_ERR_NO_MEMORY. Asks nothing of the driver. */
ucs_status_t uct_cuda_mp_streams_create(uct_cuda_mp_streams_t **streams_p);


/** Waits for all copies, then frees streams, events, staging memory and
 *  contexts. */
void uct_cuda_mp_streams_destroy(uct_cuda_mp_streams_t *streams);


/**
 * Set up what a plan needs and is not there yet: contexts, peer access, streams
 * and staging memory. A few comparisons when nothing is missing.
 *
 * @param path_p  On failure, index of the plan's path that cannot be had.
 * @return UCS_OK; UCS_ERR_NO_MEMORY when staging memory of this size is not to
 *         be had (a smaller one may be; not logged); UCS_ERR_UNREACHABLE for
 *         missing peer access; UCS_ERR_NO_RESOURCE or another error (logged).
 */
ucs_status_t uct_cuda_mp_streams_prepare(uct_cuda_mp_streams_t *streams,
                                         const uct_cuda_mp_plan_t *plan,
                                         const uct_cuda_mp_ends_t *ends,
                                         unsigned *path_p);


/**
 * Device, other than the local end's, in whose context a step reads or writes
 * the remote end, and which therefore needs a mapping of it; -1: none.
 */
int uct_cuda_mp_streams_remote_reader(const uct_cuda_mp_ends_t *ends,
                                      const uct_cuda_mp_step_t *step);


/** Context of a device that a successful prepare needed. */
CUcontext uct_cuda_mp_streams_ctx(const uct_cuda_mp_streams_t *streams,
                                  int device);


/**
 * Submit a prepared plan's copies. Does not wait for any of them.
 *
 * @param offset  Where the plan's first byte is in the transfer, bytes.
 * @return UCS_OK, or the driver's error (logged); then abort.
 */
ucs_status_t uct_cuda_mp_streams_submit(uct_cuda_mp_streams_t *streams,
                                        const uct_cuda_mp_plan_t *plan,
                                        const uct_cuda_mp_ends_t *ends,
                                        size_t offset);


/**
 * Have an event happen when all copies submitted since the last finish or abort
 * have ended. Transfers of one pair of GPUs end in the order they were
 * submitted. The event belongs to the local end's device and goes back with
 * uct_cuda_mp_streams_put_event().
 */
ucs_status_t uct_cuda_mp_streams_finish(uct_cuda_mp_streams_t *streams,
                                        const uct_cuda_mp_ends_t *ends,
                                        CUevent *event_p);


/** Wait for all copies submitted since the last finish or abort. */
void uct_cuda_mp_streams_abort(uct_cuda_mp_streams_t *streams);


void uct_cuda_mp_streams_put_event(uct_cuda_mp_streams_t *streams, int device,
                                   CUevent event);


/** Have the driver call @a func once @a event of @a device has happened. */
ucs_status_t uct_cuda_mp_streams_notify(uct_cuda_mp_streams_t *streams,
                                        int device, CUevent event,
                                        CUhostFn func, void *arg);


END_C_DECLS

#endif
