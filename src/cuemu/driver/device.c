/* SPDX-License-Identifier: BSD-3-Clause */

/* cuInit, devices and their attributes. */
#include "cuemu_gate.h"
#include "cuemu_work.h"
#include "../core/hardware.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t cuemu_init_lock = PTHREAD_MUTEX_INITIALIZER;
static pid_t cuemu_init_pid;


/* Return the GPU, as index in the node, of an element of CUDA_VISIBLE_DEVICES:
   a number or the beginning of a UUID; -1 if it names no GPU. */
static int cuemu_visible_parse(const char *item)
{
    const cuemu_node_t *node = cuemu_session.node;
    char uuid[CUEMU_UUID_SIZE], *end;
    long index;
    int i;

    if (strncmp(item, "GPU-", 4) == 0) {
        for (i = 0; i < node->num_gpus; ++i) {
            cuemu_gpu_uuid_text(&node->gpus[i], uuid);
            if (strncmp(uuid, item, strlen(item)) == 0) {
                return i;
            }
        }
        return -1;
    }

    index = strtol(item, &end, 10);
    return ((end == item) || (index < 0) || (index >= node->num_gpus)) ?
           -1 : (int)index;
}

/* Fill the list of visible devices from CUDA_VISIBLE_DEVICES; unset: all GPUs.
   Like NVIDIA's driver, ignore all elements from the first invalid one on, and
   show no device if a GPU is named twice. */
static void cuemu_visible_read(void)
{
    const char *env = getenv("CUDA_VISIBLE_DEVICES");
    char *copy, *item, *save = NULL;
    int i, gpu;

    cuemu_process.num_devices = 0;
    if (env == NULL) {
        for (i = 0; i < cuemu_session.node->num_gpus; ++i) {
            cuemu_process.gpu[cuemu_process.num_devices++] = i;
        }
        return;
    }

    copy = strdup(env);
    if (copy == NULL) {
        return;
    }

    for (item = strtok_r(copy, ", ", &save); item != NULL;
         item = strtok_r(NULL, ", ", &save)) {
        gpu = cuemu_visible_parse(item);
        for (i = 0; (gpu >= 0) && (i < cuemu_process.num_devices); ++i) {
            if (cuemu_process.gpu[i] == gpu) {
                cuemu_process.num_devices = 0; /* a GPU named twice: no
                                                  devices */
                gpu                       = -1;
            }
        }

        if (gpu < 0) {
            break;
        }

        cuemu_process.gpu[cuemu_process.num_devices++] = gpu;
    }

    free(copy);
}

static void cuemu_process_forked(void)
{
    cuemu_process.forked = 1;
}

static void cuemu_report(void)
{
    const char *path = getenv("CUEMU_REPORT");
    char line[512];
    FILE *file;

    if ((path == NULL) || (*path == '\0')) {
        return;
    }

    cuemu_print(line, sizeof(line),
             "{\"pid\": %d, \"node\": \"%s\", \"slowdown\": %g, \"copies\": "
             "%llu, \"bytes\": %llu, \"torn\": %llu, \"forgotten_s\": %.9f, "
             "\"clamped_s\": %.6f, \"modelled_s\": %.9f}\n",
             (int)getpid(), cuemu_session.node->name,
             cuemu_session.shared->clock.slowdown,
             (unsigned long long)cuemu_stat_moves,
             (unsigned long long)cuemu_stat_bytes,
             (unsigned long long)cuemu_stat_torn,
             (double)cuemu_session.shared->clock.forgotten_ns * 1e-9,
             (double)cuemu_session.shared->clock.real_clamped_ns * 1e-9,
             (double)cuemu_now() / (double)CUEMU_PS_PER_SEC);

    file = fopen(path, "a");
    if (file == NULL) {
        fprintf(stderr, "cuemu: cannot write CUEMU_REPORT=%s\n", path);
        return;
    }
    fputs(line, file);
    fclose(file);
}

static void __attribute__((destructor)) cuemu_process_end(void)
{
    if (!cuemu_process.initialized || (getpid() != cuemu_init_pid)) {
        return;
    }

    cuemu_gate_ended = 1;
    cuemu_work_stop();
    cuemu_report();
    cuemu_session_leave();
}

CUresult cuemu_process_start(void)
{
    static int failed = 0;
    CUresult result   = CUDA_SUCCESS;

    pthread_mutex_lock(&cuemu_init_lock);
    if (cuemu_process.forked) {
        result = CUDA_ERROR_NOT_INITIALIZED;
    } else if (failed) {
        result = CUDA_ERROR_NO_DEVICE;
    } else if (!cuemu_process.initialized) {
        if (cuemu_session_join() != 0) {
            failed = 1;
            result = CUDA_ERROR_NO_DEVICE;
            goto out;
        }

        cuemu_visible_read();
        cuemu_init_pid = getpid();
        pthread_atfork(NULL, NULL, cuemu_process_forked);
        if (cuemu_process.num_devices == 0) {
            failed = 1;
            cuemu_session_leave();
            result = CUDA_ERROR_NO_DEVICE;
            goto out;
        }

        __atomic_store_n(&cuemu_process.initialized, 1, __ATOMIC_RELEASE);
    }

out:
    pthread_mutex_unlock(&cuemu_init_lock);
    return result;
}

static const cuemu_gpu_t *cuemu_device_get(CUdevice device)
{
    if ((device < 0) || (device >= cuemu_process.num_devices)) {
        return NULL;
    }

    return &cuemu_session.node->gpus[cuemu_process.gpu[device]];
}

CUEMU_API_FLAGS(cuInit, CUEMU_GATE_NO_INIT, (unsigned flags), (flags))
{
    if (flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    return cuemu_process_start();
}

CUEMU_API_FLAGS(cuDriverGetVersion, CUEMU_GATE_NO_INIT, (int *version),
                (version))
{
    if (version == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    *version = CUEMU_DRIVER_VERSION;
    return CUDA_SUCCESS;
}

CUEMU_API(cuDeviceGetCount, (int *count), (count))
{
    if (count == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    *count = cuemu_process.num_devices;
    return CUDA_SUCCESS;
}

CUEMU_API(cuDeviceGet, (CUdevice *device, int ordinal), (device, ordinal))
{
    if (device == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    if ((ordinal < 0) || (ordinal >= cuemu_process.num_devices)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }

    *device = ordinal;
    return CUDA_SUCCESS;
}

CUEMU_API(cuDeviceGetName, (char *name, int len, CUdevice device),
          (name, len, device))
{
    const cuemu_gpu_t *gpu = cuemu_device_get(device);

    if (gpu == NULL) {
        return CUDA_ERROR_INVALID_DEVICE;
    }

    if ((name == NULL) || (len <= 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    snprintf(name, (size_t)len, "%s", gpu->name);
    return CUDA_SUCCESS;
}

CUEMU_API(cuDeviceGetUuid, (CUuuid *uuid, CUdevice device), (uuid, device))
{
    const cuemu_gpu_t *gpu = cuemu_device_get(device);

    if (gpu == NULL) {
        return CUDA_ERROR_INVALID_DEVICE;
    }

    if (uuid == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    memcpy(uuid->bytes, gpu->uuid, sizeof(uuid->bytes));
    return CUDA_SUCCESS;
}

CUEMU_ALSO(cuDeviceGetUuid_v2, cuDeviceGetUuid);

CUEMU_API(cuDeviceTotalMem_v2, (size_t *bytes, CUdevice device),
          (bytes, device))
{
    if (cuemu_device_get(device) == NULL) {
        return CUDA_ERROR_INVALID_DEVICE;
    }

    if (bytes == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    *bytes = cuemu_session.shared->gpu_bytes[cuemu_process.gpu[device]];
    return CUDA_SUCCESS;
}

CUEMU_ALSO(cuDeviceTotalMem, cuDeviceTotalMem_v2);

CUEMU_API(cuDeviceComputeCapability, (int *major, int *minor, CUdevice device),
          (major, minor, device))
{
    const cuemu_gpu_t *gpu = cuemu_device_get(device);

    if (gpu == NULL) {
        return CUDA_ERROR_INVALID_DEVICE;
    }

    if ((major == NULL) || (minor == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    *major = gpu->sm / 10;
    *minor = gpu->sm % 10;
    return CUDA_SUCCESS;
}

/* Convert a bus id, "0000:1b:00.0" or "1b:00.0", to numbers. What cannot be
   read is 0. */
static void cuemu_busid_parse(const char *busid, unsigned *domain,
                              unsigned *bus, unsigned *dev)
{
    *domain = *bus = *dev = 0;
    if (sscanf(busid, "%x:%x:%x", domain, bus, dev) != 3) {
        *domain = 0;
        (void)sscanf(busid, "%x:%x", bus, dev);
    }
}

CUEMU_API(cuDeviceGetPCIBusId, (char *busid, int len, CUdevice device),
          (busid, len, device))
{
    const cuemu_gpu_t *gpu = cuemu_device_get(device);
    unsigned domain, bus, dev;

    if (gpu == NULL) {
        return CUDA_ERROR_INVALID_DEVICE;
    }

    if ((busid == NULL) || (len < 13)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    cuemu_busid_parse(gpu->busid, &domain, &bus, &dev);
    snprintf(busid, (size_t)len, "%04X:%02X:%02X.0", domain & 0xffff,
             bus & 0xff, dev & 0xff);
    return CUDA_SUCCESS;
}

CUEMU_API(cuDeviceGetByPCIBusId, (CUdevice *device, const char *busid),
          (device, busid))
{
    unsigned domain, bus, dev, want_domain, want_bus, want_dev;
    int i;

    if ((device == NULL) || (busid == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    cuemu_busid_parse(busid, &want_domain, &want_bus, &want_dev);
    for (i = 0; i < cuemu_process.num_devices; ++i) {
        cuemu_busid_parse(cuemu_device_get(i)->busid, &domain, &bus, &dev);
        if ((domain == want_domain) && (bus == want_bus) && (dev == want_dev)) {
            *device = i;
            return CUDA_SUCCESS;
        }
    }

    return CUDA_ERROR_INVALID_DEVICE;
}

/* Attributes with the same value for all emulated GPUs */
static const struct {
    int attribute;
    int value;
} cuemu_device_attributes[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1500000},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
    {CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, CU_COMPUTEMODE_DEFAULT},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
    {CU_DEVICE_ATTRIBUTE_ECC_ENABLED, 1},
    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1000000},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 4096},
    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 6291456},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 4},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1}
};

/* Highest attribute of CUDA 13.0; unknown ones are an error, others are 0 */
#define CUEMU_LAST_ATTRIBUTE 148

/* HANDLE_TYPE_FABRIC_SUPPORTED, missing in headers before 12.4 */
#define CUEMU_ATTRIBUTE_FABRIC 128

CUEMU_API(cuDeviceGetAttribute,
          (int *value, CUdevice_attribute attribute, CUdevice device),
          (value, attribute, device))
{
    const cuemu_gpu_t *gpu = cuemu_device_get(device);
    unsigned domain, bus, dev;
    int reserved;
    size_t i;

    if (gpu == NULL) {
        return CUDA_ERROR_INVALID_DEVICE;
    }

    if ((value == NULL) || ((int)attribute < 1) ||
        ((int)attribute > CUEMU_LAST_ATTRIBUTE)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    cuemu_busid_parse(gpu->busid, &domain, &bus, &dev);
    switch ((int)attribute) {
    case CUEMU_ATTRIBUTE_FABRIC:
        *value = (cuemu_fabric() != 0);
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
        *value = (int)domain;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        *value = (int)bus;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
        *value = (int)dev;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = gpu->sm / 10;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = gpu->sm % 10;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *value = gpu->sm_count;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS:
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES:
        *value = (gpu->c2c_count > 0);
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        *value = cuemu_shared_bytes(gpu->sm, NULL);
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
        *value  = cuemu_shared_bytes(gpu->sm, &reserved);
        *value += reserved;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
        (void)cuemu_shared_bytes(gpu->sm, value);
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_NUMA_ID:
        *value = -1;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
        *value = gpu->numa;
        return CUDA_SUCCESS;
    default:
        break;
    }

    *value = 0;
    for (i = 0; i < sizeof(cuemu_device_attributes) /
                    sizeof(cuemu_device_attributes[0]); ++i) {
        if (cuemu_device_attributes[i].attribute == (int)attribute) {
            *value = cuemu_device_attributes[i].value;
        }
    }

    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- peers */

static int cuemu_peer_can(CUdevice a, CUdevice b)
{
    const cuemu_route_t *route;

    if (a == b) {
        return 0;
    }

    route = cuemu_node_route(cuemu_session.node, cuemu_process.gpu[a],
                             cuemu_process.gpu[b]);
    return (route != NULL) && route->p2p;
}

CUEMU_API(cuDeviceCanAccessPeer, (int *can, CUdevice device, CUdevice peer),
          (can, device, peer))
{
    if ((cuemu_device_get(device) == NULL) ||
        (cuemu_device_get(peer) == NULL)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }

    if (can == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    *can = cuemu_peer_can(device, peer);
    return CUDA_SUCCESS;
}

/* Return 1 if the two GPUs are connected by NVLink, directly or through a
   switch. */
static int cuemu_peer_has_nvlink(const cuemu_gpu_t *gpu, int peer)
{
    int i;

    for (i = 0; i < gpu->num_nvlinks; ++i) {
        if ((gpu->nvlinks[i].peer_type == CUEMU_PEER_SWITCH) ||
            ((gpu->nvlinks[i].peer_type == CUEMU_PEER_GPU) &&
             (gpu->nvlinks[i].peer_gpu == peer))) {
            return 1;
        }
    }

    return 0;
}

CUEMU_API(cuDeviceGetP2PAttribute,
          (int *value, CUdevice_P2PAttribute attribute, CUdevice src,
           CUdevice dst),
          (value, attribute, src, dst))
{
    const cuemu_gpu_t *gpu = cuemu_device_get(src);

    if ((gpu == NULL) || (cuemu_device_get(dst) == NULL) || (src == dst)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }

    if (value == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    switch ((int)attribute) {
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
        *value = !cuemu_peer_has_nvlink(gpu, cuemu_process.gpu[dst]);
        return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
        *value = cuemu_peer_can(src, dst);
        return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
        *value = cuemu_peer_can(src, dst) &&
                 cuemu_peer_has_nvlink(gpu, cuemu_process.gpu[dst]);
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}
