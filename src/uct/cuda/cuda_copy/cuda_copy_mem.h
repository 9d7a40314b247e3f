/* SPDX-License-Identifier: BSD-3-Clause */
/* Allocation of GPU memory and registration of host memory for cuda_copy. */
#ifndef UCT_CUDA_COPY_MEM_H
#define UCT_CUDA_COPY_MEM_H

#include <uct/cuda/base/end.h>
#include <ucs/memory/memory_type.h>
#include <ucs/type/status.h>

#include <stdbool.h>
#include <stddef.h>


/** Shall memory be allocated such that other nodes can map it over NVLink? */
typedef enum {
    UCT_CUDA_COPY_FABRIC_NO,
    UCT_CUDA_COPY_FABRIC_TRY, /**< Else as it comes */
    UCT_CUDA_COPY_FABRIC_ONLY
} uct_cuda_copy_fabric_t;


/** Memory allocated, or host memory registered. */
typedef struct uct_cuda_copy_memh uct_cuda_copy_memh_t;


/**
 * Allocate GPU or managed memory. Plain copies of it do not wait for the bytes
 * yet (uct_cuda_memory_sync_memops()).
 *
 * @param gpu        To allocate on; none: that of the current context.
 * @param use_inactive  May make a primary context active for it.
 * @param fabric     For GPU memory; in whole granules (2 MiB) then.
 * @param is_kept    GPU memory of no context, where the driver has it: a reset
 *                   of the device does not free it. In whole granules then.
 * @param hide_errors   Log failures at debug level only.
 * @param length_p   Bytes wanted; filled with the bytes allocated.
 *
 * @return UCS_OK, UCS_ERR_UNSUPPORTED (memory type), UCS_ERR_NO_DEVICE (no
 *         context), UCS_ERR_NO_MEMORY.
 */
ucs_status_t uct_cuda_copy_mem_alloc(ucs_memory_type_t type, uct_cuda_end_t gpu,
                                     bool use_inactive,
                                     uct_cuda_copy_fabric_t fabric,
                                     bool is_kept, bool hide_errors,
                                     size_t *length_p,
                                     void **address_p,
                                     uct_cuda_copy_memh_t **memh_p);

ucs_status_t uct_cuda_copy_mem_free(uct_cuda_copy_memh_t *memh);

/**
 * Register memory: page-locks plain host memory, so that copies run at the
 * link's speed; what the driver knows already needs nothing. Without a current
 * context nothing is done either, as with stock UCX. Memory that cannot be
 * page-locked stays as it is, and is told of once unless errors are hidden.
 */
ucs_status_t uct_cuda_copy_mem_register(void *address, size_t length,
                                        bool hide_errors,
                                        uct_cuda_copy_memh_t **memh_p);

void uct_cuda_copy_mem_unregister(uct_cuda_copy_memh_t *memh);

#endif
