/* SPDX-License-Identifier: BSD-3-Clause */
/* Cache of peers' mapped allocations. */
#ifndef UCT_CUDA_NODE_MAPPINGS_H
#define UCT_CUDA_NODE_MAPPINGS_H

#include <uct/cuda/node/handle.h>

#include <stdbool.h>
#include <sys/queue.h>


/** Peer allocation mapped in one context of this process. */
typedef struct uct_cuda_node_mapping {
    uct_cuda_node_handle_t handle;
    CUdeviceptr            mapped;     /**< Local address of handle.base */
    CUcontext              context;    /**< Context of the mapping */
    unsigned long long     context_id; /**< Its id */
    CUdevice               device;     /**< Its device */
    /** Invalidation page of the owner, or NULL */
    uct_cuda_node_invalidation_view_t *view;
    /** Value of num_mapped at its last use */
    uint64_t                last_use;
    /** Transfers, pins and weak references */
    unsigned                users;
    unsigned                weak;       /**< Weak references */
    bool                    stale;      /**< Close with the last user */
    /** Passed to uct_cuda_node_unmap(); only weak references are left */
    bool                    closed;
    bool                    is_self;    /**< Memory of this process */
    TAILQ_ENTRY(uct_cuda_node_mapping) link; /**< Order of last use */
} uct_cuda_node_mapping_t;


/**
 * Map @a handle in the current context, or return its cached mapping. Thread
 * safe. If another context of the device has opened handles of the peer's GPU,
 * the mapping is in that context: copies may use it, kernels of the current
 * context may not.
 *
 * A mapping whose allocation has been replaced by the peer (same address, other
 * buffer id or length) is closed and made again. Unused mappings of memory that
 * the owner has invalidated are closed at the next call for the same peer, or
 * at one of the next calls for others. Without an invalidation page, mappings
 * are closed that were not used while some hundred others were mapped.
 *
 * @param handle     Peer's allocation. One of this process is not mapped: the
 *                   mapping then has its own address.
 * @param device     Device of the current context.
 * @param mapping_p  Filled with the mapping; release it with
 *                   uct_cuda_node_cache_put().
 * @return UCS_OK; or, with nothing to release, UCS_ERR_UNREACHABLE,
 *         UCS_ERR_EXCEEDS_LIMIT (no descriptor is left), UCS_ERR_BUSY (in a
 *         collective: mappings in the way cannot be closed now),
 *         UCS_ERR_UNSUPPORTED, UCS_ERR_NO_MEMORY or UCS_ERR_IO_ERROR.
 */
ucs_status_t uct_cuda_node_cache_get(const uct_cuda_node_handle_t *handle,
                                     CUdevice device,
                                     uct_cuda_node_mapping_t **mapping_p);

/** Last mapping of a handle, stored with the handle; zeroed at first. */
typedef struct {
    uct_cuda_node_mapping_t *mapping;
    uint64_t                generation; /**< Valid while no mapping was retired
                                             since */
} uct_cuda_node_hint_t;

/** Map a handle as uct_cuda_node_cache_get() does. The caller passes the
 *  current context and its id, which saves driver queries: they are noticeable
 *  for small messages.
 *
 *  @param hint  Hint stored with the handle, to skip the search; or NULL. It is
 *               set to the mapping. */
ucs_status_t uct_cuda_node_cache_get_in(const uct_cuda_node_handle_t *handle,
                                        uct_cuda_node_hint_t *hint,
                                        CUdevice device, CUcontext context,
                                        unsigned long long context_id,
                                        uct_cuda_node_mapping_t **mapping_p);

/** Return whether kernels of the context with this id may use the mapping. */
static inline bool
uct_cuda_node_mapping_is_in(const uct_cuda_node_mapping_t *mapping,
                            unsigned long long context_id)
{
    return mapping->is_self || (mapping->context_id == context_id);
}

/** Return whether a mapping with weak references only was closed. */
static inline bool
uct_cuda_node_mapping_is_closed(const uct_cuda_node_mapping_t *mapping)
{
    return __atomic_load_n(&mapping->closed, __ATOMIC_RELAXED);
}

/**
 * Take a reference to the page of a handle's owner.
 *
 * @return NULL: as uct_cuda_node_invalidation_view_get().
 */
uct_cuda_node_invalidation_view_t *
uct_cuda_node_cache_view_get(const uct_cuda_node_handle_t *handle);

void uct_cuda_node_cache_view_put(uct_cuda_node_invalidation_view_t *view);

/** Log a failed mapping; for callers without a fallback. */
void uct_cuda_node_cache_log_failure(const uct_cuda_node_handle_t *handle,
                                     ucs_status_t status);

/** Mark this thread as inside or outside a collective, and on entering close
 *  kept mappings above the limit. Inside a collective, kept mappings of freed
 *  memory are closed sooner, but only after a query that finds the GPU idle.
 *  This query may invalidate a capture, see uct_cuda_ctx_is_idle(). */
void uct_cuda_node_cache_collective(bool is_inside);

/**
 * Release a mapping. After its last user it is closed if @a keep is false or
 * if its memory was freed.
 */
void uct_cuda_node_cache_put(uct_cuda_node_mapping_t *mapping, bool keep);

/** Turn a reference into a weak one: the mapping is closed when the peer frees
 *  the memory, at once if the peer has freed it already. Release it with
 *  uct_cuda_node_cache_put_weak(). */
void uct_cuda_node_cache_weaken(uct_cuda_node_mapping_t *mapping);

/** Release a weak reference. The mapping stays until its memory is freed; it is
 *  closed after its last user if @a keep is false or if the owner has no
 *  invalidation page. */
void uct_cuda_node_cache_put_weak(uct_cuda_node_mapping_t *mapping, bool keep);

/** Mappings whose addresses were given out with a key. */
typedef struct uct_cuda_node_pin uct_cuda_node_pin_t;

struct uct_cuda_node_pin {
    uct_cuda_node_pin_t     *next;
    uct_cuda_node_mapping_t *mapping;
};

/**
 * Turn a reference into a pin, for memory used by the program or by GPU code
 * outside this module's control. A pinned mapping stays until it is unpinned,
 * also if the peer disconnects.
 *
 * @param pins  List for the pin, added unless already in it.
 * @return UCS_OK or UCS_ERR_NO_MEMORY; on failure the mapping is released.
 */
ucs_status_t uct_cuda_node_cache_pin(uct_cuda_node_mapping_t *mapping,
                                     uct_cuda_node_pin_t **pins);

/** Release all pins of a list and free it. */
void uct_cuda_node_cache_unpin(uct_cuda_node_pin_t *pins);

/** Limit the mappings kept for one peer: UCX_CUDA_IPC_CACHE_MAX_REGIONS, and
 *  UCX_CUDA_IPC_CACHE_MAX_SIZE in bytes. Without this call there is no
 *  limit. */
void uct_cuda_node_cache_limit(unsigned long max_regions, size_t max_size);

/** Close the mappings of a peer that has disconnected, each after its last
 *  user. */
void uct_cuda_node_cache_purge_peer(uint64_t pid_ns, int32_t pid);

/**
 * Unmap memory freed by its owners since the last check, for at most 1 ms.
 * Mapping memory does this, too. Does not wait for a busy GPU.
 *
 * @return true: the time limit was reached, and more mappings can be closed;
 *         false: none has to be closed, or the GPU is busy.
 */
bool uct_cuda_node_cache_unmap_freed(void);

/** Return the number of mappings held, for tests and for the VFS. */
unsigned uct_cuda_node_cache_count(void);

#endif
