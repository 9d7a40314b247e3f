/* SPDX-License-Identifier: BSD-3-Clause */
/* Handles for mapping GPU memory of another process. */
#ifndef UCT_CUDA_NODE_HANDLE_H
#define UCT_CUDA_NODE_HANDLE_H

#include <uct/cuda/base/memory.h>
#include <uct/cuda/node/descriptors.h>
#include <uct/cuda/node/invalidation.h>
#include <uct/cuda/node/process.h>

#include <stdbool.h>
#include <stdint.h>


/** Kind of sharing that an allocation allows between processes of the node. */
typedef enum {
    UCT_CUDA_NODE_HANDLE_NONE,   /**< Cannot be shared */
    UCT_CUDA_NODE_HANDLE_LEGACY, /**< cuMemAlloc memory, cuIpcGetMemHandle */
    UCT_CUDA_NODE_HANDLE_FABRIC, /**< cuMemCreate memory, fabric handle */
    UCT_CUDA_NODE_HANDLE_FD,     /**< cuMemCreate memory, file descriptor */
    /** Pool memory: fabric handle of the pool, and location in it */
    UCT_CUDA_NODE_HANDLE_POOL_FABRIC,
    UCT_CUDA_NODE_HANDLE_POOL_FD, /**< The same with the pool's descriptor */
    /** cuMemCreate memory in several pieces, with holes where nothing is
     *  mapped: a list of the pieces' handles, read from the exporter */
    UCT_CUDA_NODE_HANDLE_RANGE,
    UCT_CUDA_NODE_HANDLE_LAST
} uct_cuda_node_handle_type_t;


#define UCT_CUDA_NODE_HANDLE_BYTES 64


/** Handle of an allocation. Plain data; sent as it is. */
typedef struct {
    uint8_t  type;     /**< uct_cuda_node_handle_type_t */
    /** LEGACY: the exporter has opened this handle itself; the memory's owner
     *  cannot open it */
    uint8_t  is_imported;
    uint8_t  reserved[2];
    int32_t  pid;       /**< Exporter's PID in its PID namespace */
    /** Inode number of the exporter's PID namespace; 0: unknown */
    uint64_t pid_ns;
    uint64_t machine;   /**< Exporter's machine, uct_cuda_node_machine_self() */
    uint8_t  gpu[16];   /**< UUID of the GPU holding the memory */
    uint64_t base;      /**< Start of the allocation in the exporter */
    uint64_t length;    /**< Length of the allocation, bytes */
    uint64_t buffer_id; /**< Distinguishes allocations at one address */
    uct_cuda_node_invalidation_t notice; /**< Location of its invalidation */
    union {
        uint8_t bytes[UCT_CUDA_NODE_HANDLE_BYTES]; /**< LEGACY, *FABRIC */
        int32_t fd; /**< *FD: number in the exporter; -1: look up or ask */
        struct {
            uint64_t address; /**< In the exporter */
            uint64_t count;   /**< Handles; NONE: a hole */
        } pieces; /**< RANGE */
    } os;
    /** POOL_*: location in the pool */
    uint8_t place[UCT_CUDA_NODE_HANDLE_BYTES];
    /** FABRIC, FD, RANGE: uct_cuda_node_invalidation_remaps() at which the
     *  exporter's driver has confirmed it */
    uint64_t remaps;
} uct_cuda_node_handle_t;


/** Return whether processes of other nodes can open the handle, too. */
static inline bool
uct_cuda_node_handle_is_fabric(const uct_cuda_node_handle_t *handle)
{
    return (handle->type == UCT_CUDA_NODE_HANDLE_FABRIC) ||
           (handle->type == UCT_CUDA_NODE_HANDLE_POOL_FABRIC);
}


/** Return whether the handle is of cuMemCreate memory in one piece. */
static inline bool
uct_cuda_node_handle_is_vmm(const uct_cuda_node_handle_t *handle)
{
    return (handle->type == UCT_CUDA_NODE_HANDLE_FABRIC) ||
           (handle->type == UCT_CUDA_NODE_HANDLE_FD);
}


/** Return whether the memory was mapped with cuMemMap: the exporter can map
 *  other memory at its addresses while they are registered. */
static inline bool
uct_cuda_node_handle_is_mapped(const uct_cuda_node_handle_t *handle)
{
    return uct_cuda_node_handle_is_vmm(handle) ||
           (handle->type == UCT_CUDA_NODE_HANDLE_RANGE);
}


/** Take a reference to the page of the handle's owner, as
 *  uct_cuda_node_invalidation_view_get(). NULL, too, if the owner is on another
 *  machine. */
static inline uct_cuda_node_invalidation_view_t *
uct_cuda_node_handle_view(const uct_cuda_node_handle_t *handle)
{
    return (handle->machine != uct_cuda_node_machine_self()) ?
                   NULL :
                   uct_cuda_node_invalidation_view_get(
                           handle->pid_ns, handle->pid, &handle->notice,
                           uct_cuda_node_descriptors_ask_page);
}


/** Return whether type, PID, range and notice of another process's handle are
 *  within bounds. Call it before passing the handle to any other function. The
 *  OS handle is checked when it is opened. */
bool uct_cuda_node_handle_is_valid(const uct_cuda_node_handle_t *handle);


/**
 * Create a handle of the allocation containing @a address. For cuMemCreate
 * memory each mapping is an allocation, and so is each piece of a reservation
 * filled piece by piece (node/exports.h makes handles of several).
 *
 * The caller owns the file descriptor of an FD or POOL_FD handle and closes it
 * with uct_cuda_node_handle_release(). For memory that cannot be shared the
 * result is UCS_OK and a handle of type NONE: peers then use another transport.
 *
 * @return UCS_OK; UCS_ERR_INVALID_ADDR: not GPU memory; UCS_ERR_IO_ERROR.
 */
ucs_status_t uct_cuda_node_handle_export(const void *address,
                                         uct_cuda_node_handle_t *handle_p);

void uct_cuda_node_handle_release(uct_cuda_node_handle_t *handle);

/** Warn, once in a process, that memory is not shared since too few descriptors
 *  are left. */
void uct_cuda_node_handle_warn_descriptors(void);

/** Return whether the handle stands for a descriptor, of memory or of a
 *  pool. */
static inline bool
uct_cuda_node_handle_is_fd(const uct_cuda_node_handle_t *handle)
{
    return (handle->type == UCT_CUDA_NODE_HANDLE_FD) ||
           (handle->type == UCT_CUDA_NODE_HANDLE_POOL_FD);
}

/**
 * Create another descriptor of this process's memory behind the handle.
 *
 * @return Descriptor, closed by the caller; -1: not an FD or POOL_FD handle,
 *         or the driver failed.
 */
int uct_cuda_node_handle_descriptor(const uct_cuda_node_handle_t *handle);


/**
 * Map a peer's allocation into the current context.
 *
 * @param handle  Valid handle.
 * @param device  Device of the current context.
 * @return UCS_OK; UCS_ERR_ALREADY_EXISTS: a stale mapping of the peer is in the
 *         way; UCS_ERR_UNREACHABLE: it cannot be mapped, or is shorter than the
 *         handle says; UCS_ERR_NOT_CONNECTED: the peer gave no descriptor, as
 *         for freed memory; UCS_ERR_EXCEEDS_LIMIT: this process has no
 *         descriptor left; UCS_ERR_UNSUPPORTED: the driver cannot import this
 *         type; UCS_ERR_NO_MEMORY.
 */
ucs_status_t uct_cuda_node_handle_open(const uct_cuda_node_handle_t *handle,
                                       CUdevice device, CUdeviceptr *mapped_p);

/** Set whether this thread has a fallback for handles that it cannot open or
 *  renew. If so, it does not wait again for an exporter that did not answer. A
 *  copy has no fallback. */
void uct_cuda_node_handle_set_fallback(bool is_active);

/**
 * Request from a peer the handle of the memory that is at these addresses now.
 * Thread safe.
 *
 * @param view    The peer's invalidation page.
 * @param handle  Valid handle of mapped memory; on success replaced by one that
 *                covers at least the same addresses.
 * @return UCS_OK; UCS_ERR_UNREACHABLE: memory that is no longer registered or
 *         cannot be shared; UCS_ERR_NOT_CONNECTED: no connection to the peer
 *         (the kernel refuses it, or no descriptor is left), or no answer in
 *         time (the peer is stopped).
 */
ucs_status_t
uct_cuda_node_handle_renew(const uct_cuda_node_invalidation_view_t *view,
                           uct_cuda_node_handle_t *handle);

/** Unmap memory mapped by uct_cuda_node_handle_open(), in the same context.
 *  For a LEGACY handle this waits for all work in the context. */
void uct_cuda_node_handle_close(const uct_cuda_node_handle_t *handle,
                                CUdeviceptr mapped);

#endif
