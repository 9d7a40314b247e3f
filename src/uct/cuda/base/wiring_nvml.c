/* SPDX-License-Identifier: BSD-3-Clause */
/* NVML part of the probe: NVLinks, and PCIe links of GPUs. */
#include <uct/cuda/base/wiring.h>

#include <uct/cuda/base/log.h>
#include <uct/cuda/base/nvml.h>

#include <ucs/sys/math.h>

#include <stdio.h>
#include <string.h>


/* Maximum links of a GPU; NVML reports the end of the list */
#define NVLINK_MAX_LINKS 36

/* NVLink-C2C links to query: a GH200 has ten, a GB200 five for each GPU */
#define C2C_MAX_LINKS 16

/* Fields of nvml.h since CUDA 12.0, by number */
#define FIELD_C2C_COUNT  170
#define FIELD_C2C_STATUS 171
#define FIELD_C2C_MBPS   172

#define MBPS 1e6


static int find_gpu(const uct_cuda_wiring_t *wiring,
                    const uct_cuda_bus_id_t *bus_id)
{
    int i;

    for (i = 0; i < wiring->num_gpus; ++i) {
        if (uct_cuda_bus_id_equal(&wiring->gpus[i].bus_id, bus_id)) {
            return i;
        }
    }

    return UCT_CUDA_WIRING_NONE;
}

static bool find_handle(const uct_cuda_nvml_t *nvml,
                        const uct_cuda_wiring_gpu_t *gpu, nvmlDevice_t *device)
{
    char text[32];

    snprintf(text, sizeof(text), "%04X:%02X:%02X.%X", gpu->bus_id.domain,
             gpu->bus_id.bus, gpu->bus_id.device, gpu->bus_id.function);
    if (nvml->nvmlDeviceGetHandleByPciBusId(text, device) != NVML_SUCCESS) {
        uct_cuda_debug("NVML does not know GPU %s", text);
        return false;
    }

    return true;
}

static void query_pcie(const uct_cuda_nvml_t *nvml, nvmlDevice_t device,
                       uct_cuda_wiring_gpu_t *gpu)
{
    uct_cuda_wiring_pcie_t pcie;
    unsigned generation, width;

    if ((nvml->nvmlDeviceGetMaxPcieLinkGeneration != NULL) &&
        (nvml->nvmlDeviceGetMaxPcieLinkWidth != NULL) &&
        (nvml->nvmlDeviceGetMaxPcieLinkGeneration(device, &generation) ==
         NVML_SUCCESS) &&
        (nvml->nvmlDeviceGetMaxPcieLinkWidth(device, &width) ==
         NVML_SUCCESS)) {
        pcie.generation = generation;
        pcie.width      = width;
        if (gpu->pcie.generation == 0) {
            gpu->pcie = pcie;
        }
        if ((gpu->pcie_own.generation == 0) ||
            uct_cuda_wiring_is_slow(&gpu->pcie_own, &pcie)) {
            gpu->pcie_own = pcie;
        }
    }
}

static bool is_mig(const uct_cuda_nvml_t *nvml, nvmlDevice_t device)
{
    unsigned current, pending;

    return (nvml->nvmlDeviceGetMigMode != NULL) &&
           (nvml->nvmlDeviceGetMigMode(device, &current, &pending) ==
            NVML_SUCCESS) &&
           (current == NVML_DEVICE_MIG_ENABLE);
}

/* NVLink fields of a GPU from one call; 0 is unknown */
typedef struct {
    unsigned count;
    unsigned switched; /* to NVSwitches */
    unsigned mbps;
    unsigned c2c;      /* NVLink-C2C */
} nvlink_fields_t;

static nvlink_fields_t query_nvlink_fields(const uct_cuda_nvml_t *nvml,
                                           nvmlDevice_t device)
{
    nvlink_fields_t result = {0};
    struct {
        unsigned id;
        unsigned *value;
    } wanted[] = {
        {NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON, &result.mbps},
        {NVML_FI_DEV_NVLINK_LINK_COUNT, &result.count},
        {NVML_FI_DEV_NVSWITCH_CONNECTED_LINK_COUNT, &result.switched},
        {FIELD_C2C_COUNT, &result.c2c},
    };
    enum {
        NUM_FIELDS = sizeof(wanted) / sizeof(wanted[0])
    };
    nvmlFieldValue_t fields[NUM_FIELDS];
    int i;

    memset(fields, 0, sizeof(fields));
    for (i = 0; i < NUM_FIELDS; ++i) {
        fields[i].fieldId = wanted[i].id;
    }

    if ((nvml->nvmlDeviceGetFieldValues == NULL) ||
        (nvml->nvmlDeviceGetFieldValues(device, NUM_FIELDS, fields) !=
         NVML_SUCCESS)) {
        return result;
    }

    for (i = 0; i < NUM_FIELDS; ++i) {
        if (fields[i].nvmlReturn == NVML_SUCCESS) {
            *wanted[i].value = fields[i].value.uiVal;
        }
    }

    return result;
}

/* Count the active NVLink-C2C links */
static void query_c2c(const uct_cuda_nvml_t *nvml, nvmlDevice_t device,
                      unsigned count, uct_cuda_wiring_gpu_t *gpu)
{
    nvmlFieldValue_t fields[2 * C2C_MAX_LINKS];
    unsigned i;

    count = ucs_min(count, C2C_MAX_LINKS);
    memset(fields, 0, sizeof(fields));
    for (i = 0; i < count; ++i) {
        fields[2 * i].fieldId     = FIELD_C2C_STATUS;
        fields[2 * i + 1].fieldId = FIELD_C2C_MBPS;
        fields[2 * i].scopeId     = i;
        fields[2 * i + 1].scopeId = i;
    }

    if ((count == 0) ||
        (nvml->nvmlDeviceGetFieldValues(device, (int)(2 * count), fields) !=
         NVML_SUCCESS)) {
        return;
    }

    for (i = 0; i < 2 * count; i += 2) {
        if ((fields[i].nvmlReturn == NVML_SUCCESS) &&
            (fields[i].value.uiVal == 1) &&
            (fields[i + 1].nvmlReturn == NVML_SUCCESS)) {
            ++gpu->num_c2c;
            gpu->c2c_rate += fields[i + 1].value.uiVal * MBPS;
        }
    }
}

/* Find the far end of an NVLink */
static void query_nvlink(const uct_cuda_nvml_t *nvml,
                         const uct_cuda_wiring_t *wiring, nvmlDevice_t device,
                         unsigned link, uct_cuda_wiring_gpu_t *gpu)
{
    nvmlIntNvLinkDeviceType_t type = NVML_NVLINK_DEVICE_TYPE_UNKNOWN;
    uct_cuda_wiring_end_t end      = UCT_CUDA_WIRING_UNKNOWN;
    uct_cuda_bus_id_t bus_id       = {0};
    nvmlPciInfo_t pci              = {0};
    int peer                       = UCT_CUDA_WIRING_NONE;

    if (nvml->nvmlDeviceGetNvLinkRemoteDeviceType != NULL) {
        (void)nvml->nvmlDeviceGetNvLinkRemoteDeviceType(device, link, &type);
    }

    if ((nvml->nvmlDeviceGetNvLinkRemotePciInfo == NULL) ||
        (nvml->nvmlDeviceGetNvLinkRemotePciInfo(device, link, &pci) !=
         NVML_SUCCESS) ||
        !uct_cuda_bus_id_parse(pci.busId, &bus_id)) {
        memset(&bus_id, 0, sizeof(bus_id));
    }

    if (type == NVML_NVLINK_DEVICE_TYPE_SWITCH) {
        end = UCT_CUDA_WIRING_SWITCH;
    } else if (type == NVML_NVLINK_DEVICE_TYPE_IBMNPU) {
        end = UCT_CUDA_WIRING_CPU;
    } else {
        peer = find_gpu(wiring, &bus_id);
        if (peer != UCT_CUDA_WIRING_NONE) {
            end = UCT_CUDA_WIRING_GPU;
        } else if (type == NVML_NVLINK_DEVICE_TYPE_GPU) {
            end = UCT_CUDA_WIRING_HIDDEN;
        }
    }

    uct_cuda_wiring_add_nvlink(gpu, end, peer, &bus_id);
}

static void query_nvlinks(const uct_cuda_nvml_t *nvml,
                          const uct_cuda_wiring_t *wiring, nvmlDevice_t device,
                          bool details, uct_cuda_wiring_gpu_t *gpu)
{
    const uct_cuda_bus_id_t nowhere = {0};
    bool is_version_known           = false;
    unsigned most                   = NVLINK_MAX_LINKS;
    const nvlink_fields_t fields    = query_nvlink_fields(nvml, device);
    nvmlEnableState_t state;
    unsigned link;

    query_c2c(nvml, device, fields.c2c, gpu);

    /* a GPU without NVLink reports no state for its first link */
    if ((nvml->nvmlDeviceGetNvLinkState == NULL) ||
        (nvml->nvmlDeviceGetNvLinkState(device, 0, &state) != NVML_SUCCESS)) {
        return;
    }

    gpu->nvlink_rate = fields.mbps * MBPS;
    if ((fields.count > 0) && (fields.count < most)) {
        most = fields.count;
    }

    for (link = 0; link < most; ++link) {
        if ((link > 0) && (nvml->nvmlDeviceGetNvLinkState(device, link,
                                                          &state) !=
                           NVML_SUCCESS)) {
            continue;
        }

        if (state != NVML_FEATURE_ENABLED) {
            gpu->nvlinks_down += (fields.count > 0);
            continue;
        }

        if (!is_version_known && (nvml->nvmlDeviceGetNvLinkVersion != NULL)) {
            is_version_known =
                    (nvml->nvmlDeviceGetNvLinkVersion(device, link,
                                                      &gpu->nvlink_version) ==
                     NVML_SUCCESS);
        }

        /* A GPU has either switches or peers at its links. NVML takes about 30
         * us for each query (H200), so 18 links to switches are only
         * counted. */
        if ((fields.switched > 0) && !details) {
            uct_cuda_wiring_add_nvlink(gpu, UCT_CUDA_WIRING_SWITCH,
                                       UCT_CUDA_WIRING_NONE, &nowhere);
        } else {
            query_nvlink(nvml, wiring, device, link, gpu);
        }
    }
}

void uct_cuda_wiring_read_nvml(uct_cuda_wiring_t *wiring, bool details)
{
    nvmlDevice_t devices[UCT_CUDA_MAX_GPUS];
    bool is_known[UCT_CUDA_MAX_GPUS];
    double start = uct_cuda_wiring_now();
    uct_cuda_wiring_pcie_t pcie;
    const uct_cuda_nvml_t *nvml;
    unsigned count;
    double now;
    int i;

    nvml                    = uct_cuda_nvml_get();
    now                     = uct_cuda_wiring_now();
    wiring->times.nvml_load = now - start;
    if (nvml == NULL) {
        return;
    }

    start = now;
    for (i = 0; i < wiring->num_gpus; ++i) {
        is_known[i]      = find_handle(nvml, &wiring->gpus[i], &devices[i]);
        wiring->has_nvml = wiring->has_nvml || is_known[i];
    }

    now                        = uct_cuda_wiring_now();
    wiring->times.nvml_handles = now - start;
    for (i = 0; i < wiring->num_gpus; ++i) {
        if (!is_known[i]) {
            continue;
        }

        /* 2.6 ms for each GPU (H200), for data usually in sysfs */
        if ((wiring->gpus[i].pcie.generation == 0) ||
            uct_cuda_wiring_believe(&wiring->gpus[i], &pcie)) {
            query_pcie(nvml, devices[i], &wiring->gpus[i]);
        }
        wiring->gpus[i].is_mig = is_mig(nvml, devices[i]);
        if (!wiring->gpus[i].is_mig) {
            query_nvlinks(nvml, wiring, devices[i], details, &wiring->gpus[i]);
        }
    }

    if ((nvml->nvmlDeviceGetCount != NULL) &&
        (nvml->nvmlDeviceGetCount(&count) == NVML_SUCCESS) &&
        ((int)count > wiring->num_gpus)) {
        wiring->num_hidden = (int)count - wiring->num_gpus;
    }

    wiring->times.nvml = uct_cuda_wiring_now() - now;
}

/* Put GPUs at most `level` apart, and not all nearer than `least`, behind a
 * switch of their own, below an existing one */
static void add_switches(uct_cuda_wiring_t *wiring, int least, int level,
                         int levels[][UCT_CUDA_MAX_GPUS])
{
    bool is_behind[UCT_CUDA_MAX_GPUS] = {false};
    uct_cuda_wiring_switch_t *added;
    int i, j, count;

    for (i = 0; i < wiring->num_gpus; ++i) {
        count = 0;
        for (j = i + 1; j < wiring->num_gpus; ++j) {
            count += (levels[i][j] >= least) && (levels[i][j] <= level);
        }

        if (is_behind[i] || (count == 0) ||
            (wiring->num_switches == UCT_CUDA_WIRING_MAX_SWITCHES)) {
            continue;
        }

        added       = &wiring->switches[wiring->num_switches];
        added->numa = wiring->gpus[i].numa;
        added->pcie = wiring->gpus[i].pcie;
        memset(&added->bus_id, 0, sizeof(added->bus_id));
        added->parent = wiring->gpus[i].pci_switch;
        for (j = i; j < wiring->num_gpus; ++j) {
            if ((j == i) || (levels[i][j] <= level)) {
                is_behind[j]               = true;
                wiring->gpus[j].pci_switch = wiring->num_switches;
            }
        }
        ++wiring->num_switches;
    }
}

void uct_cuda_wiring_read_nvml_switches(uct_cuda_wiring_t *wiring)
{
    const uct_cuda_nvml_t *nvml = uct_cuda_nvml_get();
    double start                = uct_cuda_wiring_now();
    int levels[UCT_CUDA_MAX_GPUS][UCT_CUDA_MAX_GPUS];
    nvmlDevice_t devices[UCT_CUDA_MAX_GPUS];
    nvmlGpuTopologyLevel_t level;
    int i, j;

    if ((nvml == NULL) || (nvml->nvmlDeviceGetTopologyCommonAncestor == NULL)) {
        return;
    }

    for (i = 0; i < wiring->num_gpus; ++i) {
        wiring->gpus[i].pci_switch = UCT_CUDA_WIRING_NONE;
        if (!find_handle(nvml, &wiring->gpus[i], &devices[i])) {
            return;
        }
    }

    wiring->num_switches = 0;
    for (i = 0; i < wiring->num_gpus; ++i) {
        for (j = i + 1; j < wiring->num_gpus; ++j) {
            if (nvml->nvmlDeviceGetTopologyCommonAncestor(devices[i],
                                                          devices[j],
                                                          &level) !=
                NVML_SUCCESS) {
                level = NVML_TOPOLOGY_SYSTEM;
            }
            levels[i][j] = levels[j][i] = (int)level;
        }
    }

    /* wider groups first: a switch comes after the one above it */
    add_switches(wiring, NVML_TOPOLOGY_MULTIPLE, NVML_TOPOLOGY_MULTIPLE,
                 levels);
    add_switches(wiring, NVML_TOPOLOGY_INTERNAL, NVML_TOPOLOGY_SINGLE, levels);
    wiring->times.nvml += uct_cuda_wiring_now() - start;
}
