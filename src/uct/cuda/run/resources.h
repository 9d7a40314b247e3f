/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Resources of executors: contexts, streams, events and staging memory of the
 * GPUs used by transfers. Created at first use. Not thread safe.
 */
#ifndef UCT_CUDA_RUN_RESOURCES_H
#define UCT_CUDA_RUN_RESOURCES_H

#include <uct/cuda/base/driver.h>
#include <uct/cuda/plan/transfer_plan.h>
#include <uct/cuda/run/request.h>
#include <uct/cuda/run/staging.h>

BEGIN_C_DECLS


typedef struct uct_cuda_run_rsc uct_cuda_run_rsc_t;


/**
 * Directed link as used in one context. Transfers use it one after another in
 * the order of submission, by either executor. If two transfers shared it, they
 * would end together and leave both links of a relayed path idle at the same
 * time. In order, one transfer fills the first link while the previous one
 * drains the second.
 *
 * The link's stream keeps that order. Work outside the stream, that is graphs,
 * is ordered by events: it waits for an event after the stream's work, and
 * leaves an event for the stream or the next graph to wait for.
 */
typedef struct {
    CUstream stream;      /**< NULL: none yet */
    /** After the last work outside, if the stream does not wait for it yet;
     *  or NULL */
    CUevent  outside;
    /** For the stream's work and for nodes of graphs; created with the
     *  stream, never replaced */
    CUevent  ordering;
    /** NULL, or streams for launches of graphs between the link's ends, used
     *  alternately so that a graph begins while another ends */
    CUstream launches[2];
    /** NULL, or for callbacks at the end of transfers between the link's ends,
     *  which end in order: no transfer delays the callback of another */
    CUstream notify;
    uint8_t  next_launch; /**< Index of the next launch */
    bool     is_queued;   /**< The stream has work after the ordering event */
    uint64_t epoch;       /**< Epoch of the resources at the last use */
} uct_cuda_run_link_t;


/**
 * Create empty resources, without driver calls.
 *
 * @return UCS_OK or UCS_ERR_NO_MEMORY.
 */
ucs_status_t
uct_cuda_run_rsc_create(uct_cuda_run_rsc_t **rsc_p);


/** Wait for all copies, then free streams, events, staging memory and
 *  contexts. No context may be lost. */
void uct_cuda_run_rsc_destroy(uct_cuda_run_rsc_t *rsc);


/**
 * Create the missing resources of a plan: contexts, peer access, streams and
 * staging memory. Costs a few comparisons if none is missing.
 *
 * @param memory  Memory of the transfer, to be accessed by relays.
 * @param path_p  On failure: index of the plan's failed path.
 * @param link_p  On failure: a link of that path; with UCS_ERR_UNREACHABLE the
 *                one that is not available.
 * @return UCS_OK; UCS_ERR_NO_MEMORY; UCS_ERR_UNREACHABLE: no peer access; or
 *         another error (logged).
 */
ucs_status_t uct_cuda_run_rsc_prepare(uct_cuda_run_rsc_t *rsc,
                                      const uct_cuda_plan_t *plan,
                                      const uct_cuda_run_memory_t *memory,
                                      unsigned *path_p, uint16_t *link_p);


/** Return the mask of devices whose contexts the path staged at @a via uses. */
uint32_t uct_cuda_run_rsc_path_devices(const uct_cuda_plan_t *plan,
                                       uct_cuda_end_t via);


/** Return the mask of devices with a context. */
uint32_t uct_cuda_run_rsc_devices(const uct_cuda_run_rsc_t *rsc);

/** Return whether there is staging memory at an end; for host memory, on this
 *  NUMA node. */
bool uct_cuda_run_rsc_has_staging(const uct_cuda_run_rsc_t *rsc,
                                  uct_cuda_end_t via, int numa);


/** Return the mask of devices whose contexts were reset or destroyed by the
 *  program. One driver call for each context. */
uint32_t uct_cuda_run_rsc_lost(const uct_cuda_run_rsc_t *rsc);


/** Drop all resources of these devices' contexts without driver calls, which
 *  would fail or crash. They are created again at the next use. Waits for
 *  the copies of other devices. */
void uct_cuda_run_rsc_lose(uct_cuda_run_rsc_t *rsc, uint32_t devices);


/** Take ownership of a reference to a device's context with this id. */
void uct_cuda_run_rsc_adopt_ctx(uct_cuda_run_rsc_t *rsc, int device,
                                CUcontext ctx, unsigned long long id);


/**
 * Take ownership of staging memory, or free it if there is one already. A
 * context must be current, for GPU memory that of the GPU.
 *
 * @param numa  NUMA node of host memory.
 */
void uct_cuda_run_rsc_adopt_staging(uct_cuda_run_rsc_t *rsc, int numa,
                                    uct_cuda_run_staging_t *staging);


/** Return the context of a device used by a prepared plan. */
CUcontext uct_cuda_run_rsc_ctx(const uct_cuda_run_rsc_t *rsc,
                                   int device);

/** Return the id of the context of a device used by a prepared plan. */
unsigned long long uct_cuda_run_rsc_ctx_id(const uct_cuda_run_rsc_t *rsc,
                                           int device);


/** Note that nothing is in flight. Later work then needs no waits, which
 *  delay it even for events completed long ago. */
void uct_cuda_run_rsc_idle(uct_cuda_run_rsc_t *rsc);


/** Get an event without timing, with the device's context current. */
ucs_status_t
uct_cuda_run_rsc_get_event(uct_cuda_run_rsc_t *rsc, int device,
                                 CUevent *event_p);


/** Release an event. Waits submitted for it stay valid. */
void uct_cuda_run_rsc_put_event(uct_cuda_run_rsc_t *rsc,
                                      int device, CUevent event);


/** Create a stream of the device's context, unless *stream_p is one already.
 *  A failure leaves *stream_p NULL. */
ucs_status_t uct_cuda_run_rsc_make_stream(uct_cuda_run_rsc_t *rsc, int device,
                                          CUstream *stream_p);


/** Wait for all work in a stream of the device's context. */
void uct_cuda_run_rsc_wait_stream(uct_cuda_run_rsc_t *rsc, int device,
                                  CUstream stream);


/** Return the stream of the device's context for callbacks of transfers
 *  between the ends of a link; UCS_ERR_IO_ERROR if the context is gone. */
ucs_status_t uct_cuda_run_rsc_notify_stream(uct_cuda_run_rsc_t *rsc, int device,
                                            uint16_t link, CUstream *stream_p);


/* For the executors */

/** Return the state of a link in a device's context. */
uct_cuda_run_link_t *uct_cuda_run_rsc_link(uct_cuda_run_rsc_t *rsc, int device,
                                           uint16_t link);


/**
 * Make a device's context current unless @a current says it is, and update @a
 * current. Replaces the top of the context stack, pushed by the caller.
 */
ucs_status_t
uct_cuda_run_rsc_make_current(uct_cuda_run_rsc_t *rsc,
                                    int device, int *current);


/** Return the address of a place for copies in a device's context. */
CUdeviceptr uct_cuda_run_rsc_address(uct_cuda_run_rsc_t *rsc,
                                     const uct_cuda_plan_t *plan,
                                     const uct_cuda_plan_place_t *place,
                                     const uct_cuda_run_memory_t *memory,
                                     int device);


/** Return the slot of a place in SCRATCH, else NULL. */
uct_cuda_run_slot_t *
uct_cuda_run_rsc_slot(uct_cuda_run_rsc_t *rsc, const uct_cuda_plan_t *plan,
                      const uct_cuda_plan_place_t *place);


/** Return the event after the last user of a step's slot in earlier plans,
 *  or NULL. */
CUevent uct_cuda_run_rsc_awaited(uct_cuda_run_rsc_t *rsc,
                                 const uct_cuda_plan_t *plan, unsigned step);


/**
 * Advance a plan's staging memories to a multiple of @a unit slots: behind the
 * slots used by the plan or, with @a is_behind false, without passing them.
 *
 * @return Bank of each path, as a mask.
 */
uint32_t uct_cuda_run_rsc_next_slots(uct_cuda_run_rsc_t *rsc,
                                     const uct_cuda_plan_t *plan,
                                     unsigned unit, bool is_behind);


/** Set the event after the last copy out of a slot, or NULL; the slot
 *  releases its previous one. A borrowed event belongs to its recorder. */
void uct_cuda_run_rsc_set_drained(uct_cuda_run_rsc_t *rsc,
                                  uct_cuda_run_slot_t *slot, CUevent event,
                                  int device, bool is_borrowed);


END_C_DECLS

#endif
