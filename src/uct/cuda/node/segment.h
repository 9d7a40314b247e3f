/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared segment of a program's ranks on one node: an unnamed file, created
 * when MPI starts and open in every rank. It shows which ranks are alive and
 * holds the control blocks of communicators. The first rank with a GPU buffer
 * in a communicator creates the communicator's control block, identified by the
 * communicator's key. The other ranks detect it by a counter.
 */
#ifndef UCT_CUDA_NODE_SEGMENT_H
#define UCT_CUDA_NODE_SEGMENT_H

#include <ucs/sys/compiler_def.h>
#include <ucs/type/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

BEGIN_C_DECLS


#define UCT_CUDA_NODE_SEGMENT_NAME  64   /**< Bytes of a name */
/** Maximum number of control blocks in use */
#define UCT_CUDA_NODE_SEGMENT_PAGES 4096
#define UCT_CUDA_NODE_SEGMENT_FAILURES 256 /**< Failure reports kept */


typedef struct uct_cuda_node_segment uct_cuda_node_segment_t;


/**
 * Create a segment (rank 0) or open one.
 *
 * @param dir   Directory shared by all processes of the node, preferably a
 *              tmpfs.
 * @param name  Name within @a dir, filled by rank 0 and read by the others.
 * @return UCS_OK; UCS_ERR_UNREACHABLE: no such segment here, as for ranks of
 *         another node; UCS_ERR_NO_RESOURCE, UCS_ERR_NO_MEMORY,
 *         UCS_ERR_INVALID_PARAM. Failures are logged at debug level only.
 */
ucs_status_t uct_cuda_node_segment_open(const char *dir, unsigned rank,
                                        unsigned size,
                                        char name[UCT_CUDA_NODE_SEGMENT_NAME],
                                        uct_cuda_node_segment_t **segment_p);

/** Remove the segment's name, on rank 0, when no more ranks will open it. */
void uct_cuda_node_segment_unlink(uct_cuda_node_segment_t *segment);

/** Close the segment, and remove its name unless done. Release all control
 *  blocks first. */
void uct_cuda_node_segment_close(uct_cuda_node_segment_t *segment);

/** Return true in the process that opened the segment, false in its
 *  children. */
bool uct_cuda_node_segment_is_owner(const uct_cuda_node_segment_t *segment);

/** Return whether the process of a rank is alive. Takes a system call. Works
 *  across PID namespaces. */
bool uct_cuda_node_segment_is_alive(const uct_cuda_node_segment_t *segment,
                                    unsigned rank);


/** Return the address of the segment's counter of new control blocks; 0: there
 *  never was one. Other processes may increment it at any time. */
const uint32_t *
uct_cuda_node_segment_changes(const uct_cuda_node_segment_t *segment);

/** Return whether a process uses the control block with this key. Takes no
 *  lock. */
bool uct_cuda_node_segment_has(const uct_cuda_node_segment_t *segment,
                               uint64_t key);

/**
 * Map the memory of a control block; zeroed if no process uses it. Waits while
 * another process holds the segment's lock. Release it with
 * uct_cuda_node_segment_put().
 *
 * @param key    Key of the control block; not 0.
 * @param bytes  Size, the same in all processes.
 * @return UCS_OK; UCS_ERR_EXCEEDS_LIMIT: too many control blocks;
 *         UCS_ERR_NO_RESOURCE: the file system is full, or the lock failed;
 *         UCS_ERR_INVALID_PARAM: others use another size; UCS_ERR_NO_MEMORY.
 */
ucs_status_t uct_cuda_node_segment_get(uct_cuda_node_segment_t *segment,
                                       uint64_t key, size_t bytes,
                                       void **memory_p);

/** Unmap a control block. After the last user its memory is reused. */
void uct_cuda_node_segment_put(uct_cuda_node_segment_t *segment, uint64_t key,
                               size_t bytes, void *memory);


/** Return the address of the segment's counter of failures that ranks have
 *  reported. It is never NULL; others may increment it at any time. */
const uint32_t *
uct_cuda_node_segment_failures(const uct_cuda_node_segment_t *segment);

/**
 * Report that a rank failed in a call. The last UCT_CUDA_NODE_SEGMENT_FAILURES
 * reports are kept.
 *
 * @param key     Key of the communicator, not 0.
 * @param number  Number of the call in the communicator.
 * @param start   Number of starts of a persistent call.
 * @param rank    Failed rank of the communicator.
 */
void uct_cuda_node_segment_report_failure(uct_cuda_node_segment_t *segment,
                                          uint64_t key, uint64_t number,
                                          uint32_t start, uint32_t rank);

/** Withdraw a rank's report of a call that it has not made after all. */
void uct_cuda_node_segment_withdraw_failure(uct_cuda_node_segment_t *segment,
                                            uint64_t key, uint64_t number,
                                            uint32_t rank);

/**
 * Find the report of a call. Takes no lock.
 *
 * @return Failed rank; -1: no report.
 */
int uct_cuda_node_segment_failed_rank(const uct_cuda_node_segment_t *segment,
                                      uint64_t key, uint64_t number,
                                      uint32_t start);


END_C_DECLS

#endif
