/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which transfers the engine takes, and why it takes no other: the first phase
 * of each, before anything is allocated, mapped or created for it.
 */
#ifndef UCT_CUDA_MP_ADMIT_H
#define UCT_CUDA_MP_ADMIT_H

#include <uct/cuda/plan/reason.h>
#include <uct/cuda/run/request.h>

BEGIN_C_DECLS


/** Sizes of transfers of one kind that are worth a plan, bytes, and what is
 *  known of those ahead. */
typedef struct {
    bool     is_off;         /**< MULTIPATH=n */
    size_t   min_size;       /**< Behind others; SIZE_MAX: none ever gains */
    size_t   alone_min_size; /**< With nothing ahead of it; 0: unknown */
    unsigned queued;         /**< As in uct_cuda_mp_load_t */
    unsigned window;
} uct_cuda_mp_thresholds_t;


/** Says yes or no by these alone. Pure. */
uct_cuda_mp_reason_t
uct_cuda_mp_admit_by(const uct_cuda_mp_thresholds_t *thresholds,
                     const uct_cuda_mp_request_t *request);

/** Why a transfer is one plain copy, at debug level. */
void uct_cuda_mp_log_one_path(const uct_cuda_mp_request_t *request,
                              uct_cuda_mp_reason_t reason);


END_C_DECLS

#endif
