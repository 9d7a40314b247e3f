/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Server for copies requested by peers, between this process's page-locked
 * memory and their GPU memory. A thread submits them to the GPU like a put or
 * get of this process (copy/post.h), with small blocks coalesced. The
 * data passes no processor; with cross-memory attach it passes two.
 *
 * The thread starts when the first key of page-locked memory is packed, and
 * sleeps while there are no requests.
 */
#ifndef UCT_CUDA_CMA_SERVER_H
#define UCT_CUDA_CMA_SERVER_H

#include <uct/cuda/cuda_cma/cuda_cma_control.h>


/**
 * Return this process's server, started if needed. Thread safe; a forked child
 * gets its own.
 *
 * @return true: there is one.
 */
bool uct_cuda_cma_server_get(uct_cuda_cma_server_id_t *id_p);

#endif
