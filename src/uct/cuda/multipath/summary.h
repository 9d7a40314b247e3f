/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What an engine has done in its life, in one line at info level. Nothing is
 * counted unless that level is on.
 */
#ifndef UCT_CUDA_MP_SUMMARY_H
#define UCT_CUDA_MP_SUMMARY_H

#include <uct/cuda/plan/transfer_plan.h>

BEGIN_C_DECLS


typedef struct {
    uint64_t messages; /**< Of all sizes; added to by any thread */
    uint64_t split;    /**< Of these, over several paths */
    uint64_t direct;   /**< Bytes of those by their direct paths */
    uint64_t via[UCT_CUDA_NUM_ENDS]; /**< ... and over each other end */
    double   seconds;        /**< What the model expected of them */
    double   single_seconds; /**< ... and of as many plain copies */
} uct_cuda_mp_summary_t;


/** A plan has been submitted. */
void uct_cuda_mp_summary_add(uct_cuda_mp_summary_t *summary,
                             const uct_cuda_mp_plan_t *plan);

/** Says it, if there was any message. */
void uct_cuda_mp_summary_log(const uct_cuda_mp_summary_t *summary);


END_C_DECLS

#endif
