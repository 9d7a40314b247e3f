/* SPDX-License-Identifier: BSD-3-Clause */
/* Interface of cuda_cma: its settings, and memory domain data used by it. */
#ifndef UCT_CUDA_CMA_IFACE_H
#define UCT_CUDA_CMA_IFACE_H

#include <uct/abi/abi.h>

#include <stdbool.h>


typedef struct {
    uct_abi_iface_config_t super;
    unsigned               max_poll;
    double                 bandwidth; /**< Bytes/s, or auto */
} uct_cuda_cma_iface_config_t;


/** Memory domain data used by interfaces. */
typedef struct {
    uct_abi_md_t super;
    bool         is_on;
} uct_cuda_cma_md_t;


extern const uct_abi_tl_t uct_cuda_cma_tl;

#endif
