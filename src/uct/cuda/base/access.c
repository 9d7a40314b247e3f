/* SPDX-License-Identifier: BSD-3-Clause */
#include <uct/cuda/base/access.h>


bool uct_cuda_access_get(const uct_cuda_driver_t *driver, int device,
                         CUdeviceptr memory, unsigned long long *flags_p)
{
    const CUmemLocation location = {
        .type = CU_MEM_LOCATION_TYPE_DEVICE,
        .id   = device
    };

    return (driver->cuMemGetAccess != NULL) &&
           (driver->cuMemGetAccess(flags_p, &location, memory) ==
            CUDA_SUCCESS);
}

/* The driver refuses questions about a pool's memory, and compute-sanitizer
 * lists refused calls */
static bool is_of_pool(const uct_cuda_driver_t *driver, CUdeviceptr memory)
{
    CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE;
    CUmemoryPool pool             = NULL;
    void *value                   = &pool;

    return (driver->cuPointerGetAttributes(1, &attribute, &value, memory) ==
            CUDA_SUCCESS) &&
           (pool != NULL);
}

static bool
is_open_to(const uct_cuda_driver_t *driver, int device, CUdeviceptr memory)
{
    unsigned long long flags;

    return uct_cuda_access_get(driver, device, memory, &flags) && (flags != 0);
}

int uct_cuda_access_gpu(const uct_cuda_driver_t *driver, CUdeviceptr memory,
                        int location)
{
    int device, current = -1, count = 0;

    if ((driver->cuMemGetAccess == NULL) || is_of_pool(driver, memory) ||
        ((location >= 0) && is_open_to(driver, location, memory))) {
        return location;
    }

    if ((driver->cuCtxGetDevice(&current) == CUDA_SUCCESS) &&
        is_open_to(driver, current, memory)) {
        return current;
    }

    (void)driver->cuDeviceGetCount(&count);
    for (device = 0; device < count; ++device) {
        if (is_open_to(driver, device, memory)) {
            return device;
        }
    }

    return location;
}
