/* SPDX-License-Identifier: BSD-3-Clause */
/* Table of visible GPUs, filled once, and use of their contexts. */
#include <uct/cuda/base/gpu.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/nvml.h>
#include <uct/cuda/base/pointer.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>


/* Above the priority of UCX's own names (0 to 9) */
#define SYS_DEVICE_NAME_PRIORITY 10


static struct {
    pthread_once_t once;
    int            count;
    int            sm_major;
    bool           is_filled;
    struct {
        uint8_t          uuid[16];
        ucs_sys_device_t sys_device;
    } gpus[UCT_CUDA_MAX_GPUS];
} table = {.once = PTHREAD_ONCE_INIT};


static ucs_sys_device_t find_sys_device(int device)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    ucs_sys_device_t sys_device;
    int domain, bus, slot;

    if ((driver->cuDeviceGetAttribute(&domain,
                                      CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID,
                                      device) != CUDA_SUCCESS) ||
        (driver->cuDeviceGetAttribute(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
                                      device) != CUDA_SUCCESS) ||
        (driver->cuDeviceGetAttribute(&slot, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID,
                                      device) != CUDA_SUCCESS) ||
        (uct_abi_topo_sys_device(domain, bus, slot, 0, &sys_device) !=
         UCS_OK)) {
        return UCT_ABI_SYS_DEVICE_UNKNOWN;
    }

    return sys_device;
}

static void table_fill(void)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    int count                       = 0;
    CUuuid uuid;
    int i;

    if ((driver == NULL) ||
        (driver->cuDeviceGetCount(&count) != CUDA_SUCCESS)) {
        goto out;
    }

    if (count > UCT_CUDA_MAX_GPUS) {
        uct_cuda_warn("%d GPUs found, only the first %d are used", count,
                      UCT_CUDA_MAX_GPUS);
        count = UCT_CUDA_MAX_GPUS;
    }

    for (i = 0; i < count; ++i) {
        if (driver->cuDeviceGetUuid(&uuid, i) == CUDA_SUCCESS) {
            memcpy(table.gpus[i].uuid, &uuid, sizeof(table.gpus[i].uuid));
        }
        table.gpus[i].sys_device = find_sys_device(i);
    }

    if (count > 0) {
        (void)driver->cuDeviceGetAttribute(
                &table.sm_major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                0);
    }

    table.count = count;
out:
    __atomic_store_n(&table.is_filled, true, __ATOMIC_RELEASE);
}

int uct_cuda_gpu_count(void)
{
    if (!__atomic_load_n(&table.is_filled, __ATOMIC_ACQUIRE)) {
        pthread_once(&table.once, table_fill);
    }
    return table.count;
}

void uct_cuda_gpu_name_sys_devices(void)
{
    char name[16];
    int i;

    for (i = 0; i < uct_cuda_gpu_count(); ++i) {
        if (table.gpus[i].sys_device != UCT_ABI_SYS_DEVICE_UNKNOWN) {
            snprintf(name, sizeof(name), "GPU%d", i);
            (void)uct_abi_topo_sys_device_set_name(table.gpus[i].sys_device,
                                                   name,
                                                   SYS_DEVICE_NAME_PRIORITY);
        }
    }
}

ucs_sys_device_t uct_cuda_gpu_sys_device(int device)
{
    return ((device >= 0) && (device < uct_cuda_gpu_count())) ?
                   table.gpus[device].sys_device :
                   UCT_ABI_SYS_DEVICE_UNKNOWN;
}

uct_cuda_end_t uct_cuda_gpu_by_sys_device(ucs_sys_device_t sys_device)
{
    int i;

    if (sys_device == UCT_ABI_SYS_DEVICE_UNKNOWN) {
        return uct_cuda_end_none();
    }

    for (i = 0; i < uct_cuda_gpu_count(); ++i) {
        if (table.gpus[i].sys_device == sys_device) {
            return uct_cuda_end_gpu(i);
        }
    }

    return uct_cuda_end_none();
}

uct_cuda_end_t uct_cuda_gpu_by_uuid(const uint8_t uuid[16])
{
    int i;

    for (i = 0; i < uct_cuda_gpu_count(); ++i) {
        if (memcmp(table.gpus[i].uuid, uuid, 16) == 0) {
            return uct_cuda_end_gpu(i);
        }
    }

    return uct_cuda_end_hidden();
}

int uct_cuda_gpu_sm_major(void)
{
    return (uct_cuda_gpu_count() > 0) ? table.sm_major : 0;
}

/* Return whether NVML knows an active NVLink of GPU 0 */
static bool nvml_has_nvlink(void)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    const uct_cuda_nvml_t *nvml     = uct_cuda_nvml_get();
    nvmlEnableState_t state;
    nvmlDevice_t device;
    char bus_id[32];
    unsigned link;

    if ((nvml == NULL) || (nvml->nvmlDeviceGetNvLinkState == NULL) ||
        (driver->cuDeviceGetPCIBusId(bus_id, sizeof(bus_id), 0) !=
         CUDA_SUCCESS) ||
        (nvml->nvmlDeviceGetHandleByPciBusId(bus_id, &device) !=
         NVML_SUCCESS)) {
        return false;
    }

    for (link = 0; link < NVML_NVLINK_MAX_LINKS; ++link) {
        if ((nvml->nvmlDeviceGetNvLinkState(device, link, &state) ==
             NVML_SUCCESS) &&
            (state == NVML_FEATURE_ENABLED)) {
            return true;
        }
    }

    return false;
}

static pthread_once_t nvlink_once = PTHREAD_ONCE_INIT;
static bool has_nvlink;

static void nvlink_find(void)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    int count                       = uct_cuda_gpu_count();
    int peer, has_atomics;

    /* atomics on a peer's memory work over NVLink, but not over PCIe */
    for (peer = 1; (peer < count) && !has_nvlink; ++peer) {
        has_nvlink = (driver->cuDeviceGetP2PAttribute != NULL) &&
                     (driver->cuDeviceGetP2PAttribute(
                              &has_atomics,
                              CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED,
                              0, peer) == CUDA_SUCCESS) &&
                     has_atomics;
    }

    if (count == 1) {
        has_nvlink = nvml_has_nvlink();
    }
}

bool uct_cuda_gpu_has_nvlink(void)
{
    pthread_once(&nvlink_once, nvlink_find);
    return has_nvlink;
}

static void release(const uct_cuda_gpu_context_t *context)
{
    if (context->retained == UCT_CUDA_GPU_RETAINED_PRIMARY) {
        (void)uct_cuda_driver_get()->cuDevicePrimaryCtxRelease(context->device);
    } else if (context->retained == UCT_CUDA_GPU_RETAINED_KEPT) {
        uct_cuda_ctx_release(context->device);
    }
}

/* Push a context, or release it */
static ucs_status_t push(CUcontext cuda, int device,
                         uct_cuda_gpu_retained_t retained,
                         uct_cuda_gpu_context_t *context)
{
    context->cuda      = cuda;
    context->device    = device;
    context->retained  = retained;
    context->is_pushed = uct_cuda_driver_get()->cuCtxPushCurrent(cuda) ==
                         CUDA_SUCCESS;
    if (!context->is_pushed) {
        release(context);
    }

    return context->is_pushed ? UCS_OK : UCS_ERR_IO_ERROR;
}

/* Retain and push a device's primary context, if it is active */
static ucs_status_t push_primary(int device, uct_cuda_gpu_context_t *context)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    unsigned flags;
    int is_active = 0;
    CUcontext cuda;

    if ((driver->cuDevicePrimaryCtxGetState(device, &flags, &is_active) !=
         CUDA_SUCCESS) ||
        !is_active) {
        return UCS_ERR_NO_DEVICE;
    }

    return (driver->cuDevicePrimaryCtxRetain(&cuda, device) != CUDA_SUCCESS) ?
                   UCS_ERR_IO_ERROR :
                   push(cuda, device, UCT_CUDA_GPU_RETAINED_PRIMARY, context);
}

ucs_status_t uct_cuda_gpu_context_push_kept(int device,
                                            uct_cuda_gpu_context_t *context)
{
    CUcontext cuda;

    return uct_cuda_ctx_retain_kept(device, &cuda) ?
                   push(cuda, device, UCT_CUDA_GPU_RETAINED_KEPT, context) :
                   UCS_ERR_NO_DEVICE;
}

/* Return whether a GPU can access memory, if any */
static bool fits(int device, CUdeviceptr memory)
{
    return (memory == 0) ||
           uct_cuda_pointer_has_access(uct_cuda_driver_get(), device, memory,
                                       CU_MEM_ACCESS_FLAGS_PROT_READ);
}

/* Use the current context. One that was reset is still current, but
 * unusable. */
static bool use_current(uct_cuda_gpu_context_t *context)
{
    unsigned long long id;

    context->is_pushed = false;
    return (uct_cuda_ctx_current(&context->cuda, &id) == UCS_OK) &&
           (uct_cuda_driver_get()->cuCtxGetDevice(&context->device) ==
            CUDA_SUCCESS);
}

ucs_status_t uct_cuda_gpu_context_push(CUcontext cuda, int device,
                                       uct_cuda_gpu_context_t *context)
{
    CUcontext current = NULL;

    if (cuda == NULL) {
        return ((push_primary(device, context) == UCS_OK) ||
                (use_current(context) && (context->device == device))) ?
                       UCS_OK :
                       uct_cuda_gpu_context_push_kept(device, context);
    }

    if ((uct_cuda_driver_get()->cuCtxGetCurrent(&current) == CUDA_SUCCESS) &&
        (current == cuda)) {
        context->cuda      = cuda;
        context->device    = device;
        context->is_pushed = false;
        return UCS_OK;
    }

    return push(cuda, device, UCT_CUDA_GPU_RETAINED_NONE, context);
}

ucs_status_t uct_cuda_gpu_context_push_any(uct_cuda_end_t gpu,
                                           CUdeviceptr memory,
                                           uct_cuda_gpu_context_t *context)
{
    int i;

    if (use_current(context) &&
        ((gpu.kind == UCT_CUDA_END_NONE) || (gpu.device == context->device)) &&
        fits(context->device, memory)) {
        return UCS_OK;
    }

    if (gpu.kind != UCT_CUDA_END_NONE) {
        return push_primary(gpu.device, context);
    }

    for (i = 0; i < uct_cuda_gpu_count(); ++i) {
        if (fits(i, memory) && (push_primary(i, context) == UCS_OK)) {
            return UCS_OK;
        }
    }

    return UCS_ERR_NO_DEVICE;
}

ucs_status_t uct_cuda_gpu_context_push_for(int device, CUdeviceptr memory,
                                           uct_cuda_gpu_context_t *context)
{
    ucs_status_t status;
    CUcontext own;

    if ((uct_cuda_gpu_context_push(NULL, device, context) == UCS_OK) ||
        (uct_cuda_gpu_context_push_any(uct_cuda_end_none(), memory, context) ==
         UCS_OK)) {
        return UCS_OK;
    }

    status = uct_cuda_ctx_own(device, &own);
    return (status == UCS_OK) ?
                   uct_cuda_gpu_context_push(own, device, context) :
                   status;
}

void uct_cuda_gpu_context_pop_pushed(const uct_cuda_gpu_context_t *context)
{
    CUcontext popped;

    (void)uct_cuda_driver_get()->cuCtxPopCurrent(&popped);
    release(context);
}
