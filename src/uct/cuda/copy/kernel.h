/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copy kernel for small separate blocks: a copy engine takes a microsecond and
 * more for each, while eight thread blocks fill PCIe with 4 KiB ones (one H100:
 * docs/results/blocks.md).
 *
 * A kernel needs free multiprocessors. The program's kernels may occupy all of
 * them, perhaps until these blocks have arrived. So a launch can be cancelled
 * before it begins, and copies replace it.
 */
#ifndef UCT_CUDA_COPY_KERNEL_H
#define UCT_CUDA_COPY_KERNEL_H

#include <kernels/kernels.h>
#include <uct/cuda/base/queue.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>


/** Maximum copies in a list: uniform ones, and others. */
#define UCT_CUDA_COPY_KERNEL_MAX_UNIFORM 480
#define UCT_CUDA_COPY_KERNEL_MAX       128

/** Maximum thread blocks of a kernel: between GPUs twice
 *  UCX_CUDA_IPC_KERNEL_BLOCKS, which is at most half of it. */
#define UCT_CUDA_COPY_KERNEL_MAX_BLOCKS 64
#define UCT_CUDA_COPY_KERNEL_MAX_WARPS \
    (UCT_CUDA_COPY_KERNEL_MAX_BLOCKS * UCX_MP_COPY_WARPS)


/** Copies of one launch. Uniform ones have the same length and addresses
 *  close enough for the kernel's compact form. */
typedef struct {
    unsigned    count; /**< Initially 0 */
    bool        is_uniform;
    CUdeviceptr dst[UCT_CUDA_COPY_KERNEL_MAX_UNIFORM];
    CUdeviceptr src[UCT_CUDA_COPY_KERNEL_MAX_UNIFORM];
    size_t      length[UCT_CUDA_COPY_KERNEL_MAX_UNIFORM]; /**< Bytes */
} uct_cuda_copy_list_t;

/** Running launch. */
typedef struct {
    uct_cuda_copy_kernel_t     *copy_kernel;
    uint64_t                   start; /**< uct_cuda_now_ns() */
    uint64_t                   serial;
    unsigned                   warps;
    bool is_off; /**< Cancelled, perhaps without success */
    /** If cancelled: a bit for each warp */
    uint64_t                   begun[UCT_CUDA_COPY_KERNEL_MAX_WARPS / 64];
} uct_cuda_copy_launch_t;


/** Add a copy, for which there must be space. With @a may_merge, not for the
 *  first one, it extends the last copy if contiguous in both memories. */
void uct_cuda_copy_list_add(uct_cuda_copy_list_t *list, CUdeviceptr dst,
                            CUdeviceptr src, size_t length, bool may_merge);

/**
 * Return whether a kernel in the current context can read and write an address.
 * Takes 0.3 us; 0.6 for memory without context (cuMemCreate, pools).
 *
 * @param device  Of the context.
 */
bool uct_cuda_copy_kernel_can_access(CUdeviceptr address, int device);

/**
 * Return the copy kernel of a queue in the current context, created at first
 * use.
 *
 * The kernel is loaded once for each context (some ms). The GPU must be idle
 * for this, since loading waits for all queued work.
 *
 * @param may_load  False: use it only if loaded already.
 * @return NULL: no kernels, or not available now.
 */
uct_cuda_copy_kernel_t *uct_cuda_copy_kernel_get(uct_cuda_pool_t *pool,
                                                 bool may_load);

/** Free a copy kernel; implements uct_cuda_queue_t::destroy_copy_kernel. Its
 *  context is current if it is alive. Only cancelled launches may be left. */
void uct_cuda_copy_kernel_destroy(uct_cuda_copy_kernel_t *copy_kernel,
                                  bool is_alive);

/** Load the kernel, if possible now, into the active primary context of each
 *  GPU, for users that may not load it. */
void uct_cuda_copy_kernel_prepare(void);

/**
 * Launch the kernel, with the context current.
 *
 * @param list    At most UCT_CUDA_COPY_KERNEL_MAX copies, unless uniform; below
 *                4 GiB each.
 * @param blocks  Maximum thread blocks.
 * @param event   Recorded after the launch.
 * @return UCS_OK; otherwise nothing is running (logged).
 */
ucs_status_t uct_cuda_copy_kernel_launch(uct_cuda_copy_kernel_t *copy_kernel,
                                         const uct_cuda_copy_list_t *list,
                                         unsigned blocks, CUevent event,
                                         uct_cuda_copy_launch_t *launch);

/**
 * Cancel a launch, with the context current: warps not started yet copy
 * nothing. Takes about 20 us. Afterwards uct_cuda_copy_kernel_get() returns
 * NULL until the launch has run.
 *
 * @param has_begun_p  Set if all warps had started.
 * @return UCS_OK; otherwise it may be cancelled or not, and can be cancelled
 *         again (logged).
 */
ucs_status_t uct_cuda_copy_kernel_cancel(uct_cuda_copy_launch_t *launch,
                                         bool *has_begun_p);

/**
 * Check whether all warps that had started before the cancellation have ended,
 * with the context current. Waits for a small copy from the GPU.
 *
 * @param has_ended_p   Filled: they have ended.
 * @param has_copied_p  Valid if they have: each warp of the launch has copied
 *                      its part, as far as known.
 * @return UCS_OK, or the driver's error (logged).
 */
ucs_status_t
uct_cuda_copy_kernel_has_ended(const uct_cuda_copy_launch_t *launch,
                               bool *has_ended_p, bool *has_copied_p);

/**
 * Call a function for a sleeping caller: when a launch has ended, and also @a
 * patience ns after its start, since the caller may have to cancel it.
 *
 * @param event  Event of the launch; its context need not be current.
 * @return UCS_OK; UCS_ERR_BUSY: no alarm can be set, the caller must poll; or
 *         an error, with the alarm set.
 */
ucs_status_t uct_cuda_copy_kernel_notify(const uct_cuda_copy_launch_t *launch,
                                         CUevent event, uint64_t patience,
                                         CUhostFn func, void *arg);

/** Wait until launches and the copies that replace them access no memory any
 *  more. Does nothing if the context is gone. */
void uct_cuda_copy_kernel_wait(const uct_cuda_copy_kernel_t *copy_kernel);

/** Return the stream in which the kernel is launched. */
CUstream uct_cuda_copy_kernel_stream(const uct_cuda_copy_kernel_t *copy_kernel);

/** Return a second stream, for copies that replace a cancelled launch
 *  without waiting for it. */
CUstream
uct_cuda_copy_kernel_second_stream(const uct_cuda_copy_kernel_t *copy_kernel);

#endif
