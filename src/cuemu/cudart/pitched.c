/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Runtime: copies and fills of rows with a pitch, in bytes.
 */
#include "cudart.h"

#include <string.h>


/* Describe a copy for the driver, or return the runtime's error. */
static cuemu_cudart_error_t
describe(CUDA_MEMCPY2D *copy, void *dst, size_t dst_pitch, const void *src,
         size_t src_pitch, size_t width, size_t height, int kind)
{
    if (cuemu_cudart_kind(kind) != CUDART_SUCCESS) {
        return CUDART_INVALID_MEMCPY_DIRECTION;
    }

    if ((width > dst_pitch) || (width > src_pitch)) {
        return CUDART_INVALID_PITCH;
    }

    memset(copy, 0, sizeof(*copy));
    copy->srcMemoryType = CU_MEMORYTYPE_UNIFIED;
    copy->srcDevice     = (CUdeviceptr)(uintptr_t)src;
    copy->srcPitch      = src_pitch;
    copy->dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    copy->dstDevice     = (CUdeviceptr)(uintptr_t)dst;
    copy->dstPitch      = dst_pitch;
    copy->WidthInBytes  = width;
    copy->Height        = height;
    return CUDART_SUCCESS;
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaMemcpy2D(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
             size_t width, size_t height, int kind)
{
    CUDA_MEMCPY2D copy;
    const cuemu_cudart_error_t error = describe(&copy, dst, dst_pitch, src,
                                                src_pitch, width, height, kind);

    if (error != CUDART_SUCCESS) {
        return cuemu_cudart_return(error);
    }

    CUEMU_CUDART_CALL((width * height == 0) ? CUDA_SUCCESS :
                                              cuMemcpy2DUnaligned(&copy));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src,
                  size_t src_pitch, size_t width, size_t height, int kind,
                  CUstream stream)
{
    CUDA_MEMCPY2D copy;
    const cuemu_cudart_error_t error = describe(&copy, dst, dst_pitch, src,
                                                src_pitch, width, height, kind);

    if (error != CUDART_SUCCESS) {
        return cuemu_cudart_return(error);
    }

    CUEMU_CUDART_CALL((width * height == 0) ? CUDA_SUCCESS :
                                              cuMemcpy2DAsync(&copy, stream));
}

CUDART_FORWARD(cudaMemset2D,
               (void *ptr, size_t pitch, int value, size_t width,
                size_t height),
               (width * height == 0) ? CUDA_SUCCESS :
               cuMemsetD2D8((CUdeviceptr)(uintptr_t)ptr, pitch,
                            (unsigned char)value, width, height))
CUDART_FORWARD(cudaMemset2DAsync,
               (void *ptr, size_t pitch, int value, size_t width,
                size_t height, CUstream stream),
               (width * height == 0) ? CUDA_SUCCESS :
               cuMemsetD2D8Async((CUdeviceptr)(uintptr_t)ptr, pitch,
                                 (unsigned char)value, width, height, stream))
