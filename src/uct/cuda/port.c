/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A peer's memory is mapped wherever a copy reads or writes it from: in one
 * context for one path, in that of each relay for several. Host memory is only
 * ever touched by its own process, which copies it over PCIe.
 */
#include <uct/cuda/port.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/gpu.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/memory.h>
#include <uct/cuda/node/mappings.h>
#include <uct/cuda/node/own.h>
#include <uct/cuda/transfer.h>

#include <ucs/sys/math.h>

#include <pthread.h>


/* A peer's memory, in each context where one transfer wants it mapped */
typedef struct {
    const uct_cuda_block_t     *block;   /* During the start */
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
    uct_cuda_port_t        *port;
    const uct_cuda_block_t *block;
    uct_cuda_end_t         local_end;
    bool                   is_owned; /* By a context: the local memory */
    int                    device;   /* Of the current context */
    bool                   has_more; /* Of its list are to follow ... */
    bool                   is_next;  /* ... or have gone before */
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
    const start_t *start             = arg;
    const uct_cuda_block_t *block    = start->block;
    const uct_cuda_node_rkey_t *rkey = block->rkey;
    state_t *state                   = (state_t*)op->state;
    peer_memory_t *peer              = &state->peer;
    const CUdeviceptr local          = (CUdeviceptr)block->local;
    const bool is_gpu                = uct_cuda_end_is_gpu(start->local_end);
    const bool is_own                = rkey->is_own && is_gpu;
    const bool is_elsewhere          = is_gpu &&
                                        !uct_cuda_end_is_device(
                                                start->local_end,
                                                start->device);
    uct_cuda_mp_request_t request    = {
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
    peer->keep         = start->port->gather.enable_cache;
    peer->context      = op->stream->context;
    peer->device       = start->device;
    peer->num_mappings = 0;

    status = uct_cuda_transfer_start(start->port->gather.engine, &request,
                                     &memory, &state->transfer, op);
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
static ucs_status_t push_elsewhere(const uct_cuda_node_rkey_t *rkey,
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
    uct_cuda_node_rkey_t *rkey = (uct_cuda_node_rkey_t*)start->block->rkey;
    ucs_status_t status;

    status = uct_cuda_gpu_context_push(local_context,
                                       uct_cuda_end_device(start->local_end),
                                       context);
    if ((status != UCS_OK) || rkey->is_own ||
        uct_cuda_node_rkey_reaches(rkey, context->device)) {
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
    const unsigned max_streams = start->port->max_streams;
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
    uct_cuda_queue_t *queue = start->port->gather.queue;
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
    uct_cuda_gather_t *gather     = &start->port->gather;
    const uct_cuda_block_t *block = start->block;
    CUcontext instead             = NULL;
    uct_cuda_stream_t *stream;
    ucs_status_t status;

    status = get_stream(start, &stream);
    if ((status == UCS_OK) && uct_cuda_end_is_gpu(start->local_end) &&
        block->rkey->is_own) {
        instead = uct_cuda_node_own_instead(block->rkey, stream->context,
                                            context->device);
    }

    if (instead != NULL) {
        status = use_instead(start, instead, context, &stream);
    }

    if (status != UCS_OK) {
        return status;
    }

    status = uct_cuda_gather_add(gather, stream, context->device,
                                 start->local_end, start->is_owned, block,
                                 start->has_more);
    if (status != UCS_ERR_UNSUPPORTED) {
        return status;
    }

    start->device = context->device;
    return uct_cuda_op_run(gather->queue, stream, block->comp, transfer_start,
                           start);
}


/* --------------------------------------------------------------- interface */

ucs_status_t uct_cuda_port_check(const uct_cuda_block_t *block)
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

ucs_status_t uct_cuda_port_post(uct_cuda_port_t *port,
                                const uct_cuda_block_t *block, bool has_more,
                                bool is_next)
{
    start_t start = {
        .port = port, .block = block, .has_more = has_more, .is_next = is_next
    };
    uct_cuda_gpu_context_t context;
    CUcontext local_context;
    ucs_status_t status;
    char name[16];

    if (uct_cuda_gather_follow(&port->gather, block, has_more, is_next)) {
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

ucs_status_t uct_cuda_port_transfer(uct_cuda_port_t *port,
                                    const uct_cuda_block_t *block,
                                    bool has_more)
{
    const ucs_status_t status = uct_cuda_port_check(block);

    return (status == UCS_OK) ?
                   uct_cuda_port_post(port, block, has_more, false) :
                   status;
}


/* -------------------------------------------------------------- open, close */

/* Of the port that was opened last */
static struct {
    pthread_mutex_t          lock; /* takes no other */
    uct_cuda_port_settings_t settings;
} last = {.lock = PTHREAD_MUTEX_INITIALIZER};


static void port_set(uct_cuda_port_t *port, uct_cuda_queue_t *queue,
                     uct_cuda_mp_engine_t *engine,
                     const uct_cuda_port_settings_t *settings)
{
    port->max_streams          = ucs_max(settings->max_streams, 1);
    port->gather.engine        = engine;
    port->gather.kernel_blocks = ucs_min(settings->kernel_blocks,
                                         UCT_CUDA_COPIER_MAX_BLOCKS / 2);
    port->gather.enable_cache  = settings->enable_cache;
    uct_cuda_gather_init(&port->gather, queue);
}

void uct_cuda_port_open(uct_cuda_port_t *port, uct_cuda_queue_t *queue,
                        uct_cuda_mp_engine_t *engine,
                        const uct_cuda_port_settings_t *settings)
{
    port_set(port, queue, engine, settings);
    pthread_mutex_lock(&last.lock);
    last.settings = *settings;
    pthread_mutex_unlock(&last.lock);
}

/* An engine may be there before a port is opened */
ucs_status_t uct_cuda_port_lend(uct_cuda_port_t *port, uct_cuda_queue_t *queue)
{
    uct_cuda_port_settings_t settings;
    uct_cuda_mp_engine_t *engine;
    ucs_status_t status;

    if (port->gather.engine != NULL) {
        return UCS_OK;
    }

    status = uct_cuda_mp_engine_get_any(&engine);
    if (status != UCS_OK) {
        return status;
    }

    pthread_mutex_lock(&last.lock);
    settings = last.settings;
    pthread_mutex_unlock(&last.lock);
    port_set(port, queue, engine, &settings);
    return UCS_OK;
}

void uct_cuda_port_close(uct_cuda_port_t *port)
{
    if (port->gather.engine != NULL) {
        uct_cuda_gather_cleanup(&port->gather);
        uct_cuda_mp_engine_put(port->gather.engine);
        port->gather.engine = NULL;
    }
}
