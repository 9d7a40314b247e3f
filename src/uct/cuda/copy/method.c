/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Methods in order of preference; a plain copy by the driver is the last one. A
 * peer's memory is mapped in each context that accesses it: in one context for
 * a single path, and also in the context of each relay for several paths. Host
 * memory is accessed by its own process, except if threads copy a peer's
 * (copy->remote.by).
 */
#include <uct/cuda/copy/method.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/host/host_bounce.h>
#include <uct/cuda/base/host/host_limits.h>
#include <uct/cuda/base/host/host_pieces.h>
#include <uct/cuda/base/host/host_pipeline.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/memory.h>
#include <uct/cuda/base/trace.h>
#include <uct/cuda/copy/legs.h>
#include <uct/cuda/node/mappings.h>


#include <linux/mempolicy.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>


/* Data of an operation's copy until its end */
typedef struct {
    const uct_cuda_copy_t   *copy;   /* during the start */
    int                     device;  /* of the context; during the start */
    bool                    keep;    /* keep mappings in the cache */
    uct_cuda_end_t          src_end;
    uct_cuda_end_t          dst_end;
    size_t                  bytes;
    void                    *host;   /* the end in host memory, or NULL */
    void                    *slot;   /* intermediate slot, or NULL */
    uint64_t                begin;   /* for a timeline */
    uct_cuda_mp_engine_t    *engine; /* or NULL */
    uint16_t                counted; /* by the engine, on a link */
    uct_cuda_host_pieces_t  pieces;  /* of host */
    unsigned                num_mappings;
    uct_cuda_node_mapping_t *mappings[1 + UCT_CUDA_PLAN_MAX_PATHS];
} state_t;

_Static_assert(sizeof(state_t) <= UCT_CUDA_OP_STATE_SIZE,
               "an operation has room for it");

/* Copy being started */
typedef struct {
    uct_cuda_op_t          *op;
    state_t                *state;
    CUdeviceptr            src;     /* address in this process, once the peer's
                                       memory is mapped */
    CUdeviceptr            dst;     /* the same */
    bool                   needs_mapping; /* of the memory behind the key */
    uct_cuda_run_request_t request; /* for the engine; describe() fills it in */
    uct_cuda_run_memory_t  memory;  /* the same */
} method_start_t;


static const uct_cuda_copy_end_t *src_of(const uct_cuda_copy_t *copy)
{
    return copy->is_put ? &copy->local : &copy->remote;
}

static const uct_cuda_copy_end_t *dst_of(const uct_cuda_copy_t *copy)
{
    return copy->is_put ? &copy->remote : &copy->local;
}

static bool is_to_gpu(const method_start_t *start)
{
    return start->state->src_end.kind == UCT_CUDA_END_HOST;
}

static CUdeviceptr gpu_address(const method_start_t *start)
{
    return is_to_gpu(start) ? start->dst : start->src;
}


/* ------------------------------------------------------- the peer's memory */

static void unmap(state_t *state)
{
    while (state->num_mappings > 0) {
        uct_cuda_node_cache_put(state->mappings[--state->num_mappings],
                                state->keep);
    }
}

static ucs_status_t map_in(state_t *state, int device, CUcontext context,
                           unsigned long long context_id, CUdeviceptr *ptr_p)
{
    const uct_cuda_copy_end_t *remote    = &state->copy->remote;
    const uct_cuda_node_handle_t *handle = &remote->key->handle;
    uct_cuda_node_mapping_t **mapping = &state->mappings[state->num_mappings];
    ucs_status_t status;

    if (state->num_mappings == ucs_static_array_size(state->mappings)) {
        return UCS_ERR_EXCEEDS_LIMIT;
    }

    status = uct_cuda_node_cache_get_in(
            handle, &remote->key->hint, device, context,
            context_id, mapping);
    if (status == UCS_OK) {
        ++state->num_mappings;
        *ptr_p = (*mapping)->mapped + (remote->address - handle->base);
    }

    return status;
}

/* Map the peer's memory for a path of the engine, in the current context, which
 * belongs to @a device */
static ucs_status_t map_for_engine(void *arg, int device, CUdeviceptr *ptr_p)
{
    unsigned long long id;
    CUcontext context;
    ucs_status_t status;

    status = uct_cuda_ctx_current(&context, &id);
    return (status == UCS_OK) ? map_in(arg, device, context, id, ptr_p) :
                                status;
}

/* Map the peer's memory for a copy over one path, and release the mappings made
 * for the engine */
static ucs_status_t map_one(method_start_t *start)
{
    const uct_cuda_context_t *context = start->op->stream->context;
    state_t *state                    = start->state;
    ucs_status_t status;

    if (!start->needs_mapping) {
        return UCS_OK;
    }

    unmap(state);
    status = map_in(state, state->device, context->cuda, context->id,
                    state->copy->is_put ? &start->dst : &start->src);
    if (status != UCS_OK) {
        uct_cuda_node_cache_log_failure(
                &state->copy->remote.key->handle, status);
    }

    return status;
}


/* ---------------------------------------------------- properties of a copy */

/* Return whether an end is GPU memory without a context, from cuMemCreate or a
 * pool */
static bool is_unowned(const uct_cuda_copy_end_t *end)
{
    return (end->end.kind == UCT_CUDA_END_GPU) && (end->context == NULL);
}

/* Return whether relay GPUs can access both ends, which are memory of this
 * process */
static bool is_reachable(const uct_cuda_copy_t *copy,
                         uct_cuda_mp_engine_t *engine)
{
    if (is_unowned(&copy->local) || is_unowned(&copy->remote)) {
        return false;
    }

    return uct_cuda_copy_has(copy, UCT_CUDA_END_HOST) ||
           ((engine != NULL) && uct_cuda_mp_may_split(engine, copy->bytes) &&
            uct_cuda_ctx_has_peer(src_of(copy)->context,
                                  dst_of(copy)->address));
}

/* Return whether the engine may map or access the remote end in contexts of
 * relays */
static bool
is_mappable(const uct_cuda_copy_t *copy, uct_cuda_mp_engine_t *engine,
            int device)
{
    const uct_cuda_node_rkey_t *key = copy->remote.key;

    if (uct_cuda_copy_needs_legs(copy, device)) {
        return false;
    }

    if (key == NULL) {
        return is_reachable(copy, engine);
    }

    /* In the remote GPU's own context if the GPUs have no peer access, else in
     * the local GPU's */
    return (key->handle.type != UCT_CUDA_NODE_HANDLE_NONE) &&
           ((copy->local.end.kind != UCT_CUDA_END_GPU) ||
            (!key->is_self && uct_cuda_end_is_device(key->gpu, device)) ||
            (uct_cuda_end_is_device(copy->local.end, device) &&
             (!key->is_self || key->own.is_reached)));
}

/* Fill in the engine's request and memory description */
static void describe(method_start_t *start)
{
    const state_t *state            = start->state;
    const uct_cuda_node_rkey_t *key = state->copy->remote.key;
    uct_cuda_run_request_t *request = &start->request;
    uct_cuda_run_memory_t *memory   = &start->memory;

    request->src_end     = state->src_end;
    request->dst_end     = state->dst_end;
    request->size        = state->bytes;
    request->remote      = start->needs_mapping ? key->gpu :
                                                  uct_cuda_end_none();
    request->is_mappable = is_mappable(state->copy, state->engine,
                                       state->device);
    request->is_unowned  = is_unowned(&state->copy->local);
    request->host_numa   = UCT_CUDA_TOPO_NO_NUMA;
    memory->src          = start->src;
    memory->dst          = start->dst;
    memory->map          = start->needs_mapping ? map_for_engine : NULL;
    memory->map_arg      = start->state;
    memory->allocation   = (key != NULL) ? key->handle.buffer_id : 0;

    memory->num_boundaries = 0;
    memory->boundaries     = NULL;
}


/* ---------------------------------------------------------------- the end */

/* Release the pieces or the slot of host memory */
static void release_host(state_t *state)
{
    if (state->host != NULL) {
        uct_cuda_host_pieces_release(&state->pieces);
    }
    if (state->slot != NULL) {
        uct_cuda_host_bounce_put(state->slot);
    }
}

/* Release the resources of a copy: its count on the link, mappings, and the
 * pieces or slot of host memory. Copy a slot's bytes to the host memory first.
 */
static void copy_end(uct_cuda_op_t *op)
{
    state_t *state = (state_t*)op->state;

    uct_cuda_mp_single_end(state->engine, state->counted);
    if (state->slot != NULL) {
        memcpy(state->host, state->slot, state->bytes);
    }
    release_host(state);
    unmap(state);
}

/* End a copy without a plan of the engine */
static void single_end(uct_cuda_op_t *op)
{
    const state_t *state = (const state_t*)op->state;

    if (state->host != NULL) {
        uct_cuda_trace_bar(true, state->src_end, state->dst_end, state->bytes,
                           op->method->name, state->begin);
    }
    copy_end(op);
}


/* Write the bytes and ends of a copy without a plan of the engine */
static void single_str(const uct_cuda_op_t *op, char *text, size_t max)
{
    const state_t *state = (const state_t*)op->state;
    char from[16], to[16];

    snprintf(text, max, "%zu bytes from %s to %s", state->bytes,
             uct_cuda_end_str(state->src_end, from, sizeof(from)),
             uct_cuda_end_str(state->dst_end, to, sizeof(to)));
}


/* ----------------------------------------------------------- by the engine */

static ucs_status_t engine_test(uct_cuda_op_t *op)
{
    return uct_cuda_mp_test(op->work);
}

static ucs_status_t engine_wake(uct_cuda_op_t *op, CUhostFn func, void *arg)
{
    return uct_cuda_mp_notify(op->work, func, arg);
}

static void engine_end(uct_cuda_op_t *op)
{
    uct_cuda_mp_release(op->work);
    copy_end(op);
}

/* Return whether memory is on one GPU: managed memory may be anywhere, and
 * moves to the GPU that accesses it */
static bool is_gpu_memory(CUdeviceptr address, size_t size)
{
    uct_cuda_memory_t memory;

    uct_cuda_memory_query((void*)address, size, &memory);
    return memory.type == UCS_MEMORY_TYPE_CUDA;
}

/* Return the NUMA node of a buffer's first byte, if known */
static int find_numa(const void *address)
{
    int numa;

    return (syscall(SYS_get_mempolicy, &numa, NULL, 0ul, address,
                    (unsigned long)(MPOL_F_NODE | MPOL_F_ADDR)) == 0) ?
                   numa :
                   UCT_CUDA_TOPO_NO_NUMA;
}

/* Return whether the engine can carry a copy with host memory. Queries come
 * last, so that small messages skip them. */
static bool engine_can_host(const method_start_t *start)
{
    const uct_cuda_run_request_t *request = &start->request;

    return start->state->pieces.is_locked && request->is_mappable &&
           (start->needs_mapping ||
            (request->size >= UCT_CUDA_HOST_OWN_SPLIT_MIN_SIZE)) &&
           (uct_cuda_mp_admit(start->state->engine, request) ==
            UCT_CUDA_PLAN_ADMITTED) &&
           (start->needs_mapping ||
            is_gpu_memory(gpu_address(start), request->size));
}

/* Return whether the engine can carry the copy; plans and links do not support
 * host VMM memory */
static bool engine_can(method_start_t *start)
{
    const state_t *state               = start->state;
    const uct_cuda_mp_engine_t *engine = state->engine;

    if ((engine == NULL) ||
        !((state->host != NULL) ?
              uct_cuda_mp_may_split_host(engine, state->bytes) :
              uct_cuda_mp_may_split(engine, state->bytes)) ||
        uct_cuda_copy_has(state->copy, UCT_CUDA_END_HOST_VMM)) {
        return false;
    }

    describe(start);
    return (state->host != NULL) ?
                   engine_can_host(start) :
                   start->request.is_mappable || start->needs_mapping;
}

static const uct_cuda_method_t by_engine = {.name = "the engine",
                                            .test = engine_test,
                                            .wake = engine_wake,
                                            .end  = engine_end};

/* Start the copy by the engine. @return UCS_OK; UCS_ERR_UNSUPPORTED: try the
 * next method */
static ucs_status_t engine_start(method_start_t *start)
{
    const state_t *state = start->state;
    uct_cuda_mp_transfer_t *work;

    if (!engine_can(start)) {
        return UCS_ERR_UNSUPPORTED;
    }

    if (state->host != NULL) {
        start->request.host_numa     = find_numa(state->host);
        start->memory.num_boundaries = state->pieces.count - 1;
        start->memory.boundaries     = state->pieces.ends;
    }

    if ((uct_cuda_mp_start(state->engine, &start->request, &start->memory,
                           &work) != UCS_OK) ||
        (work == NULL)) {
        return UCS_ERR_UNSUPPORTED;
    }

    start->op->method = &by_engine;
    start->op->work   = work;
    start->op->steps  = uct_cuda_mp_num_steps(work);
    return UCS_OK;
}


/* -------------------------------------------------------------- by threads */

static ucs_status_t threads_test(uct_cuda_op_t *op)
{
    return uct_cuda_host_pipeline_test(op->work);
}

static ucs_status_t threads_wake(uct_cuda_op_t *op, CUhostFn func, void *arg)
{
    uct_cuda_host_pipeline_notify(op->work, func, arg);
    return UCS_OK;
}

static void threads_end(uct_cuda_op_t *op)
{
    uct_cuda_host_pipeline_release(op->work);
    single_end(op);
}

static const uct_cuda_method_t by_threads = {.name = "threads",
                                             .test = threads_test,
                                             .wake = threads_wake,
                                             .end  = threads_end};

/* Let threads copy a peer's host memory, or mostly pageable memory. After an
 * error the caller tries the next method, unless the memory is a peer's. */
static ucs_status_t threads_start(method_start_t *start)
{
    const state_t *state             = start->state;
    const uct_cuda_host_remote_t *by = state->copy->remote.by;
    uct_cuda_host_job_t *job;
    ucs_status_t status;
    bool to_gpu;

    if ((by == NULL) && ((state->host == NULL) || (state->slot != NULL) ||
                         (state->pieces.pageable <= state->bytes / 2))) {
        return UCS_ERR_UNSUPPORTED;
    }

    to_gpu = is_to_gpu(start);
    status = (by != NULL) ?
                     uct_cuda_host_pipeline_start_remote(
                             gpu_address(start),
                             to_gpu ? start->src : start->dst, state->bytes,
                             to_gpu, by, &job) :
                     uct_cuda_host_pipeline_start(gpu_address(start),
                                                  state->host, state->bytes,
                                                  to_gpu, &job);
    if (status == UCS_OK) {
        start->op->method = &by_threads;
        start->op->work   = job;
    }

    return status;
}


/* ----------------------------------- by a slot, in legs, and by the driver */

/* Announce a large copy over one link to the engine and to other processes */
static void count_single(method_start_t *start)
{
    state_t *state = start->state;

    if ((state->engine != NULL) &&
        ((state->host == NULL) ?
                 (state->bytes >= UCT_CUDA_MP_COUNTED_MIN_SIZE) :
                 start->needs_mapping && state->pieces.is_locked &&
                         uct_cuda_mp_may_split_host(state->engine,
                                                    state->bytes))) {
        state->counted = uct_cuda_mp_single_begin(
                state->engine, state->src_end, state->dst_end, state->bytes);
    }
}

/* Submit a copy with host memory. After a failure wait for the submitted part,
 * which must not access the memory later. */
static ucs_status_t copy_host(method_start_t *start, CUstream stream)
{
    const state_t *state  = start->state;
    const CUdeviceptr gpu = gpu_address(start);
    ucs_status_t status;

    status = (state->slot != NULL) ?
                     uct_cuda_host_copy(gpu, state->slot, state->bytes, false,
                                        stream) :
                     uct_cuda_host_pieces_copy(&state->pieces, gpu,
                                               state->host, is_to_gpu(start),
                                               stream);
    if (status != UCS_OK) {
        (void)UCT_CUDA_CALL(cuStreamSynchronize, stream);
    }

    return status;
}

static ucs_status_t copy_gpus(method_start_t *start, CUstream stream)
{
    const state_t *state         = start->state;
    uct_cuda_trace_copy_t *trace = uct_cuda_trace_begin(stream);
    ucs_status_t status;

    status = uct_cuda_copy_has(state->copy, UCT_CUDA_END_HOST_VMM) ?
                     UCT_CUDA_CALL(cuMemcpyAsync, start->dst, start->src,
                                   state->bytes, stream) :
                     UCT_CUDA_CALL(cuMemcpyDtoDAsync, start->dst, start->src,
                                   state->bytes, stream);
    uct_cuda_trace_end(trace, stream, state->src_end, state->dst_end,
                       state->bytes, "one path");
    return status;
}

static const uct_cuda_method_t by_slot   = {.name = "a slot",
                                            .end  = single_end,
                                            .str  = single_str};
static const uct_cuda_method_t by_legs   = {.name = "two legs",
                                            .end  = single_end,
                                            .str  = single_str};
static const uct_cuda_method_t by_driver = {.name = "the driver",
                                            .end  = single_end,
                                            .str  = single_str};

static ucs_status_t legs_start(method_start_t *start)
{
    const uct_cuda_copy_t *copy = start->state->copy;
    ucs_status_t status;

    status = uct_cuda_copy_submit_legs(copy,
                                       copy->is_put ? start->dst : start->src,
                                       start->op->stream->cuda);
    if (status == UCS_OK) {
        start->op->method = &by_legs;
    }

    return status;
}

static ucs_status_t driver_start(method_start_t *start)
{
    const CUstream stream = start->op->stream->cuda;
    const ucs_status_t status =
            (start->state->host != NULL) ? copy_host(start, stream) :
                                           copy_gpus(start, stream);

    if (status == UCS_OK) {
        start->op->method = (start->state->slot != NULL) ? &by_slot :
                                                           &by_driver;
        count_single(start);
    }

    return status;
}


/* --------------------------------------------------------------- interface */

/* Prepare the end in host memory: get a slot, or find its page-locked pieces */
static ucs_status_t prepare_host(method_start_t *start)
{
    state_t *state      = start->state;
    const bool has_slot = start->needs_mapping && !is_to_gpu(start);
    ucs_status_t status;

    if (has_slot && (state->bytes <= UCT_CUDA_HOST_UNSEEN_MAX_SIZE)) {
        state->slot = uct_cuda_host_bounce_get(state->bytes);
        if (state->slot != NULL) {
            return UCS_OK;
        }
    }

    status = uct_cuda_host_pieces_find(&state->pieces, state->host,
                                       state->bytes);
    if (status != UCS_OK) {
        return status;
    }

    if (has_slot && !state->pieces.is_locked && (state->pieces.count == 1)) {
        state->slot = uct_cuda_host_bounce_get(state->bytes);
    }

    if ((state->engine != NULL) && (state->pieces.pageable > 0)) {
        uct_cuda_mp_share_cpus(state->engine);
    }

    return UCS_OK;
}

/* Start the copy by the engine, else by the first suitable of the other
 * methods, which use one mapping of a peer's memory */
static ucs_status_t start_by_any(method_start_t *start)
{
    ucs_status_t status;

    status = engine_start(start);
    if (status != UCS_ERR_UNSUPPORTED) {
        return status;
    }

    status = map_one(start);
    if (status != UCS_OK) {
        return status;
    }

    if (uct_cuda_copy_needs_legs(start->state->copy, start->state->device)) {
        return legs_start(start);
    }

    status = threads_start(start);
    return ((status != UCS_OK) && (start->state->copy->remote.by == NULL)) ?
                   driver_start(start) :
                   status;
}

/* Return the host memory accessible to this process, or NULL */
static void *find_host(const uct_cuda_copy_t *copy)
{
    return (copy->local.end.kind == UCT_CUDA_END_HOST) ?
                   (void*)copy->local.address :
           ((copy->remote.end.kind == UCT_CUDA_END_HOST) &&
            (copy->remote.by == NULL)) ?
                   (void*)copy->remote.address :
                   NULL;
}

ucs_status_t
uct_cuda_copy_start(uct_cuda_op_t *op, const uct_cuda_copy_t *copy,
                    uct_cuda_mp_engine_t *engine, int device, bool keep)
{
    const uct_cuda_copy_end_t *src  = src_of(copy);
    const uct_cuda_copy_end_t *dst  = dst_of(copy);
    const uct_cuda_node_rkey_t *key = copy->remote.key;
    state_t *state                  = (state_t*)op->state;
    ucs_status_t status             = UCS_OK;
    method_start_t start; /* not zeroed: it is large */

    start.op            = op;
    start.state         = state;
    start.src           = src->address;
    start.dst           = dst->address;
    /* GPU memory of this process behind a key needs no mapping between GPUs.
     * With host memory at the other end it is mapped like that of a peer. */
    start.needs_mapping = (key != NULL) &&
                          (!key->is_self ||
                           (copy->local.end.kind != UCT_CUDA_END_GPU));
    state->copy         = copy;
    state->engine       = engine;
    state->device       = device;
    state->keep         = keep;
    state->src_end      = src->end;
    state->dst_end      = dst->end;
    state->bytes        = copy->bytes;
    state->host         = find_host(copy);
    state->slot         = NULL;
    state->begin        = uct_cuda_trace_now();
    state->counted      = UCT_CUDA_MP_NOT_COUNTED;
    state->num_mappings = 0;

    if (state->host != NULL) {
        uct_cuda_host_pieces_init(&state->pieces);
        status = prepare_host(&start);
    }

    if (status == UCS_OK) {
        status = start_by_any(&start);
    }

    if (status != UCS_OK) {
        release_host(state);
        unmap(state);
        return status;
    }

    if (uct_cuda_log_is_on(UCT_CUDA_LOG_INFO) && (engine != NULL)) {
        uct_cuda_mp_count(engine);
    }

    uct_cuda_trace("%zu bytes from %p to %p: by %s", copy->bytes,
                   (void*)start.src, (void*)start.dst,
                   op->method->name);
    return UCS_OK;
}

ucs_status_t
uct_cuda_copy_run(uct_cuda_queue_t *queue, uct_cuda_stream_t *stream,
                  const uct_cuda_copy_t *copy, uct_cuda_mp_engine_t *engine,
                  int device, bool keep)
{
    ucs_status_t status;
    uct_cuda_op_t *op;

    status = uct_cuda_op_get(stream, &op);
    if (status != UCS_OK) {
        return status;
    }

    op->comp = copy->comp;
    status   = uct_cuda_copy_start(op, copy, engine, device, keep);
    if (status != UCS_OK) {
        uct_cuda_op_put(op);
        return status;
    }

    return uct_cuda_op_post(queue, op);
}
