/* SPDX-License-Identifier: BSD-3-Clause */
/* Table of visible GPUs, filled once. */
#include <uct/cuda/base/gpu.h>

#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/nvml.h>

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
