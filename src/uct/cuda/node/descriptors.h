/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests of peers: for a file descriptor of an allocation, or for a new
 * handle of memory that has changed. A descriptor for each of thousands of
 * allocations would exceed the program's limit and keep freed memory in use.
 * The exporter has one socket pair instead. A peer duplicates the peer end with
 * pidfd_getfd(), which the kernel allows to processes with permission to read
 * the exporter's memory, and sends its requests through it.
 */
#ifndef UCT_CUDA_NODE_DESCRIPTORS_H
#define UCT_CUDA_NODE_DESCRIPTORS_H

#include <uct/cuda/base/file.h>
#include <uct/cuda/node/invalidation.h>

#include <stdbool.h>
#include <stddef.h>


/** Socket pair of the exporter. */
typedef struct {
    uct_cuda_file_t own;   /**< End used for answers */
    uct_cuda_file_t peers; /**< End duplicated by peers */
} uct_cuda_node_descriptors_t;


/**
 * Create the exporter's socket pair.
 *
 * @return true on success.
 */
bool uct_cuda_node_descriptors_open(uct_cuda_node_descriptors_t *socket);

/** Close the ends still open. */
void uct_cuda_node_descriptors_close(uct_cuda_node_descriptors_t *socket);

/** Wait for requests or for a wakeup, up to a time in milliseconds. */
void uct_cuda_node_descriptors_wait(const uct_cuda_node_descriptors_t *socket,
                                    unsigned milliseconds);

/** Creates a descriptor for a notice; it is sent to the peer and closed. -1:
 *  the peer gets none. */
typedef int (*uct_cuda_node_make_t)(const uct_cuda_node_invalidation_t *notice);

/** Writes a handle of the memory that is at these addresses now, of at most
 *  UCT_CUDA_NODE_MAX_ANSWER bytes, and returns its size; 0: the peer gets
 *  none. */
typedef size_t (*uct_cuda_node_renew_t)(uint64_t base, uint64_t length,
                                        void *answer);

#define UCT_CUDA_NODE_MAX_ANSWER 512

/** Answer all requests received so far, without waiting. */
void uct_cuda_node_descriptors_answer(const uct_cuda_node_descriptors_t *socket,
                                      uct_cuda_node_make_t make,
                                      uct_cuda_node_renew_t renew);

/** Wake up a wait in this process. */
void uct_cuda_node_descriptors_wake(const uct_cuda_node_descriptors_t *socket);

/**
 * Ask an exporter for a descriptor and wait for it, a few seconds at most.
 *
 * @param peers_end, inode  Duplicate of the peer end, in this process, and its
 *                   expected inode.
 * @return Descriptor, closed by the caller; -1: not available, no answer, or
 *         exporter gone. @a peers_end stays open.
 */
int uct_cuda_node_descriptors_ask(int peers_end, uint64_t inode,
                                  const uct_cuda_node_invalidation_t *notice);

/**
 * Ask an exporter in the same way for the handle of the memory that is at these
 * addresses now.
 *
 * @return UCS_OK: an answer of this size was received; it is unchecked.
 *         UCS_ERR_UNREACHABLE: the exporter refused, or ended.
 *         UCS_ERR_NOT_CONNECTED: it could not be asked, or did not answer in
 *         time.
 */
ucs_status_t
uct_cuda_node_descriptors_ask_handle(int peers_end, uint64_t inode,
                                     uint64_t base, uint64_t length,
                                     void *answer, size_t size);

#endif
