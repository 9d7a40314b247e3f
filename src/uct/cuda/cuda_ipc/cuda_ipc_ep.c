/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A transfer: map the peer's memory, then one copy on the peer's stream, or,
 * for what is worth it, the multi-path engine.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <uct/cuda/cuda_ipc/cuda_ipc_ep.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/gpu.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/memory.h>
#include <uct/cuda/base/trace.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_blocks.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_cache.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_host.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_iface.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_multipath.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_own.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_rkey.h>
#include <uct/cuda/multipath/operation.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>


/* The first byte of an endpoint in UCX's device header says which transport's
 * it is: 1 is cuda_ipc's, in 1.21 and 1.22 */
#define DEVICE_EP_CUDA_IPC 1


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

    status = uct_abi_ep_new(sizeof(*ep), iface, ep_p);
    if (status != UCS_OK) {
        return status;
    }

    ep = (uct_cuda_ipc_ep_t*)*ep_p;
    uct_cuda_ipc_iface_addr_unpack(params->dev_addr, params->iface_addr,
                                   &ep->peer);
    ep->is_own = uct_cuda_ipc_is_own_process(ep->peer.pid, ep->peer.pid_ns);
    return UCS_OK;
}

void uct_cuda_ipc_ep_destroy(uct_ep_h tl_ep)
{
    uct_cuda_ipc_ep_t *ep = (uct_cuda_ipc_ep_t*)tl_ep;

    uct_cuda_ipc_cache_purge_peer(ep->peer.pid_ns, ep->peer.pid);
    if ((ep->device_ep != 0) &&
        uct_cuda_ctx_push_alive(ep->device_ep_context,
                                ep->device_ep_context_id)) {
        (void)uct_cuda_driver_get()->cuMemFree(ep->device_ep);
        uct_cuda_ctx_pop();
    }
    uct_abi_ep_delete(tl_ep);
}

ucs_status_t uct_cuda_ipc_ep_get_device_ep(uct_ep_h tl_ep, void **device_ep_p)
{
    uct_cuda_ipc_ep_t *ep   = (uct_cuda_ipc_ep_t*)tl_ep;
    const uint8_t transport = DEVICE_EP_CUDA_IPC;
    CUdeviceptr memory;
    ucs_status_t status;

    if (ep->device_ep == 0) {
        status = uct_cuda_ctx_current(&ep->device_ep_context,
                                      &ep->device_ep_context_id);
        if (status != UCS_OK) {
            return status;
        }

        status = UCT_CUDA_CALL(cuMemAlloc, &memory, sizeof(transport));
        if (status != UCS_OK) {
            return status;
        }

        status = UCT_CUDA_CALL(cuMemcpyHtoD, memory, &transport,
                               sizeof(transport));
        if (status != UCS_OK) {
            (void)UCT_CUDA_CALL(cuMemFree, memory);
            return status;
        }

        ep->device_ep = memory;
    }

    *device_ep_p = (void*)ep->device_ep;
    return UCS_OK;
}

int uct_cuda_ipc_ep_is_connected(uct_ep_h tl_ep,
                                 const uct_abi_ep_params_t *peer)
{
    const uct_cuda_ipc_ep_t *ep = (const uct_cuda_ipc_ep_t*)tl_ep;
    uct_cuda_ipc_iface_addr_t process;

    if ((peer->iface_addr == NULL) || (peer->dev_addr == NULL)) {
        return 0;
    }

    uct_cuda_ipc_iface_addr_unpack(peer->dev_addr, peer->iface_addr, &process);
    return uct_cuda_ipc_is_same_process(&ep->peer, &process);
}

/* One copy on the stream, behind which the operation is to be posted */
static ucs_status_t single_start(uct_cuda_mp_engine_t *engine,
                                 uct_cuda_ipc_peer_memory_t *memory,
                                 void *local, size_t length, bool is_put,
                                 uct_cuda_op_t *op)
{
    const CUstream stream     = op->stream->cuda;
    const uct_cuda_end_t peer = memory->rkey->gpu;
    const uct_cuda_end_t end  = uct_cuda_end_gpu(memory->device);
    const uct_cuda_end_t from = is_put ? end : peer;
    const uct_cuda_end_t to   = is_put ? peer : end;
    uct_cuda_trace_copy_t *copy;
    ucs_status_t status;
    CUdeviceptr remote;

    status = uct_cuda_ipc_peer_memory_map_stream(memory, &remote);
    if (status != UCS_OK) {
        return status;
    }

    copy   = uct_cuda_trace_begin(stream);
    status = is_put ? UCT_CUDA_CALL(cuMemcpyDtoDAsync, remote,
                                    (CUdeviceptr)local, length, stream) :
                      UCT_CUDA_CALL(cuMemcpyDtoDAsync, (CUdeviceptr)local,
                                    remote, length, stream);
    uct_cuda_trace_end(copy, stream, from, to, length, "one path");
    if (status != UCS_OK) {
        uct_cuda_ipc_peer_memory_put(memory);
        return status;
    }

    op->done = uct_cuda_ipc_peer_memory_done;
    if (length >= UCT_CUDA_MP_COUNTED_MIN_SIZE) {
        uct_cuda_mp_op_count(engine, from, to, length, op);
    }

    return UCS_OK;
}

/*
 * Makes current where the copy is to run: with the local memory, or, where that
 * is the host's, near the peer's memory if a context is there.
 */
static ucs_status_t push_context(const uct_cuda_ipc_rkey_t *rkey,
                                 uct_cuda_end_t local, CUcontext local_context,
                                 uct_cuda_gpu_context_t *context)
{
    if (uct_cuda_end_is_gpu(local)) {
        return uct_cuda_gpu_context_push(local_context,
                                         uct_cuda_end_device(local), context);
    }

    /* The engine's first: a peer's memory is opened in one context of a GPU */
    if (uct_cuda_end_is_gpu(rkey->gpu) &&
        ((uct_cuda_gpu_context_push_kept(uct_cuda_end_device(rkey->gpu),
                                         context) == UCS_OK) ||
         (uct_cuda_gpu_context_push_any(rkey->gpu, context) == UCS_OK))) {
        return UCS_OK;
    }

    return uct_cuda_gpu_context_push_any(uct_cuda_end_none(), context);
}

/* Host memory has streams of its own, one each way: its copies take longer than
 * those between GPUs */
static unsigned find_stream(const uct_cuda_ipc_iface_t *iface,
                            const uct_cuda_ipc_rkey_t *rkey, bool is_host,
                            direction_t direction)
{
    return is_host ? iface->max_streams - 1 -
                             (((2 * rkey->stream) +
                               (direction == DIRECTION_GET)) %
                              iface->max_streams) :
                     rkey->stream % iface->max_streams;
}

/* Makes this context current in the other's place, with its own stream */
static ucs_status_t
use_instead(uct_cuda_queue_t *queue, unsigned index, CUcontext instead,
            uct_cuda_gpu_context_t *context, uct_cuda_stream_t **stream_p)
{
    const int device = context->device;
    ucs_status_t status;

    uct_cuda_gpu_context_pop(context);
    status = uct_cuda_gpu_context_push(instead, device, context);
    return (status == UCS_OK) ? uct_cuda_queue_stream(queue, index, stream_p) :
                                status;
}

/* Host memory of this process; the kernel copies, and tells what is not there
 * where a copy of ours would crash */
static ucs_status_t own_host_copy(const uct_iov_t *iov, uint64_t remote_addr,
                                  direction_t direction)
{
    struct iovec local, remote;
    size_t offset = 0;
    ssize_t done;

    while (offset < iov->length) {
        local.iov_base  = (char*)iov->buffer + offset;
        local.iov_len   = iov->length - offset;
        remote.iov_base = (void*)(uintptr_t)(remote_addr + offset);
        remote.iov_len  = local.iov_len;
        done = (direction == DIRECTION_PUT) ?
                       process_vm_writev(getpid(), &local, 1, &remote, 1, 0) :
                       process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
        if (done <= 0) {
            uct_cuda_debug("cannot copy %zu bytes between %p and %#lx: %s",
                           iov->length, iov->buffer, (unsigned long)remote_addr,
                           strerror(errno));
            return (errno == EFAULT) ? UCS_ERR_INVALID_ADDR :
                                       UCS_ERR_UNSUPPORTED;
        }

        offset += (size_t)done;
    }

    return UCS_OK;
}

/* What there is no key of: host memory of this process, or a mistake */
static ucs_status_t keyless_transfer(const uct_cuda_ipc_ep_t *ep,
                                     const uct_iov_t *iov, size_t iovcnt,
                                     uint64_t remote_addr, uct_rkey_t rkey,
                                     direction_t direction)
{
    uct_cuda_end_t end;
    CUcontext context;

    if (ep->is_own && (iovcnt == 1) && (rkey == UCT_INVALID_RKEY)) {
        uct_cuda_memory_place(iov->buffer, &end, &context);
        if (uct_cuda_end_is_host(end)) {
            return own_host_copy(iov, remote_addr, direction);
        }
    }

    uct_cuda_error("transfer of %zu bytes at %#lx without a valid key",
                   iov->length, (unsigned long)remote_addr);
    return UCS_ERR_INVALID_PARAM;
}

static ucs_status_t transfer(uct_ep_h ep, const uct_iov_t *iov, size_t iovcnt,
                             uint64_t remote_addr, uct_rkey_t uct_rkey,
                             uct_completion_t *comp, direction_t direction)
{
    uct_cuda_ipc_iface_t *iface     = (uct_cuda_ipc_iface_t*)ep->iface;
    const uct_cuda_ipc_rkey_t *rkey = uct_cuda_ipc_rkey_get(uct_rkey);
    uct_cuda_queue_t *queue         = &iface->super.queue;
    uct_cuda_mp_engine_t *engine    = iface->engine;
    const bool is_put               = (direction == DIRECTION_PUT);
    uct_cuda_ipc_block_t block      = {
        .rkey        = rkey,
        .remote_addr = remote_addr,
        .is_put      = is_put,
        .comp        = comp
    };
    uct_cuda_ipc_peer_memory_t *memory;
    uct_cuda_gpu_context_t context;
    CUcontext local_context;
    uct_cuda_end_t local;
    CUcontext instead;
    bool is_host;
    uct_cuda_stream_t *stream;
    ucs_status_t status;
    uct_cuda_op_t *op;
    char name[16];

    if ((iovcnt == 0) || (iov->length == 0)) {
        return UCS_OK;
    }

    if (rkey == NULL) {
        return keyless_transfer((const uct_cuda_ipc_ep_t*)ep, iov, iovcnt,
                                remote_addr, uct_rkey, direction);
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

    block.local  = iov->buffer;
    block.length = iov->length;
    if (uct_cuda_ipc_blocks_follow(iface, &block)) {
        return UCS_INPROGRESS;
    }

    uct_cuda_memory_place(iov->buffer, &local, &local_context);
    is_host = uct_cuda_end_is_host(local);
    status  = push_context(rkey, local, local_context, &context);
    if (status != UCS_OK) {
        uct_cuda_error("no usable context for %s memory at %p",
                       uct_cuda_end_str(local, name, sizeof(name)),
                       iov->buffer);
        return status;
    }

    status = uct_cuda_queue_stream(queue,
                                   find_stream(iface, rkey, is_host,
                                               direction),
                                   &stream);
    if (status != UCS_OK) {
        goto out_pop;
    }

    if (rkey->is_own && !is_host) {
        instead = uct_cuda_ipc_own_instead(rkey, stream->context,
                                           context.device);
        if (instead != NULL) {
            status = use_instead(queue, find_stream(iface, rkey, false,
                                                    direction),
                                 instead, &context, &stream);
            if (status != UCS_OK) {
                goto out_pop;
            }
        }
    }

    if (uct_cuda_end_is_gpu(local)) {
        status = uct_cuda_ipc_blocks_add(iface, stream,
                                         uct_cuda_end_device(local), &block);
        if (status != UCS_ERR_UNSUPPORTED) {
            goto out_pop;
        }
    }

    status = uct_cuda_op_get(stream, &op);
    if (status != UCS_OK) {
        goto out_pop;
    }

    op->comp = comp;
    memory   = uct_cuda_ipc_peer_memory_init(op, iface, rkey, remote_addr,
                                             context.device);
    if (is_host) {
        status = uct_cuda_ipc_host_start(engine, memory, iov->buffer,
                                         iov->length, is_put, op);
    } else if (!uct_cuda_mp_wants(engine, iov->length) ||
               (uct_cuda_ipc_multipath_start(engine, memory, iov->buffer,
                                             iov->length, is_put,
                                             op) != UCS_OK)) {
        status = single_start(engine, memory, iov->buffer, iov->length, is_put,
                              op);
    }

    if (status != UCS_OK) {
        uct_cuda_op_put(op);
        goto out_pop;
    }

    status = uct_cuda_op_post(queue, op);

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
