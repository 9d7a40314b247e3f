/* SPDX-License-Identifier: BSD-3-Clause */
/* GPU memory made with cuMemCreate: of any GPU, without a context there. */
#ifndef UCT_CUDA_BASE_MAPPED_H
#define UCT_CUDA_BASE_MAPPED_H

#include <ucs/type/status.h>
#include <uct/cuda/base/driver.h>

#include <stddef.h>


/** What CU_MEM_HANDLE_TYPE_FABRIC is from CUDA 12.3 on. */
#define UCT_CUDA_MAPPED_FABRIC ((CUmemAllocationHandleType)8)


/**
 * @param device     Whose memory.
 * @param accessor   The GPU that is to read and write it: the same, or a peer.
 * @param handle     What it can be shared by.
 * @param length_p   Bytes; rounded up to whole granules.
 * @param address_p  Filled.
 * @return UCS_OK; UCS_ERR_UNSUPPORTED: the driver has no such memory;
 *         UCS_ERR_NO_MEMORY: all else. Not logged.
 */
ucs_status_t uct_cuda_mapped_alloc(int device, int accessor,
                                   CUmemAllocationHandleType handle,
                                   size_t *length_p, CUdeviceptr *address_p);

/** @param length  As it was rounded up. */
void uct_cuda_mapped_free(CUdeviceptr address, size_t length);

#endif
