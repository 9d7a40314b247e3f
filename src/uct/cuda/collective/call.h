/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls from their beginning to their end. */
#ifndef UCT_CUDA_COLL_CALL_H
#define UCT_CUDA_COLL_CALL_H

#include <uct/cuda/collective/state.h>

BEGIN_C_DECLS


void uct_cuda_coll_programs_drop(uct_cuda_coll_group_t *group);


END_C_DECLS

#endif
