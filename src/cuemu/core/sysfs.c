/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Write the PCIe tree, NUMA nodes and network devices of an emulated node as
 * sysfs shows them, to a folder for SYSFS_PATH.
 */

#include "node_xml.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CUEMU_SYSFS_PATH   1024
#define CUEMU_SYSFS_FOLDER 512
#define CUEMU_SYSFS_SOCKET "devices/system/cpu/cpu%d/topology"
#define CUEMU_SYSFS_NODE   "devices/system/node"

typedef struct {
    const cuemu_xml_t *xml;
    const char        *folder;
    cuemu_status_t    status; /* first error, described in errbuf */
} cuemu_sysfs_t;

static void cuemu_sysfs_fail(cuemu_sysfs_t *s, const char *path)
{
    if (s->status == CUEMU_OK) {
        snprintf(s->xml->errbuf, CUEMU_ERRBUF_SIZE, "%.180s: %s", path,
                 strerror(errno));
        s->status = CUEMU_ERR_IO;
    }
}

/* Create a folder below s->folder, with its parents. */
static void __attribute__((format(printf, 2, 3)))
cuemu_sysfs_mkdir(cuemu_sysfs_t *s, const char *format, ...)
{
    char path[CUEMU_SYSFS_PATH];
    va_list ap;
    char *slash;
    int n;

    n = snprintf(path, sizeof(path), "%s/", s->folder);
    va_start(ap, format);
    vsnprintf(path + n, sizeof(path) - (size_t)n, format, ap);
    va_end(ap);
    for (slash = strchr(path + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0777);
        *slash = '/';
    }
    if ((mkdir(path, 0777) != 0) && (errno != EEXIST)) {
        cuemu_sysfs_fail(s, path);
    }
}

static void __attribute__((format(printf, 4, 5)))
cuemu_sysfs_put(cuemu_sysfs_t *s, const char *folder, const char *name,
                const char *format, ...)
{
    char path[CUEMU_SYSFS_PATH];
    va_list ap;
    FILE *file;

    snprintf(path, sizeof(path), "%.512s/%.400s/%.40s", s->folder, folder,
             name);
    file = fopen(path, "w");
    if (file == NULL) {
        cuemu_sysfs_fail(s, path);
        return;
    }

    va_start(ap, format);
    vfprintf(file, format, ap);
    va_end(ap);
    fputc('\n', file);
    if (fclose(file) != 0) {
        cuemu_sysfs_fail(s, path);
    }
}

static void cuemu_sysfs_link(cuemu_sysfs_t *s, const char *device,
                             const char *where, const char *name)
{
    char target[CUEMU_SYSFS_PATH], path[CUEMU_SYSFS_PATH];

    snprintf(target, sizeof(target), "%.512s/%.400s", s->folder, device);
    snprintf(path, sizeof(path), "%.512s/%.100s/%.40s", s->folder, where, name);
    if (symlink(target, path) != 0) {
        cuemu_sysfs_fail(s, path);
    }
}

/* Write the cores of a mask to `folder`/local_cpulist, as a list such as
   "0-19,40-59". Writes no file if the mask is empty. */
static void cuemu_sysfs_cores(cuemu_sysfs_t *s, const char *folder,
                              const uint8_t *cores)
{
    char text[5 * CUEMU_XML_MAX_CORES / 2 + 1];
    int first, core, n = 0;

#define IS_SET(_i) (((_i) < CUEMU_XML_MAX_CORES) && \
                    ((cores[(_i) / 8] >> ((_i) % 8)) & 1))
    text[0] = '\0';
    for (core = 0; core < CUEMU_XML_MAX_CORES; ++core) {
        if (IS_SET(core)) {
            for (first = core; IS_SET(core + 1); ++core)
                ;
            n += snprintf(text + n, sizeof(text) - (size_t)n,
                          (first == core) ? "%s%d" : "%s%d-%d",
                          (n > 0) ? "," : "", first, core);
        }
    }
#undef IS_SET
    if (n > 0) {
        cuemu_sysfs_put(s, folder, "local_cpulist", "%s", text);
    }
}

static void cuemu_sysfs_device(cuemu_sysfs_t *s, const char *folder, int cpu,
                               const char *vendor, const char *speed, int width)
{
    cuemu_sysfs_mkdir(s, "%s", folder);
    cuemu_sysfs_put(s, folder, "vendor", "%s", vendor);
    cuemu_sysfs_put(s, folder, "numa_node", "%d", cpu);
    cuemu_sysfs_cores(s, folder, s->xml->cpus[cpu].cores);
    if (speed[0] != '\0') {
        cuemu_sysfs_put(s, folder, "max_link_speed", "%s", speed);
    }
    if (width > 0) {
        cuemu_sysfs_put(s, folder, "max_link_width", "%d", width);
        /* idle GPUs save power: generation 1, all lanes */
        cuemu_sysfs_put(s, folder, "current_link_speed", "2.5 GT/s PCIe");
        cuemu_sysfs_put(s, folder, "current_link_width", "%d", width);
    }
}

/* Create a device's folder below that of the bridge above it, and return it in
   folders[index]. Between the two is a port, of the root or the switch. A
   bridge has a lower index than the devices below it. */
static void cuemu_sysfs_pci(cuemu_sysfs_t *s, int index,
                            char (*folders)[CUEMU_SYSFS_FOLDER])
{
    const cuemu_xml_pci_t *pci = &s->xml->pci[index];
    char *folder               = folders[index];
    int n;

    if (pci->parent >= 0) {
        memcpy(folder, folders[pci->parent], CUEMU_SYSFS_FOLDER);
        n = (int)strlen(folder);
    } else {
        n = snprintf(folder, CUEMU_SYSFS_FOLDER, "devices/pci%04x:00",
                     pci->cpu);
    }
    n += snprintf(folder + n, CUEMU_SYSFS_FOLDER - (size_t)n,
                  "/%.*s:%02x:%02x.7", (int)strcspn(pci->busid, ":"),
                  pci->busid, index / 32, index % 32);
    cuemu_sysfs_device(s, folder, pci->cpu, "0x0000", pci->port_speed,
                       pci->port_width);
    snprintf(folder + n, CUEMU_SYSFS_FOLDER - (size_t)n, "/%s", pci->busid);
    cuemu_sysfs_device(s, folder, pci->cpu, pci->has_gpu ? "0x10de" : "0x0000",
                       pci->speed, pci->width);
    cuemu_sysfs_link(s, folder, "bus/pci/devices", pci->busid);
}

cuemu_status_t cuemu_sysfs_write(const cuemu_xml_t *xml, const char *folder)
{
    static char folders[CUEMU_XML_MAX_PCI][CUEMU_SYSFS_FOLDER];
    cuemu_sysfs_t s = {xml, folder, CUEMU_OK};
    char path[CUEMU_SYSFS_FOLDER];
    int i, n = 0;

    if (strlen(folder) > CUEMU_SYSFS_FOLDER) {
        errno = ENAMETOOLONG;
        cuemu_sysfs_fail(&s, folder);
        return s.status;
    }

    cuemu_sysfs_mkdir(&s, "bus/pci/devices");
    for (i = 0; i < xml->num_cpus; ++i) {
        snprintf(path, sizeof(path), CUEMU_SYSFS_NODE "/node%d", i);
        cuemu_sysfs_mkdir(&s, "%s", path);
        cuemu_sysfs_put(&s, path, "cpulist", "%d", i);
        snprintf(path, sizeof(path), CUEMU_SYSFS_SOCKET, i);
        cuemu_sysfs_mkdir(&s, "%s", path);
        cuemu_sysfs_put(&s, path, "physical_package_id", "%d", i);
    }
    for (i = 0; i < xml->num_cpus; ++i) {
        n += snprintf(path + n, sizeof(path) - (size_t)n, "%s%d",
                      (i > 0) ? "," : "", i);
    }
    cuemu_sysfs_put(&s, CUEMU_SYSFS_NODE, "has_cpu", "%s", path);

    for (i = 0; (i < xml->num_pci) && (s.status == CUEMU_OK); ++i) {
        cuemu_sysfs_pci(&s, i, folders);
    }
    for (i = 0; (i < xml->num_nets) && (s.status == CUEMU_OK); ++i) {
        snprintf(path, sizeof(path), "class/infiniband/%s", xml->nets[i].name);
        cuemu_sysfs_mkdir(&s, "%s", path);
        cuemu_sysfs_link(&s, folders[xml->nets[i].pci], path, "device");
    }
    return s.status;
}
