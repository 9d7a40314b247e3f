/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Runtime: stream-ordered memory and its pools. Pools, their attributes and
 * properties are the driver's, with the same numbers.
 */
#include "cudart.h"

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaMallocFromPoolAsync(void **ptr, size_t size, CUmemoryPool pool,
                        CUstream stream)
{
    CUdeviceptr dptr = 0;

    if (ptr == NULL) {
        return cuemu_cudart_return(CUDART_INVALID_VALUE);
    }
    CUEMU_CUDART_ADDRESS(ptr, dptr,
                         (pool == NULL) ?
                         cuMemAllocAsync(&dptr, size, stream) :
                         cuMemAllocFromPoolAsync(&dptr, size, pool, stream));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaMallocAsync(void **ptr, size_t size, CUstream stream)
{
    return cudaMallocFromPoolAsync(ptr, size, NULL, stream);
}

CUDART_FORWARD_STREAM(cudaFreeAsync, (void *ptr, CUstream stream),
                      cuMemFreeAsync((CUdeviceptr)(uintptr_t)ptr, stream))
CUDART_FORWARD_PLAIN(cudaDeviceGetDefaultMemPool,
                     (CUmemoryPool *pool, int device),
                     cuDeviceGetDefaultMemPool(pool, device))
CUDART_FORWARD_PLAIN(cudaDeviceGetMemPool, (CUmemoryPool *pool, int device),
                     cuDeviceGetMemPool(pool, device))
CUDART_FORWARD_PLAIN(cudaDeviceSetMemPool, (int device, CUmemoryPool pool),
                     cuDeviceSetMemPool(device, pool))
CUDART_FORWARD_PLAIN(cudaMemPoolCreate,
                     (CUmemoryPool *pool, const CUmemPoolProps *props),
                     cuMemPoolCreate(pool, props))
CUDART_FORWARD_PLAIN(cudaMemPoolDestroy, (CUmemoryPool pool),
                     cuMemPoolDestroy(pool))
CUDART_FORWARD_PLAIN(cudaMemPoolSetAttribute,
                     (CUmemoryPool pool, CUmemPool_attribute attr, void *value),
                     cuMemPoolSetAttribute(pool, attr, value))
CUDART_FORWARD_PLAIN(cudaMemPoolGetAttribute,
                     (CUmemoryPool pool, CUmemPool_attribute attr, void *value),
                     cuMemPoolGetAttribute(pool, attr, value))
CUDART_FORWARD_PLAIN(cudaMemPoolSetAccess,
                     (CUmemoryPool pool, const CUmemAccessDesc *list,
                      size_t count),
                     cuMemPoolSetAccess(pool, list, count))
CUDART_FORWARD_PLAIN(cudaMemPoolGetAccess,
                     (CUmemAccess_flags *flags, CUmemoryPool pool,
                      CUmemLocation *location),
                     cuMemPoolGetAccess(flags, pool, location))
CUDART_FORWARD_PLAIN(cudaMemPoolTrimTo, (CUmemoryPool pool, size_t keep),
                     cuMemPoolTrimTo(pool, keep))
CUDART_FORWARD_PLAIN(cudaMemPoolExportToShareableHandle,
                     (void *handle, CUmemoryPool pool, int type,
                      unsigned flags),
                     cuMemPoolExportToShareableHandle(
                             handle, pool, (CUmemAllocationHandleType)type,
                             flags))
CUDART_FORWARD_PLAIN(cudaMemPoolImportFromShareableHandle,
                     (CUmemoryPool *pool, void *handle, int type,
                      unsigned flags),
                     cuMemPoolImportFromShareableHandle(
                             pool, handle, (CUmemAllocationHandleType)type,
                             flags))
CUDART_FORWARD_PLAIN(cudaMemPoolExportPointer,
                     (CUmemPoolPtrExportData *data, void *ptr),
                     cuMemPoolExportPointer(data, (CUdeviceptr)(uintptr_t)ptr))

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaMemPoolImportPointer(void **ptr, CUmemoryPool pool,
                         CUmemPoolPtrExportData *data)
{
    CUdeviceptr dptr = 0;

    if (ptr == NULL) {
        return cuemu_cudart_return(CUDART_INVALID_VALUE);
    }
    CUEMU_CUDART_ADDRESS(ptr, dptr, cuMemPoolImportPointer(&dptr, pool, data));
}
