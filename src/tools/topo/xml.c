/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The node as NCCL describes one (NCCL_TOPO_DUMP_FILE), which the emulated node
 * reads. Elements with a few attributes each: no library is needed for that,
 * and the program runs where there is none.
 */
#include "tool.h"

#include <string.h>
#include <sys/utsname.h>


#define CLASS_BRIDGE   "0x060400"
#define CLASS_GPU      "0x030200"
#define CLASS_NVSWITCH "0x068000"
#define CLASS_CPU_LINK "0x068001"


typedef struct {
    const uct_cuda_wiring_t *wiring;
    FILE                    *stream;
} writer_t;


static void put_attribute(const char *name, const char *text, FILE *stream)
{
    fprintf(stream, " %s=\"", name);
    for (; *text != '\0'; ++text) {
        switch (*text) {
        case '&':
            fputs("&amp;", stream);
            break;
        case '<':
            fputs("&lt;", stream);
            break;
        case '"':
            fputs("&quot;", stream);
            break;
        default:
            if ((unsigned char)*text >= ' ') {
                fputc(*text, stream);
            }
        }
    }
    fputc('"', stream);
}

static void indent(int depth, FILE *stream)
{
    fprintf(stream, "%*s", 2 * depth, "");
}

static void open_pci(const writer_t *w, int depth,
                     const uct_cuda_bus_id_t *bus_id, const char *class,
                     const uct_cuda_wiring_pcie_t *pcie)
{
    static const char *speeds[] = {"",        "2.5 GT/s", "5.0 GT/s",
                                   "8.0 GT/s", "16.0 GT/s", "32.0 GT/s",
                                   "64.0 GT/s"};
    const unsigned last         = sizeof(speeds) / sizeof(speeds[0]) - 1;
    char text[32];

    indent(depth, w->stream);
    fprintf(w->stream, "<pci busid=\"%s\" class=\"%s\"",
            uct_cuda_bus_id_str(bus_id, text, sizeof(text)), class);
    if (pcie->generation > 0) {
        fprintf(w->stream, " link_speed=\"%s PCIe\" link_width=\"%u\"",
                speeds[(pcie->generation < last) ? pcie->generation : last],
                pcie->width);
    } else {
        fprintf(w->stream, " link_speed=\"\" link_width=\"0\"");
    }
    fprintf(w->stream, ">\n");
}

static void put_nvlink(const writer_t *w, int depth,
                       const uct_cuda_wiring_peer_t *peer)
{
    static const char *classes[] = {
        [UCT_CUDA_WIRING_GPU]     = CLASS_GPU,
        [UCT_CUDA_WIRING_SWITCH]  = CLASS_NVSWITCH,
        [UCT_CUDA_WIRING_CPU]     = CLASS_CPU_LINK,
        /* what ends at no GPU that anybody sees ends at a switch */
        [UCT_CUDA_WIRING_UNKNOWN] = CLASS_NVSWITCH,
    };
    char text[32];

    if (peer->end == UCT_CUDA_WIRING_HIDDEN) {
        return; /* the GPU will not be in this description */
    }

    indent(depth, w->stream);
    fprintf(w->stream, "<nvlink target=\"%s\" count=\"%u\" tclass=\"%s\"/>\n",
            uct_cuda_bus_id_str(&peer->bus_id, text, sizeof(text)), peer->count,
            classes[peer->end]);
}

static void put_gpu(const writer_t *w, int depth, int index)
{
    const uct_cuda_wiring_gpu_t *gpu = &w->wiring->gpus[index];
    unsigned i;

    open_pci(w, depth, &gpu->bus_id, CLASS_GPU, &gpu->pcie);
    indent(depth + 1, w->stream);
    fprintf(w->stream, "<gpu dev=\"%d\" sm=\"%d\" rank=\"%d\" gdr=\"1\">\n",
            index, gpu->sm, index);
    for (i = 0; i < gpu->num_peers; ++i) {
        put_nvlink(w, depth + 2, &gpu->peers[i]);
    }
    if (gpu->num_c2c > 0) {
        indent(depth + 2, w->stream);
        fprintf(w->stream, "<c2c bw=\"%.0f\" count=\"%u\"/>\n",
                gpu->c2c_rate / gpu->num_c2c / 1e6, gpu->num_c2c);
    }
    indent(depth + 1, w->stream);
    fprintf(w->stream, "</gpu>\n");
    indent(depth, w->stream);
    fprintf(w->stream, "</pci>\n");
}

/* Is a switch worth a line: is there a GPU anywhere behind it? */
static bool has_gpu(const uct_cuda_wiring_t *wiring, int index)
{
    int i, s;

    for (i = 0; i < wiring->num_gpus; ++i) {
        for (s = wiring->gpus[i].pci_switch; s != UCT_CUDA_WIRING_NONE;
             s = wiring->switches[s].parent) {
            if (s == index) {
                return true;
            }
        }
    }

    return false;
}

/* A bus id that no device has, where NVML told of a switch but not which */
static uct_cuda_bus_id_t invented(int index)
{
    uct_cuda_bus_id_t bus_id = {.domain = 0xfff0, .bus = (uint8_t)index};

    return bus_id;
}

/* Everything below a switch, or directly below a NUMA node */
static void put_children(const writer_t *w, int depth, int parent, int numa)
{
    static const uct_cuda_bus_id_t unknown = {0};
    const uct_cuda_wiring_t *wiring        = w->wiring;
    const uct_cuda_wiring_switch_t *sw;
    uct_cuda_bus_id_t bus_id;
    int i;

    for (i = 0; i < wiring->num_switches; ++i) {
        sw = &wiring->switches[i];
        if ((sw->parent != parent) || (sw->numa != numa) ||
            !has_gpu(wiring, i)) {
            continue;
        }

        bus_id = uct_cuda_bus_id_equal(&sw->bus_id, &unknown) ? invented(i) :
                                                                sw->bus_id;
        open_pci(w, depth, &bus_id, CLASS_BRIDGE, &sw->pcie);
        put_children(w, depth + 1, i, numa);
        indent(depth, w->stream);
        fprintf(w->stream, "</pci>\n");
    }

    for (i = 0; i < wiring->num_gpus; ++i) {
        if ((wiring->gpus[i].pci_switch == parent) &&
            (wiring->gpus[i].numa == numa)) {
            put_gpu(w, depth, i);
        }
    }
}

/* A line of /proc/cpuinfo, "name : value"; empty where it has none */
static const char *cpu_info(const char *name, char *value, size_t size)
{
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[1024];
    char *colon;

    value[0] = '\0';
    while ((file != NULL) && (value[0] == '\0') &&
           (fgets(line, sizeof(line), file) != NULL)) {
        colon = strchr(line, ':');
        if ((colon != NULL) && (strncmp(line, name, strlen(name)) == 0) &&
            (strspn(line + strlen(name), " \t") ==
             (size_t)(colon - line) - strlen(name))) {
            snprintf(value, size, "%.*s", (int)strcspn(colon + 2, "\n"),
                     colon + 2);
        }
    }

    if (file != NULL) {
        fclose(file);
    }

    return value;
}

/* The processor's name in NCCL's files where its links say which it is */
static const char *cpu_by_links(const uct_cuda_wiring_t *wiring)
{
    unsigned p;
    int i;

    for (i = 0; i < wiring->num_gpus; ++i) {
        if (wiring->gpus[i].num_c2c > 0) {
            return "arch=\"arm64\" vendor=\"NVIDIA\"";
        }
        for (p = 0; p < wiring->gpus[i].num_peers; ++p) {
            if (wiring->gpus[i].peers[p].end == UCT_CUDA_WIRING_CPU) {
                return "arch=\"ppc64\" vendor=\"IBM\"";
            }
        }
    }

    return NULL;
}

static void put_cpu(const writer_t *w, int numa, int os_index)
{
    const char *by_links = cpu_by_links(w->wiring);
    char text[64];
    struct utsname name;

    fprintf(w->stream, "  <cpu numaid=\"%d\" affinity=\"\"", os_index);
    if (by_links != NULL) {
        fprintf(w->stream, " %s familyid=\"0\" modelid=\"0\">\n", by_links);
    } else {
        put_attribute("arch", (uname(&name) == 0) ? name.machine : "",
                      w->stream);
        put_attribute("vendor", cpu_info("vendor_id", text, sizeof(text)),
                      w->stream);
        put_attribute("familyid", cpu_info("cpu family", text, sizeof(text)),
                      w->stream);
        put_attribute("modelid", cpu_info("model", text, sizeof(text)),
                      w->stream);
        fprintf(w->stream, ">\n");
    }

    put_children(w, 2, UCT_CUDA_WIRING_NONE, numa);
    fprintf(w->stream, "  </cpu>\n");
}

void ucx_mp_topo_xml(const ucx_mp_topo_node_t *node, FILE *stream)
{
    const uct_cuda_wiring_t *wiring = &node->wiring;
    const writer_t w                = {wiring, stream};
    const uct_cuda_wiring_gpu_t *gpu;
    bool has_homeless = false;
    int i, n, next;

    fprintf(stream, "<system version=\"1\">\n");
    for (i = 0; i < wiring->num_gpus; ++i) {
        has_homeless = has_homeless ||
                       (wiring->gpus[i].numa == UCT_CUDA_WIRING_NONE);
    }

    /* in the system's order, which need not be that of the GPUs */
    for (i = 0, next = -1; i < wiring->num_numa; ++i) {
        int best = UCT_CUDA_WIRING_NONE;

        for (n = 0; n < wiring->num_numa; ++n) {
            if ((wiring->numa[n].os_index > next) &&
                ((best == UCT_CUDA_WIRING_NONE) ||
                 (wiring->numa[n].os_index < wiring->numa[best].os_index))) {
                best = n;
            }
        }

        next = wiring->numa[best].os_index;
        put_cpu(&w, best, next);
    }

    if (has_homeless) {
        put_cpu(&w, UCT_CUDA_WIRING_NONE, -1);
    }

    for (i = 0; i < wiring->num_gpus; ++i) {
        gpu = &wiring->gpus[i];
        if ((gpu->name[0] == '\0') || (gpu->memory == 0)) {
            continue;
        }

        fprintf(stream, "  <cuemu set=\"gpu\" name=\"%d\"", i);
        put_attribute("model", gpu->name, stream);
        fprintf(stream, " memory_mib=\"%zu\" source=\"the CUDA driver\"/>\n",
                gpu->memory >> 20);
    }

    fprintf(stream, "</system>\n");
}
