/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Runtime: memory, copies, handles for other processes.
 */
#include "cudart.h"

#include <string.h>

#define CUEMU_PTR(_ptr)  ((CUdeviceptr)(uintptr_t)(_ptr))

enum {
    CUDART_MEMCPY_LAST_KIND   = 4, /* cudaMemcpyDefault */
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
    cuemu_cudart_error_t error;

    if (ptr == NULL) {
        return cuemu_cudart_return(CUDART_INVALID_VALUE);
    }

    *ptr  = NULL;
    error = cuemu_cudart_enter();
    if ((error == CUDART_SUCCESS) && (size > 0)) {
        error = (cuemu_cudart_error_t)cuMemAlloc(&dptr, size);
        *ptr  = (error == CUDART_SUCCESS) ? (void*)(uintptr_t)dptr : NULL;
    }
    return cuemu_cudart_return(error);
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaFree(void *ptr)
{
    CUEMU_CUDART_CALL((ptr == NULL) ? CUDA_SUCCESS : cuMemFree(CUEMU_PTR(ptr)));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaMallocPitch(void **ptr, size_t *pitch, size_t width, size_t height)
{
    CUdeviceptr dptr = 0;
    cuemu_cudart_error_t error;

    if ((ptr == NULL) || (pitch == NULL)) {
        return cuemu_cudart_return(CUDART_INVALID_VALUE);
    }

    error = cuemu_cudart_enter();
    if (error == CUDART_SUCCESS) {
        error = (cuemu_cudart_error_t)cuMemAllocPitch(&dptr, pitch, width,
                                                      height, 16);
        *ptr  = (error == CUDART_SUCCESS) ? (void*)(uintptr_t)dptr : NULL;
    }
    return cuemu_cudart_return(error);
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaMallocManaged(void **ptr, size_t size, unsigned flags)
{
    CUdeviceptr dptr = 0;
    cuemu_cudart_error_t error;

    if ((ptr == NULL) || (size == 0)) {
        return cuemu_cudart_return(CUDART_INVALID_VALUE);
    }

    error = cuemu_cudart_enter();
    if (error == CUDART_SUCCESS) {
        error = (cuemu_cudart_error_t)cuMemAllocManaged(
                &dptr, size, (flags == 0) ? CU_MEM_ATTACH_GLOBAL : flags);
        *ptr  = (error == CUDART_SUCCESS) ? (void*)(uintptr_t)dptr : NULL;
    }
    return cuemu_cudart_return(error);
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaHostAlloc(void **ptr, size_t size, unsigned flags)
{
    CUEMU_CUDART_CALL(cuMemHostAlloc(ptr, size, flags));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaMallocHost(void **ptr, size_t size)
{
    CUEMU_CUDART_CALL(cuMemAllocHost(ptr, size));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaFreeHost(void *ptr)
{
    CUEMU_CUDART_CALL((ptr == NULL) ? CUDA_SUCCESS : cuMemFreeHost(ptr));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaHostRegister(void *ptr, size_t size, unsigned flags)
{
    CUEMU_CUDART_CALL(cuMemHostRegister(ptr, size, flags));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaHostUnregister(void *ptr)
{
    CUEMU_CUDART_CALL(cuMemHostUnregister(ptr));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaHostGetDevicePointer(void **device, void *host, unsigned flags)
{
    CUdeviceptr dptr = 0;
    cuemu_cudart_error_t error;

    if (device == NULL) {
        return cuemu_cudart_return(CUDART_INVALID_VALUE);
    }

    error = cuemu_cudart_enter();
    if (error == CUDART_SUCCESS) {
        error   = (cuemu_cudart_error_t)cuMemHostGetDevicePointer(&dptr, host,
                                                                  flags);
        *device = (error == CUDART_SUCCESS) ? (void*)(uintptr_t)dptr : NULL;
    }
    return cuemu_cudart_return(error);
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaMemGetInfo(size_t *free,
                                                        size_t *total)
{
    CUEMU_CUDART_CALL(cuMemGetInfo(free, total));
}

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
    return ((kind < 0) || (kind > CUDART_MEMCPY_LAST_KIND)) ?
           CUDART_INVALID_MEMCPY_DIRECTION : CUDART_SUCCESS;
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaMemcpy(void *dst, const void *src, size_t count, int kind)
{
    if (cuemu_cudart_kind(kind) != CUDART_SUCCESS) {
        return cuemu_cudart_return(CUDART_INVALID_MEMCPY_DIRECTION);
    }
    CUEMU_CUDART_CALL((count == 0) ? CUDA_SUCCESS :
                      cuMemcpy(CUEMU_PTR(dst), CUEMU_PTR(src), count));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaMemcpyAsync(void *dst, const void *src, size_t count, int kind,
                CUstream stream)
{
    if (cuemu_cudart_kind(kind) != CUDART_SUCCESS) {
        return cuemu_cudart_return(CUDART_INVALID_MEMCPY_DIRECTION);
    }
    CUEMU_CUDART_CALL((count == 0) ? CUDA_SUCCESS :
                      cuMemcpyAsync(CUEMU_PTR(dst), CUEMU_PTR(src), count,
                                    stream));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaMemcpyPeer(void *dst, int dstDevice, const void *src, int srcDevice,
               size_t count)
{
    CUEMU_CUDART_CALL(cuMemcpy(CUEMU_PTR(dst), CUEMU_PTR(src), count));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaMemcpyPeerAsync(void *dst, int dstDevice, const void *src, int srcDevice,
                    size_t count, CUstream stream)
{
    CUEMU_CUDART_CALL(cuMemcpyAsync(CUEMU_PTR(dst), CUEMU_PTR(src), count,
                                    stream));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaMemset(void *ptr, int value, size_t count)
{
    CUEMU_CUDART_CALL((count == 0) ? CUDA_SUCCESS :
                      cuMemsetD8(CUEMU_PTR(ptr), (unsigned char)value, count));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaMemsetAsync(void *ptr, int value, size_t count, CUstream stream)
{
    CUEMU_CUDART_CALL((count == 0) ? CUDA_SUCCESS :
                      cuMemsetD8Async(CUEMU_PTR(ptr), (unsigned char)value,
                                      count, stream));
}

/* Check the arguments of a hint. Hints have no effect: managed memory is always
   in host memory here. `where` is a device, or negative for the host
   (cudaCpuDeviceId). */
static cuemu_cudart_error_t cuemu_cudart_hint(const void *ptr, int where)
{
    cuemu_cudart_error_t error = cuemu_cudart_enter();
    int count                  = 0;

    if (error == CUDART_SUCCESS) {
        error = (cuemu_cudart_error_t)cuDeviceGetCount(&count);
    }
    if (error == CUDART_SUCCESS) {
        error = (ptr == NULL)    ? CUDART_INVALID_VALUE :
                (where >= count) ? CUDART_INVALID_DEVICE : CUDART_SUCCESS;
    }
    return cuemu_cudart_return(error);
}

#if CUEMU_CUDART_MAJOR >= 13
/* cudaMemLocation; type 1 is a device */
typedef struct {
    int type, id;
} cuemu_cudart_location_t;

#define CUEMU_CUDART_WHERE       cuemu_cudart_location_t
#define CUEMU_CUDART_PLACE(_w)   (((_w).type == 1) ? (_w).id : -1)
#else
#define CUEMU_CUDART_WHERE       int
#define CUEMU_CUDART_PLACE(_w)   (_w)
#endif

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaMemPrefetchAsync(const void *ptr, size_t count, CUEMU_CUDART_WHERE where)
{
    return cuemu_cudart_hint(ptr, CUEMU_CUDART_PLACE(where));
}

/* cudaMemAdvise_t: 1 to 6 */
CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaMemAdvise(const void *ptr, size_t count, int advice,
              CUEMU_CUDART_WHERE where)
{
    return ((advice < 1) || (advice > 6)) ?
           cuemu_cudart_return(CUDART_INVALID_VALUE) :
           cuemu_cudart_hint(ptr, CUEMU_CUDART_PLACE(where));
}

/* -------------------------------------------------- handles for processes */

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaIpcGetMemHandle(CUipcMemHandle *handle, void *ptr)
{
    CUEMU_CUDART_CALL(cuIpcGetMemHandle(handle, CUEMU_PTR(ptr)));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaIpcOpenMemHandle(void **ptr, CUipcMemHandle handle, unsigned flags)
{
    CUdeviceptr dptr = 0;
    cuemu_cudart_error_t error;

    if (ptr == NULL) {
        return cuemu_cudart_return(CUDART_INVALID_VALUE);
    }

    error = cuemu_cudart_enter();
    if (error == CUDART_SUCCESS) {
        error = (cuemu_cudart_error_t)cuIpcOpenMemHandle(&dptr, handle, flags);
        *ptr  = (error == CUDART_SUCCESS) ? (void*)(uintptr_t)dptr : NULL;
    }
    return cuemu_cudart_return(error);
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaIpcCloseMemHandle(void *ptr)
{
    CUEMU_CUDART_CALL(cuIpcCloseMemHandle(CUEMU_PTR(ptr)));
}
