/* SPDX-License-Identifier: BSD-3-Clause */
/* Open the node's GPUs, each with a context, and allocate memory on and near
 * them. */
#include "tool.h"

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/run/staging.h>

#include <time.h>
#include <unistd.h>


static CUcontext contexts[UCT_CUDA_MAX_GPUS];
static const uct_cuda_topo_t *topo;


void ucx_mp_perf_check(CUresult result, const char *call)
{
    if (result != CUDA_SUCCESS) {
        ucx_mp_tool_die(UCX_MP_TOOL_FAILED, "%s: %s", call,
                        uct_cuda_result_name(result));
    }
}

double ucx_mp_perf_now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

const uct_cuda_topo_t *ucx_mp_perf_node_open(void)
{
    int gpu;

    if (uct_cuda_device_count() == 0) {
        ucx_mp_tool_die(UCX_MP_TOOL_FAILED,
                        "no GPU is visible here; ucx_mp_run --emulate beluga "
                        "ucx_mp_perf measures an emulated node");
    }

    topo = uct_cuda_topo_get();
    if (topo == NULL) {
        ucx_mp_tool_die(UCX_MP_TOOL_FAILED, "the node's GPUs cannot be "
                                            "probed; ucx_mp_topo --verbose "
                                            "shows why");
    }

    for (gpu = 0; gpu < topo->num_gpus; ++gpu) {
        if (uct_cuda_ctx_retain(gpu, false, &contexts[gpu]) != UCS_OK) {
            ucx_mp_tool_die(UCX_MP_TOOL_FAILED,
                            "cannot create a context on GPU %d", gpu);
        }
    }

    return topo;
}

void ucx_mp_perf_node_connect(void)
{
    int gpu, peer;

    for (gpu = 0; gpu < topo->num_gpus; ++gpu) {
        for (peer = 0; peer < topo->num_gpus; ++peer) {
            if ((gpu != peer) && (topo->links[gpu][peer].bandwidth > 0)) {
                (void)uct_cuda_ctx_enable_peer(gpu, peer);
            }
        }
    }
}

void ucx_mp_perf_use(int gpu)
{
    UCX_MP_PERF_CALL(cuCtxSetCurrent, contexts[gpu]);
}

CUstream ucx_mp_perf_stream(int gpu)
{
    CUstream stream;

    ucx_mp_perf_use(gpu);
    UCX_MP_PERF_CALL(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    return stream;
}

CUevent ucx_mp_perf_event(int gpu)
{
    CUevent event;

    ucx_mp_perf_use(gpu);
    UCX_MP_PERF_CALL(cuEventCreate, &event, CU_EVENT_DEFAULT);
    return event;
}

void ucx_mp_perf_wait(CUevent event)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    CUresult result;

    do {
        result = driver->cuEventQuery(event);
    } while (result == CUDA_ERROR_NOT_READY);
    ucx_mp_perf_check(result, "cuEventQuery");
}

CUdeviceptr ucx_mp_perf_alloc(int gpu, size_t size)
{
    CUdeviceptr memory;

    ucx_mp_perf_use(gpu);
    UCX_MP_PERF_CALL(cuMemAlloc, &memory, size);
    UCX_MP_PERF_CALL(cuMemsetD8, memory, 0x5a, size);
    return memory;
}

/* Host memory on a NUMA node, allocated as the engine does, in slots */
static size_t slot_size(size_t size)
{
    return (size + UCT_CUDA_PLAN_STAGING_SLOTS - 1) /
           UCT_CUDA_PLAN_STAGING_SLOTS;
}

void *ucx_mp_perf_alloc_host(int gpu, size_t size)
{
    return ucx_mp_perf_alloc_host_on(gpu, UCX_MP_PERF_NEAR, size);
}

void *ucx_mp_perf_alloc_host_on(int gpu, int numa, size_t size)
{
    uct_cuda_run_staging_t staging;

    ucx_mp_perf_use(gpu);
    if (uct_cuda_run_staging_alloc(&staging, uct_cuda_end_host(),
                                   (numa == UCX_MP_PERF_NEAR) ?
                                           topo->gpus[gpu].numa :
                                           numa,
                                   gpu, slot_size(size)) != UCS_OK) {
        ucx_mp_tool_die(UCX_MP_TOOL_FAILED,
                        "cannot page-lock %zu bytes", size);
    }

    return (void*)staging.base;
}

void ucx_mp_perf_free_host(void *memory, size_t size)
{
    uct_cuda_run_staging_t staging = {.base     = (CUdeviceptr)memory,
                                      .end       = uct_cuda_end_host(),
                                      .owner     = getpid(),
                                      .slot_size = slot_size(size)};

    uct_cuda_run_staging_free(&staging);
}
