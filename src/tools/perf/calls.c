/* SPDX-License-Identifier: BSD-3-Clause */
/* Measure the time of driver calls in the calling thread. */
#include "tool.h"

#include <ucs/sys/math.h>

#include <uct/cuda/base/retry.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>


#define SMALL 8ul
#define LARGE (64ul << 20)


/* The other process, owner of the memory to open */
static struct {
    pid_t          pid;
    int            results; /* pipe for its memory's handle */
    int            stop;    /* pipe; closed to end the process */
    CUipcMemHandle handle;
} peer;


/* Export memory of the GPU to the parent, and wait until the parent ends */
static void peer_main(pid_t parent, int gpu, int results, int stop)
{
    const uct_cuda_driver_t *driver;
    CUipcMemHandle handle;
    CUdeviceptr memory;
    CUcontext context;
    CUdevice device;
    char byte;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1); /* the parent ended before this call: no signal will come */
    }

    driver = uct_cuda_driver_get();
    if ((driver != NULL) && (driver->cuInit(0) == CUDA_SUCCESS) &&
        (driver->cuDeviceGet(&device, gpu) == CUDA_SUCCESS) &&
        (driver->cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS) &&
        (driver->cuCtxSetCurrent(context) == CUDA_SUCCESS) &&
        (driver->cuMemAlloc(&memory, LARGE) == CUDA_SUCCESS) &&
        (driver->cuIpcGetMemHandle(&handle, memory) == CUDA_SUCCESS) &&
        (UCT_CUDA_RETRY(write(results, &handle, sizeof(handle))) ==
         sizeof(handle))) {
        (void)!UCT_CUDA_RETRY(read(stop, &byte, 1));
        _exit(0);
    }

    _exit(1);
}

void ucx_mp_perf_calls_prepare(const ucx_mp_perf_options_t *options)
{
    const pid_t parent = getpid();
    int results[2], stop[2];

    peer.pid = -1;
    if (!options->calls || (pipe(results) != 0) || (pipe(stop) != 0)) {
        return;
    }

    peer.pid = fork();
    if (peer.pid == 0) {
        close(results[0]);
        close(stop[1]);
        peer_main(parent, options->src, results[1], stop[0]);
    }

    close(results[1]);
    close(stop[0]);
    peer.results = results[0];
    peer.stop    = stop[1];
}


#define MEASURE(_name, _repeats, _expression, _undo) \
    do { \
        UCX_MP_PERF_MEASURE(&series, _repeats, _expression, _undo); \
        ucx_mp_perf_report_call(_name, &series); \
    } while (0)

static void measure_ipc(const ucx_mp_perf_options_t *options)
{
    static ucx_mp_perf_series_t series;
    CUdeviceptr mapped;

    if ((options->src != options->dst) &&
        (uct_cuda_topo_get()->links[options->dst][options->src].bandwidth <=
         0)) {
        printf("%-44s not measured: GPU %d cannot access GPU %d\n",
               "cuIpcOpenMemHandle", options->dst, options->src);
        return;
    }

    if ((peer.pid < 0) ||
        (UCT_CUDA_RETRY(read(peer.results, &peer.handle,
                             sizeof(peer.handle))) != sizeof(peer.handle))) {
        printf("%-44s not measured: no second process with GPU memory\n",
               "cuIpcOpenMemHandle");
        return;
    }

    ucx_mp_perf_use(options->dst);
    MEASURE("cuIpcOpenMemHandle, 64 MiB", options->repeats,
            UCX_MP_PERF_CALL(cuIpcOpenMemHandle, &mapped, peer.handle,
                             CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
            UCX_MP_PERF_CALL(cuIpcCloseMemHandle, mapped));
    MEASURE("cuIpcOpenMemHandle and Close", options->repeats,
            UCX_MP_PERF_CALL(cuIpcOpenMemHandle, &mapped, peer.handle,
                             CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
            UCX_MP_PERF_CALL(cuIpcCloseMemHandle, mapped), (void)0);
}

static void measure_registration(unsigned repeats)
{
    static ucx_mp_perf_series_t series;
    void *memory;
    size_t size;
    char name[64];

    for (size = 1ul << 20; size <= LARGE; size *= 8) {
        memory = aligned_alloc(4096, size);
        if (memory == NULL) {
            return;
        }

        memset(memory, 1, size);
        snprintf(name, sizeof(name), "cuMemHostRegister, %zu MiB", size >> 20);
        MEASURE(name, repeats,
                UCX_MP_PERF_CALL(cuMemHostRegister, memory, size,
                                 CU_MEMHOSTREGISTER_PORTABLE),
                UCX_MP_PERF_CALL(cuMemHostUnregister, memory));
        free(memory);
    }
}

void ucx_mp_perf_calls(const ucx_mp_perf_options_t *options)
{
    static ucx_mp_perf_series_t series;
    const unsigned repeats    = ucs_min(options->repeats * 5,
                                        UCX_MP_PERF_MAX_REPEATS);
    CUpointer_attribute ask[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                 CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                 CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                 CU_POINTER_ATTRIBUTE_IS_MANAGED};
    unsigned type, managed;
    unsigned long long id;
    int ordinal;
    void *answers[] = {&type, &ordinal, &id, &managed};
    CUdeviceptr src, dst, other;
    CUstream stream, second;
    CUipcMemHandle handle;
    CUcontext context;
    CUevent event, unused;
    size_t length;

    ucx_mp_perf_report_step("calls");
    ucx_mp_perf_report_part("Driver calls, microseconds of the calling thread: "
                            "median (min..max)");
    src    = ucx_mp_perf_alloc(options->src, LARGE);
    dst    = ucx_mp_perf_alloc(options->dst, LARGE);
    stream = ucx_mp_perf_stream(options->src);
    event  = ucx_mp_perf_event(options->src);
    UCX_MP_PERF_CALL(cuCtxGetCurrent, &context);

    MEASURE("cuMemcpyAsync, 64 MiB, GPU to GPU", options->repeats,
            UCX_MP_PERF_CALL(cuMemcpyAsync, dst, src, LARGE, stream),
            UCX_MP_PERF_CALL(cuStreamSynchronize, stream));
    MEASURE("cuMemcpyAsync, 8 B, until seen", repeats,
            UCX_MP_PERF_CALL(cuMemcpyAsync, dst, src, SMALL, stream);
            UCX_MP_PERF_CALL(cuEventRecord, event, stream);
            while (uct_cuda_driver_get()->cuEventQuery(event) ==
                   CUDA_ERROR_NOT_READY), (void)0);
    MEASURE("cuEventRecord", repeats,
            UCX_MP_PERF_CALL(cuEventRecord, event, stream),
            UCX_MP_PERF_CALL(cuStreamSynchronize, stream));
    MEASURE("cuStreamWaitEvent", repeats,
            UCX_MP_PERF_CALL(cuStreamWaitEvent, stream, event, 0), (void)0);
    UCX_MP_PERF_CALL(cuStreamSynchronize, stream);
    MEASURE("cuEventQuery, done", repeats,
            UCX_MP_PERF_CALL(cuEventQuery, event), (void)0);
    MEASURE("cuCtxPushCurrent and Pop", repeats,
            UCX_MP_PERF_CALL(cuCtxPushCurrent, context);
            UCX_MP_PERF_CALL(cuCtxPopCurrent, &context), (void)0);
    MEASURE("cuPointerGetAttributes, 4 of GPU memory", repeats,
            UCX_MP_PERF_CALL(cuPointerGetAttributes, 4, ask, answers, src),
            (void)0);
    MEASURE("cuMemGetAddressRange", repeats,
            UCX_MP_PERF_CALL(cuMemGetAddressRange, &other, &length, src),
            (void)0);
    MEASURE("cuIpcGetMemHandle", repeats,
            UCX_MP_PERF_CALL(cuIpcGetMemHandle, &handle, src), (void)0);
    MEASURE("cuEventCreate and Destroy", repeats,
            UCX_MP_PERF_CALL(cuEventCreate, &unused, CU_EVENT_DISABLE_TIMING);
            UCX_MP_PERF_CALL(cuEventDestroy, unused), (void)0);
    MEASURE("cuStreamCreate and Destroy", options->repeats,
            UCX_MP_PERF_CALL(cuStreamCreate, &second, CU_STREAM_NON_BLOCKING);
            UCX_MP_PERF_CALL(cuStreamDestroy, second), (void)0);
    MEASURE("cuMemAlloc and Free, 64 MiB", options->repeats,
            UCX_MP_PERF_CALL(cuMemAlloc, &other, LARGE);
            UCX_MP_PERF_CALL(cuMemFree, other), (void)0);
    measure_registration(options->quick ? 3 : options->repeats);
    measure_ipc(options);
    if (peer.pid > 0) {
        close(peer.stop);
        close(peer.results);
        (void)UCT_CUDA_RETRY(waitpid(peer.pid, NULL, 0));
    }

    UCX_MP_PERF_CALL(cuMemFree, src);
    UCX_MP_PERF_CALL(cuMemFree, dst);
    ucx_mp_perf_use(options->src);
    UCX_MP_PERF_CALL(cuEventDestroy, event);
    UCX_MP_PERF_CALL(cuStreamDestroy, stream);
}
