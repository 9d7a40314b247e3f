/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Host part of the probe: PCIe switches above the GPUs, NUMA nodes and sockets.
 * It reads a dozen small files of sysfs; hwloc reads the complete machine (20
 * to 1445 ms, measured on a node with four H200) and would be another
 * dependency.
 */
#include <uct/cuda/base/wiring.h>

#include <uct/cuda/base/file.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/number.h>

#include <ctype.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>


#define VENDOR_NVIDIA 0x10de

/* Of a PCIe link */
#define MAX_LANES 32

/* Devices between the root complex and a GPU */
#define MAX_DEPTH 16


const char *uct_cuda_wiring_sysfs(void)
{
    const char *path = getenv("SYSFS_PATH");

    return ((path != NULL) && (path[0] != '\0')) ? path : "/sys";
}

/* Read the first line of a file below sysfs, without its end. @a format, ap:
 * the file's path */
static bool __attribute__((format(printf, 3, 0)))
read_line_of(char *line, size_t size, const char *format, va_list ap)
{
    char path[PATH_MAX];
    size_t length;

    vsnprintf(path, sizeof(path), format, ap);
    length                    = uct_cuda_file_text(path, line, size);
    line[strcspn(line, "\n")] = '\0';
    return length > 0;
}

static bool __attribute__((format(printf, 3, 4)))
read_line(char *line, size_t size, const char *format, ...)
{
    va_list ap;
    bool is_read;

    va_start(ap, format);
    is_read = read_line_of(line, size, format, ap);
    va_end(ap);
    return is_read;
}

static bool __attribute__((format(printf, 2, 3)))
read_number(long *value_p, const char *format, ...)
{
    char line[64];
    bool is_read;
    va_list ap;
    char *end;

    va_start(ap, format);
    is_read = read_line_of(line, sizeof(line), format, ap);
    va_end(ap);
    if (!is_read) {
        return false;
    }

    *value_p = strtol(line, &end, 0);
    return end != line;
}

/* "16.0 GT/s PCIe": 4. 0 if unknown. */
static unsigned generation_of(const char *speed)
{
    static const double rates[] = {2.5, 5, 8, 16, 32, 64, 128};
    double rate                 = uct_cuda_strtod(speed, NULL);
    unsigned i;

    for (i = 0; i < sizeof(rates) / sizeof(rates[0]); ++i) {
        if ((rate > rates[i] * .95) && (rate < rates[i] * 1.05)) {
            return i + 1;
        }
    }

    return 0;
}

/* Read the maximum ("max") or present ("current") state of a link. Too many
 * lanes mean unknown: Linux reports 63 for a sleeping device and 255 without a
 * link */
static uct_cuda_wiring_pcie_t read_pcie_of(const char *device, const char *what)
{
    uct_cuda_wiring_pcie_t pcie = {0, 0};
    char line[64];
    long width;

    if (read_line(line, sizeof(line), "%s/%s_link_speed", device, what) &&
        read_number(&width, "%s/%s_link_width", device, what) && (width > 0) &&
        (width <= MAX_LANES)) {
        pcie.generation = generation_of(line);
        pcie.width      = (unsigned)width;
    }

    if (pcie.generation == 0) {
        pcie.width = 0;
    }

    return pcie;
}

static uct_cuda_wiring_pcie_t read_pcie(const char *device)
{
    return read_pcie_of(device, "max");
}

/* a link is as fast as its slower end */
static uct_cuda_wiring_pcie_t slower(uct_cuda_wiring_pcie_t a,
                                     uct_cuda_wiring_pcie_t b)
{
    if (a.generation == 0) {
        return b;
    } else if (b.generation == 0) {
        return a;
    }

    a.generation = (a.generation < b.generation) ? a.generation : b.generation;
    a.width      = (a.width < b.width) ? a.width : b.width;
    return a;
}

static int add_switch(uct_cuda_wiring_t *wiring,
                      const uct_cuda_bus_id_t *bus_id, int parent, int numa,
                      uct_cuda_wiring_pcie_t pcie)
{
    uct_cuda_wiring_switch_t *entry;
    int i;

    for (i = 0; i < wiring->num_switches; ++i) {
        if (uct_cuda_bus_id_equal(&wiring->switches[i].bus_id, bus_id)) {
            return i;
        }
    }

    if (i == UCT_CUDA_WIRING_MAX_SWITCHES) {
        return parent;
    }

    entry         = &wiring->switches[wiring->num_switches++];
    entry->bus_id = *bus_id;
    entry->parent = parent;
    entry->numa   = numa;
    entry->pcie   = pcie;
    return i;
}

/* Find the path of a device in the PCIe tree */
static bool find_device(const uct_cuda_bus_id_t *bus_id, char path[PATH_MAX])
{
    char text[32];
    char *found;

    snprintf(path, PATH_MAX, "%s/bus/pci/devices/%s", uct_cuda_wiring_sysfs(),
             uct_cuda_bus_id_str(bus_id, text, sizeof(text)));
    found = realpath(path, NULL);
    if (found == NULL) {
        return false;
    }

    snprintf(path, PATH_MAX, "%s", found);
    free(found);
    return true;
}

/*
 * The GPU's place in the PCIe tree, from the path of its device:
 *   .../pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0
 *       root       root port    switch: up   and down     GPU
 * A switch is two devices, of which the upper one stands for it.
 */
static bool read_gpu(uct_cuda_wiring_t *wiring, uct_cuda_wiring_gpu_t *gpu)
{
    uct_cuda_bus_id_t ids[MAX_DEPTH + 1];
    size_t ends[MAX_DEPTH + 1]; /* of the path of each device */
    char path[PATH_MAX], text[32];
    unsigned depth = 0;
    int parent     = UCT_CUDA_WIRING_NONE;
    uct_cuda_wiring_pcie_t pcie, port;
    char *start, *end;
    unsigned i;
    long value;

    if (!find_device(&gpu->bus_id, path) ||
        !read_number(&value, "%s/vendor", path) || (value != VENDOR_NVIDIA)) {
        return false;
    }

    start = strstr(path, "/pci");
    while ((start != NULL) && !isxdigit((unsigned char)start[4])) {
        start = strstr(start + 1, "/pci");
    }

    if (start == NULL) {
        return false;
    }

    for (start = strchr(start + 1, '/'); start != NULL; start = end) {
        end = strchr(start + 1, '/');
        snprintf(text, sizeof(text), "%.*s",
                 (end != NULL) ? (int)(end - start - 1) : (int)sizeof(text),
                 start + 1);
        if ((depth > MAX_DEPTH) || !uct_cuda_bus_id_parse(text, &ids[depth])) {
            return false;
        }

        ends[depth++] = (end != NULL) ? (size_t)(end - path) : strlen(path);
    }

    if (depth == 0) {
        return false;
    }

    gpu->pcie = gpu->pcie_own = read_pcie(path);
    pcie       = read_pcie_of(path, "current");
    gpu->lanes = pcie.width;
    if ((depth > 1) && (gpu->pcie.generation != 0)) {
        path[ends[depth - 2]] = '\0';
        port                  = read_pcie(path);
        path[ends[depth - 2]] = '/';
        /* more lanes are in use than a virtual machine's port reports: that
         * port is not the end of the link */
        if ((pcie.width <= port.width) &&
            (pcie.generation <= port.generation)) {
            gpu->pcie = slower(gpu->pcie, port);
        }
    }

    if ((gpu->numa == UCT_CUDA_WIRING_NONE) &&
        read_number(&value, "%s/numa_node", path)) {
        gpu->numa = uct_cuda_wiring_numa(wiring, (int)value);
    }

    for (i = (depth + 1) % 2; i + 2 < depth; i += 2) {
        path[ends[i]] = '\0';
        pcie          = read_pcie(path);
        if (i > 0) {
            path[ends[i - 1]] = '\0';
            pcie              = slower(pcie, read_pcie(path));
            path[ends[i - 1]] = '/';
        }
        path[ends[i]] = '/';
        parent        = add_switch(wiring, &ids[i], parent, gpu->numa, pcie);
    }

    gpu->pci_switch = parent;
    return true;
}

/* Call a function for each number of a list like "0-1,8" */
static void for_each(const char *list, uct_cuda_wiring_t *wiring)
{
    long first, last;

    while (uct_cuda_number_range(&list, &first, &last)) {
        for (; (first <= last) && (first < INT_MAX); ++first) {
            if (uct_cuda_wiring_numa(wiring, (int)first) ==
                UCT_CUDA_WIRING_NONE) {
                break;
            }
        }
    }
}

/* Find NUMA nodes with processors; on some machines GPU memory has NUMA nodes,
 * too; they are unsuitable for staging */
static void read_numa(uct_cuda_wiring_t *wiring)
{
    char line[4096];
    long value;
    int i;

    if (!read_line(line, sizeof(line), "%s/devices/system/node/has_cpu",
                   uct_cuda_wiring_sysfs())) {
        return;
    }

    for_each(line, wiring);
    for (i = 0; i < wiring->num_numa; ++i) {
        if (read_line(line, sizeof(line),
                      "%s/devices/system/node/node%d/cpulist",
                      uct_cuda_wiring_sysfs(), wiring->numa[i].os_index) &&
            isdigit((unsigned char)line[0]) &&
            read_number(&value,
                        "%s/devices/system/cpu/cpu%ld/topology/"
                        "physical_package_id",
                        uct_cuda_wiring_sysfs(), strtol(line, NULL, 10)) &&
            (value >= 0)) {
            wiring->numa[i].socket = (int)value;
        }
    }
}

void uct_cuda_wiring_read_host(uct_cuda_wiring_t *wiring)
{
    int i;

    read_numa(wiring);
    wiring->has_pci = true;
    for (i = 0; i < wiring->num_gpus; ++i) {
        if (!read_gpu(wiring, &wiring->gpus[i])) {
            uct_cuda_debug("sysfs has no GPU %04x:%02x:%02x.%x",
                           wiring->gpus[i].bus_id.domain,
                           wiring->gpus[i].bus_id.bus,
                           wiring->gpus[i].bus_id.device,
                           wiring->gpus[i].bus_id.function);
            wiring->has_pci = false;
        }
    }
}
