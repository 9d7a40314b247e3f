/* SPDX-License-Identifier: BSD-3-Clause */
/* The ways are tried in turns, the best one first; the driver's is the last. */
#include <uct/cuda/base/host/host_transfer.h>

#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/host/host_bounce.h>
#include <uct/cuda/base/host/host_copy.h>
#include <uct/cuda/base/host/host_limits.h>
#include <uct/cuda/base/host/host_pipeline.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/memory.h>
#include <uct/cuda/base/trace.h>
#include <uct/cuda/multipath/operation.h>

#include <linux/mempolicy.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>


/* ----------------------------------------------------------- by the engine */

/* Managed memory may be anywhere, and moves to the GPU that touches it */
static bool is_gpu_memory(const uct_cuda_host_request_t *request)
{
    uct_cuda_memory_t memory;

    uct_cuda_memory_query((void*)request->gpu, request->length, &memory);
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

static bool start_engine(uct_cuda_mp_engine_t *engine,
                         const uct_cuda_host_request_t *request,
                         const uct_cuda_host_pieces_t *pieces,
                         uct_cuda_op_t *op)
{
    const CUdeviceptr host           = (CUdeviceptr)request->host;
    const uct_cuda_end_t host_end    = uct_cuda_end_host();
    const uct_cuda_end_t none        = uct_cuda_end_none();
    const bool is_own                = (request->map == NULL);
    const bool to_gpu                = request->to_gpu;
    uct_cuda_mp_request_t mp_request = {
        .src_end     = to_gpu ? host_end : request->gpu_end,
        .dst_end     = to_gpu ? request->gpu_end : host_end,
        .size        = request->length,
        .remote      = is_own ? none : request->gpu_end,
        .is_mappable = request->may_split
    };
    uct_cuda_mp_memory_t memory      = {
        .src            = to_gpu ? host : request->gpu,
        .dst            = to_gpu ? request->gpu : host,
        .map            = request->map,
        .map_arg        = request->arg,
        .num_boundaries = pieces->count - 1,
        .boundaries     = pieces->ends
    };

    if ((engine == NULL) || !pieces->is_locked || !request->may_split ||
        (is_own && (request->length < UCT_CUDA_HOST_OWN_SPLIT_MIN_SIZE)) ||
        !uct_cuda_mp_wants_host(engine, request->length) ||
        (uct_cuda_mp_admit(engine, &mp_request) != UCT_CUDA_MP_ADMITTED) ||
        (is_own && !is_gpu_memory(request))) {
        return false;
    }

    mp_request.host_numa = find_numa(request->host);
    return uct_cuda_mp_op_start(engine, &mp_request, &memory, op) == UCS_OK;
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

/* Has threads copy the memory, if most of it is not locked */
static bool start_threads(const uct_cuda_host_request_t *request,
                          const uct_cuda_host_pieces_t *pieces, CUdeviceptr gpu,
                          uct_cuda_op_t *op)
{
    uct_cuda_host_job_t *job;

    if ((pieces->pageable <= request->length / 2) ||
        (uct_cuda_host_pipeline_start(gpu, request->host, request->length,
                                      request->to_gpu, &job) != UCS_OK)) {
        return false;
    }

    op->work    = job;
    op->test    = job_test;
    op->notify  = job_notify;
    op->release = job_release;
    return true;
}


/* -------------------------------------------- by a slot, and by the driver */

static bool get_slot(uct_cuda_host_transfer_t *transfer)
{
    transfer->bounce = uct_cuda_host_bounce_get(transfer->length);
    return transfer->bounce != NULL;
}

static ucs_status_t submit(const uct_cuda_host_request_t *request,
                           const uct_cuda_host_transfer_t *transfer,
                           CUdeviceptr gpu, CUstream stream)
{
    const ucs_status_t status =
            (transfer->bounce != NULL) ?
                    uct_cuda_host_copy(gpu, transfer->bounce, request->length,
                                       false, stream) :
                    uct_cuda_host_pieces_copy(&transfer->pieces, gpu,
                                              request->host, request->to_gpu,
                                              stream);

    if (status != UCS_OK) {
        /* What was submitted must not outlive the memory that it uses */
        (void)UCT_CUDA_CALL(cuStreamSynchronize, stream);
    }

    return status;
}

/* Others of the node are to know what uses a link for long */
static void count(uct_cuda_mp_engine_t *engine,
                  const uct_cuda_host_request_t *request, uct_cuda_op_t *op)
{
    const uct_cuda_end_t host = uct_cuda_end_host();

    if ((engine != NULL) && uct_cuda_mp_wants_host(engine, request->length)) {
        uct_cuda_mp_op_count(engine,
                             request->to_gpu ? host : request->gpu_end,
                             request->to_gpu ? request->gpu_end : host,
                             request->length, op);
    }
}

static ucs_status_t start_single(uct_cuda_mp_engine_t *engine,
                                 const uct_cuda_host_request_t *request,
                                 uct_cuda_host_transfer_t *transfer,
                                 uct_cuda_op_t *op)
{
    const uct_cuda_host_pieces_t *pieces = &transfer->pieces;
    const bool is_own                    = (request->map == NULL);
    CUdeviceptr gpu                      = request->gpu;
    ucs_status_t status;

    if (!is_own) {
        status = request->map_stream(request->arg, &gpu);
        if (status != UCS_OK) {
            return status;
        }

        if ((transfer->bounce == NULL) && !request->to_gpu &&
            !pieces->is_locked && (pieces->count == 1)) {
            (void)get_slot(transfer);
        }
    }

    if ((engine != NULL) && (pieces->pageable > 0)) {
        uct_cuda_mp_share_cpus(engine);
    }

    if (start_threads(request, pieces, gpu, op)) {
        transfer->way = UCT_CUDA_HOST_BY_THREADS;
        return UCS_OK;
    }

    transfer->way = (transfer->bounce != NULL) ? UCT_CUDA_HOST_BY_SLOT :
                                                 UCT_CUDA_HOST_BY_DRIVER;
    status        = submit(request, transfer, gpu, op->stream->cuda);
    if ((status == UCS_OK) && !is_own && pieces->is_locked) {
        count(engine, request, op);
    }

    return status;
}


/* --------------------------------------------------------------- interface */

static const char *const names[] = {
    [UCT_CUDA_HOST_BY_ENGINE]  = "the engine",
    [UCT_CUDA_HOST_BY_THREADS] = "threads",
    [UCT_CUDA_HOST_BY_SLOT]    = "a slot",
    [UCT_CUDA_HOST_BY_DRIVER]  = "the driver"
};


static void give_back(uct_cuda_host_transfer_t *transfer)
{
    uct_cuda_host_pieces_release(&transfer->pieces);
    if (transfer->bounce != NULL) {
        uct_cuda_host_bounce_put(transfer->bounce);
    }
}

ucs_status_t uct_cuda_host_start(uct_cuda_mp_engine_t *engine,
                                 const uct_cuda_host_request_t *request,
                                 uct_cuda_host_transfer_t *transfer,
                                 uct_cuda_op_t *op)
{
    const bool is_unseen = (request->map != NULL) && !request->to_gpu &&
                           (request->length <= UCT_CUDA_HOST_UNSEEN_MAX_SIZE);
    ucs_status_t status  = UCS_OK;

    transfer->host    = request->host;
    transfer->length  = request->length;
    transfer->bounce  = NULL;
    transfer->to_gpu  = request->to_gpu;
    transfer->gpu_end = request->gpu_end;
    transfer->begin   = uct_cuda_trace_now();
    uct_cuda_host_pieces_init(&transfer->pieces);

    if (!is_unseen || !get_slot(transfer)) {
        status = uct_cuda_host_pieces_hold(&transfer->pieces, request->host,
                                           request->length, request->to_gpu);
    }

    if ((status == UCS_OK) &&
        start_engine(engine, request, &transfer->pieces, op)) {
        transfer->way = UCT_CUDA_HOST_BY_ENGINE;
    } else if (status == UCS_OK) {
        status = start_single(engine, request, transfer, op);
    }

    if (status != UCS_OK) {
        give_back(transfer);
        return status;
    }

    uct_cuda_trace("%zu bytes %s host memory %p: by %s", request->length,
                   request->to_gpu ? "from" : "to", request->host,
                   names[transfer->way]);
    return UCS_OK;
}

void uct_cuda_host_end(uct_cuda_host_transfer_t *transfer)
{
    const uct_cuda_end_t host = uct_cuda_end_host();

    if (transfer->way != UCT_CUDA_HOST_BY_ENGINE) {
        uct_cuda_trace_bar(true, transfer->to_gpu ? host : transfer->gpu_end,
                           transfer->to_gpu ? transfer->gpu_end : host,
                           transfer->length, names[transfer->way],
                           transfer->begin);
    }

    if (transfer->bounce != NULL) {
        memcpy(transfer->host, transfer->bounce, transfer->length);
    }

    give_back(transfer);
}
