/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Table of the allocations exported by this process, each once. UCX does not
 * always see that the program frees an allocation, so the watch thread
 * (node/watch.h) checks the table in round robin and invalidates freed memory.
 * Like a mapping, an open file descriptor keeps its memory in use. So the table
 * keeps only few descriptors open, each until the last user has released the
 * handle. Peers request others (node/descriptors.h).
 */
#ifndef UCT_CUDA_NODE_EXPORTS_H
#define UCT_CUDA_NODE_EXPORTS_H

#include <uct/cuda/node/handle.h>

#include <sys/queue.h>


/** Maximum number of descriptors kept open. */
#define UCT_CUDA_NODE_EXPORTS_MAX_HELD 16


/** Maximum ranges: beyond it, each new range invalidates the oldest one without
 *  a user. Ranges in use may exceed it. */
#define UCT_CUDA_NODE_EXPORTS_MAX_RANGES 1024


/**
 * Return the handle of an allocation, new or existing. Release it with
 * uct_cuda_node_exports_put(). Thread safe.
 *
 * @param address  Address within the allocation.
 * @param memory   Driver's description of the address.
 * @return As uct_cuda_node_handle_export().
 */
ucs_status_t uct_cuda_node_exports_get(const void *address,
                                       const uct_cuda_memory_t *memory,
                                       uct_cuda_node_handle_t *handle_p);

/**
 * Return the handle of cuMemCreate memory in several pieces, new or existing:
 * one for the same pieces. It becomes invalid when a piece is unmapped.
 * Release it with uct_cuda_node_exports_put(). Takes 0.15 us for each piece of
 * an existing one.
 *
 * @return UCS_OK; UCS_ERR_UNSUPPORTED: other memory is between the pieces, a
 *         piece cannot be shared, or they are of several GPUs;
 *         UCS_ERR_NO_MEMORY.
 */
ucs_status_t uct_cuda_node_exports_get_range(const void *address, size_t length,
                                             uct_cuda_node_handle_t *handle_p);

/** Addresses registered by the program. */
typedef struct uct_cuda_node_region uct_cuda_node_region_t;

struct uct_cuda_node_region {
    uint64_t                          base;
    uint64_t                          length;
    LIST_ENTRY(uct_cuda_node_region) link;
};

/** Let peers ask for handles of what is mapped in a region later. */
void uct_cuda_node_exports_add_region(uct_cuda_node_region_t *region);

void uct_cuda_node_exports_remove_region(uct_cuda_node_region_t *region);

/** Return whether a range is valid: the driver confirms that its pieces are
 *  mapped as they were, and nothing where nothing was. */
bool uct_cuda_node_exports_has_range(const uct_cuda_node_handle_t *handle);

/** Release a handle. The allocation may live on, and peers may keep it
 *  mapped. The last user closes the descriptor kept open for it. A handle
 *  with a descriptor number of its own is invalidated then. */
void uct_cuda_node_exports_put(uct_cuda_node_handle_t *handle);

/** Release a handle and invalidate it for all users: its allocation is about
 *  to be freed. The other users release it as well, before or after. */
void uct_cuda_node_exports_end(uct_cuda_node_handle_t *handle);

/**
 * Check in round robin whether allocations still exist, and invalidate the
 * handles of those that were freed. Takes about 0.2 us for each. Thread safe.
 *
 * @param count  Allocations to check.
 * @return Number of allocations in the table.
 */
unsigned uct_cuda_node_exports_check(unsigned count);

/**
 * Create a descriptor for the handle of a notice, in any context.
 *
 * @return Descriptor, closed by the caller; -1: the handle is no longer valid,
 *         or its memory has none.
 */
int uct_cuda_node_exports_descriptor(
    const uct_cuda_node_invalidation_t *notice);

/** Return the number of exports with an open descriptor, for tests. */
unsigned uct_cuda_node_exports_num_held(void);

/** Make a handle for a peer of the memory that is mapped at these addresses
 *  now, in any context. No user is added. @return Its size; 0: none, as no
 *  region has any of the addresses, or as uct_cuda_node_exports_get_range() */
size_t uct_cuda_node_exports_renew(uint64_t base, uint64_t length,
                                   void *answer);

#endif
