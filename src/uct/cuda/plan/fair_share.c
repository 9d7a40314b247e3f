/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Iterative solution: flows limited by their own cap, or by a resource that is
 * the tightest for all its users, have their rate; the others share the rest in
 * the next round.
 */
#include <uct/cuda/plan/fair_share.h>

#include <ucs/sys/math.h>

#include <string.h>


typedef uct_cuda_plan_share_way_t      way_t;
typedef uct_cuda_plan_share_resource_t resource_t;
typedef uct_cuda_plan_share_flow_t     flow_t;


/* Return the rate allowed by a flow's cap and its tightest resource */
static double tightest(const resource_t *resources, const flow_t *flow)
{
    double rate = flow->cap;
    unsigned i;

    for (i = 0; i < flow->way->count; ++i) {
        rate = ucs_min(rate, resources[flow->way->resources[i]].rate);
    }

    return rate;
}

/* Set each flow's rate by its tightest limit, and mark the resources that are
 * the tightest limit of all their users */
static void
find_tight(resource_t *resources, flow_t *const *flows, unsigned count)
{
    resource_t *resource;
    const way_t *way;
    unsigned f, i;

    for (f = 0; f < count; ++f) {
        way = flows[f]->way;
        for (i = 0; i < way->count; ++i) {
            resource           = &resources[way->resources[i]];
            resource->rate     = ucs_max(resource->left / resource->users, 1);
            resource->is_tight = true;
        }
    }

    for (f = 0; f < count; ++f) {
        way            = flows[f]->way;
        flows[f]->rate = tightest(resources, flows[f]);
        for (i = 0; i < way->count; ++i) {
            resource            = &resources[way->resources[i]];
            resource->is_tight &= (resource->rate <= flows[f]->rate);
        }
    }
}

/* Return whether a flow's rate is final */
static bool is_settled(const resource_t *resources, const flow_t *flow)
{
    bool is_settled = (flow->rate >= flow->cap);
    unsigned i;

    for (i = 0; i < flow->way->count; ++i) {
        is_settled |= resources[flow->way->resources[i]].is_tight;
    }

    return is_settled;
}

void uct_cuda_plan_share(resource_t *resources, flow_t **flows, unsigned count)
{
    resource_t *resource;
    flow_t *flow;
    unsigned f, i, left;

    for (; count > 0; count = left) {
        find_tight(resources, flows, count);
        left = 0;
        for (f = 0; f < count; ++f) {
            flow = flows[f];
            if (!is_settled(resources, flow)) {
                flows[left++] = flow;
                continue;
            }

            for (i = 0; i < flow->way->count; ++i) {
                resource         = &resources[flow->way->resources[i]];
                resource->users -= flow->count;
                resource->left  -= flow->rate * flow->count;
            }
        }
    }
}


/* ------------------------------------------- resources of a collective */

static int link_of(int from, int to)
{
    return UCT_CUDA_PLAN_COLL_FIRST_LINK + from * UCT_CUDA_MAX_GPUS + to;
}

static void add(uct_cuda_plan_share_way_t *way, int resource)
{
    if (resource != UCT_CUDA_TOPO_NO_LIMIT) {
        way->resources[way->count++] = (int16_t)resource;
    }
}

void uct_cuda_plan_coll_links_capacity(
        const uct_cuda_topo_t *topo, double memory,
        double capacity[UCT_CUDA_PLAN_COLL_NUM_RESOURCES])
{
    int from, to;

    memcpy(capacity, topo->limits, sizeof(topo->limits));
    for (from = 0; from < UCT_CUDA_MAX_GPUS; ++from) {
        capacity[UCT_CUDA_PLAN_COLL_FIRST_MEMORY + from] = memory;
        for (to = 0; to < UCT_CUDA_MAX_GPUS; ++to) {
            capacity[link_of(from, to)] = topo->links[from][to].bandwidth;
        }
    }
}

void uct_cuda_plan_coll_links_direct(const uct_cuda_topo_t *topo, int from,
                                     int to, uct_cuda_plan_share_way_t *way)
{
    unsigned i;

    way->count = 0;
    if (from == to) {
        add(way, UCT_CUDA_PLAN_COLL_FIRST_MEMORY + from);
        add(way, UCT_CUDA_PLAN_COLL_FIRST_MEMORY + from);
    } else if (topo->links[from][to].bandwidth > 0) {
        add(way, link_of(from, to));
        for (i = 0; i < UCT_CUDA_TOPO_LINK_LIMITS; ++i) {
            add(way, topo->links[from][to].limits[i]);
        }
    }
}
