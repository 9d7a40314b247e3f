/* SPDX-License-Identifier: BSD-3-Clause */
/* Create, reserve, map, set access; and the reverse. */
#include <uct/cuda/base/vmm.h>

#include <stdint.h>


ucs_status_t uct_cuda_vmm_alloc(int device, int accessor,
                                CUmemAllocationHandleType type,
                                size_t *length_p, CUdeviceptr *address_p)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    CUmemAllocationProp prop        = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    CUmemAccessDesc access          = {0};
    ucs_status_t status             = UCS_ERR_NO_MEMORY;
    size_t length                   = *length_p;
    CUmemGenericAllocationHandle handle;
    size_t granularity;

    prop.requestedHandleTypes = type;
    prop.location.type        = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id          = device;
    if (type == UCT_CUDA_VMM_FABRIC) {
        prop.allocFlags.gpuDirectRDMACapable = 1;
    }

    if ((driver->cuMemGetAllocationGranularity == NULL) ||
        (driver->cuMemGetAllocationGranularity(
                 &granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) !=
         CUDA_SUCCESS) ||
        (length > SIZE_MAX - granularity)) {
        return UCS_ERR_UNSUPPORTED;
    }

    length = (length + granularity - 1) / granularity * granularity;
    if (driver->cuMemCreate(&handle, length, &prop, 0) != CUDA_SUCCESS) {
        return UCS_ERR_NO_MEMORY;
    }

    if (driver->cuMemAddressReserve(address_p, length, 0, 0, 0) !=
        CUDA_SUCCESS) {
        goto out_release;
    }

    if (driver->cuMemMap(*address_p, length, 0, handle, 0) != CUDA_SUCCESS) {
        (void)driver->cuMemAddressFree(*address_p, length);
        goto out_release;
    }

    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id   = accessor;
    access.flags         = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (driver->cuMemSetAccess(*address_p, length, &access, 1) !=
        CUDA_SUCCESS) {
        uct_cuda_vmm_free(*address_p, length);
        goto out_release;
    }

    *length_p = length;
    status    = UCS_OK;

out_release:
    /* the mapping keeps the memory */
    (void)driver->cuMemRelease(handle);
    return status;
}

void uct_cuda_vmm_free(CUdeviceptr address, size_t length)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();

    (void)driver->cuMemUnmap(address, length);
    (void)driver->cuMemAddressFree(address, length);
}
