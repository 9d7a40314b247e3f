/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What flows of bytes get of links that they share: as much as all others on
 * a link, unless something else holds them up (max-min fair).
 */
#ifndef UCT_CUDA_PLAN_SHARE_H
#define UCT_CUDA_PLAN_SHARE_H

#include <uct/cuda/base/topo.h>

BEGIN_C_DECLS


/** Of one flow at most: over the host, or a relay, it has two links' limits. */
#define UCT_CUDA_SHARE_WAY_MAX (2 * UCT_CUDA_TOPO_LINK_LIMITS + 1)


/** Which resources a flow takes, one of them twice if it counts twice. */
typedef struct {
    unsigned count; /**< 0: none that others take */
    int16_t  resources[UCT_CUDA_SHARE_WAY_MAX];
} uct_cuda_share_way_t;


/** What several flows can share. */
typedef struct {
    double   left;     /**< Bytes/s that nobody has yet */
    unsigned users;
    double   rate;     /**< Of each user, as things are */
    bool     is_tight; /**< None of them gets more elsewhere */
} uct_cuda_share_resource_t;


/** Flows that go the same way. */
typedef struct {
    const uct_cuda_share_way_t *way;
    unsigned                   count;
    double                     cap;  /**< Bytes/s of each at most */
    double                     rate; /**< Filled: what each gets */
} uct_cuda_share_flow_t;


/** Let flows use a resource, which then has so many bytes/s for all of them. */
static inline void
uct_cuda_share_add(uct_cuda_share_resource_t *resource, double capacity,
                   unsigned count)
{
    resource->left   = capacity;
    resource->users += count;
}


/**
 * Find the rates of all flows.
 *
 * @param resources  By number. Those that the flows take have their bytes/s,
 *                   and all flows as their users; they have none afterwards.
 * @param flows      In some other order afterwards.
 */
void uct_cuda_share(uct_cuda_share_resource_t *resources,
                    uct_cuda_share_flow_t **flows, unsigned count);


END_C_DECLS

#endif
