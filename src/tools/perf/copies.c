/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measure concurrent copies. The clock runs from the first submission until the
 * end of the last copy is detected.
 */
#include "tool.h"


/* One of the copies */
typedef struct {
    int         gpu; /* whose context copies */
    CUdeviceptr from;
    CUdeviceptr to;
    CUstream    stream;
    CUevent     ended;
} running_t;


/* Memory of an end; the host's is near the GPU of the other end */
static CUdeviceptr end_alloc(int end, int gpu, int numa, size_t size)
{
    return (end == UCX_MP_PERF_HOST) ?
                   (CUdeviceptr)ucx_mp_perf_alloc_host_on(gpu, numa, size) :
                   ucx_mp_perf_alloc(end, size);
}

static void end_free(int end, CUdeviceptr memory, size_t size)
{
    if (end == UCX_MP_PERF_HOST) {
        ucx_mp_perf_free_host((void*)memory, size);
    } else {
        UCX_MP_PERF_CALL(cuMemFree, memory);
    }
}

static void run(const running_t *copies, unsigned count, size_t size)
{
    unsigned n;

    for (n = 0; n < count; ++n) {
        ucx_mp_perf_use(copies[n].gpu);
        UCX_MP_PERF_CALL(cuMemcpyAsync, copies[n].to, copies[n].from, size,
                         copies[n].stream);
        UCX_MP_PERF_CALL(cuEventRecord, copies[n].ended, copies[n].stream);
    }
    for (n = 0; n < count; ++n) {
        ucx_mp_perf_wait(copies[n].ended);
    }
}

void ucx_mp_perf_copies(const ucx_mp_perf_hop_t *hops, unsigned count,
                        int numa, size_t size, unsigned repeats,
                        ucx_mp_perf_series_t *series)
{
    running_t copies[UCT_CUDA_MAX_GPUS + 1], *copy;
    unsigned n;

    for (n = 0; n < count; ++n) {
        copy         = &copies[n];
        copy->gpu    = (hops[n].from == UCX_MP_PERF_HOST) ? hops[n].to :
                                                            hops[n].from;
        copy->from   = end_alloc(hops[n].from, copy->gpu, numa, size);
        copy->to     = end_alloc(hops[n].to, copy->gpu, numa, size);
        copy->stream = ucx_mp_perf_stream(copy->gpu);
        copy->ended  = ucx_mp_perf_event(copy->gpu);
    }

    UCX_MP_PERF_MEASURE(series, repeats, run(copies, count, size), (void)0);

    for (n = 0; n < count; ++n) {
        copy = &copies[n];
        ucx_mp_perf_use(copy->gpu);
        UCX_MP_PERF_CALL(cuEventDestroy, copy->ended);
        UCX_MP_PERF_CALL(cuStreamDestroy, copy->stream);
        end_free(hops[n].from, copy->from, size);
        end_free(hops[n].to, copy->to, size);
    }
}
