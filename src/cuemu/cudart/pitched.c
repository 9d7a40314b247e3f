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
    copy->srcMemoryType = ((kind == CUDART_MEMCPY_TO_HOST) ||
                           (kind == CUDART_MEMCPY_ON_DEVICE)) ?
                          CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_UNIFIED;
    copy->srcDevice     = (CUdeviceptr)(uintptr_t)src;
    copy->srcPitch      = src_pitch;
    copy->dstMemoryType = ((kind == CUDART_MEMCPY_TO_DEVICE) ||
                           (kind == CUDART_MEMCPY_ON_DEVICE)) ?
                          CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_UNIFIED;
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
CUDART_FORWARD_STREAM(cudaMemset2DAsync,
                      (void *ptr, size_t pitch, int value, size_t width,
                       size_t height, CUstream stream),
                      (width * height == 0) ? CUDA_SUCCESS :
                      cuMemsetD2D8Async((CUdeviceptr)(uintptr_t)ptr, pitch,
                                        (unsigned char)value, width, height,
                                        stream))

/* ------------------------------------------------------------------ boxes */

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaMalloc3D(cuemu_cudart_pitched_t *pitched, cuemu_cudart_box_t extent)
{
    CUdeviceptr dptr = 0;

    if (pitched == NULL) {
        return cuemu_cudart_return(CUDART_INVALID_VALUE);
    }
    memset(pitched, 0, sizeof(*pitched));
    if (extent.x * extent.y * extent.z == 0) {
        return cuemu_cudart_return(cuemu_cudart_enter());
    }
    pitched->xsize = extent.x;
    pitched->ysize = extent.y;
    CUEMU_CUDART_ADDRESS(&pitched->ptr, dptr,
                         cuMemAllocPitch(&dptr, &pitched->pitch, extent.x,
                                         extent.y * extent.z, 16));
}

static char *box_slice(const cuemu_cudart_pitched_t *pitched,
                       const cuemu_cudart_box_t *pos, size_t z)
{
    return (char*)pitched->ptr +
           ((pos->z + z) * pitched->ysize + pos->y) * pitched->pitch + pos->x;
}

cuemu_cudart_error_t cuemu_cudart_boxes(const cuemu_cudart_copy3d_t *p)
{
    return (p == NULL)                              ? CUDART_INVALID_VALUE :
           ((p->src_array != NULL) ||
            (p->dst_array != NULL))                 ? CUDART_NOT_SUPPORTED :
                                                      CUDART_SUCCESS;
}

/* Copy one slice after the other. `stream`: NULL for synchronous copies. */
static cuemu_cudart_error_t box_copy(const cuemu_cudart_copy3d_t *p,
                                     const CUstream *stream)
{
    cuemu_cudart_error_t error;
    size_t z;

    error = cuemu_cudart_boxes(p);
    if (error != CUDART_SUCCESS) {
        return cuemu_cudart_return(error);
    }

    for (z = 0; (z < p->extent.z) && (error == CUDART_SUCCESS); ++z) {
        error = (stream == NULL) ?
                cudaMemcpy2D(box_slice(&p->dst, &p->dst_pos, z), p->dst.pitch,
                             box_slice(&p->src, &p->src_pos, z), p->src.pitch,
                             p->extent.x, p->extent.y, p->kind) :
                cudaMemcpy2DAsync(box_slice(&p->dst, &p->dst_pos, z),
                                  p->dst.pitch,
                                  box_slice(&p->src, &p->src_pos, z),
                                  p->src.pitch, p->extent.x, p->extent.y,
                                  p->kind, *stream);
    }
    return error;
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaMemcpy3D(const cuemu_cudart_copy3d_t *p)
{
    return box_copy(p, NULL);
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaMemcpy3DAsync(const cuemu_cudart_copy3d_t *p, CUstream stream)
{
    return box_copy(p, &stream);
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaMemset3DAsync(cuemu_cudart_pitched_t pitched, int value,
                  cuemu_cudart_box_t extent, CUstream stream)
{
    cuemu_cudart_error_t error   = CUDART_SUCCESS;
    const cuemu_cudart_box_t pos = {0, 0, 0};
    size_t z;

    for (z = 0; (z < extent.z) && (error == CUDART_SUCCESS); ++z) {
        error = cudaMemset2DAsync(box_slice(&pitched, &pos, z), pitched.pitch,
                                  value, extent.x, extent.y, stream);
    }
    return error;
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaMemset3D(cuemu_cudart_pitched_t pitched, int value,
             cuemu_cudart_box_t extent)
{
    return cudaMemset3DAsync(pitched, value, extent, NULL);
}
