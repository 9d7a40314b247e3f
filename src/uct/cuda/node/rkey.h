/* SPDX-License-Identifier: BSD-3-Clause */
/* A peer's keys, unpacked (memh.h has them packed). */
#ifndef UCT_CUDA_NODE_RKEY_H
#define UCT_CUDA_NODE_RKEY_H

#include <uct/abi/abi.h>
#include <uct/cuda/base/end.h>
#include <uct/cuda/node/handle.h>
#include <uct/cuda/node/mappings.h>
#include <uct/cuda/node/memh.h>


/** What has been found out of memory of this process. */
typedef struct {
    unsigned long long context_id; /**< From this context; 0: none yet */
    bool               is_reached; /**< ... copies go there directly, */
    CUcontext          instead;    /**< ... or from this one; may be NULL */
} uct_cuda_node_own_t;


/** Unpacked remote key. */
typedef struct {
    uint64_t               magic;      /**< See uct_cuda_node_rkey_get() */
    bool                   is_own;     /**< Memory of this process ... */
    uct_cuda_node_own_t    own;        /**< For uct_cuda_node_own_instead() */
    uct_cuda_node_handle_t handle;
    unsigned               stream;     /**< Number; one GPU's transfers share
                                           one */
    uct_cuda_end_t         gpu;        /**< Exporter's, or hidden */
    uct_cuda_end_t         from;       /**< That has mapped its memory */
    uint32_t               reached;    /**< By these, for
                                           uct_cuda_node_rkey_reaches() ... */
    uint32_t               unreached;  /**< ... and not by these */
    uct_cuda_node_pin_t    *pins;      /**< What uct_cuda_node_rkey_map() has
                                           given out */
    uct_cuda_node_hint_t   hint;       /**< The mapping used last */
} uct_cuda_node_rkey_t;


/**
 * Unpack a key and find out, once a peer process and pair of GPUs, whether the
 * memory behind it can be mapped. This process's own memory needs no mapping.
 *
 * @param gpu  That is to map it; none: any.
 * @return UCS_OK, UCS_ERR_UNREACHABLE (not ours, not on this node, not
 *         shareable, no context to map it in) or UCS_ERR_NO_MEMORY.
 */
ucs_status_t uct_cuda_node_rkey_unpack(const void *buffer, uct_cuda_end_t gpu,
                                       uct_cuda_node_rkey_t **rkey_p);

/**
 * Can a GPU of this process map the memory behind a key? Releases before 1.19
 * do not say at unpacking whose buffers it will be used with. A context of the
 * GPU is current; in that it is tried where the driver cannot be asked, as the
 * exporter's GPU is hidden.
 *
 * @param rkey    Of another process; one thread at a time.
 * @param device  Of the context.
 */
bool uct_cuda_node_rkey_ask_reach(uct_cuda_node_rkey_t *rkey, int device);

static inline bool
uct_cuda_node_rkey_reaches(uct_cuda_node_rkey_t *rkey, int device)
{
    return uct_cuda_end_is_device(rkey->from, device) ||
           uct_cuda_end_is_device(rkey->gpu, device) ||
           (rkey->reached & (1u << device)) ||
           uct_cuda_node_rkey_ask_reach(rkey, device);
}

/**
 * Where memory behind a key appears in this process, for whoever is to touch it
 * by itself: code on the current context's GPU. Stays there until the key is
 * destroyed, which UCX's rules have happen before its endpoint is; others'
 * endpoints to the same process come and go.
 *
 * @param remote_addr  Within the peer's memory.
 *
 * @return UCS_OK, UCS_ERR_INVALID_PARAM (outside), UCS_ERR_NO_DEVICE (no
 *         current context), or as uct_cuda_node_cache_get().
 */
ucs_status_t uct_cuda_node_rkey_map(uct_cuda_node_rkey_t *rkey,
                                    uint64_t remote_addr,
                                    CUdeviceptr *mapped_p);

void uct_cuda_node_rkey_destroy(uct_cuda_node_rkey_t *rkey);

/** In a key that is in use */
#define UCT_CUDA_NODE_RKEY_MAGIC UINT64_C(0x7563786d706b65ff)

/** The key that UCT handed in, or NULL: UCT_INVALID_RKEY, or memory that holds
 *  no key (any more). An address where there is no memory is not noticed. */
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
