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
    cuemu_cudart_error_t error;
    CUresult result;

    if (ptr == NULL) {
        return cuemu_cudart_return(CUDART_INVALID_VALUE);
    }

    error = cuemu_cudart_enter();
    if (error == CUDART_SUCCESS) {
        result = (pool == NULL) ?
                     cuMemAllocAsync(&dptr, size, stream) :
                     cuMemAllocFromPoolAsync(&dptr, size, pool, stream);
        error  = (cuemu_cudart_error_t)result;
        *ptr   = (error == CUDART_SUCCESS) ? (void*)(uintptr_t)dptr : NULL;
    }
    return cuemu_cudart_return(error);
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaMallocAsync(void **ptr, size_t size, CUstream stream)
{
    return cudaMallocFromPoolAsync(ptr, size, NULL, stream);
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaFreeAsync(void *ptr,
                                                       CUstream stream)
{
    CUEMU_CUDART_CALL(cuMemFreeAsync((CUdeviceptr)(uintptr_t)ptr, stream));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaDeviceGetDefaultMemPool(CUmemoryPool *pool, int device)
{
    CUEMU_CUDART_PLAIN_CALL(cuDeviceGetDefaultMemPool(pool, device));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaDeviceGetMemPool(CUmemoryPool *pool, int device)
{
    CUEMU_CUDART_PLAIN_CALL(cuDeviceGetMemPool(pool, device));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaDeviceSetMemPool(int device,
                                                              CUmemoryPool pool)
{
    CUEMU_CUDART_PLAIN_CALL(cuDeviceSetMemPool(device, pool));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
    CUEMU_CUDART_PLAIN_CALL(cuMemPoolCreate(pool, props));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaMemPoolDestroy(CUmemoryPool pool)
{
    CUEMU_CUDART_PLAIN_CALL(cuMemPoolDestroy(pool));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr,
                        void *value)
{
    CUEMU_CUDART_PLAIN_CALL(cuMemPoolSetAttribute(pool, attr, value));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr,
                        void *value)
{
    CUEMU_CUDART_PLAIN_CALL(cuMemPoolGetAttribute(pool, attr, value));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *list,
                     size_t count)
{
    CUEMU_CUDART_PLAIN_CALL(cuMemPoolSetAccess(pool, list, count));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaMemPoolTrimTo(CUmemoryPool pool,
                                                           size_t keep)
{
    CUEMU_CUDART_PLAIN_CALL(cuMemPoolTrimTo(pool, keep));
}
