/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Many copies between two ends as one operation: carried by the kernel for
 * small blocks (kernel.h), by one call where the driver has one, or each by
 * itself, with one event behind them.
 */
#ifndef UCT_CUDA_COPY_BATCH_H
#define UCT_CUDA_COPY_BATCH_H

#include <uct/cuda/base/end.h>
#include <uct/cuda/base/queue.h>
#include <uct/cuda/copy/kernel.h>

#include <stdbool.h>


/** What is under way of a batch that a kernel carries. */
typedef enum {
    UCT_CUDA_BATCH_RUNS,    /**< ... or waits for room */
    UCT_CUDA_BATCH_ENDS,    /**< Called off when all of it had begun */
    UCT_CUDA_BATCH_REPLACED /**< A part has not begun and never will: copies do
                                 all */
} uct_cuda_batch_kernel_t;


/** The caller's memory, until the operation is over; all but the kernel and its
 *  launch are the caller's to fill in. */
typedef struct {
    uct_cuda_op_t           *op;
    uct_cuda_end_t          local_end;  /**< A GPU, or page-locked memory of the
                                             host's */
    uct_cuda_end_t          remote_end; /**< A GPU */
    bool                    is_put;     /**< From local to remote */
    size_t                  bytes;      /**< Of all copies */
    uct_cuda_copy_list_t    copies;
    uct_cuda_batch_kernel_t kernel;
    uct_cuda_launch_t       launch;
} uct_cuda_batch_t;


/**
 * Submit the copies to the operation's stream, whose context is current, or to
 * the copier's; the operation is to be posted then.
 *
 * @param copier       Of that context; NULL: not by a kernel.
 * @param blocks       Of threads, at most.
 * @param is_kernel_p  Whether a kernel carries them: the two functions below
 *                     follow it. Else the operation's event tells.
 * @return UCS_OK; else nothing is under way.
 */
ucs_status_t uct_cuda_batch_start(uct_cuda_batch_t *batch,
                                  uct_cuda_copier_t *copier, unsigned blocks,
                                  bool *is_kernel_p);

/** As a method's test() and wake(), of an operation whose work is the batch, or
 *  begins with it. */
ucs_status_t uct_cuda_batch_kernel_test(uct_cuda_op_t *op);

ucs_status_t
uct_cuda_batch_kernel_wake(uct_cuda_op_t *op, CUhostFn func, void *arg);

#endif
