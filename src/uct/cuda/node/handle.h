/* SPDX-License-Identifier: BSD-3-Clause */
/* Handles that let another process map this process's GPU memory. */
#ifndef UCT_CUDA_NODE_HANDLE_H
#define UCT_CUDA_NODE_HANDLE_H

#include <uct/cuda/base/memory.h>
#include <uct/cuda/node/notices.h>

#include <stdbool.h>
#include <stdint.h>


/** How an allocation can be shared with another process of the node. */
typedef enum {
    UCT_CUDA_NODE_HANDLE_NONE,   /**< Cannot be shared */
    UCT_CUDA_NODE_HANDLE_LEGACY, /**< cuMemAlloc memory, cuIpcGetMemHandle */
    UCT_CUDA_NODE_HANDLE_FABRIC, /**< cuMemCreate memory, fabric handle */
    UCT_CUDA_NODE_HANDLE_FD,     /**< cuMemCreate memory, file descriptor */
    UCT_CUDA_NODE_HANDLE_POOL_FABRIC, /**< Pool's memory, the pool's fabric
                                          handle and the memory's place */
    UCT_CUDA_NODE_HANDLE_POOL_FD, /**< The same with the pool's descriptor */
    UCT_CUDA_NODE_HANDLE_LAST
} uct_cuda_node_handle_type_t;


#define UCT_CUDA_NODE_HANDLE_BYTES 64


/** An allocation as another process sees it. Plain data; sent as it is. */
typedef struct {
    uint8_t  type;     /**< uct_cuda_node_handle_type_t */
    uint8_t  reserved[3];
    int32_t  pid;       /**< Exporter, in its own pid namespace */
    uint64_t pid_ns;    /**< Exporter's pid namespace (inode number); 0 if
                             it is not known */
    uint64_t machine;   /**< Exporter's, see uct_cuda_node_machine_self() */
    uint8_t  gpu[16];   /**< UUID of the GPU that holds the memory */
    uint64_t base;      /**< Start of the allocation in the exporter */
    uint64_t length;    /**< Length of the allocation, bytes */
    uint64_t buffer_id; /**< Tells allocations at one address apart */
    uct_cuda_node_notice_t notice; /**< Where its end is told */
    union {
        uint8_t bytes[UCT_CUDA_NODE_HANDLE_BYTES]; /**< LEGACY, *FABRIC */
        int32_t fd; /**< *FD: exporter's number; -1: see its page, or ask */
    } os;
    uint8_t place[UCT_CUDA_NODE_HANDLE_BYTES];    /**< POOL_*: in the pool */
} uct_cuda_node_handle_t;


/** Is it a handle that processes of other nodes can open as well? */
static inline bool
uct_cuda_node_handle_is_fabric(const uct_cuda_node_handle_t *handle)
{
    return (handle->type == UCT_CUDA_NODE_HANDLE_FABRIC) ||
           (handle->type == UCT_CUDA_NODE_HANDLE_POOL_FABRIC);
}


/** Is every field of a handle that came from outside within its bounds? To be
 *  asked once, before any other function gets the handle. */
bool uct_cuda_node_handle_is_valid(const uct_cuda_node_handle_t *handle);


/**
 * Describe the allocation that holds @a address to other processes. Memory
 * made with cuMemCreate is an allocation a mapping, and so is each piece of a
 * reservation that is filled piece by piece.
 *
 * The file descriptor of an FD or POOL_FD handle is the caller's to close, with
 * uct_cuda_node_handle_release(). Memory that cannot be shared gives UCS_OK and
 * a handle of type NONE: peers then take another transport.
 */
ucs_status_t uct_cuda_node_handle_export(const void *address,
                                         uct_cuda_node_handle_t *handle_p);

void uct_cuda_node_handle_release(uct_cuda_node_handle_t *handle);

/** Does it stand for a descriptor, of memory or of a pool? */
static inline bool
uct_cuda_node_handle_is_fd(const uct_cuda_node_handle_t *handle)
{
    return (handle->type == UCT_CUDA_NODE_HANDLE_FD) ||
           (handle->type == UCT_CUDA_NODE_HANDLE_POOL_FD);
}

/** Make another descriptor of this process's memory that it stands for.
 *  @return -1: it cannot be made. */
int uct_cuda_node_handle_descriptor(const uct_cuda_node_handle_t *handle);


/**
 * Map a peer's allocation into the current context.
 *
 * @param handle  Valid one.
 *
 * @return UCS_OK; UCS_ERR_ALREADY_EXISTS when a stale mapping of the peer is in
 *         the way; UCS_ERR_UNREACHABLE when it cannot be mapped, or is shorter
 *         than the handle says.
 */
ucs_status_t uct_cuda_node_handle_open(const uct_cuda_node_handle_t *handle,
                                       CUdevice device, CUdeviceptr *mapped_p);

/** Undo uct_cuda_node_handle_open(), in the same context. */
void uct_cuda_node_handle_close(const uct_cuda_node_handle_t *handle,
                                CUdeviceptr mapped);

#endif
