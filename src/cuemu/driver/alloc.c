/* SPDX-License-Identifier: BSD-3-Clause */

/* Calls that allocate, register and free memory, and ask for its range. */
#include "cuemu_gate.h"
#include "cuemu_work.h"

#include <stdlib.h>
#include <sys/mman.h>


CUEMU_CTX_API(cuMemAlloc, (CUdeviceptr *ptr, size_t size), (ptr, size))
{
    cuemu_context_t *ctx = cuemu_context_top();
    CUresult result;

    cuemu_pool_collect();
    result = cuemu_mem_alloc_device(ctx, size, CUEMU_MEM_DEVICE, NULL, ptr);
    cuemu_work_spend(CUEMU_CALL_MEM_ALLOC);
    return result;
}

CUEMU_ALSO(cuMemAlloc_v2, cuMemAlloc);

CUEMU_CTX_API(cuMemAllocPitch,
              (CUdeviceptr *ptr, size_t *pitch, size_t width, size_t height,
               unsigned element),
              (ptr, pitch, width, height, element))
{
    cuemu_context_t *ctx = cuemu_context_top();
    size_t row           = (width + 511) & ~(size_t)511;
    CUresult result;

    if ((pitch == NULL) || (width == 0) || (height == 0) || (row < width) ||
        (row > SIZE_MAX / height) ||
        ((element != 4) && (element != 8) && (element != 16))) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    result = cuemu_mem_alloc_device(ctx, row * height, CUEMU_MEM_DEVICE, NULL,
                                    ptr);
    if (result == CUDA_SUCCESS) {
        *pitch = row;
    }

    return result;
}

CUEMU_ALSO(cuMemAllocPitch_v2, cuMemAllocPitch);

CUEMU_CTX_API(cuMemFree, (CUdeviceptr ptr), (ptr))
{
    CUresult result;

    if (ptr == 0) {
        return CUDA_SUCCESS;
    }

    result = cuemu_mem_free_device(ptr, 0);
    cuemu_work_spend(CUEMU_CALL_MEM_FREE);
    return result;
}

CUEMU_ALSO(cuMemFree_v2, cuMemFree);

CUEMU_CTX_API(cuMemGetInfo, (size_t *free_p, size_t *total_p),
              (free_p, total_p))
{
    cuemu_context_t *ctx = cuemu_context_top();

    if ((free_p == NULL) || (total_p == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    cuemu_pool_collect();
    cuemu_session_lock();
    cuemu_session_collect();
    cuemu_session_unlock();
    *total_p = cuemu_session.shared->gpu_bytes[ctx->gpu];
    *free_p  = *total_p - cuemu_session.shared->gpu_used[ctx->gpu];
    return CUDA_SUCCESS;
}

CUEMU_ALSO(cuMemGetInfo_v2, cuMemGetInfo);

/* Refused without a current context, and in that of a GPU without access to the
   memory of another one, unlike cuPointerGetAttributes (H200, driver 580) */
CUEMU_CTX_API(cuMemGetAddressRange,
              (CUdeviceptr *base, size_t *size, CUdeviceptr ptr),
              (base, size, ptr))
{
    const cuemu_context_t *ctx = cuemu_context_top();
    CUresult result            = CUDA_ERROR_NOT_FOUND;
    cuemu_mem_t *mem;

    if ((base == NULL) && (size == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    cuemu_lock();
    mem = cuemu_mem_find(ptr);
    if ((mem != NULL) &&
        (mem->on_host ||
         ((mem->gpu == ctx->gpu) && (mem->kind != CUEMU_MEM_VMM)) ||
         cuemu_mem_is_reached(mem, ctx))) {
        if (base != NULL) {
            /* For host memory the driver reports base 0 (a comment in UCX
               1.22's test host_vmm_mem_registrable) */
            *base = mem->on_host ? 0 : (CUdeviceptr)mem->base;
        }
        if (size != NULL) {
            *size = mem->size;
        }
        result = CUDA_SUCCESS;
    }
    cuemu_unlock();

    cuemu_work_spend(CUEMU_CALL_ADDRESS_RANGE);
    return result;
}

CUEMU_ALSO(cuMemGetAddressRange_v2, cuMemGetAddressRange);

/* --------------------------------------------------- managed, host memory */

CUEMU_CTX_API(cuMemAllocManaged,
              (CUdeviceptr *ptr, size_t size, unsigned flags),
              (ptr, size, flags))
{
    cuemu_context_t *ctx = cuemu_context_top();
    CUresult result;
    uint64_t addr;

    if ((ptr == NULL) || ((flags != CU_MEM_ATTACH_GLOBAL) &&
                          (flags != CU_MEM_ATTACH_HOST))) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    result = cuemu_mem_alloc_touchable(ctx, size, CUEMU_MEM_MANAGED, flags,
                                       &addr);
    if (result == CUDA_SUCCESS) {
        *ptr = (CUdeviceptr)addr;
    }

    return result;
}

static CUresult cuemu_host_alloc(void **ptr, size_t size, unsigned flags)
{
    cuemu_context_t *ctx = cuemu_context_top();
    CUresult result;
    uint64_t addr;

    if ((ptr == NULL) || (flags & ~7u)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    result = cuemu_mem_alloc_touchable(ctx, size, CUEMU_MEM_HOST,
                                       flags | CU_MEMHOSTALLOC_DEVICEMAP,
                                       &addr);
    if (result == CUDA_SUCCESS) {
        *ptr = (void*)(uintptr_t)addr;
    }

    return result;
}

CUEMU_CTX_API(cuMemHostAlloc, (void **ptr, size_t size, unsigned flags),
              (ptr, size, flags))
{
    return cuemu_host_alloc(ptr, size, flags);
}

CUEMU_CTX_API(cuMemAllocHost, (void **ptr, size_t size), (ptr, size))
{
    return cuemu_host_alloc(ptr, size, 0);
}

CUEMU_ALSO(cuMemAllocHost_v2, cuMemAllocHost);

/* Return the record of a kind that begins there, or NULL. Call with the
   lock. */
static cuemu_mem_t *cuemu_mem_at(const void *ptr, cuemu_mem_kind_t kind)
{
    cuemu_mem_t *mem = cuemu_mem_find((uint64_t)(uintptr_t)ptr);

    return ((mem != NULL) && (mem->kind == kind) &&
            (mem->base == (uint64_t)(uintptr_t)ptr)) ? mem : NULL;
}

static int cuemu_mem_is_at(const void *ptr, cuemu_mem_kind_t kind)
{
    int result;

    cuemu_lock();
    result = (cuemu_mem_at(ptr, kind) != NULL);
    cuemu_unlock();
    return result;
}

/* Free page-locked memory, after waiting for all work of this process on all
   GPUs, related to the memory or not. Meanwhile other threads' copies of
   page-locked memory wait, too (seen on H100, driver 580). */
CUEMU_API(cuMemFreeHost, (void *ptr), (ptr))
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    cuemu_mem_t *mem;

    if (!cuemu_mem_is_at(ptr, CUEMU_MEM_HOST)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    cuemu_process_wait();
    cuemu_lock();
    mem = cuemu_mem_at(ptr, CUEMU_MEM_HOST);
    if (mem != NULL) {
        cuemu_mem_drop(mem);
        result = CUDA_SUCCESS;
    }
    cuemu_unlock();
    return result;
}

/* Spend a time proportional to the size that is registered or unregistered. */
static void cuemu_register_spend(cuemu_call_t call, double rate, size_t size)
{
    cuemu_time_t bytes = (rate > 0) ?
                         (cuemu_time_t)((double)size / rate *
                                        (double)CUEMU_PS_PER_SEC) : 0;

    cuemu_work_spend_until(cuemu_now() + cuemu_cost(call) + bytes);
}

CUEMU_CTX_API(cuMemHostRegister, (void *ptr, size_t size, unsigned flags),
              (ptr, size, flags))
{
    uint64_t addr        = (uint64_t)(uintptr_t)ptr;
    cuemu_context_t *ctx = cuemu_context_top();
    cuemu_mem_t mem      = {.kind = CUEMU_MEM_HOST_REG, .extent = -1};
    CUresult result      = CUDA_SUCCESS;
    unsigned char *resident;
    uint64_t begin, length;

    if ((ptr == NULL) || (size == 0) || (addr + size < addr) ||
        (flags & ~0xfu)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    begin    = addr & ~(uint64_t)4095;
    length   = (addr + size - begin + 4095) & ~(uint64_t)4095;
    resident = malloc(length / 4096);
    if (resident == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    if (mincore((void*)(uintptr_t)begin, length, resident) != 0) {
        free(resident);
        return CUDA_ERROR_INVALID_VALUE; /* not mapped */
    }
    free(resident);

    cuemu_lock();
    if (cuemu_va_is_driver(addr)) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else if (cuemu_mem_overlaps(addr, size)) {
        result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    } else {
        mem.base  = addr;
        mem.size  = size;
        mem.gpu   = ctx->gpu;
        mem.ctx   = ctx;
        mem.flags = flags;
        mem.id    = cuemu_unique_id();
        if (cuemu_mem_add(&mem) == NULL) {
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    cuemu_unlock();

    if (result == CUDA_SUCCESS) {
        cuemu_register_spend(CUEMU_CALL_HOST_REGISTER,
                             cuemu_session.node->cost.host_register_rate, size);
    }

    return result;
}

CUEMU_ALSO(cuMemHostRegister_v2, cuMemHostRegister);

/* Wait and hold up other threads as cuMemFreeHost does. */
CUEMU_API(cuMemHostUnregister, (void *ptr), (ptr))
{
    CUresult result = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    size_t size     = 0;
    cuemu_mem_t *mem;

    if (ptr == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    if (!cuemu_mem_is_at(ptr, CUEMU_MEM_HOST_REG)) {
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    }

    cuemu_process_wait();
    cuemu_lock();
    mem = cuemu_mem_at(ptr, CUEMU_MEM_HOST_REG);
    if (mem != NULL) {
        size   = mem->size;
        result = CUDA_SUCCESS;
        cuemu_mem_remove(mem);
    }
    cuemu_unlock();

    if (result == CUDA_SUCCESS) {
        cuemu_register_spend(CUEMU_CALL_HOST_UNREGISTER,
                             cuemu_session.node->cost.host_unregister_rate,
                             size);
    }

    return result;
}

CUEMU_API(cuMemHostGetDevicePointer,
          (CUdeviceptr *dptr, void *ptr, unsigned flags), (dptr, ptr, flags))
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    cuemu_mem_t *mem;

    if ((dptr == NULL) || (flags != 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    cuemu_lock();
    mem = cuemu_mem_find((uint64_t)(uintptr_t)ptr);
    if ((mem != NULL) && cuemu_mem_is_host(mem)) {
        *dptr  = (CUdeviceptr)(uintptr_t)ptr;
        result = CUDA_SUCCESS;
    }
    cuemu_unlock();
    return result;
}

CUEMU_ALSO(cuMemHostGetDevicePointer_v2, cuMemHostGetDevicePointer);

CUEMU_API(cuMemHostGetFlags, (unsigned *flags, void *ptr), (flags, ptr))
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    cuemu_mem_t *mem;

    if (flags == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    cuemu_lock();
    mem = cuemu_mem_find((uint64_t)(uintptr_t)ptr);
    if ((mem != NULL) && (mem->kind == CUEMU_MEM_HOST)) {
        *flags = mem->flags;
        result = CUDA_SUCCESS;
    }
    cuemu_unlock();
    return result;
}
