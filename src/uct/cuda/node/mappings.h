/* SPDX-License-Identifier: BSD-3-Clause */
/* Mappings of peers' allocations, kept between transfers. */
#ifndef UCT_CUDA_NODE_MAPPINGS_H
#define UCT_CUDA_NODE_MAPPINGS_H

#include <uct/cuda/node/handle.h>

#include <stdbool.h>


/** A peer's allocation mapped in one context of this process. */
typedef struct uct_cuda_node_mapping uct_cuda_node_mapping_t;

struct uct_cuda_node_mapping {
    uct_cuda_node_handle_t handle;
    CUdeviceptr            mapped;     /**< Where @a handle.base appears here */
    CUcontext              context;    /**< Opened in this context ... */
    unsigned long long     context_id; /**< ... which has this id */
    CUdevice               device;     /**< ... and belongs to this device */
    uct_cuda_node_notices_view_t *view;   /**< Where its end is told, or NULL */
    uint64_t                last_use;   /**< Mappings made until then */
    unsigned                users;      /**< Transfers under way, pins, loans */
    unsigned                loans;      /**< To who can do without it */
    bool                    stale;      /**< Close with the last user */
    bool                    closed;     /**< The memory was freed */
    bool                    is_own;     /**< Memory of this process */
    uct_cuda_node_mapping_t *newer;     /**< Least recently used order */
    uct_cuda_node_mapping_t *older;
};


/**
 * Map @a handle in the current context, or find it mapped. Thread safe. Where
 * another context of the device has opened handles of the peer's GPU it is in
 * that one: copies may use it all the same, kernels of this one may not.
 *
 * A mapping whose allocation the peer has freed since (same address, other
 * buffer id or length) is closed and made anew. Those that nobody uses and of
 * whose memory the owner has told that it is freed are closed with the next
 * call for the same peer, or one of some calls for others; of peers that cannot
 * tell, those not used while some hundred others were mapped.
 *
 * @param handle     Peer's allocation.
 * @param device     Device of the current context.
 * @param mapping_p  Filled with the mapping, held until it is put back.
 *
 * @return UCS_OK, UCS_ERR_UNREACHABLE, UCS_ERR_NO_MEMORY or UCS_ERR_IO_ERROR.
 */
ucs_status_t uct_cuda_node_cache_get(const uct_cuda_node_handle_t *handle,
                                     CUdevice device,
                                     uct_cuda_node_mapping_t **mapping_p);

/** The mapping that a handle was found as last, kept beside it; zeros at
 *  first. */
typedef struct {
    uct_cuda_node_mapping_t *mapping;
    uint64_t                generation; /**< No mapping was retired since */
} uct_cuda_node_hint_t;

/** The same for who knows the current context, and its id, already: small
 *  messages feel every question to the driver.
 *
 * @param hint  Of this handle, whose search it spares; or NULL. */
ucs_status_t uct_cuda_node_cache_get_in(const uct_cuda_node_handle_t *handle,
                                        uct_cuda_node_hint_t *hint,
                                        CUdevice device, CUcontext context,
                                        unsigned long long context_id,
                                        uct_cuda_node_mapping_t **mapping_p);

/** May kernels of the context with this id use it? */
static inline bool
uct_cuda_node_mapping_is_in(const uct_cuda_node_mapping_t *mapping,
                            unsigned long long context_id)
{
    return mapping->is_own || (mapping->context_id == context_id);
}

/** Say that a mapping failed, for who has no other way on. */
void uct_cuda_node_cache_tell_failure(const uct_cuda_node_handle_t *handle);

/** This thread is in a collective, or no more. There, what is kept of freed
 *  memory is closed sooner, and only if the GPU is known to be idle; a capture
 *  may end for that, as uct_cuda_ctx_is_idle() has it. */
void uct_cuda_node_cache_collective(bool is_inside);

/** Give a mapping back; @a keep says whether it may stay for the next use. */
void uct_cuda_node_cache_put(uct_cuda_node_mapping_t *mapping, bool keep);

/** Keep it, but not longer than the peer keeps the memory: by then it may have
 *  been closed. To be put back all the same, by @a unlend. */
void uct_cuda_node_cache_lend(uct_cuda_node_mapping_t *mapping);
void uct_cuda_node_cache_unlend(uct_cuda_node_mapping_t *mapping);

/** Mappings whose addresses were given out with a key. */
typedef struct uct_cuda_node_pin uct_cuda_node_pin_t;

struct uct_cuda_node_pin {
    uct_cuda_node_pin_t     *next;
    uct_cuda_node_mapping_t *mapping;
};

/**
 * Give a mapping back that the program, or code on a GPU, goes on using behind
 * this module's back: it stays until it is unpinned, whoever disconnects.
 *
 * @param pins  List that it is added to, unless it is in it.
 *
 * @return UCS_OK or UCS_ERR_NO_MEMORY; then it is given back, not pinned.
 */
ucs_status_t uct_cuda_node_cache_pin(uct_cuda_node_mapping_t *mapping,
                                     uct_cuda_node_pin_t **pins);

/** Nobody uses what is in the list any more; frees it. */
void uct_cuda_node_cache_unpin(uct_cuda_node_pin_t *pins);

/** What is kept of a peer's, at most: UCX_CUDA_IPC_CACHE_MAX_REGIONS, _MAX_SIZE
 *  (bytes). No limits to begin with. */
void uct_cuda_node_cache_limit(unsigned long max_regions, size_t max_size);

/** Close one peer's mappings (it has disconnected): those in use with their
 *  last user. */
void uct_cuda_node_cache_purge_peer(uint64_t pid_ns, int32_t pid);

/** Unmap memory that owners have freed since it was last looked at, for a
 *  millisecond at most; mapping memory does so as well. Waits for no GPU that
 *  is known to be busy.
 *  @return Whether there is more. */
bool uct_cuda_node_cache_look(void);

/** Number of mappings held, for tests and for the VFS. */
unsigned uct_cuda_node_cache_count(void);

#endif
