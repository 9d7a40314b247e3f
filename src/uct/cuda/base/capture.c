/* SPDX-License-Identifier: BSD-3-Clause */
/* Driver functions that invalidate captures, wrapped in a change of mode. */
#include <uct/cuda/base/capture.h>


/*
 * _(function, types of its arguments): the driver's table, except for functions
 * seen to leave captures alone (H100, driver 580) and those that only describe
 * devices and contexts. cuCtxSynchronize, cuCtxSetFlags and cuCtxRecordEvent
 * invalidate captures in relaxed mode as well, and any use of the legacy stream
 * invalidates those of blocking streams: no mode helps there.
 */
#define UNSAFE_FUNCTIONS(_1, _2, _3, _4) \
    _3(cuCtxCreate_v2, CUcontext*, unsigned, CUdevice) \
    _2(cuCtxSetLimit, CUlimit, size_t) \
    _2(cuCtxEnablePeerAccess, CUcontext, unsigned) \
    _2(cuMemAlloc, CUdeviceptr*, size_t) \
    _1(cuMemFree, CUdeviceptr) \
    _3(cuMemAllocManaged, CUdeviceptr*, size_t, unsigned) \
    _3(cuMemHostAlloc, void**, size_t, unsigned) \
    _1(cuMemFreeHost, void*) \
    _3(cuMemHostRegister, void*, size_t, unsigned) \
    _1(cuMemHostUnregister, void*) \
    _3(cuPointerSetAttribute, const void*, CUpointer_attribute, CUdeviceptr) \
    _3(cuMemGetAccess, unsigned long long*, const CUmemLocation*, CUdeviceptr) \
    _3(cuMemAllocAsync, CUdeviceptr*, size_t, CUstream) \
    _2(cuMemFreeAsync, CUdeviceptr, CUstream) \
    _4(cuMemAllocFromPoolAsync, CUdeviceptr*, size_t, CUmemoryPool, CUstream) \
    _1(cuMemPoolDestroy, CUmemoryPool) \
    _3(cuMemPoolGetAttribute, CUmemoryPool, CUmemPool_attribute, void*) \
    _3(cuMemPoolSetAccess, CUmemoryPool, const CUmemAccessDesc*, size_t) \
    _4(cuMemPoolExportToShareableHandle, void*, CUmemoryPool, \
       CUmemAllocationHandleType, unsigned long long) \
    _4(cuMemPoolImportFromShareableHandle, CUmemoryPool*, void*, \
       CUmemAllocationHandleType, unsigned long long) \
    _2(cuMemPoolExportPointer, CUmemPoolPtrExportData*, CUdeviceptr) \
    _3(cuMemPoolImportPointer, CUdeviceptr*, CUmemoryPool, \
       CUmemPoolPtrExportData*) \
    _1(cuStreamSynchronize, CUstream) \
    _1(cuEventSynchronize, CUevent) \
    _3(cuEventElapsedTime, float*, CUevent, CUevent) \
    _2(cuModuleLoadData, CUmodule*, const void*) \
    _1(cuModuleUnload, CUmodule) \
    _3(cuGraphInstantiateWithFlags, CUgraphExec*, CUgraph, unsigned long long) \
    _1(cuGraphExecDestroy, CUgraphExec)


/* The original functions of the driver */
static uct_cuda_driver_t real;

static __thread struct {
    bool                is_relaxed; /* by this module, until restored */
    CUstreamCaptureMode before;
} thread;


bool uct_cuda_capture_relax(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    if (thread.is_relaxed ||
        (real.cuThreadExchangeStreamCaptureMode == NULL) ||
        (real.cuThreadExchangeStreamCaptureMode(&mode) != CUDA_SUCCESS)) {
        return false;
    }

    thread.is_relaxed = true;
    thread.before     = mode;
    return true;
}

void uct_cuda_capture_restore(bool is_changed)
{
    if (is_changed) {
        (void)real.cuThreadExchangeStreamCaptureMode(&thread.before);
        thread.is_relaxed = false;
    }
}

/* -------------------------------------------------------------- functions */

#define RELAXED(_name, ...) \
    { \
        const bool is_changed = uct_cuda_capture_relax(); \
        const CUresult result = real._name(__VA_ARGS__); \
        \
        uct_cuda_capture_restore(is_changed); \
        return result; \
    }

#define RELAXED_1(_name, _a) \
    static CUresult CUDAAPI relaxed_##_name(_a a) RELAXED(_name, a)
#define RELAXED_2(_name, _a, _b) \
    static CUresult CUDAAPI relaxed_##_name(_a a, _b b) RELAXED(_name, a, b)
#define RELAXED_3(_name, _a, _b, _c) \
    static CUresult CUDAAPI relaxed_##_name(_a a, _b b, _c c) \
            RELAXED(_name, a, b, c)
#define RELAXED_4(_name, _a, _b, _c, _d) \
    static CUresult CUDAAPI relaxed_##_name(_a a, _b b, _c c, _d d) \
            RELAXED(_name, a, b, c, d)

UNSAFE_FUNCTIONS(RELAXED_1, RELAXED_2, RELAXED_3, RELAXED_4)

/* Functions with more than four arguments, or with types missing in some
 * toolkits */
static CUresult CUDAAPI
relaxed_cuMemRangeGetAttribute(void *data, size_t data_size,
                               CUmem_range_attribute attribute,
                               CUdeviceptr address, size_t length)
RELAXED(cuMemRangeGetAttribute, data, data_size, attribute, address, length)

static CUresult CUDAAPI
relaxed_cuMemGetHandleForAddressRange(void *handle, CUdeviceptr address,
                                      size_t length, CUmemRangeHandleType type,
                                      unsigned long long flags)
RELAXED(cuMemGetHandleForAddressRange, handle, address, length, type, flags)


/* Translate a refused query into "not ready" */
static CUresult question_answer(CUresult result)
{
    return uct_cuda_capture_is_refusal(result) ? CUDA_ERROR_NOT_READY : result;
}

static CUresult CUDAAPI relaxed_cuEventQuery(CUevent event)
{
    const bool is_changed = uct_cuda_capture_relax();
    const CUresult result = real.cuEventQuery(event);

    uct_cuda_capture_restore(is_changed);
    return question_answer(result);
}

static CUresult CUDAAPI relaxed_cuStreamQuery(CUstream stream)
{
    const bool is_changed = uct_cuda_capture_relax();
    const CUresult result = real.cuStreamQuery(stream);

    uct_cuda_capture_restore(is_changed);
    return question_answer(result);
}


#define WRAP(_name, ...) \
    if (table->_name != NULL) { \
        table->_name = relaxed_##_name; \
    }

void uct_cuda_capture_wrap(uct_cuda_driver_t *table)
{
    real = *table;
    UNSAFE_FUNCTIONS(WRAP, WRAP, WRAP, WRAP)
    WRAP(cuMemRangeGetAttribute)
    WRAP(cuMemGetHandleForAddressRange)
    WRAP(cuEventQuery)
    WRAP(cuStreamQuery)
}
