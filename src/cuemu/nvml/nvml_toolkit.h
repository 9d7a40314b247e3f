/* SPDX-License-Identifier: BSD-3-Clause */

/* nvml.h, with additions for older toolkits, from 12.0 on. */
#ifndef CUEMU_NVML_TOOLKIT_H_
#define CUEMU_NVML_TOOLKIT_H_

#include <nvml.h>

#ifndef nvmlGpuFabricInfo_v2 /* before 12.3 */
typedef struct {
    unsigned      version;
    unsigned char clusterUuid[16];
    nvmlReturn_t  status;
    unsigned      cliqueId;
    unsigned char state;
    unsigned      healthMask;
} nvmlGpuFabricInfoV_t;

#define nvmlGpuFabricInfo_v2 (sizeof(nvmlGpuFabricInfoV_t) | (2u << 24))

#ifdef __cplusplus
extern "C"
#endif
        nvmlReturn_t
        nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device,
                                    nvmlGpuFabricInfoV_t *gpuFabricInfo);
#endif

#endif
