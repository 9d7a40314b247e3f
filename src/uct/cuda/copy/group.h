/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Small copies to and from a peer's GPU that are posted one after another, as
 * the blocks of a list are; here is memory of a GPU or what is page-locked.
 * While one of their stream is under way, those that follow are gathered, and
 * go to the driver together: as one call where it has one, with one event
 * behind them. Blocks that continue each other in both memories are one copy.
 *
 * A copy alone costs a call (2.9 us), an event (0.35) and a question (1.5), on
 * H200; 64 KiB are copied in less than one of them.
 */
#ifndef UCT_CUDA_COPY_GROUP_H
#define UCT_CUDA_COPY_GROUP_H

#include <uct/cuda/base/queue.h>
#include <uct/cuda/copy/copy.h>
#include <uct/cuda/copy/kernel.h>
#include <uct/cuda/multipath/multipath.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>


/** A block, bytes: larger ones take longer than their calls */
#define UCT_CUDA_GATHER_MAX_SIZE (1ul << 20)

/** Blocks and bytes that go to the driver at once: it is to copy them while the
 *  next ones come in. The first groups are smaller. By hand 1,000 blocks of 64
 *  KiB in groups of 8, 32, 128 are copied at 96, 106, 99 GB/s, 200 of 1 MiB in
 *  groups of 32 at 364, one by one at 25 and 205 (test/byhand/blocks, H200). */
#define UCT_CUDA_GATHER_MAX_COUNT 128
#define UCT_CUDA_GATHER_MAX_BYTES (16ul << 20)

/** Blocks of a list that a kernel takes, if they are alike. */
#define UCT_CUDA_GATHER_MAX_ALIKE UCT_CUDA_COPIER_MAX_ALIKE


typedef struct uct_cuda_gather_group uct_cuda_gather_group_t;

/** Who gathers for a queue; zeros, but for the settings, which are the user's
 *  to fill in. */
typedef struct {
    uct_cuda_queue_t        *queue;
    uct_cuda_mp_engine_t    *engine;       /**< Setting: larger ones go by it */
    unsigned                kernel_blocks; /**< Setting: over PCIe; else twice
                                                that */
    bool                    enable_cache;  /**< Setting */
    bool                    loads_kernels; /**< Or has those that are there */
    uct_cuda_gather_group_t *open;         /**< NULL: nothing waits */
    uct_cuda_gather_group_t *idle;
    uct_cuda_gather_group_t *all;
    unsigned                max_count;   /**< Blocks of the next group */
    bool                    is_fed;      /**< Since last asked ... */
    unsigned                waited;      /**< ... so many times in a row */
    uint64_t                fed;         /**< When (uct_cuda_now_ns()), ... */
    pthread_t               poster;      /**< ... by whom, ... */
    unsigned                streak;      /**< ... after so many others */
    bool                    is_threaded; /**< Another thread makes progress */
    unsigned                num_small;   /**< Blocks so far, up to some */
} uct_cuda_gather_t;


/** Gather for a queue, which from now on submits blocks before anything is
 *  waited for. Errors are told to the blocks' completions. */
void uct_cuda_gather_init(uct_cuda_gather_t *gather, uct_cuda_queue_t *queue);

/**
 * Gather a block that lies in the same allocations as the one before: a few
 * comparisons, no question to the driver.
 *
 * @param has_more  Others follow for sure.
 *
 * @param is_next  Of a list, all of which was there when its first was added.
 *
 * @return Whether it was; its completion is told then.
 */
bool uct_cuda_gather_follow(uct_cuda_gather_t *gather,
                            const uct_cuda_copy_t *copy, bool has_more,
                            bool is_next);

/**
 * Gather a block, if it is one to gather: small, and behind others.
 *
 * @param stream  The stream for it; its context is current.
 * @param device  Of that context.
 * @param copy    Its local end has been placed. If that belongs to no context,
 *                the next block that is put from it has to be waited for by
 *                itself (base/memory.h).
 * @param has_more  Others follow for sure, so the first one waits for them too.
 *
 * @return UCS_INPROGRESS; UCS_ERR_UNSUPPORTED: it goes by itself, behind all
 *         that were gathered; or as uct_cuda_node_cache_get().
 */
ucs_status_t uct_cuda_gather_add(uct_cuda_gather_t *gather,
                                 uct_cuda_stream_t *stream, int device,
                                 const uct_cuda_copy_t *copy, bool has_more);

/** The queue is going, and its operations are over. */
void uct_cuda_gather_cleanup(uct_cuda_gather_t *gather);

#endif
