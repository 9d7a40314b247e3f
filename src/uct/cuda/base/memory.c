/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory detection with the driver's pointer attributes. */
#include <uct/cuda/base/memory.h>

#include <uct/cuda/base/access.h>
#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/gpu.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/memory_cache.h>
#include <uct/cuda/base/memtype.h>


/*
 * Query the first @a count attributes of an address; for memory unknown to the
 * driver the values are unchanged. A driver that does not know one
 * attribute refuses all of them at once, so they are then queried one by one:
 * taking GPU memory for host memory would crash the program.
 */
static bool get_attributes(const void *address, unsigned count, void **values)
{
    static CUpointer_attribute attributes[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_CONTEXT,
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        CU_POINTER_ATTRIBUTE_RANGE_SIZE,
        CU_POINTER_ATTRIBUTE_BUFFER_ID
    };
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    unsigned i;

    if (__builtin_expect(driver->cuPointerGetAttributes(count, attributes,
                                                        values,
                                                        (CUdeviceptr)address) ==
                                 CUDA_SUCCESS,
                         1)) {
        return true;
    }

    if (driver->cuPointerGetAttribute(values[0], attributes[0],
                                      (CUdeviceptr)address) != CUDA_SUCCESS) {
        return false;
    }

    for (i = 1; i < count; ++i) {
        (void)driver->cuPointerGetAttribute(values[i], attributes[i],
                                            (CUdeviceptr)address);
    }

    return true;
}

/* Kept for one uct_cuda_memory_place() */
static __thread struct {
    const void     *address; /* NULL: none */
    uct_cuda_end_t end;
    CUcontext      context;
} answer;

void uct_cuda_memory_remember(const void *address,
                              const uct_cuda_memory_t *memory)
{
    /* each use of memory without context waits for the program's copies */
    answer.address = (uct_cuda_memtype_sees_frees() ||
                      ((memory->end.kind == UCT_CUDA_END_GPU) &&
                       (memory->context == NULL))) ?
                             NULL :
                             address;
    answer.end     = memory->end;
    answer.context = memory->context;
}

void uct_cuda_memory_forget(void)
{
    answer.address = NULL;
}

/* Get the range of an allocation or mapping at @a end. The driver refuses that
 * without a context, and does not find memory of another GPU than the
 * context's (H200, driver 580). */
static CUresult get_range(CUdeviceptr address, uct_cuda_end_t end,
                          CUdeviceptr *base_p, size_t *length_p)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    CUresult result = driver->cuMemGetAddressRange(base_p, length_p, address);
    uct_cuda_gpu_context_t context;

    if (((result == CUDA_ERROR_INVALID_CONTEXT) ||
         ((result == CUDA_ERROR_NOT_FOUND) &&
          (end.kind == UCT_CUDA_END_GPU))) &&
        (((end.kind == UCT_CUDA_END_GPU) ?
                  uct_cuda_gpu_context_push_for(end.device, address,
                                                &context) :
                  uct_cuda_gpu_context_push_any(uct_cuda_end_none(), 0,
                                                &context)) == UCS_OK)) {
        result = driver->cuMemGetAddressRange(base_p, length_p, address);
        uct_cuda_gpu_context_pop(&context);
    }

    return result;
}

/* Find the mapped part of a reservation. For memory mapped into a larger
 * reservation (PyTorch's expandable segments) the attributes describe the
 * reservation, most of which may be empty (H100, driver 580). Such memory has
 * no context. */
static void find_mapping(const void *address, uct_cuda_memory_t *memory)
{
    CUdeviceptr base;
    size_t length;

    /* the driver reports that host memory begins at 0 (queried by tests of UCX
     * 1.22) */
    if ((get_range((CUdeviceptr)address, memory->end, &base, &length) ==
         CUDA_SUCCESS) &&
        ((CUdeviceptr)address - base < length)) {
        memory->base   = base;
        memory->length = length;
    }
}

/* Return whether memory is from cuMemCreate. Otherwise the driver refuses the
 * call, and compute-sanitizer lists it. */
static bool has_handle(const void *address)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    CUmemGenericAllocationHandle handle;

    if ((driver->cuMemRetainAllocationHandle == NULL) ||
        (driver->cuMemRetainAllocationHandle(&handle, (void*)address) !=
         CUDA_SUCCESS)) {
        return false;
    }

    (void)driver->cuMemRelease(handle);
    return true;
}

/* Return whether it is host VMM memory. The driver reports it as host memory,
 * like page-locked memory, but without a context. */
static bool
is_host_vmm(CUmemorytype type, CUcontext context, const void *address)
{
    return (type == CU_MEMORYTYPE_HOST) && (context == NULL) &&
           has_handle(address);
}

/* The driver reports no GPU for memory of a hidden GPU, and may report none for
 * managed memory */
static uct_cuda_end_t end_of(int ordinal)
{
    return (ordinal < 0) ? uct_cuda_end_host() : uct_cuda_end_gpu(ordinal);
}

static uct_cuda_end_t
end_of_gpu(const void *address, CUcontext context, int ordinal)
{
    return end_of((context != NULL) ?
                          ordinal :
                          uct_cuda_access_gpu(uct_cuda_driver_get(),
                                              (CUdeviceptr)address, ordinal));
}

void uct_cuda_memory_query(const void *address, size_t length,
                           uct_cuda_memory_t *memory)
{
    CUmemorytype memory_type     = (CUmemorytype)0;
    unsigned is_managed          = 0;
    int ordinal                  = -1;
    CUcontext context            = NULL;
    CUdeviceptr range_start      = 0;
    size_t range_size            = 0;
    unsigned long long buffer_id = 0;
    void *values[] = {&memory_type, &is_managed, &ordinal,   &context,
                      &range_start, &range_size, &buffer_id};

    memory->type      = UCS_MEMORY_TYPE_HOST;
    memory->end       = uct_cuda_end_host();
    memory->context   = NULL;
    memory->base      = (CUdeviceptr)address;
    memory->length    = length;
    memory->buffer_id = 0;
    memory->is_pinned = false;
    answer.address    = NULL;

    if ((uct_cuda_driver_get() == NULL) || (address == NULL) ||
        !get_attributes(address, sizeof(values) / sizeof(values[0]), values)) {
        return;
    }

    if (is_managed) {
        memory->type = UCS_MEMORY_TYPE_CUDA_MANAGED;
        memory->end  = end_of(ordinal);
    } else if (memory_type == CU_MEMORYTYPE_DEVICE) {
        memory->type = UCS_MEMORY_TYPE_CUDA;
        memory->end  = end_of_gpu(address, context, ordinal);
    } else if (is_host_vmm(memory_type, context, address)) {
        memory->type = UCS_MEMORY_TYPE_CUDA;
        memory->end  = uct_cuda_end_host_vmm();
    } else {
        memory->is_pinned = (memory_type == CU_MEMORYTYPE_HOST);
    }

    if (memory->type != UCS_MEMORY_TYPE_HOST) {
        memory->context   = context;
        memory->buffer_id = buffer_id;
    }

    if ((memory->type == UCS_MEMORY_TYPE_CUDA) && (context == NULL)) {
        find_mapping(address, memory);
    } else if (range_size != 0) {
        memory->base   = range_start;
        memory->length = range_size;
    }
}

void uct_cuda_memory_place(const void *address, uct_cuda_end_t *end_p,
                           CUcontext *context_p)
{
    CUmemorytype memory_type = (CUmemorytype)0;
    unsigned is_managed      = 0;
    int ordinal              = -1;
    void *values[] = {&memory_type, &is_managed, &ordinal, context_p};
    bool is_answered;

    if ((answer.address == address) && (address != NULL)) {
        answer.address = NULL;
        *end_p         = answer.end;
        *context_p     = answer.context;
        return;
    }

    *end_p     = uct_cuda_end_host();
    *context_p = NULL;
    if (uct_cuda_memory_cache_is_host(address)) {
        return;
    }

    is_answered = get_attributes(address, sizeof(values) / sizeof(values[0]),
                                 values);
    if (is_answered && is_managed) {
        *end_p = end_of(ordinal);
    } else if (is_answered && (memory_type == CU_MEMORYTYPE_DEVICE)) {
        *end_p = end_of_gpu(address, *context_p, ordinal);
        if (*context_p == NULL) {
            uct_cuda_memory_sync_unowned(uct_cuda_end_device(*end_p));
        }
    } else if (is_answered && is_host_vmm(memory_type, *context_p, address)) {
        *end_p = uct_cuda_end_host_vmm();
    } else {
        *context_p = NULL;
    }

    /* the driver may free memory it has locked unseen by hooks, so only memory
     * unknown to it is cached */
    if (is_answered && (memory_type == (CUmemorytype)0) && !is_managed) {
        uct_cuda_memory_cache_add_host(address);
    }
}

void uct_cuda_memory_sync(const void *address)
{
    uct_cuda_memory_t memory;

    uct_cuda_memory_query(address, 1, &memory);
    uct_cuda_memory_sync_memops(&memory);
}

/* Look up the pool of GPU memory without context: NULL for cuMemCreate's (H100,
 * driver 580). @return false if the driver does not say */
static bool get_pool(const void *address, CUmemoryPool *pool_p,
                     uint64_t *allowed_p, int *device_p)
{
    CUmemorytype memory_type         = (CUmemorytype)0;
    CUpointer_attribute attributes[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
        CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    };
    void *values[] = {&memory_type, pool_p, allowed_p, device_p};

    return (uct_cuda_driver_get()->cuPointerGetAttributes(
                    4, attributes, values, (CUdeviceptr)address) ==
            CUDA_SUCCESS) &&
           (memory_type == CU_MEMORYTYPE_DEVICE);
}

bool uct_cuda_memory_is_vmm(const void *address)
{
    CUmemoryPool pool = NULL;
    uint64_t allowed  = 0;
    int device        = 0;

    return get_pool(address, &pool, &allowed, &device) ? (pool == NULL) :
                                                         has_handle(address);
}

/* Return whether a pool keeps all memory that is freed. Memory that was
 * exported stays in use after a pool has released it, until the pool is
 * destroyed and its descriptors are closed, though no process has it mapped
 * (H200, driver 580; docs/results/by-hand.md). */
static bool pool_keeps_memory(CUmemoryPool pool, int device)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    cuuint64_t threshold            = 0;
    size_t total;

    return (driver->cuMemPoolGetAttribute != NULL) &&
           (driver->cuMemPoolGetAttribute(pool,
                                          CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                                          &threshold) == CUDA_SUCCESS) &&
           (driver->cuDeviceTotalMem(&total, device) == CUDA_SUCCESS) &&
           (threshold >= total);
}

bool uct_cuda_memory_is_closed_pool(const void *address)
{
    CUmemoryPool pool = NULL;
    uint64_t allowed  = 0;
    int device        = 0;

    return get_pool(address, &pool, &allowed, &device) ?
                   (pool != NULL) && ((allowed == 0) ||
                                      !pool_keeps_memory(pool, device)) :
                   !has_handle(address);
}

void uct_cuda_memory_report_closed(const void *address)
{
    static bool is_logged;

    uct_cuda_debug("memory at %p cannot be shared with other processes",
                   address);
    if (!__atomic_exchange_n(&is_logged, true, __ATOMIC_RELAXED)) {
        uct_cuda_info("GPU memory at %p was created without a handle type, by "
                      "a pool that releases freed memory, or in another "
                      "process, so that other processes cannot map it: UCX "
                      "sends it through host memory, slowly. Create "
                      "cuMemCreate memory and memory pools with "
                      "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, and set a "
                      "pool's CU_MEMPOOL_ATTR_RELEASE_THRESHOLD to UINT64_MAX",
                      address);
    }
}
