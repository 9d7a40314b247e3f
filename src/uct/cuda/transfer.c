/* SPDX-License-Identifier: BSD-3-Clause */
/* The ways are tried in turns, the best one first; the driver's is the last. */
#include <uct/cuda/transfer.h>

#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/host/host_bounce.h>
#include <uct/cuda/base/host/host_limits.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/memory.h>
#include <uct/cuda/base/trace.h>

#include <linux/mempolicy.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>


_Static_assert(sizeof(uct_cuda_transfer_t) <= UCT_CUDA_OP_STATE_SIZE,
               "an operation has room for it");


static bool is_own(const uct_cuda_mp_request_t *request)
{
    return uct_cuda_end_is_none(request->remote);
}


/* ----------------------------------------------------------- by the engine */

static ucs_status_t engine_test(uct_cuda_op_t *op)
{
    return uct_cuda_mp_test(op->work);
}

static ucs_status_t engine_notify(uct_cuda_op_t *op, CUhostFn func, void *arg)
{
    return uct_cuda_mp_notify(op->work, func, arg);
}

static void engine_release(uct_cuda_op_t *op)
{
    uct_cuda_mp_release(op->work);
}

/* Managed memory may be anywhere, and moves to the GPU that touches it */
static bool is_gpu_memory(CUdeviceptr address, size_t size)
{
    uct_cuda_memory_t memory;

    uct_cuda_memory_query((void*)address, size, &memory);
    return memory.type == UCS_MEMORY_TYPE_CUDA;
}

/* NUMA node of a buffer's first byte, if the system says */
static int find_numa(const void *address)
{
    int numa;

    return (syscall(SYS_get_mempolicy, &numa, NULL, 0ul, address,
                    (unsigned long)(MPOL_F_NODE | MPOL_F_ADDR)) == 0) ?
                   numa :
                   UCT_CUDA_TOPO_NO_NUMA;
}

/* May host memory go by the engine? Small messages do without the questions */
static bool prepare_host(uct_cuda_mp_engine_t *engine,
                         uct_cuda_mp_request_t *request,
                         uct_cuda_mp_memory_t *memory, CUdeviceptr gpu,
                         const uct_cuda_transfer_t *transfer)
{
    if (!transfer->pieces.is_locked || !request->is_mappable ||
        (is_own(request) &&
         (request->size < UCT_CUDA_HOST_OWN_SPLIT_MIN_SIZE)) ||
        !uct_cuda_mp_wants_host(engine, request->size) ||
        (uct_cuda_mp_admit(engine, request) != UCT_CUDA_MP_ADMITTED) ||
        (is_own(request) && !is_gpu_memory(gpu, request->size))) {
        return false;
    }

    request->host_numa     = find_numa(transfer->host);
    memory->num_boundaries = transfer->pieces.count - 1;
    memory->boundaries     = transfer->pieces.ends;
    return true;
}

/* It has no place in a plan, nor on the engine's links */
static bool has_host_vmm(const uct_cuda_mp_request_t *request)
{
    return uct_cuda_end_is_host_vmm(request->src_end) ||
           uct_cuda_end_is_host_vmm(request->dst_end);
}

static bool
start_engine(uct_cuda_mp_engine_t *engine, const uct_cuda_mp_request_t *request,
             uct_cuda_mp_memory_t *memory, uct_cuda_op_t *op)
{
    uct_cuda_mp_transfer_t *work;

    if ((uct_cuda_mp_start(engine, request, memory, &work) != UCS_OK) ||
        (work == NULL)) {
        return false;
    }

    op->work    = work;
    op->test    = engine_test;
    op->notify  = engine_notify;
    op->release = engine_release;
    op->steps   = uct_cuda_mp_num_steps(work);
    return true;
}


/* -------------------------------------------------------------- by threads */

static ucs_status_t job_test(uct_cuda_op_t *op)
{
    return uct_cuda_host_pipeline_test(op->work);
}

static ucs_status_t job_notify(uct_cuda_op_t *op, CUhostFn func, void *arg)
{
    uct_cuda_host_pipeline_notify(op->work, func, arg);
    return UCS_OK;
}

static void job_release(uct_cuda_op_t *op)
{
    uct_cuda_host_pipeline_release(op->work);
}

void uct_cuda_op_follow_job(uct_cuda_op_t *op, uct_cuda_host_job_t *job)
{
    op->work    = job;
    op->test    = job_test;
    op->notify  = job_notify;
    op->release = job_release;
}

/* Has threads copy the memory, if most of it is not locked */
static bool start_threads(const uct_cuda_transfer_t *transfer, CUdeviceptr gpu,
                          bool to_gpu, uct_cuda_op_t *op)
{
    uct_cuda_host_job_t *job;

    if ((transfer->slot != NULL) ||
        (transfer->pieces.pageable <= transfer->size / 2) ||
        (uct_cuda_host_pipeline_start(gpu, transfer->host, transfer->size,
                                      to_gpu, &job) != UCS_OK)) {
        return false;
    }

    uct_cuda_op_follow_job(op, job);
    return true;
}


/* -------------------------------------------- by a slot, and by the driver */

static void uncount(uct_cuda_op_t *op)
{
    uct_cuda_mp_single_end(op->work, op->counted);
}

void uct_cuda_op_count(uct_cuda_op_t *op, uct_cuda_mp_engine_t *engine,
                       uct_cuda_end_t src, uct_cuda_end_t dst, size_t size)
{
    op->work    = engine;
    op->counted = uct_cuda_mp_single_begin(engine, src, dst, size);
    op->release = uncount;
}

static bool get_slot(uct_cuda_transfer_t *transfer)
{
    transfer->slot = uct_cuda_host_bounce_get(transfer->size);
    return transfer->slot != NULL;
}

static ucs_status_t copy_host(const uct_cuda_transfer_t *transfer,
                              CUdeviceptr gpu, bool to_gpu, CUstream stream)
{
    const ucs_status_t status =
            (transfer->slot != NULL) ?
                    uct_cuda_host_copy(gpu, transfer->slot, transfer->size,
                                       false, stream) :
                    uct_cuda_host_pieces_copy(&transfer->pieces, gpu,
                                              transfer->host, to_gpu, stream);

    if (status != UCS_OK) {
        /* What was submitted must not outlive the memory that it uses */
        (void)UCT_CUDA_CALL(cuStreamSynchronize, stream);
    }

    return status;
}

/* Others of the node are to know what uses a link for long */
static bool is_counted(uct_cuda_mp_engine_t *engine,
                       const uct_cuda_mp_request_t *request,
                       const uct_cuda_transfer_t *transfer)
{
    if (engine == NULL) {
        return false;
    }

    return (transfer->host == NULL) ?
                   (request->size >= UCT_CUDA_MP_COUNTED_MIN_SIZE) :
                   !is_own(request) && transfer->pieces.is_locked &&
                           uct_cuda_mp_wants_host(engine, request->size);
}

static ucs_status_t start_host(uct_cuda_mp_engine_t *engine,
                               const uct_cuda_mp_request_t *request,
                               CUdeviceptr gpu, uct_cuda_transfer_t *transfer,
                               uct_cuda_op_t *op)
{
    const uct_cuda_host_pieces_t *pieces = &transfer->pieces;
    const bool to_gpu = uct_cuda_end_is_host(request->src_end);

    if (!is_own(request) && (transfer->slot == NULL) && !to_gpu &&
        !pieces->is_locked && (pieces->count == 1)) {
        (void)get_slot(transfer);
    }

    if ((engine != NULL) && (pieces->pageable > 0)) {
        uct_cuda_mp_share_cpus(engine);
    }

    if (start_threads(transfer, gpu, to_gpu, op)) {
        transfer->way = UCT_CUDA_BY_THREADS;
        return UCS_OK;
    }

    transfer->way = (transfer->slot != NULL) ? UCT_CUDA_BY_SLOT :
                                               UCT_CUDA_BY_DRIVER;
    return copy_host(transfer, gpu, to_gpu, op->stream->cuda);
}

static ucs_status_t start_gpus(const uct_cuda_mp_request_t *request,
                               const uct_cuda_mp_memory_t *memory,
                               uct_cuda_transfer_t *transfer, CUstream stream)
{
    uct_cuda_trace_copy_t *copy = uct_cuda_trace_begin(stream);
    ucs_status_t status;

    transfer->way = UCT_CUDA_BY_DRIVER;
    status        = has_host_vmm(request) ?
                            UCT_CUDA_CALL(cuMemcpyAsync, memory->dst,
                                          memory->src, request->size, stream) :
                            UCT_CUDA_CALL(cuMemcpyDtoDAsync, memory->dst,
                                          memory->src, request->size, stream);
    uct_cuda_trace_end(copy, stream, request->src_end, request->dst_end,
                       request->size, "one path");
    return status;
}


/* --------------------------------------------------------------- interface */

static const char *const names[] = {
    [UCT_CUDA_BY_ENGINE]  = "the engine",
    [UCT_CUDA_BY_THREADS] = "threads",
    [UCT_CUDA_BY_SLOT]    = "a slot",
    [UCT_CUDA_BY_DRIVER]  = "the driver"
};


static void give_back(uct_cuda_transfer_t *transfer)
{
    uct_cuda_host_pieces_release(&transfer->pieces);
    if (transfer->slot != NULL) {
        uct_cuda_host_bounce_put(transfer->slot);
    }
}

/* Host memory at one end: a slot, or what of it is locked */
static ucs_status_t look_at_host(const uct_cuda_mp_request_t *request,
                                 uct_cuda_transfer_t *transfer)
{
    const bool to_gpu = uct_cuda_end_is_host(request->src_end);

    if (!is_own(request) && !to_gpu &&
        (request->size <= UCT_CUDA_HOST_UNSEEN_MAX_SIZE) &&
        get_slot(transfer)) {
        return UCS_OK;
    }

    return uct_cuda_host_pieces_find(&transfer->pieces, transfer->host,
                                     request->size);
}

static ucs_status_t
start(uct_cuda_mp_engine_t *engine, uct_cuda_mp_request_t *request,
      uct_cuda_mp_memory_t *memory, uct_cuda_transfer_t *transfer,
      uct_cuda_op_t *op)
{
    const bool to_gpu      = uct_cuda_end_is_host(request->src_end);
    const bool is_host     = (transfer->host != NULL);
    const CUdeviceptr *gpu = to_gpu ? &memory->dst : &memory->src;
    ucs_status_t status;

    if ((engine != NULL) && !has_host_vmm(request) &&
        (is_host ? prepare_host(engine, request, memory, *gpu, transfer) :
                   uct_cuda_mp_wants(engine, request->size) &&
                           (request->is_mappable || !is_own(request))) &&
        start_engine(engine, request, memory, op)) {
        transfer->way = UCT_CUDA_BY_ENGINE;
        return UCS_OK;
    }

    if (memory->map_one != NULL) {
        status = memory->map_one(memory);
        if (status != UCS_OK) {
            return status;
        }
    }

    status = is_host ? start_host(engine, request, *gpu, transfer, op) :
                       start_gpus(request, memory, transfer, op->stream->cuda);
    if ((status == UCS_OK) && (transfer->way != UCT_CUDA_BY_THREADS) &&
        is_counted(engine, request, transfer)) {
        uct_cuda_op_count(op, engine, request->src_end, request->dst_end,
                          request->size);
    }

    return status;
}

ucs_status_t uct_cuda_transfer_start(uct_cuda_mp_engine_t *engine,
                                     uct_cuda_mp_request_t *request,
                                     uct_cuda_mp_memory_t *memory,
                                     uct_cuda_transfer_t *transfer,
                                     uct_cuda_op_t *op)
{
    ucs_status_t status = UCS_OK;

    transfer->src_end = request->src_end;
    transfer->dst_end = request->dst_end;
    transfer->size    = request->size;
    transfer->host    = uct_cuda_end_is_host(request->src_end) ?
                                (void*)memory->src :
                        uct_cuda_end_is_host(request->dst_end) ?
                                (void*)memory->dst :
                                NULL;
    transfer->slot    = NULL;
    transfer->begin   = uct_cuda_trace_now();
    uct_cuda_host_pieces_init(&transfer->pieces);

    if (transfer->host != NULL) {
        status = look_at_host(request, transfer);
    }

    if (status == UCS_OK) {
        status = start(engine, request, memory, transfer, op);
    }

    if (status != UCS_OK) {
        give_back(transfer);
        return status;
    }

    if (uct_cuda_log_is_on(UCT_CUDA_LOG_INFO) && (engine != NULL)) {
        uct_cuda_mp_count(engine);
    }

    uct_cuda_trace("%zu bytes from %p to %p: by %s", request->size,
                   (void*)memory->src, (void*)memory->dst,
                   names[transfer->way]);
    return UCS_OK;
}

void uct_cuda_transfer_end(uct_cuda_transfer_t *transfer)
{
    if (transfer->host == NULL) {
        return; /* nothing is held, and the copies are on the timeline */
    }

    if (transfer->way != UCT_CUDA_BY_ENGINE) {
        uct_cuda_trace_bar(true, transfer->src_end, transfer->dst_end,
                           transfer->size, names[transfer->way],
                           transfer->begin);
    }

    if (transfer->slot != NULL) {
        memcpy(transfer->host, transfer->slot, transfer->size);
    }

    give_back(transfer);
}
