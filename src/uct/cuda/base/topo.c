/* SPDX-License-Identifier: BSD-3-Clause */
/* Probing how the node's GPUs are wired, through the driver and NVML. */
#include <uct/cuda/base/topo.h>

#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/nvml.h>

#include <pthread.h>
#include <stdbool.h>
#include <string.h>


/* Seconds from submitting a tiny copy until a poll sees it done: 8.0 us between
 * GPUs, 6.6 to 8.2 us with the host; measured on H200 */
#define LATENCY_GPU  8e-6
#define LATENCY_HOST 7e-6

/* What copies get of an NVLink's signalling rate. Up to NVLink 3: 48 of
 * 51.6 GB/s over two V100 links. From NVLink 4: 396 of 478 GB/s over an H200's
 * 18 links, measured. */
#define NVLINK_EFFICIENCY_OLD 0.93
#define NVLINK_EFFICIENCY_NEW 0.83
#define NVLINK_VERSION_NEW    6 /* NVML's number of NVLink 4.0 */

/* Links that the largest GPU may have; NVML says where the list ends */
#define NVLINK_MAX_LINKS 36

#define GIGA 1e9


/* What is found out about one GPU before links can be drawn */
typedef struct {
    double       nvlink_bandwidth; /* one link, bytes/s in effect */
    int          to_gpu[UCT_CUDA_TOPO_MAX_GPUS];
    int          to_switch;
    int          to_cpu;
    int          to_unknown;
    double       pcie_bandwidth; /* bytes/s in effect */
    nvmlDevice_t nvml;
} probe_gpu_t;


static struct {
    pthread_mutex_t       lock;
    bool                  is_valid;
    uct_cuda_topo_t       topo;
    const uct_cuda_topo_t *override;
} cached = {.lock = PTHREAD_MUTEX_INITIALIZER};


void uct_cuda_topo_init(uct_cuda_topo_t *topo, int num_gpus)
{
    uct_cuda_topo_link_t none = {0};
    int i, j;

    for (i = 0; i < UCT_CUDA_TOPO_LINK_LIMITS; ++i) {
        none.limits[i] = UCT_CUDA_TOPO_NO_LIMIT;
    }

    memset(topo, 0, sizeof(*topo));
    memset(topo->sockets, 0xff, sizeof(topo->sockets)); /* NO_LIMIT */
    topo->num_gpus = num_gpus;
    for (i = 0; i < UCT_CUDA_TOPO_MAX_GPUS; ++i) {
        topo->gpus[i].to_host   = none;
        topo->gpus[i].from_host = none;
        for (j = 0; j < UCT_CUDA_TOPO_MAX_GPUS; ++j) {
            topo->links[i][j] = none;
        }
    }
}

int uct_cuda_topo_add_limit(uct_cuda_topo_t *topo, double bandwidth)
{
    if (topo->num_limits == UCT_CUDA_TOPO_MAX_LIMITS) {
        return UCT_CUDA_TOPO_NO_LIMIT;
    }

    topo->limits[topo->num_limits] = bandwidth;
    return topo->num_limits++;
}

void uct_cuda_topo_link_add_limit(const uct_cuda_topo_t *topo,
                                  uct_cuda_topo_link_t *link, int limit)
{
    int i;

    if (limit == UCT_CUDA_TOPO_NO_LIMIT) {
        return;
    }

    if (topo->limits[limit] < link->bandwidth) {
        link->bandwidth = topo->limits[limit];
    }

    for (i = 0; i < UCT_CUDA_TOPO_LINK_LIMITS; ++i) {
        if (link->limits[i] == limit) {
            return;
        } else if (link->limits[i] == UCT_CUDA_TOPO_NO_LIMIT) {
            link->limits[i] = (int16_t)limit;
            return;
        }
    }
}

void uct_cuda_topo_set_link(uct_cuda_topo_t *topo, int from, int to,
                            double bandwidth, int limit_from, int limit_to)
{
    uct_cuda_topo_link_t *link = &topo->links[from][to];

    link->bandwidth = bandwidth;
    link->latency   = LATENCY_GPU;
    link->limits[0] = limit_from;
    link->limits[1] = limit_to;
}

void uct_cuda_topo_set_host(uct_cuda_topo_t *topo, int gpu, double bandwidth,
                            int limit_to_host, int limit_from_host)
{
    uct_cuda_topo_link_t *to   = &topo->gpus[gpu].to_host;
    uct_cuda_topo_link_t *from = &topo->gpus[gpu].from_host;

    to->bandwidth   = from->bandwidth = bandwidth;
    to->latency     = from->latency   = LATENCY_HOST;
    to->limits[0]   = limit_to_host;
    from->limits[0] = limit_from_host;
}

static int find_numa(const uct_cuda_topo_t *topo, int os_index)
{
    int i;

    for (i = 0; i < topo->num_numa; ++i) {
        if (topo->numa[i].os_index == os_index) {
            return i;
        }
    }

    return -1;
}

uct_cuda_topo_link_t uct_cuda_topo_host_link(const uct_cuda_topo_t *topo,
                                             int gpu, int numa, int to_host)
{
    uct_cuda_topo_link_t link = to_host ? topo->gpus[gpu].to_host :
                                          topo->gpus[gpu].from_host;
    int own                   = find_numa(topo, topo->gpus[gpu].numa);
    int far                   = find_numa(topo, numa);
    int memory, i;

    if ((own < 0) || (far < 0) || (own == far) || !(link.bandwidth > 0)) {
        return link;
    }

    /* The other node's memory in place of its own's */
    memory = to_host ? topo->numa[own].write : topo->numa[own].read;
    for (i = 0; i < UCT_CUDA_TOPO_LINK_LIMITS; ++i) {
        if ((memory != UCT_CUDA_TOPO_NO_LIMIT) && (link.limits[i] == memory)) {
            link.limits[i] = to_host ? topo->numa[far].write :
                                       topo->numa[far].read;
        }
    }

    uct_cuda_topo_link_add_limit(topo, &link, to_host ?
                                                      topo->sockets[own][far] :
                                                      topo->sockets[far][own]);
    return link;
}

int uct_cuda_topo_find_uuid(const uct_cuda_topo_t *topo, const uint8_t uuid[16])
{
    int i;

    for (i = 0; i < topo->num_gpus; ++i) {
        if (memcmp(topo->gpus[i].uuid, uuid, 16) == 0) {
            return i;
        }
    }

    return -1;
}

/* "0000:1B:00.0", with a domain of four or eight digits */
static bool parse_bus_id(const char *text, uct_cuda_topo_gpu_t *gpu)
{
    unsigned domain, bus, device, function;

    if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4) {
        return false;
    }

    gpu->pci_domain   = domain;
    gpu->pci_bus      = bus;
    gpu->pci_device   = device;
    gpu->pci_function = function;
    return true;
}

/* Bytes/s that copies get of 16 lanes: 55 GB/s measured on H200 (generation 5);
 * 25 and 12 GB/s are the usual figures of page-locked copies on A100 and V100;
 * the others follow the signalling rate */
static double pcie_bandwidth(unsigned generation, unsigned width)
{
    static const double x16[] = {0, 3, 6, 12, 25, 55, 110};
    const unsigned last       = sizeof(x16) / sizeof(x16[0]) - 1;

    if ((generation == 0) || (width == 0)) {
        generation = 3;
        width      = 16;
    }

    return x16[(generation < last) ? generation : last] * GIGA * width / 16;
}

/* Bytes/s that copies get of one link */
static double nvlink_bandwidth(const uct_cuda_nvml_t *nvml, nvmlDevice_t device,
                               unsigned link)
{
    /* Signalling rate by NVML's version number, for GPUs that do not tell it;
     * NVIDIA's data sheets of P100, V100, A100, H100, B200 */
    static const double rates[] = {20, 20, 25, 25, 25, 25, 26.5, 50, 50};
    const unsigned last         = sizeof(rates) / sizeof(rates[0]) - 1;
    nvmlFieldValue_t field      = {0};
    unsigned version            = 0;
    double rate;

    if (nvml->nvmlDeviceGetNvLinkVersion != NULL) {
        (void)nvml->nvmlDeviceGetNvLinkVersion(device, link, &version);
    }

    rate          = rates[(version < last) ? version : last] * GIGA;
    field.fieldId = NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON;
    if ((nvml->nvmlDeviceGetFieldValues != NULL) &&
        (nvml->nvmlDeviceGetFieldValues(device, 1, &field) == NVML_SUCCESS) &&
        (field.nvmlReturn == NVML_SUCCESS) && (field.value.uiVal > 0)) {
        rate = field.value.uiVal * 1e6;
    }

    return rate * ((version >= NVLINK_VERSION_NEW) ? NVLINK_EFFICIENCY_NEW :
                                                     NVLINK_EFFICIENCY_OLD);
}

static int find_bus_id(const uct_cuda_topo_t *topo, const char *text)
{
    uct_cuda_topo_gpu_t gpu;
    int i;

    if (!parse_bus_id(text, &gpu)) {
        return -1;
    }

    for (i = 0; i < topo->num_gpus; ++i) {
        if ((topo->gpus[i].pci_domain == gpu.pci_domain) &&
            (topo->gpus[i].pci_bus == gpu.pci_bus) &&
            (topo->gpus[i].pci_device == gpu.pci_device)) {
            return i;
        }
    }

    return -1;
}

/* Where does one NVLink lead? */
static void probe_nvlink(const uct_cuda_nvml_t *nvml,
                         const uct_cuda_topo_t *topo, unsigned link,
                         probe_gpu_t *gpu)
{
    nvmlIntNvLinkDeviceType_t type = NVML_NVLINK_DEVICE_TYPE_UNKNOWN;
    nvmlPciInfo_t pci              = {0};
    int peer                       = -1;

    if (nvml->nvmlDeviceGetNvLinkRemoteDeviceType != NULL) {
        (void)nvml->nvmlDeviceGetNvLinkRemoteDeviceType(gpu->nvml, link, &type);
    }

    if (type == NVML_NVLINK_DEVICE_TYPE_SWITCH) {
        ++gpu->to_switch;
        return;
    } else if (type == NVML_NVLINK_DEVICE_TYPE_IBMNPU) {
        ++gpu->to_cpu;
        return;
    }

    if ((nvml->nvmlDeviceGetNvLinkRemotePciInfo != NULL) &&
        (nvml->nvmlDeviceGetNvLinkRemotePciInfo(gpu->nvml, link, &pci) ==
         NVML_SUCCESS)) {
        peer = find_bus_id(topo, pci.busId);
    }

    if (peer >= 0) {
        ++gpu->to_gpu[peer];
    } else if (type != NVML_NVLINK_DEVICE_TYPE_GPU) {
        ++gpu->to_unknown;
    } /* else a GPU that is hidden from this process */
}

static void probe_nvml_gpu(const uct_cuda_nvml_t *nvml,
                           const uct_cuda_topo_t *topo, const char *bus_id,
                           probe_gpu_t *gpu)
{
    unsigned generation = 0;
    unsigned width      = 0;
    nvmlEnableState_t state;
    unsigned link;

    if (nvml->nvmlDeviceGetHandleByPciBusId(bus_id, &gpu->nvml) !=
        NVML_SUCCESS) {
        uct_cuda_debug("NVML does not know GPU %s", bus_id);
        return;
    }

    if ((nvml->nvmlDeviceGetMaxPcieLinkGeneration != NULL) &&
        (nvml->nvmlDeviceGetMaxPcieLinkWidth != NULL)) {
        (void)nvml->nvmlDeviceGetMaxPcieLinkGeneration(gpu->nvml, &generation);
        (void)nvml->nvmlDeviceGetMaxPcieLinkWidth(gpu->nvml, &width);
        gpu->pcie_bandwidth = pcie_bandwidth(generation, width);
    }

    if (nvml->nvmlDeviceGetNvLinkState == NULL) {
        return;
    }

    for (link = 0; link < NVLINK_MAX_LINKS; ++link) {
        if ((nvml->nvmlDeviceGetNvLinkState(gpu->nvml, link, &state) ==
             NVML_SUCCESS) &&
            (state == NVML_FEATURE_ENABLED)) {
            if (gpu->nvlink_bandwidth == 0) {
                gpu->nvlink_bandwidth = nvlink_bandwidth(nvml, gpu->nvml, link);
            }
            probe_nvlink(nvml, topo, link, gpu);
        }
    }
}

static int probe_numa(int device, const char *bus_id)
{
    char path[96];
    int numa = -1;
    FILE *file;
    char *c;

    /* CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, which came with CUDA 12.2 */
    if ((UCT_CUDA_CALL_NOLOG(cuDeviceGetAttribute, &numa,
                             (CUdevice_attribute)134, device) == UCS_OK) &&
        (numa >= 0)) {
        return numa;
    }

    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%.31s/numa_node",
             bus_id);
    for (c = path; *c != '\0'; ++c) {
        if ((*c >= 'A') && (*c <= 'F')) {
            *c += 'a' - 'A';
        }
    }

    file = fopen(path, "r");
    if (file != NULL) {
        if (fscanf(file, "%d", &numa) != 1) {
            numa = -1;
        }
        fclose(file);
    }

    return (numa >= 0) ? numa : 0;
}

static void draw_links(uct_cuda_topo_t *topo, const probe_gpu_t *gpus)
{
    int egress[UCT_CUDA_TOPO_MAX_GPUS];
    int ingress[UCT_CUDA_TOPO_MAX_GPUS];
    int pcie_up[UCT_CUDA_TOPO_MAX_GPUS];
    int pcie_down[UCT_CUDA_TOPO_MAX_GPUS];
    double ports[UCT_CUDA_TOPO_MAX_GPUS];
    double bandwidth;
    int i, j, access;

    for (i = 0; i < topo->num_gpus; ++i) {
        egress[i]    = UCT_CUDA_TOPO_NO_LIMIT;
        ingress[i]   = UCT_CUDA_TOPO_NO_LIMIT;
        ports[i]     = gpus[i].to_switch * gpus[i].nvlink_bandwidth;
        pcie_up[i]   = uct_cuda_topo_add_limit(topo, gpus[i].pcie_bandwidth);
        pcie_down[i] = uct_cuda_topo_add_limit(topo, gpus[i].pcie_bandwidth);

        if (ports[i] > 0) {
            egress[i]  = uct_cuda_topo_add_limit(topo, ports[i]);
            ingress[i] = uct_cuda_topo_add_limit(topo, ports[i]);
        }

        if (gpus[i].to_cpu > 0) {
            uct_cuda_topo_set_host(topo, i,
                                   gpus[i].to_cpu * gpus[i].nvlink_bandwidth,
                                   UCT_CUDA_TOPO_NO_LIMIT,
                                   UCT_CUDA_TOPO_NO_LIMIT);
        } else {
            uct_cuda_topo_set_host(topo, i, gpus[i].pcie_bandwidth, pcie_up[i],
                                   pcie_down[i]);
        }
    }

    for (i = 0; i < topo->num_gpus; ++i) {
        for (j = 0; j < topo->num_gpus; ++j) {
            if ((i == j) ||
                (UCT_CUDA_CALL_NOLOG(cuDeviceCanAccessPeer, &access, i, j) !=
                 UCS_OK) ||
                !access) {
                continue;
            }

            if (gpus[i].to_gpu[j] > 0) {
                uct_cuda_topo_set_link(
                        topo, i, j,
                        gpus[i].to_gpu[j] * gpus[i].nvlink_bandwidth,
                        UCT_CUDA_TOPO_NO_LIMIT, UCT_CUDA_TOPO_NO_LIMIT);
            } else if ((ports[i] > 0) && (ports[j] > 0)) {
                bandwidth = (ports[i] < ports[j]) ? ports[i] : ports[j];
                uct_cuda_topo_set_link(topo, i, j, bandwidth, egress[i],
                                       ingress[j]);
            } else {
                bandwidth = (gpus[i].pcie_bandwidth < gpus[j].pcie_bandwidth) ?
                                    gpus[i].pcie_bandwidth :
                                    gpus[j].pcie_bandwidth;
                uct_cuda_topo_set_link(topo, i, j, bandwidth, pcie_up[i],
                                       pcie_down[j]);
            }
        }
    }
}

ucs_status_t uct_cuda_topo_probe(uct_cuda_topo_t *topo)
{
    probe_gpu_t gpus[UCT_CUDA_TOPO_MAX_GPUS];
    char bus_ids[UCT_CUDA_TOPO_MAX_GPUS][32];
    const uct_cuda_nvml_t *nvml;
    CUuuid uuid;
    int count, i;

    if ((UCT_CUDA_CALL_NOLOG(cuDeviceGetCount, &count) != UCS_OK) ||
        (count <= 0)) {
        return UCS_ERR_NO_DEVICE;
    }

    if (count > UCT_CUDA_TOPO_MAX_GPUS) {
        uct_cuda_info("only the first %d of %d GPUs are used for several paths",
                      UCT_CUDA_TOPO_MAX_GPUS, count);
        count = UCT_CUDA_TOPO_MAX_GPUS;
    }

    uct_cuda_topo_init(topo, count);
    memset(gpus, 0, sizeof(gpus));

    for (i = 0; i < count; ++i) {
        bus_ids[i][0] = '\0';
        if ((UCT_CUDA_CALL_NOLOG(cuDeviceGetPCIBusId, bus_ids[i],
                                 (int)sizeof(bus_ids[i]), i) != UCS_OK) ||
            !parse_bus_id(bus_ids[i], &topo->gpus[i])) {
            bus_ids[i][0] = '\0';
        }

        if (UCT_CUDA_CALL_NOLOG(cuDeviceGetUuid, &uuid, i) == UCS_OK) {
            memcpy(topo->gpus[i].uuid, uuid.bytes, 16);
        }

        topo->gpus[i].numa     = probe_numa(i, bus_ids[i]);
        gpus[i].pcie_bandwidth = pcie_bandwidth(0, 0);
    }

    /* One GPU has nothing to share a transfer with: spare it NVML's start */
    nvml = (count > 1) ? uct_cuda_nvml_get() : NULL;
    for (i = 0; (nvml != NULL) && (i < count); ++i) {
        if (bus_ids[i][0] == '\0') {
            continue;
        }

        probe_nvml_gpu(nvml, topo, bus_ids[i], &gpus[i]);
        /* A virtual machine may hide what the links lead to. A board whose
         * links end at no GPU that anybody sees has a switch. */
        if ((gpus[i].to_unknown > 0) && (gpus[i].to_switch == 0)) {
            gpus[i].to_switch = gpus[i].to_unknown;
        }
    }

    draw_links(topo, gpus);
    return UCS_OK;
}

const uct_cuda_topo_t *uct_cuda_topo_get(void)
{
    const uct_cuda_topo_t *topo;

    pthread_mutex_lock(&cached.lock);
    topo = cached.override;
    if (topo == NULL) {
        if (!cached.is_valid) {
            cached.is_valid = (uct_cuda_topo_probe(&cached.topo) == UCS_OK);
        }
        topo = cached.is_valid ? &cached.topo : NULL;
    }
    pthread_mutex_unlock(&cached.lock);

    return topo;
}

void uct_cuda_topo_override(const uct_cuda_topo_t *topo)
{
    pthread_mutex_lock(&cached.lock);
    cached.override = topo;
    pthread_mutex_unlock(&cached.lock);
}

void uct_cuda_topo_print(const uct_cuda_topo_t *topo, FILE *stream)
{
    int i, j;

    fprintf(stream, "GB/s    ");
    for (j = 0; j < topo->num_gpus; ++j) {
        fprintf(stream, "  gpu%-3d", j);
    }
    fprintf(stream, "    host  numa\n");

    for (i = 0; i < topo->num_gpus; ++i) {
        fprintf(stream, "gpu%-5d", i);
        for (j = 0; j < topo->num_gpus; ++j) {
            fprintf(stream, " %7.1f", topo->links[i][j].bandwidth / GIGA);
        }
        fprintf(stream, " %7.1f %5d\n", topo->gpus[i].to_host.bandwidth / GIGA,
                topo->gpus[i].numa);
    }
}
