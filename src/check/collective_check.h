/* SPDX-License-Identifier: BSD-3-Clause */
/* Proves that a collective plan gives its result and has no races. */
#ifndef UCX_MP_CHECK_COLLECTIVE_CHECK_H
#define UCX_MP_CHECK_COLLECTIVE_CHECK_H

#include <ucs/type/status.h>
#include <uct/cuda/plan/collective_plan.h>

BEGIN_C_DECLS


/**
 * Check a plan, knowing nothing of how it came about:
 * - results: each byte of every rank's RECV ends as what its collective says,
 *   a byte of one rank's SEND, or the sum of that byte of all ranks', each once
 *   and added in one order on all ranks;
 * - order: where two steps touch the same byte and one of them writes, one
 *   surely ends before the other begins, by waits and queues;
 * - what is read has been written, if it is not what the caller sent; in place
 *   that is never overwritten before;
 * - bounds: no place leaves its buffer, nor cuts an element;
 * - waits name earlier steps, so that none waits for ever;
 * - kernels read and write at most MAX_FAN places; a destination is a source
 *   or overlaps none.
 *
 * Allocates and is slow (quadratic in steps): for tests and debug builds.
 *
 * @param error  Filled with a sentence naming step and rule when the result is
 *               UCS_ERR_INVALID_PARAM.
 * @return UCS_OK, UCS_ERR_INVALID_PARAM, UCS_ERR_NO_MEMORY.
 */
ucs_status_t uct_cuda_coll_plan_check(const uct_cuda_coll_plan_t *plan,
                                      char *error, size_t error_size);


END_C_DECLS

#endif
