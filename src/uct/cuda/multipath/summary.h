/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Summary of an engine's life, one line at info level. Nothing is counted
 * unless that level is on.
 */
#ifndef UCT_CUDA_MULTIPATH_SUMMARY_H
#define UCT_CUDA_MULTIPATH_SUMMARY_H

#include <uct/cuda/plan/transfer_plan.h>

BEGIN_C_DECLS


typedef struct {
    uint64_t messages; /**< Of all sizes; updated by any thread */
    uint64_t split;    /**< Messages over several paths */
    uint64_t direct;   /**< Their bytes over direct paths */
    uint64_t via[UCT_CUDA_NUM_ENDS]; /**< Their bytes over each relay */
    double   seconds;        /**< Their modelled time */
    double   single_seconds; /**< Modelled time of plain copies instead */
} uct_cuda_mp_summary_t;


/** Add the bytes and times of a submitted plan. The caller counts messages and
 *  split. */
void uct_cuda_mp_summary_add(uct_cuda_mp_summary_t *summary,
                             const uct_cuda_plan_t *plan);

/** Log the line if there was any message. */
void uct_cuda_mp_summary_log(const uct_cuda_mp_summary_t *summary);


END_C_DECLS

#endif
