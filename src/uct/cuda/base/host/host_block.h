/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A block of memory of the module's own, page-locked for all contexts. Its
 * registration goes with the context that it was made in; the block stays where
 * it is and is locked anew.
 */
#ifndef UCT_CUDA_BASE_HOST_HOST_BLOCK_H
#define UCT_CUDA_BASE_HOST_HOST_BLOCK_H

#include <ucs/sys/compiler_def.h>
#include <ucs/type/status.h>

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

BEGIN_C_DECLS


/** Map memory that a child of the program does not share: a page that both have
 *  is another one after the next write, and the GPU has the old one.
 *
 *  @return NULL: there is none. */
void *uct_cuda_host_map(size_t size);


/** Zeroed to begin with. Not thread safe. */
typedef struct {
    char               *memory;    /**< NULL: not mapped yet */
    bool               is_known;   /**< What has become of it in ... */
    bool               is_locked;  /**< ... this context: */
    CUcontext          context;
    unsigned long long context_id;
} uct_cuda_host_block_t;


/**
 * See to it that the block is there and page-locked; with a context current.
 * One that cannot be locked is tried once a context.
 *
 * @param size  Bytes, the same each time.
 *
 * @return UCS_OK; UCS_ERR_NO_MEMORY, the driver's error (debug message), and
 *         UCS_ERR_UNSUPPORTED when asked again after one.
 */
ucs_status_t uct_cuda_host_block_lock(uct_cuda_host_block_t *block,
                                      size_t size);


END_C_DECLS

#endif
