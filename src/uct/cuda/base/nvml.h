/* SPDX-License-Identifier: BSD-3-Clause */
/* NVIDIA's management library, loaded at run time when the node is probed. */
#ifndef UCT_CUDA_BASE_NVML_H
#define UCT_CUDA_BASE_NVML_H

#include <ucs/sys/compiler_def.h>

#include <nvml.h>

BEGIN_C_DECLS


/* As UCT_CUDA_DRIVER_FUNCTIONS: name, exported symbol, arguments */
#define UCT_CUDA_NVML_FUNCTIONS(_req, _opt) \
    _req(nvmlInit, "nvmlInit_v2", (void)) \
    _req(nvmlShutdown, "nvmlShutdown", (void)) \
    _req(nvmlDeviceGetHandleByPciBusId, "nvmlDeviceGetHandleByPciBusId_v2", \
         (const char*, nvmlDevice_t*)) \
    _opt(nvmlDeviceGetCount, "nvmlDeviceGetCount_v2", (unsigned*)) \
    _opt(nvmlDeviceGetMigMode, "nvmlDeviceGetMigMode", \
         (nvmlDevice_t, unsigned*, unsigned*)) \
    _opt(nvmlDeviceGetTopologyCommonAncestor, \
         "nvmlDeviceGetTopologyCommonAncestor", \
         (nvmlDevice_t, nvmlDevice_t, nvmlGpuTopologyLevel_t*)) \
    _opt(nvmlDeviceGetFieldValues, "nvmlDeviceGetFieldValues", \
         (nvmlDevice_t, int, nvmlFieldValue_t*)) \
    _opt(nvmlDeviceGetNvLinkState, "nvmlDeviceGetNvLinkState", \
         (nvmlDevice_t, unsigned, nvmlEnableState_t*)) \
    _opt(nvmlDeviceGetNvLinkVersion, "nvmlDeviceGetNvLinkVersion", \
         (nvmlDevice_t, unsigned, unsigned*)) \
    _opt(nvmlDeviceGetNvLinkRemotePciInfo, \
         "nvmlDeviceGetNvLinkRemotePciInfo_v2", \
         (nvmlDevice_t, unsigned, nvmlPciInfo_t*)) \
    _opt(nvmlDeviceGetNvLinkRemoteDeviceType, \
         "nvmlDeviceGetNvLinkRemoteDeviceType", \
         (nvmlDevice_t, unsigned, nvmlIntNvLinkDeviceType_t*)) \
    _opt(nvmlDeviceGetGpuFabricInfo, "nvmlDeviceGetGpuFabricInfo", \
         (nvmlDevice_t, void*)) /* its structure: see fabric.c */ \
    _opt(nvmlDeviceGetMaxPcieLinkGeneration, \
         "nvmlDeviceGetMaxPcieLinkGeneration", (nvmlDevice_t, unsigned*)) \
    _opt(nvmlDeviceGetMaxPcieLinkWidth, "nvmlDeviceGetMaxPcieLinkWidth", \
         (nvmlDevice_t, unsigned*))


#define UCT_CUDA_NVML_MEMBER(_name, _symbol, _args) nvmlReturn_t(*_name) _args;

typedef struct uct_cuda_nvml {
    UCT_CUDA_NVML_FUNCTIONS(UCT_CUDA_NVML_MEMBER, UCT_CUDA_NVML_MEMBER)
} uct_cuda_nvml_t;


/** Return the functions of the library, loaded and initialized, or NULL. The
 *  first call takes about 25 ms on a node with GPUs. A failure is a debug
 *  message only, since all queries have a fallback. Thread safe. */
const uct_cuda_nvml_t *uct_cuda_nvml_get(void);


/** Use another table, or with NULL the real one. For tests. */
void uct_cuda_nvml_override(const uct_cuda_nvml_t *nvml);


END_C_DECLS

#endif
