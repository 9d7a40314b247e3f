/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Staging memory: one piece a GPU or NUMA node, cut into equal slots that
 * transfers use in turns.
 */
#ifndef UCT_CUDA_MP_STAGING_H
#define UCT_CUDA_MP_STAGING_H

#include <uct/cuda/base/driver.h>
#include <uct/cuda/multipath/plan.h>

BEGIN_C_DECLS


#define UCT_CUDA_MP_MAX_NUMA 16


typedef struct {
    CUevent drained; /**< Recorded behind the last copy out of the slot; NULL if
                          there has been none */
    int     device;  /**< Whose context the event belongs to */
} uct_cuda_mp_slot_t;


/** Slots that a graph's plan takes, as a whole: that the last graph to have
 *  them has ended is all that is known. */
typedef struct {
    CUevent drained; /**< Recorded behind the last graph that had it; NULL:
                          none */
    int     device;  /**< Whose context the event belongs to; -1: it is that of
                          a launch stream */
} uct_cuda_mp_bank_t;


typedef struct {
    CUdeviceptr        base;      /**< 0: not allocated */
    int                device;    /**< GPU, or -1 for host memory */
    int                home;      /**< Device whose context it was allocated in,
                                       and goes with */
    size_t             slot_size; /**< Bytes */
    unsigned           next;      /**< Slot that the next plan begins with */
    uct_cuda_mp_slot_t slots[UCT_CUDA_MP_STAGING_SLOTS];
    uct_cuda_mp_bank_t banks[UCT_CUDA_MP_STAGING_BANKS];
    uint64_t           epoch; /**< Of the resources, when it was used last */
} uct_cuda_mp_staging_t;


/**
 * Allocate on a GPU, in the current context.
 *
 * @return UCS_OK or the driver's error; not logged.
 */
ucs_status_t uct_cuda_mp_staging_alloc_gpu(uct_cuda_mp_staging_t *staging,
                                           int device, size_t slot_size);


/**
 * Allocate page-locked memory that all contexts can use, on the NUMA node as
 * far as the system lets us.
 *
 * @param home  Device whose context is current.
 */
ucs_status_t uct_cuda_mp_staging_alloc_host(uct_cuda_mp_staging_t *staging,
                                            int numa, int home,
                                            size_t slot_size);


/** Free the memory, if any. Events are the caller's. A GPU's memory needs its
 *  context to be current. */
void uct_cuda_mp_staging_free(uct_cuda_mp_staging_t *staging);


/** The slot that a plan's slot number stands for. */
static inline unsigned
uct_cuda_mp_staging_slot(const uct_cuda_mp_staging_t *staging, unsigned slot)
{
    return (staging->next + slot) % UCT_CUDA_MP_STAGING_SLOTS;
}


/** The bank that a plan's slot number is of. */
static inline uct_cuda_mp_bank_t *
uct_cuda_mp_staging_bank(uct_cuda_mp_staging_t *staging, unsigned slot)
{
    return &staging->banks[uct_cuda_mp_staging_slot(staging, slot) /
                           UCT_CUDA_MP_PLAN_SLOTS];
}


/** Have the next plan begin with a bank's first slot. */
static inline void uct_cuda_mp_staging_align(uct_cuda_mp_staging_t *staging)
{
    const unsigned slots = UCT_CUDA_MP_PLAN_SLOTS;

    staging->next = ((staging->next + slots - 1) / slots * slots) %
                    UCT_CUDA_MP_STAGING_SLOTS;
}


END_C_DECLS

#endif
