/* SPDX-License-Identifier: BSD-3-Clause */
/* What ranks show of their memory, and have mapped of others'. */
#ifndef UCT_CUDA_COLL_MEMORY_H
#define UCT_CUDA_COLL_MEMORY_H

#include <uct/cuda/collective/state.h>

BEGIN_C_DECLS


void uct_cuda_coll_memory_hide(uct_cuda_coll_group_t *group, unsigned index);

ucs_status_t uct_cuda_coll_memory_show(call_t *call, const void *address,
                              const uct_cuda_memory_t *memory, size_t bytes,
                              uct_cuda_coll_memory_t *shown);

ucs_status_t uct_cuda_coll_memory_map(call_t *call,
                                      const uct_cuda_coll_plan_t *plan);

CUdeviceptr uct_cuda_coll_memory_address(const call_t *call, unsigned rank,
                                uct_cuda_coll_buffer_t buffer);

CUdeviceptr uct_cuda_coll_memory_relay(const uct_cuda_coll_group_t *group,
                                       int gpu);

void uct_cuda_coll_memory_free_relays(uct_cuda_coll_group_t *group);

void uct_cuda_coll_memory_leave(uct_cuda_coll_group_t *group);

ucs_status_t uct_cuda_coll_memory_enter(uct_cuda_coll_group_t *group,
                                        int device);

ucs_status_t uct_cuda_coll_memory_make_scratch(uct_cuda_coll_group_t *group,
                                               uint64_t size);

ucs_status_t uct_cuda_coll_memory_make_relays(uct_cuda_coll_group_t *group,
                                const uct_cuda_coll_plan_t *plan);


END_C_DECLS

#endif
