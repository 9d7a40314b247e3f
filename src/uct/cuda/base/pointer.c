/* SPDX-License-Identifier: BSD-3-Clause */
#include <uct/cuda/base/pointer.h>

#include <uct/cuda/base/range.h>


/* A driver that does not know one attribute refuses all of them at once, so
 * they are then queried one by one: taking GPU memory for host memory would
 * crash the program. */
CUresult uct_cuda_pointer_query(const uct_cuda_driver_t *driver,
                                CUdeviceptr address,
                                uct_cuda_pointer_attributes_t attributes,
                                uct_cuda_pointer_t *pointer)
{
    static CUpointer_attribute names[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_CONTEXT,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        CU_POINTER_ATTRIBUTE_RANGE_SIZE,
        CU_POINTER_ATTRIBUTE_BUFFER_ID
    };
    void *values[] = {&pointer->type,    &pointer->is_managed,
                      &pointer->context, &pointer->ordinal,
                      &pointer->base,    &pointer->length,
                      &pointer->buffer_id};
    CUresult result;
    unsigned i;

    *pointer = (uct_cuda_pointer_t){.address = address, .ordinal = -1};
    result   = driver->cuPointerGetAttributes(attributes, names, values,
                                              address);
    if (__builtin_expect((result == CUDA_SUCCESS) ||
                                 (result == CUDA_ERROR_NOT_INITIALIZED) ||
                                 (result == CUDA_ERROR_DEINITIALIZED),
                         1)) {
        return result;
    }

    result = driver->cuPointerGetAttribute(values[0], names[0], address);
    for (i = 1; (i < attributes) && (result == CUDA_SUCCESS); ++i) {
        (void)driver->cuPointerGetAttribute(values[i], names[i], address);
    }

    return result;
}

bool uct_cuda_pointer_retain(const uct_cuda_driver_t *driver,
                             CUdeviceptr address,
                             CUmemGenericAllocationHandle *handle_p)
{
    return (driver->cuMemRetainAllocationHandle != NULL) &&
           (driver->cuMemRelease != NULL) &&
           (driver->cuMemRetainAllocationHandle(handle_p, (void*)address) ==
            CUDA_SUCCESS);
}

static bool has_handle(const uct_cuda_driver_t *driver, CUdeviceptr address)
{
    CUmemGenericAllocationHandle handle;

    return uct_cuda_pointer_retain(driver, address, &handle) &&
           ((void)driver->cuMemRelease(handle), true);
}

/* The driver reports host VMM memory as host memory, like page-locked memory,
 * but without a context */
uct_cuda_pointer_kind_t
uct_cuda_pointer_kind(const uct_cuda_driver_t *driver,
                      const uct_cuda_pointer_t *pointer)
{
    if (pointer->is_managed) {
        return UCT_CUDA_POINTER_MANAGED;
    }

    switch (pointer->type) {
    case CU_MEMORYTYPE_DEVICE:
        return UCT_CUDA_POINTER_GPU;
    case CU_MEMORYTYPE_HOST:
        return ((pointer->context == NULL) &&
                has_handle(driver, pointer->address)) ?
                       UCT_CUDA_POINTER_HOST_VMM :
                       UCT_CUDA_POINTER_PINNED;
    default:
        return UCT_CUDA_POINTER_UNKNOWN;
    }
}

bool uct_cuda_pointer_has_access(const uct_cuda_driver_t *driver, int device,
                                 CUdeviceptr address,
                                 unsigned long long access)
{
    const CUmemLocation location = {
        .type = CU_MEM_LOCATION_TYPE_DEVICE,
        .id   = device
    };
    unsigned long long flags;

    return (driver->cuMemGetAccess == NULL) ||
           ((driver->cuMemGetAccess(&flags, &location, address) ==
             CUDA_SUCCESS) &&
            ((flags & access) == access));
}

static bool
can_read(const uct_cuda_driver_t *driver, int device, CUdeviceptr address)
{
    return uct_cuda_pointer_has_access(driver, device, address,
                                       CU_MEM_ACCESS_FLAGS_PROT_READ);
}

int uct_cuda_pointer_gpu(const uct_cuda_driver_t *driver,
                         const uct_cuda_pointer_t *pointer)
{
    const CUdeviceptr address = pointer->address;
    const int location        = pointer->ordinal;
    int device, current = -1, count = 0;
    uct_cuda_pointer_sharing_t sharing;

    if ((pointer->context != NULL) || (driver->cuMemGetAccess == NULL)) {
        return location;
    }

    uct_cuda_pointer_sharing(driver, address, &sharing);
    if (!sharing.is_vmm ||
        ((location >= 0) && can_read(driver, location, address))) {
        return location;
    }

    if ((driver->cuCtxGetDevice(&current) == CUDA_SUCCESS) &&
        can_read(driver, current, address)) {
        return current;
    }

    (void)driver->cuDeviceGetCount(&count);
    for (device = 0; device < count; ++device) {
        if (can_read(driver, device, address)) {
            return device;
        }
    }

    return location;
}

CUresult uct_cuda_pointer_range(const uct_cuda_driver_t *driver,
                                CUdeviceptr address, CUdeviceptr *base_p,
                                size_t *length_p)
{
    CUdeviceptr base;
    size_t length;
    CUresult result;

    if (driver->cuMemGetAddressRange == NULL) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }

    result = driver->cuMemGetAddressRange(&base, &length, address);
    if ((result == CUDA_SUCCESS) &&
        !uct_cuda_range_holds(base, length, address, 1)) {
        return CUDA_ERROR_NOT_FOUND;
    }

    if (result == CUDA_SUCCESS) {
        *base_p   = base;
        *length_p = length;
    }
    return result;
}

bool uct_cuda_pointer_id(const uct_cuda_driver_t *driver, CUdeviceptr address,
                         unsigned long long *id_p)
{
    CUpointer_attribute name = CU_POINTER_ATTRIBUTE_BUFFER_ID;
    void *value              = id_p;

    *id_p = 0;
    return driver->cuPointerGetAttributes(1, &name, &value, address) ==
           CUDA_SUCCESS;
}

bool uct_cuda_pointer_is_mapped(const uct_cuda_driver_t *driver,
                                CUdeviceptr address, CUcontext *context_p)
{
    CUdeviceptr mapped          = 0;
    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                   CU_POINTER_ATTRIBUTE_CONTEXT};
    void *values[]              = {&mapped, context_p};

    *context_p = NULL;
    return (driver->cuPointerGetAttributes(2, names, values, address) ==
            CUDA_SUCCESS) &&
           (mapped == address);
}

/* A driver before CUDA 11.3 knows no pools */
void uct_cuda_pointer_sharing(const uct_cuda_driver_t *driver,
                              CUdeviceptr address,
                              uct_cuda_pointer_sharing_t *sharing)
{
    CUmemorytype type           = (CUmemorytype)0;
    CUpointer_attribute names[] = {
        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
        CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE
    };
    void *values[] = {&sharing->is_legacy, &sharing->handle_types, &type,
                      &sharing->ordinal, &sharing->pool};

    *sharing = (uct_cuda_pointer_sharing_t){.is_legacy = 1};
    if (driver->cuPointerGetAttributes(5, names, values, address) ==
        CUDA_SUCCESS) {
        sharing->is_vmm = (type == CU_MEMORYTYPE_DEVICE) ?
                                  (sharing->pool == NULL) :
                                  has_handle(driver, address);
        return;
    }

    (void)driver->cuPointerGetAttribute(values[0], names[0], address);
    (void)driver->cuPointerGetAttribute(values[1], names[1], address);
    sharing->is_vmm = has_handle(driver, address);
}
