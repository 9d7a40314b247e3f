/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints: the peer of transfers. */
#include <uct/cuda/cuda_ipc/cuda_ipc_ep.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/device_memory.h>
#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/node/mappings.h>
#include <uct/cuda/node/rkey.h>

#include <pthread.h>
#include <stdlib.h>


/* First byte of an endpoint in UCX's device header: the transport, 1 for
 * cuda_ipc in 1.21 and 1.22 */
#define DEVICE_EP_CUDA_IPC 1


/* Process with endpoints to it, of all workers of this process */
typedef struct peer peer_t;

struct peer {
    peer_t                     *next;
    uct_cuda_node_iface_addr_t process;
    unsigned                   num_eps;
};

static struct {
    pthread_mutex_t lock; /* order: base/thread.h */
    peer_t          *head;
} peers = {.lock = PTHREAD_MUTEX_INITIALIZER};


/* Return the link to a process, or the last one of the list. Call with the lock
 * held. */
static peer_t **peer_find(const uct_cuda_node_iface_addr_t *process)
{
    peer_t **link = &peers.head;

    while ((*link != NULL) &&
           !uct_cuda_node_is_same_process(&(*link)->process, process)) {
        link = &(*link)->next;
    }

    return link;
}

/* Count an endpoint to a process. Fails only without memory. */
static ucs_status_t peer_get(const uct_cuda_node_iface_addr_t *process)
{
    ucs_status_t status = UCS_ERR_NO_MEMORY;
    peer_t **link;

    pthread_mutex_lock(&peers.lock);
    link = peer_find(process);
    if (*link == NULL) {
        *link = calloc(1, sizeof(**link));
    }

    if (*link != NULL) {
        (*link)->process = *process;
        ++(*link)->num_eps;
        status = UCS_OK;
    }
    pthread_mutex_unlock(&peers.lock);
    return status;
}

/* Release an endpoint to a process. After the last one close the mappings of
 * the process: another may get its pid. */
static void peer_put(const uct_cuda_node_iface_addr_t *process)
{
    peer_t **link, *peer;
    bool is_last;

    pthread_mutex_lock(&peers.lock);
    link    = peer_find(process);
    peer    = *link;
    is_last = (--peer->num_eps == 0);
    if (is_last) {
        *link = peer->next;
    }
    pthread_mutex_unlock(&peers.lock);

    if (is_last) {
        uct_cuda_node_cache_purge_peer(process->pid_ns, process->pid);
        uct_cuda_node_rkey_purge_peer(process->pid_ns, process->pid);
        free(peer);
    }
}

ucs_status_t uct_cuda_ipc_ep_create(uct_abi_iface_t *iface,
                                    const uct_abi_ep_params_t *params,
                                    uct_ep_h *ep_p)
{
    uct_cuda_ipc_ep_t *ep;
    ucs_status_t status;

    if (params->iface_addr == NULL) {
        uct_cuda_error("cannot create an endpoint: the peer's address is "
                       "missing");
        return UCS_ERR_INVALID_PARAM;
    }

    status = uct_abi_ep_new(sizeof(*ep), iface, ep_p);
    if (status != UCS_OK) {
        return status;
    }

    ep = (uct_cuda_ipc_ep_t*)*ep_p;
    uct_cuda_node_iface_addr_unpack(params->dev_addr, params->iface_addr,
                                    &ep->peer);
    ep->is_self = uct_cuda_node_is_self(ep->peer.pid, ep->peer.pid_ns);
    status      = peer_get(&ep->peer);
    if (status != UCS_OK) {
        uct_abi_ep_delete(*ep_p);
    }

    return status;
}

void uct_cuda_ipc_ep_destroy(uct_ep_h tl_ep)
{
    uct_cuda_ipc_ep_t *ep = (uct_cuda_ipc_ep_t*)tl_ep;
    uct_cuda_ipc_device_ep_t *device_ep, *next;

    peer_put(&ep->peer);
    for (device_ep = ep->device_eps; device_ep != NULL; device_ep = next) {
        next = device_ep->next;
        if (uct_cuda_ctx_push_alive(device_ep->context,
                                    device_ep->context_id)) {
            uct_cuda_device_memory_free(device_ep->memory);
            uct_cuda_ctx_pop();
        }
        free(device_ep);
    }
    uct_abi_ep_delete(tl_ep);
}

/* Write in a separate stream: work in the legacy stream may wait for the
 * program, and its use invalidates captures of blocking streams */
static ucs_status_t device_ep_write(CUdeviceptr memory, uint8_t transport)
{
    ucs_status_t status, drained;
    CUstream stream;

    status = UCT_CUDA_CALL(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    if (status != UCS_OK) {
        return status;
    }

    status  = UCT_CUDA_CALL(cuMemcpyHtoDAsync, memory, &transport,
                            sizeof(transport), stream);
    drained = UCT_CUDA_CALL(cuStreamSynchronize, stream);
    (void)UCT_CUDA_CALL(cuStreamDestroy, stream);
    return (status == UCS_OK) ? drained : status;
}

ucs_status_t uct_cuda_ipc_ep_get_device_ep(uct_ep_h tl_ep, void **device_ep_p)
{
    uct_cuda_ipc_ep_t *ep = (uct_cuda_ipc_ep_t*)tl_ep;
    uct_cuda_ipc_device_ep_t *device_ep;
    unsigned long long context_id;
    CUcontext context;
    ucs_status_t status;

    status = uct_cuda_ctx_current(&context, &context_id);
    if (status != UCS_OK) {
        return status;
    }

    for (device_ep = ep->device_eps; device_ep != NULL;
         device_ep = device_ep->next) {
        if ((device_ep->context == context) &&
            (device_ep->context_id == context_id)) {
            goto out;
        }
    }

    device_ep = malloc(sizeof(*device_ep));
    if (device_ep == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    status = UCT_CUDA_CALL(cuMemAlloc, &device_ep->memory, sizeof(uint8_t));
    if (status != UCS_OK) {
        goto err_free;
    }

    status = device_ep_write(device_ep->memory, DEVICE_EP_CUDA_IPC);
    if (status != UCS_OK) {
        uct_cuda_device_memory_free(device_ep->memory);
        goto err_free;
    }

    device_ep->context    = context;
    device_ep->context_id = context_id;
    device_ep->next       = ep->device_eps;
    ep->device_eps        = device_ep;
out:
    *device_ep_p = (void*)device_ep->memory;
    return UCS_OK;

err_free:
    free(device_ep);
    return status;
}

int uct_cuda_ipc_ep_is_connected(uct_ep_h tl_ep,
                                 const uct_abi_ep_params_t *peer)
{
    const uct_cuda_ipc_ep_t *ep = (const uct_cuda_ipc_ep_t*)tl_ep;
    uct_cuda_node_iface_addr_t process;

    if ((peer->iface_addr == NULL) || (peer->dev_addr == NULL)) {
        return 0;
    }

    uct_cuda_node_iface_addr_unpack(peer->dev_addr, peer->iface_addr, &process);
    return uct_cuda_node_is_same_process(&ep->peer, &process);
}
