/* SPDX-License-Identifier: BSD-3-Clause */
/* Prove that a plan moves every byte once, correctly in every possible order of
   its steps. */
#ifndef UCT_CUDA_CHECK_TRANSFER_CHECK_H
#define UCT_CUDA_CHECK_TRANSFER_CHECK_H

#include <uct/cuda/plan/transfer_plan.h>

BEGIN_C_DECLS


/**
 * Check a plan from its steps alone, independent of the planner:
 * - destination bytes: each is written exactly once, with the source's byte of
 *   the same offset;
 * - order: a staging slot is read only after the step that fills it has ended,
 *   and overwritten only after it was read;
 * - directed links: every step uses the link between the places that it names;
 * - sizes: no copy is empty or exceeds its slot; no slot is outside the pool;
 * - waits name earlier steps.
 *
 * Allocates memory and is slow (quadratic in steps): for tests and debug
 * builds.
 *
 * @param error  Filled with a sentence naming step and rule when the result is
 *               UCS_ERR_INVALID_PARAM.
 * @return UCS_OK, UCS_ERR_INVALID_PARAM, UCS_ERR_NO_MEMORY. A plan without
 *         paths must have no steps either.
 */
ucs_status_t uct_cuda_plan_check(const uct_cuda_plan_t *plan,
                                 char *error, size_t error_size);


END_C_DECLS

#endif
