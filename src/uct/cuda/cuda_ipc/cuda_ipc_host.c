/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Host memory is only ever touched by its own process: that maps the peer's GPU
 * memory and copies over PCIe, as host_transfer.h says.
 */
#include <uct/cuda/cuda_ipc/cuda_ipc_host.h>

#include <uct/cuda/base/host/host_transfer.h>

typedef struct {
    uct_cuda_ipc_peer_memory_t memory; /* first: the operation keeps it there */
    uct_cuda_host_transfer_t   transfer;
} state_t;

_Static_assert(sizeof(state_t) <= UCT_CUDA_OP_STATE_SIZE,
               "an operation has room for it");


static void transfer_done(uct_cuda_op_t *op)
{
    state_t *state = op->arg;

    uct_cuda_host_end(&state->transfer);
    uct_cuda_ipc_peer_memory_put(&state->memory);
}

ucs_status_t uct_cuda_ipc_host_start(uct_cuda_mp_engine_t *engine,
                                     uct_cuda_ipc_peer_memory_t *memory,
                                     void *local, size_t length, bool to_gpu,
                                     uct_cuda_op_t *op)
{
    const uct_cuda_ipc_rkey_t *rkey       = memory->rkey;
    const bool may_split = uct_cuda_ipc_multipath_may_map(rkey);
    const uct_cuda_host_request_t request = {
        .host       = local,
        .length     = length,
        .to_gpu     = to_gpu,
        .gpu_end    = rkey->gpu,
        .may_split  = may_split,
        .map        = uct_cuda_ipc_peer_memory_map,
        .map_stream = uct_cuda_ipc_peer_memory_map_stream,
        .arg        = memory
    };
    state_t *state                        = op->arg;
    ucs_status_t status;

    status = uct_cuda_host_start(engine, &request, &state->transfer, op);
    if (status != UCS_OK) {
        uct_cuda_ipc_peer_memory_put(memory);
        return status;
    }

    op->done = transfer_done;
    return UCS_OK;
}
