/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bounds from cuts. A way is a route from one GPU to another. The ways across a
 * cut carry at most the bandwidth of any set of resources with one resource of
 * each way. A small set is found by repeatedly taking the cheapest resource per
 * way, and dropping superfluous ones. The bound is valid for every set.
 */
#include <uct/cuda/check/collective_bound.h>

#include <uct/cuda/plan/fair_share.h>
#include <ucs/sys/math.h>

#include <float.h>
#include <string.h>


#define MAX_GPUS      UCT_CUDA_MAX_GPUS
#define NUM_RESOURCES UCT_CUDA_PLAN_COLL_NUM_RESOURCES

/* Most ways between the GPUs: for each pair a direct one and one over the
   host */
#define MAX_WAYS (2 * MAX_GPUS * MAX_GPUS)


typedef struct {
    unsigned            num_gpus;
    unsigned            num_ranks; /* the first num_ranks GPUs have data */
    double              capacity[NUM_RESOURCES];
    unsigned            num_ways;
    uct_cuda_plan_share_way_t ways[MAX_WAYS];
    uint8_t             from[MAX_WAYS]; /* indices into `gpus` */
    uint8_t             to[MAX_WAYS];
} net_t;


static void add_way(net_t *net, unsigned from, unsigned to)
{
    if (net->ways[net->num_ways].count > 0) {
        net->from[net->num_ways] = (uint8_t)from;
        net->to[net->num_ways]   = (uint8_t)to;
        ++net->num_ways;
    }
}

static void add_limits(uct_cuda_plan_share_way_t *way,
                       const uct_cuda_topo_link_t *link)
{
    unsigned i;

    for (i = 0; i < UCT_CUDA_TOPO_LINK_LIMITS; ++i) {
        if (link->limits[i] != UCT_CUDA_TOPO_NO_LIMIT) {
            way->resources[way->count++] = link->limits[i];
        }
    }
}

/* Find the way from one GPU to another through memory of its NUMA node. */
static void find_host_way(const uct_cuda_topo_t *topo, int from, int to,
                          uct_cuda_plan_share_way_t *way)
{
    const uct_cuda_end_t host       = uct_cuda_end_host();
    const int numa                  = topo->gpus[from].numa;
    const uct_cuda_topo_link_t up   = uct_cuda_topo_numa_link(
            topo, uct_cuda_end_gpu(from), host, numa);
    const uct_cuda_topo_link_t down = uct_cuda_topo_numa_link(
            topo, host, uct_cuda_end_gpu(to), numa);

    way->count = 0;
    if ((up.bandwidth > 0) && (down.bandwidth > 0)) {
        add_limits(way, &up);
        add_limits(way, &down);
    }
}

static void init(net_t *net, const uct_cuda_topo_t *topo, const int *gpus,
                 unsigned num_gpus, bool use_host)
{
    unsigned from, to;

    net->num_gpus = num_gpus;
    net->num_ways = 0;
    uct_cuda_plan_coll_links_capacity(topo, 0, net->capacity);
    for (from = 0; from < num_gpus; ++from) {
        for (to = 0; to < num_gpus; ++to) {
            if (from == to) {
                continue;
            }

            uct_cuda_plan_coll_links_direct(topo, gpus[from], gpus[to],
                                            &net->ways[net->num_ways]);
            add_way(net, from, to);
            if (use_host) {
                find_host_way(topo, gpus[from], gpus[to],
                              &net->ways[net->num_ways]);
                add_way(net, from, to);
            }
        }
    }
}

static bool has(const uct_cuda_plan_share_way_t *way, int resource)
{
    unsigned i;

    for (i = 0; i < way->count; ++i) {
        if (way->resources[i] == resource) {
            return true;
        }
    }

    return false;
}

/* Return the number of these ways covered by a resource and by no other one
   yet. */
static unsigned gain(const net_t *net, const uint16_t *ways, unsigned count,
                     const unsigned *covers, int resource)
{
    unsigned w, sum = 0;

    for (w = 0; w < count; ++w) {
        sum += (covers[w] == 0) && has(&net->ways[ways[w]], resource);
    }

    return sum;
}

/* Return the resource with the lowest cost per additional way. */
static int cheapest(const net_t *net, const uint16_t *ways, unsigned count,
                    const unsigned *covers)
{
    double best = DBL_MAX;
    int found   = UCT_CUDA_TOPO_NO_LIMIT;
    unsigned w, i;
    double cost;
    int r;

    for (w = 0; w < count; ++w) {
        for (i = 0; (covers[w] == 0) && (i < net->ways[ways[w]].count); ++i) {
            r    = net->ways[ways[w]].resources[i];
            cost = net->capacity[r] / gain(net, ways, count, covers, r);
            if (cost < best) {
                best  = cost;
                found = r;
            }
        }
    }

    return found;
}

/* Return an upper bound of these ways' total bandwidth, bytes/s. */
static double carry(const net_t *net, const uint16_t *ways, unsigned count)
{
    unsigned covers[MAX_WAYS] = {0};
    int chosen[MAX_WAYS];
    unsigned num_chosen = 0;
    double sum          = 0;
    unsigned c, w;
    bool is_needed;
    int r;

    for (r = cheapest(net, ways, count, covers); r != UCT_CUDA_TOPO_NO_LIMIT;
         r = cheapest(net, ways, count, covers)) {
        chosen[num_chosen++] = r;
        for (w = 0; w < count; ++w) {
            covers[w] += has(&net->ways[ways[w]], r);
        }
    }

    for (c = 0; c < num_chosen; ++c) {
        is_needed = false;
        for (w = 0; w < count; ++w) {
            is_needed = is_needed ||
                        ((covers[w] == 1) &&
                         has(&net->ways[ways[w]], chosen[c]));
        }

        if (is_needed) {
            sum += net->capacity[chosen[c]];
            continue;
        }
        for (w = 0; w < count; ++w) {
            covers[w] -= has(&net->ways[ways[w]], chosen[c]);
        }
    }

    return sum;
}

/* Bound the traffic between groups. */
static void try_groups(const net_t *net, const uint8_t *groups,
                       unsigned num_groups, uct_cuda_coll_bound_t *bound)
{
    uint16_t ways[MAX_WAYS];
    unsigned count = 0;
    unsigned w;
    double links, rate;

    for (w = 0; w < net->num_ways; ++w) {
        if (groups[net->from[w]] != groups[net->to[w]]) {
            ways[count++] = (uint16_t)w;
        }
    }

    links = carry(net, ways, count);
    rate  = links / (2 * (num_groups - 1));
    if ((bound->num_groups == 0) || (rate < bound->rate)) {
        bound->rate       = rate;
        bound->links      = links;
        bound->num_groups = num_groups;
        memcpy(bound->groups, groups, net->num_gpus);
    }
}

/* Try all assignments of the GPUs from `next` on to existing or new groups. */
static void group_all(const net_t *net, uint8_t *groups, unsigned next,
                      unsigned num_groups, uct_cuda_coll_bound_t *bound)
{
    const bool is_relay = (next >= net->num_ranks);
    unsigned group;

    if (next == net->num_gpus) {
        if (num_groups > 1) {
            try_groups(net, groups, num_groups, bound);
        }
        return;
    }

    for (group = 0; group + is_relay <= num_groups; ++group) {
        groups[next] = (uint8_t)group;
        group_all(net, groups, next + 1,
                  ucs_max(num_groups, group + 1), bound);
    }
}

/* Add the GPUs not among the given ones. */
static void add_relays(const uct_cuda_topo_t *topo,
                       uct_cuda_coll_bound_t *bound)
{
    const unsigned num_ranks = bound->num_gpus;
    unsigned i;
    int gpu;

    for (gpu = 0; gpu < topo->num_gpus; ++gpu) {
        for (i = 0; (i < num_ranks) && (bound->gpus[i] != gpu); ++i) {
        }
        if (i == num_ranks) {
            bound->gpus[bound->num_gpus++] = gpu;
        }
    }
}

void uct_cuda_coll_bound(const uct_cuda_topo_t *topo, const int *gpus,
                         unsigned num_gpus, bool use_relays, bool use_host,
                         uct_cuda_coll_bound_t *bound)
{
    uint8_t groups[MAX_GPUS] = {0};
    unsigned i, alone;
    net_t net;

    memset(bound, 0, sizeof(*bound));
    bound->num_gpus = num_gpus;
    memcpy(bound->gpus, gpus, num_gpus * sizeof(*gpus));
    if (use_relays && (topo->num_gpus <= UCT_CUDA_COLL_BOUND_ALL)) {
        add_relays(topo, bound);
    }

    init(&net, topo, bound->gpus, bound->num_gpus, use_host);
    net.num_ranks = num_gpus;
    if (num_gpus <= UCT_CUDA_COLL_BOUND_ALL) {
        group_all(&net, groups, 0, 0, bound);
        return;
    }

    /* Groups of one GPU each; then each GPU against all others */
    for (i = 0; i < num_gpus; ++i) {
        groups[i] = (uint8_t)i;
    }
    try_groups(&net, groups, num_gpus, bound);
    for (alone = 0; alone < num_gpus; ++alone) {
        for (i = 0; i < num_gpus; ++i) {
            groups[i] = (i == alone);
        }
        try_groups(&net, groups, 2, bound);
    }
}

void uct_cuda_coll_bound_print_groups(const uct_cuda_coll_bound_t *bound,
                                      FILE *stream)
{
    unsigned group, i;
    const char *between;

    for (group = 0; group < bound->num_groups; ++group) {
        between = "{";
        fprintf(stream, "%s", (group > 0) ? " " : "");
        for (i = 0; i < bound->num_gpus; ++i) {
            if (bound->groups[i] == group) {
                fprintf(stream, "%s%d", between, bound->gpus[i]);
                between = " ";
            }
        }
        fprintf(stream, "}");
    }
}
