/* SPDX-License-Identifier: BSD-3-Clause */
/* Build a topology: the node's links and limits. */
#include <uct/cuda/base/topo.h>

#include <string.h>


/* Seconds from submitting a tiny copy until a poll detects its end: 8.0 us
 * between GPUs, 6.6 to 8.2 us with the host; measured on H200 */
#define LATENCY_GPU  8e-6
#define LATENCY_HOST 7e-6



void uct_cuda_topo_init(uct_cuda_topo_t *topo, int num_gpus)
{
    uct_cuda_topo_link_t none = {0};
    int i, j;

    for (i = 0; i < UCT_CUDA_TOPO_LINK_LIMITS; ++i) {
        none.limits[i] = UCT_CUDA_TOPO_NO_LIMIT;
    }

    memset(topo, 0, sizeof(*topo));
    memset(topo->sockets, 0xff, sizeof(topo->sockets)); /* NO_LIMIT */
    topo->num_gpus = num_gpus;
    for (i = 0; i < UCT_CUDA_MAX_GPUS; ++i) {
        topo->gpus[i].to_host   = none;
        topo->gpus[i].from_host = none;
        for (j = 0; j < UCT_CUDA_MAX_GPUS; ++j) {
            topo->links[i][j] = none;
        }
    }
}

int uct_cuda_topo_add_limit(uct_cuda_topo_t *topo,
                            uct_cuda_topo_limit_kind_t kind, double bandwidth)
{
    if (topo->num_limits == UCT_CUDA_TOPO_MAX_LIMITS) {
        return UCT_CUDA_TOPO_NO_LIMIT;
    }

    topo->limits[topo->num_limits] = bandwidth;
    topo->kinds[topo->num_limits]  = (uint8_t)kind;
    return topo->num_limits++;
}

void uct_cuda_topo_link_add_limit(const uct_cuda_topo_t *topo,
                                  uct_cuda_topo_link_t *link, int limit)
{
    int i;

    if (limit == UCT_CUDA_TOPO_NO_LIMIT) {
        return;
    }

    if (topo->limits[limit] < link->bandwidth) {
        link->bandwidth = topo->limits[limit];
    }

    for (i = 0; i < UCT_CUDA_TOPO_LINK_LIMITS; ++i) {
        if (link->limits[i] == limit) {
            return;
        } else if (link->limits[i] == UCT_CUDA_TOPO_NO_LIMIT) {
            link->limits[i] = (int16_t)limit;
            return;
        }
    }
}

void uct_cuda_topo_set_link(uct_cuda_topo_t *topo, int from, int to,
                            double bandwidth, int limit_from, int limit_to)
{
    uct_cuda_topo_link_t *link = &topo->links[from][to];

    link->bandwidth = bandwidth;
    link->latency   = LATENCY_GPU;
    link->limits[0] = limit_from;
    link->limits[1] = limit_to;
}

void uct_cuda_topo_set_host(uct_cuda_topo_t *topo, int gpu, double bandwidth,
                            int limit_to_host, int limit_from_host)
{
    uct_cuda_topo_link_t *to   = &topo->gpus[gpu].to_host;
    uct_cuda_topo_link_t *from = &topo->gpus[gpu].from_host;

    to->bandwidth   = from->bandwidth = bandwidth;
    to->latency     = from->latency   = LATENCY_HOST;
    to->limits[0]   = limit_to_host;
    from->limits[0] = limit_from_host;
}

static int find_numa(const uct_cuda_topo_t *topo, int os_index)
{
    int i;

    for (i = 0; i < topo->num_numa; ++i) {
        if (topo->numa[i].os_index == os_index) {
            return i;
        }
    }

    return -1;
}

const uct_cuda_topo_link_t *
uct_cuda_topo_link(const uct_cuda_topo_t *topo, uct_cuda_end_t from,
                   uct_cuda_end_t to)
{
    if (uct_cuda_end_is_host(from)) {
        return &topo->gpus[uct_cuda_end_device(to)].from_host;
    } else if (uct_cuda_end_is_host(to)) {
        return &topo->gpus[uct_cuda_end_device(from)].to_host;
    }

    return &topo->links[uct_cuda_end_device(from)][uct_cuda_end_device(to)];
}

/* Return a GPU's link to or from memory of any NUMA node */
static uct_cuda_topo_link_t host_link(const uct_cuda_topo_t *topo, int gpu,
                                      int numa, bool to_host)
{
    uct_cuda_topo_link_t link = to_host ? topo->gpus[gpu].to_host :
                                          topo->gpus[gpu].from_host;
    int own                   = find_numa(topo, topo->gpus[gpu].numa);
    int far                   = find_numa(topo, numa);
    int memory, i;

    if ((own < 0) || (far < 0) || (own == far) || !(link.bandwidth > 0)) {
        return link;
    }

    /* replace the memory of its own node by the other node's */
    memory = to_host ? topo->numa[own].write : topo->numa[own].read;
    for (i = 0; i < UCT_CUDA_TOPO_LINK_LIMITS; ++i) {
        if ((memory != UCT_CUDA_TOPO_NO_LIMIT) && (link.limits[i] == memory)) {
            link.limits[i] = to_host ? topo->numa[far].write :
                                       topo->numa[far].read;
        }
    }

    uct_cuda_topo_link_add_limit(topo, &link, to_host ?
                                                      topo->sockets[own][far] :
                                                      topo->sockets[far][own]);
    return link;
}

uct_cuda_topo_link_t
uct_cuda_topo_numa_link(const uct_cuda_topo_t *topo, uct_cuda_end_t from,
                        uct_cuda_end_t to, int numa)
{
    if (uct_cuda_end_is_host(from)) {
        return host_link(topo, uct_cuda_end_device(to), numa, false);
    } else if (uct_cuda_end_is_host(to)) {
        return host_link(topo, uct_cuda_end_device(from), numa, true);
    }

    return *uct_cuda_topo_link(topo, from, to);
}
