/* SPDX-License-Identifier: BSD-3-Clause */
/* Interface of cuda_cma. */
#ifndef UCT_CUDA_CMA_IFACE_H
#define UCT_CUDA_CMA_IFACE_H

#include <uct/cuda/base/iface.h>


typedef struct {
    uct_abi_iface_config_t super;
    unsigned               max_poll;
    double                 bandwidth; /**< Bytes/s, or auto */
} uct_cuda_cma_iface_config_t;


typedef struct {
    uct_cuda_iface_t super;
    uint32_t         number; /**< See uct_cuda_ipc_iface_number() */
    double           bandwidth;
} uct_cuda_cma_iface_t;


extern const uct_abi_tl_t uct_cuda_cma_tl;

#endif
