/* SPDX-License-Identifier: BSD-3-Clause */
/* Allocation of GPU memory and registration of host memory for cuda_copy. */
#ifndef UCT_CUDA_COPY_MEM_H
#define UCT_CUDA_COPY_MEM_H

#include <uct/cuda/base/end.h>
#include <ucs/memory/memory_type.h>
#include <ucs/type/status.h>

#include <stdbool.h>
#include <stddef.h>


/** Allocation of memory that other nodes can map over NVLink. */
typedef enum {
    UCT_CUDA_COPY_FABRIC_NO,
    UCT_CUDA_COPY_FABRIC_TRY, /**< Otherwise plain memory */
    UCT_CUDA_COPY_FABRIC_ONLY
} uct_cuda_copy_fabric_t;


/** User of allocated memory. */
typedef enum {
    UCT_CUDA_COPY_FOR_PROGRAM,
    /** UCP, which keeps it for good: a reset of the device must not free it.
     *  GPU memory without context if the driver supports it; in whole granules
     *  then. */
    UCT_CUDA_COPY_FOR_UCP,
    /** UCP, which frees it at once, in the program's calls: freeing it does not
     *  wait for the GPU */
    UCT_CUDA_COPY_FOR_PROBE
} uct_cuda_copy_user_t;


/** Allocated memory, or registered host memory. */
typedef struct uct_cuda_copy_memh uct_cuda_copy_memh_t;


/**
 * Allocate GPU or managed memory. Plain copies of it may return before
 * completion (see uct_cuda_memory_sync_memops()).
 *
 * @param gpu        GPU to allocate on; none: that of the current context.
 * @param use_inactive  A primary context may be activated for it.
 * @param fabric     For GPU memory; in whole granules (2 MiB) then.
 * @param hide_errors   Log failures at debug level only.
 * @param length_p   Bytes requested; filled with the bytes allocated.
 * @return UCS_OK, UCS_ERR_UNSUPPORTED (memory type), UCS_ERR_NO_DEVICE (no
 *         context), UCS_ERR_NO_MEMORY.
 */
ucs_status_t uct_cuda_copy_mem_alloc(ucs_memory_type_t type, uct_cuda_end_t gpu,
                                     bool use_inactive,
                                     uct_cuda_copy_fabric_t fabric,
                                     uct_cuda_copy_user_t user,
                                     bool hide_errors,
                                     size_t *length_p,
                                     void **address_p,
                                     uct_cuda_copy_memh_t **memh_p);

ucs_status_t uct_cuda_copy_mem_free(uct_cuda_copy_memh_t *memh);

/** Register memory: plain host memory is page-locked, so that copies run at
 *  the link's speed; memory known to the driver needs no work. As in stock
 *  UCX, nothing is done without a current context. Memory that cannot be
 *  page-locked stays usable; this is reported once unless errors are hidden. */
ucs_status_t uct_cuda_copy_mem_register(void *address, size_t length,
                                        bool hide_errors,
                                        uct_cuda_copy_memh_t **memh_p);

void uct_cuda_copy_mem_unregister(uct_cuda_copy_memh_t *memh);

#endif
