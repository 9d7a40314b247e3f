/* SPDX-License-Identifier: BSD-3-Clause */
/* Detection of nodes whose GPUs share memory over NVLink. */
#ifndef UCT_CUDA_BASE_FABRIC_H
#define UCT_CUDA_BASE_FABRIC_H

#include <stdbool.h>
#include <stdint.h>


/** Location of a GPU among those joined by NVLink. GPUs of the same cluster
 *  and clique can share memory across nodes. */
typedef struct {
    uint8_t  cluster[16]; /**< UUID assigned by the fabric manager */
    uint32_t clique;      /**< Part of the cluster */
    uint32_t reserved;
} uct_cuda_fabric_t;


/**
 * Query driver and NVML about the first visible GPU. Loads NVML (25 ms) only if
 * the driver supports fabric handles.
 *
 * @return true: there is a fabric, and @a fabric is filled.
 */
bool uct_cuda_fabric_find(uct_cuda_fabric_t *fabric);

#endif
