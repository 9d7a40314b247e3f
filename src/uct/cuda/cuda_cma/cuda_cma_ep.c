/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads carry the bytes through their page-locked slots (host_pipeline.h).
 * Host memory of another worker of this process is copied as its own is.
 */
#include <uct/cuda/cuda_cma/cuda_cma_ep.h>

#include <uct/cuda/base/gpu.h>
#include <uct/cuda/base/host/host_pipeline.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/memory.h>
#include <uct/cuda/cuda_cma/cuda_cma_iface.h>
#include <uct/cuda/cuda_cma/cuda_cma_md.h>
#include <uct/cuda/transfer.h>

#include <stdlib.h>
#include <string.h>


ucs_status_t uct_cuda_cma_ep_create(uct_abi_iface_t *iface,
                                    const uct_abi_ep_params_t *params,
                                    uct_ep_h *ep_p)
{
    uct_cuda_cma_peer_t *peer = NULL;
    uct_cuda_cma_addr_t addr;
    uct_cuda_cma_ep_t *ep;
    ucs_status_t status;

    if (params->iface_addr == NULL) {
        uct_cuda_error("an endpoint was asked for without an address");
        return UCS_ERR_INVALID_PARAM;
    }

    memcpy(&addr, params->iface_addr, sizeof(addr));
    if (!uct_cuda_ipc_is_own_process(addr.process.pid, addr.process.pid_ns)) {
        status = uct_cuda_cma_peer_get(&addr, &peer, NULL);
        if (status != UCS_OK) {
            return status;
        }
    }

    status = uct_abi_ep_new(sizeof(*ep), iface, ep_p);
    if (status != UCS_OK) {
        if (peer != NULL) {
            uct_cuda_cma_peer_put(peer);
        }
        return status;
    }

    ep       = (uct_cuda_cma_ep_t*)*ep_p;
    ep->addr = addr;
    ep->peer = peer;
    return UCS_OK;
}

void uct_cuda_cma_ep_destroy(uct_ep_h tl_ep)
{
    uct_cuda_cma_ep_t *ep = (uct_cuda_cma_ep_t*)tl_ep;

    if (ep->peer != NULL) {
        uct_cuda_cma_peer_put(ep->peer);
    }
    uct_abi_ep_delete(tl_ep);
}

int uct_cuda_cma_ep_is_connected(uct_ep_h ep, const uct_abi_ep_params_t *peer)
{
    return (peer->iface_addr != NULL) &&
           (memcmp(&((uct_cuda_cma_ep_t*)ep)->addr, peer->iface_addr,
                   sizeof(uct_cuda_cma_addr_t)) == 0);
}


static void peer_done(uct_cuda_op_t *op)
{
    uct_cuda_cma_peer_put(op->arg);
}

/* A copy, between here and there */
typedef struct {
    uct_cuda_cma_peer_t *peer; /* NULL: this process */
    void                *local;
    int                 device; /* of local */
    uint64_t            remote_addr;
    size_t              length;
    bool                is_put;
} peer_copy_t;

static ucs_status_t peer_start(uct_cuda_op_t *op, const peer_copy_t *copy)
{
    uct_cuda_cma_peer_t *peer           = copy->peer;
    const uct_cuda_host_remote_t remote = {
        .copy = uct_cuda_cma_peer_copy,
        .arg  = peer
    };
    uct_cuda_host_job_t *job;
    ucs_status_t status;

    status = uct_cuda_host_pipeline_start_remote((CUdeviceptr)copy->local,
                                                 copy->remote_addr,
                                                 copy->length, !copy->is_put,
                                                 &remote, &job);
    if (status == UCS_OK) {
        uct_cuda_cma_peer_hold(peer);
        uct_cuda_op_follow_job(op, job);
        op->done = peer_done;
        op->arg  = peer;
    }

    return status;
}

static void own_done(uct_cuda_op_t *op)
{
    uct_cuda_transfer_end(op->arg);
}

static ucs_status_t own_start(uct_cuda_op_t *op, const peer_copy_t *copy)
{
    const uct_cuda_end_t gpu      = uct_cuda_end_gpu(copy->device);
    const uct_cuda_end_t host     = uct_cuda_end_host();
    const CUdeviceptr local       = (CUdeviceptr)copy->local;
    uct_cuda_mp_request_t request = {
        .src_end = copy->is_put ? gpu : host,
        .dst_end = copy->is_put ? host : gpu,
        .size    = copy->length
    };
    uct_cuda_mp_memory_t memory   = {
        .src = copy->is_put ? local : copy->remote_addr,
        .dst = copy->is_put ? copy->remote_addr : local
    };
    ucs_status_t status;

    op->arg = op->state;
    status  = uct_cuda_transfer_start(NULL, &request, &memory, op->arg, op);
    if (status == UCS_OK) {
        op->done = own_done;
    }

    return status;
}

static ucs_status_t peer_copy_start(uct_cuda_op_t *op, void *arg)
{
    const peer_copy_t *copy = arg;

    return (copy->peer != NULL) ? peer_start(op, copy) : own_start(op, copy);
}

static ucs_status_t transfer(uct_ep_h tl_ep, const uct_iov_t *iov,
                             size_t iovcnt, uint64_t remote_addr,
                             uct_rkey_t uct_rkey, uct_completion_t *comp,
                             bool is_put)
{
    const uct_cuda_cma_ep_t *ep     = (const uct_cuda_cma_ep_t*)tl_ep;
    const uct_cuda_cma_rkey_t *rkey = uct_cuda_cma_rkey_get(uct_rkey);
    uct_cuda_queue_t *queue         = uct_cuda_ep_queue(tl_ep);
    uct_cuda_gpu_context_t context;
    uct_cuda_stream_t *stream;
    CUcontext local_context;
    ucs_status_t status;
    uct_cuda_end_t local;
    peer_copy_t copy;
    char name[16];

    if ((iovcnt == 0) || (iov->length == 0)) {
        return UCS_OK;
    }

    if ((rkey == NULL) || (iovcnt != 1) || (remote_addr < rkey->base) ||
        (iov->length > rkey->length) ||
        (remote_addr - rkey->base > rkey->length - iov->length)) {
        uct_cuda_error("transfer of %zu bytes at %#lx without a key for them",
                       iov->length, (unsigned long)remote_addr);
        return UCS_ERR_INVALID_PARAM;
    }

    uct_cuda_memory_place(iov->buffer, &local, &local_context);
    if (uct_cuda_end_is_host(local)) {
        return UCS_ERR_UNSUPPORTED;
    }

    copy.peer        = ep->peer;
    copy.local       = iov->buffer;
    copy.remote_addr = remote_addr;
    copy.length      = iov->length;
    copy.is_put      = is_put;

    status = uct_cuda_end_is_gpu(local) ?
                     uct_cuda_gpu_context_push(local_context,
                                               uct_cuda_end_device(local),
                                               &context) :
                     uct_cuda_gpu_context_push_touching(
                             (CUdeviceptr)iov->buffer, NULL, local, &context);
    if (status != UCS_OK) {
        uct_cuda_error("no usable context for %s memory at %p",
                       uct_cuda_end_str(local, name, sizeof(name)),
                       iov->buffer);
        return status;
    }

    copy.device = context.device;
    status = uct_cuda_queue_stream(queue, is_put ? 0 : 1, &stream);
    if (status == UCS_OK) {
        status = uct_cuda_op_run(queue, stream, comp, peer_copy_start, &copy);
    }

    uct_cuda_gpu_context_pop(&context);
    return status;
}

ucs_status_t uct_cuda_cma_ep_put_zcopy(uct_ep_h ep, const uct_iov_t *iov,
                                       size_t iovcnt, uint64_t remote_addr,
                                       uct_rkey_t rkey, uct_completion_t *comp)
{
    return transfer(ep, iov, iovcnt, remote_addr, rkey, comp, true);
}

ucs_status_t uct_cuda_cma_ep_get_zcopy(uct_ep_h ep, const uct_iov_t *iov,
                                       size_t iovcnt, uint64_t remote_addr,
                                       uct_rkey_t rkey, uct_completion_t *comp)
{
    return transfer(ep, iov, iovcnt, remote_addr, rkey, comp, false);
}
