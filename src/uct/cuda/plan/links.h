/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Resources shared by the transfers of a collective, in one numbering: links of
 * pairs, limits of the topology, memory of GPUs.
 */
#ifndef UCT_CUDA_PLAN_LINKS_H
#define UCT_CUDA_PLAN_LINKS_H

#include <uct/cuda/base/topo.h>
#include <uct/cuda/plan/fair_share.h>

BEGIN_C_DECLS


#define UCT_CUDA_PLAN_COLL_FIRST_LINK UCT_CUDA_TOPO_MAX_LIMITS
#define UCT_CUDA_PLAN_COLL_FIRST_MEMORY \
    (UCT_CUDA_PLAN_COLL_FIRST_LINK + UCT_CUDA_MAX_GPUS * UCT_CUDA_MAX_GPUS)
#define UCT_CUDA_PLAN_COLL_NUM_RESOURCES \
    (UCT_CUDA_PLAN_COLL_FIRST_MEMORY + UCT_CUDA_MAX_GPUS)


/**
 * Fill in the bytes/s of each resource; 0: no such link.
 *
 * @param memory  Bytes/s of a GPU's own memory.
 */
void uct_cuda_plan_coll_links_capacity(
        const uct_cuda_topo_t *topo, double memory,
        double capacity[UCT_CUDA_PLAN_COLL_NUM_RESOURCES]);


/** Fill in the resources used between the memories of two GPUs, or inside one.
 *  None are filled in without peer access. */
void uct_cuda_plan_coll_links_direct(const uct_cuda_topo_t *topo, int from,
                                     int to, uct_cuda_plan_share_way_t *way);


END_C_DECLS

#endif
