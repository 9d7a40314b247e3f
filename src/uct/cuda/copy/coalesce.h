/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Coalescing of small copies to and from a peer's GPU, posted one after another
 * or as a list; the local end is GPU memory or page-locked. While two copies of
 * their stream are running, later ones are collected and submitted together: by
 * one driver call if available, with one event after them. Blocks contiguous in
 * both memories become one copy.
 *
 * A single copy costs a call (1.9 us), an event (0.2) and a query (1.4), and
 * the GPU 2.5 us of set-up, on H200; 64 KiB take less time.
 */
#ifndef UCT_CUDA_COPY_COALESCE_H
#define UCT_CUDA_COPY_COALESCE_H

#include <uct/cuda/base/queue.h>
#include <uct/cuda/copy/copy.h>
#include <uct/cuda/copy/kernel.h>
#include <uct/cuda/multipath/multipath.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>


/** Largest block, bytes: the copy of a larger one takes longer than its
 *  calls */
#define UCT_CUDA_COPY_COALESCE_MAX_SIZE (1ul << 20)

/** Blocks and bytes submitted at once, to be copied while the next ones come
 *  in. The first groups are smaller. By hand 1,000 blocks of 64 KiB in
 *  groups of 8, 32, 128 are copied at 96, 106, 99 GB/s, 200 of 1 MiB in
 *  groups of 32 at 364, one by one at 25 and 205 (test/byhand/blocks, H200). */
#define UCT_CUDA_COPY_COALESCE_MAX_COUNT 128
#define UCT_CUDA_COPY_COALESCE_MAX_BYTES (16ul << 20)

/** Blocks of a list for one kernel, if uniform. */
#define UCT_CUDA_COPY_COALESCE_MAX_UNIFORM UCT_CUDA_COPY_KERNEL_MAX_UNIFORM


typedef struct uct_cuda_copy_group uct_cuda_copy_group_t;

/** Coalescing for a queue; zeroed, except for the settings filled in by the
 *  user. */
typedef struct {
    uct_cuda_queue_t      *queue;
    /** Setting: engine for larger blocks */
    uct_cuda_mp_engine_t  *engine;
    /** Setting: maximum thread blocks over PCIe, twice as many between GPUs;
     *  0: use no kernel */
    unsigned              kernel_blocks;
    bool                  enable_cache;  /**< Setting */
    /** May load the copy kernel; otherwise uses it only if already loaded */
    bool                  loads_kernels;
    uct_cuda_copy_group_t *open;         /**< NULL: no blocks are waiting */
    uct_cuda_copy_group_t *idle;
    uct_cuda_copy_group_t *all;
    unsigned              max_count;   /**< Blocks of the next group */
    unsigned              last_count;  /**< Blocks of the last group */
    /** A block was added since the last check */
    bool                  is_fed;
    unsigned              waited;      /**< Checks skipped in a row */
    /** Time of the last block (uct_cuda_now_ns()) */
    uint64_t              fed;
    pthread_t             poster;      /**< Thread of the last block */
    unsigned              streak;      /**< Blocks added in a row before it */
    bool                  is_threaded; /**< Another thread makes progress */
    /** Small blocks so far, up to a limit */
    unsigned              num_small;
} uct_cuda_copy_coalescer_t;


/** Start coalescing for a queue. From now on the queue submits the collected
 *  blocks before it waits. The blocks' completions get the errors. */
void uct_cuda_copy_coalesce_init(uct_cuda_copy_coalescer_t *coalescer,
                                 uct_cuda_queue_t *queue);

/**
 * Add a block in the same allocations as the previous one, with a few
 * comparisons. The first such block of an allocation costs a driver call.
 *
 * @param has_more  At least one more block follows.
 *
 * @param is_next  Block of a list whose buffers were all checked when its first
 *                 block was added.
 * @return true: added, and its completion will be called; false: not added,
 *         call uct_cuda_copy_coalesce_add().
 */
bool uct_cuda_copy_coalesce_follow(uct_cuda_copy_coalescer_t *coalescer,
                                   const uct_cuda_copy_t *copy, bool has_more,
                                   bool is_next);

/**
 * Add a block if it is small and follows others.
 *
 * @param stream    Stream for it; its context is current.
 * @param device    Device of that context.
 * @param copy      Copy with its local end located. If that memory belongs to
 *                  no context, the caller synchronizes the next block put from
 *                  it (base/memory.h).
 * @param has_more  At least one more block follows, so the first one waits,
 *                  too.
 * @return UCS_INPROGRESS: added, and its completion will be called;
 *         UCS_ERR_UNSUPPORTED: post it by itself (all collected blocks were
 *         submitted); or as uct_cuda_op_get() and uct_cuda_node_cache_get().
 */
ucs_status_t uct_cuda_copy_coalesce_add(uct_cuda_copy_coalescer_t *coalescer,
                                        uct_cuda_stream_t *stream, int device,
                                        const uct_cuda_copy_t *copy,
                                        bool has_more);

/** Stop coalescing, after the queue's operations have ended. */
void uct_cuda_copy_coalesce_cleanup(uct_cuda_copy_coalescer_t *coalescer);

#endif
