/* SPDX-License-Identifier: BSD-3-Clause */
/* Unpacked keys of peers (memh.h packs them). */
#ifndef UCT_CUDA_NODE_RKEY_H
#define UCT_CUDA_NODE_RKEY_H

#include <uct/abi/abi.h>
#include <uct/cuda/base/end.h>
#include <uct/cuda/node/handle.h>
#include <uct/cuda/node/mappings.h>
#include <uct/cuda/node/memh.h>


/** Access to memory of this process behind a key, once queried. */
typedef struct {
    unsigned long long context_id; /**< Queried context; 0: none yet */
    bool               is_reached; /**< Its copies are direct */
    /** Context for direct copies; may be NULL */
    CUcontext          instead;
} uct_cuda_node_own_t;


/** Unpacked remote key. */
typedef struct {
    uint64_t               magic;      /**< See uct_cuda_node_rkey_get() */
    bool                   is_self;    /**< Memory of this process */
    uct_cuda_node_own_t    own; /**< For uct_cuda_copy_direct_context() */
    uct_cuda_node_handle_t handle;
    /** Number of the stream; transfers with one GPU share it */
    unsigned               stream;
    uct_cuda_end_t         gpu;        /**< Exporter's GPU, or hidden */
    uct_cuda_end_t         from;       /**< GPU that has mapped the memory */
    uint32_t               reached;    /**< Mask of devices that can map it */
    uint32_t               unreached;  /**< Mask of devices that cannot */
    /** Pins of mappings returned by uct_cuda_node_rkey_map() */
    uct_cuda_node_pin_t    *pins;
    uct_cuda_node_hint_t   hint;       /**< The mapping used last */
    /** Invalidation page of the owner, if the owner can map other memory at
     *  these addresses; NULL: it cannot, or the page cannot be read */
    uct_cuda_node_invalidation_view_t *view;
} uct_cuda_node_rkey_t;


/**
 * Unpack a key and check, once for each peer process and pair of GPUs, whether
 * its memory can be mapped; after a failure, with the next key again. Memory of
 * this process needs no mapping. Destroy the key with
 * uct_cuda_node_rkey_destroy().
 *
 * @param gpu  GPU to map the memory in; none: any.
 * @return UCS_OK; UCS_ERR_UNREACHABLE: foreign key, other node, memory not
 *         shareable or freed, or no context to map it in; UCS_ERR_NO_MEMORY.
 */
ucs_status_t uct_cuda_node_rkey_unpack(const void *buffer, uct_cuda_end_t gpu,
                                       uct_cuda_node_rkey_t **rkey_p);

/**
 * Return whether a GPU of this process can map the memory behind a key. UCX
 * before 1.19 does not name the local device when it unpacks a key. The current
 * context must be one of the GPU: if the exporter's GPU is hidden the driver
 * cannot answer, and the memory is mapped as a trial.
 *
 * @param rkey    Key of another process; one thread at a time.
 * @param device  Device of the context.
 */
bool uct_cuda_node_rkey_reaches(uct_cuda_node_rkey_t *rkey, int device);

/** Replace the handle of a key whose view is not NULL, if the owner may have
 *  mapped other memory. Without a connection to the owner, its page decides
 *  whether the handle is valid.
 *  @return UCS_OK, UCS_ERR_UNREACHABLE. */
ucs_status_t uct_cuda_node_rkey_ask_current(uct_cuda_node_rkey_t *rkey);

/** Bring a key's handle up to date. Costs a comparison for memory of
 *  cuMemAlloc. One thread at a time. */
static inline ucs_status_t
uct_cuda_node_rkey_update(uct_cuda_node_rkey_t *rkey)
{
    return (rkey->view == NULL) ? UCS_OK : uct_cuda_node_rkey_ask_current(rkey);
}

/**
 * Return the local address of memory behind a key, for direct access by code on
 * the current context's GPU. It stays valid until the key is destroyed. By
 * UCX's rules a key is destroyed before its endpoint; other endpoints to the
 * process may be closed earlier.
 *
 * @param remote_addr  Address within the peer's memory.
 * @return UCS_OK, UCS_ERR_INVALID_PARAM (outside), UCS_ERR_NO_DEVICE (no
 *         current context), or as uct_cuda_node_cache_get().
 */
ucs_status_t uct_cuda_node_rkey_map(uct_cuda_node_rkey_t *rkey,
                                    uint64_t remote_addr,
                                    CUdeviceptr *mapped_p);

/** Discard what is known about the reachability of a disconnected peer: another
 *  process may get its PID. */
void uct_cuda_node_rkey_purge_peer(uint64_t pid_ns, int32_t pid);

void uct_cuda_node_rkey_destroy(uct_cuda_node_rkey_t *rkey);

/** Magic of a key, until it is destroyed. */
#define UCT_CUDA_NODE_RKEY_MAGIC UINT64_C(0x7563786d706b65ff)

/** Return the key passed by UCT, or NULL for UCT_INVALID_RKEY and for memory
 *  without a valid key. Reads 8 bytes at the address: it must be mapped. */
static inline uct_cuda_node_rkey_t *uct_cuda_node_rkey_get(uct_rkey_t uct_rkey)
{
    uct_cuda_node_rkey_t *rkey = (uct_cuda_node_rkey_t*)uct_rkey;

    return ((uct_rkey != UCT_INVALID_RKEY) && (uct_rkey != 0) &&
            ((uct_rkey % __alignof__(*rkey)) == 0) &&
            (rkey->magic == UCT_CUDA_NODE_RKEY_MAGIC)) ?
                   rkey :
                   NULL;
}

#endif
