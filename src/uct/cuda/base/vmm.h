/* SPDX-License-Identifier: BSD-3-Clause */
/* GPU memory from cuMemCreate, on any GPU without a context there. */
#ifndef UCT_CUDA_BASE_VMM_H
#define UCT_CUDA_BASE_VMM_H

#include <ucs/type/status.h>
#include <uct/cuda/base/driver.h>

#include <stddef.h>


/** Value of CU_MEM_HANDLE_TYPE_FABRIC, defined from CUDA 12.3 on. */
#define UCT_CUDA_VMM_FABRIC ((CUmemAllocationHandleType)8)


/** Return the right of a GPU to read and write memory or a pool. */
static inline CUmemAccessDesc uct_cuda_vmm_access(int device)
{
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
        .flags    = CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    };

    return access;
}


/**
 * Allocate and map memory.
 *
 * @param device     GPU of the memory.
 * @param accessor   GPU that will access it: the same, or a peer.
 * @param handle     Type of handle for sharing.
 * @param length_p   Bytes; rounded up to whole granules.
 * @param address_p  Filled.
 * @return UCS_OK; UCS_ERR_UNSUPPORTED: not supported by the driver;
 *         UCS_ERR_NO_MEMORY: any other failure. Not logged.
 */
ucs_status_t uct_cuda_vmm_alloc(int device, int accessor,
                                CUmemAllocationHandleType handle,
                                size_t *length_p, CUdeviceptr *address_p);

/**
 * Let another GPU access memory that uct_cuda_vmm_alloc() returned.
 *
 * @param address  Anywhere in the memory.
 * @return UCS_OK; UCS_ERR_NO_ELEM: memory from elsewhere;
 *         UCS_ERR_UNREACHABLE: the driver refuses. Not logged.
 */
ucs_status_t uct_cuda_vmm_open(CUdeviceptr address, int device);

/**
 * Unmap and free the memory. @param length  As rounded up
 */
void uct_cuda_vmm_free(CUdeviceptr address, size_t length);

#endif
