/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory block of the module, page-locked for all contexts. Its registration
 * ends with the context it was made in, after the driver has waited for copies
 * in other contexts (H200, driver 580); the block stays in place and is locked
 * again.
 */
#ifndef UCT_CUDA_BASE_HOST_HOST_BLOCK_H
#define UCT_CUDA_BASE_HOST_HOST_BLOCK_H

#include <ucs/sys/compiler_def.h>
#include <ucs/type/status.h>

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

BEGIN_C_DECLS


/**
 * Map memory that is not shared with a forked child: after a fork the next
 * write would move a shared page away from the one known to the GPU.
 *
 * @return NULL: no memory.
 */
void *uct_cuda_host_map(size_t size);


/** Initially zeroed. Not thread safe. */
typedef struct {
    char               *memory;    /**< NULL: not mapped yet */
    bool               is_known;   /**< The state in context is known */
    bool               is_locked;  /**< Locked in context */
    CUcontext          context;
    unsigned long long context_id;
} uct_cuda_host_block_t;


/**
 * Map the block if needed and page-lock it, with a context current. A failed
 * lock is not tried again in the same context.
 *
 * @param size  Bytes, the same in each call.
 * @return UCS_OK; UCS_ERR_NO_MEMORY, the driver's error (debug message), and
 *         UCS_ERR_UNSUPPORTED in later calls after one.
 */
ucs_status_t uct_cuda_host_block_lock(uct_cuda_host_block_t *block,
                                      size_t size);


END_C_DECLS

#endif
