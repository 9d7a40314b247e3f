/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Functions of the CUDA driver. One list names all functions in use; the table,
 * the loader and the tests' fakes are generated from it.
 */
#ifndef UCT_CUDA_BASE_DRIVER_TABLE_H
#define UCT_CUDA_BASE_DRIVER_TABLE_H

#include <kernels/kernels.h>
#include <ucs/sys/compiler_def.h>

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

BEGIN_C_DECLS


/* Newest version present in all drivers; toolkits from 13 on declare newer ones
 * only */
CUresult CUDAAPI cuCtxCreate_v2(CUcontext *ctx_p, unsigned flags, CUdevice dev);

/* Missing in toolkits before 12.5 */
CUresult CUDAAPI cuCtxRecordEvent(CUcontext ctx, CUevent event);

/* CUmemcpyAttributes, missing in toolkits before 12.8 */
typedef struct {
    unsigned src_access_order; /* CUmemcpySrcAccessOrder */
    int      src_location[2];  /* Hints, for managed memory */
    int      dst_location[2];
    unsigned flags;
} uct_cuda_memcpy_attributes_t;

#define UCT_CUDA_SRC_ACCESS_ORDER_STREAM 1

/* First version, in drivers from 12.8 on, including 13 */
CUresult CUDAAPI cuMemcpyBatchAsync_v1(
        CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *lengths, size_t count,
        uct_cuda_memcpy_attributes_t *attributes, size_t *first,
        size_t num_attributes, size_t *failed_p, CUstream stream);



/*
 * _req/_opt(name in the source, exported symbol, arguments). A driver without a
 * _req function is unusable; a missing _opt function is NULL in the table.
 * Macros of cuda.h rename functions to their newest version, so the symbol is
 * given explicitly: the loaded function does not depend on the toolkit used for
 * compilation.
 */
#define UCT_CUDA_DRIVER_FUNCTIONS(_req, _opt) \
    /* the driver and its errors */ \
    _req(cuInit, "cuInit", (unsigned)) \
    _req(cuGetErrorName, "cuGetErrorName", (CUresult, const char**)) \
    /* devices */ \
    _req(cuDeviceGetCount, "cuDeviceGetCount", (int*)) \
    _req(cuDeviceGet, "cuDeviceGet", (CUdevice*, int)) \
    _req(cuDeviceGetName, "cuDeviceGetName", (char*, int, CUdevice)) \
    _req(cuDeviceGetUuid, "cuDeviceGetUuid", (CUuuid*, CUdevice)) \
    _req(cuDeviceGetAttribute, "cuDeviceGetAttribute", \
         (int*, CUdevice_attribute, CUdevice)) \
    _req(cuDeviceTotalMem, "cuDeviceTotalMem_v2", (size_t*, CUdevice)) \
    _req(cuDeviceGetPCIBusId, "cuDeviceGetPCIBusId", (char*, int, CUdevice)) \
    _req(cuDeviceCanAccessPeer, "cuDeviceCanAccessPeer", \
         (int*, CUdevice, CUdevice)) \
    _opt(cuDeviceGetP2PAttribute, "cuDeviceGetP2PAttribute", \
         (int*, CUdevice_P2PAttribute, CUdevice, CUdevice)) \
    /* contexts */ \
    _req(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", \
         (CUcontext*, CUdevice)) \
    _req(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", \
         (CUdevice)) \
    _req(cuDevicePrimaryCtxGetState, "cuDevicePrimaryCtxGetState", \
         (CUdevice, unsigned*, int*)) \
    _opt(cuCtxCreate_v2, "cuCtxCreate_v2", (CUcontext*, unsigned, CUdevice)) \
    _opt(cuCtxSetLimit, "cuCtxSetLimit", (CUlimit, size_t)) \
    _req(cuCtxPushCurrent, "cuCtxPushCurrent_v2", (CUcontext)) \
    _req(cuCtxPopCurrent, "cuCtxPopCurrent_v2", (CUcontext*)) \
    _req(cuCtxGetCurrent, "cuCtxGetCurrent", (CUcontext*)) \
    _req(cuCtxSetCurrent, "cuCtxSetCurrent", (CUcontext)) \
    _req(cuCtxGetDevice, "cuCtxGetDevice", (CUdevice*)) \
    _opt(cuCtxGetId, "cuCtxGetId", (CUcontext, unsigned long long*)) \
    _opt(cuCtxGetFlags, "cuCtxGetFlags", (unsigned*)) \
    _opt(cuCtxRecordEvent, "cuCtxRecordEvent", (CUcontext, CUevent)) \
    _req(cuCtxEnablePeerAccess, "cuCtxEnablePeerAccess", \
         (CUcontext, unsigned)) \
    /* memory */ \
    _req(cuMemAlloc, "cuMemAlloc_v2", (CUdeviceptr*, size_t)) \
    _req(cuMemFree, "cuMemFree_v2", (CUdeviceptr)) \
    _opt(cuMemFreeAsync, "cuMemFreeAsync", (CUdeviceptr, CUstream)) \
    _req(cuMemAllocManaged, "cuMemAllocManaged", \
         (CUdeviceptr*, size_t, unsigned)) \
    _req(cuMemHostAlloc, "cuMemHostAlloc", (void**, size_t, unsigned)) \
    _req(cuMemFreeHost, "cuMemFreeHost", (void*)) \
    _req(cuMemHostRegister, "cuMemHostRegister_v2", \
         (void*, size_t, unsigned)) \
    _req(cuMemHostUnregister, "cuMemHostUnregister", (void*)) \
    _req(cuMemGetAddressRange, "cuMemGetAddressRange_v2", \
         (CUdeviceptr*, size_t*, CUdeviceptr)) \
    _req(cuPointerGetAttribute, "cuPointerGetAttribute", \
         (void*, CUpointer_attribute, CUdeviceptr)) \
    _req(cuPointerGetAttributes, "cuPointerGetAttributes", \
         (unsigned, CUpointer_attribute*, void**, CUdeviceptr)) \
    _opt(cuPointerSetAttribute, "cuPointerSetAttribute", \
         (const void*, CUpointer_attribute, CUdeviceptr)) \
    _opt(cuMemRangeGetAttribute, "cuMemRangeGetAttribute", \
         (void*, size_t, CUmem_range_attribute, CUdeviceptr, size_t)) \
    _opt(cuMemGetHandleForAddressRange, "cuMemGetHandleForAddressRange", \
         (void*, CUdeviceptr, size_t, CUmemRangeHandleType, \
          unsigned long long)) \
    /* memory of other processes */ \
    _req(cuIpcGetMemHandle, "cuIpcGetMemHandle", \
         (CUipcMemHandle*, CUdeviceptr)) \
    _req(cuIpcOpenMemHandle, "cuIpcOpenMemHandle_v2", \
         (CUdeviceptr*, CUipcMemHandle, unsigned)) \
    _req(cuIpcCloseMemHandle, "cuIpcCloseMemHandle", (CUdeviceptr)) \
    /* virtual memory management */ \
    _opt(cuMemGetAllocationGranularity, "cuMemGetAllocationGranularity", \
         (size_t*, const CUmemAllocationProp*, \
          CUmemAllocationGranularity_flags)) \
    _opt(cuMemCreate, "cuMemCreate", \
         (CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*, \
          unsigned long long)) \
    _opt(cuMemRelease, "cuMemRelease", (CUmemGenericAllocationHandle)) \
    _opt(cuMemAddressReserve, "cuMemAddressReserve", \
         (CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long)) \
    _opt(cuMemAddressFree, "cuMemAddressFree", (CUdeviceptr, size_t)) \
    _opt(cuMemMap, "cuMemMap", \
         (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, \
          unsigned long long)) \
    _opt(cuMemUnmap, "cuMemUnmap", (CUdeviceptr, size_t)) \
    _opt(cuMemSetAccess, "cuMemSetAccess", \
         (CUdeviceptr, size_t, const CUmemAccessDesc*, size_t)) \
    _opt(cuMemGetAccess, "cuMemGetAccess", \
         (unsigned long long*, const CUmemLocation*, CUdeviceptr)) \
    _opt(cuMemRetainAllocationHandle, "cuMemRetainAllocationHandle", \
         (CUmemGenericAllocationHandle*, void*)) \
    _opt(cuMemExportToShareableHandle, "cuMemExportToShareableHandle", \
         (void*, CUmemGenericAllocationHandle, CUmemAllocationHandleType, \
          unsigned long long)) \
    _opt(cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle", \
         (CUmemGenericAllocationHandle*, void*, CUmemAllocationHandleType)) \
    /* memory pools */ \
    _opt(cuMemAllocAsync, "cuMemAllocAsync", \
         (CUdeviceptr*, size_t, CUstream)) \
    _opt(cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", \
         (CUdeviceptr*, size_t, CUmemoryPool, CUstream)) \
    _opt(cuMemPoolDestroy, "cuMemPoolDestroy", (CUmemoryPool)) \
    _opt(cuMemPoolGetAttribute, "cuMemPoolGetAttribute", \
         (CUmemoryPool, CUmemPool_attribute, void*)) \
    _opt(cuMemPoolSetAccess, "cuMemPoolSetAccess", \
         (CUmemoryPool, const CUmemAccessDesc*, size_t)) \
    _opt(cuMemPoolExportToShareableHandle, \
         "cuMemPoolExportToShareableHandle", \
         (void*, CUmemoryPool, CUmemAllocationHandleType, \
          unsigned long long)) \
    _opt(cuMemPoolImportFromShareableHandle, \
         "cuMemPoolImportFromShareableHandle", \
         (CUmemoryPool*, void*, CUmemAllocationHandleType, \
          unsigned long long)) \
    _opt(cuMemPoolExportPointer, "cuMemPoolExportPointer", \
         (CUmemPoolPtrExportData*, CUdeviceptr)) \
    _opt(cuMemPoolImportPointer, "cuMemPoolImportPointer", \
         (CUdeviceptr*, CUmemoryPool, CUmemPoolPtrExportData*)) \
    /* copies */ \
    _req(cuMemcpy, "cuMemcpy", (CUdeviceptr, CUdeviceptr, size_t)) \
    _req(cuMemcpy2DAsync, "cuMemcpy2DAsync_v2", \
         (const CUDA_MEMCPY2D*, CUstream)) \
    _req(cuMemcpyAsync, "cuMemcpyAsync", \
         (CUdeviceptr, CUdeviceptr, size_t, CUstream)) \
    _req(cuMemcpyHtoD, "cuMemcpyHtoD_v2", \
         (CUdeviceptr, const void*, size_t)) \
    _req(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", \
         (CUdeviceptr, const void*, size_t, CUstream)) \
    _req(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", \
         (void*, CUdeviceptr, size_t, CUstream)) \
    _req(cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2", \
         (CUdeviceptr, CUdeviceptr, size_t, CUstream)) \
    _opt(cuMemcpyBatchAsync_v1, "cuMemcpyBatchAsync", \
         (CUdeviceptr*, CUdeviceptr*, size_t*, size_t, \
          uct_cuda_memcpy_attributes_t*, size_t*, size_t, size_t*, \
          CUstream)) \
    _req(cuMemsetD8, "cuMemsetD8_v2", (CUdeviceptr, unsigned char, size_t)) \
    /* streams and events */ \
    _req(cuStreamCreate, "cuStreamCreate", (CUstream*, unsigned)) \
    _opt(cuStreamCreateWithPriority, "cuStreamCreateWithPriority", \
         (CUstream*, unsigned, int)) \
    _opt(cuStreamWriteValue32, "cuStreamWriteValue32_v2", \
         (CUstream, CUdeviceptr, cuuint32_t, unsigned)) \
    _req(cuStreamDestroy, "cuStreamDestroy_v2", (CUstream)) \
    _req(cuStreamQuery, "cuStreamQuery", (CUstream)) \
    _req(cuStreamSynchronize, "cuStreamSynchronize", (CUstream)) \
    _req(cuStreamWaitEvent, "cuStreamWaitEvent", \
         (CUstream, CUevent, unsigned)) \
    _req(cuEventCreate, "cuEventCreate", (CUevent*, unsigned)) \
    _req(cuEventDestroy, "cuEventDestroy_v2", (CUevent)) \
    _req(cuEventRecord, "cuEventRecord", (CUevent, CUstream)) \
    _req(cuEventQuery, "cuEventQuery", (CUevent)) \
    _req(cuEventSynchronize, "cuEventSynchronize", (CUevent)) \
    _req(cuEventElapsedTime, "cuEventElapsedTime", \
         (float*, CUevent, CUevent)) \
    _opt(cuStreamIsCapturing, "cuStreamIsCapturing", \
         (CUstream, CUstreamCaptureStatus*)) \
    _opt(cuThreadExchangeStreamCaptureMode, \
         "cuThreadExchangeStreamCaptureMode", (CUstreamCaptureMode*)) \
    _req(cuLaunchHostFunc, "cuLaunchHostFunc", \
         (CUstream, CUhostFn, void*)) \
    /* kernels */ \
    _opt(cuModuleLoadData, "cuModuleLoadData", (CUmodule*, const void*)) \
    _opt(cuModuleGetFunction, "cuModuleGetFunction", \
         (CUfunction*, CUmodule, const char*)) \
    _opt(cuModuleUnload, "cuModuleUnload", (CUmodule)) \
    _opt(cuLaunchKernel, "cuLaunchKernel", \
         (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, \
          unsigned, unsigned, CUstream, void**, void**)) \
    /* graphs */ \
    _opt(cuGraphCreate, "cuGraphCreate", (CUgraph*, unsigned)) \
    _opt(cuGraphDestroy, "cuGraphDestroy", (CUgraph)) \
    _opt(cuGraphAddMemcpyNode, "cuGraphAddMemcpyNode", \
         (CUgraphNode*, CUgraph, const CUgraphNode*, size_t, \
          const CUDA_MEMCPY3D*, CUcontext)) \
    _opt(cuGraphAddEventRecordNode, "cuGraphAddEventRecordNode", \
         (CUgraphNode*, CUgraph, const CUgraphNode*, size_t, CUevent)) \
    _opt(cuGraphAddEventWaitNode, "cuGraphAddEventWaitNode", \
         (CUgraphNode*, CUgraph, const CUgraphNode*, size_t, CUevent)) \
    _opt(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags", \
         (CUgraphExec*, CUgraph, unsigned long long)) \
    _opt(cuGraphExecMemcpyNodeSetParams, "cuGraphExecMemcpyNodeSetParams", \
         (CUgraphExec, CUgraphNode, const CUDA_MEMCPY3D*, CUcontext)) \
    _opt(cuGraphExecDestroy, "cuGraphExecDestroy", (CUgraphExec)) \
    _opt(cuGraphLaunch, "cuGraphLaunch", (CUgraphExec, CUstream))


#define UCT_CUDA_DRIVER_MEMBER(_name, _symbol, _args) CUresult(*_name) _args;

/** The driver's functions. Members carry cuda.h's names.
 *  uct_cuda_capture_wrap() wraps those that would invalidate the program's
 *  captures. */
typedef struct uct_cuda_driver {
    UCT_CUDA_DRIVER_FUNCTIONS(UCT_CUDA_DRIVER_MEMBER, UCT_CUDA_DRIVER_MEMBER)
} uct_cuda_driver_t;


/** Fill in the functions that load and launch kernels. @return false: the
 *  driver lacks one. */
static inline bool uct_cuda_driver_kernels(const uct_cuda_driver_t *driver,
                                           ucx_mp_kernels_driver_t *kernels)
{
    kernels->ModuleLoadData    = driver->cuModuleLoadData;
    kernels->ModuleGetFunction = driver->cuModuleGetFunction;
    kernels->ModuleUnload      = driver->cuModuleUnload;
    kernels->LaunchKernel      = driver->cuLaunchKernel;
    return (kernels->ModuleLoadData != NULL) &&
           (kernels->ModuleGetFunction != NULL) &&
           (kernels->ModuleUnload != NULL) && (kernels->LaunchKernel != NULL);
}


END_C_DECLS

#endif
