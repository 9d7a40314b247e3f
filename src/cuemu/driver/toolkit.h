/* SPDX-License-Identifier: BSD-3-Clause */

/* cuda.h, with additions for older toolkits, from 12.0 on. Values and layouts
   are the driver API's. */
#ifndef CUEMU_TOOLKIT_H_
#define CUEMU_TOOLKIT_H_

#include <cuda.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#if CUDA_VERSION < 12010
#define CU_CTX_SYNC_MEMOPS 0x80

CUresult CUDAAPI cuCtxSetFlags(unsigned flags);
#endif

#if CUDA_VERSION < 12020
#define CU_DEVICE_ATTRIBUTE_NUMA_ID      131
#define CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID 134
#define CU_MEM_LOCATION_TYPE_HOST        ((CUmemLocationType)2)

CUresult CUDAAPI cuMemAdvise_v2(CUdeviceptr ptr, size_t count,
                                CUmem_advise advice, CUmemLocation location);
CUresult CUDAAPI cuMemPrefetchAsync_v2(CUdeviceptr ptr, size_t count,
                                       CUmemLocation location, unsigned flags,
                                       CUstream stream);
#endif

#if CUDA_VERSION < 12030
CUresult CUDAAPI cuFuncGetName(const char **name, CUfunction function);

typedef struct {
    unsigned char from_port;
    unsigned char to_port;
    unsigned char type;
    unsigned char reserved[5];
} CUgraphEdgeData;

CUresult CUDAAPI cuStreamGetCaptureInfo_v3(
        CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
        CUgraph *graph, const CUgraphNode **deps, const CUgraphEdgeData **data,
        size_t *num_deps);
CUresult CUDAAPI cuGraphAddDependencies_v2(
        CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
        const CUgraphEdgeData *data, size_t count);
CUresult CUDAAPI cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from,
                                    CUgraphNode *to, CUgraphEdgeData *data,
                                    size_t *count);
CUresult CUDAAPI cuGraphNodeGetDependencies_v2(CUgraphNode node,
                                               CUgraphNode *deps,
                                               CUgraphEdgeData *data,
                                               size_t *count);
#define CU_MEM_HANDLE_TYPE_FABRIC ((CUmemAllocationHandleType)8)

typedef struct {
    unsigned char data[64];
} CUmemFabricHandle;
#endif

#if CUDA_VERSION < 12050
CUresult CUDAAPI cuCtxRecordEvent(CUcontext ctx, CUevent event);
#endif

#if CUDA_VERSION < 12080
CUresult CUDAAPI cuStreamGetDevice(CUstream stream, CUdevice *device);

enum {
    CU_MEMCPY_SRC_ACCESS_ORDER_STREAM = 1,
    CU_MEMCPY_SRC_ACCESS_ORDER_ANY    = 3
};

typedef struct {
    unsigned      srcAccessOrder;
    CUmemLocation srcLocHint;
    CUmemLocation dstLocHint;
    unsigned      flags;
} CUmemcpyAttributes;

CUresult CUDAAPI cuMemcpyBatchAsync(
        CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
        CUmemcpyAttributes *attributes, size_t *first, size_t num_attributes,
        size_t *failed, CUstream stream);
#endif

#ifdef __cplusplus
}
#endif

#endif
