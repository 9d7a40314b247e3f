/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A peer's memory is mapped wherever a copy reads or writes it from: in one
 * context for one path, in that of each relay for several. Host memory is only
 * ever touched by its own process, which copies it over PCIe.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <uct/cuda/cuda_ipc/cuda_ipc_transfer.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/gpu.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/memory.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_blocks.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_ep.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_own.h>
#include <uct/cuda/node/mappings.h>
#include <uct/cuda/transfer.h>

#include <ucs/sys/math.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>


/* A peer's memory, in each context where one transfer wants it mapped */
typedef struct {
    const uct_cuda_ipc_block_t *block;   /* During the start */
    bool                       keep;     /* Mappings may stay in the cache */
    const uct_cuda_context_t   *context; /* Of a copy by one path ... */
    int                        device;   /* ... and its device */
    unsigned                   num_mappings;
    uct_cuda_node_mapping_t    *mappings[1 + UCT_CUDA_MP_MAX_PATHS];
} peer_memory_t;

/* What an operation keeps until its end */
typedef struct {
    uct_cuda_transfer_t transfer;
    peer_memory_t       peer;
} state_t;

_Static_assert(sizeof(state_t) <= UCT_CUDA_OP_STATE_SIZE,
               "an operation has room for it");

/* What a transfer starts with */
typedef struct {
    uct_cuda_ipc_iface_t       *iface;
    const uct_cuda_ipc_block_t *block;
    uct_cuda_end_t             local_end;
    bool                       is_owned; /* By a context: the local memory */
    int                        device;   /* Of the current context */
    bool                       has_more; /* Of its list are to follow ... */
    bool                       is_next;  /* ... or have gone before */
} start_t;


/* ------------------------------------------------------- the peer's memory */

/* More may follow */
static void peer_unmap(peer_memory_t *peer)
{
    while (peer->num_mappings > 0) {
        uct_cuda_node_cache_put(peer->mappings[--peer->num_mappings],
                                peer->keep);
    }
}

/* A context is current: one of the device */
static ucs_status_t
peer_map_in(peer_memory_t *peer, int device, CUcontext context,
            unsigned long long context_id, CUdeviceptr *ptr_p)
{
    const uct_cuda_node_handle_t *handle = &peer->block->rkey->handle;
    uct_cuda_node_mapping_t **mapping    = &peer->mappings[peer->num_mappings];
    ucs_status_t status;

    if (peer->num_mappings == ucs_static_array_size(peer->mappings)) {
        return UCS_ERR_EXCEEDS_LIMIT;
    }

    status = uct_cuda_node_cache_get_in(handle, device, context, context_id,
                                        mapping);
    if (status == UCS_OK) {
        ++peer->num_mappings;
        *ptr_p = (*mapping)->mapped + (peer->block->remote_addr - handle->base);
    }

    return status;
}

/* For the engine */
static ucs_status_t peer_map(void *arg, int device, CUdeviceptr *ptr_p)
{
    unsigned long long id;
    CUcontext context;
    ucs_status_t status;

    status = uct_cuda_ctx_current(&context, &id);
    return (status == UCS_OK) ? peer_map_in(arg, device, context, id, ptr_p) :
                                status;
}

/* For a copy by one path; what the engine has mapped is not needed any more */
static ucs_status_t peer_map_one(uct_cuda_mp_memory_t *memory)
{
    peer_memory_t *peer = memory->map_arg;
    ucs_status_t status;

    peer_unmap(peer);
    status = peer_map_in(peer, peer->device, peer->context->cuda,
                         peer->context->id,
                         peer->block->is_put ? &memory->dst : &memory->src);
    if (status != UCS_OK) {
        uct_cuda_node_cache_tell_failure(&peer->block->rkey->handle);
    }

    return status;
}


/* ------------------------------------------------------------------- start */

static void transfer_done(uct_cuda_op_t *op)
{
    state_t *state = op->arg;

    uct_cuda_transfer_end(&state->transfer);
    peer_unmap(&state->peer);
}

/* Memory of this process is there as it is, and other GPUs have access or have
 * not; but host memory is copied as to another one's */
static ucs_status_t transfer_start(uct_cuda_op_t *op, void *arg)
{
    const start_t *start              = arg;
    const uct_cuda_ipc_block_t *block = start->block;
    const uct_cuda_ipc_rkey_t *rkey   = block->rkey;
    state_t *state                    = (state_t*)op->state;
    peer_memory_t *peer               = &state->peer;
    const CUdeviceptr local           = (CUdeviceptr)block->local;
    const bool is_gpu                 = uct_cuda_end_is_gpu(start->local_end);
    const bool is_own                 = rkey->is_own && is_gpu;
    const bool is_elsewhere           = is_gpu &&
                                        !uct_cuda_end_is_device(
                                                start->local_end,
                                                start->device);
    uct_cuda_mp_request_t request     = {
        .src_end     = block->is_put ? start->local_end : rkey->gpu,
        .dst_end     = block->is_put ? rkey->gpu : start->local_end,
        .size        = block->length,
        .remote      = is_own ? uct_cuda_end_none() : rkey->gpu,
        .is_mappable = (rkey->handle.type == UCT_CUDA_NODE_HANDLE_LEGACY) &&
                       (!is_own || rkey->own.is_reached) && !is_elsewhere
    };
    uct_cuda_mp_memory_t memory       = {
        .src        = block->is_put ? local : block->remote_addr,
        .dst        = block->is_put ? block->remote_addr : local,
        .map        = is_own ? NULL : peer_map,
        .map_one    = is_own ? NULL : peer_map_one,
        .map_arg    = peer,
        .allocation = rkey->handle.buffer_id
    };
    ucs_status_t status;

    peer->block        = block;
    peer->keep         = start->iface->enable_cache;
    peer->context      = op->stream->context;
    peer->device       = start->device;
    peer->num_mappings = 0;

    status = uct_cuda_transfer_start(start->iface->engine, &request, &memory,
                                     &state->transfer, op);
    if (status != UCS_OK) {
        peer_unmap(peer);
        return status;
    }

    op->done = transfer_done;
    op->arg  = state;
    return UCS_OK;
}


/* ----------------------------------------------------------- where it runs */

/*
 * A GPU that the peer's memory cannot be mapped for: its copy runs in a context
 * of the peer's GPU, or of that which the key was unpacked with, and the driver
 * takes it through host memory.
 */
static ucs_status_t push_elsewhere(const uct_cuda_ipc_rkey_t *rkey,
                                   uct_cuda_gpu_context_t *context)
{
    if (uct_cuda_end_is_gpu(rkey->gpu) &&
        ((uct_cuda_gpu_context_push_kept(uct_cuda_end_device(rkey->gpu),
                                         context) == UCS_OK) ||
         (uct_cuda_gpu_context_push_any(rkey->gpu, context) == UCS_OK))) {
        return UCS_OK;
    }

    return uct_cuda_gpu_context_push_any(rkey->from, context);
}

static ucs_status_t push_local(const start_t *start, CUcontext local_context,
                               uct_cuda_gpu_context_t *context)
{
    uct_cuda_ipc_rkey_t *rkey = (uct_cuda_ipc_rkey_t*)start->block->rkey;
    ucs_status_t status;

    status = uct_cuda_gpu_context_push(local_context,
                                       uct_cuda_end_device(start->local_end),
                                       context);
    if ((status != UCS_OK) || rkey->is_own ||
        uct_cuda_ipc_rkey_reaches(rkey, context->device)) {
        return status;
    }

    uct_cuda_gpu_context_pop(context);
    return push_elsewhere(rkey, context);
}

/*
 * Makes current where the copy is to run: with the local memory, or, where that
 * is the host's, near the peer's memory if a context is there.
 */
static ucs_status_t push_context(const start_t *start, CUcontext local_context,
                                 uct_cuda_gpu_context_t *context)
{
    const uct_cuda_end_t gpu = start->block->rkey->gpu;

    if (uct_cuda_end_is_gpu(start->local_end)) {
        return push_local(start, local_context, context);
    }

    if (uct_cuda_end_is_host_vmm(start->local_end)) {
        return uct_cuda_gpu_context_push_touching(
                (CUdeviceptr)start->block->local, NULL, uct_cuda_end_none(),
                context);
    }

    /* The engine's first: a peer's memory is opened in one context of a GPU */
    if (uct_cuda_end_is_gpu(gpu) &&
        ((uct_cuda_gpu_context_push_kept(uct_cuda_end_device(gpu), context) ==
          UCS_OK) ||
         (uct_cuda_gpu_context_push_any(gpu, context) == UCS_OK))) {
        return UCS_OK;
    }

    return uct_cuda_gpu_context_push_any(uct_cuda_end_none(), context);
}

/* Host memory has streams of its own, one each way: its copies take longer than
 * those between GPUs */
static unsigned find_stream(const start_t *start)
{
    const unsigned max_streams = start->iface->max_streams;
    const unsigned number      = start->block->rkey->stream;

    return uct_cuda_end_is_host(start->local_end) ?
                   max_streams - 1 -
                           (((2 * number) + !start->block->is_put) %
                            max_streams) :
                   number % max_streams;
}

/* A list is posted as a whole: only its first block may have to wait */
static ucs_status_t get_stream(const start_t *start, uct_cuda_stream_t **stream)
{
    uct_cuda_queue_t *queue = &start->iface->super.queue;
    const unsigned index    = find_stream(start);

    return start->is_next ? uct_cuda_queue_stream_now(queue, index, stream) :
                            uct_cuda_queue_stream(queue, index, stream);
}

/* Makes this context current in the other's place, with its own stream */
static ucs_status_t
use_instead(const start_t *start, CUcontext instead,
            uct_cuda_gpu_context_t *context, uct_cuda_stream_t **stream_p)
{
    const int device = context->device;
    ucs_status_t status;

    uct_cuda_gpu_context_pop(context);
    status = uct_cuda_gpu_context_push(instead, device, context);
    return (status == UCS_OK) ? get_stream(start, stream_p) : status;
}

/* With the context current that is to run it, which may become another */
static ucs_status_t post(start_t *start, uct_cuda_gpu_context_t *context)
{
    uct_cuda_ipc_iface_t *iface       = start->iface;
    const uct_cuda_ipc_block_t *block = start->block;
    uct_cuda_queue_t *queue           = &iface->super.queue;
    CUcontext instead                 = NULL;
    uct_cuda_stream_t *stream;
    ucs_status_t status;

    status = get_stream(start, &stream);
    if ((status == UCS_OK) && uct_cuda_end_is_gpu(start->local_end) &&
        block->rkey->is_own) {
        instead = uct_cuda_ipc_own_instead(block->rkey, stream->context,
                                           context->device);
    }

    if (instead != NULL) {
        status = use_instead(start, instead, context, &stream);
    }

    if (status != UCS_OK) {
        return status;
    }

    status = uct_cuda_ipc_blocks_add(iface, stream, context->device,
                                     start->local_end, start->is_owned, block,
                                     start->has_more);
    if (status != UCS_ERR_UNSUPPORTED) {
        return status;
    }

    start->device = context->device;
    return uct_cuda_op_run(queue, stream, block->comp, transfer_start, start);
}


/* --------------------------------------------------------------- interface */

static uct_cuda_ipc_iface_t *ep_iface(uct_ep_h ep)
{
    return (uct_cuda_ipc_iface_t*)ep->iface;
}

/* Host memory of this process; the kernel copies, and tells what is not there
 * where a copy of ours would crash */
static ucs_status_t own_host_copy(const uct_cuda_ipc_block_t *block)
{
    struct iovec local, remote;
    size_t offset = 0;
    ssize_t done;

    while (offset < block->length) {
        local.iov_base  = (char*)block->local + offset;
        local.iov_len   = block->length - offset;
        remote.iov_base = (void*)(uintptr_t)(block->remote_addr + offset);
        remote.iov_len  = local.iov_len;
        done = block->is_put ?
                       process_vm_writev(getpid(), &local, 1, &remote, 1, 0) :
                       process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
        if (done <= 0) {
            uct_cuda_debug("cannot copy %zu bytes between %p and %#lx: %s",
                           block->length, block->local,
                           (unsigned long)block->remote_addr, strerror(errno));
            return (errno == EFAULT) ? UCS_ERR_INVALID_ADDR :
                                       UCS_ERR_UNSUPPORTED;
        }

        offset += (size_t)done;
    }

    return UCS_OK;
}

/* Refuses what has no key, or leaves the key's memory */
static ucs_status_t check(const uct_cuda_ipc_block_t *block)
{
    const uct_cuda_node_handle_t *handle;

    if (block->rkey == NULL) {
        uct_cuda_error("transfer of %zu bytes at %#lx without a valid key",
                       block->length, (unsigned long)block->remote_addr);
        return UCS_ERR_INVALID_PARAM;
    }

    handle = &block->rkey->handle;
    if ((block->remote_addr < handle->base) ||
        (block->length > handle->length) ||
        (block->remote_addr - handle->base > handle->length - block->length)) {
        uct_cuda_error("transfer of %zu bytes at %#lx leaves the peer's memory "
                       "%#lx..%#lx",
                       block->length, (unsigned long)block->remote_addr,
                       (unsigned long)handle->base,
                       (unsigned long)(handle->base + handle->length));
        return UCS_ERR_INVALID_PARAM;
    }

    return UCS_OK;
}

/* Of a block that has been checked */
static ucs_status_t
transfer(uct_cuda_ipc_iface_t *iface, const uct_cuda_ipc_block_t *block,
         bool has_more, bool is_next)
{
    start_t start = {
        .iface = iface, .block = block, .has_more = has_more, .is_next = is_next
    };
    uct_cuda_gpu_context_t context;
    CUcontext local_context;
    ucs_status_t status;
    char name[16];

    if (uct_cuda_ipc_blocks_follow(iface, block, has_more, is_next)) {
        return UCS_INPROGRESS;
    }

    uct_cuda_memory_place(block->local, &start.local_end, &local_context);
    start.is_owned = (local_context != NULL) ||
                     !uct_cuda_end_is_gpu(start.local_end);
    status = push_context(&start, local_context, &context);
    if (status != UCS_OK) {
        uct_cuda_error("no usable context for %s memory at %p",
                       uct_cuda_end_str(start.local_end, name, sizeof(name)),
                       block->local);
        return status;
    }

    status = post(&start, &context);
    uct_cuda_gpu_context_pop(&context);
    return status;
}

/* Host memory of this process has no key */
static bool is_own_host(uct_ep_h ep, const uct_cuda_ipc_block_t *block,
                        uct_rkey_t rkey)
{
    CUcontext context;
    uct_cuda_end_t end;

    if ((rkey != UCT_INVALID_RKEY) || !((uct_cuda_ipc_ep_t*)ep)->is_own) {
        return false;
    }

    uct_cuda_memory_place(block->local, &end, &context);
    return uct_cuda_end_is_host(end);
}

static ucs_status_t transfer_iov(uct_ep_h ep, const uct_iov_t *iov,
                                 size_t iovcnt, uint64_t remote_addr,
                                 uct_rkey_t rkey, uct_completion_t *comp,
                                 bool is_put)
{
    uct_cuda_ipc_block_t block;
    ucs_status_t status;

    if ((iovcnt == 0) || (iov->length == 0)) {
        return UCS_OK;
    }

    if (iovcnt != 1) {
        uct_cuda_error("transfer of %zu pieces at %#lx in one", iovcnt,
                       (unsigned long)remote_addr);
        return UCS_ERR_INVALID_PARAM;
    }

    block.rkey        = uct_cuda_ipc_rkey_get(rkey);
    block.local       = iov->buffer;
    block.remote_addr = remote_addr;
    block.length      = iov->length;
    block.is_put      = is_put;
    block.comp        = comp;
    if (is_own_host(ep, &block, rkey)) {
        return own_host_copy(&block);
    }

    status = check(&block);
    return (status == UCS_OK) ? transfer(ep_iface(ep), &block, false, false) :
                                status;
}

ucs_status_t uct_cuda_ipc_transfer(uct_cuda_ipc_iface_t *iface,
                                   const uct_cuda_ipc_block_t *block,
                                   bool has_more)
{
    const ucs_status_t status = check(block);

    return (status == UCS_OK) ? transfer(iface, block, has_more, false) :
                                status;
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

/* Counts the blocks of a list for the completion of all */
typedef struct {
    uct_completion_t comp;
    uct_completion_t *user;
} list_end_t;

static void list_over(uct_completion_t *comp)
{
    list_end_t *end = (list_end_t*)comp;

    uct_abi_completion_update(end->user, 1, end->comp.status);
    free(end);
}

static void list_block(const uct_abi_list_t *list, size_t i, bool is_put,
                       uct_completion_t *comp, uct_cuda_ipc_block_t *block)
{
    block->rkey        = uct_cuda_ipc_rkey_get(list->rkeys[i]);
    block->local       = list->buffers[i];
    block->remote_addr = list->remote_addrs[i];
    block->length      = list->lengths[i];
    block->is_put      = is_put;
    block->comp        = comp;
}

/* Number of blocks that are not empty; what is wrong with one is said before
 * any has begun */
static ucs_status_t
check_list(const uct_abi_list_t *list, bool is_put, size_t *count_p)
{
    uct_cuda_ipc_block_t block;
    ucs_status_t status;
    size_t i;

    *count_p = 0;
    for (i = 0; i < list->count; ++i) {
        if (list->lengths[i] == 0) {
            continue;
        }

        list_block(list, i, is_put, NULL, &block);
        status = check(&block);
        if (status != UCS_OK) {
            uct_cuda_error("in a list: block %zu of %zu", i, list->count);
            return status;
        }

        ++*count_p;
    }

    return UCS_OK;
}

/*
 * The blocks' completions are counted by the list's, and none is told before
 * the next progress call. An error behind blocks that have begun is told by the
 * list's completion when those are over.
 */
static ucs_status_t transfer_list(uct_ep_h ep, const uct_abi_list_t *list,
                                  uct_completion_t *comp, bool is_put)
{
    uct_cuda_queue_t *queue = uct_cuda_ep_queue(ep);
    ucs_status_t status     = UCS_OK;
    size_t left, i;
    uct_cuda_ipc_block_t block;
    list_end_t *end;

    status = check_list(list, is_put, &left);
    if ((status != UCS_OK) || (left == 0)) {
        return status;
    }

    end = malloc(sizeof(*end));
    if (end == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    end->user        = comp;
    end->comp.func   = list_over;
    end->comp.count  = 0;
    end->comp.status = UCS_OK;
    for (i = 0; (i < list->count) && (status == UCS_OK); ++i) {
        if (list->lengths[i] == 0) {
            continue;
        }

        list_block(list, i, is_put, &end->comp, &block);
        status = transfer(ep_iface(ep), &block, --left > 0,
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
    uct_cuda_queue_submit_gathered(queue, true);
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
