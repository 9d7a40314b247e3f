/* SPDX-License-Identifier: BSD-3-Clause */
/* Transfers between this process's host memory and a peer's GPU memory. */
#ifndef UCT_CUDA_IPC_HOST_H
#define UCT_CUDA_IPC_HOST_H

#include <uct/cuda/base/queue.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_rkey.h>

#include <stdbool.h>


/**
 * Submit the copies to the operation's lane, whose context is current; the
 * operation is to be posted behind them.
 *
 * @param device      Of the current context; it maps the peer's memory.
 * @param keep        The mapping may stay for the next transfer.
 * @param to_gpu      Put; else get.
 *
 * @return UCS_OK, or an error after which nothing is under way.
 */
ucs_status_t uct_cuda_ipc_host_start(const uct_cuda_ipc_rkey_t *rkey,
                                     int device, bool keep, void *local,
                                     uint64_t remote_addr, size_t length,
                                     bool to_gpu, uct_cuda_op_t *op);

#endif
