/* SPDX-License-Identifier: BSD-3-Clause */
/* Reasons for a single plain copy: one list for logs, --plan and tests. */
#ifndef UCT_CUDA_PLAN_REASON_H
#define UCT_CUDA_PLAN_REASON_H

#include <ucs/sys/compiler_def.h>

BEGIN_C_DECLS


/** Why one plain copy carries a transfer. Admission gives the reasons up to
 *  TWO_CONTEXTS; the planner, or missing resources, the others. */
typedef enum {
    UCT_CUDA_PLAN_ADMITTED, /**< Several paths, or another single path */
    UCT_CUDA_PLAN_NO_OFF,
    UCT_CUDA_PLAN_NO_HIDDEN,
    UCT_CUDA_PLAN_NO_SAME_END,
    UCT_CUDA_PLAN_NO_INDEX,
    UCT_CUDA_PLAN_NO_MAPPING,
    UCT_CUDA_PLAN_NO_SMALL,
    UCT_CUDA_PLAN_NO_ALONE,
    UCT_CUDA_PLAN_NO_TWO_CONTEXTS,
    UCT_CUDA_PLAN_NO_NODE,
    UCT_CUDA_PLAN_NO_MIN_SIZE,
    UCT_CUDA_PLAN_NO_LINK,
    UCT_CUDA_PLAN_NO_GAIN,
    UCT_CUDA_PLAN_NO_RESOURCES,
    UCT_CUDA_PLAN_NO_LAST
} uct_cuda_plan_reason_t;


/** Return the reason as half a sentence for log lines. */
const char *uct_cuda_plan_reason_str(uct_cuda_plan_reason_t reason);


END_C_DECLS

#endif
