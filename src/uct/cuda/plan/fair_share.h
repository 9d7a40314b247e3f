/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Max-min fair rates of flows sharing links: all flows on a link get the same
 * rate unless another limit reduces theirs.
 */
#ifndef UCT_CUDA_PLAN_FAIR_SHARE_H
#define UCT_CUDA_PLAN_FAIR_SHARE_H

#include <uct/cuda/base/topo.h>

BEGIN_C_DECLS


/** Maximum resources of a flow: those of two links, for the host path or a
 *  relay. */
#define UCT_CUDA_PLAN_SHARE_WAY_MAX (2 * UCT_CUDA_TOPO_LINK_LIMITS + 1)


/** Resources used by a flow; listed twice if a flow counts twice. */
typedef struct {
    unsigned count; /**< 0: no shared resource */
    int16_t  resources[UCT_CUDA_PLAN_SHARE_WAY_MAX];
} uct_cuda_plan_share_way_t;


/** Resource shared by several flows. */
typedef struct {
    double   left;     /**< Bytes/s not assigned yet */
    unsigned users;
    double   rate;     /**< Present rate of each user */
    bool     is_tight; /**< It is the tightest limit of all its users */
} uct_cuda_plan_share_resource_t;


/** Flows with the same resources. */
typedef struct {
    const uct_cuda_plan_share_way_t *way;
    unsigned                        count;
    double                          cap;  /**< Maximum bytes/s of each */
    double                          rate; /**< Result: bytes/s of each */
} uct_cuda_plan_share_flow_t;


/**
 * Add @a count flows to the users of a resource, and set its capacity: the
 * bytes/s of all its users together. All calls for a resource pass the same
 * capacity.
 */
static inline void
uct_cuda_plan_share_add(uct_cuda_plan_share_resource_t *resource,
                        double capacity, unsigned count)
{
    resource->left   = capacity;
    resource->users += count;
}


/**
 * Compute the rates of all flows.
 *
 * @param resources  By number. Before the call each flow was added to each of
 *                   its resources by uct_cuda_plan_share_add(); afterwards they
 *                   have no users.
 * @param flows      Reordered by the call. A flow without resources gets its
 *                   cap.
 */
void uct_cuda_plan_share(uct_cuda_plan_share_resource_t *resources,
                         uct_cuda_plan_share_flow_t **flows, unsigned count);


/* Resources shared by the transfers of a collective, in one numbering: limits
 * of the topology, links of pairs, memory of GPUs */
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
