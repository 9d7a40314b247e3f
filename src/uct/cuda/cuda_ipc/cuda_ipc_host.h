/* SPDX-License-Identifier: BSD-3-Clause */
/* Transfers between this process's host memory and a peer's GPU memory. */
#ifndef UCT_CUDA_IPC_HOST_H
#define UCT_CUDA_IPC_HOST_H

#include <uct/cuda/base/queue.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_iface.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_rkey.h>

#include <stdbool.h>


/**
 * Submit the transfer to the operation's stream, whose context is current, or
 * have the engine carry it out; the operation is to be posted then.
 *
 * @param device      Of the current context; it maps the peer's memory.
 * @param to_gpu      Put; else get.
 *
 * @return UCS_OK, or an error after which nothing is under way.
 */
ucs_status_t uct_cuda_ipc_host_start(uct_cuda_ipc_iface_t *iface,
                                     const uct_cuda_ipc_rkey_t *rkey,
                                     int device, void *local,
                                     uint64_t remote_addr, size_t length,
                                     bool to_gpu, uct_cuda_op_t *op);

#endif
