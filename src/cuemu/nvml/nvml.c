/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * libnvidia-ml.so.1 of the emulated node: answers from the node description in
 * CUEMU_NODE. Each entry point has code of its own.
 *
 * CUDA_VISIBLE_DEVICES has no effect here, as in NVIDIA's library. Layouts are
 * those of nvml.h; functions without a version suffix are for old programs.
 */
#define NVML_NO_UNVERSIONED_FUNC_DEFS

#include "nvml_toolkit.h"

#include "../driver/cuemu_session.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#define CUEMU_NVML_DRIVER    "580.65.06"
#define CUEMU_NVML_CUDA      13000
#define CUEMU_NVML_VENDOR    0x10deu
#define CUEMU_NVML_RESERVED  (512ull << 20) /* memory of a GPU reserved by the
                                               driver */

static struct {
    pthread_mutex_t lock;
    unsigned        users;     /* nvmlInit minus nvmlShutdown calls */
    int             loaded;
    cuemu_node_t    node;
} cuemu_nvml = {
    .lock = PTHREAD_MUTEX_INITIALIZER
};

/* A handle is the address of an element. */
static char cuemu_nvml_handles[CUEMU_MAX_GPUS];


/* --------------------------------------------------------------- helpers */

static nvmlReturn_t cuemu_nvml_load(void)
{
    char error[CUEMU_ERRBUF_SIZE];

    if (cuemu_node_load_env(&cuemu_nvml.node, error) != CUEMU_OK) {
        fprintf(stderr, "cuemu: libnvidia-ml: %s\n", error);
        return NVML_ERROR_DRIVER_NOT_LOADED;
    }

    cuemu_nvml.loaded = 1;
    return NVML_SUCCESS;
}

static nvmlReturn_t cuemu_nvml_start(void)
{
    nvmlReturn_t ret = NVML_SUCCESS;

    pthread_mutex_lock(&cuemu_nvml.lock);
    if (!cuemu_nvml.loaded) {
        ret = cuemu_nvml_load();
    }
    if (ret == NVML_SUCCESS) {
        ++cuemu_nvml.users;
    }
    pthread_mutex_unlock(&cuemu_nvml.lock);
    return ret;
}

static int cuemu_nvml_is_up(void)
{
    return __atomic_load_n(&cuemu_nvml.users, __ATOMIC_ACQUIRE) > 0;
}

static int cuemu_nvml_index(nvmlDevice_t device)
{
    const char *handle = (const char*)device;

    if ((handle < cuemu_nvml_handles) ||
        (handle >= cuemu_nvml_handles + cuemu_nvml.node.num_gpus)) {
        return -1;
    }
    return (int)(handle - cuemu_nvml_handles);
}

/* Begin a query of a device: resolve its handle or return the error. */
#define CUEMU_NVML_GPU(_device, _gpu, _bad_arg) \
    const cuemu_gpu_t *_gpu; \
    do { \
        if (!cuemu_nvml_is_up()) { \
            return NVML_ERROR_UNINITIALIZED; \
        } \
        if ((_bad_arg) || (cuemu_nvml_index(_device) < 0)) { \
            return NVML_ERROR_INVALID_ARGUMENT; \
        } \
        _gpu = &cuemu_nvml.node.gpus[cuemu_nvml_index(_device)]; \
        (void)_gpu; \
    } while (0)

/* Define a query that returns a property of `gpu`. */
#define CUEMU_NVML_GET(_name, _type, _value) \
    nvmlReturn_t _name(nvmlDevice_t device, _type *value) \
    { \
        CUEMU_NVML_GPU(device, gpu, value == NULL); \
        *value = (_type)(_value); \
        return NVML_SUCCESS; \
    }

/* Define two versions of a function that do the same. */
#define CUEMU_NVML_VERSIONS(_name, _name2, _decl, _call) \
    nvmlReturn_t _name _decl \
    { \
        return _call; \
    } \
    nvmlReturn_t _name2 _decl \
    { \
        return _call; \
    }

static nvmlReturn_t cuemu_nvml_string(char *buffer, unsigned length,
                                      const char *text)
{
    if (buffer == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (length <= strlen(text)) {
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    strcpy(buffer, text);
    return NVML_SUCCESS;
}

/* The PCI device number encodes only the GPU's generation. */
static unsigned cuemu_nvml_pci_device(const cuemu_gpu_t *gpu)
{
    if (gpu == NULL) {
        return 0;
    }
    switch (gpu->sm / 10) {
    case 6:
        return 0x15f9;
    case 7:
        return 0x1db1;
    case 8:
        return 0x20b0;
    case 9:
        return 0x2335;
    default:
        return 0x2901;
    }
}

static void cuemu_nvml_pci_info(const char *busid, const cuemu_gpu_t *gpu,
                                nvmlPciInfo_t *pci)
{
    memset(pci, 0, sizeof(*pci));
    sscanf(busid, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
    snprintf(pci->busIdLegacy, sizeof(pci->busIdLegacy), "%04X:%02X:%02X.0",
             pci->domain & 0xffff, pci->bus & 0xff, pci->device & 0xff);
    snprintf(pci->busId, sizeof(pci->busId), "%08X:%02X:%02X.0", pci->domain,
             pci->bus & 0xff, pci->device & 0xff);
    pci->pciDeviceId    = (cuemu_nvml_pci_device(gpu) << 16) |
                          CUEMU_NVML_VENDOR;
    pci->pciSubSystemId = pci->pciDeviceId;
}

/* Memory of a GPU; CUEMU_GPU_MEMORY makes all GPUs smaller, as in the driver */
static unsigned long long cuemu_nvml_memory(const cuemu_gpu_t *gpu)
{
    const int64_t limit = cuemu_env_bytes("CUEMU_GPU_MEMORY");

    return ((limit > 0) && ((uint64_t)limit < gpu->memory_bytes)) ?
           (unsigned long long)limit : gpu->memory_bytes;
}

/* Map the session's state, NULL if no process has made it. */
static const cuemu_shared_t *cuemu_nvml_map(void)
{
    const char *dir = getenv("CUEMU_SESSION");
    const cuemu_shared_t *sh = MAP_FAILED;
    struct stat info;
    char path[300];
    int fd;

    if ((dir == NULL) || (*dir == '\0')) {
        return NULL;
    }

    snprintf(path, sizeof(path), "%s/state", dir);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return NULL;
    }
    if ((fstat(fd, &info) == 0) && (info.st_size >= (off_t)sizeof(*sh))) {
        sh = mmap(NULL, sizeof(*sh), PROT_READ, MAP_SHARED, fd, 0);
    }
    close(fd);
    return (sh == MAP_FAILED) ? NULL : sh;
}

/* Return the slot of the process that has this memory: its owner, or, if that
   has ended, another user; -1: none. */
static int cuemu_nvml_slot(const cuemu_extent_t *extent)
{
    return ((extent->id == 0) || (extent->users == 0)) ? -1 :
           ((extent->users >> extent->owner) & 1) ? extent->owner :
           __builtin_ctzll(extent->users);
}

/* List the living processes that have memory of a GPU. Return their number. */
static unsigned
cuemu_nvml_processes(const cuemu_gpu_t *gpu,
                     nvmlProcessInfo_t infos[CUEMU_MAX_PROCS])
{
    const int32_t index      = (int32_t)(gpu - cuemu_nvml.node.gpus);
    const cuemu_shared_t *sh = cuemu_nvml_map();
    unsigned num             = 0;
    int slot, i, pid;

    for (slot = 0; (sh != NULL) && (slot < CUEMU_MAX_PROCS); ++slot) {
        pid = sh->slots[slot].pid;
        if ((pid == 0) || ((kill(pid, 0) != 0) && (errno == ESRCH))) {
            continue;
        }
        infos[num] = (nvmlProcessInfo_t){.pid               = (unsigned)pid,
            .gpuInstanceId     = ~0u,
            .computeInstanceId = ~0u
        };
        for (i = 0; i < CUEMU_MAX_EXTENTS; ++i) {
            if ((sh->extents[i].gpu == index) &&
                (cuemu_nvml_slot(&sh->extents[i]) == slot)) {
                infos[num].usedGpuMemory += sh->extents[i].size;
            }
        }
        num += (infos[num].usedGpuMemory > 0);
    }
    if (sh != NULL) {
        munmap((void*)sh, sizeof(*sh));
    }
    return num;
}

/* Return the memory of a GPU that processes have, in bytes. */
static unsigned long long cuemu_nvml_used(const cuemu_gpu_t *gpu)
{
    nvmlProcessInfo_t infos[CUEMU_MAX_PROCS];
    unsigned num            = cuemu_nvml_processes(gpu, infos);
    unsigned long long used = 0;

    while (num-- > 0) {
        used += infos[num].usedGpuMemory;
    }
    return used;
}

/* Find a link; errors: NOT_SUPPORTED (the GPU has none), INVALID_ARGUMENT. */
static nvmlReturn_t cuemu_nvml_link(const cuemu_gpu_t *gpu, unsigned link,
                                    const cuemu_nvlink_t **nvlink_p)
{
    if (link >= (unsigned)gpu->num_nvlinks) {
        return (gpu->num_nvlinks == 0) ? NVML_ERROR_NOT_SUPPORTED :
                                         NVML_ERROR_INVALID_ARGUMENT;
    }
    *nvlink_p = &gpu->nvlinks[link];
    return NVML_SUCCESS;
}


/* ---------------------------------------------------- library and system */

CUEMU_NVML_VERSIONS(nvmlInit, nvmlInit_v2, (void), cuemu_nvml_start())

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    return cuemu_nvml_start();
}

nvmlReturn_t nvmlShutdown(void)
{
    nvmlReturn_t ret = NVML_SUCCESS;

    pthread_mutex_lock(&cuemu_nvml.lock);
    if (cuemu_nvml.users == 0) {
        ret = NVML_ERROR_UNINITIALIZED;
    } else {
        --cuemu_nvml.users;
    }
    pthread_mutex_unlock(&cuemu_nvml.lock);
    return ret;
}

const char *nvmlErrorString(nvmlReturn_t result)
{
    static const struct {
        nvmlReturn_t result;
        const char  *text;
    } texts[] = {
        {NVML_SUCCESS, "Success"},
        {NVML_ERROR_UNINITIALIZED, "Uninitialized"},
        {NVML_ERROR_INVALID_ARGUMENT, "Invalid Argument"},
        {NVML_ERROR_NOT_SUPPORTED, "Not Supported"},
        {NVML_ERROR_NO_PERMISSION, "Insufficient Permissions"},
        {NVML_ERROR_NOT_FOUND, "Not Found"},
        {NVML_ERROR_INSUFFICIENT_SIZE, "Insufficient Size"},
        {NVML_ERROR_DRIVER_NOT_LOADED, "Driver Not Loaded"},
        {NVML_ERROR_TIMEOUT, "Timeout"},
        {NVML_ERROR_LIBRARY_NOT_FOUND, "NVML Shared Library Not Found"},
        {NVML_ERROR_FUNCTION_NOT_FOUND, "Function Not Found"},
        {NVML_ERROR_GPU_IS_LOST, "GPU is lost"}
    };
    size_t i;

    for (i = 0; i < sizeof(texts) / sizeof(texts[0]); ++i) {
        if (texts[i].result == result) {
            return texts[i].text;
        }
    }
    return "Unknown Error";
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    return cuemu_nvml_is_up() ?
           cuemu_nvml_string(version, length, CUEMU_NVML_DRIVER) :
           NVML_ERROR_UNINITIALIZED;
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    return cuemu_nvml_string(version, length, "13." CUEMU_NVML_DRIVER);
}

static nvmlReturn_t cuemu_nvml_cuda_version(int *version)
{
    if (version == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    *version = CUEMU_NVML_CUDA;
    return NVML_SUCCESS;
}

CUEMU_NVML_VERSIONS(nvmlSystemGetCudaDriverVersion,
                    nvmlSystemGetCudaDriverVersion_v2, (int *version),
                    cuemu_nvml_cuda_version(version))



/* --------------------------------------------------------------- devices */

static nvmlReturn_t cuemu_nvml_count(unsigned int *count)
{
    if (!cuemu_nvml_is_up()) {
        return NVML_ERROR_UNINITIALIZED;
    }
    if (count == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    *count = (unsigned)cuemu_nvml.node.num_gpus;
    return NVML_SUCCESS;
}

CUEMU_NVML_VERSIONS(nvmlDeviceGetCount, nvmlDeviceGetCount_v2,
                    (unsigned int *count), cuemu_nvml_count(count))

static nvmlReturn_t cuemu_nvml_by_index(unsigned index, nvmlDevice_t *device)
{
    if (!cuemu_nvml_is_up()) {
        return NVML_ERROR_UNINITIALIZED;
    }
    if ((device == NULL) || (index >= (unsigned)cuemu_nvml.node.num_gpus)) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    *device = (nvmlDevice_t)(void*)&cuemu_nvml_handles[index];
    return NVML_SUCCESS;
}

CUEMU_NVML_VERSIONS(nvmlDeviceGetHandleByIndex, nvmlDeviceGetHandleByIndex_v2,
                    (unsigned int index, nvmlDevice_t *device),
                    cuemu_nvml_by_index(index, device))

static nvmlReturn_t cuemu_nvml_by_bus_id(const char *text, nvmlDevice_t *device)
{
    unsigned domain, bus, dev, gpu_domain, gpu_bus, gpu_dev;
    int i;

    if (!cuemu_nvml_is_up()) {
        return NVML_ERROR_UNINITIALIZED;
    }
    if ((text == NULL) || (device == NULL) ||
        (sscanf(text, "%x:%x:%x", &domain, &bus, &dev) != 3)) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    for (i = 0; i < cuemu_nvml.node.num_gpus; ++i) {
        if ((sscanf(cuemu_nvml.node.gpus[i].busid, "%x:%x:%x", &gpu_domain,
                    &gpu_bus, &gpu_dev) == 3) && (domain == gpu_domain) &&
            (bus == gpu_bus) && (dev == gpu_dev)) {
            return cuemu_nvml_by_index((unsigned)i, device);
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

CUEMU_NVML_VERSIONS(nvmlDeviceGetHandleByPciBusId,
                    nvmlDeviceGetHandleByPciBusId_v2,
                    (const char *pciBusId, nvmlDevice_t *device),
                    cuemu_nvml_by_bus_id(pciBusId, device))

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    char text[CUEMU_UUID_SIZE];
    int i;

    if (!cuemu_nvml_is_up()) {
        return NVML_ERROR_UNINITIALIZED;
    }
    if ((uuid == NULL) || (device == NULL)) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    for (i = 0; i < cuemu_nvml.node.num_gpus; ++i) {
        cuemu_gpu_uuid_text(&cuemu_nvml.node.gpus[i], text);
        if (strcasecmp(text, uuid) == 0) {
            return cuemu_nvml_by_index((unsigned)i, device);
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name,
                               unsigned int length)
{
    CUEMU_NVML_GPU(device, gpu, name == NULL);
    return cuemu_nvml_string(name, length, gpu->name);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid,
                               unsigned int length)
{
    char text[CUEMU_UUID_SIZE];

    CUEMU_NVML_GPU(device, gpu, uuid == NULL);
    cuemu_gpu_uuid_text(gpu, text);
    return cuemu_nvml_string(uuid, length, text);
}

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial,
                                 unsigned int length)
{
    char text[32];

    CUEMU_NVML_GPU(device, gpu, serial == NULL);
    snprintf(text, sizeof(text), "%010u",
             (unsigned)(gpu->uuid[0] << 16 | gpu->uuid[1] << 8 | gpu->uuid[2]));
    return cuemu_nvml_string(serial, length, text);
}

CUEMU_NVML_GET(nvmlDeviceGetIndex, unsigned int, cuemu_nvml_index(device))
CUEMU_NVML_GET(nvmlDeviceGetMinorNumber, unsigned int, cuemu_nvml_index(device))
CUEMU_NVML_GET(nvmlDeviceGetBrand, nvmlBrandType_t,
               (gpu->sm >= 80) ? NVML_BRAND_NVIDIA : NVML_BRAND_TESLA)

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major,
                                                int *minor)
{
    CUEMU_NVML_GPU(device, gpu, (major == NULL) || (minor == NULL));
    *major = gpu->sm / 10;
    *minor = gpu->sm % 10;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    CUEMU_NVML_GPU(device, gpu, memory == NULL);
    memory->total = cuemu_nvml_memory(gpu);
    memory->used  = cuemu_nvml_used(gpu);
    memory->free  = memory->total - memory->used;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device,
                                        nvmlMemory_v2_t *memory)
{
    CUEMU_NVML_GPU(device, gpu, memory == NULL);
    if (memory->version != nvmlMemory_v2) {
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    memory->total    = cuemu_nvml_memory(gpu) + CUEMU_NVML_RESERVED;
    memory->reserved = CUEMU_NVML_RESERVED;
    memory->used     = cuemu_nvml_used(gpu);
    memory->free     = cuemu_nvml_memory(gpu) - memory->used;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device,
                                                     unsigned *infoCount,
                                                     nvmlProcessInfo_t *infos)
{
    nvmlProcessInfo_t list[CUEMU_MAX_PROCS];
    unsigned room, num;

    CUEMU_NVML_GPU(device, gpu, (infoCount == NULL) ||
                   ((*infoCount > 0) && (infos == NULL)));
    room       = *infoCount;
    num        = cuemu_nvml_processes(gpu, list);
    *infoCount = num;
    if (room < num) {
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    if (num > 0) {
        memcpy(infos, list, num * sizeof(*list));
    }
    return NVML_SUCCESS;
}

/* Nothing draws on an emulated GPU. */
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device,
                                                      unsigned *infoCount,
                                                      nvmlProcessInfo_t *infos)
{
    CUEMU_NVML_GPU(device, gpu, infoCount == NULL);
    *infoCount = 0;
    return NVML_SUCCESS;
}

CUEMU_NVML_GET(nvmlDeviceGetNumaNodeId, unsigned int, gpu->numa)
CUEMU_NVML_GET(nvmlDeviceGetComputeMode, nvmlComputeMode_t,
               NVML_COMPUTEMODE_DEFAULT)
CUEMU_NVML_GET(nvmlDeviceGetPersistenceMode, nvmlEnableState_t,
               NVML_FEATURE_ENABLED)

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device,
                                  unsigned int *currentMode,
                                  unsigned int *pendingMode)
{
    CUEMU_NVML_GPU(device, gpu, (currentMode == NULL) || (pendingMode == NULL));
    if (gpu->sm < 80) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    *currentMode = NVML_DEVICE_MIG_DISABLE;
    *pendingMode = NVML_DEVICE_MIG_DISABLE;
    return NVML_SUCCESS;
}


/* ------------------------------------------------------------------- PCI */

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    CUEMU_NVML_GPU(device, gpu, pci == NULL);
    cuemu_nvml_pci_info(gpu->busid, gpu, pci);
    return NVML_SUCCESS;
}

/* Older versions write a shorter structure, without the long bus id. */
static nvmlReturn_t cuemu_nvml_old_pci(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    nvmlPciInfo_t full;

    CUEMU_NVML_GPU(device, gpu, pci == NULL);
    cuemu_nvml_pci_info(gpu->busid, gpu, &full);
    memcpy(pci, &full, offsetof(nvmlPciInfo_t, busId));
    return NVML_SUCCESS;
}

CUEMU_NVML_VERSIONS(nvmlDeviceGetPciInfo, nvmlDeviceGetPciInfo_v2,
                    (nvmlDevice_t device, nvmlPciInfo_t *pci),
                    cuemu_nvml_old_pci(device, pci))

CUEMU_NVML_GET(nvmlDeviceGetMaxPcieLinkGeneration, unsigned int, gpu->pcie_gen)
CUEMU_NVML_GET(nvmlDeviceGetCurrPcieLinkGeneration, unsigned int, gpu->pcie_gen)
CUEMU_NVML_GET(nvmlDeviceGetMaxPcieLinkWidth, unsigned int, gpu->pcie_width)
CUEMU_NVML_GET(nvmlDeviceGetCurrPcieLinkWidth, unsigned int, gpu->pcie_width)

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(
        nvmlDevice_t device1, nvmlDevice_t device2,
        nvmlGpuTopologyLevel_t *pathInfo)
{
    static const nvmlGpuTopologyLevel_t levels[] = {
        NVML_TOPOLOGY_INTERNAL, NVML_TOPOLOGY_SINGLE, NVML_TOPOLOGY_MULTIPLE,
        NVML_TOPOLOGY_NODE, NVML_TOPOLOGY_SYSTEM
    };

    CUEMU_NVML_GPU(device1, gpu, (pathInfo == NULL) ||
                                 (cuemu_nvml_index(device2) < 0));
    *pathInfo = levels[cuemu_node_pci_distance(&cuemu_nvml.node,
                                               cuemu_nvml_index(device1),
                                               cuemu_nvml_index(device2))];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device1, nvmlDevice_t device2,
                                    nvmlGpuP2PCapsIndex_t p2pIndex,
                                    nvmlGpuP2PStatus_t *p2pStatus)
{
    const cuemu_route_t *route;
    int nvlink, peers, ok, i, index2;

    CUEMU_NVML_GPU(device1, gpu, (p2pStatus == NULL) ||
                                 (cuemu_nvml_index(device2) < 0));
    index2 = cuemu_nvml_index(device2);
    route  = cuemu_node_route(&cuemu_nvml.node, cuemu_nvml_index(device1),
                              index2);
    peers  = (route != NULL) && route->p2p;
    for (nvlink = 0, i = 0; i < gpu->num_nvlinks; ++i) {
        nvlink |= (gpu->nvlinks[i].peer_gpu == index2) ||
                  (gpu->nvlinks[i].peer_type == CUEMU_PEER_SWITCH);
    }

    switch (p2pIndex) {
    case NVML_P2P_CAPS_INDEX_READ:
    case NVML_P2P_CAPS_INDEX_WRITE:
        ok = peers;
        break;
    case NVML_P2P_CAPS_INDEX_NVLINK:
    case NVML_P2P_CAPS_INDEX_ATOMICS:
        ok = peers && nvlink;
        break;
    case NVML_P2P_CAPS_INDEX_PROP: /* PCI, since 12.2 */
        ok = peers && !nvlink;
        break;
    default:
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    *p2pStatus = ok ? NVML_P2P_STATUS_OK :
                 (peers ? NVML_P2P_STATUS_NOT_SUPPORTED :
                          NVML_P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED);
    return NVML_SUCCESS;
}


/* ---------------------------------------------------------------- NVLink */

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link,
                                      nvmlEnableState_t *isActive)
{
    CUEMU_NVML_GPU(device, gpu, (isActive == NULL) ||
                                (link >= NVML_NVLINK_MAX_LINKS));
    if (gpu->num_nvlinks == 0) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    *isActive = (link < (unsigned)gpu->num_nvlinks) ? NVML_FEATURE_ENABLED :
                                                      NVML_FEATURE_DISABLED;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link,
                                        unsigned int *version)
{
    /* NVML numbers minor versions too (NVML_NVLINK_VERSION_ in nvml.h) */
    static const unsigned of_generation[] = {0, 1, 2, 4, 6, 7, 8};
    const int last = sizeof(of_generation) / sizeof(of_generation[0]) - 1;
    const cuemu_nvlink_t *nvlink;
    nvmlReturn_t ret;

    CUEMU_NVML_GPU(device, gpu, version == NULL);
    ret = cuemu_nvml_link(gpu, link, &nvlink);
    if (ret == NVML_SUCCESS) {
        *version = of_generation[(gpu->nvlink_version < last) ?
                                         gpu->nvlink_version :
                                         last];
    }
    return ret;
}

nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device,
                                           unsigned int link,
                                           nvmlNvLinkCapability_t capability,
                                           unsigned int *capResult)
{
    const cuemu_nvlink_t *nvlink;
    nvmlReturn_t ret;

    CUEMU_NVML_GPU(device, gpu, (capResult == NULL) ||
                                (capability >= NVML_NVLINK_CAP_COUNT));
    ret = cuemu_nvml_link(gpu, link, &nvlink);
    if (ret != NVML_SUCCESS) {
        return ret;
    }

    switch (capability) {
    case NVML_NVLINK_CAP_P2P_SUPPORTED:
    case NVML_NVLINK_CAP_P2P_ATOMICS:
        *capResult = (nvlink->peer_type != CUEMU_PEER_CPU);
        break;
    case NVML_NVLINK_CAP_SYSMEM_ACCESS:
    case NVML_NVLINK_CAP_SYSMEM_ATOMICS:
        *capResult = (nvlink->peer_type == CUEMU_PEER_CPU);
        break;
    default:
        *capResult = (capability == NVML_NVLINK_CAP_VALID);
        break;
    }
    return NVML_SUCCESS;
}

static nvmlReturn_t cuemu_nvml_remote(nvmlDevice_t device, unsigned link,
                                      nvmlPciInfo_t *pci)
{
    const cuemu_nvlink_t *nvlink;
    nvmlReturn_t ret;

    CUEMU_NVML_GPU(device, gpu, pci == NULL);
    ret = cuemu_nvml_link(gpu, link, &nvlink);
    if (ret != NVML_SUCCESS) {
        return ret;
    }

    cuemu_nvml_pci_info(nvlink->peer_busid,
                        (nvlink->peer_gpu < 0) ? NULL :
                        &cuemu_nvml.node.gpus[nvlink->peer_gpu], pci);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device,
                                                 unsigned int link,
                                                 nvmlPciInfo_t *pci)
{
    return cuemu_nvml_remote(device, link, pci);
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device,
                                              unsigned int link,
                                              nvmlPciInfo_t *pci)
{
    nvmlPciInfo_t full;
    nvmlReturn_t ret = cuemu_nvml_remote(device, link,
                                         (pci == NULL) ? NULL : &full);

    if (ret == NVML_SUCCESS) {
        memcpy(pci, &full, offsetof(nvmlPciInfo_t, busId));
    }
    return ret;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(
        nvmlDevice_t device, unsigned int link,
        nvmlIntNvLinkDeviceType_t *pNvLinkDeviceType)
{
    const cuemu_nvlink_t *nvlink;
    nvmlReturn_t ret;

    CUEMU_NVML_GPU(device, gpu, pNvLinkDeviceType == NULL);
    ret = cuemu_nvml_link(gpu, link, &nvlink);
    if (ret != NVML_SUCCESS) {
        return ret;
    }

    switch (nvlink->peer_type) {
    case CUEMU_PEER_GPU:
        *pNvLinkDeviceType = NVML_NVLINK_DEVICE_TYPE_GPU;
        break;
    case CUEMU_PEER_SWITCH:
        *pNvLinkDeviceType = NVML_NVLINK_DEVICE_TYPE_SWITCH;
        break;
    case CUEMU_PEER_CPU:
        *pNvLinkDeviceType = NVML_NVLINK_DEVICE_TYPE_IBMNPU;
        break;
    default:
        *pNvLinkDeviceType = NVML_NVLINK_DEVICE_TYPE_UNKNOWN;
        break;
    }
    return NVML_SUCCESS;
}

static int cuemu_nvml_field(const cuemu_gpu_t *gpu, nvmlFieldValue_t *field)
{
    unsigned link = UINT32_MAX;
    int i, switches;

    switch (field->fieldId) {
    case NVML_FI_DEV_NVLINK_LINK_COUNT:
        field->value.uiVal = (unsigned)gpu->num_nvlinks;
        return 1;
    case NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON:
        field->value.uiVal = (unsigned)gpu->nvlink_mbps;
        return gpu->num_nvlinks > 0;
#ifdef NVML_FI_DEV_NVLINK_GET_SPEED
    case NVML_FI_DEV_NVLINK_GET_SPEED:
        link = field->scopeId;
        break;
#endif
#ifdef NVML_FI_DEV_NVLINK_GET_VERSION
    case NVML_FI_DEV_NVLINK_GET_VERSION:
        field->value.uiVal = (unsigned)gpu->nvlink_version;
        return field->scopeId < (unsigned)gpu->num_nvlinks;
#endif
#ifdef NVML_FI_DEV_NVLINK_GET_STATE
    case NVML_FI_DEV_NVLINK_GET_STATE:
        field->value.uiVal = (field->scopeId < (unsigned)gpu->num_nvlinks);
        return 1;
#endif
#ifdef NVML_FI_DEV_NVSWITCH_CONNECTED_LINK_COUNT
    case NVML_FI_DEV_NVSWITCH_CONNECTED_LINK_COUNT:
        for (switches = 0, i = 0; i < gpu->num_nvlinks; ++i) {
            switches += (gpu->nvlinks[i].peer_type == CUEMU_PEER_SWITCH);
        }
        field->value.uiVal = (unsigned)switches;
        return 1;
#endif
#ifdef NVML_FI_DEV_C2C_LINK_COUNT
    case NVML_FI_DEV_C2C_LINK_COUNT:
        field->value.uiVal = (unsigned)gpu->c2c_count;
        return 1;
    case NVML_FI_DEV_C2C_LINK_GET_STATUS:
        field->value.uiVal = 1;
        return field->scopeId < (unsigned)gpu->c2c_count;
    case NVML_FI_DEV_C2C_LINK_GET_MAX_BW:
        field->value.uiVal = (unsigned)gpu->c2c_mbps;
        return field->scopeId < (unsigned)gpu->c2c_count;
#endif
    default:
        if ((field->fieldId >= NVML_FI_DEV_NVLINK_SPEED_MBPS_L0) &&
            (field->fieldId <= NVML_FI_DEV_NVLINK_SPEED_MBPS_L5)) {
            link = field->fieldId - NVML_FI_DEV_NVLINK_SPEED_MBPS_L0;
        } else if ((field->fieldId >= NVML_FI_DEV_NVLINK_SPEED_MBPS_L6) &&
                   (field->fieldId <= NVML_FI_DEV_NVLINK_SPEED_MBPS_L11)) {
            link = 6 + field->fieldId - NVML_FI_DEV_NVLINK_SPEED_MBPS_L6;
        }
        break;
    }

    field->value.uiVal = (unsigned)gpu->nvlink_mbps;
    return link < (unsigned)gpu->num_nvlinks;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int valuesCount,
                                      nvmlFieldValue_t *values)
{
    struct timeval now;
    int i;

    CUEMU_NVML_GPU(device, gpu, (values == NULL) || (valuesCount < 1));
    gettimeofday(&now, NULL);
    for (i = 0; i < valuesCount; ++i) {
        memset(&values[i].value, 0, sizeof(values[i].value));
        values[i].timestamp   = now.tv_sec * 1000000ll + now.tv_usec;
        values[i].latencyUsec = 0;
        values[i].valueType   = NVML_VALUE_TYPE_UNSIGNED_INT;
        values[i].nvmlReturn  = cuemu_nvml_field(gpu, &values[i]) ?
                                NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
    }
    return NVML_SUCCESS;
}

/*
 * Return the cluster of this node. CUEMU_FABRIC=N: a cluster whose nodes share
 * memory over NVLink. CUEMU_FABRIC_CLIQUE is the node's clique in it, 0 by
 * default. Without CUEMU_FABRIC: the answer of a single node without a fabric
 * manager.
 */
static nvmlReturn_t cuemu_nvml_fabric(void *uuid, unsigned *clique)
{
    const char *cluster = getenv("CUEMU_FABRIC");
    const char *part    = getenv("CUEMU_FABRIC_CLIQUE");
    uint64_t number     = (cluster == NULL) ? 0 : strtoull(cluster, NULL, 0);

    if (number == 0) {
        return NVML_ERROR_NOT_SUPPORTED;
    }

    memset(uuid, 0, 16);
    memcpy(uuid, &number, sizeof(number));
    *clique = (part == NULL) ? 0 : (unsigned)strtoul(part, NULL, 0);
    return NVML_SUCCESS;
}

/* nvmlGpuFabricInfo_t; before 12.3 its fields have other names */
typedef struct {
    unsigned char clusterUuid[16];
    nvmlReturn_t  status;
    unsigned      cliqueId;
    unsigned char state;
} cuemu_nvml_fabric_t;

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device,
                                        nvmlGpuFabricInfo_t *gpuFabricInfo)
{
    cuemu_nvml_fabric_t *info = (void*)gpuFabricInfo;

    CUEMU_NVML_GPU(device, gpu, info == NULL);
    info->state  = NVML_GPU_FABRIC_STATE_COMPLETED;
    info->status = NVML_SUCCESS;
    return cuemu_nvml_fabric(info->clusterUuid, &info->cliqueId);
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device,
                                         nvmlGpuFabricInfoV_t *gpuFabricInfo)
{
    CUEMU_NVML_GPU(device, gpu, gpuFabricInfo == NULL);
    gpuFabricInfo->state      = NVML_GPU_FABRIC_STATE_COMPLETED;
    gpuFabricInfo->status     = NVML_SUCCESS;
    gpuFabricInfo->healthMask = 0;
    return cuemu_nvml_fabric(gpuFabricInfo->clusterUuid,
                             &gpuFabricInfo->cliqueId);
}


/* -------------------------------------------------------------- affinity */

nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device,
                                      unsigned int cpuSetSize,
                                      unsigned long *cpuSet)
{
    CUEMU_NVML_GPU(device, gpu, (cpuSet == NULL) || (cpuSetSize == 0));
    memset(cpuSet, 0xff, cpuSetSize * sizeof(*cpuSet));
    return NVML_SUCCESS;
}
