/* SPDX-License-Identifier: BSD-3-Clause */
/* cuMemAlloc, cuMemAllocManaged and cuMemHostRegister as UCT memory. */
#include <uct/cuda/cuda_copy/cuda_copy_mem.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/device_memory.h>
#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/memory.h>
#include <uct/cuda/base/vmm.h>

#include <stdlib.h>


struct uct_cuda_copy_memh {
    CUdeviceptr        device_memory; /* Allocated here, or 0 */
    size_t             mapped_length; /* Bytes of cuMemCreate memory, or 0 */
    CUcontext          context;       /* Context of the allocation or lock */
    unsigned long long context_id;
    void               *host_memory;  /* Page-locked here, or NULL */
    uct_cuda_copy_user_t user;        /* Of device_memory */
};


/* Handle of registered memory without resources */
static uct_cuda_copy_memh_t nothing_to_do;


/* Make a context current for an allocation on a device */
static ucs_status_t push_for_allocation(uct_cuda_end_t gpu, bool use_inactive,
                                        uct_cuda_ctx_scope_t *context)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    ucs_status_t status;
    CUcontext cuda;
    int device;

    status = uct_cuda_ctx_enter_any(gpu, 0, context);
    if (status != UCS_ERR_NO_DEVICE) {
        return status;
    }

    /* A GPU requested by number may have memory of the program in a context
     * created by the program, which cannot be found */
    if (!use_inactive) {
        return (uct_cuda_end_is_gpu(gpu) &&
                (uct_cuda_ctx_own(uct_cuda_end_device(gpu), &cuda) ==
                 UCS_OK)) ?
                       uct_cuda_ctx_enter(
                               cuda, uct_cuda_end_device(gpu), context) :
                       UCS_ERR_NO_DEVICE;
    }

    device = uct_cuda_end_is_none(gpu) ? 0 : uct_cuda_end_device(gpu);
    if (driver->cuDevicePrimaryCtxRetain(&cuda, device) != CUDA_SUCCESS) {
        return UCS_ERR_NO_DEVICE;
    }

    /* stays retained: the memory lives in it */
    return uct_cuda_ctx_enter(cuda, device, context);
}

/* Allocate memory without a context, in whole granules, sharable by this type
 * of handle */
static ucs_status_t alloc_mapped(int device, CUmemAllocationHandleType handle,
                                 size_t length, uct_cuda_copy_memh_t *memh)
{
    const ucs_status_t status = uct_cuda_vmm_alloc(device, device, handle,
                                                   &length,
                                                   &memh->device_memory);

    if (status == UCS_OK) {
        memh->mapped_length = length;
    }
    return status;
}

static ucs_status_t alloc_plain(ucs_memory_type_t type, int device,
                                size_t length, bool hide_errors,
                                uct_cuda_copy_memh_t *memh)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    CUresult result;

    result = (type == UCS_MEMORY_TYPE_CUDA) ?
                     driver->cuMemAlloc(&memh->device_memory, length) :
                     driver->cuMemAllocManaged(&memh->device_memory, length,
                                               CU_MEM_ATTACH_GLOBAL);
    if (result != CUDA_SUCCESS) {
        uct_cuda_log(hide_errors ? UCT_CUDA_LOG_DEBUG : UCT_CUDA_LOG_ERROR,
                     "cannot allocate %zu bytes on GPU %d: %s", length, device,
                     uct_cuda_result_name(result));
    }

    return (result == CUDA_SUCCESS) ? UCS_OK : UCS_ERR_NO_MEMORY;
}

static ucs_status_t alloc(ucs_memory_type_t type, int device,
                          uct_cuda_copy_fabric_t fabric,
                          uct_cuda_copy_user_t user, size_t length,
                          bool hide_errors, uct_cuda_copy_memh_t *memh)
{
    if ((type == UCS_MEMORY_TYPE_CUDA) && (fabric != UCT_CUDA_COPY_FABRIC_NO)) {
        if (alloc_mapped(device, UCT_CUDA_VMM_FABRIC, length, memh) ==
            UCS_OK) {
            return UCS_OK;
        }

        if (fabric == UCT_CUDA_COPY_FABRIC_ONLY) {
            uct_cuda_log(hide_errors ? UCT_CUDA_LOG_DEBUG : UCT_CUDA_LOG_ERROR,
                         "cannot allocate %zu bytes on GPU %d with a fabric "
                         "handle",
                         length, device);
            return UCS_ERR_NO_MEMORY;
        }
    }

    if ((type == UCS_MEMORY_TYPE_CUDA) && (user == UCT_CUDA_COPY_FOR_UCP) &&
        (alloc_mapped(device, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, length,
                      memh) == UCS_OK)) {
        return UCS_OK;
    }

    return alloc_plain(type, device, length, hide_errors, memh);
}

ucs_status_t uct_cuda_copy_mem_alloc(ucs_memory_type_t type, uct_cuda_end_t gpu,
                                     bool use_inactive,
                                     uct_cuda_copy_fabric_t fabric,
                                     uct_cuda_copy_user_t user,
                                     bool hide_errors,
                                     size_t *length_p,
                                     void **address_p,
                                     uct_cuda_copy_memh_t **memh_p)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    uct_cuda_ctx_scope_t context;
    uct_cuda_copy_memh_t *memh;
    ucs_status_t status;

    if ((driver == NULL) || ((type != UCS_MEMORY_TYPE_CUDA) &&
                             (type != UCS_MEMORY_TYPE_CUDA_MANAGED))) {
        return UCS_ERR_UNSUPPORTED;
    }

    memh = calloc(1, sizeof(*memh));
    if (memh == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    status = push_for_allocation(gpu, use_inactive, &context);
    if (status != UCS_OK) {
        status = UCS_ERR_NO_DEVICE;
        goto err_free;
    }

    status = alloc(type, context.device, fabric, user, *length_p, hide_errors,
                   memh);
    if (status != UCS_OK) {
        goto err_pop;
    }

    if (memh->mapped_length != 0) {
        *length_p = memh->mapped_length;
    }
    memh->user = user;
    (void)uct_cuda_ctx_current(&memh->context, &memh->context_id);
    uct_cuda_ctx_leave(&context);

    *address_p = (void*)memh->device_memory;
    *memh_p    = memh;
    return UCS_OK;

err_pop:
    uct_cuda_ctx_leave(&context);
err_free:
    free(memh);
    return status;
}

ucs_status_t uct_cuda_copy_mem_free(uct_cuda_copy_memh_t *memh)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();

    /* memory freed by a reset may be the program's again; mappings survive a
     * reset */
    if (memh->mapped_length != 0) {
        uct_cuda_vmm_free(memh->device_memory, memh->mapped_length);
    } else if (uct_cuda_ctx_push_alive(memh->context, memh->context_id)) {
        if (memh->user == UCT_CUDA_COPY_FOR_PROBE) {
            UCT_CUDA_DEVICE_MEMORY_FREE(memh->device_memory, false);
        } else {
            (void)driver->cuMemFree(memh->device_memory);
        }
        uct_cuda_ctx_pop();
    }

    free(memh);
    return UCS_OK;
}

/* Copies of other memory only run slower, and UCP 1.13 aborts if it cannot
 * register its buffers */
static void log_not_page_locked(void *address, size_t length, bool hide)
{
    static bool is_logged = false;

    uct_cuda_log((hide ||
                  __atomic_exchange_n(&is_logged, true, __ATOMIC_RELAXED)) ?
                         UCT_CUDA_LOG_DEBUG :
                         UCT_CUDA_LOG_WARN,
                 "cannot page-lock %p (%zu bytes); copies will be slow",
                 address, length);
}

ucs_status_t uct_cuda_copy_mem_register(void *address, size_t length,
                                        bool hide_errors,
                                        uct_cuda_copy_memh_t **memh_p)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    uct_cuda_copy_memh_t *memh;
    uct_cuda_memory_t memory;
    unsigned long long context_id;
    CUcontext context;
    CUresult result;

    *memh_p = &nothing_to_do;
    if (uct_cuda_ctx_current(&context, &context_id) != UCS_OK) {
        return UCS_OK;
    }

    uct_cuda_memory_query(address, length, &memory);
    if (!uct_cuda_end_is_host(memory.end)) {
        return UCS_OK;
    }

    memh = calloc(1, sizeof(*memh));
    if (memh == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    /* In one piece, like stock UCX: the driver refuses the program's copies
     * across the edge of a registration, and this edge is the program's */
    result = driver->cuMemHostRegister(address, length,
                                       CU_MEMHOSTREGISTER_PORTABLE);
    if (result != CUDA_SUCCESS) {
        /* memory locked by the program is as good */
        log_not_page_locked(
                address, length,
                hide_errors ||
                        (result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED));
        free(memh);
        return UCS_OK;
    }

    memh->context     = context;
    memh->context_id  = context_id;
    memh->host_memory = address;
    *memh_p           = memh;
    return UCS_OK;
}

void uct_cuda_copy_mem_unregister(uct_cuda_copy_memh_t *memh)
{
    if (memh == &nothing_to_do) {
        return;
    }

    /* a destroyed context has released its registrations */
    if (uct_cuda_ctx_push_alive(memh->context, memh->context_id)) {
        (void)UCT_CUDA_CALL_NOLOG(cuMemHostUnregister, memh->host_memory);
        uct_cuda_ctx_pop();
    }

    free(memh);
}
