/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The planner: from the node, the configuration, what else is going on, and a
 * transfer, to a plan. A pure function; it knows nothing of CUDA.
 */
#ifndef UCT_CUDA_MP_PLANNER_H
#define UCT_CUDA_MP_PLANNER_H

#include <uct/cuda/multipath/plan.h>

BEGIN_C_DECLS


/** No plan is larger than this, bytes. */
#define UCT_CUDA_MP_PLAN_MAX_SIZE (1ul << 30)


/** Transfers of others that are under way on each lane, from or to the host
 *  included. */
typedef struct {
    bool     is_known; /**< Covers the whole node, not only this process */
    uint16_t queued;   /**< Transfers of this process between the same GPUs that
                            are ahead of this one: its own paths are filled
                            behind theirs */
    uint8_t  active[UCT_CUDA_MP_NUM_LANES];
} uct_cuda_mp_load_t;


/**
 * Largest transfer, bytes, that any one path could carry alone, and so that
 * every choice of paths has a plan for. Larger ones go piece by piece.
 */
size_t uct_cuda_mp_plan_max_size(const uct_cuda_mp_config_t *config);


/**
 * Plan a transfer between two GPUs.
 *
 * Allocates nothing, asks nobody, and gives the same plan for the same
 * arguments. Takes about 2 us for 4 paths of 16 chunks.
 *
 * @param load        NULL: nothing else is going on, as far as known.
 * @param src_device  Ordinal in @a topo. Anything that is no GPU of @a topo, or
 *                    equals @a dst_device, gives "one path is best".
 * @param size        Bytes, at most uct_cuda_mp_plan_max_size().
 * @param plan        Filled; num_paths is 0 when one plain copy is best.
 */
void uct_cuda_mp_plan_make(const uct_cuda_topo_t *topo,
                           const uct_cuda_mp_config_t *config,
                           const uct_cuda_mp_load_t *load, int src_device,
                           int dst_device, size_t size,
                           uct_cuda_mp_plan_t *plan);


/** The plan that is one plain copy: a single step. */
void uct_cuda_mp_plan_single(int src_device, int dst_device, size_t size,
                             uct_cuda_mp_plan_t *plan);


/**
 * Smallest size, bytes (within 7 %), for which some pair of GPUs would get a
 * plan under this load; SIZE_MAX if none ever does. Not fast.
 */
size_t uct_cuda_mp_plan_min_size(const uct_cuda_topo_t *topo,
                                 const uct_cuda_mp_config_t *config,
                                 const uct_cuda_mp_load_t *load,
                                 uct_cuda_mp_plan_t *scratch);


END_C_DECLS

#endif
