/* SPDX-License-Identifier: BSD-3-Clause */
/* Is this node one of several whose GPUs share memory over NVLink? */
#ifndef UCT_CUDA_BASE_FABRIC_H
#define UCT_CUDA_BASE_FABRIC_H

#include <stdbool.h>
#include <stdint.h>


/** Where a GPU is among those that NVLink joins. Memory can be shared with GPUs
 *  of the same cluster and clique, on whichever node. */
typedef struct {
    uint8_t  cluster[16]; /**< UUID that the fabric manager has given */
    uint32_t clique;      /**< Part of the cluster */
    uint32_t reserved;
} uct_cuda_fabric_t;


/**
 * What the driver and NVML say of the first visible GPU. Loads NVML (25 ms)
 * only where the driver has fabric handles.
 *
 * @return Whether there is such a fabric; @a fabric is filled if so.
 */
bool uct_cuda_fabric_find(uct_cuda_fabric_t *fabric);

#endif
