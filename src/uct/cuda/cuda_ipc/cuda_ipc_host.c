/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Host memory is only ever touched by its own process: that maps the peer's GPU
 * memory and copies over PCIe, as host_transfer.h says.
 */
#include <uct/cuda/cuda_ipc/cuda_ipc_host.h>

#include <uct/cuda/base/host/host_transfer.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_multipath.h>

#include <stdlib.h>


typedef struct {
    uct_cuda_host_transfer_t   super;
    uct_cuda_ipc_peer_memory_t memory;
} transfer_t;


static void transfer_done(uct_cuda_op_t *op)
{
    transfer_t *transfer = op->arg;

    uct_cuda_host_end(&transfer->super);
    uct_cuda_ipc_peer_memory_put(&transfer->memory);
    free(transfer);
}

ucs_status_t uct_cuda_ipc_host_start(uct_cuda_ipc_iface_t *iface,
                                     const uct_cuda_ipc_rkey_t *rkey,
                                     int device, void *local,
                                     uint64_t remote_addr, size_t length,
                                     bool to_gpu, uct_cuda_op_t *op)
{
    uct_cuda_host_request_t request = {
        .host      = local,
        .length    = length,
        .to_gpu    = to_gpu,
        .gpu_end   = rkey->gpu,
        .may_split = uct_cuda_ipc_multipath_may_map(rkey),
        .engine    = iface->engine,
        .map       = uct_cuda_ipc_peer_memory_map,
        .map_stream  = uct_cuda_ipc_peer_memory_map_stream
    };
    transfer_t *transfer;
    ucs_status_t status;

    transfer = malloc(sizeof(*transfer));
    if (transfer == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    uct_cuda_ipc_peer_memory_init(&transfer->memory, iface, rkey, remote_addr);
    transfer->memory.context = op->stream->context;
    transfer->memory.device  = device;
    request.arg              = &transfer->memory;

    status = uct_cuda_host_start(&request, &transfer->super, op);
    if (status != UCS_OK) {
        uct_cuda_ipc_peer_memory_put(&transfer->memory);
        free(transfer);
        return status;
    }

    op->done = transfer_done;
    op->arg  = transfer;
    return UCS_OK;
}
