/* SPDX-License-Identifier: BSD-3-Clause */
/* Allocate memory by cuMemCreate: create, reserve, map, set access; and free
 * it. */
#include <uct/cuda/base/vmm.h>

#include <uct/cuda/base/range.h>

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/queue.h>


/* Mapped memory, for uct_cuda_vmm_open() */
typedef struct range range_t;
struct range {
    LIST_ENTRY(range) entry;
    CUdeviceptr       address;
    size_t            length;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, range) ranges = LIST_HEAD_INITIALIZER(ranges);


static CUresult set_access(CUdeviceptr address, size_t length, int device)
{
    const CUmemAccessDesc access = uct_cuda_vmm_access(device);

    return uct_cuda_driver_get()->cuMemSetAccess(address, length, &access, 1);
}

/* Without memory for it, the range is not found later */
static void keep(CUdeviceptr address, size_t length)
{
    range_t *range = malloc(sizeof(*range));

    if (range != NULL) {
        range->address = address;
        range->length  = length;
        pthread_mutex_lock(&lock);
        LIST_INSERT_HEAD(&ranges, range, entry);
        pthread_mutex_unlock(&lock);
    }
}

/* Find the range of an address. The caller holds the lock. */
static range_t *find(CUdeviceptr address)
{
    range_t *range;

    LIST_FOREACH(range, &ranges, entry)
    {
        if (uct_cuda_range_holds(range->address, range->length, address, 1)) {
            break;
        }
    }
    return range;
}

ucs_status_t uct_cuda_vmm_alloc(int device, int accessor,
                                CUmemAllocationHandleType type,
                                size_t *length_p, CUdeviceptr *address_p)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    CUmemAllocationProp prop        = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
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

    if (set_access(*address_p, length, accessor) != CUDA_SUCCESS) {
        uct_cuda_vmm_free(*address_p, length);
        goto out_release;
    }

    keep(*address_p, length);
    *length_p = length;
    status    = UCS_OK;

out_release:
    /* the mapping keeps the memory */
    (void)driver->cuMemRelease(handle);
    return status;
}

ucs_status_t uct_cuda_vmm_open(CUdeviceptr address, int device)
{
    ucs_status_t status = UCS_ERR_NO_ELEM;
    range_t *range;

    pthread_mutex_lock(&lock);
    range = find(address);
    if (range != NULL) {
        status = (set_access(range->address, range->length, device) ==
                  CUDA_SUCCESS) ?
                         UCS_OK :
                         UCS_ERR_UNREACHABLE;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

void uct_cuda_vmm_free(CUdeviceptr address, size_t length)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    range_t *range;

    pthread_mutex_lock(&lock);
    range = find(address);
    if (range != NULL) {
        LIST_REMOVE(range, entry);
    }
    pthread_mutex_unlock(&lock);
    free(range);
    (void)driver->cuMemUnmap(address, length);
    (void)driver->cuMemAddressFree(address, length);
}
