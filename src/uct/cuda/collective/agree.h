/* SPDX-License-Identifier: BSD-3-Clause */
/* What ranks tell each other on the page, and read there. */
#ifndef UCT_CUDA_COLL_AGREE_H
#define UCT_CUDA_COLL_AGREE_H

#include <uct/cuda/collective/state.h>

BEGIN_C_DECLS


void uct_cuda_coll_agree_waits(call_t *call, unsigned rank, const char *wanted);

ucs_status_t uct_cuda_coll_agree_meet(call_t *call, uct_cuda_coll_phase_t phase,
                              ucs_status_t status);

ucs_status_t uct_cuda_coll_agree_idle(void *arg);

bool uct_cuda_coll_agree_is_whole(call_t *call);

uct_cuda_coll_result_t uct_cuda_coll_agree(call_t *call);

void uct_cuda_coll_agree_tell_topo(uct_cuda_coll_group_t *group);

void uct_cuda_coll_agree_find_gpus(uct_cuda_coll_group_t *group);


END_C_DECLS

#endif
