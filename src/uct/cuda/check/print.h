/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans as readable text. */
#ifndef UCT_CUDA_CHECK_PRINT_H
#define UCT_CUDA_CHECK_PRINT_H

#include <uct/cuda/plan/collective_plan.h>
#include <uct/cuda/plan/transfer_plan.h>

#include <stdio.h>

BEGIN_C_DECLS


/** Print the paths with their shares; with @a steps also every step. */
void uct_cuda_plan_print(const uct_cuda_plan_t *plan, bool steps,
                         FILE *stream);


/** Print one summary line; with @a steps also every step. */
void uct_cuda_plan_coll_print(const uct_cuda_plan_coll_t *plan, bool steps,
                              FILE *stream);


END_C_DECLS

#endif
