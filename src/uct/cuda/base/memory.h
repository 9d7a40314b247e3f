/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a pointer points to: host memory, or which GPU's, and in which
 * allocation.
 */
#ifndef UCT_CUDA_BASE_MEMORY_H
#define UCT_CUDA_BASE_MEMORY_H

#include <ucs/memory/memory_type.h>
#include <ucs/type/status.h>
#include <uct/cuda/base/end.h>

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>


/** Memory behind a pointer, as the driver knows it. */
typedef struct {
    ucs_memory_type_t  type;      /**< HOST, CUDA or CUDA_MANAGED. CUDA also
                                       if it is the host's, made with
                                       cuMemCreate: as stock UCX has it since
                                       1.18, no CPU touches it then */
    uct_cuda_end_t     end;       /**< A GPU, host memory, or host VMM memory */
    CUcontext          context;   /**< Owning context; NULL for pool and VMM
                                       memory, which belong to no context */
    CUdeviceptr        base;      /**< Start of the allocation, of what was
                                       registered, or of what was mapped into a
                                       reservation in one piece */
    size_t             length;    /**< Length of that, bytes */
    unsigned long long buffer_id; /**< Unique in this process's lifetime */
    bool               is_pinned; /**< Host memory that the driver knows */
} uct_cuda_memory_t;


/**
 * Look up the memory that @a address points to.
 *
 * Never fails: what the driver does not know is pageable host memory. Costs one
 * driver call (0.14 to 0.26 us on an H200 node), and one more (0.15 us) for
 * memory that belongs to no context.
 *
 * @param address  Any pointer.
 * @param length   Bytes that the caller is interested in; reported as the
 *                 allocation's length where there is none to report.
 * @param memory   Filled with the result.
 */
void uct_cuda_memory_query(const void *address, size_t length,
                           uct_cuda_memory_t *memory);


/**
 * Keep an answer for this thread's next uct_cuda_memory_place() of the address.
 *
 * A UCX that sees no frees asks about a buffer before each operation, and the
 * operation asks again. That one may have the answer, once: by the next the
 * memory may be another's. Where UCX sees frees it does not ask each time, and
 * nothing is kept.
 */
void uct_cuda_memory_remember(const void *address,
                              const uct_cuda_memory_t *memory);


/**
 * Where GPU memory is, for a copy: half the price of the whole answer. What is
 * of no context (made with cuMemCreate, or a pool's) is there for the copy, as
 * uct_cuda_memory_sync_memops() has it.
 *
 * @param end_p      A GPU, host memory, or host VMM memory.
 * @param context_p  Owning context; NULL if there is none.
 */
void uct_cuda_memory_place(const void *address, uct_cuda_end_t *end_p,
                           CUcontext *context_p);


/**
 * Wait for the program's synchronous copies to @a memory, and see to it that
 * those to come have ended when they return.
 *
 * The driver lets such copies return before the bytes are there (CUDA driver
 * API, "API synchronization behavior"); who reads the memory next, in another
 * stream or process, would then see old ones. Comes before everything that
 * touches memory of the program's. Nothing else that is queued is waited for.
 *
 * Sets CU_POINTER_ATTRIBUTE_SYNC_MEMOPS once an allocation (2 to 7 us on H100,
 * nothing for one that this thread knows). For memory made with cuMemCreate, or
 * of a pool, that is of no use: each call waits (2 us; 20 ms at most, in which
 * work of the program's in the legacy stream goes on holding it up, and then no
 * more before that is over).
 */
void uct_cuda_memory_sync_memops(const uct_cuda_memory_t *memory);

/** The same for the allocation around an address, of any kind. */
void uct_cuda_memory_sync(const void *address);

/** The same for memory of @a device that belongs to no context;
 *  uct_cuda_memory_place() does so. */
void uct_cuda_memory_sync_unowned(int device);

/** Has the current context's legacy stream, for which those of the program wait
 *  that are not CU_STREAM_NON_BLOCKING, nothing to do? Breaks no capture. */
bool uct_cuda_memory_legacy_is_idle(void);

/** Was memory that belongs to no context made with cuMemCreate? */
bool uct_cuda_memory_is_vmm(const void *address);

#endif
