/* SPDX-License-Identifier: BSD-3-Clause */
/* Numbers of resources. */
#include <uct/cuda/plan/links.h>

#include <string.h>


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
