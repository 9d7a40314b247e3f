/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Many copies between two ends as one operation: by the copy kernel (kernel.h),
 * by one driver call if available, or one by one, with one event after them.
 */
#ifndef UCT_CUDA_COPY_BATCH_H
#define UCT_CUDA_COPY_BATCH_H

#include <uct/cuda/base/end.h>
#include <uct/cuda/base/queue.h>
#include <uct/cuda/copy/kernel.h>

#include <stdbool.h>


/** State of a batch carried by a kernel. */
typedef enum {
    UCT_CUDA_COPY_BATCH_RUNS, /**< Running, or waiting for space on the GPU */
    UCT_CUDA_COPY_BATCH_ENDS,    /**< Cancelled after all of it had started */
    /** Cancelled before all of it had started: copies replace the complete
     *  launch */
    UCT_CUDA_COPY_BATCH_REPLACED
} uct_cuda_copy_batch_kernel_t;


/** Copies of a batch. The caller keeps it until the operation ends, and fills
 *  in all members except the kernel's state and launch. */
typedef struct {
    uct_cuda_op_t                *op;
    /** GPU, or page-locked host memory */
    uct_cuda_end_t               local_end;
    uct_cuda_end_t               remote_end; /**< GPU */
    bool                         is_put;     /**< From local to remote */
    size_t                       bytes;      /**< Of all copies */
    uct_cuda_copy_list_t         copies;
    uct_cuda_copy_batch_kernel_t kernel;
    uct_cuda_copy_launch_t       launch;
} uct_cuda_copy_batch_t;


/**
 * Submit the copies to the operation's stream, or to the stream of the kernel.
 * The context of the operation's stream is current. The caller then posts the
 * operation.
 *
 * @param copy_kernel  Copy kernel of that context; NULL: use none.
 * @param blocks       Maximum thread blocks.
 * @param is_kernel_p  Set if a kernel carries the copies: track it with test()
 *                     and wake() below. Otherwise the operation's event tracks
 *                     them.
 * @return UCS_OK; otherwise nothing is running.
 */
ucs_status_t uct_cuda_copy_batch_start(uct_cuda_copy_batch_t *batch,
                                       uct_cuda_copy_kernel_t *copy_kernel,
                                       unsigned blocks, bool *is_kernel_p);

/** Implement a method's test(), for an operation whose work is the batch or
 *  begins with it. Cancels a kernel that has waited too long, and replaces it
 *  by copies. */
ucs_status_t uct_cuda_copy_batch_kernel_test(uct_cuda_op_t *op);

/** Implement a method's str(), for the same operations. */
void
uct_cuda_copy_batch_str(const uct_cuda_op_t *op, char *text, size_t max);

/** Implement the wake() of the same method. UCS_ERR_BUSY: the kernel was
 *  cancelled, and the caller must poll. */
ucs_status_t
uct_cuda_copy_batch_kernel_wake(uct_cuda_op_t *op, CUhostFn func, void *arg);

#endif
