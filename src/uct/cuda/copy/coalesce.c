/* SPDX-License-Identifier: BSD-3-Clause */
/* Coalesced copies: a group is an operation with many completions. */
#include <uct/cuda/copy/coalesce.h>

#include <uct/cuda/base/clock.h>
#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/memory.h>
#include <uct/cuda/base/pointer.h>
#include <uct/cuda/base/range.h>
#include <uct/cuda/copy/batch.h>
#include <uct/cuda/node/mappings.h>

#include <ucs/sys/math.h>

#include <stdlib.h>


/* Blocks in the first group, few so that the GPU begins soon; the next group
 * has twice as many. Also the minimum bytes over PCIe and between GPUs, so that
 * copying them takes as long as submitting them (8 us). */
#define FIRST_COUNT    8
#define MIN_HOST_BYTES (512ul << 10)
#define MIN_GPU_BYTES  (4ul << 20)

/* If the program posts block by block, the next block is expected within this
 * time per block before it, at least within the minimum and at most within the
 * maximum: the posting thread sometimes waits for the worker's lock */
#define FED_NS_A_BLOCK 1000ul
#define FED_MIN_NS     (30ul * 1000)
#define FED_MAX_NS     (100ul * 1000)

/* Consecutive progress calls without a driver query while the program posts
 * blocks */
#define MAX_WAITED 16

/* Minimum copies for a kernel, and minimum blocks of an interface before its
 * first kernel: below, launching or loading it costs more than it saves */
#define KERNEL_MIN_COUNT  4
#define KERNEL_MIN_BLOCKS 64

/* Over PCIe copy engines are faster with larger blocks (mean, bytes; H100), but
 * a call for them takes 1 us for each block, which delays a thread posting
 * block by block */
#define KERNEL_MAX_HOST_SIZE      (128ul << 10)
#define KERNEL_MAX_HOST_LIST_SIZE (32ul << 10)


struct uct_cuda_copy_group {
    uct_cuda_copy_batch_t      batch; /* First: work of the operation */
    uct_cuda_copy_group_t      *next_idle;
    uct_cuda_copy_group_t      *next;  /* Next of all groups */
    uct_completion_t           comp;   /* Completion of the operation */
    uct_cuda_copy_coalescer_t  *coalescer;
    uint16_t                   counted; /* on a link, by the engine */
    ucs_status_t               status; /* Status of submission */

    /* Key and allocations of the last block. The size of local GPU memory is 0
     * until another block follows. */
    const uct_cuda_node_rkey_t *key;
    uint64_t                 key_base;
    unsigned long long       key_buffer_id;
    int32_t                  key_pid;
    CUdeviceptr              local_begin;
    size_t                   local_size;
    /* The previous block is in the same allocations */
    bool                     may_merge;

    bool                     is_list;    /* Posted as one list */
    /* Local memory of the last block belongs to a context */
    bool                     is_owned;
    /* Blocks of memory without context wait for the program's copies when the
     * group is submitted */
    bool                     needs_sync;
    /* Kernels can access both ends of the blocks in the first num_reached
     * mappings */
    bool                     is_reached;
    unsigned                 num_reached;
    int                      device;     /* Of the stream's context */
    unsigned                 num_blocks;
    uct_completion_t         *comps[UCT_CUDA_COPY_COALESCE_MAX_UNIFORM];
    unsigned                 num_mappings;
    uct_cuda_node_mapping_t  *mappings[UCT_CUDA_COPY_COALESCE_MAX_UNIFORM];
    /* Copy of the first block in each mapping */
    unsigned                 firsts[UCT_CUDA_COPY_COALESCE_MAX_UNIFORM];
};


static void group_report(uct_cuda_copy_group_t *group, ucs_status_t status)
{
    uct_cuda_copy_coalescer_t *coalescer = group->coalescer;
    unsigned i;

    for (i = 0; i < group->num_blocks; ++i) {
        uct_abi_completion_update(group->comps[i], 1, status);
    }

    group->next_idle = coalescer->idle;
    coalescer->idle  = group;
}

static void group_completed(uct_completion_t *comp)
{
    uct_cuda_copy_group_t *group =
            (uct_cuda_copy_group_t*)((char*)comp -
                                     offsetof(uct_cuda_copy_group_t, comp));

    group_report(group, comp->status);
}

static void group_end(uct_cuda_op_t *op)
{
    uct_cuda_copy_group_t *group = op->work;

    /* a group that could not be recorded ends twice, see group_submit() */
    uct_cuda_mp_single_end(group->coalescer->engine, group->counted);
    group->counted = UCT_CUDA_MP_NOT_COUNTED;
    while (group->num_mappings > 0) {
        uct_cuda_node_cache_put(group->mappings[--group->num_mappings],
                                group->coalescer->enable_cache);
    }
}

/* Report the status of a group that could not be submitted. Progress calls its
 * completions; the posting call never does. */
static ucs_status_t failed_test(uct_cuda_op_t *op)
{
    return ((uct_cuda_copy_group_t*)op->work)->status;
}

static const uct_cuda_method_t by_batch  = {.name = "a batch",
                                            .end  = group_end,
                                            .str  = uct_cuda_copy_batch_str};
static const uct_cuda_method_t by_kernel = {"a kernel",
                                            uct_cuda_copy_batch_kernel_test,
                                            uct_cuda_copy_batch_kernel_wake,
                                            group_end, uct_cuda_copy_batch_str};
static const uct_cuda_method_t by_none   = {.name = "nothing",
                                            .test = failed_test,
                                            .end  = group_end};

static ucs_status_t
group_get_op(uct_cuda_copy_group_t *group, uct_cuda_stream_t *stream)
{
    ucs_status_t status;

    status = uct_cuda_op_get(stream, &group->batch.op);
    if (status == UCS_OK) {
        group->batch.op->comp   = &group->comp;
        group->batch.op->method = &by_batch;
        group->batch.op->work   = group;
    }

    return status;
}

static ucs_status_t group_open(uct_cuda_copy_coalescer_t *coalescer,
                               uct_cuda_stream_t *stream, bool is_list)
{
    uct_cuda_copy_group_t *group = coalescer->idle;
    uct_cuda_queue_t *queue      = coalescer->queue;
    ucs_status_t status;

    if (group == NULL) {
        group = calloc(1, sizeof(*group));
        if (group == NULL) {
            return UCS_ERR_NO_MEMORY;
        }

        group->coalescer = coalescer;
        group->next      = coalescer->all;
        coalescer->all   = group;
        coalescer->idle  = group;
    }

    status = group_get_op(group, stream);
    if (status != UCS_OK) {
        return status;
    }

    coalescer->idle           = group->next_idle;
    group->comp.func          = group_completed;
    group->comp.count         = 1;
    group->comp.status        = UCS_OK;
    group->batch.bytes        = 0;
    group->batch.copies.count = 0;
    group->counted            = UCT_CUDA_MP_NOT_COUNTED;
    group->is_list            = is_list;
    group->needs_sync         = false;
    group->is_reached         = true;
    group->num_reached        = 0;
    group->num_blocks         = 0;
    coalescer->open           = group;
    queue->is_coalescing      = true;
    queue->has_coalesced      = true;
    if ((queue->outstanding == 0) && (queue->on_busy != NULL)) {
        queue->on_busy(queue);
    }
    return UCS_OK;
}

/* Return whether a kernel can access both ends, checked once for each
 * allocation, with the context current: a kernel would fault where a copy is
 * refused or takes another route */
static bool group_is_reached(uct_cuda_copy_group_t *group)
{
    const uct_cuda_copy_list_t *copies = &group->batch.copies;
    unsigned i;

    while (group->is_reached && (group->num_reached < group->num_mappings)) {
        i                 = group->firsts[group->num_reached++];
        group->is_reached = uct_cuda_copy_kernel_can_access(copies->dst[i],
                                                            group->device) &&
                            uct_cuda_copy_kernel_can_access(copies->src[i],
                                                            group->device);
    }

    return group->is_reached;
}

/* Return whether to use a kernel: many small copies */
static bool wants_kernel(uct_cuda_copy_group_t *group)
{
    const uct_cuda_copy_batch_t *batch         = &group->batch;
    const uct_cuda_copy_coalescer_t *coalescer = group->coalescer;
    const unsigned count                       = batch->copies.count;
    const size_t max_host_size = group->is_list ? KERNEL_MAX_HOST_LIST_SIZE :
                                                  KERNEL_MAX_HOST_SIZE;

    return (coalescer->kernel_blocks > 0) && (count >= KERNEL_MIN_COUNT) &&
           ((count <= UCT_CUDA_COPY_KERNEL_MAX) || batch->copies.is_uniform) &&
           (coalescer->num_small >= KERNEL_MIN_BLOCKS) &&
           ((batch->local_end.kind == UCT_CUDA_END_GPU) ||
            (batch->bytes <= count * max_host_size)) &&
           group_is_reached(group);
}

/* Submit a group with its context current. Memory without context was
 * synchronized when the first block was posted; once more covers the others. */
static ucs_status_t group_start(uct_cuda_copy_group_t *group)
{
    uct_cuda_copy_coalescer_t *coalescer = group->coalescer;
    const bool is_gpu = group->batch.local_end.kind == UCT_CUDA_END_GPU;
    uct_cuda_copy_kernel_t *copy_kernel  = NULL;
    ucs_status_t status;
    bool is_kernel;

    if (group->needs_sync) {
        uct_cuda_memory_sync_unowned(group->batch.local_end.device);
    }

    if (wants_kernel(group)) {
        copy_kernel = uct_cuda_copy_kernel_get(group->batch.op->stream->pool,
                                               coalescer->loads_kernels);
    }

    status = uct_cuda_copy_batch_start(&group->batch, copy_kernel,
                                       is_gpu ? 2 * coalescer->kernel_blocks :
                                                coalescer->kernel_blocks,
                                       &is_kernel);
    if (is_kernel) {
        group->batch.op->method = &by_kernel;
    }

    return status;
}

/* Let the engine count a group that takes long */
static void group_count(uct_cuda_copy_group_t *group)
{
    const uct_cuda_copy_batch_t *batch = &group->batch;

    if ((batch->local_end.kind == UCT_CUDA_END_GPU) &&
        (batch->bytes >= UCT_CUDA_MP_COUNTED_MIN_SIZE)) {
        group->counted = uct_cuda_mp_single_begin(
                group->coalescer->engine,
                batch->is_put ? batch->local_end : batch->remote_end,
                batch->is_put ? batch->remote_end : batch->local_end,
                batch->bytes);
    }
}

static void group_submit(uct_cuda_copy_coalescer_t *coalescer)
{
    uct_cuda_copy_group_t *group      = coalescer->open;
    uct_cuda_op_t *op                 = group->batch.op;
    uct_cuda_stream_t *stream         = op->stream;
    const uct_cuda_context_t *context = stream->context;
    ucs_status_t status;
    bool is_pushed;

    coalescer->last_count          = group->num_blocks;
    coalescer->open                = NULL;
    coalescer->queue->is_coalescing = false;

    /* the context was current at posting; the program may have reset it
     * since */
    is_pushed     = uct_cuda_context_push(context);
    group->status = is_pushed ? group_start(group) : UCS_ERR_IO_ERROR;
    if (group->status == UCS_OK) {
        group_count(group);
    } else {
        op->method = &by_none;
    }

    status = uct_cuda_op_post(coalescer->queue, op);
    if (status != UCS_INPROGRESS) {
        /* the operation was released, so another one is available */
        group->status = status;
        if (group_get_op(group, stream) == UCS_OK) {
            group->batch.op->method = &by_none;
            (void)uct_cuda_op_post(coalescer->queue, group->batch.op);
        }
    }

    if (is_pushed) {
        uct_cuda_ctx_pop();
    }
}

/* Return whether the stream has more than one operation running */
static bool is_busy(const uct_cuda_stream_t *stream)
{
    return (stream->head != NULL) && (stream->head != stream->tail);
}

/* Return whether a block should wait for the running copies, to be copied
 * together with later blocks. A group of 10 MiB runs for as long as submitting
 * the next one takes. After one short copy waiting would only cost time, unless
 * the last group was large. */
static bool is_to_wait(const uct_cuda_copy_coalescer_t *coalescer,
                       const uct_cuda_stream_t *stream)
{
    const uct_cuda_op_t *head = stream->head;

    return is_busy(stream) ||
           ((head != NULL) &&
            ((head->method == &by_batch) || (head->method == &by_kernel) ||
             (coalescer->last_count >= FIRST_COUNT)));
}

static uint64_t fed_window(const uct_cuda_copy_coalescer_t *coalescer)
{
    return ucs_min(coalescer->streak * FED_NS_A_BLOCK, FED_MAX_NS);
}

/* Return the number of bytes to submit together, so that copying them takes as
 * long as the driver calls */
static size_t min_bytes(const uct_cuda_copy_group_t *group)
{
    return (group->batch.local_end.kind == UCT_CUDA_END_GPU) ? MIN_GPU_BYTES :
                                                               MIN_HOST_BYTES;
}

/*
 * Return whether one thread posts blocks one after another while a different
 * thread makes progress: then the next block comes soon. If the posting thread
 * makes progress itself, it has paused posting.
 */
static bool is_fed(const uct_cuda_copy_coalescer_t *coalescer)
{
    return coalescer->is_threaded && (coalescer->streak >= FIRST_COUNT) &&
           (uct_cuda_now_ns() - coalescer->fed <= fed_window(coalescer));
}

/* Return whether to submit the open group now: the GPU has too little work, and
 * the group is large or no block is expected soon. Frequent small groups,
 * submitted with the worker's lock held, would delay the posting thread. */
static bool is_due(const uct_cuda_copy_group_t *group)
{
    return !is_busy(group->batch.op->stream) &&
           ((group->batch.bytes >= min_bytes(group)) ||
            !is_fed(group->coalescer));
}

static void submit_coalesced(uct_cuda_queue_t *queue, bool is_all)
{
    uct_cuda_copy_coalescer_t *coalescer = queue->coalescer;

    if (is_all || (queue->active == NULL)) {
        coalescer->max_count = FIRST_COUNT;
    }
    if (!is_all) {
        coalescer->is_threaded = !pthread_equal(coalescer->poster,
                                                pthread_self());
    }

    if ((coalescer->open != NULL) && (is_all || is_due(coalescer->open))) {
        group_submit(coalescer);
    }
}

static bool may_wait(uct_cuda_queue_t *queue)
{
    uct_cuda_copy_coalescer_t *coalescer = queue->coalescer;
    const bool is_fed                    = coalescer->is_fed;

    coalescer->is_fed = false;
    if (is_fed && (coalescer->waited < MAX_WAITED) &&
        (coalescer->open != NULL) &&
        is_busy(coalescer->open->batch.op->stream)) {
        ++coalescer->waited;
        return true;
    }

    coalescer->waited = 0;
    return false;
}

void uct_cuda_copy_coalesce_init(uct_cuda_copy_coalescer_t *coalescer,
                                 uct_cuda_queue_t *queue)
{
    coalescer->queue           = queue;
    coalescer->max_count       = FIRST_COUNT;
    coalescer->loads_kernels   = true;
    queue->coalescer           = coalescer;
    queue->submit_coalesced    = submit_coalesced;
    queue->may_wait            = may_wait;
    queue->destroy_copy_kernel = uct_cuda_copy_kernel_destroy;
}

static void note_fed(uct_cuda_copy_coalescer_t *coalescer)
{
    const uint64_t now = uct_cuda_now_ns();

    coalescer->streak = (now - coalescer->fed <=
                         ucs_max(fed_window(coalescer), FED_MIN_NS)) ?
                                coalescer->streak + 1 :
                                0;
    coalescer->fed    = now;
    coalescer->poster = pthread_self();
}

/* Return the maximum blocks of a group. A kernel takes more uniform blocks of a
 * list, because all are available at once: more blocks then share the cost of a
 * launch. */
static unsigned group_max_count(const uct_cuda_copy_group_t *group)
{
    return (group->is_list && group->is_reached &&
            group->batch.copies.is_uniform &&
            (group->coalescer->kernel_blocks > 0)) ?
                   UCT_CUDA_COPY_COALESCE_MAX_UNIFORM :
                   UCT_CUDA_COPY_COALESCE_MAX_COUNT;
}

static CUdeviceptr group_remote(const uct_cuda_copy_group_t *group,
                                const uct_cuda_copy_t *copy)
{
    return group->mappings[group->num_mappings - 1]->mapped +
           (copy->remote.address - copy->remote.key->handle.base);
}

/* Append a block in the group's last mapping and local allocation. If the group
 * is then full, submit it; it is not open any more. */
static void group_append(uct_cuda_copy_group_t *group,
                         const uct_cuda_copy_t *copy, bool has_more)
{
    const CUdeviceptr remote             = group_remote(group, copy);
    uct_cuda_copy_coalescer_t *coalescer = group->coalescer;
    unsigned max_count;

    uct_cuda_copy_list_add(&group->batch.copies,
                           copy->is_put ? remote : copy->local.address,
                           copy->is_put ? copy->local.address : remote,
                           copy->bytes, group->may_merge);
    coalescer->is_fed = true;
    if (!has_more) {
        note_fed(coalescer);
    }
    coalescer->num_small += coalescer->num_small < KERNEL_MIN_BLOCKS;
    group->may_merge                  = true;
    group->comps[group->num_blocks++] = copy->comp;
    group->batch.bytes               += copy->bytes;
    max_count                         = group_max_count(group);
    if ((group->num_blocks >= max_count) ||
        ((group->num_blocks >= coalescer->max_count) &&
         (group->batch.bytes >= min_bytes(group))) ||
        (group->batch.bytes >= UCT_CUDA_COPY_COALESCE_MAX_BYTES)) {
        coalescer->max_count = ucs_min(2 * coalescer->max_count, max_count);
        group_submit(coalescer);
    }
}

/* Return whether a block is small: larger ones take long by any method, or use
 * several paths */
static bool is_small(const uct_cuda_copy_coalescer_t *coalescer, size_t size,
                     uct_cuda_end_t local_end)
{
    return (size <= UCT_CUDA_COPY_COALESCE_MAX_SIZE) &&
           (size < ((local_end.kind == UCT_CUDA_END_GPU) ?
                            uct_cuda_mp_behind_min_size(coalescer->engine) :
                            uct_cuda_mp_host_min_size(coalescer->engine)));
}

/* Find the registration with all of the local host memory: no copy crosses its
 * end. GPU memory is looked up if another block follows. @return false: none */
static bool find_local(const uct_cuda_copy_t *copy, uct_cuda_memory_t *memory)
{
    const CUdeviceptr address = copy->local.address;

    if (copy->local.end.kind == UCT_CUDA_END_GPU) {
        memory->base   = address;
        memory->length = 0;
        return true;
    }

    uct_cuda_memory_query((void*)address, copy->bytes, memory);
    return (memory->type == UCS_MEMORY_TYPE_HOST) && memory->is_pinned &&
           (copy->bytes <= memory->length - (address - memory->base));
}

/* Return whether the submission can synchronize the block's memory: the
 * program's copies before it are in the group's context, or in the primary one
 * of that GPU */
static bool can_sync_later(const uct_cuda_copy_group_t *group)
{
    CUcontext current = NULL;

    return (uct_cuda_driver_get()->cuCtxGetCurrent(&current) ==
            CUDA_SUCCESS) &&
           ((current == NULL) ||
            (current == group->batch.op->stream->context->cuda));
}

/* Look up the allocation of the last block. The driver refuses that to a
 * thread without a context. */
static void group_find_local(uct_cuda_copy_group_t *group)
{
    if (uct_cuda_context_push(group->batch.op->stream->context)) {
        (void)uct_cuda_pointer_range(uct_cuda_driver_get(),
                                     group->local_begin, &group->local_begin,
                                     &group->local_size);
        uct_cuda_ctx_pop();
    }
}

/* Return whether local memory is in the allocation of the group's last block */
static bool group_holds(uct_cuda_copy_group_t *group,
                        const uct_cuda_copy_end_t *local, size_t size)
{
    if (group->local_size == 0) {
        group_find_local(group);
    }

    return uct_cuda_range_holds(group->local_begin, group->local_size,
                                local->address, size);
}

/* Return whether a block is in the allocations of the group's last one, and as
 * small. Another key may have been unpacked to the same address. */
static bool group_fits(uct_cuda_copy_group_t *group,
                       const uct_cuda_copy_t *copy)
{
    const uct_cuda_node_handle_t *handle = &copy->remote.key->handle;

    return (group->key == copy->remote.key) &&
           (group->key_base == handle->base) &&
           (group->key_buffer_id == handle->buffer_id) &&
           (group->key_pid == handle->pid) &&
           (group->batch.is_put == copy->is_put) &&
           is_small(group->coalescer, copy->bytes, group->batch.local_end) &&
           group_holds(group, &copy->local, copy->bytes);
}

bool uct_cuda_copy_coalesce_follow(uct_cuda_copy_coalescer_t *coalescer,
                                   const uct_cuda_copy_t *copy, bool has_more,
                                   bool is_next)
{
    uct_cuda_copy_group_t *group = coalescer->open;

    if ((group == NULL) || !group_fits(group, copy)) {
        return false;
    }

    /* a list is posted in one call: its first block has waited for the
     * copies */
    if (copy->is_put && !group->is_owned && !is_next) {
        if (!can_sync_later(group)) {
            return false;
        }

        group->needs_sync = true;
    }

    /* the kept answer of the driver is valid for this put only */
    uct_cuda_memory_forget();
    group_append(group, copy, has_more);
    return true;
}

ucs_status_t uct_cuda_copy_coalesce_add(uct_cuda_copy_coalescer_t *coalescer,
                                        uct_cuda_stream_t *stream, int device,
                                        const uct_cuda_copy_t *copy,
                                        bool has_more)
{
    uct_cuda_node_rkey_t *key    = copy->remote.key;
    uct_cuda_copy_group_t *group = coalescer->open;
    uct_cuda_memory_t memory;
    ucs_status_t status;

    /* A block with a group of its own comes after the previous group */
    if (!is_small(coalescer, copy->bytes, copy->local.end) ||
        (!is_to_wait(coalescer, stream) && !has_more && !is_fed(coalescer)) ||
        ((copy->local.end.kind == UCT_CUDA_END_GPU) &&
         (copy->local.end.device != device)) ||
        !find_local(copy, &memory)) {
        if (group != NULL) {
            group_submit(coalescer);
        }
        return UCS_ERR_UNSUPPORTED;
    }

    if ((group != NULL) &&
        ((group->batch.op->stream != stream) ||
         (group->batch.is_put != copy->is_put) ||
         (group->batch.local_end.device != copy->local.end.device) ||
         (group->batch.remote_end.device != key->gpu.device))) {
        group_submit(coalescer);
    }

    if (coalescer->open == NULL) {
        status = group_open(coalescer, stream, has_more);
        if (status != UCS_OK) {
            return status;
        }
    }

    group  = coalescer->open;
    status = uct_cuda_node_cache_get_in(&key->handle, NULL, device,
                                        stream->context->cuda,
                                        stream->context->id,
                                        &group->mappings[group->num_mappings]);
    if (status != UCS_OK) {
        uct_cuda_node_cache_log_failure(&key->handle, status);
        if (group->num_blocks == 0) {
            uct_cuda_op_put(group->batch.op);
            group->next_idle               = coalescer->idle;
            coalescer->idle                = group;
            coalescer->open                = NULL;
            coalescer->queue->is_coalescing = false;
        }
        return status;
    }

    ++group->num_mappings;
    group->batch.is_put     = copy->is_put;
    group->batch.local_end  = copy->local.end;
    group->batch.remote_end = key->gpu;
    group->key              = key;
    group->key_base         = key->handle.base;
    group->key_buffer_id    = key->handle.buffer_id;
    group->key_pid          = key->handle.pid;
    group->is_owned         = (copy->local.context != NULL) ||
                              (copy->local.end.kind != UCT_CUDA_END_GPU);
    group->local_begin      = memory.base;
    group->local_size       = memory.length;
    group->may_merge        = false;
    group->device           = device;
    group->firsts[group->num_mappings - 1] = group->batch.copies.count;
    group_append(group, copy, has_more);
    if (has_more && (coalescer->kernel_blocks > 0) &&
        (coalescer->open == group)) {
        (void)group_is_reached(group); /* follow() may add later blocks */
    }
    return UCS_INPROGRESS;
}

void uct_cuda_copy_coalesce_cleanup(uct_cuda_copy_coalescer_t *coalescer)
{
    uct_cuda_copy_group_t *group;

    while ((group = coalescer->all) != NULL) {
        coalescer->all = group->next;
        free(group);
    }
}
