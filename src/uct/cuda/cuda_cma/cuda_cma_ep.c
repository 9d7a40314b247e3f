/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A peer's page-locked memory is copied by the peer's GPU, other by threads of
 * this process through their page-locked slots (host_pipeline.h). Host memory
 * of another worker of this process is copied as its own is.
 */
#include <uct/cuda/cuda_cma/cuda_cma_ep.h>

#include <uct/cuda/base/gpu.h>
#include <uct/cuda/base/host/host_pipeline.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/memory.h>
#include <uct/cuda/cuda_cma/cuda_cma_rkey.h>
#include <uct/cuda/transfer.h>

#include <stddef.h>
#include <stdlib.h>
#include <string.h>


/* All before anything is waited for */
static void submit_gathered(uct_cuda_queue_t *queue, bool is_all)
{
    uct_cuda_cma_iface_t *iface =
            (uct_cuda_cma_iface_t*)((char*)queue -
                                    offsetof(uct_cuda_cma_iface_t,
                                             super.queue));

    iface->epoch += is_all;
    if (iface->submit_gathered != NULL) {
        iface->submit_gathered(queue, is_all);
    }
}

void uct_cuda_cma_iface_count_epochs(uct_cuda_cma_iface_t *iface)
{
    uct_cuda_queue_t *queue = &iface->super.queue;

    iface->submit_gathered = queue->submit_gathered;
    queue->submit_gathered = submit_gathered;
}

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
    if (!uct_cuda_node_is_own_process(addr.process.pid, addr.process.pid_ns)) {
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
    ep->addr    = addr;
    ep->peer    = peer;
    ep->keys    = NULL;
    ep->last    = NULL;
    ep->channel = NULL;
    ep->asked   = 0;
    return UCS_OK;
}

void uct_cuda_cma_ep_destroy(uct_ep_h tl_ep)
{
    uct_cuda_cma_ep_t *ep = (uct_cuda_cma_ep_t*)tl_ep;

    if (ep->channel != NULL) {
        uct_cuda_cma_channel_close(ep->channel);
    }
    if (ep->keys != NULL) {
        uct_cuda_cma_keys_cleanup(ep->keys);
        free(ep->keys);
    }
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
    uct_cuda_cma_peer_t *peer;  /* NULL: this process */
    int                 device; /* Of the memory here */
    uct_cuda_cma_copy_t copy;
} peer_copy_t;

static ucs_status_t peer_start(uct_cuda_op_t *op, const peer_copy_t *start)
{
    uct_cuda_cma_peer_t *peer           = start->peer;
    const uct_cuda_cma_copy_t *copy     = &start->copy;
    const uct_cuda_host_remote_t remote = {
        .copy = uct_cuda_cma_peer_copy,
        .arg  = peer
    };
    uct_cuda_host_job_t *job;
    ucs_status_t status;

    status = uct_cuda_host_pipeline_start_remote((CUdeviceptr)copy->local,
                                                 copy->remote,
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

static ucs_status_t own_start(uct_cuda_op_t *op, const peer_copy_t *start)
{
    const uct_cuda_cma_copy_t *copy = &start->copy;
    const uct_cuda_end_t gpu      = uct_cuda_end_gpu(start->device);
    const uct_cuda_end_t host     = uct_cuda_end_host();
    const CUdeviceptr local       = (CUdeviceptr)copy->local;
    uct_cuda_mp_request_t request = {
        .src_end = copy->is_put ? gpu : host,
        .dst_end = copy->is_put ? host : gpu,
        .size    = copy->length
    };
    uct_cuda_mp_memory_t memory   = {
        .src = copy->is_put ? local : copy->remote,
        .dst = copy->is_put ? copy->remote : local
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
    const peer_copy_t *start = arg;

    return (start->peer != NULL) ? peer_start(op, start) :
                                   own_start(op, start);
}

static uct_cuda_cma_iface_t *ep_iface(const uct_cuda_cma_ep_t *ep)
{
    return (uct_cuda_cma_iface_t*)ep->super.super.iface;
}

/* Page-locked memory of this process, as a put or get of its GPU memory, with
 * which small blocks go together */
static uct_cuda_block_t
own_block(const uct_cuda_cma_copy_t *copy, uct_completion_t *comp)
{
    uct_cuda_block_t block;

    block.rkey        = NULL;
    block.local       = (void*)(uintptr_t)copy->remote;
    block.remote_addr = (uintptr_t)copy->local;
    block.length      = copy->length;
    block.is_put      = !copy->is_put;
    block.comp        = comp;
    return block;
}

/* One more in the allocations of a block that waits for others, which for that
 * cannot have been freed: nobody is asked */
static ucs_status_t
own_follow(uct_cuda_cma_ep_t *ep, const uct_cuda_cma_copy_t *copy,
           uct_completion_t *comp)
{
    uct_cuda_block_t block = own_block(copy, comp);

    /* As in uct_cuda_cma_channel_follow() */
    if ((ep->last == NULL) || (ep->last->is_unowned && copy->is_put) ||
        !uct_cuda_cma_key_covers(ep->last, copy->local, copy->length)) {
        return UCS_ERR_UNSUPPORTED;
    }

    block.rkey = ep->last->rkey;
    return ((block.rkey != NULL) &&
            uct_cuda_gather_follow(&ep_iface(ep)->port.gather, &block, false,
                                   false)) ?
                   UCS_INPROGRESS :
                   UCS_ERR_UNSUPPORTED;
}

/* As uct_cuda_port_lend(), with the interface's */
static ucs_status_t iface_lend(uct_cuda_cma_iface_t *iface)
{
    ucs_status_t status;

    if (iface->port.gather.engine != NULL) {
        return UCS_OK;
    }

    status = uct_cuda_port_lend(&iface->port, &iface->super.queue);
    if (status == UCS_OK) {
        uct_cuda_cma_iface_count_epochs(iface);
    }

    return status;
}

static ucs_status_t
own_locked(uct_cuda_cma_ep_t *ep, const uct_cuda_cma_copy_t *copy,
           uct_completion_t *comp)
{
    uct_cuda_cma_iface_t *iface = ep_iface(ep);
    uct_cuda_block_t     block  = own_block(copy, comp);
    uct_cuda_cma_key_t *key;

    if (iface_lend(iface) != UCS_OK) {
        return UCS_ERR_UNSUPPORTED;
    }

    if (ep->keys == NULL) {
        ep->keys = calloc(1, sizeof(*ep->keys));
        if (ep->keys == NULL) {
            return UCS_ERR_NO_MEMORY;
        }
    }

    key        = uct_cuda_cma_keys_get(ep->keys, copy->local, copy->length);
    ep->last   = key;
    block.rkey = (key == NULL) ? NULL : uct_cuda_cma_key_own(key);
    return (block.rkey == NULL) ?
                   UCS_ERR_UNSUPPORTED :
                   uct_cuda_port_transfer(&iface->port, &block, false);
}

/* By the peer's GPU */
static ucs_status_t
peer_locked(uct_cuda_cma_ep_t *ep, const uct_cuda_cma_rkey_t *rkey,
            const uct_cuda_cma_copy_t *copy, uct_completion_t *comp)
{
    if ((ep->channel == NULL) && (ep->asked != rkey->server.token)) {
        ep->asked   = rkey->server.token;
        ep->channel = uct_cuda_cma_channel_open(&ep_iface(ep)->channels,
                                                ep->peer, &rkey->server);
    }

    return (ep->channel == NULL) ?
                   UCS_ERR_UNSUPPORTED :
                   uct_cuda_cma_channel_post(ep->channel,
                                             uct_cuda_ep_queue(
                                                     &ep->super.super),
                                             ep_iface(ep)->epoch, copy, comp);
}

/* With the context of the local memory current, which is a GPU's */
static ucs_status_t
locked_start(uct_cuda_cma_ep_t *ep, const uct_cuda_cma_rkey_t *rkey,
             const uct_cuda_cma_copy_t *copy, uct_completion_t *comp)
{
    if (rkey->server.token == 0) {
        return UCS_ERR_UNSUPPORTED;
    }

    return (ep->peer == NULL) ? own_locked(ep, copy, comp) :
                                peer_locked(ep, rkey, copy, comp);
}

/* One more of those under way? */
static ucs_status_t
locked_follow(uct_cuda_cma_ep_t *ep, const uct_cuda_cma_rkey_t *rkey,
              const uct_cuda_cma_copy_t *copy, uct_completion_t *comp)
{
    if (rkey->server.token == 0) {
        return UCS_ERR_UNSUPPORTED;
    }

    if (ep->peer == NULL) {
        return own_follow(ep, copy, comp);
    }

    return (ep->channel == NULL) ?
                   UCS_ERR_UNSUPPORTED :
                   uct_cuda_cma_channel_follow(ep->channel,
                                               uct_cuda_ep_queue(
                                                       &ep->super.super),
                                               ep_iface(ep)->epoch, copy, comp);
}

static ucs_status_t transfer(uct_ep_h tl_ep, const uct_iov_t *iov,
                             size_t iovcnt, uint64_t remote_addr,
                             uct_rkey_t uct_rkey, uct_completion_t *comp,
                             bool is_put)
{
    uct_cuda_cma_ep_t *ep           = (uct_cuda_cma_ep_t*)tl_ep;
    const uct_cuda_cma_rkey_t *rkey = uct_cuda_cma_rkey_get(uct_rkey);
    uct_cuda_queue_t *queue         = uct_cuda_ep_queue(tl_ep);
    uct_cuda_gpu_context_t context;
    uct_cuda_stream_t *stream;
    CUcontext local_context;
    ucs_status_t status;
    uct_cuda_end_t local;
    peer_copy_t start;
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

    start.peer        = ep->peer;
    start.copy.local  = iov->buffer;
    start.copy.remote = remote_addr;
    start.copy.length = iov->length;
    start.copy.is_put = is_put;

    status = locked_follow(ep, rkey, &start.copy, comp);
    if (status != UCS_ERR_UNSUPPORTED) {
        return status;
    }

    uct_cuda_memory_place(iov->buffer, &local, &local_context);
    if (uct_cuda_end_is_host(local)) {
        return UCS_ERR_UNSUPPORTED;
    }

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

    start.device = context.device;
    status       = uct_cuda_end_is_gpu(local) ?
                           locked_start(ep, rkey, &start.copy, comp) :
                           UCS_ERR_UNSUPPORTED;
    if (status == UCS_ERR_UNSUPPORTED) {
        status = uct_cuda_queue_stream(queue, is_put ? 0 : 1, &stream);
        if (status == UCS_OK) {
            status = uct_cuda_op_run(queue, stream, comp, peer_copy_start,
                                     &start);
        }
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
