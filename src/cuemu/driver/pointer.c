/* SPDX-License-Identifier: BSD-3-Clause */

/* Attributes of pointers. */
#include "cuemu_gate.h"
#include "cuemu_work.h"

#include <string.h>

/* Result of attribute queries for a pointer without a device */
#define CUEMU_DEVICE_NONE (-2)

static int cuemu_pointer_ordinal(const cuemu_mem_t *mem)
{
    if (mem->kind == CUEMU_MEM_IPC) {
        return mem->ctx->device; /* of the importer (H200, 580) */
    }

    /* The real driver's answer for host memory of cuMemCreate was not measured.
       A program that relies on this one may copy with a GPU without access */
    return mem->on_host ? 0 : cuemu_device_of_gpu(mem->gpu);
}

extern uint64_t cuemu_handle_types(const cuemu_mem_t *mem);

/* Return the start of a range as H100 with driver 580 reports it: the start of
   the allocation, or of the larger reservation around it, mapped or not. */
static uint64_t cuemu_pointer_range(const cuemu_mem_t *mem)
{
    return (mem->kind == CUEMU_MEM_VMM) ? cuemu_va_find(mem->base, mem->size) :
                                          mem->base;
}

/* Return the size of the "mapping" of CU_POINTER_ATTRIBUTE_MAPPING_SIZE: the
   granules of GPU memory around the allocation, which small allocations
   share. */
static uint64_t cuemu_pointer_mapping_size(const cuemu_mem_t *mem)
{
    uint64_t begin = mem->base & ~(CUEMU_GRANULE - 1);
    uint64_t end   = mem->base + mem->size + CUEMU_GRANULE - 1;

    return (end & ~(CUEMU_GRANULE - 1)) - begin;
}

/* Return non-zero for malloc() memory on nodes with NVLink-C2C, whose GPUs use
   the CPU's page table. The manual does not define its type: it stays 0, with a
   device address. */
static int cuemu_pointer_is_shared(const cuemu_mem_t *mem)
{
    return (mem == NULL) && (cuemu_session.node->gpus[0].c2c_count > 0);
}

/*
 * Write the attribute of `ptr` inside `mem` (NULL: unknown to the driver).
 * Returns INVALID_VALUE if the attribute does not apply; `data` is zero then.
 */
static CUresult cuemu_pointer_attribute(const cuemu_mem_t *mem, uint64_t ptr,
                                        CUpointer_attribute attribute,
                                        void *data)
{
    const cuemu_context_t *ctx = cuemu_context_current();
    int known = (mem != NULL), host, ok = 1;

    if (known && (ctx == NULL) &&
        ((int)attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER)) {
        *(CUdeviceptr*)data = 0;
        return CUDA_ERROR_INVALID_CONTEXT; /* H200, driver 580 */
    }

    host = known && cuemu_mem_is_host(mem);
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext*)data = known ? (CUcontext)mem->ctx : NULL;
        break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned*)data = !known ? 0 : host ? CU_MEMORYTYPE_HOST :
                                               CU_MEMORYTYPE_DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        /* none by the manual if kernels may not use the memory; memory without
           peer access has none on H200, driver 580 */
        ok                  = cuemu_pointer_is_shared(mem) ||
                              (known && cuemu_mem_is_reached(mem, ctx));
        *(CUdeviceptr*)data = ok ? (CUdeviceptr)ptr : 0;
        break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        ok            = cuemu_pointer_is_shared(mem) ||
                        (known && (host || (mem->kind == CUEMU_MEM_MANAGED)) &&
                         (!mem->on_host || (mem->flags & CUEMU_VMM_CPU)));
        *(void**)data = ok ? (void*)(uintptr_t)ptr : NULL;
        break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *(unsigned*)data = known && ((mem->kind == CUEMU_MEM_MANAGED) ||
                                     mem->sync_memops);
        break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *(unsigned long long*)data = known ? mem->id : 0;
        break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned*)data = known && (mem->kind == CUEMU_MEM_MANAGED);
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int*)data = known ? cuemu_pointer_ordinal(mem) : CUEMU_DEVICE_NONE;
        break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(int*)data = known && (mem->kind == CUEMU_MEM_DEVICE) &&
                      !cuemu_mem_is_variable(mem);
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr*)data = known ? cuemu_pointer_range(mem) : 0;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t*)data = !known ? 0 : (mem->kind == CUEMU_MEM_VMM) ?
                         cuemu_va_size(cuemu_pointer_range(mem)) : mem->size;
        break;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *(CUdeviceptr*)data = known ? (mem->base & ~(CUEMU_GRANULE - 1)) : 0;
        break;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *(size_t*)data = known ? cuemu_pointer_mapping_size(mem) : 0;
        break;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(int*)data = known;
        break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(uint64_t*)data = known ? cuemu_handle_types(mem) : 0;
        break;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *(int*)data = 0;
        break;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *(int*)data = (known && ((mem->kind != CUEMU_MEM_VMM) ||
                                 ((ctx != NULL) &&
                                  cuemu_mem_is_reached(mem, ctx)))) ?
                      (int)CU_MEM_ACCESS_FLAGS_PROT_READWRITE : 0;
        break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(void**)data = (known && (mem->kind == CUEMU_MEM_POOL)) ? mem->owner :
                                                                   NULL;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }

    return (known && ok) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUEMU_API(cuPointerGetAttribute,
          (void *data, CUpointer_attribute attribute, CUdeviceptr ptr),
          (data, attribute, ptr))
{
    uint64_t scratch;
    CUresult result;
    cuemu_mem_t *mem;

    if (data == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    cuemu_lock();
    mem    = cuemu_mem_find(ptr);
    result = cuemu_pointer_attribute(mem, ptr, attribute,
                                     (mem == NULL) ? &scratch : data);
    cuemu_unlock();

    cuemu_work_spend((mem != NULL) ? CUEMU_CALL_POINTER_ATTR :
                                     CUEMU_CALL_POINTER_ATTR_HOST);
    return result;
}

CUEMU_API(cuPointerGetAttributes,
          (unsigned count, CUpointer_attribute *attributes, void **data,
           CUdeviceptr ptr),
          (count, attributes, data, ptr))
{
    CUresult result = CUDA_SUCCESS;
    cuemu_mem_t *mem;
    unsigned i;

    if ((attributes == NULL) || (data == NULL) || (count == 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    cuemu_lock();
    mem = cuemu_mem_find(ptr);
    for (i = 0; (i < count) && (result == CUDA_SUCCESS); ++i) {
        /* Attributes that do not apply are zero here, not an error */
        if (((int)attributes[i] < 1) || ((int)attributes[i] > 20) ||
            ((int)attributes[i] == CU_POINTER_ATTRIBUTE_P2P_TOKENS) ||
            (data[i] == NULL)) {
            result = CUDA_ERROR_INVALID_VALUE;
        } else {
            (void)cuemu_pointer_attribute(mem, ptr, attributes[i], data[i]);
        }
    }
    cuemu_unlock();

    cuemu_work_spend((mem != NULL) ? CUEMU_CALL_POINTER_ATTR :
                                     CUEMU_CALL_POINTER_ATTR_HOST);
    return result;
}

/* Set an attribute as H100 with driver 580 does: fails for memory of
   cuMemCreate, has no effect for pools. For other memory it waits for earlier
   copies to this memory, and for no other work */
CUEMU_API(cuPointerSetAttribute,
          (const void *value, CUpointer_attribute attribute, CUdeviceptr ptr),
          (value, attribute, ptr))
{
    CUresult result      = CUDA_ERROR_INVALID_VALUE;
    cuemu_op_id_t staged = 0;
    cuemu_mem_t *mem;

    if ((value == NULL) || (attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    cuemu_lock();
    mem = cuemu_mem_find(ptr);
    if ((mem != NULL) && (mem->kind == CUEMU_MEM_VMM)) {
        result = CUDA_ERROR_NOT_SUPPORTED;
    } else if ((mem != NULL) && (mem->kind == CUEMU_MEM_POOL)) {
        result = CUDA_SUCCESS;
    } else if ((mem != NULL) && !cuemu_mem_is_host(mem)) {
        mem->sync_memops = (*(const unsigned*)value != 0);
        result           = CUDA_SUCCESS;
        staged           = mem->staged;
        cuemu_work_hurry_all();
    }
    cuemu_unlock();

    cuemu_work_wait(staged);
    return result;
}

/* Managed memory has no advice: it is located where it was allocated. */
CUEMU_API(cuMemRangeGetAttribute,
          (void *data, size_t size, CUmem_range_attribute attribute,
           CUdeviceptr ptr, size_t count),
          (data, size, attribute, ptr, count))
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    cuemu_mem_t *mem;

    if ((data == NULL) || (count == 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    cuemu_lock();
    mem = cuemu_mem_find(ptr);
    if ((mem != NULL) && (mem->kind == CUEMU_MEM_MANAGED)) {
        switch ((int)attribute) {
        case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
            if (size == 4) {
                *(int*)data = 0;
                result      = CUDA_SUCCESS;
            }
            break;
        case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
        case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
            if (size == 4) {
                *(int*)data = CUEMU_DEVICE_NONE;
                result      = CUDA_SUCCESS;
            }
            break;
        default:
            break;
        }
    }
    cuemu_unlock();
    return result;
}

/* Check the arguments of a hint for managed memory, which has no effect. */
static CUresult cuemu_mem_hint(CUdeviceptr ptr, size_t count, CUmemLocation at)
{
    const cuemu_mem_t *mem;
    int is_other;

    cuemu_lock();
    mem      = cuemu_mem_find(ptr);
    is_other = (mem != NULL) && (mem->kind != CUEMU_MEM_MANAGED);
    cuemu_unlock();
    return ((ptr == 0) || (count == 0) || is_other || ((int)at.type < 1)) ?
           CUDA_ERROR_INVALID_VALUE :
           (at.type != CU_MEM_LOCATION_TYPE_DEVICE) ? CUDA_SUCCESS :
           ((unsigned)at.id < (unsigned)cuemu_process.num_devices) ?
           CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUmemLocation cuemu_mem_place(CUdevice device)
{
    CUmemLocation at;

    at.type = (device == CU_DEVICE_CPU) ? CU_MEM_LOCATION_TYPE_HOST :
                                          CU_MEM_LOCATION_TYPE_DEVICE;
    at.id   = device;
    return at;
}

CUEMU_API(cuMemAdvise_v2,
          (CUdeviceptr ptr, size_t count, CUmem_advise advice,
           CUmemLocation location),
          (ptr, count, advice, location))
{
    if ((advice < CU_MEM_ADVISE_SET_READ_MOSTLY) ||
        (advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    if ((advice != CU_MEM_ADVISE_SET_PREFERRED_LOCATION) &&
        (advice < CU_MEM_ADVISE_SET_ACCESSED_BY)) {
        location.type = CU_MEM_LOCATION_TYPE_HOST; /* the location is ignored */
    }
    return cuemu_mem_hint(ptr, count, location);
}

CUEMU_API(cuMemAdvise,
          (CUdeviceptr ptr, size_t count, CUmem_advise advice,
           CUdevice device),
          (ptr, count, advice, device))
{
    return cuemu_do_cuMemAdvise_v2(ptr, count, advice,
                                   cuemu_mem_place(device));
}

CUEMU_API(cuMemPrefetchAsync_v2,
          (CUdeviceptr ptr, size_t count, CUmemLocation location,
           unsigned flags, CUstream stream),
          (ptr, count, location, flags, stream))
{
    return cuemu_mem_hint(ptr, count, location);
}

CUEMU_API(cuMemPrefetchAsync,
          (CUdeviceptr ptr, size_t count, CUdevice device, CUstream stream),
          (ptr, count, device, stream))
{
    return cuemu_mem_hint(ptr, count, cuemu_mem_place(device));
}

CUEMU_API(cuMemGetHandleForAddressRange,
          (void *handle, CUdeviceptr ptr, size_t size, int type,
           unsigned long long flags),
          (handle, ptr, size, type, flags))
{
    return CUDA_ERROR_NOT_SUPPORTED; /* no dmabuf without a device file */
}
