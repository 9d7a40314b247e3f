/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory behind a pointer: host memory or a GPU's, and its allocation. */
#ifndef UCT_CUDA_BASE_MEMORY_H
#define UCT_CUDA_BASE_MEMORY_H

#include <ucs/memory/memory_type.h>
#include <uct/cuda/base/end.h>
#include <uct/cuda/base/pointer.h>

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>


/** Memory behind a pointer, as known to the driver. */
typedef struct {
    /** HOST, CUDA or CUDA_MANAGED. CUDA also for host memory from
     *  cuMemCreate: no CPU accesses it then, as in stock UCX since 1.18 */
    ucs_memory_type_t  type;
    /** GPU that copies the memory, not always the one that it lies on
     *  (base/pointer.h); host memory, or host VMM memory */
    uct_cuda_end_t     end;
    /** Owning context; NULL for pool and VMM memory, which belong to no
     *  context */
    CUcontext          context;
    /** Start of the allocation, of the registration, or of the mapped part
     *  of a reservation */
    CUdeviceptr        base;
    size_t             length;    /**< Its length, bytes */
    unsigned long long buffer_id; /**< Unique in this process's lifetime */
    bool               is_pinned; /**< Host memory known to the driver */
} uct_cuda_memory_t;


/**
 * Look up the memory behind @a address.
 *
 * Never fails: memory unknown to the driver is pageable host memory. Costs one
 * driver call (0.14 to 0.26 us on an H200 node), and another one (0.15 us) for
 * memory without context.
 *
 * @param address  Any pointer.
 * @param length   Bytes of interest to the caller; used as the length if there
 *                 is no allocation to report.
 * @param memory   Filled with the result.
 */
void uct_cuda_memory_query(const void *address, size_t length,
                           uct_cuda_memory_t *memory);


/**
 * Keep the driver's answer for this thread's next uct_cuda_memory_place() of
 * the address.
 *
 * A UCX that sees no frees queries a buffer before each operation, and the
 * operation queries it again. That second query may use the answer, once: later
 * the memory may have been replaced. A UCX that sees frees does not query each
 * time, and nothing is kept.
 */
void uct_cuda_memory_remember(const void *address,
                              const uct_cuda_memory_t *memory);


/** Drop this thread's kept answer: an operation did not call
 *  uct_cuda_memory_place(). */
void uct_cuda_memory_forget(void);


/**
 * Look up the location of GPU memory for a copy, at half the cost of
 * uct_cuda_memory_query(). Memory without context (from cuMemCreate or a pool)
 * is synchronized for the copy, see uct_cuda_memory_sync_memops().
 *
 * @param end_p      GPU, host memory, or host VMM memory.
 * @param context_p  Owning context; NULL: none.
 */
void uct_cuda_memory_place(const void *address, uct_cuda_end_t *end_p,
                           CUcontext *context_p);


/**
 * Wait for the program's synchronous copies to @a memory, and make later ones
 * complete before they return.
 *
 * The driver lets such copies return before the data has arrived (CUDA driver
 * API, "API synchronization behavior"); a read in another stream or process
 * would get old data. Call this before any access to the program's memory. Does
 * not wait for other queued work.
 *
 * Sets CU_POINTER_ATTRIBUTE_SYNC_MEMOPS once for each allocation (2 to 7 us on
 * H100; nothing if this thread knows the allocation). Memory from cuMemCreate
 * or a pool does not support it: each call waits (2 us; at most 20 ms while the
 * program's work in the legacy stream delays it, and after that not again until
 * the work has ended).
 */
void uct_cuda_memory_sync_memops(const uct_cuda_memory_t *memory);

/** Synchronize the allocation containing an address, of any kind, like
 *  uct_cuda_memory_sync_memops(). */
void uct_cuda_memory_sync(const void *address);

/**
 * Synchronize memory of @a device without context; uct_cuda_memory_place() does
 * this.
 */
void uct_cuda_memory_sync_unowned(int device);

/** Return whether the legacy stream of the current context is idle. Streams
 *  of the program without CU_STREAM_NON_BLOCKING wait for it. Leaves
 *  captures intact. */
bool uct_cuda_memory_legacy_is_idle(void);

/** Return whether memory is of a pool that was not created for sharing, like
 *  the pool of cudaMallocAsync, or that releases freed memory. */
bool uct_cuda_memory_is_closed(const uct_cuda_pointer_sharing_t *sharing);

/** Log once that memory cannot be shared, and the remedy. */
void uct_cuda_memory_report_closed(const void *address);

#endif
