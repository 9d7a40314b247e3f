/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Small blocks that lie apart, copied by a kernel: where a copy engine takes a
 * microsecond and more for each, eight blocks of threads fill PCIe with 4 KiB
 * ones (one H100: docs/results/blocks.md).
 *
 * A kernel needs room on the GPU's processors, which the program may keep full
 * for as long as it likes, waiting for the very blocks. So a launch may be
 * called off while it waits for room, and its blocks be copied otherwise.
 */
#ifndef UCT_CUDA_COPY_KERNEL_H
#define UCT_CUDA_COPY_KERNEL_H

#include <kernels/copy_args.h>
#include <uct/cuda/base/queue.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>


/** Copies a list, and those that are not alike. */
#define UCT_CUDA_COPIER_MAX_ALIKE 480
#define UCT_CUDA_COPIER_MAX       128

/** Most blocks of threads of a kernel: UCX_CUDA_IPC_KERNEL_BLOCKS. */
#define UCT_CUDA_COPIER_MAX_BLOCKS 64
#define UCT_CUDA_COPIER_MAX_WARPS \
    (UCT_CUDA_COPIER_MAX_BLOCKS * UCX_MP_COPY_WARPS)


/** Copies that go together. Alike are those of one length whose addresses fit
 *  the kernel for more of them. */
typedef struct {
    unsigned    count; /**< 0 at first */
    bool        is_alike;
    CUdeviceptr dst[UCT_CUDA_COPIER_MAX_ALIKE];
    CUdeviceptr src[UCT_CUDA_COPIER_MAX_ALIKE];
    size_t      length[UCT_CUDA_COPIER_MAX_ALIKE]; /**< Bytes */
} uct_cuda_copy_list_t;

/** A launch that is under way. */
typedef struct {
    uct_cuda_copier_t     *copier;
    uint64_t              start; /**< uct_cuda_now_ns() */
    uint64_t              serial;
    unsigned              warps;
    bool                  is_off; /**< Called off, or tried to */
    uint64_t              begun[UCT_CUDA_COPIER_MAX_WARPS / 64]; /**< Then:
                                     a bit a warp */
} uct_cuda_launch_t;


/** One more, for which there is room; or as a part of the last one, if it may
 *  be and continues that in both memories. */
void uct_cuda_copy_list_add(uct_cuda_copy_list_t *list, CUdeviceptr dst,
                            CUdeviceptr src, size_t length, bool may_merge);

/**
 * May a kernel in the current context read and write there? 0.3 us, or 0.6.
 *
 * @param device  Of the context.
 */
bool uct_cuda_copier_reaches(CUdeviceptr address, int device);

/**
 * That of a queue in a context, which is current; made at its first use.
 *
 * The kernel is loaded once a context (some ms), for which the GPU has to be
 * idle, since loading waits for all that is queued there.
 *
 * @param may_load  Or has to be loaded already.
 * @return NULL: no kernels, or not now.
 */
uct_cuda_copier_t *uct_cuda_copier_get(uct_cuda_pool_t *pool, bool may_load);

/** As uct_cuda_queue_t::destroy_copier. Nothing of it is under way but what was
 *  called off. */
void uct_cuda_copier_destroy(uct_cuda_copier_t *copier, bool is_alive);

/** Load the kernel, where that may be done now, into the primary context of
 *  each GPU that has one, for those that may not load it. */
void uct_cuda_copier_prepare(void);

/**
 * Launch the kernel, with the context current.
 *
 * @param list    At most UCT_CUDA_COPIER_MAX copies, unless they are alike;
 *                below 4 GiB each.
 * @param blocks  Of threads, at most.
 * @param event   Recorded behind it.
 * @return UCS_OK; else nothing is under way (logged).
 */
ucs_status_t uct_cuda_copier_launch(uct_cuda_copier_t *copier,
                                    const uct_cuda_copy_list_t *list,
                                    unsigned blocks, CUevent event,
                                    uct_cuda_launch_t *launch);

/**
 * Call a launch off, with the context current: what has not begun yet copies
 * nothing any more. Takes some 20 us; then uct_cuda_copier_get() has none
 * until the GPU had room.
 *
 * @param has_begun_p  Have all of its warps?
 * @return UCS_OK; else it may have been called off nevertheless, and it can be
 *         called off once more (logged).
 */
ucs_status_t uct_cuda_copier_call_off(uct_cuda_launch_t *launch,
                                      bool *has_begun_p);

/**
 * Have all warps ended that had begun when the launch was called off?
 *
 * @param has_copied_p  Set if so: whether each of the launch's has copied its
 *                      part, as far as can be told.
 */
ucs_status_t uct_cuda_copier_has_ended(const uct_cuda_launch_t *launch,
                                       bool *has_ended_p,
                                       bool *has_copied_p);

/**
 * Have somebody called back who sleeps until a launch is over: then, and in any
 * case @a patience ns after it began, since it may have to be called off.
 *
 * @param event  That of the launch; its context need not be current.
 */
ucs_status_t uct_cuda_copier_notify(const uct_cuda_launch_t *launch,
                                    CUevent event, uint64_t patience,
                                    CUhostFn func, void *arg);

/** Wait until nothing of it is read or written any more, if the context is
 *  there still. */
void uct_cuda_copier_wait(const uct_cuda_copier_t *copier);

/** That of its kernels. */
CUstream uct_cuda_copier_stream(const uct_cuda_copier_t *copier);

/** For copies in the place of what was called off: one that does not wait for
 *  it. */
CUstream uct_cuda_copier_beside(const uct_cuda_copier_t *copier);

#endif
