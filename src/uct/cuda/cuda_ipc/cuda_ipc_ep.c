/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A transfer: map the peer's memory, then one copy on the peer's lane, or, for
 * what is worth it, the multi-path engine.
 */
#include <uct/cuda/cuda_ipc/cuda_ipc_ep.h>

#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/gpu.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/memory.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_cache.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_iface.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_rkey.h>

#include <stdlib.h>
#include <string.h>


typedef enum {
    DIRECTION_PUT,
    DIRECTION_GET
} direction_t;


ucs_status_t uct_cuda_ipc_ep_create(uct_abi_iface_t *iface,
                                    const uct_abi_ep_params_t *params,
                                    uct_ep_h *ep_p)
{
    uct_cuda_ipc_ep_t *ep;
    ucs_status_t status;

    if (params->iface_addr == NULL) {
        uct_cuda_error("an endpoint was asked for without an address");
        return UCS_ERR_INVALID_PARAM;
    }

    ep = calloc(1, sizeof(*ep));
    if (ep == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    status = uct_abi_ep_init(&ep->super, iface);
    if (status != UCS_OK) {
        free(ep);
        return status;
    }

    memcpy(&ep->peer, params->iface_addr, sizeof(ep->peer));
    *ep_p = &ep->super.super;
    return UCS_OK;
}

void uct_cuda_ipc_ep_destroy(uct_ep_h tl_ep)
{
    uct_cuda_ipc_ep_t *ep = (uct_cuda_ipc_ep_t*)tl_ep;

    uct_cuda_ipc_cache_purge_peer(ep->peer.pid_ns, ep->peer.pid);
    uct_abi_ep_cleanup(&ep->super);
    free(ep);
}

int uct_cuda_ipc_ep_is_connected(uct_ep_h tl_ep,
                                 const uct_abi_ep_params_t *peer)
{
    const uct_cuda_ipc_ep_t *ep = (const uct_cuda_ipc_ep_t*)tl_ep;

    return (peer->iface_addr != NULL) &&
           (memcmp(&ep->peer, peer->iface_addr, sizeof(ep->peer)) == 0);
}

static void op_unmap(uct_cuda_op_t *op)
{
    uct_cuda_ipc_cache_put(op->arg, true);
}

static void op_unmap_uncached(uct_cuda_op_t *op)
{
    uct_cuda_ipc_cache_put(op->arg, false);
}

static ucs_status_t multipath_test(uct_cuda_op_t *op)
{
    return uct_cuda_mp_test(op->arg2);
}

static ucs_status_t multipath_notify(uct_cuda_op_t *op, CUhostFn func,
                                     void *arg)
{
    return uct_cuda_mp_notify(op->arg2, func, arg);
}

static void multipath_done(uct_cuda_op_t *op)
{
    uct_cuda_mp_release(op->arg2);
    op_unmap(op);
}

static void multipath_done_uncached(uct_cuda_op_t *op)
{
    uct_cuda_mp_release(op->arg2);
    op_unmap_uncached(op);
}

/*
 * Offers the transfer to the engine.
 *
 * @return UCS_OK: started, the operation follows it. UCS_ERR_UNSUPPORTED: the
 *         single path is the way to go.
 */
static ucs_status_t multipath_start(uct_cuda_ipc_iface_t *iface,
                                    const uct_cuda_ipc_rkey_t *rkey,
                                    int local_device, CUdeviceptr dst, CUdeviceptr src,
                                    size_t length, direction_t direction,
                                    uct_cuda_op_t *op)
{
    uct_cuda_mp_transfer_t *transfer = NULL;
    uct_cuda_mp_request_t request;
    ucs_status_t status;
    int remote_device;

    if (!uct_cuda_mp_wants(iface->engine, length) || (local_device < 0)) {
        return UCS_ERR_UNSUPPORTED;
    }

    /* Relays write through the mapping from their own contexts; a mapping made
     * for one device, as that of VMM memory is, would not let them */
    if (rkey->handle.type != UCT_CUDA_IPC_HANDLE_LEGACY) {
        return UCS_ERR_UNSUPPORTED;
    }

    remote_device      = (rkey->gpu_device >= 0) ? rkey->gpu_device :
                                                   UCT_CUDA_MP_DEVICE_UNKNOWN;
    request.src        = src;
    request.dst        = dst;
    request.size       = length;
    request.src_device = (direction == DIRECTION_PUT) ? local_device :
                                                        remote_device;
    request.dst_device = (direction == DIRECTION_PUT) ? remote_device :
                                                        local_device;
    status = uct_cuda_mp_start(iface->engine, &request, &transfer);
    if ((status != UCS_OK) || (transfer == NULL)) {
        return UCS_ERR_UNSUPPORTED;
    }

    op->test   = multipath_test;
    op->notify = multipath_notify;
    op->done   = iface->enable_cache ? multipath_done :
                                            multipath_done_uncached;
    op->arg2 = transfer;
    return UCS_OK;
}

/*
 * Makes current where the copy is to run: with the local memory, or, where that
 * is the host's (UCP stages through host buffers), near the peer's memory.
 */
static ucs_status_t push_context(const uct_cuda_ipc_rkey_t *rkey,
                                 int local_device, CUcontext local_context,
                                 uct_cuda_gpu_context_t *context)
{
    if (local_device >= 0) {
        return uct_cuda_gpu_context_push(local_context, local_device, context);
    }

    return ((rkey->gpu_device >= 0) &&
            (uct_cuda_gpu_context_push_any(rkey->gpu_device, context) ==
             UCS_OK)) ?
                   UCS_OK :
                   uct_cuda_gpu_context_push_any(-1, context);
}

static ucs_status_t transfer(uct_ep_h ep, const uct_iov_t *iov, size_t iovcnt,
                             uint64_t remote_addr, uct_rkey_t uct_rkey,
                             uct_completion_t *comp, direction_t direction)
{
    uct_cuda_ipc_iface_t *iface     = (uct_cuda_ipc_iface_t*)ep->iface;
    const uct_cuda_ipc_rkey_t *rkey = (const uct_cuda_ipc_rkey_t*)uct_rkey;
    uct_cuda_queue_t *queue         = &iface->super.queue;
    uct_cuda_ipc_mapping_t *mapping;
    uct_cuda_gpu_context_t context;
    CUdeviceptr remote, dst, src;
    CUcontext local_context;
    int local_device;
    uct_cuda_lane_t *lane;
    ucs_status_t status;
    uct_cuda_op_t *op;

    if ((iovcnt == 0) || (iov->length == 0)) {
        return UCS_OK;
    }

    if ((iovcnt != 1) || (remote_addr < rkey->handle.base) ||
        (iov->length > rkey->handle.length) ||
        (remote_addr - rkey->handle.base >
         rkey->handle.length - iov->length)) {
        uct_cuda_error("transfer of %zu bytes at %#lx leaves the peer's memory "
                       "%#lx..%#lx",
                       iov->length, (unsigned long)remote_addr,
                       (unsigned long)rkey->handle.base,
                       (unsigned long)(rkey->handle.base +
                                       rkey->handle.length));
        return UCS_ERR_INVALID_PARAM;
    }

    uct_cuda_memory_place(iov->buffer, &local_device, &local_context);
    status = push_context(rkey, local_device, local_context, &context);
    if (status != UCS_OK) {
        uct_cuda_error("no usable context on GPU %d for memory at %p",
                       local_device, iov->buffer);
        return status;
    }

    status = uct_cuda_queue_lane(queue, rkey->lane % iface->max_streams,
                                 &lane);
    if (status != UCS_OK) {
        goto out_pop;
    }

    status = uct_cuda_ipc_cache_get(&rkey->handle, context.device, &mapping);
    if (status != UCS_OK) {
        uct_cuda_error("cannot map memory %#lx of pid %d (freed by its owner?)",
                       (unsigned long)rkey->handle.base, rkey->handle.pid);
        goto out_pop;
    }

    status = uct_cuda_op_get(lane, &op);
    if (status != UCS_OK) {
        goto err_unmap;
    }

    remote = mapping->mapped + (remote_addr - rkey->handle.base);
    dst    = (direction == DIRECTION_PUT) ? remote : (CUdeviceptr)iov->buffer;
    src    = (direction == DIRECTION_PUT) ? (CUdeviceptr)iov->buffer : remote;

    op->comp = comp;
    op->arg  = mapping;
    if (multipath_start(iface, rkey, local_device, dst, src, iov->length,
                        direction, op) != UCS_OK) {
        op->done = iface->enable_cache ? op_unmap : op_unmap_uncached;
        status   = UCT_CUDA_CALL(cuMemcpyAsync, dst, src, iov->length,
                                 lane->stream);
        if (status != UCS_OK) {
            uct_cuda_op_put(op);
            goto err_unmap;
        }
    }

    status = uct_cuda_op_post(queue, op);
    if (status == UCS_INPROGRESS) {
        goto out_pop;
    }

err_unmap:
    uct_cuda_ipc_cache_put(mapping, iface->enable_cache);
out_pop:
    uct_cuda_gpu_context_pop(&context);
    return status;
}

ucs_status_t uct_cuda_ipc_ep_put_zcopy(uct_ep_h ep, const uct_iov_t *iov,
                                       size_t iovcnt, uint64_t remote_addr,
                                       uct_rkey_t rkey, uct_completion_t *comp)
{
    return transfer(ep, iov, iovcnt, remote_addr, rkey, comp, DIRECTION_PUT);
}

ucs_status_t uct_cuda_ipc_ep_get_zcopy(uct_ep_h ep, const uct_iov_t *iov,
                                       size_t iovcnt, uint64_t remote_addr,
                                       uct_rkey_t rkey, uct_completion_t *comp)
{
    return transfer(ep, iov, iovcnt, remote_addr, rkey, comp, DIRECTION_GET);
}
