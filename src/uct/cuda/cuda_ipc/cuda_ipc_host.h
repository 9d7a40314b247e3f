/* SPDX-License-Identifier: BSD-3-Clause */
/* Transfers between this process's host memory and a peer's GPU memory. */
#ifndef UCT_CUDA_IPC_HOST_H
#define UCT_CUDA_IPC_HOST_H

#include <uct/cuda/cuda_ipc/cuda_ipc_multipath.h>

#include <stdbool.h>


/**
 * Submit the transfer to the operation's stream, whose context is current, or
 * have the engine carry it out; the operation is to be posted then.
 *
 * @param memory  The peer's; kept by the operation.
 * @param to_gpu  Put; else get.
 *
 * @return UCS_OK, or an error after which nothing is under way.
 */
ucs_status_t uct_cuda_ipc_host_start(uct_cuda_mp_engine_t *engine,
                                     uct_cuda_ipc_peer_memory_t *memory,
                                     void *local, size_t length, bool to_gpu,
                                     uct_cuda_op_t *op);

#endif
