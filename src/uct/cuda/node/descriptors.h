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


/** The exporter's socket. A program may close descriptors that are not its own,
 *  and have other files there afterwards: the inodes tell. */
typedef struct {
    int      own;   /**< To answer by ... */
    int      peers; /**< ... and what peers duplicate */
    uint64_t own_inode;
    uint64_t peers_inode;
} uct_cuda_node_descriptors_t;


/** Make the exporter's socket. @return Whether there is one. */
bool uct_cuda_node_descriptors_open(uct_cuda_node_descriptors_t *socket);

/** Close what is still there of it. */
void uct_cuda_node_descriptors_close(uct_cuda_node_descriptors_t *socket);

/** Wait for requests, or to be woken up, for a time. */
void uct_cuda_node_descriptors_wait(const uct_cuda_node_descriptors_t *socket,
                                    unsigned milliseconds);

/** Answer all requests that have arrived, without waiting.
 *
 *  @param make  Returns a descriptor for a notice, or -1. It is closed after
 *               it was sent. */
void uct_cuda_node_descriptors_answer(
        const uct_cuda_node_descriptors_t *socket,
        int (*make)(const uct_cuda_node_notice_t *notice));

/** End a wait of this process. */
void uct_cuda_node_descriptors_wake(const uct_cuda_node_descriptors_t *socket);

/**
 * Ask an exporter for a descriptor and wait for it, some seconds at most.
 *
 * @param peers_end, inode  Duplicate of its socket's end, in this process, and
 *                          the inode that it must have.
 * @return -1: it has none, does not answer, or is gone.
 */
int uct_cuda_node_descriptors_ask(int peers_end, uint64_t inode,
                                  const uct_cuda_node_notice_t *notice);

#endif
