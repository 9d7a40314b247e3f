/* SPDX-License-Identifier: BSD-3-Clause */
/* Gathered copies: a group is an operation with many completions. */
#include <uct/cuda/cuda_ipc/cuda_ipc_blocks.h>

#include <uct/cuda/base/clock.h>
#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/host/host_pieces.h>
#include <uct/cuda/base/host/host_registry.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/memory.h>
#include <uct/cuda/base/range.h>
#include <uct/cuda/base/trace.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_copier.h>
#include <uct/cuda/node/mappings.h>
#include <uct/cuda/transfer.h>

#include <ucs/sys/math.h>

#include <stdlib.h>


/* The first group, so that the GPU has work soon; the next is twice that. But
 * the bytes, too, are to take as long as what submits them (8 us): over PCIe,
 * and between GPUs. */
#define FIRST_COUNT    8
#define MIN_HOST_BYTES (512ul << 10)
#define MIN_GPU_BYTES  (4ul << 20)

/* While blocks come in one by one, the next is there within so many ns for each
 * that has come before it, or within the last of these: who posts them waits
 * for the worker's lock now and then */
#define FED_NS_A_BLOCK 1000ul
#define FED_MIN_NS     (30ul * 1000)
#define FED_MAX_NS     (100ul * 1000)

/* Progress calls in a row that ask nothing while blocks come in */
#define MAX_WAITED 16

/* A kernel for so many copies at least, after so many blocks of an interface: a
 * launch and its loading are to pay */
#define KERNEL_MIN_COUNT  4
#define KERNEL_MIN_BLOCKS 64

/* Over PCIe copy engines are faster with larger ones (mean, bytes; H100), but a
 * call for them takes 1 us a block, which holds up who posts block by block */
#define KERNEL_MAX_HOST_SIZE      (128ul << 10)
#define KERNEL_MAX_HOST_LIST_SIZE (32ul << 10)

/* When a kernel that is not over is looked at: ten times what 16 MiB take over
 * PCIe. Calling off what only waits for others is no harm. */
#define KERNEL_PATIENCE_NS (4ul * 1000 * 1000)


/* What is under way of a group that a kernel carries */
typedef enum {
    KERNEL_RUNS,    /* ... or waits for room */
    KERNEL_ENDS,    /* Called off when all of it had begun */
    KERNEL_REPLACED /* A part has not begun and never will: copies do all */
} kernel_state_t;


struct uct_cuda_ipc_group {
    uct_cuda_ipc_group_t   *next_idle;
    uct_cuda_ipc_group_t   *next;  /* Of all */
    uct_completion_t       comp;   /* The operation's */
    uct_cuda_op_t          *op;
    uct_cuda_ipc_iface_t   *iface;
    uct_cuda_end_t         local_end;
    uct_cuda_end_t         remote_end;
    bool                   is_put;
    ucs_status_t           status; /* Of submitting */
    size_t                 bytes;

    /* The last block's key and allocations */
    const uct_cuda_ipc_rkey_t *rkey;
    uint64_t               key_base;
    unsigned long long     key_buffer_id;
    int32_t                key_pid;
    CUdeviceptr            local_begin;
    CUdeviceptr            local_end_addr;
    bool                   may_merge; /* A block in the same ones precedes */

    bool                   is_list;    /* Posted as one */
    bool                   is_owned;   /* The last block's local memory */
    bool                   is_reached; /* By kernels, as far as is known */
    kernel_state_t         kernel;
    uct_cuda_ipc_launch_t  launch;

    uct_cuda_ipc_copy_list_t copies;
    unsigned                num_blocks;
    uct_completion_t        *comps[UCT_CUDA_IPC_BLOCKS_MAX_ALIKE];
    unsigned                num_mappings;
    uct_cuda_node_mapping_t *mappings[UCT_CUDA_IPC_BLOCKS_MAX_ALIKE];
};


static void group_tell(uct_cuda_ipc_group_t *group, ucs_status_t status)
{
    uct_cuda_ipc_iface_t *iface = group->iface;
    unsigned i;

    for (i = 0; i < group->num_blocks; ++i) {
        uct_abi_completion_update(group->comps[i], 1, status);
    }

    group->next_idle   = iface->blocks.idle;
    iface->blocks.idle = group;
}

static void group_completed(uct_completion_t *comp)
{
    uct_cuda_ipc_group_t *group =
            (uct_cuda_ipc_group_t*)((char*)comp -
                                    offsetof(uct_cuda_ipc_group_t, comp));

    group_tell(group, comp->status);
}

static void group_unmap(uct_cuda_op_t *op)
{
    uct_cuda_ipc_group_t *group = op->arg;

    while (group->num_mappings > 0) {
        uct_cuda_node_cache_put(group->mappings[--group->num_mappings],
                                group->iface->enable_cache);
    }
}

/* Of a group with nothing under way, its completions are to be told by progress
 * all the same, not within the call that posts a block */
static ucs_status_t group_over(uct_cuda_op_t *op)
{
    return ((uct_cuda_ipc_group_t*)op->arg)->status;
}

static ucs_status_t
group_get_op(uct_cuda_ipc_group_t *group, uct_cuda_stream_t *stream)
{
    ucs_status_t status;

    status = uct_cuda_op_get(stream, &group->op);
    if (status == UCS_OK) {
        group->op->comp = &group->comp;
        group->op->done = group_unmap;
        group->op->arg  = group;
    }

    return status;
}

static ucs_status_t
group_open(uct_cuda_ipc_iface_t *iface, uct_cuda_stream_t *stream, bool is_list)
{
    uct_cuda_ipc_group_t *group = iface->blocks.idle;
    uct_cuda_queue_t *queue     = &iface->super.queue;
    ucs_status_t status;

    if (group == NULL) {
        group = calloc(1, sizeof(*group));
        if (group == NULL) {
            return UCS_ERR_NO_MEMORY;
        }

        group->iface       = iface;
        group->next        = iface->blocks.all;
        iface->blocks.all  = group;
        iface->blocks.idle = group;
    }

    status = group_get_op(group, stream);
    if (status != UCS_OK) {
        return status;
    }

    iface->blocks.idle = group->next_idle;
    group->comp.func   = group_completed;
    group->comp.count  = 1;
    group->comp.status = UCS_OK;
    group->bytes       = 0;
    group->is_list     = is_list;
    group->is_reached  = true;
    group->copies.count = 0;
    group->num_blocks  = 0;
    iface->blocks.open = group;
    queue->is_gathering = true;
    if ((queue->outstanding == 0) && (queue->on_busy != NULL)) {
        queue->on_busy(queue);
    }
    return UCS_OK;
}

static ucs_status_t copy_one(const uct_cuda_ipc_group_t *group, unsigned i,
                             CUstream stream)
{
    const CUdeviceptr dst = group->copies.dst[i];
    const CUdeviceptr src = group->copies.src[i];
    const size_t length   = group->copies.length[i];

    if (uct_cuda_end_is_gpu(group->local_end)) {
        return UCT_CUDA_CALL(cuMemcpyDtoDAsync, dst, src, length, stream);
    }

    return group->is_put ?
                   uct_cuda_host_copy(dst, (void*)src, length, true, stream) :
                   uct_cuda_host_copy(src, (void*)dst, length, false, stream);
}

/* Each by itself; what is under way when one fails is waited for */
static ucs_status_t
copy_each(const uct_cuda_ipc_group_t *group, CUstream stream)
{
    ucs_status_t status = UCS_OK;
    unsigned i;

    for (i = 0; (i < group->copies.count) && (status == UCS_OK); ++i) {
        status = copy_one(group, i, stream);
    }

    if (status != UCS_OK) {
        (void)uct_cuda_driver_get()->cuStreamSynchronize(stream);
    }

    return status;
}

static ucs_status_t copy_all(uct_cuda_ipc_group_t *group, CUstream stream)
{
    uct_cuda_ipc_copy_list_t *copies        = &group->copies;
    uct_cuda_memcpy_attributes_t attributes = {
        .src_access_order = UCT_CUDA_SRC_ACCESS_ORDER_STREAM
    };
    size_t first = 0, failed;

    /* A driver that takes part of it and fails has copied nothing that the
     * single copies do not copy again */
    if ((copies->count > 1) &&
        (UCT_CUDA_CALL_NOLOG(cuMemcpyBatchAsync_v1, copies->dst, copies->src,
                             copies->length, copies->count, &attributes, &first,
                             1, &failed, stream) == UCS_OK)) {
        return UCS_OK;
    }

    return copy_each(group, stream);
}

/* Is it for a kernel: many small ones? */
static bool wants_kernel(const uct_cuda_ipc_group_t *group)
{
    const unsigned count              = group->copies.count;
    const uct_cuda_ipc_iface_t *iface = group->iface;
    const size_t max_host_size        = group->is_list ?
                                                KERNEL_MAX_HOST_LIST_SIZE :
                                                KERNEL_MAX_HOST_SIZE;

    return group->is_reached && (iface->kernel_blocks > 0) &&
           (count >= KERNEL_MIN_COUNT) &&
           ((count <= UCT_CUDA_IPC_COPIER_MAX) || group->copies.is_alike) &&
           (iface->blocks.num_small >= KERNEL_MIN_BLOCKS) &&
           (uct_cuda_end_is_gpu(group->local_end) ||
            (group->bytes <= count * max_host_size));
}

/* Until nothing of what was called off is read or written any more, without
 * waiting for the GPU to have room */
static void kernel_wait(const uct_cuda_ipc_group_t *group)
{
    bool has_ended, has_copied;

    while ((uct_cuda_ipc_copier_has_ended(&group->launch, &has_ended,
                                          &has_copied) == UCS_OK) &&
           !has_ended) {
    }
}

/* What has not begun will not; all of it is copied otherwise, what has begun
 * with the same bytes twice. A context is current. */
static ucs_status_t kernel_replace(uct_cuda_ipc_group_t *group)
{
    const CUstream stream = uct_cuda_ipc_copier_beside(group->launch.copier);
    ucs_status_t status;

    uct_cuda_debug("the GPU has no room for a kernel: %u blocks, %zu bytes by "
                   "copies",
                   group->copies.count, group->bytes);
    group->kernel = KERNEL_REPLACED;
    status        = copy_all(group, stream);
    if (status == UCS_OK) {
        status = UCT_CUDA_CALL(cuEventRecord, group->op->event, stream);
    }
    if (status != UCS_OK) {
        kernel_wait(group);
        return status;
    }

    return UCS_INPROGRESS;
}

static ucs_status_t kernel_call_off(uct_cuda_ipc_group_t *group)
{
    bool has_begun;

    if (uct_cuda_ipc_copier_call_off(&group->launch, &has_begun) != UCS_OK) {
        group->launch.start = uct_cuda_now_ns(); /* tried again later */
        return UCS_INPROGRESS;
    }

    if (!has_begun) {
        return kernel_replace(group);
    }

    group->kernel = KERNEL_ENDS;
    return UCS_INPROGRESS;
}

/* Warps of what was called off: those that had begun are waited for. One that
 * did so in that moment may have copied nothing. */
static ucs_status_t kernel_ended(uct_cuda_ipc_group_t *group)
{
    bool has_ended, has_copied;
    ucs_status_t status;

    status = uct_cuda_ipc_copier_has_ended(&group->launch, &has_ended,
                                           &has_copied);
    if ((status != UCS_OK) || !has_ended) {
        return (status != UCS_OK) ? status : UCS_INPROGRESS;
    }

    return (has_copied || (group->kernel == KERNEL_REPLACED)) ?
                   UCS_OK :
                   kernel_replace(group);
}

/* What there is to do where the event alone does not say that it is over */
static ucs_status_t kernel_look(uct_cuda_ipc_group_t *group)
{
    return (group->kernel == KERNEL_RUNS) ? kernel_call_off(group) :
                                            kernel_ended(group);
}

/* Is there nothing to do yet, whether the event is there or not? */
static bool kernel_may_wait(const uct_cuda_ipc_group_t *group, bool is_there)
{
    if (is_there) {
        return (group->kernel == KERNEL_RUNS) && !group->launch.is_off;
    }

    return (group->kernel != KERNEL_RUNS) ||
           (uct_cuda_now_ns() - group->launch.start < KERNEL_PATIENCE_NS);
}

static ucs_status_t kernel_test(uct_cuda_op_t *op)
{
    uct_cuda_ipc_group_t *group       = op->arg;
    const uct_cuda_context_t *context = op->stream->context;
    const CUresult result = uct_cuda_driver_get()->cuEventQuery(op->event);
    ucs_status_t status;

    if ((result != CUDA_SUCCESS) && (result != CUDA_ERROR_NOT_READY)) {
        uct_cuda_error("copying blocks failed: %s",
                       uct_cuda_result_name(result));
        uct_cuda_ipc_copier_wait(group->launch.copier);
        return UCS_ERR_IO_ERROR;
    }

    if (kernel_may_wait(group, result == CUDA_SUCCESS)) {
        return (result == CUDA_SUCCESS) ? UCS_OK : UCS_INPROGRESS;
    }

    if (!uct_cuda_ctx_push_alive(context->cuda, context->id)) {
        return UCS_ERR_IO_ERROR;
    }

    status = kernel_look(group);
    uct_cuda_ctx_pop();
    return status;
}

static ucs_status_t kernel_notify(uct_cuda_op_t *op, CUhostFn func, void *arg)
{
    const uct_cuda_ipc_group_t *group = op->arg;

    return (group->kernel == KERNEL_RUNS) ?
                   uct_cuda_ipc_copier_notify(&group->launch, op->event,
                                              KERNEL_PATIENCE_NS, func, arg) :
                   UCS_ERR_BUSY;
}

/* Its context is current */
static bool kernel_start(uct_cuda_ipc_group_t *group, uct_cuda_end_t from,
                         uct_cuda_end_t to)
{
    uct_cuda_ipc_iface_t *iface = group->iface;
    uct_cuda_op_t *op           = group->op;
    const bool is_host          = !uct_cuda_end_is_gpu(group->local_end);
    uct_cuda_ipc_copier_t *copier;
    uct_cuda_trace_copy_t *copy;
    ucs_status_t status;
    CUstream stream;

    if (!wants_kernel(group)) {
        return false;
    }

    copier = uct_cuda_ipc_copier_get(&iface->blocks.copiers,
                                     op->stream->context,
                                     iface->blocks.loads_kernels);
    if (copier == NULL) {
        return false;
    }

    stream = uct_cuda_ipc_copier_stream(copier);
    copy   = uct_cuda_trace_begin(stream);
    status = uct_cuda_ipc_copier_launch(copier, &group->copies,
                                        is_host ? iface->kernel_blocks :
                                                  2 * iface->kernel_blocks,
                                        op->event, &group->launch);
    uct_cuda_trace_end(copy, stream, from, to, group->bytes, "blocks, kernel");
    if (status != UCS_OK) {
        return false;
    }

    group->kernel = KERNEL_RUNS;
    op->test      = kernel_test;
    op->notify    = kernel_notify;
    return true;
}

static ucs_status_t
copies_start(uct_cuda_ipc_group_t *group, uct_cuda_end_t from,
             uct_cuda_end_t to)
{
    const CUstream stream       = group->op->stream->cuda;
    uct_cuda_trace_copy_t *copy = uct_cuda_trace_begin(stream);
    ucs_status_t status;

    status = copy_all(group, stream);
    uct_cuda_trace_end(copy, stream, from, to, group->bytes, "blocks");
    return status;
}

static void group_submit(uct_cuda_ipc_iface_t *iface)
{
    uct_cuda_ipc_group_t *group       = iface->blocks.open;
    uct_cuda_op_t *op                 = group->op;
    uct_cuda_stream_t *stream         = op->stream;
    const uct_cuda_context_t *context = stream->context;
    const uct_cuda_end_t from = group->is_put ? group->local_end :
                                                group->remote_end;
    const uct_cuda_end_t to   = group->is_put ? group->remote_end :
                                                group->local_end;
    ucs_status_t status;
    bool is_pushed, is_kernel = false;

    iface->blocks.open               = NULL;
    iface->super.queue.is_gathering = false;

    /* It was current when they were posted; the program may have reset it */
    is_pushed     = uct_cuda_ctx_push_alive(context->cuda, context->id);
    group->status = UCS_ERR_IO_ERROR;
    if (is_pushed) {
        is_kernel     = kernel_start(group, from, to);
        group->status = is_kernel ? UCS_OK : copies_start(group, from, to);
    }

    op->steps = is_kernel ? 1 : group->copies.count;
    if (group->status != UCS_OK) {
        op->test = group_over;
    } else if (uct_cuda_end_is_gpu(group->local_end) &&
               (group->bytes >= UCT_CUDA_MP_COUNTED_MIN_SIZE)) {
        uct_cuda_op_count(op, iface->engine, from, to, group->bytes);
    }

    status = uct_cuda_op_post(&iface->super.queue, op);
    if (status != UCS_INPROGRESS) {
        /* The operation has been given back: that one is there for sure */
        group->status = status;
        if (group_get_op(group, stream) == UCS_OK) {
            group->op->test = group_over;
            (void)uct_cuda_op_post(&iface->super.queue, group->op);
        }
    }

    if (is_pushed) {
        uct_cuda_ctx_pop();
    }
}

/* Has the stream more than one operation under way? */
static bool is_busy(const uct_cuda_stream_t *stream)
{
    return (stream->head != NULL) && (stream->head != stream->tail);
}

static uint64_t fed_window(const uct_cuda_ipc_blocks_t *blocks)
{
    return ucs_min(blocks->streak * FED_NS_A_BLOCK, FED_MAX_NS);
}

/* Bytes that are worth a call */
static size_t min_bytes(const uct_cuda_ipc_group_t *group)
{
    return uct_cuda_end_is_gpu(group->local_end) ? MIN_GPU_BYTES :
                                                   MIN_HOST_BYTES;
}

/*
 * Are blocks being posted one after the other, by another thread than the one
 * that makes progress? Then the next is there in a moment; a thread that makes
 * progress itself has paused.
 */
static bool is_fed(const uct_cuda_ipc_blocks_t *blocks)
{
    return blocks->is_threaded && (blocks->streak >= FIRST_COUNT) &&
           (uct_cuda_now_ns() - blocks->fed <= fed_window(blocks));
}

/* Has the GPU too little to do? Who submits small groups all the time holds up
 * who posts the blocks, with the worker's lock */
static bool is_due(const uct_cuda_ipc_group_t *group)
{
    return !is_busy(group->op->stream) &&
           ((group->bytes >= min_bytes(group)) ||
            !is_fed(&group->iface->blocks));
}

static uct_cuda_ipc_iface_t *iface_of(uct_cuda_queue_t *queue)
{
    return (uct_cuda_ipc_iface_t*)((char*)queue -
                                   offsetof(uct_cuda_ipc_iface_t,
                                            super.queue));
}

static void submit_gathered(uct_cuda_queue_t *queue, bool is_all)
{
    uct_cuda_ipc_iface_t *iface = iface_of(queue);

    if (is_all || uct_cuda_queue_is_idle(queue)) {
        iface->blocks.max_count = FIRST_COUNT;
    }
    if (!is_all) {
        iface->blocks.is_threaded = !pthread_equal(iface->blocks.poster,
                                                   pthread_self());
    }

    if ((iface->blocks.open != NULL) &&
        (is_all || is_due(iface->blocks.open))) {
        group_submit(iface);
    }
}

static bool may_wait(uct_cuda_queue_t *queue)
{
    uct_cuda_ipc_blocks_t *blocks = &iface_of(queue)->blocks;
    const bool is_fed             = blocks->is_fed;

    blocks->is_fed = false;
    if (is_fed && (blocks->waited < MAX_WAITED) && (blocks->open != NULL) &&
        is_busy(blocks->open->op->stream)) {
        ++blocks->waited;
        return true;
    }

    blocks->waited = 0;
    return false;
}

void uct_cuda_ipc_blocks_init(uct_cuda_ipc_iface_t *iface)
{
    iface->blocks.max_count            = FIRST_COUNT;
    iface->blocks.loads_kernels        = true;
    iface->super.queue.submit_gathered = submit_gathered;
    iface->super.queue.may_wait        = may_wait;
}

static void note_fed(uct_cuda_ipc_blocks_t *blocks)
{
    const uint64_t now = uct_cuda_now_ns();

    blocks->streak = (now - blocks->fed <=
                      ucs_max(fed_window(blocks), FED_MIN_NS)) ?
                             blocks->streak + 1 :
                             0;
    blocks->fed    = now;
    blocks->poster = pthread_self();
}

/* Of a list, whose blocks are there at once, a kernel takes more of those that
 * are alike: what a launch costs, on both sides, is shared by more */
static unsigned group_max_count(const uct_cuda_ipc_group_t *group)
{
    return (group->is_list && group->is_reached && group->copies.is_alike &&
            (group->iface->kernel_blocks > 0)) ?
                   UCT_CUDA_IPC_BLOCKS_MAX_ALIKE :
                   UCT_CUDA_IPC_BLOCKS_MAX_COUNT;
}

/* The block lies in the mapping and local allocation of the last one */
static void group_append(uct_cuda_ipc_group_t *group,
                         const uct_cuda_ipc_block_t *block, CUdeviceptr remote,
                         bool has_more)
{
    const CUdeviceptr local = (CUdeviceptr)block->local;
    const CUdeviceptr dst   = block->is_put ? remote : local;
    const CUdeviceptr src   = block->is_put ? local : remote;
    uct_cuda_ipc_blocks_t *blocks = &group->iface->blocks;
    unsigned max_count;

    uct_cuda_ipc_copy_list_add(&group->copies, dst, src, block->length,
                               group->may_merge);
    blocks->is_fed                     = true;
    if (!has_more) {
        note_fed(blocks);
    }
    blocks->num_small                 += blocks->num_small < KERNEL_MIN_BLOCKS;
    group->may_merge                   = true;
    group->comps[group->num_blocks++]  = block->comp;
    group->bytes                      += block->length;
    max_count                          = group_max_count(group);
    if ((group->num_blocks >= max_count) ||
        ((group->num_blocks >= blocks->max_count) &&
         (group->bytes >= min_bytes(group))) ||
        (group->bytes >= UCT_CUDA_IPC_BLOCKS_MAX_BYTES)) {
        blocks->max_count = ucs_min(2 * blocks->max_count, max_count);
        group_submit(group->iface);
    }
}

static CUdeviceptr group_remote(const uct_cuda_ipc_group_t *group,
                                const uct_cuda_ipc_block_t *block)
{
    return group->mappings[group->num_mappings - 1]->mapped +
           (block->remote_addr - block->rkey->handle.base);
}

/* Larger ones take their time whoever submits them, or several paths */
static bool is_small(const uct_cuda_ipc_iface_t *iface, size_t length,
                     uct_cuda_end_t local_end)
{
    return (length <= UCT_CUDA_IPC_BLOCK_MAX_SIZE) &&
           !(uct_cuda_end_is_gpu(local_end) ?
                     uct_cuda_mp_wants(iface->engine, length) :
                     uct_cuda_mp_wants_host(iface->engine, length));
}

/*
 * What the local memory was locked with, all of it, so that no copy leaves
 * that. Not of what the module locks itself, which it may unlock.
 */
static bool find_locked(const uct_cuda_ipc_block_t *block,
                        CUdeviceptr *begin_p, size_t *size_p)
{
    uct_cuda_memory_t memory;

    if (uct_cuda_host_registry_count() > 0) {
        return false;
    }

    uct_cuda_memory_query(block->local, block->length, &memory);
    *begin_p = memory.base;
    *size_p  = memory.length;
    return (memory.type == UCS_MEMORY_TYPE_HOST) && memory.is_pinned &&
           uct_cuda_range_holds(memory.base, memory.length,
                                (CUdeviceptr)block->local, block->length);
}

/* The allocation that the local memory lies in */
static bool find_local(const uct_cuda_ipc_block_t *block,
                       uct_cuda_end_t local_end, CUdeviceptr *begin_p,
                       size_t *size_p)
{
    return uct_cuda_end_is_gpu(local_end) ?
                   (uct_cuda_driver_get()->cuMemGetAddressRange(
                            begin_p, size_p, (CUdeviceptr)block->local) ==
                    CUDA_SUCCESS) :
                   find_locked(block, begin_p, size_p);
}

/* Another GPU's memory than that whose context runs the copies? */
static bool is_elsewhere(uct_cuda_end_t local_end, int device)
{
    return uct_cuda_end_is_gpu(local_end) &&
           !uct_cuda_end_is_device(local_end, device);
}

/* A kernel may fault where a copy is refused, or goes another way: both ends
 * are looked at once an allocation */
static bool is_reached(const uct_cuda_ipc_group_t *group,
                       const uct_cuda_ipc_block_t *block, int device)
{
    return (group->iface->kernel_blocks > 0) &&
           uct_cuda_ipc_copier_reaches((CUdeviceptr)block->local, device) &&
           uct_cuda_ipc_copier_reaches(group_remote(group, block), device);
}

bool uct_cuda_ipc_blocks_follow(uct_cuda_ipc_iface_t *iface,
                                const uct_cuda_ipc_block_t *block,
                                bool has_more, bool is_next)
{
    uct_cuda_ipc_group_t *group          = iface->blocks.open;
    const uct_cuda_node_handle_t *handle = &block->rkey->handle;
    const CUdeviceptr local              = (CUdeviceptr)block->local;

    /* The key may be another one that was unpacked to the same place */
    if ((group == NULL) || (group->rkey != block->rkey) ||
        (block->is_put && !group->is_owned && !is_next) ||
        (group->key_base != handle->base) ||
        (group->key_buffer_id != handle->buffer_id) ||
        (group->key_pid != handle->pid) || (group->is_put != block->is_put) ||
        (local < group->local_begin) || (local >= group->local_end_addr) ||
        (block->length > group->local_end_addr - local) ||
        !is_small(iface, block->length, group->local_end)) {
        return false;
    }

    group_append(group, block, group_remote(group, block), has_more);
    return true;
}

ucs_status_t uct_cuda_ipc_blocks_add(uct_cuda_ipc_iface_t *iface,
                                     uct_cuda_stream_t *stream, int device,
                                     uct_cuda_end_t local_end, bool is_owned,
                                     const uct_cuda_ipc_block_t *block,
                                     bool has_more)
{
    const uct_cuda_node_handle_t *handle = &block->rkey->handle;
    const uct_cuda_end_t remote_end      = block->rkey->gpu;
    uct_cuda_ipc_group_t *group          = iface->blocks.open;
    CUdeviceptr local_begin;
    size_t local_size;
    ucs_status_t status;

    /* With nothing in front of it, waiting for more would only cost time. What
     * has a group of its own comes behind the one before. A kernel would have
     * to reach both ends. */
    if (((stream->head == NULL) && !has_more && !is_fed(&iface->blocks)) ||
        is_elsewhere(local_end, device) ||
        !is_small(iface, block->length, local_end) ||
        !find_local(block, local_end, &local_begin, &local_size)) {
        if (group != NULL) {
            group_submit(iface);
        }
        return UCS_ERR_UNSUPPORTED;
    }

    if ((group != NULL) &&
        ((group->op->stream != stream) || (group->is_put != block->is_put) ||
         !uct_cuda_end_equal(group->local_end, local_end) ||
         !uct_cuda_end_equal(group->remote_end, remote_end))) {
        group_submit(iface);
    }

    if (iface->blocks.open == NULL) {
        status = group_open(iface, stream, has_more);
        if (status != UCS_OK) {
            return status;
        }
    }

    group  = iface->blocks.open;
    status = uct_cuda_node_cache_get_in(handle, device, stream->context->cuda,
                                        stream->context->id,
                                        &group->mappings[group->num_mappings]);
    if (status != UCS_OK) {
        uct_cuda_node_cache_tell_failure(handle);
        if (group->num_blocks == 0) {
            uct_cuda_op_put(group->op);
            group->next_idle                 = iface->blocks.idle;
            iface->blocks.idle               = group;
            iface->blocks.open               = NULL;
            iface->super.queue.is_gathering = false;
        }
        return status;
    }

    ++group->num_mappings;
    group->rkey           = block->rkey;
    group->key_base       = handle->base;
    group->key_buffer_id  = handle->buffer_id;
    group->key_pid        = handle->pid;
    group->is_put         = block->is_put;
    group->local_end      = local_end;
    group->is_owned       = is_owned;
    group->remote_end     = remote_end;
    group->local_begin    = local_begin;
    group->local_end_addr = local_begin + local_size;
    group->may_merge      = false;
    group->is_reached     = group->is_reached &&
                            is_reached(group, block, device);
    group_append(group, block, group_remote(group, block), has_more);
    return UCS_INPROGRESS;
}

void uct_cuda_ipc_blocks_cleanup(uct_cuda_ipc_iface_t *iface)
{
    uct_cuda_ipc_group_t *group;

    uct_cuda_ipc_copiers_cleanup(&iface->blocks.copiers);
    while ((group = iface->blocks.all) != NULL) {
        iface->blocks.all = group->next;
        free(group);
    }
}
