/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Planner of transfers: makes a plan from the node, the configuration, other
 * traffic, and the transfer. A pure function that uses no CUDA.
 */
#ifndef UCT_CUDA_PLAN_TRANSFER_PLANNER_H
#define UCT_CUDA_PLAN_TRANSFER_PLANNER_H

#include <uct/cuda/plan/knowledge.h>
#include <uct/cuda/plan/transfer_plan.h>

BEGIN_C_DECLS


/** Smaller transfers never probe the node, which would start NVML; they use
 *  one path until a larger one has come. Bytes. */
#define UCT_CUDA_PLAN_LEARN_MIN_SIZE (256ul << 10)


/** Maximum size of a plan, bytes. */
#define UCT_CUDA_PLAN_MAX_SIZE (1ul << 30)


/** Return the largest transfer with a plan for every choice of paths, bytes:
 *  one that each path could carry alone. Larger transfers go piece by piece. */
size_t uct_cuda_plan_max_size(const uct_cuda_plan_config_t *config);

/** Return whether a transfer is below MULTIPATH_MIN_SIZE, as set or, with
 *  MULTIPATH=y, by default. */
bool uct_cuda_plan_is_below_min_size(const uct_cuda_plan_config_t *config,
                                     size_t size);

/**
 * Plan a transfer between two GPUs, or between page-locked host memory and a
 * GPU with relays adding their PCIe links. The user's variables have priority
 * over the model.
 *
 * Allocates nothing, makes no driver call, and gives equal plans for equal
 * arguments. Takes about 2 us for 4 paths of 16 chunks.
 *
 * @param src   GPU of the topology, or host memory. Other ends, or src equal to
 *              @a dst, give no plan.
 * @param size  Bytes, at most uct_cuda_plan_max_size().
 * @param plan  Filled; num_paths is 0 if a plain copy is best, for the given
 *              reason. It is 1 for round robin in a window, or if the user has
 *              set one path.
 */
void uct_cuda_plan_make(const uct_cuda_plan_knowledge_t *know,
                        uct_cuda_end_t src, uct_cuda_end_t dst, size_t size,
                        uct_cuda_plan_t *plan);


/**
 * Return the size of equal pieces, bytes, for a transfer larger than @a
 * largest; a smaller transfer is one piece.
 */
size_t uct_cuda_plan_piece_size(size_t size, size_t largest);


END_C_DECLS

#endif
