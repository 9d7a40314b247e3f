/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Admission: the first phase of a transfer. It decides whether the engine may
 * carry out the transfer, before any resource is allocated, mapped or created.
 */
#ifndef UCT_CUDA_MULTIPATH_ADMIT_H
#define UCT_CUDA_MULTIPATH_ADMIT_H

#include <uct/cuda/plan/reason.h>
#include <uct/cuda/run/request.h>

BEGIN_C_DECLS


/** Smallest sizes with a plan for one kind of transfers, bytes, and the
 *  transfers ahead. */
typedef struct {
    bool     is_off;          /**< MULTIPATH=n */
    size_t   min_size;        /**< In any case; SIZE_MAX: none gains */
    size_t   alone_min_size;  /**< With none ahead; 0: unknown */
    size_t   behind_min_size; /**< With others; 0: unknown */
    unsigned queued;          /**< As in uct_cuda_plan_load_t */
    unsigned window;
} uct_cuda_mp_thresholds_t;


/** Return UCT_CUDA_PLAN_ADMITTED if the engine takes the transfer, or the
 *  reason why not, by the given values only. A pure function. */
uct_cuda_plan_reason_t
uct_cuda_mp_admit_by(const uct_cuda_mp_thresholds_t *thresholds,
                     const uct_cuda_run_request_t *request);

/** Log at debug level why a transfer is one plain copy. */
void uct_cuda_mp_log_one_path(const uct_cuda_run_request_t *request,
                              uct_cuda_plan_reason_t reason);


END_C_DECLS

#endif
