/* SPDX-License-Identifier: BSD-3-Clause */
/* Transfers with a peer's memory by the multi-path engine. */
#ifndef UCT_CUDA_IPC_MULTIPATH_H
#define UCT_CUDA_IPC_MULTIPATH_H

#include <uct/cuda/base/queue.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_cache.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_iface.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_rkey.h>
#include <uct/cuda/multipath/multipath.h>

#include <stdbool.h>


/** A peer's memory, in each context where one transfer wants it mapped. */
typedef struct {
    const uct_cuda_ipc_rkey_t *rkey;
    uint64_t                  offset;   /**< In the peer's allocation, bytes */
    bool                      keep;     /**< Mappings may stay in the cache */
    const uct_cuda_context_t  *context; /**< Of a copy by one path ... */
    int                       device;   /**< ... and its device */
    unsigned                  num_mappings;
    uct_cuda_ipc_mapping_t    *mappings[1 + UCT_CUDA_MP_MAX_PATHS];
} uct_cuda_ipc_peer_memory_t;


/** The memory of a transfer, which the operation keeps; nothing is mapped yet.
 *  The key has to stay. @a device is that of the operation's context. */
uct_cuda_ipc_peer_memory_t *
uct_cuda_ipc_peer_memory_init(uct_cuda_op_t *op,
                              const uct_cuda_ipc_iface_t *iface,
                              const uct_cuda_ipc_rkey_t *rkey,
                              uint64_t remote_addr, int device);

/** Give all mappings back; more may follow. */
void uct_cuda_ipc_peer_memory_put(uct_cuda_ipc_peer_memory_t *memory);

/** The same at the end of the operation that keeps the memory. */
void uct_cuda_ipc_peer_memory_done(uct_cuda_op_t *op);

/** Map it in the current context, as the engine wants it (@a arg is the
 *  memory); UCS_ERR_EXCEEDS_LIMIT, or as uct_cuda_ipc_cache_get(). */
ucs_status_t
uct_cuda_ipc_peer_memory_map(void *arg, int device, CUdeviceptr *ptr_p);

/** Map it in the context of a copy by one path, which is current, and nowhere
 *  else any more; logs errors. */
ucs_status_t uct_cuda_ipc_peer_memory_map_stream(void *arg, CUdeviceptr *ptr_p);


/** May it be mapped once more for each relay? Only the owner's handle of legacy
 *  memory can be opened so often. */
bool uct_cuda_ipc_multipath_may_map(const uct_cuda_ipc_rkey_t *rkey);


/**
 * Offer a transfer between GPUs to the engine, with the local memory's context
 * current.
 *
 * @param memory  The peer's; kept by the operation.
 * @return UCS_OK: started, and the operation, which is to be posted, follows
 *         it. UCS_ERR_UNSUPPORTED: one path is the way to go; nothing is under
 *         way.
 */
ucs_status_t
uct_cuda_ipc_multipath_start(uct_cuda_mp_engine_t *engine,
                             uct_cuda_ipc_peer_memory_t *memory, void *local,
                             size_t length, bool is_put, uct_cuda_op_t *op);

#endif
