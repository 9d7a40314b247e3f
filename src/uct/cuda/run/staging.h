/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Staging memory: one allocation for each GPU or NUMA node, divided into equal
 * slots used in round robin.
 */
#ifndef UCT_CUDA_RUN_STAGING_H
#define UCT_CUDA_RUN_STAGING_H

#include <uct/cuda/base/driver.h>
#include <uct/cuda/plan/transfer_plan.h>

#include <sys/types.h>

BEGIN_C_DECLS


/** Staging memories of an engine: one for each GPU, then one for each NUMA
 *  node. */
#define UCT_CUDA_RUN_NUM_STAGING (UCT_CUDA_MAX_GPUS + UCT_CUDA_TOPO_MAX_NUMA)


typedef struct {
    /** Event after the last copy out of the slot; NULL: none */
    CUevent drained;
    int     device;      /**< Device of the event's context */
    bool    is_borrowed; /**< The slot must not release it */
} uct_cuda_run_slot_t;


typedef struct {
    CUdeviceptr         base;      /**< 0: not allocated */
    uct_cuda_end_t      end;       /**< GPU, or host memory */
    int                 home;      /**< Device of the context it belongs to */
    pid_t               owner;     /**< Process that has it mapped */
    size_t              slot_size; /**< Bytes */
    unsigned            next;      /**< First slot of the next plan */
    uct_cuda_run_slot_t slots[UCT_CUDA_PLAN_STAGING_SLOTS];
    uint64_t            epoch; /**< Epoch of the resources at the last use */
} uct_cuda_run_staging_t;


/** Return the number of the staging memory at an end, below
 *  UCT_CUDA_RUN_NUM_STAGING. -1: none, for a direct path and for NUMA nodes
 *  beyond the limit. */
static inline int uct_cuda_run_staging_number(uct_cuda_end_t via, int numa)
{
    if (uct_cuda_end_is_gpu(via)) {
        return uct_cuda_end_device(via);
    }

    return (uct_cuda_end_is_host(via) && (numa < UCT_CUDA_TOPO_MAX_NUMA)) ?
                   UCT_CUDA_MAX_GPUS + numa :
                   -1;
}


/**
 * Allocate GPU memory in the current context, or page-locked memory for all
 * contexts, on the NUMA node if possible.
 *
 * @param end   GPU, or host memory.
 * @param numa  NUMA node of host memory.
 * @param home  Device of the current context.
 * @return UCS_OK: @a staging is filled. Otherwise it is unchanged:
 *         UCS_ERR_NO_MEMORY (not logged), or another error of the driver
 *         (logged).
 */
ucs_status_t uct_cuda_run_staging_alloc(uct_cuda_run_staging_t *staging,
                                        uct_cuda_end_t end, int numa, int home,
                                        size_t slot_size);


/** Free the memory, if any. Events are released by the caller. For a GPU's
 *  memory its context must be current. */
void uct_cuda_run_staging_free(uct_cuda_run_staging_t *staging);


/** Drop memory whose context is gone: GPU memory and the lock of host memory
 *  went with it; the rest is freed. */
void uct_cuda_run_staging_lose(uct_cuda_run_staging_t *staging);


/** Return the actual slot for a plan's slot number. */
static inline unsigned
uct_cuda_run_staging_slot(const uct_cuda_run_staging_t *staging, unsigned slot)
{
    return (staging->next + slot) % UCT_CUDA_PLAN_STAGING_SLOTS;
}


END_C_DECLS

#endif
