/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Host memory is only ever touched by its own process: that maps the peer's GPU
 * memory and copies over a GPU's PCIe link, piece by piece as the memory is
 * page-locked.
 */
#include <uct/cuda/cuda_ipc/cuda_ipc_host.h>

#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/host_copy.h>
#include <uct/cuda/base/host_registry.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_cache.h>

#include <stdlib.h>


#define FEW_REGIONS 4

typedef struct {
    uct_cuda_ipc_mapping_t *mapping;
    bool                   keep;
    unsigned               count;
    unsigned               room;
    uct_cuda_host_region_t **regions; /* few, or allocated */
    uct_cuda_host_region_t *few[FEW_REGIONS];
} transfer_t;


static void transfer_destroy(transfer_t *transfer)
{
    unsigned i;

    for (i = 0; i < transfer->count; ++i) {
        uct_cuda_host_region_release(transfer->regions[i]);
    }

    uct_cuda_ipc_cache_put(transfer->mapping, transfer->keep);
    if (transfer->regions != transfer->few) {
        free(transfer->regions);
    }
    free(transfer);
}

static void transfer_done(uct_cuda_op_t *op)
{
    transfer_destroy(op->arg);
}

static ucs_status_t transfer_add(transfer_t *transfer,
                                 uct_cuda_host_region_t *region)
{
    uct_cuda_host_region_t **regions;
    unsigned i;

    if (transfer->count == transfer->room) {
        regions = malloc(2 * transfer->room * sizeof(*regions));
        if (regions == NULL) {
            return UCS_ERR_NO_MEMORY;
        }

        for (i = 0; i < transfer->count; ++i) {
            regions[i] = transfer->regions[i];
        }

        if (transfer->regions != transfer->few) {
            free(transfer->regions);
        }
        transfer->regions = regions;
        transfer->room   *= 2;
    }

    transfer->regions[transfer->count++] = region;
    return UCS_OK;
}

static ucs_status_t transfer_submit(transfer_t *transfer, CUdeviceptr remote,
                                    char *local, size_t length, bool to_gpu,
                                    CUstream stream)
{
    uct_cuda_host_region_t *region;
    ucs_status_t status;
    size_t piece;

    while (length > 0) {
        piece = uct_cuda_host_registry_next(local, length, &region);
        if (region != NULL) {
            status = transfer_add(transfer, region);
            if (status != UCS_OK) {
                uct_cuda_host_region_release(region);
                return status;
            }
        }

        status = uct_cuda_host_copy(remote, local, piece, to_gpu, stream);
        if (status != UCS_OK) {
            return status;
        }

        remote += piece;
        local  += piece;
        length -= piece;
    }

    return UCS_OK;
}

ucs_status_t uct_cuda_ipc_host_start(const uct_cuda_ipc_rkey_t *rkey,
                                     int device, bool keep, void *local,
                                     uint64_t remote_addr, size_t length,
                                     bool to_gpu, uct_cuda_op_t *op)
{
    CUstream stream = op->lane->stream;
    transfer_t *transfer;
    ucs_status_t status;

    transfer = calloc(1, sizeof(*transfer));
    if (transfer == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    transfer->keep    = keep;
    transfer->regions = transfer->few;
    transfer->room    = FEW_REGIONS;

    status = uct_cuda_ipc_cache_get(&rkey->handle, device, &transfer->mapping);
    if (status != UCS_OK) {
        uct_cuda_error("cannot map memory %#lx of pid %d (freed by its owner?)",
                       (unsigned long)rkey->handle.base, rkey->handle.pid);
        free(transfer);
        return status;
    }

    status = transfer_submit(transfer,
                             transfer->mapping->mapped +
                                     (remote_addr - rkey->handle.base),
                             local, length, to_gpu, stream);
    if (status != UCS_OK) {
        /* What was submitted must not outlive the memory that it uses */
        (void)UCT_CUDA_CALL(cuStreamSynchronize, stream);
        transfer_destroy(transfer);
        return status;
    }

    op->done = transfer_done;
    op->arg  = transfer;
    return UCS_OK;
}
