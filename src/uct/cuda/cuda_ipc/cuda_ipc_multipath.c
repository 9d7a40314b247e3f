/* SPDX-License-Identifier: BSD-3-Clause */
/* The peer's memory in each context that a path reads or writes it from: one in
 * the local context, one in that of each relay. */
#include <uct/cuda/cuda_ipc/cuda_ipc_multipath.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/multipath/operation.h>


_Static_assert(sizeof(uct_cuda_ipc_peer_memory_t) <= UCT_CUDA_OP_STATE_SIZE,
               "an operation has room for it");

uct_cuda_ipc_peer_memory_t *
uct_cuda_ipc_peer_memory_init(uct_cuda_op_t *op,
                              const uct_cuda_ipc_iface_t *iface,
                              const uct_cuda_ipc_rkey_t *rkey,
                              uint64_t remote_addr, int device)
{
    uct_cuda_ipc_peer_memory_t *memory = (void*)op->state;

    memory->rkey         = rkey;
    memory->offset       = remote_addr - rkey->handle.base;
    memory->keep         = iface->enable_cache;
    memory->context      = op->stream->context;
    memory->device       = device;
    memory->num_mappings = 0;
    op->arg              = memory;
    return memory;
}

void uct_cuda_ipc_peer_memory_put(uct_cuda_ipc_peer_memory_t *memory)
{
    while (memory->num_mappings > 0) {
        uct_cuda_ipc_cache_put(memory->mappings[--memory->num_mappings],
                               memory->keep);
    }
}

void uct_cuda_ipc_peer_memory_done(uct_cuda_op_t *op)
{
    uct_cuda_ipc_peer_memory_put(op->arg);
}

static ucs_status_t
map_in(uct_cuda_ipc_peer_memory_t *memory, int device, CUcontext context,
       unsigned long long context_id, CUdeviceptr *ptr_p)
{
    const unsigned i = memory->num_mappings;
    ucs_status_t status;

    if (i == sizeof(memory->mappings) / sizeof(memory->mappings[0])) {
        return UCS_ERR_EXCEEDS_LIMIT;
    }

    status = uct_cuda_ipc_cache_get_in(&memory->rkey->handle, device, context,
                                       context_id, &memory->mappings[i]);
    if (status == UCS_OK) {
        ++memory->num_mappings;
        *ptr_p = memory->mappings[i]->mapped + memory->offset;
    }

    return status;
}

ucs_status_t
uct_cuda_ipc_peer_memory_map(void *arg, int device, CUdeviceptr *ptr_p)
{
    unsigned long long id;
    CUcontext context;
    ucs_status_t status;

    status = uct_cuda_ctx_current(&context, &id);
    return (status == UCS_OK) ? map_in(arg, device, context, id, ptr_p) :
                                status;
}

ucs_status_t uct_cuda_ipc_peer_memory_map_stream(void *arg, CUdeviceptr *ptr_p)
{
    uct_cuda_ipc_peer_memory_t *memory  = arg;
    const uct_cuda_ipc_handle_t *handle = &memory->rkey->handle;
    ucs_status_t status;

    uct_cuda_ipc_peer_memory_put(memory);
    status = map_in(memory, memory->device, memory->context->cuda,
                    memory->context->id, ptr_p);
    if (status != UCS_OK) {
        uct_cuda_error("cannot map memory %#lx of pid %d (freed by its owner?)",
                       (unsigned long)handle->base, handle->pid);
    }

    return status;
}

bool uct_cuda_ipc_multipath_may_map(const uct_cuda_ipc_rkey_t *rkey)
{
    return rkey->handle.type == UCT_CUDA_IPC_HANDLE_LEGACY;
}

ucs_status_t
uct_cuda_ipc_multipath_start(uct_cuda_mp_engine_t *engine,
                             uct_cuda_ipc_peer_memory_t *memory, void *local,
                             size_t length, bool is_put, uct_cuda_op_t *op)
{
    const uct_cuda_ipc_rkey_t *rkey     = memory->rkey;
    const CUdeviceptr here              = (CUdeviceptr)local;
    const CUdeviceptr there             = rkey->handle.base + memory->offset;
    const bool is_mappable              = uct_cuda_ipc_multipath_may_map(rkey);
    const uct_cuda_end_t end            = uct_cuda_end_gpu(memory->device);
    const uct_cuda_mp_request_t request = {
        .src_end     = is_put ? end : rkey->gpu,
        .dst_end     = is_put ? rkey->gpu : end,
        .size        = length,
        .remote      = rkey->is_own ? uct_cuda_end_none() : rkey->gpu,
        .is_mappable = is_mappable
    };
    uct_cuda_mp_memory_t buffers        = {
        .src     = is_put ? here : there, /* another process's ... */
        .dst     = is_put ? there : here, /* ... does not matter */
        .map     = uct_cuda_ipc_peer_memory_map,
        .map_arg = memory
    };

    if ((rkey->is_own && !rkey->own.is_reached) ||
        (uct_cuda_mp_op_start(engine, &request, &buffers, op) != UCS_OK)) {
        uct_cuda_ipc_peer_memory_put(memory);
        return UCS_ERR_UNSUPPORTED;
    }

    op->done = uct_cuda_ipc_peer_memory_done;
    return UCS_OK;
}
