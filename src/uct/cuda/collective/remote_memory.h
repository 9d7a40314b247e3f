/* SPDX-License-Identifier: BSD-3-Clause */
/* GPU memory that processes of a node open to each other for MPI windows. The
 * functions are those of collective_api.h. */
#ifndef UCT_CUDA_COLLECTIVE_REMOTE_MEMORY_H
#define UCT_CUDA_COLLECTIVE_REMOTE_MEMORY_H

#include <uct/cuda/collective_api.h>


int uct_cuda_coll_remote_export(const void *address, size_t size,
                                char handle[UCT_CUDA_COLL_API_HANDLE]);

void uct_cuda_coll_remote_release(char handle[UCT_CUDA_COLL_API_HANDLE]);

uint64_t uct_cuda_coll_remote_map(const char handle[UCT_CUDA_COLL_API_HANDLE],
                                  uct_cuda_coll_mapping_t **mapping_p,
                                  void **context_p, int *is_copied_p);

void uct_cuda_coll_remote_unmap(uct_cuda_coll_mapping_t *mapping);

#endif
