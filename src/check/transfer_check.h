/* SPDX-License-Identifier: BSD-3-Clause */
/* Proves that a plan moves every byte once, and rightly in whatever order its
 * steps may run. */
#ifndef UCX_MP_CHECK_TRANSFER_CHECK_H
#define UCX_MP_CHECK_TRANSFER_CHECK_H

#include <uct/cuda/plan/transfer_plan.h>

BEGIN_C_DECLS


/**
 * Check a plan, knowing nothing of how it came about:
 * - destination bytes: each written exactly once, and with the source's byte of
 *   the same offset;
 * - order: what goes on to the destination from a staging slot was written
 *   there by a step that surely ended before, and is not overwritten before it
 *   was surely read;
 * - lanes: every step uses the lane between the places that it names;
 * - sizes: no copy is empty or leaves its slot; no slot is beyond the pool;
 * - waits name earlier steps.
 *
 * Allocates and is slow (quadratic in steps): for tests and debug builds.
 *
 * @param error  Filled with a sentence naming step and rule when the result is
 *               UCS_ERR_INVALID_PARAM.
 * @return UCS_OK, UCS_ERR_INVALID_PARAM, UCS_ERR_NO_MEMORY. A plan without
 *         paths must have no steps either.
 */
ucs_status_t uct_cuda_mp_plan_check(const uct_cuda_mp_plan_t *plan,
                                    char *error, size_t error_size);


END_C_DECLS

#endif
