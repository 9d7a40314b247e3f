/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Runtime: memory, copies, handles for other processes.
 */
#include "cudart.h"

#include <string.h>

#define CUEMU_PTR(_ptr)  ((CUdeviceptr)(uintptr_t)(_ptr))

enum {
    CUDART_MEMORY_UNREGISTERED = 0,
    CUDART_MEMORY_HOST        = 1,
    CUDART_MEMORY_DEVICE      = 2,
    CUDART_MEMORY_MANAGED     = 3
};

/* cudaPointerAttributes; CUDA 13 made it longer */
typedef struct {
    int  type;
    int  device;
    void *device_pointer;
    void *host_pointer;
#if CUEMU_CUDART_MAJOR >= 13
    long reserved[8];
#endif
} cuemu_cudart_pointer_t;


/* ------------------------------------------------------------ allocation */

CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaMalloc(void **ptr, size_t size)
{
    CUdeviceptr dptr = 0;

    if (ptr == NULL) {
        return cuemu_cudart_return(CUDART_INVALID_VALUE);
    }
    *ptr = NULL;
    CUEMU_CUDART_ADDRESS(ptr, dptr, (size == 0) ? CUDA_SUCCESS :
                                                  cuMemAlloc(&dptr, size));
}

CUDART_FORWARD(cudaFree, (void *ptr),
               (ptr == NULL) ? CUDA_SUCCESS : cuMemFree(CUEMU_PTR(ptr)))

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaMallocPitch(void **ptr, size_t *pitch, size_t width, size_t height)
{
    CUdeviceptr dptr = 0;

    if ((ptr == NULL) || (pitch == NULL)) {
        return cuemu_cudart_return(CUDART_INVALID_VALUE);
    }
    CUEMU_CUDART_ADDRESS(ptr, dptr,
                         cuMemAllocPitch(&dptr, pitch, width, height, 16));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaMallocManaged(void **ptr, size_t size, unsigned flags)
{
    CUdeviceptr dptr = 0;

    if ((ptr == NULL) || (size == 0)) {
        return cuemu_cudart_return(CUDART_INVALID_VALUE);
    }
    flags = (flags == 0) ? CU_MEM_ATTACH_GLOBAL : flags;
    CUEMU_CUDART_ADDRESS(ptr, dptr, cuMemAllocManaged(&dptr, size, flags));
}

CUDART_FORWARD(cudaHostAlloc, (void **ptr, size_t size, unsigned flags),
               cuMemHostAlloc(ptr, size, flags))
CUDART_FORWARD(cudaMallocHost, (void **ptr, size_t size),
               cuMemAllocHost(ptr, size))
CUDART_FORWARD(cudaFreeHost, (void *ptr),
               (ptr == NULL) ? CUDA_SUCCESS : cuMemFreeHost(ptr))
CUDART_FORWARD(cudaHostRegister, (void *ptr, size_t size, unsigned flags),
               cuMemHostRegister(ptr, size, flags))
CUDART_FORWARD(cudaHostUnregister, (void *ptr), cuMemHostUnregister(ptr))

CUDART_FORWARD(cudaHostGetFlags, (unsigned *flags, void *ptr),
               cuMemHostGetFlags(flags, ptr))

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaHostGetDevicePointer(void **device, void *host, unsigned flags)
{
    CUdeviceptr dptr = 0;

    if (device == NULL) {
        return cuemu_cudart_return(CUDART_INVALID_VALUE);
    }
    CUEMU_CUDART_ADDRESS(device, dptr,
                         cuMemHostGetDevicePointer(&dptr, host, flags));
}

CUDART_FORWARD(cudaMemGetInfo, (size_t *free, size_t *total),
               cuMemGetInfo(free, total))

static cuemu_cudart_error_t
cuemu_cudart_pointer(cuemu_cudart_pointer_t *attrs, const void *ptr)
{
    CUdeviceptr dptr  = CUEMU_PTR(ptr);
    CUdeviceptr dev   = 0;
    unsigned managed  = 0;
    unsigned type     = 0;
    void *host        = NULL;
    int device        = 0;

    memset(attrs, 0, sizeof(*attrs));
    attrs->type   = CUDART_MEMORY_UNREGISTERED;
    attrs->device = -2; /* as the runtime reports for unknown memory */
    attrs->host_pointer = (void*)ptr;
    if ((cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                               dptr) != CUDA_SUCCESS) || (type == 0)) {
        return CUDART_SUCCESS;
    }

    cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, dptr);
    cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, dptr);
    if (cuPointerGetAttribute(&dev, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                              dptr) != CUDA_SUCCESS) {
        dev = dptr;
    }
    if (cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER,
                              dptr) != CUDA_SUCCESS) {
        host = NULL;
    }

    attrs->type           = managed ? CUDART_MEMORY_MANAGED :
                            ((type == CU_MEMORYTYPE_HOST) ?
                             CUDART_MEMORY_HOST : CUDART_MEMORY_DEVICE);
    attrs->device         = device;
    attrs->device_pointer = (void*)(uintptr_t)dev;
    attrs->host_pointer   = (attrs->type == CUDART_MEMORY_DEVICE) ? NULL :
                            ((host != NULL) ? host : (void*)ptr);
    return CUDART_SUCCESS;
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaPointerGetAttributes(cuemu_cudart_pointer_t *attributes, const void *ptr)
{
    if (attributes == NULL) {
        return cuemu_cudart_return(CUDART_INVALID_VALUE);
    }
    CUEMU_CUDART_CALL(cuemu_cudart_pointer(attributes, ptr));
}


/* ---------------------------------------------------------------- copies */

cuemu_cudart_error_t cuemu_cudart_kind(int kind)
{
    return ((kind < 0) || (kind > CUDART_MEMCPY_DEFAULT)) ?
           CUDART_INVALID_MEMCPY_DIRECTION : CUDART_SUCCESS;
}

/* Copy `count` bytes by the driver's function for this kind, which checks that
   the operands fit; _suffix: Async or nothing. */
#define CUDART_COPY(_suffix, ...) \
    ((cuemu_cudart_kind(kind) != CUDART_SUCCESS) ? \
     CUDART_INVALID_MEMCPY_DIRECTION : \
     (count == 0) ? CUDART_SUCCESS : (cuemu_cudart_error_t)( \
     (kind == CUDART_MEMCPY_TO_DEVICE) ? \
     cuMemcpyHtoD##_suffix(CUEMU_PTR(dst), src, __VA_ARGS__) : \
     (kind == CUDART_MEMCPY_TO_HOST) ? \
     cuMemcpyDtoH##_suffix(dst, CUEMU_PTR(src), __VA_ARGS__) : \
     (kind == CUDART_MEMCPY_ON_DEVICE) ? \
     cuMemcpyDtoD##_suffix(CUEMU_PTR(dst), CUEMU_PTR(src), __VA_ARGS__) : \
     cuMemcpy##_suffix(CUEMU_PTR(dst), CUEMU_PTR(src), __VA_ARGS__)))

CUDART_FORWARD(cudaMemcpy,
               (void *dst, const void *src, size_t count, int kind),
               CUDART_COPY(, count))
CUDART_FORWARD_STREAM(cudaMemcpyAsync,
                      (void *dst, const void *src, size_t count, int kind,
                       CUstream stream),
                      CUDART_COPY(Async, count, stream))
CUDART_FORWARD(cudaMemcpyPeer,
               (void *dst, int dstDevice, const void *src, int srcDevice,
                size_t count),
               cuMemcpy(CUEMU_PTR(dst), CUEMU_PTR(src), count))
CUDART_FORWARD_STREAM(cudaMemcpyPeerAsync,
                      (void *dst, int dstDevice, const void *src, int srcDevice,
                       size_t count, CUstream stream),
                      cuMemcpyAsync(CUEMU_PTR(dst), CUEMU_PTR(src), count,
                                    stream))
CUDART_FORWARD(cudaMemset, (void *ptr, int value, size_t count),
               (count == 0) ? CUDA_SUCCESS :
               cuMemsetD8(CUEMU_PTR(ptr), (unsigned char)value, count))
CUDART_FORWARD_STREAM(cudaMemsetAsync,
                      (void *ptr, int value, size_t count, CUstream stream),
                      (count == 0) ? CUDA_SUCCESS :
                      cuMemsetD8Async(CUEMU_PTR(ptr), (unsigned char)value,
                                      count, stream))

/* cudaMemLocation is the driver's. Before CUDA 13 a device, or negative for the
   host (cudaCpuDeviceId) */
#if CUEMU_CUDART_MAJOR >= 13
#define CUEMU_CUDART_WHERE     CUmemLocation
#define CUEMU_CUDART_PLACE(_w) (_w)
#else
#define CUEMU_CUDART_WHERE     int
#define CUEMU_CUDART_PLACE(_w) \
    ((CUmemLocation){.type = ((_w) >= 0) ? CU_MEM_LOCATION_TYPE_DEVICE : \
                                           CU_MEM_LOCATION_TYPE_HOST, \
                     .id   = (_w)})
#endif

/* Hints, which have no effect here */
CUDART_FORWARD(cudaMemPrefetchAsync,
               (const void *ptr, size_t count, CUEMU_CUDART_WHERE where),
               cuMemPrefetchAsync_v2(CUEMU_PTR(ptr), count,
                                     CUEMU_CUDART_PLACE(where), 0, NULL))
CUDART_FORWARD(cudaMemAdvise,
               (const void *ptr, size_t count, int advice,
                CUEMU_CUDART_WHERE where),
               cuMemAdvise_v2(CUEMU_PTR(ptr), count, (CUmem_advise)advice,
                              CUEMU_CUDART_PLACE(where)))

CUDART_FORWARD(cudaMemRangeGetAttribute,
               (void *data, size_t size, int attribute, const void *ptr,
                size_t count),
               cuMemRangeGetAttribute(data, size,
                                      (CUmem_range_attribute)attribute,
                                      CUEMU_PTR(ptr), count))

/* A hint, as well; a length of 0 means all */
CUDART_FORWARD_STREAM(
    cudaStreamAttachMemAsync,
    (CUstream stream, void *ptr, size_t length, unsigned flags),
    cuMemPrefetchAsync_v2(CUEMU_PTR(ptr), 1,
                          (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST}, 0,
                          stream))

/* -------------------------------------------------- handles for processes */

CUDART_FORWARD(cudaIpcGetMemHandle, (CUipcMemHandle *handle, void *ptr),
               cuIpcGetMemHandle(handle, CUEMU_PTR(ptr)))

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaIpcOpenMemHandle(void **ptr, CUipcMemHandle handle, unsigned flags)
{
    CUdeviceptr dptr = 0;

    if (ptr == NULL) {
        return cuemu_cudart_return(CUDART_INVALID_VALUE);
    }
    CUEMU_CUDART_ADDRESS(ptr, dptr, cuIpcOpenMemHandle(&dptr, handle, flags));
}

CUDART_FORWARD(cudaIpcCloseMemHandle, (void *ptr),
               cuIpcCloseMemHandle(CUEMU_PTR(ptr)))
