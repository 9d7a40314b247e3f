/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Page-locked memory may go over several GPUs' links; of other memory, what is
 * copied often is locked on the way, and the rest threads may copy.
 */
#include <uct/cuda/cuda_copy/cuda_copy_host.h>

#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/host/host_pieces.h>
#include <uct/cuda/base/host/host_pipeline.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/memory.h>

#include <stdlib.h>


/* Those between gain little, and many in a row nothing: the CPU has as many
 * copies to submit as it has microseconds. UCP's staging of messages to other
 * nodes, in fragments of 512 KiB, is among them. */
#define STRIPED_MIN_SIZE (2ul << 20)

typedef struct {
    uct_cuda_host_pieces_t pieces;
    uct_cuda_mp_transfer_t *transfer; /* over several paths; or NULL */
    uct_cuda_host_job_t    *job;      /* of threads; or NULL */
} copy_t;


static ucs_status_t multipath_test(uct_cuda_op_t *op)
{
    return uct_cuda_mp_test(((copy_t*)op->arg)->transfer);
}

static ucs_status_t multipath_notify(uct_cuda_op_t *op, CUhostFn func,
                                     void *arg)
{
    return uct_cuda_mp_notify(((copy_t*)op->arg)->transfer, func, arg);
}

static ucs_status_t job_test(uct_cuda_op_t *op)
{
    return uct_cuda_host_pipeline_test(((copy_t*)op->arg)->job);
}

static ucs_status_t job_notify(uct_cuda_op_t *op, CUhostFn func, void *arg)
{
    uct_cuda_host_pipeline_notify(((copy_t*)op->arg)->job, func, arg);
    return UCS_OK;
}

static void copy_destroy(copy_t *copy)
{
    uct_cuda_host_pieces_release(&copy->pieces);
    free(copy);
}

static void copy_done(uct_cuda_op_t *op)
{
    copy_t *copy = op->arg;

    if (copy->transfer != NULL) {
        uct_cuda_mp_release(copy->transfer);
    }

    if (copy->job != NULL) {
        uct_cuda_host_pipeline_release(copy->job);
    }

    copy_destroy(copy);
}

/* Managed memory may be anywhere, and moves to the GPU that touches it */
static bool is_gpu_memory(const uct_cuda_copy_host_request_t *request)
{
    uct_cuda_memory_t memory;

    uct_cuda_memory_query((void*)request->gpu, request->length, &memory);
    return memory.type == UCS_MEMORY_TYPE_CUDA;
}

/* Offers the copy to the engine. True: it has a transfer now. */
static bool multipath_start(uct_cuda_mp_engine_t *engine,
                            const uct_cuda_copy_host_request_t *request,
                            copy_t *copy)
{
    const uct_cuda_host_pieces_t *pieces = &copy->pieces;
    const CUdeviceptr host               = (CUdeviceptr)request->host;
    const bool to_gpu                    = request->to_gpu;
    const uct_cuda_end_t gpu_end         = uct_cuda_end_gpu(request->device);
    uct_cuda_mp_request_t mp_request     = {
        .src      = to_gpu ? host : request->gpu,
        .dst      = to_gpu ? request->gpu : host,
        .src_end  = to_gpu ? uct_cuda_end_host() : gpu_end,
        .dst_end  = to_gpu ? gpu_end : uct_cuda_end_host(),
        .size     = request->length,
        .num_cuts = pieces->count - 1,
        .cuts     = pieces->ends
    };

    if ((engine == NULL) || (request->length < STRIPED_MIN_SIZE) ||
        !uct_cuda_mp_wants_host(engine, request->length) ||
        !pieces->is_locked || !request->is_plain ||
        !uct_cuda_mp_may_split(engine, mp_request.src_end,
                               mp_request.dst_end, request->length) ||
        !is_gpu_memory(request)) {
        return false;
    }

    mp_request.host_numa = uct_cuda_host_numa(request->host);
    return (uct_cuda_mp_start(engine, &mp_request, &copy->transfer) ==
            UCS_OK) &&
           (copy->transfer != NULL);
}

ucs_status_t
uct_cuda_copy_host_start(uct_cuda_mp_engine_t *engine,
                         const uct_cuda_copy_host_request_t *request,
                         uct_cuda_op_t *op)
{
    ucs_status_t status;
    copy_t *copy;

    copy = malloc(sizeof(*copy));
    if (copy == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    copy->transfer = NULL;
    copy->job      = NULL;
    uct_cuda_host_pieces_init(&copy->pieces);
    status = uct_cuda_host_pieces_hold(&copy->pieces, request->host,
                                       request->length, request->to_gpu);
    if (status != UCS_OK) {
        goto err;
    }

    if ((engine != NULL) && (copy->pieces.pageable > 0)) {
        uct_cuda_mp_share_cpus(engine);
    }

    if (multipath_start(engine, request, copy)) {
        op->test   = multipath_test;
        op->notify = multipath_notify;
        op->steps  = uct_cuda_mp_num_steps(copy->transfer);
    } else if (uct_cuda_host_pieces_start_job(&copy->pieces, request->gpu,
                                              request->host, request->to_gpu,
                                              &copy->job) == UCS_OK) {
        op->test   = job_test;
        op->notify = job_notify;
    } else {
        status = uct_cuda_host_pieces_copy(&copy->pieces, request->gpu,
                                           request->host, request->to_gpu,
                                           op->lane->stream);
        if (status != UCS_OK) {
            goto err_wait;
        }
    }

    op->done = copy_done;
    op->arg  = copy;
    return UCS_OK;

err_wait:
    /* What was submitted must not outlive the memory that it uses */
    (void)UCT_CUDA_CALL(cuStreamSynchronize, op->lane->stream);
err:
    copy_destroy(copy);
    return status;
}
