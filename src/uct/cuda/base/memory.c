/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory behind a pointer, in the module's terms, with contexts. */
#include <uct/cuda/base/memory.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/memory_cache.h>
#include <uct/cuda/base/memtype.h>
#include <uct/cuda/base/pointer.h>


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

/* Find the mapping within a reservation, at @a end. The driver refuses that
 * without a context, and does not find memory of another GPU than the
 * context's (H200, driver 580). */
static void find_mapping(CUdeviceptr address, uct_cuda_end_t end,
                         CUdeviceptr *base_p, size_t *length_p)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    CUresult result = uct_cuda_pointer_range(driver, address, base_p, length_p);
    uct_cuda_ctx_scope_t context;

    if (((result == CUDA_ERROR_INVALID_CONTEXT) ||
         ((result == CUDA_ERROR_NOT_FOUND) &&
          (end.kind == UCT_CUDA_END_GPU))) &&
        (((end.kind == UCT_CUDA_END_GPU) ?
                  uct_cuda_ctx_enter_for(end.device, address, &context) :
                  uct_cuda_ctx_enter_any(uct_cuda_end_none(), 0, &context)) ==
         UCS_OK)) {
        (void)uct_cuda_pointer_range(driver, address, base_p, length_p);
        uct_cuda_ctx_leave(&context);
    }
}

/* Return the end that copies memory. The driver reports no GPU for memory of a
 * hidden GPU, and may report none for managed memory. */
static uct_cuda_end_t
end_of(uct_cuda_pointer_kind_t kind, const uct_cuda_pointer_t *pointer)
{
    int gpu = -1;

    if (kind == UCT_CUDA_POINTER_HOST_VMM) {
        return uct_cuda_end_host_vmm();
    } else if (kind == UCT_CUDA_POINTER_GPU) {
        gpu = uct_cuda_pointer_gpu(uct_cuda_driver_get(), pointer);
    } else if (kind == UCT_CUDA_POINTER_MANAGED) {
        gpu = pointer->ordinal;
    }

    return (gpu < 0) ? uct_cuda_end_host() : uct_cuda_end_gpu(gpu);
}

void uct_cuda_memory_query(const void *address, size_t length,
                           uct_cuda_memory_t *memory)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    uct_cuda_pointer_kind_t kind;
    uct_cuda_pointer_t pointer;

    answer.address = NULL;
    *memory        = (uct_cuda_memory_t){.type   = UCS_MEMORY_TYPE_HOST,
        .end    = uct_cuda_end_host(),
        .base   = (CUdeviceptr)address,
        .length = length
    };

    if ((driver == NULL) || (address == NULL) ||
        (uct_cuda_pointer_query(driver, (CUdeviceptr)address,
                                UCT_CUDA_POINTER_ALL,
                                &pointer) != CUDA_SUCCESS)) {
        return;
    }

    kind              = uct_cuda_pointer_kind(driver, &pointer);
    memory->is_pinned = (kind == UCT_CUDA_POINTER_PINNED);
    memory->end       = end_of(kind, &pointer);
    if (kind >= UCT_CUDA_POINTER_HOST_VMM) {
        memory->type      = (kind == UCT_CUDA_POINTER_MANAGED) ?
                                    UCS_MEMORY_TYPE_CUDA_MANAGED :
                                    UCS_MEMORY_TYPE_CUDA;
        memory->context   = pointer.context;
        memory->buffer_id = pointer.buffer_id;
    }

    if ((memory->type == UCS_MEMORY_TYPE_CUDA) && (memory->context == NULL)) {
        find_mapping(pointer.address, memory->end, &memory->base,
                     &memory->length);
    } else if (pointer.length != 0) {
        memory->base   = pointer.base;
        memory->length = pointer.length;
    }
}

void uct_cuda_memory_place(const void *address, uct_cuda_end_t *end_p,
                           CUcontext *context_p)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    uct_cuda_pointer_kind_t kind;
    uct_cuda_pointer_t pointer;

    if ((answer.address == address) && (address != NULL)) {
        answer.address = NULL;
        *end_p         = answer.end;
        *context_p     = answer.context;
        return;
    }

    *end_p     = uct_cuda_end_host();
    *context_p = NULL;
    if (uct_cuda_memory_cache_is_host(address) ||
        (uct_cuda_pointer_query(driver, (CUdeviceptr)address,
                                UCT_CUDA_POINTER_PLACE,
                                &pointer) != CUDA_SUCCESS)) {
        return;
    }

    kind   = uct_cuda_pointer_kind(driver, &pointer);
    *end_p = end_of(kind, &pointer);
    if (kind >= UCT_CUDA_POINTER_HOST_VMM) {
        *context_p = pointer.context;
    } else if (kind == UCT_CUDA_POINTER_UNKNOWN) {
        /* cache only memory unknown to the driver: hooks do not see if the
         * driver frees memory that it has locked */
        uct_cuda_memory_cache_add_host(address);
    }

    if ((kind == UCT_CUDA_POINTER_GPU) && (pointer.context == NULL)) {
        uct_cuda_memory_sync_unowned(uct_cuda_end_device(*end_p));
    }
}

void uct_cuda_memory_sync(const void *address)
{
    uct_cuda_memory_t memory;

    uct_cuda_memory_query(address, 1, &memory);
    uct_cuda_memory_sync_memops(&memory);
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

bool uct_cuda_memory_is_closed(const uct_cuda_pointer_sharing_t *sharing)
{
    return !sharing->is_vmm &&
           ((sharing->pool == NULL) || (sharing->handle_types == 0) ||
            !pool_keeps_memory(sharing->pool, sharing->ordinal));
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
