/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Links and shared limits from the wiring. The efficiencies of each kind of
 * link are here; ucx_mp_perf --calibrate replaces them by measurements of a
 * node.
 */
#include <uct/cuda/base/wiring.h>

#include <ucs/sys/math.h>

#include <float.h>
#include <string.h>


/* Fraction of an NVLink's signalling rate available to copies. Up to NVLink 3:
 * 48 of 51.6 GB/s over two V100 links. From NVLink 4: 396 of 478 GB/s over an
 * H200's 18 links, measured. */
#define NVLINK_EFFICIENCY_OLD 0.93
#define NVLINK_EFFICIENCY_NEW 0.83
#define NVLINK_VERSION_NEW    6 /* NVML's number of NVLink 4.0 */

/* Between sockets, one way. POWER9's X-bus: 41 of 64 GB/s, measured with
 * Comm|Scope on AC922. Others: two thirds of three UPI links of 20.8 GB/s, the
 * same fraction. */
#define SOCKET_POWER 41
#define SOCKET_GRACE 100 /* an assumption: never measured with copies */
#define SOCKET       41.6

/* Memory of one socket, GB/s: eight channels of DDR4-2666; LPDDR5X with 384 to
 * 512 by its data sheet. A GPU's NVLink-C2C reaches most of it, so the fraction
 * of DDR5 over PCIe does not apply: four fifths of the smaller value. */
#define MEMORY_POWER 171
#define MEMORY_GRACE (384 * .8)

/* Fractions of host memory bandwidth available to devices; see below */
#define MEMORY_READ  (160. / 307)
#define MEMORY_WRITE (133. / 307)

#define GIGA 1e9


/* One direction of all links at the host */
typedef struct {
    int gpu[UCT_CUDA_MAX_GPUS];             /* its own link */
    int above[UCT_CUDA_WIRING_MAX_SWITCHES];     /* the link above a switch */
} limits_t;


typedef struct {
    const uct_cuda_wiring_t *wiring;
    uct_cuda_topo_t         *topo;
    double                  host[UCT_CUDA_MAX_GPUS];  /* bytes/s */
    uct_cuda_wiring_pcie_t  pcie[UCT_CUDA_MAX_GPUS];  /* trusted value */
    bool                    is_doubtful[UCT_CUDA_MAX_GPUS];
    bool                    has_cpu_links[UCT_CUDA_MAX_GPUS];
    bool                    is_power;
    bool                    is_grace;
    double                  ports[UCT_CUDA_MAX_GPUS]; /* to NVSwitches */
    int                     out[UCT_CUDA_MAX_GPUS];   /* limits of the ports */
    int                     in[UCT_CUDA_MAX_GPUS];
    /* bytes/s of NVLinks [from][to] */
    double                  nvlink[UCT_CUDA_MAX_GPUS]
                                  [UCT_CUDA_MAX_GPUS];
    uint32_t                below[UCT_CUDA_WIRING_MAX_SWITCHES]; /* GPUs */
    limits_t                up;
    limits_t                down;
} build_t;


/* 55 GB/s over 16 lanes measured on H200 (generation 5); 25 and 12 GB/s are the
 * usual values of page-locked copies on A100 and V100; others follow the
 * signalling rate. An unknown link of an unknown GPU counts as a V100's. */
static double pcie_bandwidth(const uct_cuda_wiring_pcie_t *pcie)
{
    static const double x16[] = {0, 3, 6, 12, 25, 55, 110};
    const unsigned last       = sizeof(x16) / sizeof(x16[0]) - 1;
    unsigned generation       = pcie->generation;
    unsigned width            = pcie->width;

    if ((generation == 0) || (width == 0)) {
        generation = 3;
        width      = 16;
    }

    return x16[(generation < last) ? generation : last] * GIGA * width / 16;
}

/* Return the bandwidth of a copy over one NVLink */
static double nvlink_bandwidth(const uct_cuda_wiring_gpu_t *gpu)
{
    /* Signalling rate by NVML's version number, for GPUs that do not report it;
     * from NVIDIA's data sheets of P100, V100, A100, H100, B200 */
    static const double rates[] = {20, 20, 25, 25, 25, 25, 26.5, 50, 50};
    const unsigned last         = sizeof(rates) / sizeof(rates[0]) - 1;
    unsigned version            = gpu->nvlink_version;
    double rate                 = gpu->nvlink_rate;

    if (rate <= 0) {
        rate = rates[(version < last) ? version : last] * GIGA;
    }

    return rate * ((version >= NVLINK_VERSION_NEW) ? NVLINK_EFFICIENCY_NEW :
                                                     NVLINK_EFFICIENCY_OLD);
}

/* Return the total NVLinks of a GPU by capability: 4, 6, 12, 18 links by data
 * sheet */
static double nvlink_guess(int sm)
{
    static const struct {
        int    sm;
        double gbps;
    } models[] = {
        {100, 18 * 50 * NVLINK_EFFICIENCY_NEW},
        {90, 18 * 26.5 * NVLINK_EFFICIENCY_NEW},
        {80, 12 * 25 * NVLINK_EFFICIENCY_OLD},
        {70, 6 * 25 * NVLINK_EFFICIENCY_OLD},
        {0, 4 * 20 * NVLINK_EFFICIENCY_OLD},
    };
    unsigned i = 0;

    while (models[i].sm > sm) {
        ++i;
    }

    return models[i].gbps * GIGA;
}

/* Return the bandwidth of device reads and writes of one NUMA node's memory.
 * Measured beside H200: 160 to 190 and 133 to 153 GB/s with eight channels of
 * DDR5-4800, 307 GB/s; others use the same fraction of the memory of their
 * time: eight channels of DDR4-3200, six of DDR4-2666. */
static void memory_bandwidth(const build_t *d, unsigned generation,
                             double *read_p, double *write_p)
{
    static const double rates[] = {128, 128, 128, 128, 205, 307};
    const unsigned last         = sizeof(rates) / sizeof(rates[0]) - 1;
    double rate;

    if (d->is_grace) {
        *read_p = *write_p = MEMORY_GRACE * GIGA;
        return;
    }

    rate     = d->is_power         ? MEMORY_POWER :
               (generation < last) ? rates[generation] :
                                     rates[last];
    *read_p  = rate * MEMORY_READ * GIGA;
    *write_p = rate * MEMORY_WRITE * GIGA;
}

/* Return whether a GPU is behind this switch */
static bool is_below(const build_t *d, int sw, int gpu)
{
    return (d->below[sw] & (1u << gpu)) != 0;
}

/* Build NVLinks: to each GPU, to switches, to the processor (instead of
 * PCIe) */
static void build_nvlinks(build_t *d)
{
    const uct_cuda_wiring_gpu_t *gpu;
    const uct_cuda_wiring_peer_t *peer;
    double bandwidth, to_cpu, unknown;
    unsigned p;
    int i;

    for (i = 0; i < d->topo->num_gpus; ++i) {
        gpu     = &d->wiring->gpus[i];
        to_cpu  = 0;
        unknown = 0;
        for (p = 0; p < gpu->num_peers; ++p) {
            peer      = &gpu->peers[p];
            bandwidth = peer->count * nvlink_bandwidth(gpu);
            switch (peer->end) {
            case UCT_CUDA_WIRING_GPU:
                d->nvlink[i][peer->gpu] += bandwidth;
                break;
            case UCT_CUDA_WIRING_SWITCH:
                d->ports[i] += bandwidth;
                break;
            case UCT_CUDA_WIRING_CPU:
                to_cpu += bandwidth;
                break;
            case UCT_CUDA_WIRING_UNKNOWN:
                unknown += bandwidth;
                break;
            case UCT_CUDA_WIRING_HIDDEN:
                break;
            }
        }

        /* A virtual machine may hide the far ends of links. A baseboard whose
         * links end at no visible GPU has a switch. */
        d->ports[i] = (d->ports[i] > 0) ? d->ports[i] : unknown;
        if (to_cpu > 0) {
            d->host[i]          = to_cpu;
            d->has_cpu_links[i] = true;
            d->is_doubtful[i]   = false;
            d->is_power         = true; /* no other processor has NVLinks */
        }
        if (gpu->num_c2c > 0) {
            d->host[i]          = gpu->c2c_rate * NVLINK_EFFICIENCY_NEW;
            d->has_cpu_links[i] = true;
            d->is_doubtful[i]   = false;
            d->is_grace         = true;
        }
    }
}

/* Without NVML only the driver reports that NVLink joins two GPUs. Assume the
 * highest speed, shared by all paths: then no doubtful relay is chosen, and no
 * share is too large. */
static void guess_nvlinks(build_t *d)
{
    int i, j;

    for (i = 0; i < d->topo->num_gpus; ++i) {
        for (j = 0; j < d->topo->num_gpus; ++j) {
            if (d->wiring->atomics[i][j]) {
                d->ports[i] = nvlink_guess(d->wiring->gpus[i].sm);
            }
        }
    }
}

/* A direction known to one end only is as fast as the other one; otherwise the
 * narrower end limits a link */
static void match_nvlinks(build_t *d)
{
    double both;
    int i, j;

    for (i = 0; i < d->topo->num_gpus; ++i) {
        for (j = 0; j < i; ++j) {
            both = ucs_min(d->nvlink[i][j], d->nvlink[j][i]);
            if (both <= 0) {
                both = d->nvlink[i][j] + d->nvlink[j][i];
            }
            d->nvlink[i][j] = d->nvlink[j][i] = both;
        }
    }
}

/* Add a limit for each direction */
static void add_limits(build_t *d, uct_cuda_topo_limit_kind_t kind,
                       double bandwidth, int *there_p, int *back_p)
{
    *there_p = uct_cuda_topo_add_limit(d->topo, kind, bandwidth);
    *back_p  = uct_cuda_topo_add_limit(d->topo, kind, bandwidth);
}

/* Return the bytes/s of the link above a switch: as reported; as the fastest
 * link below if not reported; or no limit if the report is below a quarter of
 * that. Bridges of virtual machines report such values; the true one is unknown
 * then. */
static double above_bandwidth(build_t *d, int sw)
{
    const uct_cuda_wiring_pcie_t *raw  = &d->wiring->switches[sw].pcie;
    double fastest                     = 0;
    bool is_slow                       = false;
    int i;

    for (i = 0; i < d->wiring->num_gpus; ++i) {
        if (is_below(d, sw, i)) {
            fastest = ucs_max(fastest, d->host[i]);
            is_slow = is_slow || uct_cuda_wiring_is_slow(raw, &d->pcie[i]);
        }
    }
    for (i = 0; is_slow && (i < d->wiring->num_gpus); ++i) {
        d->is_doubtful[i] = d->is_doubtful[i] || is_below(d, sw, i);
    }

    return is_slow                                           ? DBL_MAX :
           ((raw->generation == 0) || (raw->width == 0)) ? fastest :
                                                       pcie_bandwidth(raw);
}

/* Add limits for GPUs' own links to the host, and for links above switches with
 * several GPUs. Consecutive switches above the same GPUs count as one. */
static void build_pcie(build_t *d)
{
    const uct_cuda_wiring_t *wiring = d->wiring;
    double above[UCT_CUDA_WIRING_MAX_SWITCHES];
    int stands[UCT_CUDA_WIRING_MAX_SWITCHES];
    int i, s, parent;

    for (i = 0; i < wiring->num_gpus; ++i) {
        for (s = wiring->gpus[i].pci_switch;
             (s != UCT_CUDA_WIRING_NONE) && !d->has_cpu_links[i];
             s = wiring->switches[s].parent) {
            d->below[s] |= 1u << i;
        }
    }

    for (s = 0; s < wiring->num_switches; ++s) {
        parent    = wiring->switches[s].parent;
        stands[s] = ((parent != UCT_CUDA_WIRING_NONE) &&
                     (d->below[parent] == d->below[s])) ?
                            stands[parent] :
                            s;
        above[s]         = above_bandwidth(d, s);
        above[stands[s]] = ucs_min(above[stands[s]], above[s]);
        d->up.above[s]   = UCT_CUDA_TOPO_NO_LIMIT;
        d->down.above[s] = UCT_CUDA_TOPO_NO_LIMIT;
    }

    for (i = 0; i < wiring->num_gpus; ++i) {
        for (s = 0; s < wiring->num_switches; ++s) {
            if (d->below[s] == (1u << i)) {
                d->host[i] = ucs_min(d->host[i], above[s]);
            }
        }
    }

    for (i = 0; i < wiring->num_gpus; ++i) {
        add_limits(d, UCT_CUDA_TOPO_LIMIT_HOST, d->host[i], &d->up.gpu[i],
                   &d->down.gpu[i]);
    }

    for (s = 0; s < wiring->num_switches; ++s) {
        if ((stands[s] == s) && ((d->below[s] & (d->below[s] - 1)) != 0) &&
            (above[s] < DBL_MAX)) {
            add_limits(d, UCT_CUDA_TOPO_LIMIT_HOST, above[s], &d->up.above[s],
                       &d->down.above[s]);
        }
    }
}

/* Return the limit between two sockets, shared by all their NUMA nodes */
static int socket_limit(uct_cuda_topo_t *topo, int from, int to,
                        double bandwidth)
{
    int n, m;

    for (n = 0; n < topo->num_numa; ++n) {
        for (m = 0; m < topo->num_numa; ++m) {
            if ((topo->numa[n].socket == topo->numa[from].socket) &&
                (topo->numa[m].socket == topo->numa[to].socket) &&
                (topo->sockets[n][m] != UCT_CUDA_TOPO_NO_LIMIT)) {
                return topo->sockets[n][m];
            }
        }
    }

    return uct_cuda_topo_add_limit(topo, UCT_CUDA_TOPO_LIMIT_SOCKET,
                                   bandwidth);
}

static void build_numa(build_t *d)
{
    const uct_cuda_wiring_t *wiring = d->wiring;
    const double socket             = (d->is_power ? SOCKET_POWER :
                                       d->is_grace ? SOCKET_GRACE :
                                                     SOCKET) *
                                      GIGA;
    uct_cuda_topo_t *topo           = d->topo;
    unsigned generation             = 0;
    double read, write;
    int n, m, i;

    for (i = 0; i < wiring->num_gpus; ++i) {
        generation = ucs_max(generation, d->pcie[i].generation);
    }

    memory_bandwidth(d, generation, &read, &write);
    topo->num_numa = wiring->num_numa;
    for (n = 0; n < topo->num_numa; ++n) {
        topo->numa[n].os_index = wiring->numa[n].os_index;
        topo->numa[n].socket   = wiring->numa[n].socket;
        topo->numa[n].read     = UCT_CUDA_TOPO_NO_LIMIT;
        topo->numa[n].write    = UCT_CUDA_TOPO_NO_LIMIT;
    }

    for (i = 0; i < wiring->num_gpus; ++i) {
        n = wiring->gpus[i].numa;
        if ((n != UCT_CUDA_WIRING_NONE) &&
            (topo->numa[n].read == UCT_CUDA_TOPO_NO_LIMIT)) {
            topo->numa[n].read  = uct_cuda_topo_add_limit(
                    topo, UCT_CUDA_TOPO_LIMIT_MEMORY, read);
            topo->numa[n].write = uct_cuda_topo_add_limit(
                    topo, UCT_CUDA_TOPO_LIMIT_MEMORY, write);
        }
    }

    for (n = 0; n < topo->num_numa; ++n) {
        for (m = 0; m < topo->num_numa; ++m) {
            if (topo->numa[n].socket != topo->numa[m].socket) {
                topo->sockets[n][m] = (int16_t)socket_limit(topo, n, m, socket);
            }
        }
    }
}

/* Build a link between GPUs over PCIe (or the processors), without host
 * memory */
static void build_pcie_link(build_t *d, int from, int to)
{
    const uct_cuda_wiring_gpu_t *a = &d->wiring->gpus[from];
    const uct_cuda_wiring_gpu_t *b = &d->wiring->gpus[to];
    uct_cuda_topo_t *topo          = d->topo;
    uct_cuda_topo_link_t *link     = &topo->links[from][to];
    int s;

    uct_cuda_topo_set_link(topo, from, to,
                           ucs_min(d->host[from], d->host[to]),
                           d->up.gpu[from], d->down.gpu[to]);
    link->is_doubtful = d->is_doubtful[from] || d->is_doubtful[to];
    for (s = 0; s < d->wiring->num_switches; ++s) {
        if (is_below(d, s, from) && !is_below(d, s, to)) {
            uct_cuda_topo_link_add_limit(topo, link, d->up.above[s]);
        } else if (is_below(d, s, to) && !is_below(d, s, from)) {
            uct_cuda_topo_link_add_limit(topo, link, d->down.above[s]);
        }
    }

    if ((a->numa != UCT_CUDA_WIRING_NONE) &&
        (b->numa != UCT_CUDA_WIRING_NONE)) {
        uct_cuda_topo_link_add_limit(topo, link,
                                     topo->sockets[a->numa][b->numa]);
    }
}

static void build_host_links(build_t *d, int gpu)
{
    uct_cuda_topo_t *topo = d->topo;
    int numa              = d->wiring->gpus[gpu].numa;
    int s;

    uct_cuda_topo_set_host(topo, gpu, d->host[gpu], d->up.gpu[gpu],
                           d->down.gpu[gpu]);
    topo->gpus[gpu].to_host.is_doubtful   = d->is_doubtful[gpu];
    topo->gpus[gpu].from_host.is_doubtful = d->is_doubtful[gpu];
    for (s = 0; s < d->wiring->num_switches; ++s) {
        if (is_below(d, s, gpu)) {
            uct_cuda_topo_link_add_limit(topo, &topo->gpus[gpu].to_host,
                                         d->up.above[s]);
            uct_cuda_topo_link_add_limit(topo, &topo->gpus[gpu].from_host,
                                         d->down.above[s]);
        }
    }

    if (numa != UCT_CUDA_WIRING_NONE) {
        uct_cuda_topo_link_add_limit(topo, &topo->gpus[gpu].to_host,
                                     topo->numa[numa].write);
        uct_cuda_topo_link_add_limit(topo, &topo->gpus[gpu].from_host,
                                     topo->numa[numa].read);
    }
}

static void build_ports(build_t *d)
{
    int i;

    for (i = 0; i < d->topo->num_gpus; ++i) {
        d->out[i] = d->in[i] = UCT_CUDA_TOPO_NO_LIMIT;
        if (d->ports[i] > 0) {
            add_limits(d, UCT_CUDA_TOPO_LIMIT_NVLINK, d->ports[i], &d->out[i],
                       &d->in[i]);
        }
    }
}

static void build_links(build_t *d)
{
    uct_cuda_topo_t *topo = d->topo;
    int i, j;

    for (i = 0; i < topo->num_gpus; ++i) {
        build_host_links(d, i);
    }

    for (i = 0; i < topo->num_gpus; ++i) {
        for (j = 0; j < topo->num_gpus; ++j) {
            if (!d->wiring->access[i][j]) {
                continue;
            }

            if (d->nvlink[i][j] > 0) {
                uct_cuda_topo_set_link(topo, i, j, d->nvlink[i][j],
                                       UCT_CUDA_TOPO_NO_LIMIT,
                                       UCT_CUDA_TOPO_NO_LIMIT);
            } else if ((d->ports[i] > 0) && (d->ports[j] > 0)) {
                uct_cuda_topo_set_link(topo, i, j,
                                       ucs_min(d->ports[i], d->ports[j]),
                                       d->out[i], d->in[j]);
            } else {
                build_pcie_link(d, i, j);
            }
        }
    }
}

void uct_cuda_topo_build(const uct_cuda_wiring_t *wiring, uct_cuda_topo_t *topo)
{
    build_t d = {.wiring = wiring, .topo = topo};
    const uct_cuda_wiring_gpu_t *gpu;
    int i;

    uct_cuda_topo_init(topo, wiring->num_gpus);
    topo->num_hidden = wiring->num_hidden;
    for (i = 0; i < wiring->num_gpus; ++i) {
        gpu = &wiring->gpus[i];
        memcpy(topo->gpus[i].uuid, gpu->uuid, sizeof(gpu->uuid));
        topo->gpus[i].pci_domain   = gpu->bus_id.domain;
        topo->gpus[i].pci_bus      = gpu->bus_id.bus;
        topo->gpus[i].pci_device   = gpu->bus_id.device;
        topo->gpus[i].pci_function = gpu->bus_id.function;
        topo->gpus[i].numa         = (gpu->numa != UCT_CUDA_WIRING_NONE) ?
                                             wiring->numa[gpu->numa].os_index :
                                             0;
        d.is_doubtful[i]           = uct_cuda_wiring_believe(gpu, &d.pcie[i]);
        d.host[i]                  = pcie_bandwidth(&d.pcie[i]);
    }

    if (wiring->has_nvml) {
        build_nvlinks(&d);
        match_nvlinks(&d);
    } else {
        guess_nvlinks(&d);
    }

    /* sockets come last: they are left out if there are too many limits */
    build_ports(&d);
    build_pcie(&d);
    build_numa(&d);
    build_links(&d);
}
