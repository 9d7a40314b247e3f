/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests of peers: for a file descriptor of an allocation, or for a new
 * handle of memory that has changed. One open descriptor for each of thousands
 * of allocations would exceed the program's limit and keep freed memory in use.
 * The exporter has one socket pair instead. A peer duplicates one end of it
 * (the peer end) with pidfd_getfd(), and sends its requests through it. The
 * kernel allows this to processes that may read the exporter's memory.
 *
 * Containers often refuse pidfd_getfd() (Docker's default seccomp profile), and
 * a PID of another PID namespace is unknown here. The exporter therefore also
 * has a named socket, in the network namespace (an abstract address). Processes
 * of other users and containers find it as well. So each side checks that the
 * other one has the same user id, and a request contains the random number of
 * the exporter's invalidation page, which is part of its keys.
 */
#ifndef UCT_CUDA_NODE_DESCRIPTORS_H
#define UCT_CUDA_NODE_DESCRIPTORS_H

#include <uct/cuda/base/file.h>
#include <uct/cuda/node/invalidation.h>

#include <stdbool.h>
#include <stddef.h>


/** Sockets of the exporter. */
typedef struct {
    uct_cuda_file_t own;   /**< End used for answers */
    uct_cuda_file_t peers; /**< End duplicated by peers */
    uct_cuda_file_t named; /**< Found by its name; may be none */
} uct_cuda_node_descriptors_t;


/**
 * Create the exporter's sockets.
 *
 * @return true on success, with or without the named one.
 */
bool uct_cuda_node_descriptors_open(uct_cuda_node_descriptors_t *socket);

/** Close the sockets still open. */
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

/** Answer requests received so far, without waiting. If there are many, some
 *  are left: uct_cuda_node_descriptors_wait() then returns at once. Through the
 *  named socket only processes of the same user get an answer, and only if
 *  their request contains the number of this process's invalidation page. */
void uct_cuda_node_descriptors_answer(const uct_cuda_node_descriptors_t *socket,
                                      uct_cuda_node_make_t make,
                                      uct_cuda_node_renew_t renew);

/** Wake up a wait in this process. */
void uct_cuda_node_descriptors_wake(const uct_cuda_node_descriptors_t *socket);

/**
 * Connect to the named socket of an exporter.
 *
 * @return Socket, to be used as a peer end and closed by the caller; -1: none.
 */
int uct_cuda_node_descriptors_connect(uint64_t pid_ns, int32_t pid);

/** Ask an exporter for its invalidation page through its named socket.
 *  @return Descriptor, closed by the caller; -1: not available. */
int uct_cuda_node_descriptors_ask_page(uint64_t pid_ns, int32_t pid,
                                       uint32_t page_id);

/**
 * Request a descriptor from an exporter and wait for it, 2 s at most.
 *
 * @param peers_end, inode  Duplicate of the peer end, in this process, and its
 *                   expected inode.
 * @param has_fallback  For 10 s do not wait again for an exporter that did not
 *                   answer, unless it answers again.
 * @return Descriptor, closed by the caller; -1: not available, no answer, or
 *         exporter gone. @a peers_end stays open.
 */
int uct_cuda_node_descriptors_ask(int peers_end, uint64_t inode,
                                  const uct_cuda_node_invalidation_t *notice,
                                  bool has_fallback);

/**
 * Request from an exporter in the same way the handle of the memory that is at
 * these addresses now.
 *
 * @param notice  Of a handle of the exporter.
 * @return UCS_OK: an answer of this size was received; it is unchecked.
 *         UCS_ERR_UNREACHABLE: the exporter refused, or ended.
 * UCS_ERR_NOT_CONNECTED: no connection, or no answer in time.
 */
ucs_status_t
uct_cuda_node_descriptors_ask_handle(int peers_end, uint64_t inode,
                                     const uct_cuda_node_invalidation_t *notice,
                                     uint64_t base, uint64_t length,
                                     bool has_fallback, void *answer,
                                     size_t size);

#endif
