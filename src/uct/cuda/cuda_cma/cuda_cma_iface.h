/* SPDX-License-Identifier: BSD-3-Clause */
/* Interface of cuda_cma. */
#ifndef UCT_CUDA_CMA_IFACE_H
#define UCT_CUDA_CMA_IFACE_H

#include <uct/cuda/base/iface.h>
#include <uct/cuda/port.h>


typedef struct {
    uct_abi_iface_config_t super;
    unsigned               max_poll;
    double                 bandwidth; /**< Bytes/s, or auto */
} uct_cuda_cma_iface_config_t;


typedef struct {
    uct_cuda_iface_t super;
    uint32_t         number; /**< See uct_cuda_node_iface_number() */
    double           bandwidth;
    uct_cuda_port_t  port;   /**< For copies within this process */
    uint64_t         epoch;  /**< Another behind each flush and fence */
    void             (*submit_gathered)(uct_cuda_queue_t *queue, bool is_all);
} uct_cuda_cma_iface_t;


/** Have the epochs counted; the queue is there already. */
void uct_cuda_cma_iface_count_epochs(uct_cuda_cma_iface_t *iface);

/** As uct_cuda_port_lend(), with the interface's. */
ucs_status_t uct_cuda_cma_iface_lend(uct_cuda_cma_iface_t *iface);


extern const uct_abi_tl_t uct_cuda_cma_tl;

#endif
