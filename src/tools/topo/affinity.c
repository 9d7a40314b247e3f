/* SPDX-License-Identifier: BSD-3-Clause */
/* Find the cores and NICs near a GPU, in sysfs. */
#include "tool.h"

#include <uct/cuda/base/file.h>

#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>


/* Read the first line of a device's file; empty if there is none. */
static void
read_file(const char *device, const char *name, char *line, size_t size)
{
    char path[PATH_MAX + 64];

    snprintf(path, sizeof(path), "%s/%s", device, name);
    (void)uct_cuda_file_text(path, line, size);
    line[strcspn(line, "\n")] = '\0';
}

static unsigned count_devices(const char *path)
{
    unsigned count = 0;

    for (; *path != '\0'; ++path) {
        count += (*path == '/');
    }

    return count;
}

/*
 * Return the relation of two devices, by their sysfs paths:
 *
 *   .../pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0
 *       root       root port    switch: up   and down     device
 */
static const char *
find_relation(const char *a, int numa_a, const char *b, int numa_b)
{
    size_t common = 0;
    const char *root;
    size_t i;

    for (i = 0; (a[i] != '\0') && (a[i] == b[i]); ++i) {
        if (a[i] == '/') {
            common = i;
        }
    }

    root = strstr(a, "/pci");
    if ((root != NULL) && (strchr(root + 1, '/') != NULL) &&
        (a + common > strchr(root + 1, '/'))) {
        return ((count_devices(a + common) <= 2) &&
                (count_devices(b + common) <= 2)) ?
                       "PIX" :
                       "PXB";
    }

    return (numa_a == numa_b) ? "PHB" : "SYS";
}

static void add_nic(ucx_mp_topo_near_t *near, const char *name,
                    const char *device)
{
    ucx_mp_topo_nic_t *nic = &near->nics[near->num_nics];
    char line[32];

    if (strlen(name) >= sizeof(nic->name)) {
        return;
    }

    strcpy(nic->name, name);
    strcpy(nic->path, device);
    read_file(device, "numa_node", line, sizeof(line));
    nic->numa = (line[0] == '\0') ? -1 : atoi(line);
    ++near->num_nics;
}

static int compare_nics(const void *a, const void *b)
{
    return strverscmp(((const ucx_mp_topo_nic_t*)a)->name,
                      ((const ucx_mp_topo_nic_t*)b)->name);
}

/* Find RDMA devices, which send MPI's messages between nodes. */
static void find_nics(ucx_mp_topo_near_t *near)
{
    char link[PATH_MAX], path[PATH_MAX];
    struct dirent *entry;
    DIR *dir;

    snprintf(link, sizeof(link), "%s/class/infiniband",
             uct_cuda_wiring_sysfs());
    dir = opendir(link);
    if (dir == NULL) {
        return;
    }

    while ((near->num_nics < UCX_MP_TOPO_MAX_NICS) &&
           ((entry = readdir(dir)) != NULL)) {
        snprintf(link, sizeof(link), "%s/class/infiniband/%s/device",
                 uct_cuda_wiring_sysfs(), entry->d_name);
        if ((entry->d_name[0] != '.') && (realpath(link, path) != NULL)) {
            add_nic(near, entry->d_name, path);
        }
    }

    closedir(dir);
    qsort(near->nics, near->num_nics, sizeof(near->nics[0]), compare_nics);
}

void ucx_mp_topo_near_find(const ucx_mp_topo_node_t *node,
                           ucx_mp_topo_near_t *near)
{
    char link[PATH_MAX], path[PATH_MAX], text[32];
    unsigned n;
    int gpu;

    memset(near, 0, sizeof(*near));
    find_nics(near);
    for (gpu = 0; gpu < node->topo.num_gpus; ++gpu) {
        snprintf(link, sizeof(link), "%s/bus/pci/devices/%s",
                 uct_cuda_wiring_sysfs(),
                 uct_cuda_bus_id_str(&node->wiring.gpus[gpu].bus_id, text,
                                     sizeof(text)));
        if (realpath(link, path) == NULL) {
            path[0] = '\0';
        } else {
            read_file(path, "local_cpulist", near->cores[gpu],
                      sizeof(near->cores[gpu]));
        }

        for (n = 0; n < near->num_nics; ++n) {
            near->relations[gpu][n] =
                    (path[0] == '\0') ?
                            "?" :
                            find_relation(path, node->topo.gpus[gpu].numa,
                                          near->nics[n].path,
                                          near->nics[n].numa);
        }
    }
}

void ucx_mp_topo_near_text(const ucx_mp_topo_node_t *node,
                           const ucx_mp_topo_near_t *near, FILE *stream)
{
    unsigned n;
    int gpu;

    fprintf(stream, "\nnear     NUMA  cores");
    for (n = 0; n < near->num_nics; ++n) {
        fprintf(stream, "%s%s", (n == 0) ? ", and NICs: " : " ",
                near->nics[n].name);
    }
    fprintf(stream, "\n");

    for (gpu = 0; gpu < node->topo.num_gpus; ++gpu) {
        fprintf(stream, "gpu%-4d  %4d  %s", gpu, node->topo.gpus[gpu].numa,
                (near->cores[gpu][0] != '\0') ? near->cores[gpu] : "?");
        for (n = 0; n < near->num_nics; ++n) {
            fprintf(stream, "%s%s %s", (n == 0) ? "; " : ", ",
                    near->nics[n].name, near->relations[gpu][n]);
        }
        fprintf(stream, "\n");
    }
}

void ucx_mp_topo_near_json(const ucx_mp_topo_node_t *node,
                           const ucx_mp_topo_near_t *near, FILE *stream)
{
    const char *bus_id;
    unsigned n;
    int gpu;

    fprintf(stream, "  \"cores\": [");
    for (gpu = 0; gpu < node->topo.num_gpus; ++gpu) {
        fprintf(stream, "%s\"%s\"", (gpu > 0) ? ", " : "", near->cores[gpu]);
    }

    fprintf(stream, "],\n  \"nics\": [");
    for (n = 0; n < near->num_nics; ++n) {
        bus_id = strrchr(near->nics[n].path, '/') + 1;
        fprintf(stream, "%s\n    {\"name\": \"%s\", \"bus_id\": \"%s\", "
                        "\"numa\": %d, \"from\": [",
                (n > 0) ? "," : "", near->nics[n].name, bus_id,
                near->nics[n].numa);
        for (gpu = 0; gpu < node->topo.num_gpus; ++gpu) {
            fprintf(stream, "%s\"%s\"", (gpu > 0) ? ", " : "",
                    near->relations[gpu][n]);
        }
        fprintf(stream, "]}");
    }
    fprintf(stream, "],\n");
}
