/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints: the peer, and put and get of its memory. */
#include <uct/cuda/cuda_ipc/cuda_ipc_ep.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/device_memory.h>
#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/memory.h>
#include <uct/cuda/base/retry.h>
#include <uct/cuda/node/mappings.h>
#include <uct/cuda/node/rkey.h>

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>


/* First byte of an endpoint in UCX's device header: the transport, 1 for
 * cuda_ipc in 1.21 and 1.22 */
#define DEVICE_EP_CUDA_IPC 1


/* Peer process of any endpoint of this process */
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


/* Return the list pointer to a process's entry, or the terminating one. Call
 * with the lock held. */
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

/* Release an endpoint to a process. After the last one, close the mappings of
 * the process: another process may get its PID. */
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
            UCT_CUDA_DEVICE_MEMORY_FREE(device_ep->memory, false);
            uct_cuda_ctx_pop();
        }
        free(device_ep);
    }
    uct_abi_ep_delete(tl_ep);
}

/* Write the transport's number in a stream of its own: work in the legacy
 * stream may wait for the program, and its use invalidates captures of blocking
 * streams. */
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
        UCT_CUDA_DEVICE_MEMORY_FREE(device_ep->memory, false);
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


/* ------------------------------------------------------------- put and get */

/* Return the key of a transfer, or NULL if there is no valid one. A key for
 * memory of this process is valid only with an endpoint to this process: from a
 * peer it would be forged. */
static uct_cuda_node_rkey_t *ep_key(uct_ep_h ep, uct_rkey_t rkey)
{
    uct_cuda_node_rkey_t *known = uct_cuda_node_rkey_get(rkey);

    return ((known != NULL) && known->is_self &&
            !((uct_cuda_ipc_ep_t*)ep)->is_self) ?
                   NULL :
                   known;
}

/* Copy host memory of this process with a system call, which fails on unmapped
 * memory instead of crashing */
static ucs_status_t copy_local_host(const uct_cuda_copy_t *copy)
{
    struct iovec local, remote;
    size_t offset = 0;
    ssize_t done;

    while (offset < copy->bytes) {
        local.iov_base  = (void*)(copy->local.address + offset);
        local.iov_len   = copy->bytes - offset;
        remote.iov_base = (void*)(copy->remote.address + offset);
        remote.iov_len  = local.iov_len;
        done = UCT_CUDA_RETRY(
                copy->is_put ?
                        process_vm_writev(getpid(), &local, 1, &remote, 1, 0) :
                        process_vm_readv(getpid(), &local, 1, &remote, 1, 0));
        if (done <= 0) {
            uct_cuda_debug("cannot copy %zu bytes between %p and %#lx: %s",
                           copy->bytes, (void*)copy->local.address,
                           (unsigned long)copy->remote.address,
                           strerror(errno));
            return (errno == EFAULT) ? UCS_ERR_INVALID_ADDR :
                                       UCS_ERR_UNSUPPORTED;
        }

        offset += (size_t)done;
    }

    return UCS_OK;
}

/* Return whether the remote end is host memory of this process, which has no
 * key */
static bool is_local_host(uct_ep_h ep, const uct_cuda_copy_t *copy,
                        uct_rkey_t rkey)
{
    CUcontext context;
    uct_cuda_end_t end;

    if ((rkey != UCT_INVALID_RKEY) || !((uct_cuda_ipc_ep_t*)ep)->is_self) {
        return false;
    }

    uct_cuda_memory_place((void*)copy->local.address, &end, &context);
    return uct_cuda_end_is_host(end);
}

static ucs_status_t transfer_iov(uct_ep_h ep, const uct_iov_t *iov,
                                 size_t iovcnt, uint64_t remote_addr,
                                 uct_rkey_t rkey, uct_completion_t *comp,
                                 bool is_put)
{
    uct_cuda_ipc_iface_t *iface = (uct_cuda_ipc_iface_t*)ep->iface;
    uct_cuda_copy_t copy;

    if ((iovcnt == 0) || (iov->length == 0)) {
        return UCS_OK;
    }

    if (iovcnt != 1) {
        uct_cuda_error("%zu buffers in one transfer at %#lx: only one is "
                       "supported", iovcnt,
                       (unsigned long)remote_addr);
        return UCS_ERR_INVALID_PARAM;
    }

    uct_cuda_copy_init(&copy, iov->buffer, ep_key(ep, rkey), remote_addr,
                       iov->length, is_put, comp);
    if (is_local_host(ep, &copy, rkey)) {
        return copy_local_host(&copy);
    }

    return uct_cuda_copy_post(&iface->copier, &copy, false, false);
}

ucs_status_t uct_cuda_ipc_ep_put_zcopy(uct_ep_h ep, const uct_iov_t *iov,
                                       size_t iovcnt, uint64_t remote_addr,
                                       uct_rkey_t rkey, uct_completion_t *comp)
{
    return transfer_iov(ep, iov, iovcnt, remote_addr, rkey, comp, true);
}

ucs_status_t uct_cuda_ipc_ep_get_zcopy(uct_ep_h ep, const uct_iov_t *iov,
                                       size_t iovcnt, uint64_t remote_addr,
                                       uct_rkey_t rkey, uct_completion_t *comp)
{
    return transfer_iov(ep, iov, iovcnt, remote_addr, rkey, comp, false);
}


/* ------------------------------------------------------------------- lists */

/* Completion of a list; comp counts the list's blocks */
typedef struct {
    uct_completion_t comp;
    uct_completion_t *user;
} list_end_t;

static void list_completed(uct_completion_t *comp)
{
    list_end_t *end = (list_end_t*)comp;

    uct_abi_completion_update(end->user, 1, end->comp.status);
    free(end);
}

static void list_copy(uct_ep_h ep, const uct_abi_list_t *list, size_t i,
                      bool is_put, uct_completion_t *comp,
                      uct_cuda_copy_t *copy)
{
    uct_cuda_copy_init(copy, list->buffers[i], ep_key(ep, list->rkeys[i]),
                       list->remote_addrs[i], list->lengths[i], is_put, comp);
}

/* Count the non-empty blocks; errors are found before any block starts */
static ucs_status_t
check_list(uct_ep_h ep, const uct_abi_list_t *list, bool is_put,
           size_t *count_p)
{
    uct_cuda_copy_t copy;
    ucs_status_t status;
    size_t i;

    *count_p = 0;
    for (i = 0; i < list->count; ++i) {
        if (list->lengths[i] == 0) {
            continue;
        }

        list_copy(ep, list, i, is_put, NULL, &copy);
        status = uct_cuda_copy_check_key(&copy);
        if (status != UCS_OK) {
            uct_cuda_error("invalid block %zu in a list of %zu",
                           i, list->count);
            return status;
        }

        ++*count_p;
    }

    return UCS_OK;
}

/*
 * Post a list. The list's completion counts those of the blocks, which are not
 * called before the next progress call. An error after the start of blocks is
 * reported by the list's completion at their end.
 */
static ucs_status_t transfer_list(uct_ep_h ep, const uct_abi_list_t *list,
                                  uct_completion_t *comp, bool is_put)
{
    uct_cuda_ipc_iface_t *iface = (uct_cuda_ipc_iface_t*)ep->iface;
    ucs_status_t status         = UCS_OK;
    size_t left, i;
    uct_cuda_copy_t copy;
    list_end_t *end;

    status = check_list(ep, list, is_put, &left);
    if ((status != UCS_OK) || (left == 0)) {
        return status;
    }

    end = malloc(sizeof(*end));
    if (end == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    end->user        = comp;
    end->comp.func   = list_completed;
    end->comp.count  = 0;
    end->comp.status = UCS_OK;
    for (i = 0; (i < list->count) && (status == UCS_OK); ++i) {
        if (list->lengths[i] == 0) {
            continue;
        }

        list_copy(ep, list, i, is_put, &end->comp, &copy);
        status = uct_cuda_copy_post(&iface->copier, &copy, --left > 0,
                                    end->comp.count > 0);
        if (status == UCS_INPROGRESS) {
            ++end->comp.count;
            status = UCS_OK;
        }
    }

    if (end->comp.count == 0) {
        free(end);
        return status;
    }

    end->comp.status = status;
    uct_cuda_queue_submit_coalesced(&iface->super.queue, true);
    return UCS_INPROGRESS;
}

ucs_status_t uct_cuda_ipc_ep_put_list(uct_ep_h ep, const uct_abi_list_t *list,
                                      uct_completion_t *comp)
{
    return transfer_list(ep, list, comp, true);
}

ucs_status_t uct_cuda_ipc_ep_get_list(uct_ep_h ep, const uct_abi_list_t *list,
                                      uct_completion_t *comp)
{
    return transfer_list(ep, list, comp, false);
}
