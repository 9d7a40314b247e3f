/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Memory in two steps (physical memory, then a mapping), with handles as file
 * descriptors or for the fabric; and stream-ordered memory from pools, shared
 * in the same two ways. Physical memory may be host memory: GPUs and the CPU
 * use it according to its access rights.
 */
#include "cuemu_capture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define CUEMU_FD_MAGIC   0x64666d6d76756d63ull
#define CUEMU_POOL_MAGIC 0x6c6f6f7076756d63ull
#define CUEMU_PTR_MAGIC  0x7274707076756d63ull

#define CUEMU_SHAREABLE_BYTES 64

/* CU_MEM_HANDLE_TYPE_FABRIC, missing in headers before 12.3 */
#define CUEMU_TYPE_FABRIC 8

/* CU_MEM_LOCATION_TYPE_HOST and its variants, missing in headers before 12.2 */
#define CUEMU_LOCATION_HOST              2
#define CUEMU_LOCATION_HOST_NUMA         3
#define CUEMU_LOCATION_HOST_NUMA_CURRENT 4

/* Contents of a handle. A fabric handle contains them as bytes. For a file
   descriptor they are stored in the file's timestamps and no data is written,
   because the real driver's descriptors are no files and RLIMIT_FSIZE does not
   apply to them. */
typedef struct {
    uint64_t magic;
    uint64_t epoch;
    uint64_t id;
    uint64_t fabric; /* the cluster's number; 0 in a file */
    int32_t  extent; /* -1: a pool's */
    int32_t  gpu;
    int32_t  on_host;
    int32_t  numa;
} cuemu_vmm_file_t;

_Static_assert(sizeof(cuemu_vmm_file_t) <= CUEMU_SHAREABLE_BYTES,
               "a fabric handle is 64 bytes");

/* An allocation of a pool, as cuMemPoolExportPointer() describes it. */
typedef struct {
    uint64_t magic;
    uint64_t epoch;
    uint64_t pool;
    uint64_t id;     /* extent's id */
    uint64_t size;
    int32_t  extent;
    int32_t  slot;   /* slot of the exporting process */
    uint64_t spare[2];
} cuemu_pool_ptr_t;

_Static_assert(sizeof(cuemu_pool_ptr_t) == sizeof(CUmemPoolPtrExportData),
               "an exported pointer is 64 bytes");

typedef struct {
    cuemu_object_t      obj;
    CUmemAllocationProp prop;
    int                 gpu;       /* GPU whose file has the bytes */
    int                 extent;
    int                 on_host;   /* memory of the host, of a NUMA node */
    int                 numa;
    uint64_t            size;
    uint64_t            id;
    int                 refs;      /* handles and mappings */
    int                 holds;     /* handles: calls of cuMemRelease left */
    int                 imported;
} cuemu_handle_t;

static cuemu_pool_t *cuemu_pool_imported;

static cuemu_pool_t *cuemu_pool_default[CUEMU_MAX_GPUS];
static cuemu_pool_t *cuemu_pool_current[CUEMU_MAX_GPUS];

/* Memory released in stream order; see cuMemFreeAsync */
typedef struct cuemu_pool_free {
    struct cuemu_pool_free *next;
    CUdeviceptr             ptr;
} cuemu_pool_free_t;

static cuemu_pool_free_t *cuemu_pool_frees;


uint64_t cuemu_handle_types(const cuemu_mem_t *mem)
{
    const cuemu_handle_t *handle = mem->owner;
    const cuemu_pool_t *pool     = mem->owner;

    switch (mem->kind) {
    case CUEMU_MEM_VMM:
        return handle->imported ?
                       0 : (uint64_t)handle->prop.requestedHandleTypes;
    case CUEMU_MEM_POOL:
        return (cuemu_object_check(pool, CUEMU_OBJ_POOL) != NULL) ?
               (uint64_t)pool->handle_types : 0;
    default:
        return 0;
    }
}

uint64_t cuemu_fabric(void)
{
    const char *env = getenv("CUEMU_FABRIC");

    return (env == NULL) ? 0 : strtoull(env, NULL, 0);
}

/* Return SUCCESS if memory can be exported with all handle types of the mask,
   else NOT_SUPPORTED. The fabric type needs CUEMU_FABRIC. */
static CUresult cuemu_check_types(int types)
{
    if (cuemu_fabric() != 0) {
        types &= ~CUEMU_TYPE_FABRIC;
    }

    return (types & ~(int)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) ?
           CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

#define CUEMU_TIME_UNIT 1000000000

/* Store the handle in a file's times. Seconds of a file system may have only 34
   bits. The file is never read, so its time of access stays. */
static int cuemu_file_put(int fd, const cuemu_vmm_file_t *file)
{
    const struct timespec times[] = {
        {.tv_sec  = (time_t)file->id,
         .tv_nsec = file->gpu + (file->on_host << 8) + (file->numa << 9)},
        {.tv_sec  = file->extent + 1,
         .tv_nsec = (long)((file->epoch ^ file->magic) % CUEMU_TIME_UNIT)}
    };

    return futimens(fd, times);
}

static int cuemu_file_get(int fd, cuemu_vmm_file_t *file)
{
    struct stat st;

    if ((fstat(fd, &st) != 0) || !S_ISREG(st.st_mode) || (st.st_size != 0) ||
        ((uint64_t)st.st_mtim.tv_nsec !=
         (file->epoch ^ file->magic) % CUEMU_TIME_UNIT)) {
        return -1;
    }

    file->id      = (uint64_t)st.st_atim.tv_sec;
    file->extent  = (int32_t)st.st_mtim.tv_sec - 1;
    file->gpu     = (int32_t)st.st_atim.tv_nsec & 0xff;
    file->on_host = ((int32_t)st.st_atim.tv_nsec >> 8) & 1;
    file->numa    = (int32_t)st.st_atim.tv_nsec >> 9;
    return 0;
}

static int cuemu_share_fd(const cuemu_vmm_file_t *file)
{
    int fd;

    if (file->extent < 0) {
        /* a pool's, which executed programs inherit, unlike a memory's (H200,
           driver 580) */
        return memfd_create("cuemu-memory", 0);
    }

    cuemu_session_lock();
    fd = cuemu_session_extent_share(file->extent);
    cuemu_session_unlock();
    return fd;
}

/* Export the handle described by `file` as `type`, and fill file->epoch. To
   `shareable` writes a fabric handle's 64 bytes, or a new descriptor (int) that
   the program closes. OPERATING_SYSTEM if there is no descriptor. */
static CUresult cuemu_share(void *shareable, int type, cuemu_vmm_file_t *file)
{
    int fd;

    file->epoch = cuemu_session.shared->real_epoch_ns;
    if (type == CUEMU_TYPE_FABRIC) {
        file->fabric = cuemu_fabric();
        memset(shareable, 0, CUEMU_SHAREABLE_BYTES);
        memcpy(shareable, file, sizeof(*file));
        return CUDA_SUCCESS;
    }

    fd = cuemu_share_fd(file);
    if (fd < 0) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }

    if (cuemu_file_put(fd, file) != 0) {
        close(fd);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }

    *(int*)shareable = fd;
    return CUDA_SUCCESS;
}

/* Read a handle back that cuemu_share() wrote. `shareable` is the descriptor
   itself, or points to the fabric handle. Errors: NOT_SUPPORTED (type),
   NOT_PERMITTED (of another cluster), INVALID_VALUE (of another kind or
   session). */
static CUresult cuemu_shared(void *shareable, int type, uint64_t magic,
                             cuemu_vmm_file_t *file)
{
    if (cuemu_check_types(type) != CUDA_SUCCESS) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }

    if (type != CUEMU_TYPE_FABRIC) {
        file->magic = magic;
        file->epoch = cuemu_session.shared->real_epoch_ns;
        return (cuemu_file_get((int)(intptr_t)shareable, file) == 0) ?
               CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }

    memcpy(file, shareable, sizeof(*file));
    if (file->fabric != cuemu_fabric()) {
        return CUDA_ERROR_NOT_PERMITTED;
    }

    return ((file->magic == magic) &&
            (file->epoch == cuemu_session.shared->real_epoch_ns)) ?
           CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static cuemu_handle_t *cuemu_handle_check(CUmemGenericAllocationHandle handle)
{
    return cuemu_object_check((void*)(uintptr_t)handle, CUEMU_OBJ_HANDLE);
}

/* Drop a reference to the handle. The last one deletes the handle and this
   process's reference to the memory. Call with the lock. */
static void cuemu_handle_put(cuemu_handle_t *handle)
{
    if (--handle->refs == 0) {
        cuemu_session_lock();
        cuemu_session_extent_put(handle->extent, !handle->imported);
        cuemu_session_unlock();
        cuemu_object_delete(handle);
    }
}

static int cuemu_vmm_is_host(int type)
{
    return (type >= CUEMU_LOCATION_HOST) &&
           (type <= CUEMU_LOCATION_HOST_NUMA_CURRENT);
}

/* Return the first GPU of a NUMA node, or GPU 0 if the node has none. Its file
   has the bytes of the node's host memory. */
static int cuemu_vmm_gpu_near(int numa)
{
    int gpu;

    for (gpu = 0; gpu < cuemu_session.node->num_gpus; ++gpu) {
        if (cuemu_session.node->gpus[gpu].numa == numa) {
            return gpu;
        }
    }

    return 0;
}

/* Return the GPU of a location; -1 if it is none of the process's devices. */
static int cuemu_vmm_gpu(const CUmemLocation *location)
{
    return ((location->type == CU_MEM_LOCATION_TYPE_DEVICE) &&
            (location->id >= 0) &&
            (location->id < cuemu_process.num_devices)) ?
           cuemu_process.gpu[location->id] : -1;
}

static CUresult cuemu_vmm_check_prop(const CUmemAllocationProp *prop, int *gpu)
{
    if ((prop == NULL) || (prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    /* For host memory the driver requires a NUMA node */
    if (cuemu_vmm_is_host((int)prop->location.type)) {
        if (((int)prop->location.type != CUEMU_LOCATION_HOST_NUMA) ||
            (prop->location.id < 0) ||
            (prop->location.id >= cuemu_session.node->num_numa)) {
            return CUDA_ERROR_INVALID_VALUE;
        }

        *gpu = cuemu_vmm_gpu_near(prop->location.id);
        return CUDA_SUCCESS;
    }

    if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }

    *gpu = cuemu_vmm_gpu(&prop->location);
    return (*gpu < 0) ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUEMU_API(cuMemGetAllocationGranularity,
          (size_t *granularity, const CUmemAllocationProp *prop, int option),
          (granularity, prop, option))
{
    int gpu;
    CUresult result = cuemu_vmm_check_prop(prop, &gpu);

    if (granularity == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    if (result == CUDA_SUCCESS) {
        *granularity = CUEMU_GRANULE;
    }

    return result;
}

CUEMU_API(cuMemCreate,
          (CUmemGenericAllocationHandle *handle_p, size_t size,
           const CUmemAllocationProp *prop, unsigned long long flags),
          (handle_p, size, prop, flags))
{
    cuemu_handle_t *handle;
    CUresult result;
    int gpu, extent;

    result = cuemu_vmm_check_prop(prop, &gpu);
    if (result != CUDA_SUCCESS) {
        return result;
    }

    if ((handle_p == NULL) || (size == 0) || (size % CUEMU_GRANULE) ||
        (flags != 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    result = cuemu_check_types((int)prop->requestedHandleTypes);
    if (result != CUDA_SUCCESS) {
        return result;
    }

    handle = cuemu_object_new(CUEMU_OBJ_HANDLE, sizeof(*handle));
    if (handle == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    extent = cuemu_mem_extent(gpu, size);
    if (extent < 0) {
        cuemu_object_delete(handle);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    handle->prop   = *prop;
    handle->gpu    = gpu;
    if (cuemu_vmm_is_host((int)prop->location.type)) {
        handle->on_host = 1;
        handle->numa    = prop->location.id;
    }
    handle->extent = extent;
    handle->size   = size;
    handle->id     = cuemu_unique_id();
    handle->refs   = 1;
    handle->holds  = 1;
    *handle_p      = (CUmemGenericAllocationHandle)(uintptr_t)handle;
    return CUDA_SUCCESS;
}

CUEMU_API(cuMemRelease, (CUmemGenericAllocationHandle value), (value))
{
    cuemu_handle_t *handle = cuemu_handle_check(value);
    CUresult result        = CUDA_ERROR_INVALID_VALUE;

    if (handle == NULL) {
        return result;
    }

    cuemu_lock();
    /* not a mapping's reference (H200) */
    if (handle->holds > 0) {
        --handle->holds;
        cuemu_handle_put(handle);
        result = CUDA_SUCCESS;
    }
    cuemu_unlock();
    return result;
}

CUEMU_API(cuMemGetAllocationPropertiesFromHandle,
          (CUmemAllocationProp *prop, CUmemGenericAllocationHandle value),
          (prop, value))
{
    cuemu_handle_t *handle = cuemu_handle_check(value);

    if ((handle == NULL) || (prop == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    *prop = handle->prop;
    return CUDA_SUCCESS;
}

CUEMU_API(cuMemRetainAllocationHandle,
          (CUmemGenericAllocationHandle *value, void *addr), (value, addr))
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    cuemu_handle_t *handle;
    cuemu_mem_t *mem;

    if (value == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    cuemu_lock();
    mem = cuemu_mem_find((uint64_t)(uintptr_t)addr);
    if ((mem != NULL) && (mem->kind == CUEMU_MEM_VMM)) {
        handle = mem->owner;
        ++handle->refs;
        ++handle->holds;
        *value = (CUmemGenericAllocationHandle)(uintptr_t)handle;
        result = CUDA_SUCCESS;
    }
    cuemu_unlock();
    return result;
}

CUEMU_API(cuMemAddressReserve,
          (CUdeviceptr *ptr, size_t size, size_t align, CUdeviceptr hint,
           unsigned long long flags),
          (ptr, size, align, hint, flags))
{
    uint64_t va;

    (void)hint;
    if ((ptr == NULL) || (size == 0) || (size % CUEMU_GRANULE) ||
        (align & (align - 1)) || (flags != 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    cuemu_lock();
    va = cuemu_va_reserve(CUEMU_VA_FIRST, size, align);
    cuemu_unlock();
    if (va == 0) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    *ptr = (CUdeviceptr)va;
    return CUDA_SUCCESS;
}

CUEMU_API(cuMemAddressFree, (CUdeviceptr ptr, size_t size), (ptr, size))
{
    CUresult result = CUDA_SUCCESS;
    uint64_t addr;

    cuemu_lock();
    if ((size == 0) || (size != cuemu_va_size(ptr))) {
        result = CUDA_ERROR_INVALID_VALUE; /* not a part of it (H200) */
    }

    for (addr = ptr; (result == CUDA_SUCCESS) && (addr < ptr + size);
         addr += CUEMU_GRANULE) {
        if (cuemu_mem_find(addr) != NULL) {
            result = CUDA_ERROR_INVALID_VALUE; /* still mapped */
        }
    }

    if (result == CUDA_SUCCESS) {
        cuemu_va_release(ptr, size);
    }
    cuemu_unlock();
    return result;
}

CUEMU_API(cuMemMap,
          (CUdeviceptr ptr, size_t size, size_t offset,
           CUmemGenericAllocationHandle value, unsigned long long flags),
          (ptr, size, offset, value, flags))
{
    cuemu_handle_t *handle = cuemu_handle_check(value);
    cuemu_mem_t mem        = {.kind = CUEMU_MEM_VMM, .extent = -1};
    CUresult result        = CUDA_ERROR_INVALID_VALUE;

    if ((handle == NULL) || (size == 0) || (size % CUEMU_GRANULE) ||
        (offset != 0) || (size > handle->size) || (flags != 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    cuemu_lock();
    if (cuemu_va_find(ptr, size) != 0) {
        mem.base   = ptr;
        mem.size   = size;
        mem.gpu     = handle->gpu;
        mem.offset  = cuemu_session.shared->extents[handle->extent].offset;
        mem.id      = cuemu_unique_id(); /* buffer id of the mapping */
        mem.owner   = handle;
        mem.on_host = handle->on_host;
        mem.numa    = handle->numa;
        if (cuemu_mem_add(&mem) != NULL) {
            ++handle->refs;
            result = CUDA_SUCCESS;
        }
    }
    cuemu_unlock();
    return result;
}

CUEMU_API(cuMemUnmap, (CUdeviceptr ptr, size_t size), (ptr, size))
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    uint64_t end    = ptr + size;
    cuemu_mem_t *mem;

    /* Does not wait for queued work (H100, driver 580) */
    cuemu_lock();
    for (; ptr < end; ptr = (CUdeviceptr)(mem->base + mem->size)) {
        mem = cuemu_mem_find(ptr);
        if ((mem == NULL) || (mem->kind != CUEMU_MEM_VMM) ||
            (mem->base != ptr) || (mem->base + mem->size > end)) {
            break;
        }
        if (mem->base + mem->size == end) {
            result = CUDA_SUCCESS;
        }
    }

    for (ptr = end - size; (result == CUDA_SUCCESS) && (ptr < end);) {
        mem  = cuemu_mem_find(ptr);
        ptr += mem->size;
        if (mem->flags & CUEMU_VMM_CPU) {
            (void)cuemu_va_protect(mem->base, mem->size, PROT_NONE, -1, 0);
        }
        cuemu_handle_put(mem->owner);
        cuemu_mem_remove(mem);
    }
    if (result == CUDA_SUCCESS) {
        cuemu_work_fault(end - size, size);
    }
    cuemu_unlock();
    return result;
}

/* Set the CPU's access to a mapping of host memory according to `flags`
   (CUmemAccess_flags). Succeeds without effect for GPU memory. Call with the
   lock. */
static CUresult cuemu_vmm_let_cpu(cuemu_mem_t *mem, int flags)
{
    const int prot = (flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) ?
                     PROT_READ | PROT_WRITE :
                     (flags == CU_MEM_ACCESS_FLAGS_PROT_READ) ? PROT_READ :
                                                                PROT_NONE;

    if (!mem->on_host) {
        return CUDA_SUCCESS; /* the CPU can never access a GPU's memory */
    }

    if (cuemu_va_protect(mem->base, mem->size, prot,
                         cuemu_session.fd[mem->gpu], mem->offset) != 0) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }

    mem->flags = (prot == PROT_NONE) ? (mem->flags & ~CUEMU_VMM_CPU) :
                                       (mem->flags | CUEMU_VMM_CPU);
    return CUDA_SUCCESS;
}

CUEMU_API(cuMemSetAccess,
          (CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc,
           size_t count),
          (ptr, size, desc, count))
{
    CUresult result = CUDA_SUCCESS;
    uint64_t addr;
    cuemu_mem_t *mem;
    size_t i;
    int gpu;

    if ((desc == NULL) || (count == 0) || (size == 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    cuemu_lock();
    for (addr = ptr; (addr < ptr + size) && (result == CUDA_SUCCESS);
         addr = mem->base + mem->size) {
        mem = cuemu_mem_find(addr);
        /* whole mappings only (H200) */
        if ((mem == NULL) || (mem->kind != CUEMU_MEM_VMM) ||
            (mem->base != addr) || (mem->size > ptr + size - addr)) {
            result = CUDA_ERROR_INVALID_VALUE;
            break;
        }

        for (i = 0; (i < count) && (result == CUDA_SUCCESS); ++i) {
            if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
                result = cuemu_vmm_let_cpu(mem, (int)desc[i].flags);
                continue;
            }

            gpu = cuemu_vmm_gpu(&desc[i].location);
            if (gpu < 0) {
                result = CUDA_ERROR_INVALID_DEVICE;
                break;
            }

            if (desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) {
                mem->flags &= ~(1u << gpu);
            } else {
                mem->flags |= 1u << gpu;
            }
        }
    }
    cuemu_unlock();
    return result;
}

CUEMU_API(cuMemGetAccess,
          (unsigned long long *flags, const CUmemLocation *location,
           CUdeviceptr ptr),
          (flags, location, ptr))
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    int gpu         = (location == NULL) ? -1 : cuemu_vmm_gpu(location);
    cuemu_mem_t *mem;

    if ((flags == NULL) || (gpu < 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    cuemu_lock();
    mem = cuemu_mem_find(ptr);
    if ((mem != NULL) && (mem->kind == CUEMU_MEM_VMM)) {
        *flags = (mem->flags & (1u << gpu)) ?
                 CU_MEM_ACCESS_FLAGS_PROT_READWRITE :
                 CU_MEM_ACCESS_FLAGS_PROT_NONE;
        result = CUDA_SUCCESS;
    }
    cuemu_unlock();
    return result;
}

CUEMU_API(cuMemExportToShareableHandle,
          (void *shareable, CUmemGenericAllocationHandle value, int type,
           unsigned long long flags),
          (shareable, value, type, flags))
{
    cuemu_handle_t *handle = cuemu_handle_check(value);
    cuemu_vmm_file_t file  = {.magic = CUEMU_FD_MAGIC};

    if ((handle == NULL) || (shareable == NULL) || (flags != 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    if ((cuemu_check_types(type) != CUDA_SUCCESS) ||
        !((int)handle->prop.requestedHandleTypes & type)) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }

    file.id      = cuemu_session.shared->extents[handle->extent].id;
    file.extent  = handle->extent;
    file.gpu     = handle->gpu;
    file.on_host = handle->on_host;
    file.numa    = handle->numa;
    return cuemu_share(shareable, type, &file);
}

CUEMU_API(cuMemImportFromShareableHandle,
          (CUmemGenericAllocationHandle *value, void *shareable, int type),
          (value, shareable, type))
{
    cuemu_extent_t *extent;
    cuemu_handle_t *handle;
    cuemu_vmm_file_t file;
    CUresult result;

    if (value == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    result = cuemu_shared(shareable, type, CUEMU_FD_MAGIC, &file);
    if (result != CUDA_SUCCESS) {
        return result;
    }

    if ((file.extent < 0) || (file.extent >= CUEMU_MAX_EXTENTS)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    handle = cuemu_object_new(CUEMU_OBJ_HANDLE, sizeof(*handle));
    if (handle == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    cuemu_lock();
    cuemu_session_lock();
    extent = &cuemu_session.shared->extents[file.extent];
    if (extent->id == file.id) {
        cuemu_session_extent_get(file.extent);
        handle->gpu                       = file.gpu;
        handle->extent                    = file.extent;
        handle->size                      = extent->size;
        handle->refs                      = 1;
        handle->holds                     = 1;
        handle->imported                  = 1;
        handle->prop.type                 = CU_MEM_ALLOCATION_TYPE_PINNED;
        handle->on_host                   = file.on_host;
        handle->numa                      = file.numa;
        handle->prop.location.type        = file.on_host ?
                (CUmemLocationType)CUEMU_LOCATION_HOST_NUMA :
                CU_MEM_LOCATION_TYPE_DEVICE;
        handle->prop.location.id          = file.on_host ?
                file.numa : cuemu_device_of_gpu(file.gpu);
        handle->prop.requestedHandleTypes = (CUmemAllocationHandleType)type;
        result                            = CUDA_SUCCESS;
    } else {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    cuemu_session_unlock();
    cuemu_unlock();

    if (result != CUDA_SUCCESS) {
        cuemu_object_delete(handle);
        return result;
    }

    handle->id = cuemu_unique_id();
    *value     = (CUmemGenericAllocationHandle)(uintptr_t)handle;
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- pools */

static cuemu_pool_t *cuemu_pool_of_device(int device)
{
    cuemu_pool_t *pool;

    cuemu_lock();
    pool = cuemu_pool_default[device];
    if (pool == NULL) {
        pool = cuemu_object_new(CUEMU_OBJ_POOL, sizeof(*pool));
        if (pool != NULL) {
            pool->device               = device;
            pool->is_default           = 1;
            cuemu_pool_default[device] = pool;
            cuemu_pool_current[device] = pool;
        }
    }
    cuemu_unlock();
    return pool;
}

static CUresult cuemu_pool_get(CUmemoryPool *pool_p, CUdevice device,
                               int current)
{
    cuemu_pool_t *pool;

    if (pool_p == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    if ((device < 0) || (device >= cuemu_process.num_devices)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }

    pool = cuemu_pool_of_device(device);
    if (pool == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    *pool_p = (CUmemoryPool)(current ? cuemu_pool_current[device] : pool);
    return CUDA_SUCCESS;
}

CUEMU_API(cuDeviceGetDefaultMemPool, (CUmemoryPool *pool, CUdevice device),
          (pool, device))
{
    return cuemu_pool_get(pool, device, 0);
}

CUEMU_API(cuDeviceGetMemPool, (CUmemoryPool *pool, CUdevice device),
          (pool, device))
{
    return cuemu_pool_get(pool, device, 1);
}

CUEMU_API(cuDeviceSetMemPool, (CUdevice device, CUmemoryPool handle),
          (device, handle))
{
    cuemu_pool_t *pool = cuemu_object_check(handle, CUEMU_OBJ_POOL);

    if ((device < 0) || (device >= cuemu_process.num_devices)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }

    if ((pool == NULL) || (pool->device != device) ||
        (cuemu_pool_of_device(device) == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    cuemu_pool_current[device] = pool;
    return CUDA_SUCCESS;
}

CUEMU_API(cuMemPoolCreate, (CUmemoryPool *handle, const CUmemPoolProps *props),
          (handle, props))
{
    cuemu_pool_t *pool;

    if ((handle == NULL) || (props == NULL) ||
        (props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    if ((props->location.type != CU_MEM_LOCATION_TYPE_DEVICE) ||
        (cuemu_check_types((int)props->handleTypes) != CUDA_SUCCESS)) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }

    if (cuemu_vmm_gpu(&props->location) < 0) {
        return CUDA_ERROR_INVALID_DEVICE;
    }

    pool = cuemu_object_new(CUEMU_OBJ_POOL, sizeof(*pool));
    if (pool == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    pool->device       = props->location.id;
    pool->handle_types = (int)props->handleTypes;
    pool->id           = cuemu_unique_id();
    *handle            = (CUmemoryPool)pool;
    return CUDA_SUCCESS;
}

CUEMU_API(cuMemPoolDestroy, (CUmemoryPool handle), (handle))
{
    cuemu_pool_t *pool = cuemu_object_check(handle, CUEMU_OBJ_POOL), **link;
    int keep;

    if ((pool == NULL) || pool->is_default) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    if (pool->imported) {
        cuemu_lock();
        keep = (cuemu_mem_of(pool, -1) != NULL);
        if (!keep && (--pool->imported == 0)) {
            link = &cuemu_pool_imported;
            while (*link != pool) {
                link = &(*link)->next;
            }
            *link = pool->next;
            cuemu_object_delete(pool);
        }
        cuemu_unlock();
        return keep ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    }

    if (cuemu_pool_current[pool->device] == pool) {
        cuemu_pool_current[pool->device] = cuemu_pool_default[pool->device];
    }

    cuemu_session_lock();
    while (pool->num_kept > 0) {
        cuemu_session_extent_put(pool->kept[--pool->num_kept], 0);
    }
    cuemu_session_unlock();
    free(pool->kept);
    cuemu_object_delete(pool);
    return CUDA_SUCCESS;
}

/* Return non-zero if a GPU may get access to a pool of a device. */
static int cuemu_pool_is_peer(const cuemu_pool_t *pool, int gpu)
{
    const int own              = cuemu_process.gpu[pool->device];
    const cuemu_route_t *route = cuemu_node_route(cuemu_session.node, gpu, own);

    return (gpu == own) || ((route != NULL) && route->p2p);
}

CUEMU_API(cuMemPoolSetAccess,
          (CUmemoryPool handle, const CUmemAccessDesc *desc, size_t count),
          (handle, desc, count))
{
    cuemu_pool_t *pool = cuemu_object_check(handle, CUEMU_OBJ_POOL);
    int has_memory, gpu;
    size_t i;

    if ((pool == NULL) || (desc == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    cuemu_lock();
    has_memory = (cuemu_mem_of(pool, -1) != NULL);
    cuemu_unlock();
    for (i = 0; i < count; ++i) {
        gpu = cuemu_vmm_gpu(&desc[i].location);
        if (gpu < 0) {
            return CUDA_ERROR_INVALID_DEVICE;
        }

        if (desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) {
            /* the manual's rule; without memory the next allocation fails */
            if (has_memory && !cuemu_pool_is_peer(pool, gpu)) {
                return CUDA_ERROR_INVALID_DEVICE;
            }
            pool->access |= 1u << gpu;
        } else {
            pool->access &= ~(1u << gpu);
        }
    }

    return CUDA_SUCCESS;
}

CUEMU_API(cuMemPoolGetAccess,
          (CUmemAccess_flags *flags, CUmemoryPool handle,
           CUmemLocation *location), (flags, handle, location))
{
    const cuemu_pool_t *pool = cuemu_object_check(handle, CUEMU_OBJ_POOL);
    int gpu = (location == NULL) ? -1 : cuemu_vmm_gpu(location);

    if ((pool == NULL) || (flags == NULL) || (gpu < 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    *flags = ((location->id == pool->device) || (pool->access & (1u << gpu))) ?
             CU_MEM_ACCESS_FLAGS_PROT_READWRITE :
             CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

CUEMU_API(cuMemPoolTrimTo, (CUmemoryPool handle, size_t keep), (handle, keep))
{
    if (cuemu_object_check(handle, CUEMU_OBJ_POOL) == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    cuemu_pool_collect();
    return CUDA_SUCCESS;
}

/* Return how many bytes of a pool are in use. */
static uint64_t cuemu_pool_used(const cuemu_pool_t *pool)
{
    uint64_t bytes;

    cuemu_lock();
    bytes = cuemu_mem_bytes_of(pool);
    cuemu_unlock();
    return bytes;
}

CUEMU_API(cuMemPoolSetAttribute,
          (CUmemoryPool handle, CUmemPool_attribute attribute, void *value),
          (handle, attribute, value))
{
    cuemu_pool_t *pool = cuemu_object_check(handle, CUEMU_OBJ_POOL);

    if ((pool == NULL) || (value == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
        pool->threshold = *(cuuint64_t*)value;
    } else if ((attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) ||
               (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)) {
        pool->high = cuemu_pool_used(pool); /* the manual allows 0 alone */
    }

    return CUDA_SUCCESS;
}

CUEMU_API(cuMemPoolGetAttribute,
          (CUmemoryPool handle, CUmemPool_attribute attribute, void *value),
          (handle, attribute, value))
{
    cuemu_pool_t *pool = cuemu_object_check(handle, CUEMU_OBJ_POOL);

    if ((pool == NULL) || (value == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    switch ((int)attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        *(int*)value = 1;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        *(cuuint64_t*)value = pool->threshold;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: /* pools reserve nothing here */
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        cuemu_pool_collect();
        *(cuuint64_t*)value = cuemu_pool_used(pool);
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        *(cuuint64_t*)value = pool->high;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

/* Free memory released by cuMemFreeAsync. Called at each synchronization of a
   stream, an event or the context, as the manual says for a pool without
   release threshold, and before memory is allocated or its size is queried. */
void cuemu_pool_collect(void)
{
    cuemu_pool_free_t *item, *next;

    if (__atomic_load_n(&cuemu_pool_frees, __ATOMIC_RELAXED) == NULL) {
        return;
    }

    item = __atomic_exchange_n(&cuemu_pool_frees, NULL, __ATOMIC_ACQ_REL);
    for (; item != NULL; item = next) {
        next = item->next;
        (void)cuemu_mem_free_device(item->ptr, 1);
        free(item);
    }
}

static CUresult cuemu_pool_alloc(CUdeviceptr *ptr, size_t size,
                                 cuemu_pool_t *pool, CUstream handle)
{
    cuemu_stream_t *stream;
    cuemu_context_t place;
    CUresult result;
    uint64_t used;
    int gpu;

    result = cuemu_stream_use(handle, &stream);
    if (result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) {
        fprintf(stderr, "cuemu: memory is allocated in a captured stream: the "
                        "emulator lacks memory nodes of graphs\n");
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }

    if (pool == NULL) {
        if (cuemu_pool_of_device(stream->ctx->device) == NULL) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        pool = cuemu_pool_current[stream->ctx->device];
    }

    for (gpu = 0; gpu < cuemu_session.node->num_gpus; ++gpu) {
        if ((pool->access & (1u << gpu)) && !cuemu_pool_is_peer(pool, gpu)) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
    }

    cuemu_pool_collect();
    place     = *stream->ctx;
    place.gpu = cuemu_process.gpu[pool->device];
    result    = cuemu_mem_alloc_device(&place, size, CUEMU_MEM_POOL, pool, ptr);
    used      = cuemu_pool_used(pool);
    if (used > pool->high) {
        pool->high = used;
    }
    return result;
}

CUEMU_CTX_API(cuMemAllocAsync,
              (CUdeviceptr *ptr, size_t size, CUstream stream),
              (ptr, size, stream))
{
    return cuemu_pool_alloc(ptr, size, NULL, stream);
}

CUEMU_CTX_API(cuMemAllocFromPoolAsync,
              (CUdeviceptr *ptr, size_t size, CUmemoryPool handle,
               CUstream stream),
              (ptr, size, handle, stream))
{
    cuemu_pool_t *pool = cuemu_object_check(handle, CUEMU_OBJ_POOL);

    return ((pool == NULL) || pool->imported) ?
           CUDA_ERROR_INVALID_VALUE :
           cuemu_pool_alloc(ptr, size, pool, stream);
}

static void cuemu_pool_release(uint64_t arg)
{
    cuemu_pool_free_t *item = (cuemu_pool_free_t*)(uintptr_t)arg;

    item->next = __atomic_load_n(&cuemu_pool_frees, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&cuemu_pool_frees, &item->next, item,
                                        0, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED)) {
    }
}

CUEMU_API(cuMemFreeAsync, (CUdeviceptr ptr, CUstream handle), (ptr, handle))
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    cuemu_pool_free_t *item;
    cuemu_stream_t *stream;
    cuemu_work_t work;
    cuemu_mem_t *mem;

    result = cuemu_stream_use(handle, &stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }

    cuemu_lock();
    mem = cuemu_mem_find(ptr);
    if ((mem == NULL) || (mem->base != ptr) || mem->is_freed ||
        ((mem->kind != CUEMU_MEM_POOL) && (mem->kind != CUEMU_MEM_DEVICE))) {
        cuemu_unlock();
        return CUDA_ERROR_INVALID_VALUE;
    }

    item = malloc(sizeof(*item));
    if (item == NULL) {
        cuemu_unlock();
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    /* The memory is free when the stream gets there. The next allocation
       collects it, since no lock is held while operations are served */
    item->ptr     = ptr;
    mem->is_freed = 1;
    cuemu_work_set_call(&work, CUEMU_PAYLOAD_KERNEL, (void*)cuemu_pool_release,
                        item);
    cuemu_work_submit(stream, &work, NULL, 0,
                      cuemu_now() + cuemu_cost(CUEMU_CALL_EVENT_RECORD));
    cuemu_unlock();

    cuemu_work_spend(CUEMU_CALL_EVENT_RECORD);
    return CUDA_SUCCESS;
}

CUEMU_API(cuMemPoolExportToShareableHandle,
          (void *shareable, CUmemoryPool handle, int type,
           unsigned long long flags),
          (shareable, handle, type, flags))
{
    cuemu_pool_t *pool    = cuemu_object_check(handle, CUEMU_OBJ_POOL);
    cuemu_vmm_file_t file = {.magic = CUEMU_POOL_MAGIC, .extent = -1};

    if ((pool == NULL) || (shareable == NULL) || (flags != 0) ||
        !(pool->handle_types & type) || pool->imported) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    pool->is_exported = 1;
    file.id           = pool->id;
    file.gpu          = cuemu_process.gpu[pool->device];
    return cuemu_share(shareable, type, &file);
}

/* Import a pool. Importing it again returns the same handle, and the program
   has to destroy it as often as it was imported. Destroying fails while memory
   of the pool is imported (as on an H100). */
CUEMU_API(cuMemPoolImportFromShareableHandle,
          (CUmemoryPool *handle, void *shareable, int type,
           unsigned long long flags),
          (handle, shareable, type, flags))
{
    cuemu_vmm_file_t file;
    cuemu_pool_t *pool;
    CUresult result;
    int device;

    if ((handle == NULL) || (flags != 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    result = cuemu_shared(shareable, type, CUEMU_POOL_MAGIC, &file);
    if (result != CUDA_SUCCESS) {
        return result;
    }

    cuemu_lock();
    for (pool = cuemu_pool_imported; (pool != NULL) && (pool->id != file.id);
         pool = pool->next) {
    }

    if (pool == NULL) {
        pool = cuemu_object_new(CUEMU_OBJ_POOL, sizeof(*pool));
        if (pool == NULL) {
            cuemu_unlock();
            return CUDA_ERROR_OUT_OF_MEMORY;
        }

        device              = cuemu_device_of_gpu(file.gpu);
        pool->device        = (device >= 0) ? device : 0;
        pool->id            = file.id;
        pool->next          = cuemu_pool_imported;
        cuemu_pool_imported = pool;
    }
    ++pool->imported;
    cuemu_unlock();

    *handle = (CUmemoryPool)pool;
    return CUDA_SUCCESS;
}

CUEMU_API(cuMemPoolExportPointer, (CUmemPoolPtrExportData *data,
                                   CUdeviceptr ptr),
          (data, ptr))
{
    cuemu_pool_ptr_t out = {.magic = CUEMU_PTR_MAGIC};
    CUresult result      = CUDA_ERROR_INVALID_VALUE;
    cuemu_pool_t *pool;
    cuemu_mem_t *mem;

    if (data == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    cuemu_lock();
    mem = cuemu_mem_find(ptr);
    /* Only the beginning of an allocation is valid (H100), and only after the
       pool was exported (H200) */
    if ((mem != NULL) && (mem->kind == CUEMU_MEM_POOL) && (mem->base == ptr)) {
        pool = cuemu_object_check(mem->owner, CUEMU_OBJ_POOL);
        if ((pool != NULL) && pool->is_exported) {
            out.epoch  = cuemu_session.shared->real_epoch_ns;
            out.pool   = pool->id;
            out.id     = cuemu_session.shared->extents[mem->extent].id;
            out.size   = mem->size;
            out.extent = mem->extent;
            out.slot   = cuemu_session.slot;
            memcpy(data, &out, sizeof(out));
            mem->is_exported = 1;
            result           = CUDA_SUCCESS;
        }
    }
    cuemu_unlock();
    return result;
}

/* Map memory of an imported pool. Mapping it again gives the same address, and
   one cuMemFree() undoes all (as on an H100). INVALID_VALUE if the exporter has
   freed the memory. Call with cuemu_lock() and the session's lock. */
static CUresult cuemu_pool_map(const cuemu_pool_ptr_t *in, cuemu_pool_t *pool,
                               CUdeviceptr *ptr)
{
    cuemu_extent_t *extent = &cuemu_session.shared->extents[in->extent];
    cuemu_mem_t mem        = {.kind = CUEMU_MEM_POOL, .imported = 1};
    const cuemu_mem_t *known;

    known = cuemu_mem_of(pool, in->extent);
    if ((known != NULL) && (extent->id == in->id)) {
        *ptr = (CUdeviceptr)known->base;
        return CUDA_SUCCESS;
    }

    if ((extent->id != in->id) || !extent->live || (in->size > extent->size)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    mem.va_size = in->size;
    mem.va      = cuemu_va_reserve(CUEMU_VA_LATER, mem.va_size, 0);
    if (mem.va == 0) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    mem.base   = mem.va;
    mem.size   = in->size;
    mem.gpu    = extent->gpu;
    mem.extent = in->extent;
    mem.offset = extent->offset;
    mem.id     = cuemu_unique_id();
    mem.owner  = pool;
    if (cuemu_mem_add(&mem) == NULL) {
        cuemu_va_release(mem.va, mem.va_size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    cuemu_session_extent_get(in->extent);
    *ptr = (CUdeviceptr)mem.base;
    return CUDA_SUCCESS;
}

CUEMU_API(cuMemPoolImportPointer,
          (CUdeviceptr *ptr, CUmemoryPool handle,
           CUmemPoolPtrExportData *data),
          (ptr, handle, data))
{
    cuemu_pool_t *pool = cuemu_object_check(handle, CUEMU_OBJ_POOL);
    cuemu_pool_ptr_t in;
    CUresult result;

    if ((ptr == NULL) || (data == NULL) || (pool == NULL) || !pool->imported) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    memcpy(&in, data, sizeof(in));
    if ((in.magic != CUEMU_PTR_MAGIC) || (in.pool != pool->id) ||
        (in.epoch != cuemu_session.shared->real_epoch_ns) || (in.extent < 0) ||
        (in.extent >= CUEMU_MAX_EXTENTS)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    cuemu_lock();
    cuemu_session_lock();
    result = cuemu_pool_map(&in, pool, ptr);
    cuemu_session_unlock();
    cuemu_unlock();
    return result;
}
