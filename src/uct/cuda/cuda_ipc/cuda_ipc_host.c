/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Host memory is only ever touched by its own process: that maps the peer's GPU
 * memory and copies over PCIe, piece by piece as the memory is page-locked. If
 * all of it is locked the engine may take it over several GPUs' links; if most
 * of it is not, threads may copy it.
 */
#include <uct/cuda/cuda_ipc/cuda_ipc_host.h>

#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/host/host_bounce.h>
#include <uct/cuda/base/host/host_copy.h>
#include <uct/cuda/base/host/host_pieces.h>
#include <uct/cuda/base/host/host_pipeline.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_cache.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_multipath.h>

#include <stdlib.h>
#include <string.h>


/* Bytes that are sooner copied once more than it is found out whether their
 * memory is locked: 0.3 us */
#define TINY_SIZE 4096

typedef struct {
    uct_cuda_ipc_mapping_t *mapping; /* NULL: the engine has its own */
    bool                   keep;
    void                   *local;
    size_t                 length;
    void                   *bounce; /* what comes to local goes here first; or
                                       NULL */
    uct_cuda_host_job_t    *job;    /* threads copy it; or NULL */
    uct_cuda_host_pieces_t pieces; /* of local; none if all of it is to go by
                                      the bounce slot */
} transfer_t;


static void transfer_destroy(transfer_t *transfer)
{
    if (transfer->job != NULL) {
        uct_cuda_host_pipeline_release(transfer->job);
    }

    uct_cuda_host_pieces_release(&transfer->pieces);
    if (transfer->mapping != NULL) {
        uct_cuda_ipc_cache_put(transfer->mapping, transfer->keep);
    }

    if (transfer->bounce != NULL) {
        uct_cuda_host_bounce_put(transfer->bounce);
    }

    free(transfer);
}

static void transfer_release(void *arg)
{
    transfer_destroy(arg);
}

static void transfer_done(uct_cuda_op_t *op)
{
    uct_cuda_ipc_multipath_uncount(op);
    transfer_destroy(op->arg);
}

static void transfer_done_bounce(uct_cuda_op_t *op)
{
    transfer_t *transfer = op->arg;

    memcpy(transfer->local, transfer->bounce, transfer->length);
    transfer_destroy(transfer);
}

static ucs_status_t job_test(uct_cuda_op_t *op)
{
    return uct_cuda_host_pipeline_test(((transfer_t*)op->arg)->job);
}

static ucs_status_t job_notify(uct_cuda_op_t *op, CUhostFn func, void *arg)
{
    uct_cuda_host_pipeline_notify(((transfer_t*)op->arg)->job, func, arg);
    return UCS_OK;
}

/* Has what comes from the GPU go by locked memory. False, and nothing is
 * changed, if there is none. */
static bool transfer_bounce(transfer_t *transfer)
{
    transfer->bounce = uct_cuda_host_bounce_get(transfer->length);
    return transfer->bounce != NULL;
}

/* One path: a copy a piece */
static ucs_status_t transfer_submit(const transfer_t *transfer,
                                    CUdeviceptr remote, bool to_gpu,
                                    CUstream stream)
{
    return (transfer->bounce != NULL) ?
                   uct_cuda_host_copy(remote, transfer->bounce,
                                      transfer->length, false, stream) :
                   uct_cuda_host_pieces_copy(&transfer->pieces, remote,
                                             transfer->local, to_gpu, stream);
}

/* Offers the transfer to the engine. UCS_OK: it follows that. */
static ucs_status_t multipath_start(uct_cuda_ipc_iface_t *iface,
                                    transfer_t *transfer,
                                    uct_cuda_ipc_multipath_request_t *request,
                                    uct_cuda_op_t *op)
{
    const uct_cuda_host_pieces_t *pieces = &transfer->pieces;

    if (!uct_cuda_mp_wants_host(iface->engine, request->length) ||
        !pieces->is_locked) {
        return UCS_ERR_UNSUPPORTED;
    }

    request->num_cuts  = pieces->count - 1;
    request->cuts      = pieces->ends;
    request->host_numa = uct_cuda_host_numa(request->local);
    request->release   = transfer_release;
    request->arg       = transfer;
    return uct_cuda_ipc_multipath_start(iface, request, op);
}

static ucs_status_t
single_start(uct_cuda_ipc_iface_t *iface, transfer_t *transfer,
             const uct_cuda_ipc_multipath_request_t *request, int device,
             uct_cuda_op_t *op)
{
    const uct_cuda_ipc_handle_t *handle = &request->rkey->handle;
    const uct_cuda_context_t *context   = op->lane->context;
    CUstream stream                     = op->lane->stream;
    CUdeviceptr remote;
    ucs_status_t status;

    transfer->keep = iface->enable_cache;
    status = uct_cuda_ipc_cache_get_in(handle, device, context->cuda,
                                       context->id, &transfer->mapping);
    if (status != UCS_OK) {
        uct_cuda_error("cannot map memory %#lx of pid %d (freed by its owner?)",
                       (unsigned long)handle->base, handle->pid);
        transfer->mapping = NULL;
        return status;
    }

    if ((transfer->bounce == NULL) && !request->is_put &&
        !transfer->pieces.is_locked && (transfer->pieces.count == 1)) {
        (void)transfer_bounce(transfer);
    }

    remote = transfer->mapping->mapped + (request->remote_addr - handle->base);
    if (transfer->pieces.pageable > 0) {
        uct_cuda_mp_share_cpus(iface->engine);
    }

    if (uct_cuda_host_pieces_start_job(&transfer->pieces, remote,
                                       transfer->local, request->is_put,
                                       &transfer->job) == UCS_OK) {
        op->test   = job_test;
        op->notify = job_notify;
        op->done   = transfer_done;
        op->arg    = transfer;
        return UCS_OK;
    }

    status = transfer_submit(transfer, remote, request->is_put, stream);
    if (status != UCS_OK) {
        /* What was submitted must not outlive the memory that it uses */
        (void)UCT_CUDA_CALL(cuStreamSynchronize, stream);
        return status;
    }

    op->done = (transfer->bounce != NULL) ? transfer_done_bounce :
                                            transfer_done;
    op->arg  = transfer;
    if (transfer->pieces.is_locked &&
        uct_cuda_mp_wants_host(iface->engine, request->length)) {
        uct_cuda_ipc_multipath_count(iface, request->rkey,
                                     request->local_end, request->length,
                                     request->is_put, op);
    }

    return UCS_OK;
}

ucs_status_t uct_cuda_ipc_host_start(uct_cuda_ipc_iface_t *iface,
                                     const uct_cuda_ipc_rkey_t *rkey,
                                     int device, void *local,
                                     uint64_t remote_addr, size_t length,
                                     bool to_gpu, uct_cuda_op_t *op)
{
    uct_cuda_ipc_multipath_request_t request = {
        .rkey         = rkey,
        .remote_addr  = remote_addr,
        .local        = local,
        .local_end    = uct_cuda_end_host(),
        .length       = length,
        .is_put       = to_gpu
    };
    transfer_t *transfer;
    ucs_status_t status;

    transfer = calloc(1, sizeof(*transfer));
    if (transfer == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    transfer->local  = local;
    transfer->length = length;
    uct_cuda_host_pieces_init(&transfer->pieces);

    if (to_gpu || (length > TINY_SIZE) || !transfer_bounce(transfer)) {
        status = uct_cuda_host_pieces_hold(&transfer->pieces, local, length,
                                           to_gpu);
        if (status != UCS_OK) {
            goto err;
        }
    }

    if (multipath_start(iface, transfer, &request, op) == UCS_OK) {
        return UCS_OK;
    }

    status = single_start(iface, transfer, &request, device, op);
    if (status != UCS_OK) {
        goto err;
    }

    return UCS_OK;

err:
    transfer_destroy(transfer);
    return status;
}
