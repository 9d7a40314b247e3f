/* SPDX-License-Identifier: BSD-3-Clause */
/* Prove that a collective plan computes its result without races. */
#ifndef UCT_CUDA_CHECK_COLLECTIVE_CHECK_H
#define UCT_CUDA_CHECK_COLLECTIVE_CHECK_H

#include <ucs/type/status.h>
#include <uct/cuda/plan/collective_plan.h>

BEGIN_C_DECLS


/**
 * Check a plan from its steps alone, independent of the planner:
 * - results: each byte of every rank's RECV is as the collective defines it: a
 *   byte of one rank's SEND, or the sum of this byte over all ranks, each added
 *   once and in one order on all ranks;
 * - order: if two steps touch the same byte and one of them writes, waits and
 *   queues make one end before the other begins;
 * - every byte read is written before, or comes from the caller; in place, the
 *   caller's bytes are not overwritten before they are read;
 * - bounds: each place is inside its buffer, and contains complete elements;
 * - waits name earlier steps, so no step waits forever;
 * - kernels read and write at most MAX_FAN places; a destination is a source or
 *   overlaps none.
 *
 * Allocates memory and is slow (quadratic in steps): for tests and debug
 * builds.
 *
 * @param error  Filled with a sentence naming step and rule when the result is
 *               UCS_ERR_INVALID_PARAM.
 * @return UCS_OK, UCS_ERR_INVALID_PARAM, UCS_ERR_NO_MEMORY.
 */
ucs_status_t uct_cuda_plan_coll_check(const uct_cuda_plan_coll_t *plan,
                                      char *error, size_t error_size);


END_C_DECLS

#endif
