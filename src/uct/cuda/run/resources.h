/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What executors work with: contexts, streams, events and staging memory of the
 * GPUs that transfers touch. Made when first wanted. Not thread-safe.
 */
#ifndef UCT_CUDA_MP_RESOURCES_H
#define UCT_CUDA_MP_RESOURCES_H

#include <uct/cuda/base/driver.h>
#include <uct/cuda/plan/transfer_plan.h>
#include <uct/cuda/run/request.h>
#include <uct/cuda/run/staging.h>

BEGIN_C_DECLS


typedef struct uct_cuda_mp_rsc uct_cuda_mp_rsc_t;


/**
 * A lane as far as one context works it. It is for one transfer at a time, in
 * the order of submission, whichever executor carries it out. Two at once would
 * share it, and so end together and leave both lanes of a relayed path idle at
 * the same time, where one behind the other fills the first lane while the one
 * before drains the second.
 *
 * The lane's stream keeps that order by itself. Work that is not in the stream,
 * a graph's, keeps it by events: it begins behind one that stands for what the
 * stream has, and leaves one that the stream, or the next such work, waits for.
 */
typedef struct {
    CUstream stream;      /**< NULL: not there yet */
    CUevent  outside;     /**< Behind the last such work, where the stream does
                               not wait for it yet; or NULL */
    CUevent  ordering;    /**< For what the stream has, and of graphs' nodes:
                               there with the stream, the same for good */
    CUstream launches[2]; /**< NULL, or that graphs from the lane's one end to
                               the other are launched in, by turns, so that one
                               begins while another ends */
    uint8_t  turn;        /**< The next one's */
    bool     is_queued;   /**< The stream has work that no such event stands
                               for */
    uint64_t epoch;       /**< Of the resources, when it was used last */
} uct_cuda_mp_lane_t;


/** UCS_OK or UCS_ERR_NO_MEMORY. Asks nothing of the driver. */
ucs_status_t
uct_cuda_mp_rsc_create(uct_cuda_mp_rsc_t **rsc_p);


/** Waits for all copies, then frees streams, events, staging memory and
 *  contexts. None of them may be lost. */
void uct_cuda_mp_rsc_destroy(uct_cuda_mp_rsc_t *rsc);


/**
 * Set up what a plan needs and is not there yet: contexts, peer access, streams
 * and staging memory. A few comparisons when nothing is missing.
 *
 * @param memory  Of the transfer: relays may have to reach it.
 * @param path_p  On failure, index of the plan's path that cannot be had.
 * @return UCS_OK; UCS_ERR_NO_MEMORY when staging memory of this size is not to
 *         be had (a smaller one may be; not logged); UCS_ERR_UNREACHABLE for
 *         missing peer access; UCS_ERR_NO_RESOURCE or another error (logged).
 */
ucs_status_t uct_cuda_mp_rsc_prepare(uct_cuda_mp_rsc_t *rsc,
                                     const uct_cuda_mp_plan_t *plan,
                                     const uct_cuda_mp_memory_t *memory,
                                     unsigned *path_p);


/** Devices whose contexts a path takes, a bit each. */
uint32_t uct_cuda_mp_rsc_path_devices(const uct_cuda_mp_plan_t *plan,
                                      const uct_cuda_mp_path_t *path);


/** Devices whose contexts are there, a bit each. */
uint32_t uct_cuda_mp_rsc_devices(const uct_cuda_mp_rsc_t *rsc);

bool uct_cuda_mp_rsc_has_host_staging(const uct_cuda_mp_rsc_t *rsc, int numa);


/** Devices, a bit each, whose contexts were there and have been reset or
 *  destroyed by the program since. One driver call a context. */
uint32_t uct_cuda_mp_rsc_lost(const uct_cuda_mp_rsc_t *rsc);


/**
 * Forget all that was of these devices' contexts, without a word to the driver,
 * which would not survive it; what is wanted of them next is made anew. Waits
 * for the copies of the other devices.
 */
void uct_cuda_mp_rsc_lose(uct_cuda_mp_rsc_t *rsc, uint32_t devices);


/** Take over a reference to a device's context, which has this number. */
void uct_cuda_mp_rsc_adopt_ctx(uct_cuda_mp_rsc_t *rsc, int device,
                               CUcontext ctx, unsigned long long id);


/**
 * Take over staging memory, or free it if there is some already. A context is
 * current, and that of the memory's GPU if it has one.
 *
 * @param numa  Node of host memory.
 */
void uct_cuda_mp_rsc_adopt_staging(uct_cuda_mp_rsc_t *rsc, int numa,
                                   uct_cuda_mp_staging_t *staging);


/** Context of a device that a successful prepare needed. */
CUcontext uct_cuda_mp_rsc_ctx(const uct_cuda_mp_rsc_t *rsc,
                                  int device);

/** Its number. */
unsigned long long uct_cuda_mp_rsc_ctx_id(const uct_cuda_mp_rsc_t *rsc,
                                          int device);


/** Nothing is in flight: what is submitted next has nobody to wait for. Spares
 *  it its waits, which hold it up even for what has happened long ago. */
void uct_cuda_mp_rsc_idle(uct_cuda_mp_rsc_t *rsc);


/** An event without timing; the device's context has to be current. */
ucs_status_t
uct_cuda_mp_rsc_get_event(uct_cuda_mp_rsc_t *rsc, int device,
                                CUevent *event_p);


/** Give an event back. Waits for it that were submitted hold on. */
void uct_cuda_mp_rsc_put_event(uct_cuda_mp_rsc_t *rsc,
                                     int device, CUevent event);


/** Create a stream of the device's context, unless there is one. Not logged as
 *  UCS_ERR_NO_MEMORY, which means staging memory, but UCS_ERR_NO_RESOURCE. */
ucs_status_t uct_cuda_mp_rsc_make_stream(uct_cuda_mp_rsc_t *rsc, int device,
                                         CUstream *stream_p);


/** Wait for all that is in a stream of the device's context. */
void uct_cuda_mp_rsc_wait_stream(uct_cuda_mp_rsc_t *rsc, int device,
                                 CUstream stream);


/** A stream of the device's context for callbacks only; UCS_ERR_IO_ERROR if
 *  that context is gone. */
ucs_status_t uct_cuda_mp_rsc_notify_stream(uct_cuda_mp_rsc_t *rsc, int device,
                                           CUstream *stream_p);


/*
 * For the executors
 */

/** What is kept of a lane by the context that works it. */
uct_cuda_mp_lane_t *uct_cuda_mp_rsc_lane(uct_cuda_mp_rsc_t *rsc, int device,
                                         uint16_t lane);


/** Make a device's context current unless @a current says that it is; replaces
 *  the top of the stack, which the caller has pushed. */
ucs_status_t
uct_cuda_mp_rsc_make_current(uct_cuda_mp_rsc_t *rsc,
                                   int device, int *current);


/** Where a place is, for copies of a device's context. */
CUdeviceptr uct_cuda_mp_rsc_address(uct_cuda_mp_rsc_t *rsc,
                                    const uct_cuda_mp_plan_t *plan,
                                    const uct_cuda_place_t *place,
                                    const uct_cuda_mp_memory_t *memory,
                                    int device);


/** A plan's staging memory at an end: that of a place in SCRATCH, or of a path;
 *  NULL for a direct one. */
uct_cuda_mp_staging_t *
uct_cuda_mp_rsc_staging(uct_cuda_mp_rsc_t *rsc, const uct_cuda_mp_plan_t *plan,
                        uct_cuda_end_t via);


/** The slot of a place in SCRATCH, else NULL. */
uct_cuda_mp_slot_t *
uct_cuda_mp_rsc_slot(uct_cuda_mp_rsc_t *rsc, const uct_cuda_mp_plan_t *plan,
                     const uct_cuda_place_t *place);


/** What a step waits for that is outside of its plan, or NULL: an event behind
 *  what had its slot before. */
CUevent uct_cuda_mp_rsc_awaited(uct_cuda_mp_rsc_t *rsc,
                                const uct_cuda_mp_plan_t *plan, unsigned step);


/** What has a plan's staging memories next begins at their next slot that is a
 *  multiple of so many, behind those that the plan uses or not. Returns in
 *  which bank that is, a bit a path. */
uint32_t uct_cuda_mp_rsc_next_slots(uct_cuda_mp_rsc_t *rsc,
                                    const uct_cuda_mp_plan_t *plan,
                                    unsigned unit, bool is_behind);


/** The event behind the last copy out of a slot, or NULL; the slot gives up the
 *  one that it had. A borrowed event stays with whoever recorded it. */
void uct_cuda_mp_rsc_set_drained(uct_cuda_mp_rsc_t *rsc,
                                 uct_cuda_mp_slot_t *slot, CUevent event,
                                 int device, bool is_borrowed);


END_C_DECLS

#endif
