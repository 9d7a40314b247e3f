/* SPDX-License-Identifier: BSD-3-Clause */
/* The peer's memory in each context that a path reads or writes it from: one in
 * the local context, one in that of each relay. */
#include <uct/cuda/cuda_ipc/cuda_ipc_multipath.h>

#include <uct/cuda/multipath/operation.h>

#include <stdlib.h>


void uct_cuda_ipc_peer_memory_init(uct_cuda_ipc_peer_memory_t *memory,
                                   const uct_cuda_ipc_iface_t *iface,
                                   const uct_cuda_ipc_rkey_t *rkey,
                                   uint64_t remote_addr)
{
    memory->rkey         = rkey;
    memory->offset       = remote_addr - rkey->handle.base;
    memory->keep         = iface->enable_cache;
    memory->num_mappings = 0;
}

void uct_cuda_ipc_peer_memory_put(uct_cuda_ipc_peer_memory_t *memory)
{
    while (memory->num_mappings > 0) {
        uct_cuda_ipc_cache_put(memory->mappings[--memory->num_mappings],
                               memory->keep);
    }
}

static CUdeviceptr add_mapping(uct_cuda_ipc_peer_memory_t *memory,
                               uct_cuda_ipc_mapping_t *mapping)
{
    memory->mappings[memory->num_mappings++] = mapping;
    return mapping->mapped + memory->offset;
}

ucs_status_t uct_cuda_ipc_peer_memory_map_in(uct_cuda_ipc_peer_memory_t *memory,
                                             const uct_cuda_context_t *context,
                                             int device, CUdeviceptr *ptr_p)
{
    uct_cuda_ipc_mapping_t *mapping;
    ucs_status_t status;

    status = uct_cuda_ipc_cache_get_in(&memory->rkey->handle, device,
                                       context->cuda, context->id, &mapping);
    if (status == UCS_OK) {
        *ptr_p = add_mapping(memory, mapping);
    }

    return status;
}

ucs_status_t
uct_cuda_ipc_peer_memory_map(void *arg, int device, CUdeviceptr *ptr_p)
{
    uct_cuda_ipc_peer_memory_t *memory = arg;
    uct_cuda_ipc_mapping_t *mapping;
    ucs_status_t status;

    if (memory->num_mappings ==
        sizeof(memory->mappings) / sizeof(memory->mappings[0])) {
        return UCS_ERR_EXCEEDS_LIMIT;
    }

    status = uct_cuda_ipc_cache_get(&memory->rkey->handle, device, &mapping);
    if (status == UCS_OK) {
        *ptr_p = add_mapping(memory, mapping);
    }

    return status;
}

bool uct_cuda_ipc_multipath_may_map(const uct_cuda_ipc_rkey_t *rkey)
{
    return rkey->handle.type == UCT_CUDA_IPC_HANDLE_LEGACY;
}

void uct_cuda_ipc_multipath_count(uct_cuda_ipc_iface_t *iface,
                                  const uct_cuda_ipc_rkey_t *rkey,
                                  uct_cuda_end_t local, size_t length,
                                  bool is_put, uct_cuda_op_t *op)
{
    uct_cuda_mp_op_count(iface->engine, is_put ? local : rkey->gpu,
                         is_put ? rkey->gpu : local, length, op);
}

static void multipath_done(uct_cuda_op_t *op)
{
    uct_cuda_ipc_peer_memory_put(op->arg);
    free(op->arg);
}

ucs_status_t uct_cuda_ipc_multipath_start(
        uct_cuda_ipc_iface_t *iface,
        const uct_cuda_ipc_multipath_request_t *request, uct_cuda_op_t *op)
{
    const uct_cuda_ipc_rkey_t *rkey  = request->rkey;
    const bool is_put                = request->is_put;
    const uct_cuda_end_t local_end   = request->local_end;
    const CUdeviceptr local          = (CUdeviceptr)request->local;
    uct_cuda_mp_request_t mp_request = {
        .size    = request->length,
        .src_end = is_put ? local_end : rkey->gpu,
        .dst_end = is_put ? rkey->gpu : local_end
    };
    uct_cuda_ipc_peer_memory_t *memory;
    CUdeviceptr remote;

    if (!uct_cuda_ipc_multipath_may_map(rkey) ||
        !uct_cuda_mp_may_split(iface->engine, mp_request.src_end,
                               mp_request.dst_end, request->length)) {
        return UCS_ERR_UNSUPPORTED;
    }

    memory = malloc(sizeof(*memory));
    if (memory == NULL) {
        return UCS_ERR_UNSUPPORTED;
    }

    uct_cuda_ipc_peer_memory_init(memory, iface, rkey, request->remote_addr);
    if (uct_cuda_ipc_peer_memory_map(memory, uct_cuda_end_device(local_end),
                                     &remote) != UCS_OK) {
        goto err;
    }

    mp_request.src = is_put ? local : remote;
    mp_request.dst = is_put ? remote : local;
    if (uct_cuda_mp_op_start(iface->engine, &mp_request,
                             is_put ? UCT_CUDA_MP_REMOTE_DST :
                                      UCT_CUDA_MP_REMOTE_SRC,
                             uct_cuda_ipc_peer_memory_map, memory,
                             op) != UCS_OK) {
        goto err;
    }

    op->done = multipath_done;
    op->arg  = memory;
    return UCS_OK;

err:
    uct_cuda_ipc_peer_memory_put(memory);
    free(memory);
    return UCS_ERR_UNSUPPORTED;
}
