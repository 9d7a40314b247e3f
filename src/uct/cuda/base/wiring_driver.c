/* SPDX-License-Identifier: BSD-3-Clause */
/* Wiring reported by the CUDA driver. */
#include <uct/cuda/base/wiring.h>

#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/log.h>

#include <string.h>


/* CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, new in CUDA 12.2 */
#define ATTRIBUTE_HOST_NUMA_ID ((CUdevice_attribute)134)


static int
query_attribute(int device, CUdevice_attribute attribute, int unknown)
{
    int value = unknown;

    (void)UCT_CUDA_CALL_NOLOG(cuDeviceGetAttribute, &value, attribute, device);
    return value;
}

static void query_gpu(uct_cuda_wiring_t *wiring, int device, bool details)
{
    uct_cuda_wiring_gpu_t *gpu = &wiring->gpus[device];
    char text[32]              = "";
    CUuuid uuid;
    int major, minor;

    gpu->numa       = UCT_CUDA_WIRING_NONE;
    gpu->pci_switch = UCT_CUDA_WIRING_NONE;
    if ((UCT_CUDA_CALL_NOLOG(cuDeviceGetPCIBusId, text, (int)sizeof(text),
                             device) != UCS_OK) ||
        !uct_cuda_bus_id_parse(text, &gpu->bus_id)) {
        uct_cuda_debug("gpu%d has no PCI bus id (\"%s\")", device, text);
    }

    if (UCT_CUDA_CALL_NOLOG(cuDeviceGetUuid, &uuid, device) == UCS_OK) {
        memcpy(gpu->uuid, uuid.bytes, sizeof(gpu->uuid));
    }

    if (details) {
        (void)UCT_CUDA_CALL_NOLOG(cuDeviceGetName, gpu->name,
                                  (int)sizeof(gpu->name) - 1, device);
        (void)UCT_CUDA_CALL_NOLOG(cuDeviceTotalMem, &gpu->memory, device);
    }

    major     = query_attribute(
            device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0);
    minor     = query_attribute(
            device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0);
    gpu->sm   = 10 * major + minor;
    gpu->numa = uct_cuda_wiring_numa(wiring,
                                     query_attribute(
                                             device, ATTRIBUTE_HOST_NUMA_ID,
                                             -1));
}

static int query_p2p(CUdevice_P2PAttribute attribute, int from, int to)
{
    int value = 0;

    return (UCT_CUDA_CALL_NOLOG(cuDeviceGetP2PAttribute, &value, attribute,
                                from, to) == UCS_OK) ?
                   value :
                   0;
}

static void
query_pair(uct_cuda_wiring_t *wiring, int from, int to, bool details)
{
    int can = 0;

    if ((UCT_CUDA_CALL_NOLOG(cuDeviceCanAccessPeer, &can, from, to) !=
         UCS_OK) ||
        !can) {
        return;
    }

    wiring->access[from][to]  = true;
    wiring->atomics[from][to] =
            query_p2p(CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, from,
                      to);
    if (details) {
        wiring->rank[from][to] =
                query_p2p(CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, from, to);
    }
}

ucs_status_t uct_cuda_wiring_read_driver(uct_cuda_wiring_t *wiring,
                                         bool details)
{
    int count, i, j;

    if ((UCT_CUDA_CALL_NOLOG(cuDeviceGetCount, &count) != UCS_OK) ||
        (count <= 0)) {
        return UCS_ERR_NO_DEVICE;
    }

    if (count > UCT_CUDA_MAX_GPUS) {
        uct_cuda_info("several paths use only the first %d of %d GPUs",
                      UCT_CUDA_MAX_GPUS, count);
        count = UCT_CUDA_MAX_GPUS;
    }

    wiring->num_gpus = count;
    for (i = 0; i < count; ++i) {
        query_gpu(wiring, i, details);
    }

    for (i = 0; i < count; ++i) {
        for (j = 0; j < count; ++j) {
            if (i != j) {
                query_pair(wiring, i, j, details);
            }
        }
    }

    return UCS_OK;
}
