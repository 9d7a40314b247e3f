/* SPDX-License-Identifier: BSD-3-Clause */
/* Registered memory, and packing of remote keys. */
#ifndef UCT_CUDA_NODE_MEMH_H
#define UCT_CUDA_NODE_MEMH_H

#include <ucs/type/status.h>
#include <uct/cuda/node/handle.h>

#include <stddef.h>
#include <stdint.h>


/** "ucxmpkey" and the layout's version */
#define UCT_CUDA_NODE_PACKED_RKEY_MAGIC UINT64_C(0x7563786d706b6505)


/** Memory handle. Its allocations are exported when a key is first packed. */
typedef struct uct_cuda_node_memh uct_cuda_node_memh_t;


/** Wire format of a key. The magic identifies it as this module's. */
typedef struct {
    uint64_t               magic;
    uct_cuda_node_handle_t handle;
} uct_cuda_node_packed_rkey_t;


ucs_status_t uct_cuda_node_memh_create(void *address, size_t length,
                                       uct_cuda_node_memh_t **memh_p);

void uct_cuda_node_memh_destroy(uct_cuda_node_memh_t *memh);

/**
 * Pack the key of the allocation containing @a address, or of all pieces of
 * cuMemCreate memory in the range. If they cannot be shared as one range the
 * key is unusable, and the peer uses another transport.
 *
 * @param address  Address within the registered memory; NULL: all of it.
 * @param length   Bytes to be covered by the key.
 * @param buffer   Space for a uct_cuda_node_packed_rkey_t, any alignment.
 * @return UCS_OK, with a usable key or not; otherwise nothing was written:
 *         UCS_ERR_INVALID_ADDR (no GPU memory), UCS_ERR_IO_ERROR,
 *         UCS_ERR_NO_MEMORY.
 */
ucs_status_t uct_cuda_node_rkey_pack(uct_cuda_node_memh_t *memh, void *address,
                                     size_t length, void *buffer);

#endif
