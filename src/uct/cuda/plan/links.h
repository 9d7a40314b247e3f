/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What transfers of a collective share: each pair's own link, the topology's
 * limits, each GPU's memory. All of them are numbered alike, as resources.
 */
#ifndef UCT_CUDA_COLL_LINKS_H
#define UCT_CUDA_COLL_LINKS_H

#include <uct/cuda/base/topo.h>
#include <uct/cuda/plan/share.h>

BEGIN_C_DECLS


#define UCT_CUDA_COLL_FIRST_LINK UCT_CUDA_TOPO_MAX_LIMITS
#define UCT_CUDA_COLL_FIRST_MEMORY \
    (UCT_CUDA_COLL_FIRST_LINK + UCT_CUDA_MAX_GPUS * UCT_CUDA_MAX_GPUS)
#define UCT_CUDA_COLL_NUM_RESOURCES \
    (UCT_CUDA_COLL_FIRST_MEMORY + UCT_CUDA_MAX_GPUS)


/** Bytes/s of each resource. @param memory  A GPU's own. */
void uct_cuda_coll_links_capacity(
        const uct_cuda_topo_t *topo, double memory,
        double capacity[UCT_CUDA_COLL_NUM_RESOURCES]);


/** From one GPU's memory to another's that is its peer, or inside one: read
 *  and written. */
void uct_cuda_coll_links_direct(const uct_cuda_topo_t *topo, int from, int to,
                                uct_cuda_share_way_t *way);


END_C_DECLS

#endif
