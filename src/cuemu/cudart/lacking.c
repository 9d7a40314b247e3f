/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Functions that programs link (tests/lookups.txt) but this runtime does not
 * support. They exist because a program with an undefined symbol may not start.
 * They return "not supported", and print this on stderr once.
 */
#include "cudart.h"

#include <stdio.h>

#define CUEMU_CUDART_LACKS(_name) \
    CUEMU_CUDART_EXPORT cuemu_cudart_error_t _name(void); \
    CUEMU_CUDART_EXPORT cuemu_cudart_error_t _name(void) \
    { \
        static int is_reported; \
        if (!__atomic_exchange_n(&is_reported, 1, __ATOMIC_RELAXED)) { \
            fprintf(stderr, "cuemu: the emulated runtime has no " #_name \
                            "; it returns cudaErrorNotSupported\n"); \
        } \
        return cuemu_cudart_return(CUDART_NOT_SUPPORTED); \
    }

CUEMU_CUDART_LACKS(cudaArrayGetInfo)
CUEMU_CUDART_LACKS(cudaChooseDevice)
CUEMU_CUDART_LACKS(cudaCreateSurfaceObject)
CUEMU_CUDART_LACKS(cudaCreateTextureObject)
CUEMU_CUDART_LACKS(cudaDestroySurfaceObject)
CUEMU_CUDART_LACKS(cudaDestroyTextureObject)
CUEMU_CUDART_LACKS(cudaDeviceGetGraphMemAttribute)
CUEMU_CUDART_LACKS(cudaDeviceGraphMemTrim)
CUEMU_CUDART_LACKS(cudaFreeArray)
CUEMU_CUDART_LACKS(cudaFreeMipmappedArray)
CUEMU_CUDART_LACKS(cudaGetChannelDesc)
CUEMU_CUDART_LACKS(cudaGetKernel)
CUEMU_CUDART_LACKS(cudaGetMipmappedArrayLevel)
CUEMU_CUDART_LACKS(cudaGraphAddChildGraphNode)
CUEMU_CUDART_LACKS(cudaGraphAddMemAllocNode)
CUEMU_CUDART_LACKS(cudaGraphAddMemFreeNode)
CUEMU_CUDART_LACKS(cudaGraphAddNode)
CUEMU_CUDART_LACKS(cudaGraphConditionalHandleCreate)
CUEMU_CUDART_LACKS(cudaGraphDebugDotPrint)
CUEMU_CUDART_LACKS(cudaGraphExecMemsetNodeSetParams)
CUEMU_CUDART_LACKS(cudaGraphicsMapResources)
CUEMU_CUDART_LACKS(cudaGraphInstantiateWithParams)
CUEMU_CUDART_LACKS(cudaGraphKernelNodeGetParams)
CUEMU_CUDART_LACKS(cudaGraphKernelNodeSetParams)
CUEMU_CUDART_LACKS(cudaGraphNodeGetDependentNodes)
CUEMU_CUDART_LACKS(cudaImportExternalMemory)
CUEMU_CUDART_LACKS(cudaImportExternalSemaphore)
CUEMU_CUDART_LACKS(cudaIpcGetEventHandle)
CUEMU_CUDART_LACKS(cudaIpcOpenEventHandle)
CUEMU_CUDART_LACKS(cudaLibraryGetKernel)
CUEMU_CUDART_LACKS(cudaLibraryLoadData)
CUEMU_CUDART_LACKS(cudaLibraryUnload)
CUEMU_CUDART_LACKS(cudaMalloc3DArray)
CUEMU_CUDART_LACKS(cudaMallocArray)
CUEMU_CUDART_LACKS(cudaMallocMipmappedArray)
CUEMU_CUDART_LACKS(cudaMemcpy2DFromArray)
CUEMU_CUDART_LACKS(cudaMemcpy2DToArray)
CUEMU_CUDART_LACKS(cudaMemcpy2DToArrayAsync)
CUEMU_CUDART_LACKS(cudaMemcpy3DPeer)
CUEMU_CUDART_LACKS(cudaMemcpy3DPeerAsync)
CUEMU_CUDART_LACKS(cudaMemcpyBatchAsync)
CUEMU_CUDART_LACKS(cudaOccupancyAvailableDynamicSMemPerBlock)
CUEMU_CUDART_LACKS(cudaOccupancyMaxActiveClusters)
CUEMU_CUDART_LACKS(cudaOccupancyMaxPotentialClusterSize)
CUEMU_CUDART_LACKS(cudaStreamBeginCaptureToGraph)
CUEMU_CUDART_LACKS(cudaStreamGetAttribute)
CUEMU_CUDART_LACKS(cudaStreamSetAttribute)
CUEMU_CUDART_LACKS(cudaUserObjectCreate)

/* cudaChannelFormatDesc: it is returned, unlike other results, so that a
   function that returns an error would not do */
typedef struct {
    int x, y, z, w, kind;
} cuemu_cudart_channel_t;

CUEMU_CUDART_EXPORT cuemu_cudart_channel_t
cudaCreateChannelDesc(int x, int y, int z, int w, int kind);

CUEMU_CUDART_EXPORT cuemu_cudart_channel_t
cudaCreateChannelDesc(int x, int y, int z, int w, int kind)
{
    return (cuemu_cudart_channel_t){x, y, z, w, kind};
}
