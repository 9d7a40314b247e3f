/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that was registered, and the keys that peers get of it. */
#ifndef UCT_CUDA_NODE_MEMH_H
#define UCT_CUDA_NODE_MEMH_H

#include <ucs/type/status.h>
#include <uct/cuda/node/handle.h>

#include <stddef.h>
#include <stdint.h>


/** "ucxmpkey" and the layout's version */
#define UCT_CUDA_NODE_PACKED_RKEY_MAGIC UINT64_C(0x7563786d706b6504)


/** Memory handle. What it covers is exported when a key is first packed. */
typedef struct uct_cuda_node_memh uct_cuda_node_memh_t;


/** Wire format of a key. The magic tells it from any other module's. */
typedef struct {
    uint64_t               magic;
    uct_cuda_node_handle_t handle;
} uct_cuda_node_packed_rkey_t;


ucs_status_t uct_cuda_node_memh_create(void *address, size_t length,
                                       uct_cuda_node_memh_t **memh_p);

void uct_cuda_node_memh_destroy(uct_cuda_node_memh_t *memh);

/**
 * Pack the key of the allocation that holds @a address. Of memory that goes on
 * behind the end of it, in another mapping, no peer can do anything with the
 * key: it takes another transport.
 *
 * @param address  Within the registered memory; NULL means all of it.
 * @param length   Bytes that the key is for.
 * @param buffer   Room for a uct_cuda_node_packed_rkey_t, any alignment.
 */
ucs_status_t uct_cuda_node_rkey_pack(uct_cuda_node_memh_t *memh, void *address,
                                     size_t length, void *buffer);

#endif
