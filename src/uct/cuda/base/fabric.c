/* SPDX-License-Identifier: BSD-3-Clause */
/* Multi-node NVLink, as reported by NVML. */
#include <uct/cuda/base/fabric.h>

#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/nvml.h>

#include <string.h>


/* CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, from CUDA 12.4 on */
#define ATTRIBUTE_FABRIC ((CUdevice_attribute)128)

/* NVML_GPU_FABRIC_STATE_COMPLETED: the GPU is registered with the fabric */
#define STATE_COMPLETED 3


/* nvmlGpuFabricInfo_t, missing in nvml.h before 12.0 */
typedef struct {
    uint8_t  cluster[16];
    uint32_t status; /* nvmlReturn_t of the registration */
    uint32_t clique;
    uint8_t  state;
} fabric_info_t;


static bool is_supported_by_driver(void)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    int is_supported                = 0;

    return (driver != NULL) &&
           (driver->cuDeviceGetAttribute(&is_supported, ATTRIBUTE_FABRIC, 0) ==
            CUDA_SUCCESS) &&
           is_supported;
}

static bool query_nvml(fabric_info_t *info)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    const uct_cuda_nvml_t *nvml     = uct_cuda_nvml_get();
    char bus_id[32]                 = "";
    nvmlDevice_t device;

    return (nvml != NULL) && (nvml->nvmlDeviceGetGpuFabricInfo != NULL) &&
           (driver->cuDeviceGetPCIBusId(bus_id, sizeof(bus_id), 0) ==
            CUDA_SUCCESS) &&
           (nvml->nvmlDeviceGetHandleByPciBusId(bus_id, &device) ==
            NVML_SUCCESS) &&
           (nvml->nvmlDeviceGetGpuFabricInfo(device, info) == NVML_SUCCESS);
}

bool uct_cuda_fabric_find(uct_cuda_fabric_t *fabric)
{
    static const uint8_t nowhere[sizeof(fabric->cluster)];
    fabric_info_t info;

    memset(fabric, 0, sizeof(*fabric));
    memset(&info, 0, sizeof(info));
    if (!is_supported_by_driver() || !query_nvml(&info)) {
        return false;
    }

    /* a single node behind an NVSwitch is registered as well, without a
     * cluster */
    uct_cuda_debug("NVLink fabric: state %u, status %u, clique %u", info.state,
                   info.status, info.clique);
    if ((info.state != STATE_COMPLETED) || (info.status != NVML_SUCCESS) ||
        (memcmp(info.cluster, nowhere, sizeof(nowhere)) == 0)) {
        return false;
    }

    memcpy(fabric->cluster, info.cluster, sizeof(fabric->cluster));
    fabric->clique = info.clique;
    return true;
}
