/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The board: a page in which a process says which of the handles that it gave
 * out have ended, so that peers let go of memory that was freed. It is a file
 * without a name; peers open it by the number that comes with each handle, to
 * read. Only its owner writes, and nobody waits for anybody.
 */
#ifndef UCT_CUDA_NODE_NOTICES_H
#define UCT_CUDA_NODE_NOTICES_H

#include <ucs/type/status.h>

#include <stdbool.h>
#include <stdint.h>


/** Handles that are told of at once, a power of two; of more a peer learns
 *  nothing. */
#define UCT_CUDA_NODE_NOTICES_SLOTS 65536

/** Slot of a handle that none was left for */
#define UCT_CUDA_NODE_NOTICES_NO_SLOT UINT32_MAX


/** Where the end of a handle is told; part of the handle. */
typedef struct {
    uint32_t board;      /**< Tells boards of one process number apart; 0: no
                              peer is told */
    int32_t  fd;         /**< The board's descriptor in its process */
    uint32_t slot;
    uint32_t generation; /**< Of the slot. Once it is another, it is over. */
} uct_cuda_node_notice_t;


/** Can a notice that came from outside be looked up? */
static inline bool
uct_cuda_node_notice_is_valid(const uct_cuda_node_notice_t *notice)
{
    return (notice->slot < UCT_CUDA_NODE_NOTICES_SLOTS) ||
           (notice->slot == UCT_CUDA_NODE_NOTICES_NO_SLOT);
}


/** A peer's board. */
typedef struct uct_cuda_node_notices_view uct_cuda_node_notices_view_t;


/** Begin to tell of a handle in a slot. */
void uct_cuda_node_notices_begin(uint32_t slot,
                                 uct_cuda_node_notice_t *notice_p);

/** The slot's handle has ended. */
void uct_cuda_node_notices_end(uint32_t slot);

/** The descriptor that the slot's handle stands for, or -1: peers ask for one
 *  (node/descriptors.h). */
void uct_cuda_node_notices_set_fd(uint32_t slot, int fd);

/** The socket's end that peers duplicate for that, or -1, and its inode. */
void uct_cuda_node_notices_set_server(int fd, uint64_t inode);

/** Is a handle of this process's over? A load. */
bool uct_cuda_node_notices_is_over(const uct_cuda_node_notice_t *notice);


/**
 * A peer's board, once more. Views are the mapping cache's: call these with its
 * lock held.
 *
 * @return NULL: there is none, or it cannot be read, as of a process of another
 *         user or PID namespace.
 */
uct_cuda_node_notices_view_t *
uct_cuda_node_notices_view_get(uint64_t pid_ns, int32_t pid,
                               const uct_cuda_node_notice_t *notice);

/** Give it back. It stays for the next use. */
void uct_cuda_node_notices_view_put(uct_cuda_node_notices_view_t *view);

/** Close the views of a process that nobody uses. */
void uct_cuda_node_notices_view_purge(uint64_t pid_ns, int32_t pid);

/** A handle's descriptor in its process, or -1. It may be closed meanwhile:
 *  whoever has duplicated it asks once more. */
int uct_cuda_node_notices_view_fd(const uct_cuda_node_notices_view_t *view,
                                  const uct_cuda_node_notice_t *notice);

/** The socket's end that was set there, or -1, and its inode. */
int uct_cuda_node_notices_view_server(
        const uct_cuda_node_notices_view_t *view, uint64_t *inode_p);

/** Has anything ended since the last such question? A load. */
bool uct_cuda_node_notices_view_has_news(uct_cuda_node_notices_view_t *view);

/** ... of any peer's? */
bool uct_cuda_node_notices_views_have_news(void);

/** Peers whose boards are open. */
unsigned uct_cuda_node_notices_num_views(void);

/** Is that handle over? A load. */
bool uct_cuda_node_notices_view_is_over(
        const uct_cuda_node_notices_view_t *view,
        const uct_cuda_node_notice_t *notice);

#endif
