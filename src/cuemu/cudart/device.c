/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Runtime: devices, their primary contexts, peers.
 */
#include "cudart.h"

#include <pthread.h>
#include <string.h>

#define CUEMU_CUDART_MAX_DEVICES 64

/* Primary contexts retained by this library, on first use. */
static struct {
    pthread_mutex_t lock;
    CUcontext       ctx[CUEMU_CUDART_MAX_DEVICES];
} cuemu_cudart_primary = {
    .lock = PTHREAD_MUTEX_INITIALIZER
};

static __thread int cuemu_cudart_device;

cuemu_cudart_error_t cuemu_cudart_driver(void)
{
    CUresult res = cuInit(0);

    return (res == CUDA_ERROR_NO_DEVICE) ? CUDART_NO_DEVICE :
                                           (cuemu_cudart_error_t)res;
}

static cuemu_cudart_error_t cuemu_cudart_use(int device)
{
    CUresult res  = CUDA_SUCCESS;
    CUcontext ctx = NULL;
    CUdevice dev;

    if ((device < 0) || (device >= CUEMU_CUDART_MAX_DEVICES)) {
        return CUDART_INVALID_DEVICE;
    }

    pthread_mutex_lock(&cuemu_cudart_primary.lock);
    ctx = cuemu_cudart_primary.ctx[device];
    if (ctx == NULL) {
        res = cuDeviceGet(&dev, device);
        if (res == CUDA_SUCCESS) {
            res = cuDevicePrimaryCtxRetain(&ctx, dev);
        }
        if (res == CUDA_SUCCESS) {
            cuemu_cudart_primary.ctx[device] = ctx;
        }
    }
    pthread_mutex_unlock(&cuemu_cudart_primary.lock);

    if (res == CUDA_SUCCESS) {
        res = cuCtxSetCurrent(ctx);
    }
    if (res == CUDA_SUCCESS) {
        cuemu_cudart_device = device;
    }
    return (cuemu_cudart_error_t)res;
}

cuemu_cudart_error_t cuemu_cudart_enter(void)
{
    cuemu_cudart_error_t error = cuemu_cudart_driver();
    CUcontext ctx              = NULL;
    unsigned version;

    if (error != CUDART_SUCCESS) {
        return error;
    }
    /* Another thread may have reset the device */
    if ((cuCtxGetCurrent(&ctx) == CUDA_SUCCESS) && (ctx != NULL) &&
        (cuCtxGetApiVersion(ctx, &version) == CUDA_SUCCESS)) {
        return CUDART_SUCCESS;
    }
    return cuemu_cudart_use(cuemu_cudart_device);
}

CUDART_FORWARD_PLAIN(cudaGetDeviceCount, (int *count), cuDeviceGetCount(count))

CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaSetDevice(int device)
{
    cuemu_cudart_error_t error = cuemu_cudart_driver();

    if (error == CUDART_SUCCESS) {
        error = cuemu_cudart_use(device);
    }
    return cuemu_cudart_return(error);
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaGetDevice(int *device)
{
    CUdevice dev;

    if (device == NULL) {
        return cuemu_cudart_return(CUDART_INVALID_VALUE);
    }
    *device = cuemu_cudart_device;
    if ((cuemu_cudart_driver() == CUDART_SUCCESS) &&
        (cuCtxGetDevice(&dev) == CUDA_SUCCESS)) {
        *device = dev;
    }
    return CUDART_SUCCESS;
}

CUDART_FORWARD(cudaDeviceSynchronize, (void), cuCtxSynchronize())

CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaDeviceReset(void)
{
    cuemu_cudart_error_t error = cuemu_cudart_driver();
    CUcontext ctx              = NULL;
    CUdevice dev;
    int i;

    if (error != CUDART_SUCCESS) {
        return cuemu_cudart_return(error);
    }
    if ((cuCtxGetCurrent(&ctx) != CUDA_SUCCESS) || (ctx == NULL)) {
        return CUDART_SUCCESS;
    }

    cuCtxSynchronize();
    pthread_mutex_lock(&cuemu_cudart_primary.lock);
    for (i = 0; i < CUEMU_CUDART_MAX_DEVICES; ++i) {
        if ((cuemu_cudart_primary.ctx[i] == ctx) &&
            (cuDeviceGet(&dev, i) == CUDA_SUCCESS)) {
            cuCtxSetCurrent(NULL);
            cuemu_cudart_primary.ctx[i] = NULL;
            error = (cuemu_cudart_error_t)cuDevicePrimaryCtxReset(dev);
            cuDevicePrimaryCtxRelease(dev);
        }
    }
    pthread_mutex_unlock(&cuemu_cudart_primary.lock);
    return cuemu_cudart_return(error);
}

/* cudaDeviceAttr has the driver's numbers */
CUDART_FORWARD_PLAIN(cudaDeviceGetAttribute, (int *value, int attr, int device),
                     cuDeviceGetAttribute(value, (CUdevice_attribute)attr,
                                          device))
CUDART_FORWARD_PLAIN(cudaDeviceGetP2PAttribute,
                     (int *value, int attr, int src, int dst),
                     cuDeviceGetP2PAttribute(value, (CUdevice_P2PAttribute)attr,
                                             src, dst))
CUDART_FORWARD_PLAIN(cudaGetDriverEntryPointByVersion,
                     (const char *name, void **func, unsigned version,
                      unsigned long long flags, int *status),
                     cuGetProcAddress_v2(name, func, (int)version, flags,
                                         (void*)status))
#if CUEMU_CUDART_MAJOR < 13
CUDART_FORWARD_PLAIN(cudaGetDriverEntryPoint,
                     (const char *name, void **func, unsigned long long flags,
                      int *status),
                     cuGetProcAddress_v2(name, func, 12000, flags,
                                         (void*)status))
#endif
CUDART_FORWARD_PLAIN(cudaDeviceGetPCIBusId,
                     (char *pciBusId, int len, int device),
                     cuDeviceGetPCIBusId(pciBusId, len, device))
CUDART_FORWARD_PLAIN(cudaDeviceGetByPCIBusId,
                     (int *device, const char *pciBusId),
                     cuDeviceGetByPCIBusId(device, pciBusId))

/*
 * cudaDeviceProp: the part with one layout in all releases, up to the compute
 * capability; later fields are at offsets of the release.
 */
typedef struct {
    char     name[256];
    uint8_t  uuid[16];
    char     luid[8];
    unsigned luid_mask;
    size_t   total_global_mem;
    size_t   shared_mem_per_block;
    int      regs_per_block;
    int      warp_size;
    size_t   mem_pitch;
    int      max_threads_per_block;
    int      max_threads_dim[3];
    int      max_grid_size[3];
    int      clock_rate;       /* 13: padding */
    size_t   total_const_mem;
    int      major;
    int      minor;
} cuemu_cudart_prop_head_t;

static const struct {
    CUdevice_attribute attr;
    size_t             offset12;
    size_t             offset13;
} cuemu_cudart_props[] = {
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,           388, 384},
    {CU_DEVICE_ATTRIBUTE_INTEGRATED,                     396, 388},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY,            400, 392},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS,             576, 560},
    {CU_DEVICE_ATTRIBUTE_ECC_ENABLED,                    580, 564},
    {CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,                     584, 568},
    {CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID,                  588, 572},
    {CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID,                  592, 576},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT,             600, 584},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING,             604, 588},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH,        612, 592},
    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE,                  616, 596},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 624, 604},
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY,                 652, 636},
    {CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,         672, 652},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,      676, 656},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT,              368, 368},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT,        376, 376},
    {CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT,              568, 552},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED,    628, 608},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED,      632, 612},
    {CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED,       636, 616},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 640, 624},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 648, 632},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED,   680, 660},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 684, 664},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH,             688, 668},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 696, 672},
    {CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES, 704,
     680},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR,  712, 688},
    {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 720, 696},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED,        728, 704},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED,         744, 720}
};

static int cuemu_cudart_attr(CUdevice_attribute attr, CUdevice dev)
{
    int value = 0;

    return (cuDeviceGetAttribute(&value, attr, dev) == CUDA_SUCCESS) ? value :
                                                                       0;
}

static cuemu_cudart_error_t
cuemu_cudart_properties(void *prop, size_t size, int device)
{
    cuemu_cudart_prop_head_t *head = prop;
    cuemu_cudart_error_t error     = cuemu_cudart_driver();
    CUuuid uuid;
    CUdevice dev;
    size_t k, offset;
    int value, i;

    if (error != CUDART_SUCCESS) {
        return cuemu_cudart_return(error);
    }
    if (prop == NULL) {
        return cuemu_cudart_return(CUDART_INVALID_VALUE);
    }
    if (cuDeviceGet(&dev, device) != CUDA_SUCCESS) {
        return cuemu_cudart_return(CUDART_INVALID_DEVICE);
    }

    memset(prop, 0, size);
    cuDeviceGetName(head->name, sizeof(head->name), dev);
    if (cuDeviceGetUuid(&uuid, dev) == CUDA_SUCCESS) {
        memcpy(head->uuid, uuid.bytes, sizeof(head->uuid));
    }
    cuDeviceTotalMem(&head->total_global_mem, dev);
    head->shared_mem_per_block = (size_t)
        cuemu_cudart_attr(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, dev);
    head->regs_per_block =
        cuemu_cudart_attr(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, dev);
    head->warp_size             = 32;
    head->mem_pitch             = 0x7fffffff;
    head->max_threads_per_block = 1024;
    head->total_const_mem       = 65536;
    for (i = 0; i < 3; ++i) {
        head->max_threads_dim[i] = (i < 2) ? 1024 : 64;
        head->max_grid_size[i]   = (i < 1) ? 0x7fffffff : 65535;
    }
    head->major = cuemu_cudart_attr(
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, dev);
    head->minor = cuemu_cudart_attr(
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, dev);

    for (k = 0; k < sizeof(cuemu_cudart_props) / sizeof(cuemu_cudart_props[0]);
         ++k) {
        value  = cuemu_cudart_attr(cuemu_cudart_props[k].attr, dev);
        offset = (CUEMU_CUDART_MAJOR >= 13) ? cuemu_cudart_props[k].offset13 :
                                              cuemu_cudart_props[k].offset12;
        if (offset + sizeof(value) <= size) {
            memcpy((char*)prop + offset, &value, sizeof(value));
        }
    }
    return CUDART_SUCCESS;
}

#if CUEMU_CUDART_MAJOR >= 13
CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaGetDeviceProperties(void *prop, int device)
{
    return cuemu_cudart_properties(prop, 1008, device);
}
#else
CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaGetDeviceProperties_v2(void *prop, int device)
{
    return cuemu_cudart_properties(prop, 1032, device);
}

/* CUDA 11 and before: the structure is shorter, with the same layout */
CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaGetDeviceProperties(void *prop, int device)
{
    return cuemu_cudart_properties(prop, 704, device);
}
#endif

CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaDriverGetVersion(int *version)
{
    return cuemu_cudart_return(
            (cuemu_cudart_error_t)cuDriverGetVersion(version));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaRuntimeGetVersion(int *version)
{
    if (version == NULL) {
        return cuemu_cudart_return(CUDART_INVALID_VALUE);
    }
    *version = (CUEMU_CUDART_MAJOR >= 13) ? 13000 : 12090;
    return CUDART_SUCCESS;
}

/* cudaLimit has the driver's numbers */
CUDART_FORWARD(cudaDeviceGetLimit, (size_t *value, int limit),
               cuCtxGetLimit(value, (CUlimit)limit))
CUDART_FORWARD(cudaDeviceSetLimit, (int limit, size_t value),
               cuCtxSetLimit((CUlimit)limit, value))

/* Profiling has no effect */
CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaProfilerStart(void)
{
    return cuemu_cudart_return(cuemu_cudart_driver());
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaProfilerStop(void)
{
    return cuemu_cudart_return(cuemu_cudart_driver());
}

/* cudaFuncCache, a hint: 0 is no preference */
CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaDeviceSetCacheConfig(int config)
{
    return cuemu_cudart_return(cuemu_cudart_enter());
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaDeviceGetCacheConfig(int *config)
{
    if (config == NULL) {
        return cuemu_cudart_return(CUDART_INVALID_VALUE);
    }
    *config = 0;
    return cuemu_cudart_return(cuemu_cudart_enter());
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaInitDevice(int device, unsigned device_flags, unsigned flags)
{
    const int current          = cuemu_cudart_device;
    cuemu_cudart_error_t error = cuemu_cudart_driver();
    CUcontext ctx              = NULL;

    if (error == CUDART_SUCCESS) {
        cuCtxGetCurrent(&ctx);
        error = cuemu_cudart_use(device);
        cuCtxSetCurrent(ctx);
        cuemu_cudart_device = current;
    }
    return cuemu_cudart_return(error);
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaSetDeviceFlags(unsigned flags)
{
    return cuemu_cudart_return(cuemu_cudart_driver());
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaGetDeviceFlags(unsigned *flags)
{
    if (flags == NULL) {
        return cuemu_cudart_return(CUDART_INVALID_VALUE);
    }
    *flags = 0;
    return CUDART_SUCCESS;
}

CUDART_FORWARD(cudaDeviceGetStreamPriorityRange, (int *least, int *greatest),
               cuCtxGetStreamPriorityRange(least, greatest))
CUDART_FORWARD_PLAIN(cudaDeviceCanAccessPeer,
                     (int *canAccessPeer, int device, int peerDevice),
                     cuDeviceCanAccessPeer(canAccessPeer, device, peerDevice))

static cuemu_cudart_error_t cuemu_cudart_peer(int peer, int enable)
{
    cuemu_cudart_error_t error = cuemu_cudart_enter();
    CUcontext mine             = NULL;
    CUcontext ctx;
    int device;

    if (error != CUDART_SUCCESS) {
        return error;
    }

    /* the peer's primary context may have to be created: make it current for a
       moment */
    cuCtxGetCurrent(&mine);
    device = cuemu_cudart_device;
    error  = cuemu_cudart_use(peer);
    cuCtxGetCurrent(&ctx);
    cuCtxSetCurrent(mine);
    cuemu_cudart_device = device;
    if ((error != CUDART_SUCCESS) || (ctx == mine)) {
        return (error != CUDART_SUCCESS) ? error : CUDART_INVALID_DEVICE;
    }
    return (cuemu_cudart_error_t)(enable ? cuCtxEnablePeerAccess(ctx, 0) :
                                           cuCtxDisablePeerAccess(ctx));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaDeviceEnablePeerAccess(int peerDevice, unsigned flags)
{
    return cuemu_cudart_return((flags != 0) ? CUDART_INVALID_VALUE :
                                              cuemu_cudart_peer(peerDevice, 1));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaDeviceDisablePeerAccess(int peerDevice)
{
    return cuemu_cudart_return(cuemu_cudart_peer(peerDevice, 0));
}
