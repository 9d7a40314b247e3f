/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Build a node from its description: GPUs, links, and the route from each
 * place to each other.
 *
 * Names of links, for <cuemu> elements and messages:
 *   nvlink.A>B        NVLinks from GPU A to GPU B together
 *   nvlink.A>cpu      NVLinks from GPU A to its CPU (POWER); nvlink.cpu>A back
 *   c2c.A>cpu         NVLink-C2C of GPU A to its CPU (Grace); c2c.cpu>A back
 *   nvport.A.out|in   all links of GPU A to and from the NVSwitches
 *   pcie.A.up|down    GPU A's own PCIe link
 *   bridge.BUSID.up|down  the link above a PCIe switch
 *   dram.N.rd|wr      reads and writes of NUMA node N's memory by devices
 *   socket.N>M        between NUMA nodes
 *   memcpy.N          copies by a CPU thread of NUMA node N
 *   local.A           copies inside GPU A
 */

#include "cuemu_core.h"
#include "hardware.h"
#include "node_xml.h"

#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CUEMU_NO_LINK     (-1)
#define CUEMU_GBPS        1e9
#define CUEMU_MIN_GBPS    1e-3
#define CUEMU_MAX_GBPS    1e6

#define CUEMU_CLASS_NVS   0x068000 /* PCI class of an NVSwitch */
#define CUEMU_CLASS_CPU   0x068001 /* PCI class of POWER's NVLink bridge */

/* State while the node is built: indices into node->links, CUEMU_NO_LINK if
   there is no link. */
typedef struct {
    cuemu_xml_t   *xml;
    cuemu_node_t  *node;
    const cuemu_host_model_t *host;
    int           gpu_xml[CUEMU_MAX_GPUS];          /* index into xml->gpus */
    int           nvlink[CUEMU_MAX_GPUS][CUEMU_MAX_GPUS];
    int           nvlink_to_cpu[CUEMU_MAX_GPUS];
    int           nvlink_from_cpu[CUEMU_MAX_GPUS];
    int           port_out[CUEMU_MAX_GPUS];
    int           port_in[CUEMU_MAX_GPUS];
    int           local[CUEMU_MAX_GPUS];
    int           staged[CUEMU_MAX_GPUS];
    int           pci_up[CUEMU_XML_MAX_PCI];
    int           pci_down[CUEMU_XML_MAX_PCI];
    int           dram_read[CUEMU_MAX_NUMA];
    int           dram_write[CUEMU_MAX_NUMA];
    int           copier[CUEMU_MAX_NUMA];
    int           socket[CUEMU_MAX_NUMA][CUEMU_MAX_NUMA];
    int           full;                             /* more than CUEMU_MAX_LINKS
                                                       links needed */
} cuemu_build_t;


static int __attribute__((format(printf, 3, 4)))
cuemu_build_link(cuemu_build_t *b, double gbps, const char *format, ...)
{
    cuemu_link_t *link = &b->node->links[b->node->num_links];
    va_list ap;

    if (b->node->num_links == CUEMU_MAX_LINKS) {
        b->full = 1;
        return CUEMU_NO_LINK;
    }

    va_start(ap, format);
    vsnprintf(link->name, sizeof(link->name), format, ap);
    va_end(ap);
    link->capacity = gbps * CUEMU_GBPS;
    return b->node->num_links++;
}


/* ------------------------------------------------------------------ GPUs */

/* Make a GPU's UUID: a mark that tells it from a real one's, the node's name,
   and a hash of the GPU's bus id. */
static void cuemu_gpu_uuid(const char *node, const char *busid, uint8_t *uuid)
{
    uint64_t hash = 0xcbf29ce484222325ul; /* FNV-1a */
    int i;

    memset(uuid, 0, 16);
    memcpy(uuid, CUEMU_UUID_MARK, 3);
    memcpy(uuid + 3, node, strnlen(node, 9));
    for (i = 0; busid[i] != '\0'; ++i) {
        hash = (hash ^ (uint8_t)busid[i]) * 0x100000001b3ul;
    }
    for (i = 12; i < 16; ++i) {
        hash    = (hash ^ (uint8_t)i) * 0x100000001b3ul;
        uuid[i] = (uint8_t)(hash >> 32);
    }
}

void cuemu_gpu_uuid_text(const cuemu_gpu_t *gpu, char *text)
{
    int i;

    text += sprintf(text, "GPU-");
    for (i = 0; i < 16; ++i) {
        text += sprintf(text, "%s%02x",
                        ((i == 4) || (i == 6) || (i == 8) || (i == 10)) ? "-" :
                                                                          "",
                        gpu->uuid[i]);
    }
}

/* Set the PCIe generation and width reported by NVML: those of the device, not
   of the bridges above it. Values below a quarter of the GPU generation's rate
   are those of a virtual machine's port, and replaced. */
static void cuemu_gpu_pcie(cuemu_gpu_t *gpu, const cuemu_xml_pci_t *pci,
                           const cuemu_gpu_model_t *model)
{
    double gbps, most;
    int gen, most_gen;

    gpu->pcie_width = (pci->width > 0) ? pci->width : 16;
    gbps            = cuemu_pcie_lane_gbps(pci->gtps, &gen) * gpu->pcie_width;
    most            = cuemu_pcie_lane_gbps(model->pcie_gtps, &most_gen) * 16;
    gpu->pcie_gen   = gen;
    if (gbps < most / 4) {
        gpu->pcie_gen   = most_gen;
        gpu->pcie_width = 16;
    }
}

static void cuemu_build_gpu(cuemu_build_t *b, int index)
{
    const cuemu_xml_gpu_t *xgpu    = &b->xml->gpus[b->gpu_xml[index]];
    const cuemu_xml_pci_t *pci     = &b->xml->pci[xgpu->pci];
    const cuemu_gpu_model_t *model = cuemu_gpu_model(xgpu->sm);
    cuemu_gpu_t *gpu               = &b->node->gpus[index];
    int bridge, i;

    snprintf(gpu->name, sizeof(gpu->name), "%s", model->name);
    snprintf(gpu->busid, sizeof(gpu->busid), "%s", pci->busid);
    cuemu_gpu_uuid(b->node->name, gpu->busid, gpu->uuid);
    gpu->sm             = xgpu->sm;
    gpu->sm_count       = model->sm_count;
    gpu->memory_bytes   = model->memory_mib << 20;
    gpu->numa           = pci->cpu;
    gpu->nvlink_version = (xgpu->num_nvlinks > 0) ? model->nvlink_version : 0;
    gpu->nvlink_mbps    = (xgpu->num_nvlinks > 0) ? model->nvlink_mbps : 0;
    gpu->c2c_count      = xgpu->c2c_count;
    gpu->c2c_mbps       = xgpu->c2c_mbps;
    cuemu_gpu_pcie(gpu, pci, model);

    /* from the root: id of the CPU (from 0), then of the bridges (after the
       CPUs) */
    gpu->pci_depth = 1;
    for (bridge = pci->parent; bridge >= 0;
         bridge = b->xml->pci[bridge].parent) {
        ++gpu->pci_depth;
    }
    gpu->pci_path[0] = pci->cpu;
    for (bridge = pci->parent, i = gpu->pci_depth - 1; bridge >= 0;
         bridge = b->xml->pci[bridge].parent, --i) {
        gpu->pci_path[i] = CUEMU_MAX_NUMA + bridge;
    }
}

static int cuemu_build_find_gpu(const cuemu_build_t *b, const char *target)
{
    char busid[CUEMU_BUSID_SIZE];
    int i;

    if (!cuemu_xml_busid(target, busid)) {
        return -1;
    }
    for (i = 0; i < b->node->num_gpus; ++i) {
        if (strcmp(b->node->gpus[i].busid, busid) == 0) {
            return i;
        }
    }
    return -1;
}

static void cuemu_build_nvlink_peers(cuemu_gpu_t *gpu, int count, int type,
                                     int peer, const char *busid)
{
    cuemu_nvlink_t *link;

    for (; count > 0; --count) {
        link            = &gpu->nvlinks[gpu->num_nvlinks++];
        link->peer_type = type;
        link->peer_gpu  = peer;
        snprintf(link->peer_busid, sizeof(link->peer_busid), "%s", busid);
    }
}

static cuemu_status_t cuemu_build_nvlinks(cuemu_build_t *b, int index)
{
    const cuemu_xml_gpu_t *xgpu = &b->xml->gpus[b->gpu_xml[index]];
    cuemu_gpu_t *gpu            = &b->node->gpus[index];
    double gbps                 = cuemu_gpu_model(gpu->sm)->nvlink_gbps;
    int count_gpu[CUEMU_MAX_GPUS] = {0};
    int count_switch              = 0;
    int count_cpu                 = 0;
    const cuemu_xml_nvlink_t *link;
    char busid[CUEMU_BUSID_SIZE];
    int i, peer;

    for (i = 0; i < xgpu->num_nvlinks; ++i) {
        link = &xgpu->nvlinks[i];
        if (gbps <= 0) {
            return cuemu_xml_error(b->xml, link->line,
                                   "a GPU with sm=\"%d\" has no NVLink",
                                   gpu->sm);
        }
        if (gpu->num_nvlinks + link->count > CUEMU_MAX_NVLINKS) {
            return cuemu_xml_error(b->xml, link->line,
                                   "GPU %d has more than %d NVLinks", index,
                                   CUEMU_MAX_NVLINKS);
        }

        peer = cuemu_build_find_gpu(b, link->target);
        if (link->tclass == CUEMU_CLASS_NVS) {
            count_switch += link->count;
            cuemu_build_nvlink_peers(gpu, link->count, CUEMU_PEER_SWITCH, -1,
                                     cuemu_xml_busid(link->target, busid) ?
                                     busid : "0000:00:00.0");
        } else if (link->tclass == CUEMU_CLASS_CPU) {
            count_cpu += link->count;
            cuemu_build_nvlink_peers(gpu, link->count, CUEMU_PEER_CPU, -1,
                                     cuemu_xml_busid(link->target, busid) ?
                                     busid : "0000:00:00.0");
        } else if (peer == index) {
            continue; /* see cuemu_build_nvlink_back() */
        } else if (peer < 0) {
            return cuemu_xml_error(b->xml, link->line,
                                   "nvlink target=\"%s\" is no other GPU of "
                                   "this node", link->target);
        } else {
            count_gpu[peer] += link->count;
            cuemu_build_nvlink_peers(gpu, link->count, CUEMU_PEER_GPU, peer,
                                     b->node->gpus[peer].busid);
        }
    }

    for (i = 0; i < b->node->num_gpus; ++i) {
        if (count_gpu[i] > 0) {
            b->nvlink[index][i] = cuemu_build_link(b, count_gpu[i] * gbps,
                                                   "nvlink.%d>%d", index, i);
        }
    }
    if (count_switch > 0) {
        b->node->has_nvswitch = 1;
        b->port_out[index]    = cuemu_build_link(b, count_switch * gbps,
                                                 "nvport.%d.out", index);
        b->port_in[index]     = cuemu_build_link(b, count_switch * gbps,
                                                 "nvport.%d.in", index);
    }
    if (count_cpu > 0) {
        b->nvlink_to_cpu[index]   = cuemu_build_link(b, count_cpu * gbps,
                                                     "nvlink.%d>cpu", index);
        b->nvlink_from_cpu[index] = cuemu_build_link(b, count_cpu * gbps,
                                                     "nvlink.cpu>%d", index);
    } else if (gpu->c2c_count > 0) {
        gbps = cuemu_c2c_gbps(gpu->c2c_mbps) * gpu->c2c_count;
        b->nvlink_to_cpu[index]   = cuemu_build_link(b, gbps, "c2c.%d>cpu",
                                                     index);
        b->nvlink_from_cpu[index] = cuemu_build_link(b, gbps, "c2c.cpu>%d",
                                                     index);
    }
    return CUEMU_OK;
}

/* Add to the NVLinks that NVML reports of GPU `to` those back to `from`, if the
   file has them with a wrong target: an <nvlink> of `to` that names `to`
   itself. If it has no such <nvlink>, nothing is added; copies use the link
   anyway. */
static void cuemu_build_nvlink_back(cuemu_build_t *b, int from, int to)
{
    const cuemu_xml_gpu_t *xgpu = &b->xml->gpus[b->gpu_xml[to]];
    const cuemu_gpu_t *gpu      = &b->node->gpus[from];
    cuemu_gpu_t *back           = &b->node->gpus[to];
    int i, k;

    for (i = 0; (i < xgpu->num_nvlinks) &&
                (cuemu_build_find_gpu(b, xgpu->nvlinks[i].target) != to);
         ++i)
        ;
    for (k = 0; (k < gpu->num_nvlinks) && (i < xgpu->num_nvlinks) &&
                (back->num_nvlinks < CUEMU_MAX_NVLINKS);
         ++k) {
        if (gpu->nvlinks[k].peer_gpu == to) {
            cuemu_build_nvlink_peers(
                    back, 1, CUEMU_PEER_GPU, from,
                    b->xml->pci[b->xml->gpus[b->gpu_xml[from]].pci].busid);
        }
    }
}

static cuemu_status_t cuemu_build_gpus(cuemu_build_t *b)
{
    cuemu_status_t status;
    int dev, i;

    /* CUDA's order is that of "dev", not of the file; numbers are missing if
       NCCL used only some of the GPUs */
    for (dev = 0; dev < CUEMU_MAX_GPUS; ++dev) {
        for (i = 0; i < b->xml->num_gpus; ++i) {
            if (b->xml->gpus[i].dev == dev) {
                b->gpu_xml[b->node->num_gpus++] = i;
            }
        }
    }

    for (i = 0; i < b->node->num_gpus; ++i) {
        cuemu_build_gpu(b, i);
    }
    for (i = 0; i < b->node->num_gpus; ++i) {
        status = cuemu_build_nvlinks(b, i);
        if (status != CUEMU_OK) {
            return status;
        }
    }

    for (i = 0; i < b->node->num_gpus; ++i) {
        /* an <nvlink> of one direction is enough for a link of both */
        for (dev = 0; dev < b->node->num_gpus; ++dev) {
            if ((b->nvlink[i][dev] != CUEMU_NO_LINK) &&
                (b->nvlink[dev][i] == CUEMU_NO_LINK)) {
                b->nvlink[dev][i] = cuemu_build_link(
                        b, b->node->links[b->nvlink[i][dev]].capacity /
                        CUEMU_GBPS, "nvlink.%d>%d", dev, i);
                cuemu_build_nvlink_back(b, i, dev);
            }
        }
        b->local[i] = cuemu_build_link(
                b, cuemu_gpu_model(b->node->gpus[i].sm)->local_gbps,
                "local.%d", i);
    }
    return CUEMU_OK;
}


/* ----------------------------------------------------------- host and PCI */

/* Return the rate of a GPU's own PCIe link in GB/s: the file's, or the GPU
   generation's if a virtual machine hides it. */
static double cuemu_build_gpu_gbps(const cuemu_build_t *b, int gpu)
{
    int pci = b->xml->gpus[b->gpu_xml[gpu]].pci;
    double gbps;
    int gen;

    gbps = cuemu_pcie_lane_gbps(b->xml->pci[pci].gtps, &gen);
    if (gbps <= 0) {
        gbps = cuemu_pcie_lane_gbps(
                cuemu_gpu_model(b->node->gpus[gpu].sm)->pcie_gtps, &gen);
    }
    return gbps * ((b->xml->pci[pci].width > 0) ? b->xml->pci[pci].width : 16);
}

/* Return the sum of the rates of all GPUs' own links below a bridge, in GB/s,
   and the highest of them in *fastest_p. */
static double cuemu_build_below(const cuemu_build_t *b, int bridge,
                                double *fastest_p)
{
    double gbps, sum = 0;
    int gpu, pci;

    *fastest_p = 0;
    for (gpu = 0; gpu < b->node->num_gpus; ++gpu) {
        for (pci = b->xml->gpus[b->gpu_xml[gpu]].pci; pci >= 0;
             pci = b->xml->pci[pci].parent) {
            if (pci == bridge) {
                gbps       = cuemu_build_gpu_gbps(b, gpu);
                sum       += gbps;
                *fastest_p = (gbps > *fastest_p) ? gbps : *fastest_p;
                break;
            }
        }
    }
    return sum;
}

/*
 * Return the rate of the link above a bridge, in GB/s. Virtual machines show
 * bridges above passed-through GPUs that are no real links and report 2.5 GT/s,
 * x1 (QEMU; NVIDIA/nccl-tests issue 256 has such a file). No real switch has
 * less than 1/32 of a GPU's rate, so such a bridge gets the sum of the GPUs'
 * rates and limits nothing.
 */
static double cuemu_build_bridge_gbps(const cuemu_build_t *b, int bridge)
{
    const cuemu_xml_pci_t *pci = &b->xml->pci[bridge];
    double gbps, sum, fastest;
    int gen;

    gbps = cuemu_pcie_lane_gbps(pci->gtps, &gen) *
           ((pci->width > 0) ? pci->width : 16);
    sum  = cuemu_build_below(b, bridge, &fastest);
    return (gbps < fastest / 32) ? sum : gbps;
}

static void cuemu_build_pci(cuemu_build_t *b)
{
    const cuemu_xml_pci_t *pci;
    double gbps;
    int i, gpu;

    for (i = 0; i < b->xml->num_pci; ++i) {
        pci = &b->xml->pci[i];
        b->pci_up[i] = b->pci_down[i] = CUEMU_NO_LINK;
        for (gpu = 0; (gpu < b->node->num_gpus) &&
                      (b->xml->gpus[b->gpu_xml[gpu]].pci != i);
             ++gpu)
            ;

        if (gpu < b->node->num_gpus) {
            gbps           = cuemu_build_gpu_gbps(b, gpu);
            b->pci_up[i]   = cuemu_build_link(b, gbps, "pcie.%d.up", gpu);
            b->pci_down[i] = cuemu_build_link(b, gbps, "pcie.%d.down", gpu);
            continue;
        }

        gbps = cuemu_build_bridge_gbps(b, i);
        if (gbps > 0) {
            b->pci_up[i]   = cuemu_build_link(b, gbps, "bridge.%s.up",
                                              pci->busid);
            b->pci_down[i] = cuemu_build_link(b, gbps, "bridge.%s.down",
                                              pci->busid);
        }
    }
}

static void cuemu_build_host(cuemu_build_t *b)
{
    const cuemu_host_model_t *host = b->host;
    int n, m;

    for (n = 0; n < b->node->num_numa; ++n) {
        b->dram_read[n]  = cuemu_build_link(b, host->dram_read_gbps,
                                            "dram.%d.rd", n);
        b->dram_write[n] = cuemu_build_link(b, host->dram_write_gbps,
                                            "dram.%d.wr", n);
        b->copier[n]     = cuemu_build_link(b, host->memcpy_gbps, "memcpy.%d",
                                            n);
        for (m = 0; m < b->node->num_numa; ++m) {
            if (m != n) {
                b->socket[n][m] = cuemu_build_link(b, host->socket_gbps,
                                                   "socket.%d>%d", n, m);
            }
        }
    }
}


/* ---------------------------------------------------------------- routes */

static void cuemu_route_add(cuemu_build_t *b, cuemu_route_t *route, int link)
{
    int i;

    if (link == CUEMU_NO_LINK) {
        return;
    }
    for (i = 0; i < route->num_links; ++i) {
        if (route->links[i] == link) {
            return;
        }
    }
    if (route->num_links == CUEMU_MAX_HOPS) {
        b->full = 1;
        return;
    }
    route->links[route->num_links++] = (int16_t)link;
}

static void cuemu_route_times(cuemu_route_t *route, cuemu_route_kind_t kind)
{
    const cuemu_copy_model_t *model = &cuemu_copy_models[kind];

    route->kind     = kind;
    route->launch   = cuemu_us(model->launch_us);
    route->setup    = cuemu_us(model->setup_us);
    route->complete = cuemu_us(model->complete_us);
}

/* Add the links from a GPU to its CPU (`up`), or back: its NVLinks to the CPU
   if it has any, otherwise the PCIe links up to the bridge `stop`, without the
   link above that one (-1: up to the CPU). */
static void cuemu_route_gpu_cpu(cuemu_build_t *b, cuemu_route_t *route, int gpu,
                                int up, int stop)
{
    const int *nvlinks = up ? b->nvlink_to_cpu : b->nvlink_from_cpu;
    const int *links   = up ? b->pci_up : b->pci_down;
    int pci            = b->xml->gpus[b->gpu_xml[gpu]].pci;

    if (nvlinks[gpu] != CUEMU_NO_LINK) {
        cuemu_route_add(b, route, nvlinks[gpu]);
        return;
    }
    for (; (pci >= 0) && (pci != stop); pci = b->xml->pci[pci].parent) {
        cuemu_route_add(b, route, links[pci]);
    }
}

/* Return the lowest bridge above both GPUs; -1: there is none below the CPU. */
static int cuemu_build_bridge(const cuemu_build_t *b, int gpu1, int gpu2)
{
    const cuemu_gpu_t *g1 = &b->node->gpus[gpu1];
    const cuemu_gpu_t *g2 = &b->node->gpus[gpu2];
    int i;

    for (i = 0; (i < g1->pci_depth) && (i < g2->pci_depth) &&
                (g1->pci_path[i] == g2->pci_path[i]);
         ++i)
        ;
    return (i > 1) ? (g1->pci_path[i - 1] - CUEMU_MAX_NUMA) : -1;
}

/* Make a route one without peer access: through host memory, as the driver
   copies then. Adds the links of the source's host memory, and one shared by
   all staged copies of the source, with its PCIe rate. */
static void cuemu_route_stage(cuemu_build_t *b, int src, int dst)
{
    cuemu_route_t *route = &b->node->routes[src][dst];
    int numa             = b->node->gpus[src].numa;

    if (b->staged[src] == CUEMU_NO_LINK) {
        b->staged[src] = cuemu_build_link(b, cuemu_build_gpu_gbps(b, src),
                                          "staged.%d", src);
    }
    route->p2p = 0;
    cuemu_route_times(route, CUEMU_ROUTE_STAGED);
    cuemu_route_add(b, route, b->dram_write[numa]);
    cuemu_route_add(b, route, b->dram_read[numa]);
    cuemu_route_add(b, route, b->staged[src]);
}

static void cuemu_build_gpu_to_gpu(cuemu_build_t *b, int src, int dst)
{
    cuemu_route_t *route = &b->node->routes[src][dst];
    int src_numa         = b->node->gpus[src].numa;
    int dst_numa         = b->node->gpus[dst].numa;
    int bridge;

    cuemu_route_times(route, CUEMU_ROUTE_PEER);
    route->p2p = 1;

    if (src == dst) {
        cuemu_route_times(route, CUEMU_ROUTE_LOCAL);
        cuemu_route_add(b, route, b->local[src]);
    } else if (b->nvlink[src][dst] != CUEMU_NO_LINK) {
        cuemu_route_add(b, route, b->nvlink[src][dst]);
    } else if ((b->port_out[src] != CUEMU_NO_LINK) &&
               (b->port_in[dst] != CUEMU_NO_LINK)) {
        cuemu_route_add(b, route, b->port_out[src]);
        cuemu_route_add(b, route, b->port_in[dst]);
    } else {
        bridge = cuemu_build_bridge(b, src, dst);
        cuemu_route_gpu_cpu(b, route, src, 1, bridge);
        cuemu_route_gpu_cpu(b, route, dst, 0, bridge);
        if (src_numa != dst_numa) {
            cuemu_route_add(b, route, b->socket[src_numa][dst_numa]);
            route->p2p = (b->node->gpus[src].sm >= b->host->remote_p2p_sm);
        }
        if (!route->p2p) {
            cuemu_route_stage(b, src, dst);
        }
    }
}

static void cuemu_build_gpu_host(cuemu_build_t *b, int gpu, int numa,
                                 int pageable)
{
    cuemu_place_t place = pageable ? CUEMU_PLACE_PAGEABLE :
                                     CUEMU_PLACE_NUMA(numa);
    int gpu_numa        = b->node->gpus[gpu].numa;
    cuemu_route_t *up   = &b->node->routes[gpu][place];
    cuemu_route_t *down = &b->node->routes[place][gpu];

    cuemu_route_times(up, pageable ? CUEMU_ROUTE_PAGEABLE_D2H :
                                     CUEMU_ROUTE_D2H);
    cuemu_route_times(down, pageable ? CUEMU_ROUTE_PAGEABLE_H2D :
                                       CUEMU_ROUTE_H2D);
    cuemu_route_gpu_cpu(b, up, gpu, 1, -1);
    cuemu_route_gpu_cpu(b, down, gpu, 0, -1);
    if (numa != gpu_numa) {
        cuemu_route_add(b, up, b->socket[gpu_numa][numa]);
        cuemu_route_add(b, down, b->socket[numa][gpu_numa]);
    }
    cuemu_route_add(b, up, b->dram_write[numa]);
    cuemu_route_add(b, down, b->dram_read[numa]);
    if (pageable) {
        cuemu_route_add(b, up, b->copier[numa]);
        cuemu_route_add(b, down, b->copier[numa]);
    }
}

static void cuemu_build_routes(cuemu_build_t *b)
{
    cuemu_node_t *node = b->node;
    cuemu_place_t place, other;
    int i, n;

    for (i = 0; i < node->num_gpus; ++i) {
        for (n = 0; n < node->num_gpus; ++n) {
            cuemu_build_gpu_to_gpu(b, i, n);
        }
        for (n = 0; n < node->num_numa; ++n) {
            cuemu_build_gpu_host(b, i, n, 0);
        }
        cuemu_build_gpu_host(b, i, node->gpus[i].numa, 1);
    }

    /* inside the host: a CPU thread at the source copies */
    for (i = 0; i <= node->num_numa; ++i) {
        for (n = 0; n <= node->num_numa; ++n) {
            place = (i < node->num_numa) ? CUEMU_PLACE_NUMA(i) :
                                           CUEMU_PLACE_PAGEABLE;
            other = (n < node->num_numa) ? CUEMU_PLACE_NUMA(n) :
                                           CUEMU_PLACE_PAGEABLE;
            cuemu_route_times(&node->routes[place][other], CUEMU_ROUTE_HOST);
            cuemu_route_add(b, &node->routes[place][other],
                            b->copier[(i < node->num_numa) ? i : 0]);
        }
    }
}

static int cuemu_link_is_own(const cuemu_build_t *b, int gpu, int link)
{
    int pci = b->xml->gpus[b->gpu_xml[gpu]].pci;
    int i;

    for (i = 0; i < b->node->num_gpus; ++i) {
        if ((link == b->nvlink[gpu][i]) || (link == b->nvlink[i][gpu])) {
            return 1;
        }
    }

    return (link == b->local[gpu]) || (link == b->port_out[gpu]) ||
           (link == b->port_in[gpu]) || (link == b->nvlink_to_cpu[gpu]) ||
           (link == b->nvlink_from_cpu[gpu]) ||
           ((pci >= 0) && ((link == b->pci_up[pci]) ||
                           (link == b->pci_down[pci])));
}

/* Sort the GPUs' own links to the front. A copy inside the host has none: all
   its links count as own. */
static void cuemu_build_own_links(const cuemu_build_t *b, cuemu_route_t *route)
{
    int16_t link;
    int i, gpu;

    for (i = 0; i < route->num_links; ++i) {
        for (gpu = 0; gpu < b->node->num_gpus; ++gpu) {
            if (cuemu_link_is_own(b, gpu, route->links[i])) {
                link = route->links[i];
                memmove(&route->links[route->num_own_links + 1],
                        &route->links[route->num_own_links],
                        (i - route->num_own_links) * sizeof(link));
                route->links[route->num_own_links++] = link;
                break;
            }
        }
    }

    if (route->num_own_links == 0) {
        route->num_own_links = route->num_links;
    }
}

static double cuemu_route_rate(const cuemu_node_t *node,
                               const cuemu_route_t *route, int num_links)
{
    double rate = 0;
    int i;

    for (i = 0; i < num_links; ++i) {
        if ((i == 0) || (node->links[route->links[i]].capacity < rate)) {
            rate = node->links[route->links[i]].capacity;
        }
    }

    return rate;
}

static void cuemu_build_rates(cuemu_node_t *node)
{
    cuemu_route_t *route;
    int i;

    for (i = 0; i < CUEMU_NUM_PLACES * CUEMU_NUM_PLACES; ++i) {
        route            = &node->routes[i / CUEMU_NUM_PLACES]
                                        [i % CUEMU_NUM_PLACES];
        route->solo_rate = cuemu_route_rate(node, route, route->num_links);
        route->own_rate  = cuemu_route_rate(node, route,
                                            route->num_own_links);
    }
}


/* -------------------------------------------------------------- <cuemu> */

static cuemu_status_t cuemu_set_link(cuemu_build_t *b,
                                     const cuemu_xml_setting_t *s)
{
    int found = 0;
    int i;

    for (i = 0; i < b->node->num_links; ++i) {
        if (fnmatch(s->name, b->node->links[i].name, 0) == 0) {
            b->node->links[i].capacity = s->gbps * CUEMU_GBPS;
            found                      = 1;
        }
    }
    return found ? CUEMU_OK :
           cuemu_xml_error(b->xml, s->line, "there is no link \"%s\"", s->name);
}

static cuemu_status_t cuemu_set_shared(cuemu_build_t *b,
                                       const cuemu_xml_setting_t *s)
{
    uint8_t member[CUEMU_MAX_LINKS] = {0};
    char patterns[CUEMU_XML_TEXT];
    cuemu_route_t *route;
    char *pattern, *save;
    int shared, found, i, k, hit;

    if (s->members[0] == '\0') {
        return cuemu_xml_error(b->xml, s->line, "\"%s\" has no members=",
                               s->name);
    }

    snprintf(patterns, sizeof(patterns), "%s", s->members);
    for (pattern = strtok_r(patterns, " ", &save); pattern != NULL;
         pattern = strtok_r(NULL, " ", &save)) {
        found = 0;
        for (i = 0; i < b->node->num_links; ++i) {
            if (fnmatch(pattern, b->node->links[i].name, 0) == 0) {
                member[i] = 1;
                found     = 1;
            }
        }
        if (!found) {
            return cuemu_xml_error(b->xml, s->line, "there is no link \"%s\"",
                                   pattern);
        }
    }

    shared = cuemu_build_link(b, s->gbps, "%s", s->name);
    for (i = 0; i < CUEMU_NUM_PLACES * CUEMU_NUM_PLACES; ++i) {
        route = &b->node->routes[i / CUEMU_NUM_PLACES][i % CUEMU_NUM_PLACES];
        for (hit = 0, k = 0; k < route->num_links; ++k) {
            hit |= member[route->links[k]];
        }
        if (hit) {
            cuemu_route_add(b, route, shared);
        }
    }
    return CUEMU_OK;
}

static cuemu_status_t cuemu_set_cost(cuemu_build_t *b,
                                     const cuemu_xml_setting_t *s)
{
    cuemu_cost_t *cost = &b->node->cost;
    cuemu_time_t time  = cuemu_us(s->us);
    const struct {
        const char   *name;
        cuemu_time_t *time;
    } others[] = {
        {"graph-instantiate-node", &cost->graph_instantiate_node},
        {"graph-launch-node", &cost->graph_launch_node},
        {"graph-first-launch", &cost->graph_first_launch},
        {"cross-stream", &cost->cross_stream},
        {"shortest-kernel", &cost->kernel},
        {"kernel-start", &cost->kernel_start},
        {"pull", &cost->pull}
    };
    size_t i;

    if ((s->us < 0) || (s->us > 1e6)) {
        return cuemu_xml_error(b->xml, s->line,
                               "us= is missing or above a second");
    }
    for (i = 0; i < CUEMU_CALL_LAST; ++i) {
        if (strcmp(s->name, cuemu_call_models[i].name) == 0) {
            cost->call[i] = time;
            return CUEMU_OK;
        }
    }
    for (i = 0; i < sizeof(others) / sizeof(others[0]); ++i) {
        if (strcmp(s->name, others[i].name) == 0) {
            *others[i].time = time;
            return CUEMU_OK;
        }
    }
    return cuemu_xml_error(b->xml, s->line, "there is no cost \"%s\"", s->name);
}

/* Return non-zero if `name`, a pattern, matches the route's kind or one of its
   links. */
static int cuemu_route_matches(const cuemu_build_t *b,
                               const cuemu_route_t *route, const char *name)
{
    int k;

    if (route->num_links == 0) {
        return 0;
    }
    for (k = 0; k < route->num_links; ++k) {
        if (fnmatch(name, b->node->links[route->links[k]].name, 0) == 0) {
            return 1;
        }
    }
    return fnmatch(name, cuemu_copy_models[route->kind].name, 0) == 0;
}

/* Set a time that is given: `us` is not negative. */
static void cuemu_set_time(double us, cuemu_time_t *time)
{
    if (us >= 0) {
        *time = cuemu_us(us);
    }
}

/* Set the fixed times of routes whose links, e.g. "nvlink.*", or kind, e.g.
   "pageable-d2h", match the element's name. Times not given stay. PARSE if no
   route matches. */
static cuemu_status_t cuemu_set_copy(cuemu_build_t *b,
                                     const cuemu_xml_setting_t *s)
{
    int found = 0;
    cuemu_route_t *route;
    int i;

    if ((s->launch_us > 1e6) || (s->setup_us > 1e6) ||
        (s->complete_us > 1e6) || (s->small_us > 1e6)) {
        return cuemu_xml_error(b->xml, s->line, "a time above a second");
    }
    for (i = 0; i < CUEMU_NUM_PLACES * CUEMU_NUM_PLACES; ++i) {
        route = &b->node->routes[i / CUEMU_NUM_PLACES][i % CUEMU_NUM_PLACES];
        if (!cuemu_route_matches(b, route, s->name)) {
            continue;
        }

        found = 1;
        cuemu_set_time(s->launch_us, &route->launch);
        cuemu_set_time(s->setup_us, &route->setup);
        cuemu_set_time(s->complete_us, &route->complete);
        cuemu_set_time(s->small_us, &route->small);
    }
    return found ? CUEMU_OK :
           cuemu_xml_error(b->xml, s->line, "there is no link and no kind of "
                           "copy \"%s\"", s->name);
}

/* Refuse peer access over PCIe, both ways */
static void cuemu_gpu_refuse_peers(cuemu_build_t *b, int gpu)
{
    int i;

    for (i = 0; i < b->node->num_gpus; ++i) {
        if ((i != gpu) && (b->nvlink[gpu][i] == CUEMU_NO_LINK) &&
            (b->port_out[gpu] == CUEMU_NO_LINK)) {
            cuemu_route_stage(b, gpu, i);
            cuemu_route_stage(b, i, gpu);
        }
    }
}

static cuemu_status_t cuemu_set_gpu(cuemu_build_t *b,
                                    const cuemu_xml_setting_t *s)
{
    int found = 0;
    char index[16];
    int i;

    for (i = 0; i < b->node->num_gpus; ++i) {
        snprintf(index, sizeof(index), "%d", i);
        if (fnmatch(s->name, index, 0) != 0) {
            continue;
        }

        found = 1;
        if (s->model[0] != '\0') {
            snprintf(b->node->gpus[i].name, sizeof(b->node->gpus[i].name), "%s",
                     s->model);
        }
        if (s->memory_mib >= 0) {
            if ((s->memory_mib < 16) || (s->memory_mib > 1e8)) {
                return cuemu_xml_error(b->xml, s->line, "memory_mib= is not "
                                       "within 16 to 10^8");
            }
            b->node->gpus[i].memory_bytes = (uint64_t)s->memory_mib << 20;
        }
        if (s->sm_count >= 1) {
            b->node->gpus[i].sm_count = (int)s->sm_count;
        }
        if (s->peers == 0) {
            cuemu_gpu_refuse_peers(b, i);
        }
    }
    return found ? CUEMU_OK :
           cuemu_xml_error(b->xml, s->line, "there is no GPU \"%s\"", s->name);
}

static cuemu_status_t cuemu_build_setting(cuemu_build_t *b,
                                          const cuemu_xml_setting_t *s)
{
    int is_rate = !strcmp(s->set, "link") || !strcmp(s->set, "shared");

    if (s->name[0] == '\0') {
        return cuemu_xml_error(b->xml, s->line,
                               "<cuemu set=\"%s\"> without a name", s->set);
    }
    if (is_rate && !((s->gbps >= CUEMU_MIN_GBPS) &&
                     (s->gbps <= CUEMU_MAX_GBPS))) {
        return cuemu_xml_error(b->xml, s->line, "gbps= of \"%s\" is missing or "
                               "not within 0.001 to 10^6", s->name);
    }

    if (!strcmp(s->set, "link")) {
        return cuemu_set_link(b, s);
    } else if (!strcmp(s->set, "shared")) {
        return cuemu_set_shared(b, s);
    } else if (!strcmp(s->set, "cost")) {
        return cuemu_set_cost(b, s);
    } else if (!strcmp(s->set, "copy")) {
        return cuemu_set_copy(b, s);
    } else if (!strcmp(s->set, "gpu")) {
        return cuemu_set_gpu(b, s);
    }
    return cuemu_xml_error(b->xml, s->line, "<cuemu set=\"%s\">: known are "
                           "link, shared, cost, copy and gpu", s->set);
}


/* ------------------------------------------------------------------- API */

static void cuemu_build_init(cuemu_build_t *b, cuemu_xml_t *xml,
                             cuemu_node_t *node)
{
    const char *base = strrchr(xml->path, '/');

    memset(b, 0xff, sizeof(*b)); /* all links CUEMU_NO_LINK */
    b->xml         = xml;
    b->node        = node;
    b->host        = cuemu_host_model(xml->cpus[0].arch);
    b->full        = 0;
    node->num_numa = xml->num_cpus;

    base = (base == NULL) ? xml->path : (base + 1);
    snprintf(node->name, sizeof(node->name), "%.*s",
             (int)strcspn(base, "."), base);
}

cuemu_status_t cuemu_node_build(cuemu_xml_t *xml, cuemu_node_t *node_p)
{
    cuemu_build_t *b = malloc(sizeof(*b));
    cuemu_status_t status;
    int i;

    if (b == NULL) {
        snprintf(xml->errbuf, CUEMU_ERRBUF_SIZE, "%s: out of memory",
                 xml->path);
        return CUEMU_ERR_IO;
    }

    memset(node_p, 0, sizeof(*node_p));
    cuemu_build_init(b, xml, node_p);
    status = cuemu_build_gpus(b);
    if (status != CUEMU_OK) {
        goto out;
    }

    cuemu_cost_defaults(&node_p->cost, node_p->gpus[0].sm);

    cuemu_build_pci(b);
    cuemu_build_host(b);
    cuemu_build_routes(b);
    for (i = 0; (i < xml->num_settings) && (status == CUEMU_OK); ++i) {
        status = cuemu_build_setting(b, &xml->settings[i]);
    }
    for (i = 0; i < CUEMU_NUM_PLACES * CUEMU_NUM_PLACES; ++i) {
        cuemu_build_own_links(b, &node_p->routes[i / CUEMU_NUM_PLACES]
                                                [i % CUEMU_NUM_PLACES]);
    }
    cuemu_build_rates(node_p);
    if ((status == CUEMU_OK) && b->full) {
        status = cuemu_xml_error(xml, 1, "more than %d links in the node or %d "
                                 "on a way", CUEMU_MAX_LINKS, CUEMU_MAX_HOPS);
    }

out:
    free(b);
    return status;
}

cuemu_status_t cuemu_node_load(const char *path, cuemu_node_t *node_p,
                               char *errbuf)
{
    cuemu_xml_t *xml = calloc(1, sizeof(*xml));
    cuemu_status_t status;

    errbuf[0] = '\0';
    if (xml == NULL) {
        snprintf(errbuf, CUEMU_ERRBUF_SIZE, "%s: out of memory", path);
        return CUEMU_ERR_IO;
    }

    xml->path   = path;
    xml->errbuf = errbuf;
    status      = cuemu_xml_read(xml);
    if (status == CUEMU_OK) {
        status = cuemu_node_build(xml, node_p);
    }
    free(xml);
    return status;
}

const cuemu_route_t *cuemu_node_route(const cuemu_node_t *node,
                                      cuemu_place_t src, cuemu_place_t dst)
{
    if ((src < 0) || (src >= CUEMU_NUM_PLACES) || (dst < 0) ||
        (dst >= CUEMU_NUM_PLACES) || (node->routes[src][dst].num_links == 0)) {
        return NULL;
    }
    return &node->routes[src][dst];
}

int cuemu_node_pci_distance(const cuemu_node_t *node, int gpu1, int gpu2)
{
    const cuemu_gpu_t *g1 = &node->gpus[gpu1];
    const cuemu_gpu_t *g2 = &node->gpus[gpu2];
    int common;

    if (gpu1 == gpu2) {
        return 0;
    }

    for (common = 0; (common < g1->pci_depth) && (common < g2->pci_depth) &&
                     (g1->pci_path[common] == g2->pci_path[common]);
         ++common)
        ;
    if (common == 0) {
        return 4;
    } else if (common == 1) {
        return 3;
    }
    return ((common == g1->pci_depth) && (common == g2->pci_depth)) ? 1 : 2;
}

cuemu_time_t cuemu_route_setup(const cuemu_route_t *route, uint64_t bytes)
{
    double part = (double)((bytes < CUEMU_SMALL_COPY) ? bytes :
                                                        CUEMU_SMALL_COPY);

    return route->setup +
           (cuemu_time_t)((double)route->small * part / CUEMU_SMALL_COPY);
}

cuemu_time_t cuemu_route_copy_time(const cuemu_route_t *route, uint64_t bytes)
{
    return route->launch + cuemu_route_setup(route, bytes) + route->complete +
           (cuemu_time_t)((double)bytes / route->solo_rate *
                          (double)CUEMU_PS_PER_SEC + 0.5);
}

const char *cuemu_status_string(cuemu_status_t status)
{
    switch (status) {
    case CUEMU_OK:
        return "success";
    case CUEMU_ERR_IO:
        return "file cannot be read";
    case CUEMU_ERR_PARSE:
        return "not a node description";
    case CUEMU_ERR_INVALID:
        return "invalid argument";
    case CUEMU_ERR_FULL:
        return "too many operations at once";
    case CUEMU_ERR_NO_ROUTE:
        return "no way from one place to the other";
    }
    return "unknown status";
}
