/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Staging memory: one piece a GPU or NUMA node, cut into equal slots that
 * transfers use in turns.
 */
#ifndef UCT_CUDA_MP_STAGING_H
#define UCT_CUDA_MP_STAGING_H

#include <uct/cuda/base/driver.h>
#include <uct/cuda/plan/transfer_plan.h>

#include <sys/types.h>

BEGIN_C_DECLS


typedef struct {
    CUevent drained;     /**< Recorded behind the last copy out of the slot;
                              NULL if there has been none */
    int     device;      /**< Whose context the event belongs to */
    bool    is_borrowed; /**< It is not the slot's to give back */
} uct_cuda_mp_slot_t;


typedef struct {
    CUdeviceptr        base;      /**< 0: not allocated */
    uct_cuda_end_t     end;       /**< A GPU, or host memory */
    int                home;      /**< Device whose context it was allocated in,
                                       and goes with */
    pid_t              owner;     /**< Process that has it mapped */
    size_t             slot_size; /**< Bytes */
    unsigned           next;      /**< Slot that the next plan begins with */
    uct_cuda_mp_slot_t slots[UCT_CUDA_MP_STAGING_SLOTS];
    uint64_t           epoch; /**< Of the resources, when it was used last */
} uct_cuda_mp_staging_t;


/**
 * Allocate on a GPU, in the current context; or page-locked memory that all
 * contexts can use, on the NUMA node as far as the system lets us.
 *
 * @param end   A GPU, or host memory.
 * @param numa  Node of that.
 * @param home  Device whose context is current.
 * @return UCS_OK or the driver's error; not logged.
 */
ucs_status_t uct_cuda_mp_staging_alloc(uct_cuda_mp_staging_t *staging,
                                       uct_cuda_end_t end, int numa, int home,
                                       size_t slot_size);


/** Free the memory, if any. Events are the caller's. A GPU's memory needs its
 *  context to be current. */
void uct_cuda_mp_staging_free(uct_cuda_mp_staging_t *staging);


/** Its context is gone, and with it a GPU's memory or what host memory was
 *  page-locked by; what is left is given back. */
void uct_cuda_mp_staging_lose(uct_cuda_mp_staging_t *staging);


/** The slot that a plan's slot number stands for. */
static inline unsigned
uct_cuda_mp_staging_slot(const uct_cuda_mp_staging_t *staging, unsigned slot)
{
    return (staging->next + slot) % UCT_CUDA_MP_STAGING_SLOTS;
}


END_C_DECLS

#endif
