/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Host memory is only ever touched by its own process: that maps the peer's GPU
 * memory and copies over PCIe, piece by piece as the memory is page-locked. If
 * all of it is locked the engine may take it over several GPUs' links.
 */
#include <uct/cuda/cuda_ipc/cuda_ipc_host.h>

#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/host_bounce.h>
#include <uct/cuda/base/host_copy.h>
#include <uct/cuda/base/host_registry.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_cache.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_multipath.h>

#include <linux/mempolicy.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>


#define FEW_PIECES 4

/* Bytes that are sooner copied once more than it is found out whether their
 * memory is locked: 0.3 us */
#define TINY_SIZE 4096

/* Of local memory: locked at one stroke, or not at all */
typedef struct {
    size_t                 length; /* bytes */
    uct_cuda_host_region_t *region; /* held; NULL: not locked by us */
} piece_t;

typedef struct {
    uct_cuda_ipc_mapping_t *mapping; /* NULL: the engine has its own */
    bool                   keep;
    bool                   is_locked; /* all of it, by whomever */
    void                   *local;
    void                   *bounce; /* what comes to local goes here first; or
                                       NULL */
    unsigned               count;
    unsigned               room;
    piece_t                *pieces; /* few, or allocated */
    piece_t                few[FEW_PIECES];
} transfer_t;


static void transfer_destroy(transfer_t *transfer)
{
    unsigned i;

    for (i = 0; i < transfer->count; ++i) {
        if (transfer->pieces[i].region != NULL) {
            uct_cuda_host_region_release(transfer->pieces[i].region);
        }
    }

    if (transfer->mapping != NULL) {
        uct_cuda_ipc_cache_put(transfer->mapping, transfer->keep);
    }

    if (transfer->bounce != NULL) {
        uct_cuda_host_bounce_put(transfer->bounce);
    }

    if (transfer->pieces != transfer->few) {
        free(transfer->pieces);
    }
    free(transfer);
}

static void transfer_release(void *arg)
{
    transfer_destroy(arg);
}

static void transfer_done(uct_cuda_op_t *op)
{
    transfer_destroy(op->arg);
}

static void transfer_done_bounce(uct_cuda_op_t *op)
{
    transfer_t *transfer = op->arg;

    memcpy(transfer->local, transfer->bounce, transfer->pieces[0].length);
    transfer_destroy(transfer);
}

static ucs_status_t transfer_reserve(transfer_t *transfer)
{
    piece_t *pieces;

    if (transfer->count < transfer->room) {
        return UCS_OK;
    }

    pieces = malloc(2 * transfer->room * sizeof(*pieces));
    if (pieces == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    memcpy(pieces, transfer->pieces, transfer->count * sizeof(*pieces));
    if (transfer->pieces != transfer->few) {
        free(transfer->pieces);
    }

    transfer->pieces = pieces;
    transfer->room  *= 2;
    return UCS_OK;
}

/* Has what comes from the GPU go by locked memory. False, and nothing is
 * changed, if there is none. */
static bool transfer_bounce(transfer_t *transfer, void *local, size_t length)
{
    transfer->bounce = uct_cuda_host_bounce_get(length);
    if (transfer->bounce == NULL) {
        return false;
    }

    transfer->local            = local;
    transfer->count            = 1;
    transfer->pieces[0].length = length;
    return true;
}

/* Finds the pieces, locking some on the way, and holds what is locked */
static ucs_status_t transfer_hold(transfer_t *transfer, char *local,
                                  size_t length)
{
    ucs_status_t status;
    bool is_locked;
    piece_t *piece;

    transfer->is_locked = true;
    while (length > 0) {
        status = transfer_reserve(transfer);
        if (status != UCS_OK) {
            return status;
        }

        piece         = &transfer->pieces[transfer->count++];
        piece->length = uct_cuda_host_registry_next(local, length, &is_locked,
                                                    &piece->region);
        local        += piece->length;
        length       -= piece->length;
        transfer->is_locked = transfer->is_locked && is_locked;
    }

    return UCS_OK;
}

/* One path: a copy a piece */
static ucs_status_t transfer_submit(const transfer_t *transfer,
                                    CUdeviceptr remote, char *local,
                                    bool to_gpu, CUstream stream)
{
    ucs_status_t status;
    unsigned i;

    for (i = 0; i < transfer->count; ++i) {
        status = uct_cuda_host_copy(remote, local, transfer->pieces[i].length,
                                    to_gpu, stream);
        if (status != UCS_OK) {
            return status;
        }

        remote += transfer->pieces[i].length;
        local  += transfer->pieces[i].length;
    }

    return UCS_OK;
}

/* NUMA node of a buffer's first byte, or -1 if the system does not say */
static int host_numa(void *address)
{
    int numa;

    return (syscall(SYS_get_mempolicy, &numa, NULL, 0ul, address,
                    (unsigned long)(MPOL_F_NODE | MPOL_F_ADDR)) == 0) ?
                   numa :
                   -1;
}

/* Offers the transfer to the engine. UCS_OK: it follows that. */
static ucs_status_t multipath_start(uct_cuda_ipc_iface_t *iface,
                                    transfer_t *transfer,
                                    uct_cuda_ipc_multipath_request_t *request,
                                    uct_cuda_op_t *op)
{
    size_t *cuts = NULL;
    size_t end   = 0;
    ucs_status_t status;
    unsigned i;

    if (!uct_cuda_mp_wants_host(iface->engine, request->length) ||
        !transfer->is_locked) {
        return UCS_ERR_UNSUPPORTED;
    }

    if (transfer->count > 1) {
        cuts = malloc((transfer->count - 1) * sizeof(*cuts));
        if (cuts == NULL) {
            return UCS_ERR_NO_MEMORY;
        }

        for (i = 0; i < transfer->count - 1; ++i) {
            end    += transfer->pieces[i].length;
            cuts[i] = end;
        }
    }

    request->num_cuts  = transfer->count - 1;
    request->cuts      = cuts;
    request->host_numa = host_numa(request->local);
    request->release   = transfer_release;
    request->arg       = transfer;
    status             = uct_cuda_ipc_multipath_start(iface, request, op);
    free(cuts);
    return status;
}

static ucs_status_t
single_start(uct_cuda_ipc_iface_t *iface, transfer_t *transfer,
             const uct_cuda_ipc_multipath_request_t *request, int device,
             uct_cuda_op_t *op)
{
    const uct_cuda_ipc_handle_t *handle = &request->rkey->handle;
    const uct_cuda_context_t *context   = op->lane->context;
    CUstream stream                     = op->lane->stream;
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
        !transfer->is_locked && (transfer->count == 1)) {
        (void)transfer_bounce(transfer, request->local, request->length);
    }

    status = transfer_submit(transfer,
                             transfer->mapping->mapped +
                                     (request->remote_addr - handle->base),
                             (transfer->bounce != NULL) ? transfer->bounce :
                                                          request->local,
                             request->is_put, stream);
    if (status != UCS_OK) {
        /* What was submitted must not outlive the memory that it uses */
        (void)UCT_CUDA_CALL(cuStreamSynchronize, stream);
        return status;
    }

    op->done = (transfer->bounce != NULL) ? transfer_done_bounce :
                                            transfer_done;
    op->arg  = transfer;
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
        .local_device = UCT_CUDA_MP_DEVICE_HOST,
        .length       = length,
        .is_put       = to_gpu
    };
    transfer_t *transfer;
    ucs_status_t status;

    transfer = calloc(1, sizeof(*transfer));
    if (transfer == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    transfer->pieces = transfer->few;
    transfer->room   = FEW_PIECES;

    if (to_gpu || (length > TINY_SIZE) ||
        !transfer_bounce(transfer, local, length)) {
        status = transfer_hold(transfer, local, length);
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
