/* SPDX-License-Identifier: BSD-3-Clause */
/* The probe: what the driver says, NVML and sysfs; and what was missing. */
#include <uct/cuda/base/wiring.h>

#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/log.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>


/* CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, which came with CUDA 12.2 */
#define ATTRIBUTE_HOST_NUMA_ID ((CUdevice_attribute)134)


double uct_cuda_wiring_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

bool uct_cuda_bus_id_parse(const char *text, uct_cuda_bus_id_t *bus_id)
{
    unsigned domain, bus, device, function;
    int used = 0;

    if ((sscanf(text, "%8x:%2x:%2x.%1x%n", &domain, &bus, &device, &function,
                &used) != 4) ||
        (text[used] != '\0')) {
        return false;
    }

    bus_id->domain   = domain;
    bus_id->bus      = (uint8_t)bus;
    bus_id->device   = (uint8_t)device;
    bus_id->function = (uint8_t)function;
    return true;
}

bool uct_cuda_bus_id_equal(const uct_cuda_bus_id_t *a,
                           const uct_cuda_bus_id_t *b)
{
    return (a->domain == b->domain) && (a->bus == b->bus) &&
           (a->device == b->device) && (a->function == b->function);
}

const char *uct_cuda_bus_id_str(const uct_cuda_bus_id_t *bus_id, char *buffer,
                                size_t size)
{
    snprintf(buffer, size, "%04x:%02x:%02x.%x", bus_id->domain, bus_id->bus,
             bus_id->device, bus_id->function);
    return buffer;
}

int uct_cuda_wiring_numa(uct_cuda_wiring_t *wiring, int os_index)
{
    int i;

    for (i = 0; i < wiring->num_numa; ++i) {
        if (wiring->numa[i].os_index == os_index) {
            return i;
        }
    }

    if ((os_index < 0) || (wiring->num_numa == UCT_CUDA_TOPO_MAX_NUMA)) {
        return UCT_CUDA_WIRING_NONE;
    }

    /* Nothing is known of it: a socket of its own */
    wiring->numa[i].os_index = os_index;
    wiring->numa[i].socket   = -1 - os_index;
    ++wiring->num_numa;
    return i;
}

void uct_cuda_wiring_add_nvlink(uct_cuda_wiring_gpu_t *gpu,
                                uct_cuda_wiring_end_t end, int peer,
                                const uct_cuda_bus_id_t *bus_id)
{
    uct_cuda_wiring_peer_t *entry;
    unsigned i;

    for (i = 0; i < gpu->num_peers; ++i) {
        entry = &gpu->peers[i];
        if ((entry->end == end) && (entry->gpu == peer) &&
            uct_cuda_bus_id_equal(&entry->bus_id, bus_id)) {
            ++entry->count;
            return;
        }
    }

    if (gpu->num_peers < UCT_CUDA_WIRING_MAX_PEERS) {
        entry         = &gpu->peers[gpu->num_peers++];
        entry->end    = end;
        entry->gpu    = peer;
        entry->count  = 1;
        entry->bus_id = *bus_id;
    }
}

static int ask_attribute(int device, CUdevice_attribute attribute, int unknown)
{
    int value = unknown;

    (void)UCT_CUDA_CALL_NOLOG(cuDeviceGetAttribute, &value, attribute, device);
    return value;
}

static void ask_gpu(uct_cuda_wiring_t *wiring, int device, bool details)
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

    major     = ask_attribute(device,
                              CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0);
    minor     = ask_attribute(device,
                              CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0);
    gpu->sm   = 10 * major + minor;
    gpu->numa = uct_cuda_wiring_numa(wiring,
                                     ask_attribute(device,
                                                   ATTRIBUTE_HOST_NUMA_ID, -1));
}

static int ask_p2p(CUdevice_P2PAttribute attribute, int from, int to)
{
    int value = 0;

    return (UCT_CUDA_CALL_NOLOG(cuDeviceGetP2PAttribute, &value, attribute,
                                from, to) == UCS_OK) ?
                   value :
                   0;
}

static void
ask_pair(uct_cuda_wiring_t *wiring, int from, int to, bool details)
{
    int can = 0;

    if ((UCT_CUDA_CALL_NOLOG(cuDeviceCanAccessPeer, &can, from, to) !=
         UCS_OK) ||
        !can) {
        return;
    }

    wiring->access[from][to]  = true;
    wiring->atomics[from][to] =
            ask_p2p(CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, from, to);
    if (details) {
        wiring->rank[from][to] =
                ask_p2p(CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, from, to);
    }
}

ucs_status_t uct_cuda_wiring_ask_driver(uct_cuda_wiring_t *wiring,
                                        bool details)
{
    int count, i, j;

    if ((UCT_CUDA_CALL_NOLOG(cuDeviceGetCount, &count) != UCS_OK) ||
        (count <= 0)) {
        return UCS_ERR_NO_DEVICE;
    }

    if (count > UCT_CUDA_TOPO_MAX_GPUS) {
        uct_cuda_info("only the first %d of %d GPUs are used for several paths",
                      UCT_CUDA_TOPO_MAX_GPUS, count);
        count = UCT_CUDA_TOPO_MAX_GPUS;
    }

    wiring->num_gpus = count;
    for (i = 0; i < count; ++i) {
        ask_gpu(wiring, i, details);
    }

    for (i = 0; i < count; ++i) {
        for (j = 0; j < count; ++j) {
            if (i != j) {
                ask_pair(wiring, i, j, details);
            }
        }
    }

    return UCS_OK;
}

/* What a user who wonders about a missing path should know */
static void say_what_is_missing(const uct_cuda_wiring_t *wiring)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    const uct_cuda_wiring_gpu_t *gpu;
    char text[32];
    unsigned p;
    int i, j;

    if (wiring->num_hidden > 0) {
        uct_cuda_debug("%d more GPU%s in this node that this process may not "
                       "use (CUDA_VISIBLE_DEVICES%s%s): no path leads over "
                       "them",
                       wiring->num_hidden, (wiring->num_hidden > 1) ? "s" : "",
                       (visible != NULL) ? "=" : " is not set",
                       (visible != NULL) ? visible : "");
    }

    if (!wiring->has_nvml && (wiring->num_gpus > 1)) {
        uct_cuda_debug("no NVML: counts and speeds of NVLinks are guessed");
    }

    if (!wiring->has_pci && (wiring->num_gpus > 1)) {
        uct_cuda_debug("sysfs does not show every GPU: which PCIe switches "
                       "they share is %s",
                       wiring->has_nvml ? "what NVML tells" : "not known");
    }

    for (i = 0; i < wiring->num_gpus; ++i) {
        gpu = &wiring->gpus[i];
        if (gpu->is_mig) {
            uct_cuda_debug("gpu%d is a slice (MIG): it has no peers and no "
                           "NVLinks",
                           i);
        }
        if (gpu->nvlinks_down > 0) {
            uct_cuda_debug("gpu%d: %u NVLink%s not active", i,
                           gpu->nvlinks_down,
                           (gpu->nvlinks_down > 1) ? "s are" : " is");
        }
        for (p = 0; p < gpu->num_peers; ++p) {
            if (gpu->peers[p].end == UCT_CUDA_WIRING_HIDDEN) {
                uct_cuda_debug("gpu%d: %u NVLink%s to %s, which this process "
                               "may not use",
                               i, gpu->peers[p].count,
                               (gpu->peers[p].count > 1) ? "s lead" : " leads",
                               uct_cuda_bus_id_str(&gpu->peers[p].bus_id, text,
                                                   sizeof(text)));
            }
        }
        for (j = i + 1; j < wiring->num_gpus; ++j) {
            if (!wiring->access[i][j] || !wiring->access[j][i]) {
                uct_cuda_debug("gpu%d and gpu%d are no peers", i, j);
            }
        }
    }
}

ucs_status_t uct_cuda_wiring_probe(uct_cuda_wiring_t *wiring, bool details)
{
    double start = uct_cuda_wiring_now();
    ucs_status_t status;
    double now;

    memset(wiring, 0, sizeof(*wiring));
    (void)uct_cuda_driver_get();
    now                       = uct_cuda_wiring_now();
    wiring->times.driver_load = now - start;
    status                    = uct_cuda_wiring_ask_driver(wiring, details);
    if (status != UCS_OK) {
        return status;
    }

    wiring->times.driver = uct_cuda_wiring_now() - now;

    /* One GPU has nothing to share a transfer with: spare it NVML's start */
    if ((wiring->num_gpus > 1) || details) {
        uct_cuda_wiring_ask_nvml(wiring, details);
    }

    start = uct_cuda_wiring_now();
    uct_cuda_wiring_ask_host(wiring);
    wiring->times.host = uct_cuda_wiring_now() - start;
    if (!wiring->has_pci && wiring->has_nvml) {
        uct_cuda_wiring_ask_nvml_switches(wiring);
    }

    say_what_is_missing(wiring);
    return UCS_OK;
}
