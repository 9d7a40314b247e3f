/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Fuzz the reader of node files: the result is a node whose routes all have a
 * rate, or an error message. For some valid ones, sysfs is written as well.
 */

#define _GNU_SOURCE

#include <node_xml.h>

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int remove_entry(const char *path, const struct stat *st, int type,
                        struct FTW *ftw)
{
    return remove(path);
}

static void check_node(const cuemu_node_t *node)
{
    int i;

    if ((node->num_gpus < 1) || (node->num_gpus > CUEMU_MAX_GPUS)) {
        abort();
    }
    for (i = 0; i < node->num_gpus; ++i) {
        if (!(cuemu_node_route(node, CUEMU_PLACE_GPU(i), CUEMU_PLACE_PAGEABLE)
                      ->solo_rate > 0) ||
            (node->gpus[i].num_nvlinks > CUEMU_MAX_NVLINKS) ||
            (node->gpus[i].pcie_gen < 1) || (node->gpus[i].pcie_width < 1)) {
            abort();
        }
    }
}

static void check_sysfs(const cuemu_xml_t *xml)
{
    char folder[] = "/dev/shm/ucx_mp_fuzz.XXXXXX";

    if (mkdtemp(folder) == NULL) {
        return;
    }
    if (cuemu_sysfs_write(xml, folder) != CUEMU_OK) {
        fprintf(stderr, "%s\n", xml->errbuf);
        abort();
    }
    (void)nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char path[32];
    static int fd = -1;
    char error[CUEMU_ERRBUF_SIZE] = "";
    cuemu_node_t *node = malloc(sizeof(*node));
    cuemu_xml_t *xml   = calloc(1, sizeof(*xml));
    cuemu_status_t status;

    if (fd < 0) {
        fd = memfd_create("node", 0);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    }
    if ((node == NULL) || (xml == NULL) || (ftruncate(fd, 0) != 0) ||
        (pwrite(fd, data, size, 0) != (ssize_t)size)) {
        abort();
    }

    xml->path   = path;
    xml->errbuf = error;
    status      = cuemu_xml_read(xml);
    if (status == CUEMU_OK) {
        status = cuemu_node_build(xml, node);
    }
    if (status == CUEMU_OK) {
        check_node(node);
        if (size % 64 == 0) {
            check_sysfs(xml);
        }
    } else if (error[0] == '\0') {
        abort();
    }
    free(xml);
    free(node);
    return 0;
}
