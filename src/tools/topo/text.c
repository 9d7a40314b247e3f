/* SPDX-License-Identifier: BSD-3-Clause */
/* Print the node as a matrix like that of nvidia-smi topo -m. */
#include "tool.h"

#include <string.h>


#define GIGA  1e9
#define MILLI 1e3


/* Count a GPU's NVLinks to one kind of end, or to one GPU. */
static unsigned count_nvlinks(const uct_cuda_wiring_gpu_t *gpu,
                              uct_cuda_wiring_end_t end, int peer)
{
    unsigned count = 0;
    unsigned i;

    for (i = 0; i < gpu->num_peers; ++i) {
        if ((gpu->peers[i].end == end) && (gpu->peers[i].gpu == peer)) {
            count += gpu->peers[i].count;
        }
    }

    return count;
}

static unsigned count_switched(const uct_cuda_wiring_gpu_t *gpu)
{
    unsigned count = count_nvlinks(gpu, UCT_CUDA_WIRING_SWITCH,
                                   UCT_CUDA_WIRING_NONE);

    return (count > 0) ? count :
                         count_nvlinks(gpu, UCT_CUDA_WIRING_UNKNOWN,
                                       UCT_CUDA_WIRING_NONE);
}

/* Return the number of PCIe switches between two GPUs, 0 if they share none. */
static int count_pci_switches(const uct_cuda_wiring_t *wiring, int a, int b)
{
    int count_a, count_b, s, t;

    count_a = 1;
    for (s = wiring->gpus[a].pci_switch; s != UCT_CUDA_WIRING_NONE;
         s = wiring->switches[s].parent, ++count_a) {
        count_b = 0;
        for (t = wiring->gpus[b].pci_switch; t != UCT_CUDA_WIRING_NONE;
             t = wiring->switches[t].parent, ++count_b) {
            if (s == t) {
                return count_a + count_b;
            }
        }
    }

    return 0;
}

const char *ucx_mp_topo_pair_str(const uct_cuda_wiring_t *wiring, int from,
                                 int to, char *buffer, size_t size)
{
    const uct_cuda_wiring_gpu_t *a = &wiring->gpus[from];
    const uct_cuda_wiring_gpu_t *b = &wiring->gpus[to];
    unsigned count;
    int switches;

    count = count_nvlinks(a, UCT_CUDA_WIRING_GPU, to);
    if ((count == 0) && (count_switched(b) > 0)) {
        count = count_switched(a);
    }

    if (count > 0) {
        snprintf(buffer, size, "NV%u", count);
        return buffer;
    } else if (!wiring->has_nvml && wiring->atomics[from][to]) {
        snprintf(buffer, size, "NV?");
        return buffer;
    }

    switches = count_pci_switches(wiring, from, to);
    snprintf(buffer, size, "%s",
             (switches == 1)      ? "PIX" :
             (switches > 1)       ? "PXB" :
             (a->numa == b->numa) ? "PHB" :
                                    "SYS");
    return buffer;
}

const char *ucx_mp_topo_host_str(const uct_cuda_wiring_t *wiring, int gpu,
                                 char *buffer, size_t size)
{
    const uct_cuda_wiring_gpu_t *g = &wiring->gpus[gpu];
    unsigned count = count_nvlinks(g, UCT_CUDA_WIRING_CPU,
                                   UCT_CUDA_WIRING_NONE);

    if (count > 0) {
        snprintf(buffer, size, "NV%u", count);
    } else if (g->num_c2c > 0) {
        snprintf(buffer, size, "C2C%u", g->num_c2c);
    } else if (g->pcie.generation > 0) {
        snprintf(buffer, size, "PCIe %u x%u", g->pcie.generation,
                 g->pcie.width);
    } else {
        snprintf(buffer, size, "PCIe ?");
    }

    return buffer;
}

/* Write the GPUs behind a switch, "gpu0, gpu1". Returns their number. */
static int behind(const uct_cuda_wiring_t *wiring, int index, char *buffer,
                  size_t size)
{
    size_t used = 0;
    int count   = 0;
    int i, s;

    buffer[0] = '\0';
    for (i = 0; i < wiring->num_gpus; ++i) {
        for (s = wiring->gpus[i].pci_switch; s != UCT_CUDA_WIRING_NONE;
             s = wiring->switches[s].parent) {
            if ((s == index) && (used < size)) {
                used += (size_t)snprintf(buffer + used, size - used, "%sgpu%d",
                                         (count++ > 0) ? ", " : "", i);
            }
        }
    }

    return count;
}

static void put_shared(const ucx_mp_topo_node_t *node, FILE *stream)
{
    const uct_cuda_wiring_t *wiring = &node->wiring;
    const uct_cuda_topo_t *topo     = &node->topo;
    char gpus[UCT_CUDA_MAX_GPUS * 8];
    char text[32];
    int i, n, m;

    for (i = 0; i < topo->num_gpus; ++i) {
        if (count_switched(&wiring->gpus[i]) > 0) {
            fprintf(stream, "NVSwitch: all that leaves a GPU, or enters it, "
                            "shares its links\n");
            break;
        }
    }

    for (i = 0; i < wiring->num_switches; ++i) {
        if (behind(wiring, i, gpus, sizeof(gpus)) > 1) {
            fprintf(stream, "PCIe switch %s, PCIe %u x%u above it: %s\n",
                    uct_cuda_bus_id_str(&wiring->switches[i].bus_id, text,
                                        sizeof(text)),
                    wiring->switches[i].pcie.generation,
                    wiring->switches[i].pcie.width, gpus);
        }
    }

    for (n = 0; n < topo->num_numa; ++n) {
        if (topo->numa[n].read != UCT_CUDA_TOPO_NO_LIMIT) {
            fprintf(stream, "memory of NUMA node %d: %.0f GB/s read, %.0f "
                            "GB/s written by GPUs\n",
                    topo->numa[n].os_index,
                    topo->limits[topo->numa[n].read] / GIGA,
                    topo->limits[topo->numa[n].write] / GIGA);
        }
    }

    for (n = 0; n < topo->num_numa; ++n) {
        for (m = 0; m < n; ++m) {
            if (topo->sockets[n][m] != UCT_CUDA_TOPO_NO_LIMIT) {
                fprintf(stream, "between NUMA nodes %d and %d: %.0f GB/s each "
                                "way\n",
                        topo->numa[m].os_index, topo->numa[n].os_index,
                        topo->limits[topo->sockets[n][m]] / GIGA);
            }
        }
    }

    if (wiring->num_hidden > 0) {
        fprintf(stream, "%d more GPU%s in this node that this process may not "
                        "use\n",
                wiring->num_hidden, (wiring->num_hidden > 1) ? "s" : "");
    }
}

static void put_legend(const ucx_mp_topo_node_t *node, FILE *stream)
{
    static const struct {
        const char *name;
        const char *text;
    } legend[] = {
        {"NV", "NVn  n NVLinks"},
        {"C2C", "C2Cn n links of NVLink-C2C"},
        {"PIX", "PIX  through one PCIe switch"},
        {"PXB", "PXB  through several PCIe switches"},
        {"PHB", "PHB  through the processor"},
        {"SYS", "SYS  from one NUMA node to another"},
        {"-", "-    no peers"},
    };
    bool is_used[sizeof(legend) / sizeof(legend[0])] = {false};
    char text[16];
    size_t k;
    int i, j;

    for (i = 0; i < node->topo.num_gpus; ++i) {
        for (k = 0; k < sizeof(legend) / sizeof(legend[0]); ++k) {
            is_used[k] = is_used[k] || ((node->wiring.gpus[i].num_c2c > 0) &&
                                        (legend[k].name[0] == 'C'));
        }
        for (j = 0; j < node->topo.num_gpus; ++j) {
            if (i == j) {
                continue;
            }
            ucx_mp_topo_pair_str(&node->wiring, i, j, text, sizeof(text));
            for (k = 0; k < sizeof(legend) / sizeof(legend[0]); ++k) {
                if (!(node->topo.links[i][j].bandwidth > 0)) {
                    is_used[k] = is_used[k] || (legend[k].name[0] == '-');
                } else if (strncmp(text, legend[k].name,
                                   strlen(legend[k].name)) == 0) {
                    is_used[k] = true;
                }
            }
        }
    }

    for (k = 0; k < sizeof(legend) / sizeof(legend[0]); ++k) {
        if (is_used[k]) {
            fprintf(stream, "  %s\n", legend[k].text);
        }
    }
}

/* Print implausible reports about a GPU's host link. */
static void put_doubt(const ucx_mp_topo_node_t *node, int gpu, FILE *stream)
{
    const uct_cuda_wiring_t *wiring        = &node->wiring;
    const uct_cuda_wiring_gpu_t *gpu_facts = &wiring->gpus[gpu];
    uct_cuda_wiring_pcie_t pcie;
    int s;

    if (!node->topo.gpus[gpu].to_host.is_doubtful) {
        return;
    }

    if (uct_cuda_wiring_believe(gpu_facts, &pcie)) {
        fprintf(stream, "gpu%d: taken for PCIe %u x%u, though sysfs or NVML "
                        "says %u x%u",
                gpu, pcie.generation, pcie.width, gpu_facts->pcie.generation,
                gpu_facts->pcie.width);
    } else {
        for (s = gpu_facts->pci_switch;
             (wiring->switches[s].parent != UCT_CUDA_WIRING_NONE) &&
             !uct_cuda_wiring_is_slow(&wiring->switches[s].pcie, &pcie);
             s = wiring->switches[s].parent)
            ;
        fprintf(stream, "gpu%d: taken for PCIe %u x%u, though a bridge above "
                        "it says %u x%u",
                gpu, pcie.generation, pcie.width,
                wiring->switches[s].pcie.generation,
                wiring->switches[s].pcie.width);
    }
    fprintf(stream, " (usual in virtual machines): only its own messages use "
                    "its link to the host; UCX_CUDA_IPC_MULTIPATH=y lifts "
                    "this limit\n");
}

void ucx_mp_topo_text(const ucx_mp_topo_node_t *node, FILE *stream)
{
    const uct_cuda_topo_t *topo = &node->topo;
    char text[32];
    int i, j;

    for (i = 0; i < topo->num_gpus; ++i) {
        fprintf(stream, "gpu%-3d %s  %s, %zu MiB\n", i,
                uct_cuda_bus_id_str(&node->wiring.gpus[i].bus_id, text,
                                    sizeof(text)),
                node->wiring.gpus[i].name, node->wiring.gpus[i].memory >> 20);
    }

    fprintf(stream, "\nGB/s   ");
    for (j = 0; j < topo->num_gpus; ++j) {
        snprintf(text, sizeof(text), "to gpu%d", j);
        fprintf(stream, "  %-10s", text);
    }
    fprintf(stream, "  to host         NUMA\n");

    for (i = 0; i < topo->num_gpus; ++i) {
        fprintf(stream, "gpu%-4d", i);
        for (j = 0; j < topo->num_gpus; ++j) {
            if (i == j) {
                fprintf(stream, "  %-10s", "X");
            } else if (!(topo->links[i][j].bandwidth > 0)) {
                fprintf(stream, "  %-10s", "-");
            } else {
                fprintf(stream, "  %-5s%5.1f",
                        ucx_mp_topo_pair_str(&node->wiring, i, j, text,
                                             sizeof(text)),
                        topo->links[i][j].bandwidth / GIGA);
            }
        }
        fprintf(stream, "  %-10s%5.1f %4d\n",
                ucx_mp_topo_host_str(&node->wiring, i, text, sizeof(text)),
                topo->gpus[i].to_host.bandwidth / GIGA, topo->gpus[i].numa);
    }

    put_legend(node, stream);
    fprintf(stream, "\n");
    put_shared(node, stream);
    for (i = 0; i < topo->num_gpus; ++i) {
        put_doubt(node, i, stream);
    }
}

void ucx_mp_topo_times(const ucx_mp_topo_node_t *node, FILE *stream)
{
    const uct_cuda_wiring_times_t *times = &node->wiring.times;
    const struct {
        const char *what;
        double     seconds;
    } parts[] = {
        {"libcuda and cuInit", times->driver_load},
        {"NVML and nvmlInit", times->nvml_load},
        {"NVML's device handles", times->nvml_handles},
        {"own: driver's attributes", times->driver},
        {"own: NVML's answers", times->nvml},
        {"own: sysfs", times->host},
        {"own: links and limits", times->build},
        {"own, in all", times->driver + times->nvml + times->host +
                                times->build},
    };
    size_t i;

    for (i = 0; i < sizeof(parts) / sizeof(parts[0]); ++i) {
        fprintf(stream, "%-26s %9.3f ms\n", parts[i].what,
                parts[i].seconds * MILLI);
    }
}
