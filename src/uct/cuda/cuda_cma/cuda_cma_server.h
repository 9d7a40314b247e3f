/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies that peers ask for, between this process's page-locked memory and
 * their GPU memory: made by a thread that has the GPU do it, as a put or get of
 * this process would be made (cuda_ipc_transfer.h), small blocks together. No
 * processor sees the bytes, which by cross-memory attach pass through two.
 *
 * The thread starts when the first key of page-locked memory is given out, and
 * sleeps while nobody asks.
 */
#ifndef UCT_CUDA_CMA_SERVER_H
#define UCT_CUDA_CMA_SERVER_H

#include <uct/cuda/cuda_cma/cuda_cma_page.h>


/** This process's server, started if there is none yet. Any thread; a forked
 *  child gets one of its own. @return Whether there is one. */
bool uct_cuda_cma_server_get(uct_cuda_cma_server_id_t *id_p);

#endif
