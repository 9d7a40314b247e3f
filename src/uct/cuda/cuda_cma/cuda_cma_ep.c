/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The peer's GPU copies the peer's page-locked memory; threads of this process
 * copy other memory through page-locked slots (host_pipeline.h). Host memory of
 * another worker of this process is copied like local memory.
 */
#include <uct/cuda/cuda_cma/cuda_cma_ep.h>

#include <uct/cuda/base/clock.h>
#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/range.h>
#include <uct/cuda/copy/choose_context.h>
#include <uct/cuda/copy/method.h>
#include <uct/cuda/cuda_cma/cuda_cma_rkey.h>

#include <stdlib.h>
#include <string.h>


/* Time until a server gets another request for a channel, ns: it may have freed
 * a slot */
#define REQUEST_NS (1000ul * 1000 * 1000)


ucs_status_t uct_cuda_cma_ep_create(uct_abi_iface_t *iface,
                                    const uct_abi_ep_params_t *params,
                                    uct_ep_h *ep_p)
{
    uct_cuda_cma_peer_t *peer = NULL;
    uct_cuda_cma_addr_t addr;
    uct_cuda_cma_ep_t *ep;
    ucs_status_t status;

    if (params->iface_addr == NULL) {
        uct_cuda_error("cannot create an endpoint: the peer's address is "
                       "missing");
        return UCS_ERR_INVALID_PARAM;
    }

    memcpy(&addr, params->iface_addr, sizeof(addr));
    if (!uct_cuda_node_is_self(addr.process.pid, addr.process.pid_ns)) {
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
    ep->addr      = addr;
    ep->peer      = peer;
    ep->keys      = NULL;
    ep->last      = NULL;
    ep->channel   = NULL;
    ep->requested = 0;
    return UCS_OK;
}

void uct_cuda_cma_ep_destroy(uct_ep_h tl_ep)
{
    uct_cuda_cma_ep_t *ep = (uct_cuda_cma_ep_t*)tl_ep;

    if (ep->channel != NULL) {
        uct_cuda_cma_channel_put(ep->channel);
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


static uct_cuda_cma_iface_t *ep_iface(const uct_cuda_cma_ep_t *ep)
{
    return (uct_cuda_cma_iface_t*)ep->super.super.iface;
}

/* Describe a copy to page-locked memory of this process as a put or get of its
 * GPU memory, so that small blocks are coalesced */
static void own_copy(const uct_cuda_copy_t *copy,
                     uct_cuda_node_rkey_t *key, uct_cuda_copy_t *own)
{
    uct_cuda_copy_init(own, (void*)copy->remote.address, key,
                       copy->local.address, copy->bytes, !copy->is_put,
                       copy->comp);
}

/* Add a copy in the allocations of a waiting block, which keeps them from being
 * freed: no driver call is needed */
static ucs_status_t
own_follow(uct_cuda_cma_ep_t *ep, const uct_cuda_copy_t *copy)
{
    uct_cuda_copy_t own;

    /* as in uct_cuda_cma_channel_follow() */
    if ((ep->last == NULL) || (ep->last->is_unowned && copy->is_put) ||
        (ep->last->rkey == NULL) ||
        !uct_cuda_range_holds(ep->last->begin, ep->last->size,
                              copy->local.address, copy->bytes)) {
        return UCS_ERR_UNSUPPORTED;
    }

    own_copy(copy, ep->last->rkey, &own);
    return uct_cuda_copy_coalesce_follow(&ep_iface(ep)->copier.coalescer,
                                         &own, false, false) ?
               UCS_INPROGRESS :
               UCS_ERR_UNSUPPORTED;
}

static ucs_status_t
own_locked(uct_cuda_cma_ep_t *ep, const uct_cuda_copy_t *copy)
{
    uct_cuda_cma_iface_t *iface = ep_iface(ep);
    uct_cuda_node_rkey_t *rkey;
    uct_cuda_cma_key_t *key;
    uct_cuda_copy_t own;

    if (uct_cuda_copier_open_shared(&iface->copier, &iface->super.queue) !=
        UCS_OK) {
        return UCS_ERR_UNSUPPORTED;
    }

    if (ep->keys == NULL) {
        ep->keys = calloc(1, sizeof(*ep->keys));
        if (ep->keys == NULL) {
            return UCS_ERR_NO_MEMORY;
        }
    }

    key      = uct_cuda_cma_keys_get(ep->keys, (void*)copy->local.address,
                                     copy->bytes);
    ep->last = key;
    rkey     = (key == NULL) ? NULL : uct_cuda_cma_key_own(key);
    if (rkey == NULL) {
        return UCS_ERR_UNSUPPORTED;
    }

    own_copy(copy, rkey, &own);
    return uct_cuda_copy_post(&iface->copier, &own, false, false);
}

/* Copy page-locked memory by the peer's GPU */
static ucs_status_t
peer_locked(uct_cuda_cma_ep_t *ep, const uct_cuda_cma_rkey_t *rkey,
            const uct_cuda_copy_t *copy)
{
    const uint64_t now = (ep->channel == NULL) ? uct_cuda_now_ns() : 0;

    if ((ep->channel == NULL) && (now - ep->requested >= REQUEST_NS)) {
        ep->requested = now;
        ep->channel   = uct_cuda_cma_channel_open(&ep_iface(ep)->channels,
                                                  ep->peer, &rkey->server);
    }

    return (ep->channel == NULL) ?
                   UCS_ERR_UNSUPPORTED :
                   uct_cuda_cma_channel_post(ep->channel,
                                             uct_cuda_ep_queue(
                                                     &ep->super.super),
                                             copy);
}

/* Add a copy to running ones */
static ucs_status_t
locked_follow(uct_cuda_cma_ep_t *ep, const uct_cuda_copy_t *copy)
{
    if (ep->peer == NULL) {
        return own_follow(ep, copy);
    }

    return (ep->channel == NULL) ?
                   UCS_ERR_UNSUPPORTED :
                   uct_cuda_cma_channel_follow(ep->channel,
                                               uct_cuda_ep_queue(
                                                       &ep->super.super),
                                               copy);
}

static void peer_put(void *arg)
{
    uct_cuda_cma_peer_put(arg);
}

/* Copy by threads of this process, or as a copy within it */
static ucs_status_t plain_start(uct_cuda_cma_ep_t *ep, uct_cuda_copy_t *copy,
                                int device)
{
    const uct_cuda_host_remote_t remote = {
        .copy    = uct_cuda_cma_peer_copy,
        .release = peer_put,
        .arg     = ep->peer
    };
    uct_cuda_queue_t *queue             = uct_cuda_ep_queue(&ep->super.super);
    uct_cuda_stream_t *stream;
    ucs_status_t status;

    status = uct_cuda_queue_stream(queue, copy->is_put ? 0 : 1, &stream);
    if (status != UCS_OK) {
        return status;
    }

    if (ep->peer != NULL) {
        uct_cuda_cma_peer_hold(ep->peer);
        copy->remote.by = &remote;
    }

    status = uct_cuda_copy_run(queue, stream, copy, NULL, device, false);
    if (UCS_STATUS_IS_ERR(status) && (ep->peer != NULL)) {
        uct_cuda_cma_peer_put(ep->peer);
    }

    return status;
}

static ucs_status_t transfer(uct_ep_h tl_ep, const uct_iov_t *iov,
                             size_t iovcnt, uint64_t remote_addr,
                             uct_rkey_t uct_rkey, uct_completion_t *comp,
                             bool is_put)
{
    uct_cuda_cma_ep_t *ep           = (uct_cuda_cma_ep_t*)tl_ep;
    const uct_cuda_cma_rkey_t *rkey = uct_cuda_cma_rkey_get(uct_rkey);
    uct_cuda_ctx_scope_t context;
    uct_cuda_copy_t copy;
    ucs_status_t status;
    bool is_locked;

    if ((iovcnt == 0) || (iov->length == 0)) {
        return UCS_OK;
    }

    if ((rkey == NULL) || (iovcnt != 1) ||
        !uct_cuda_range_holds(rkey->base, rkey->length, remote_addr,
                              iov->length)) {
        uct_cuda_error("transfer of %zu bytes at %#lx: the key does not cover "
                       "them",
                       iov->length, (unsigned long)remote_addr);
        return UCS_ERR_INVALID_PARAM;
    }

    uct_cuda_copy_init(&copy, iov->buffer, NULL, remote_addr, iov->length,
                       is_put, comp);
    is_locked = (rkey->server.token != 0);
    status    = is_locked ? locked_follow(ep, &copy) : UCS_ERR_UNSUPPORTED;
    if (status != UCS_ERR_UNSUPPORTED) {
        return status;
    }

    status = uct_cuda_copy_enter(&copy, uct_cuda_end_host(), &context);
    if (status != UCS_OK) {
        return status;
    }

    status = UCS_ERR_UNSUPPORTED;
    if (is_locked && (copy.local.end.kind == UCT_CUDA_END_GPU)) {
        status = (ep->peer == NULL) ? own_locked(ep, &copy) :
                                      peer_locked(ep, rkey, &copy);
    }
    if (status == UCS_ERR_UNSUPPORTED) {
        status = plain_start(ep, &copy, context.device);
    }

    uct_cuda_ctx_leave(&context);
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
