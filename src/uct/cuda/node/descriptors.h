/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Descriptors that a process makes when a peer asks for one. A descriptor for
 * each of thousands of allocations would exceed the program's limit, and keep
 * memory that the program frees. The exporter has one socket instead; a peer
 * duplicates its other end (pidfd_getfd), which the kernel allows to processes
 * that may read the exporter's memory, and sends requests through it.
 */
#ifndef UCT_CUDA_NODE_DESCRIPTORS_H
#define UCT_CUDA_NODE_DESCRIPTORS_H

#include <uct/cuda/node/notices.h>

#include <stdbool.h>


/** Make the exporter's socket.
 *
 *  @param ends  Filled with its own end and the one that peers duplicate.
 *  @return Whether there is one. */
bool uct_cuda_node_descriptors_open(int ends[2]);

/** Answer all requests that have arrived at the exporter's end, without
 *  waiting.
 *
 *  @param make  Returns a descriptor for a notice, or -1. It is closed after
 *               it was sent. */
void uct_cuda_node_descriptors_answer(
        int end, int (*make)(const uct_cuda_node_notice_t *notice));

/** Make the exporter look at its socket: for its own process. */
void uct_cuda_node_descriptors_wake(int peers_end);

/**
 * Ask an exporter for a descriptor and wait for it, some seconds at most.
 *
 * @param peers_end  Duplicate of its socket's end, in this process.
 * @return -1: it has none, does not answer, or is gone.
 */
int uct_cuda_node_descriptors_ask(int peers_end,
                                  const uct_cuda_node_notice_t *notice);

#endif
