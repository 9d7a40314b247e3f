/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Invalidation page of a process: it marks exported handles that are no longer
 * valid, so that peers unmap freed memory. The page is an unnamed file; peers
 * open it for reading by the number in each handle. Only its owner writes;
 * readers never wait.
 */
#ifndef UCT_CUDA_NODE_INVALIDATION_H
#define UCT_CUDA_NODE_INVALIDATION_H

#include <ucs/type/status.h>

#include <stdbool.h>
#include <stdint.h>


/** Maximum handles tracked, a power of two. For further handles the page cannot
 *  tell when they become invalid. */
#define UCT_CUDA_NODE_INVALIDATION_SLOTS 65536

/** Slot of a handle beyond that limit */
#define UCT_CUDA_NODE_INVALIDATION_NO_SLOT UINT32_MAX


/** Location of a handle's invalidation; part of the handle. */
typedef struct {
    /** Random number of a page; 0: none */
    uint32_t page_id;
    int32_t  fd;         /**< The page's descriptor in its process */
    uint32_t slot;
    uint32_t generation; /**< Of the slot; a new value means invalid */
} uct_cuda_node_invalidation_t;


/** Return whether the slot in another process's notice is in range or is
 *  NO_SLOT. Compare it with NO_SLOT before using it as an index. */
static inline bool
uct_cuda_node_invalidation_is_valid(const uct_cuda_node_invalidation_t *notice)
{
    return (notice->slot < UCT_CUDA_NODE_INVALIDATION_SLOTS) ||
           (notice->slot == UCT_CUDA_NODE_INVALIDATION_NO_SLOT);
}


/** Invalidation page of a peer. */
typedef struct uct_cuda_node_invalidation_view
    uct_cuda_node_invalidation_view_t;


/** Fill in the notice of a handle to which the caller gives @a slot. The first
 *  call creates the page. page_id is 0 if peers cannot open it. */
void uct_cuda_node_invalidation_begin(uint32_t slot,
                                      uct_cuda_node_invalidation_t *notice_p);

/** Warn, once in a process, that memory shared by descriptors has no page. */
void uct_cuda_node_invalidation_warn(void);

/** Invalidate the slot's handle. */
void uct_cuda_node_invalidation_end(uint32_t slot);

/** From now on count the process's calls that map or unmap memory in an address
 *  range (base/first_use.h). Peers see the count. */
void uct_cuda_node_invalidation_count_remaps(uint64_t base, uint64_t length);

/** Return how often this process has mapped or unmapped memory there. Read it
 *  before querying the driver about a handle: the result is valid for this
 *  count. */
uint64_t uct_cuda_node_invalidation_remaps(void);

/** Set the descriptor of the slot's handle, or -1: peers ask for one
 *  (node/descriptors.h). */
void uct_cuda_node_invalidation_set_fd(uint32_t slot, int fd);

/** Set the socket that peers duplicate to request descriptors
 *  (node/descriptors.h), and its inode. -1: peers cannot request any.
 *  @param is_named  This process has the named socket, too. */
void uct_cuda_node_invalidation_set_server(int fd, uint64_t inode,
                                           bool is_named);

/** Return this process's page as a descriptor that stays the module's; -1:
 *  none. */
int uct_cuda_node_invalidation_page(void);

/** Return whether a notice is of this process. */
bool uct_cuda_node_invalidation_is_own(
    const uct_cuda_node_invalidation_t *notice);

/** Return whether a handle of this process is invalid; false for NO_SLOT.
 *  Costs one load. */
bool uct_cuda_node_invalidation_is_over(
    const uct_cuda_node_invalidation_t *notice);


/** Gets the page's descriptor from a process of another PID namespace; -1:
 *  none. */
typedef int (*uct_cuda_node_fetch_page_t)(uint64_t pid_ns, int32_t pid,
                                          uint32_t page_id);

/**
 * Take a reference to a peer's page. The views belong to the mapping cache:
 * call these functions with its lock held.
 *
 * @return NULL: no page, no slot, out of memory, or not readable, as for a
 *         process of another user.
 */
uct_cuda_node_invalidation_view_t *
uct_cuda_node_invalidation_view_get(uint64_t pid_ns, int32_t pid,
                                    const uct_cuda_node_invalidation_t *notice,
                                    uct_cuda_node_fetch_page_t fetch);

/** Release a view. It stays open for the next use, unless purged. */
void uct_cuda_node_invalidation_view_put(
    uct_cuda_node_invalidation_view_t *view);

/** Close the views of a process, each after its last user. */
void uct_cuda_node_invalidation_view_purge(uint64_t pid_ns, int32_t pid);

/** Return the number of a handle's descriptor in its process; -1: none is
 *  published, or the handle is invalid. The owner may close it at any time:
 *  check again after duplicating it. */
int uct_cuda_node_invalidation_view_fd(
    const uct_cuda_node_invalidation_view_t *view,
    const uct_cuda_node_invalidation_t *notice);

/** Return the number, in the owner's process, of the socket that peers
 *  duplicate to request descriptors, or -1; its inode; and whether the owner
 *  has its named socket: otherwise another process may have the name. */
int uct_cuda_node_invalidation_view_server(
        const uct_cuda_node_invalidation_view_t *view, uint64_t *inode_p,
        bool *is_named_p);

/** Return whether the process of the view's PID still has the page: it may have
 *  executed another program, or be another process. Call it with the process
 *  opened (pidfd_open()), in its PID namespace. */
bool uct_cuda_node_invalidation_view_is_current(
        const uct_cuda_node_invalidation_view_t *view,
        const uct_cuda_node_invalidation_t *notice);

/** Return whether this peer has invalidated any handle since the last call,
 *  or since the page was opened. Costs one load. */
bool uct_cuda_node_invalidation_view_has_changed(
    uct_cuda_node_invalidation_view_t *view);

/** Return whether any peer has invalidated a handle since the last call of
 *  this function or uct_cuda_node_invalidation_view_has_changed() for it. */
bool uct_cuda_node_invalidation_views_have_changed(void);

/** Return the number of peers' pages that are open, released ones included. */
unsigned uct_cuda_node_invalidation_num_views(void);

/** Return whether the peer's handle may have changed: its owner has mapped or
 *  unmapped memory since this count, or the handle is invalid. Costs two
 *  loads. */
bool uct_cuda_node_invalidation_view_may_differ(
        const uct_cuda_node_invalidation_view_t *view,
        const uct_cuda_node_invalidation_t *notice, uint64_t remaps);

/** Return whether the peer's handle is invalid. Costs one load. */
bool uct_cuda_node_invalidation_view_is_over(
        const uct_cuda_node_invalidation_view_t *view,
        const uct_cuda_node_invalidation_t *notice);

#endif
