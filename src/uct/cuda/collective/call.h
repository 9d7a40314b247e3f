/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls of a group, as described in collective_api.h. */
#ifndef UCT_CUDA_COLLECTIVE_CALL_H
#define UCT_CUDA_COLLECTIVE_CALL_H

#include <ucs/sys/compiler_def.h>
#include <uct/cuda/collective_api.h>

BEGIN_C_DECLS


void uct_cuda_coll_counts(uint64_t *done_p, uint64_t *staged_p);

void uct_cuda_coll_group_decline(uct_cuda_coll_group_t *group, int kind,
                                 uct_cuda_coll_reason_t reason);

uct_cuda_coll_result_t
uct_cuda_coll_group_collective(uct_cuda_coll_group_t *group,
                               const uct_cuda_coll_call_t *what, char *why,
                               size_t why_size);


END_C_DECLS

#endif
