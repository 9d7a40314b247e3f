/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * cuemu_node FILE [FOLDER]: check an NCCL topology file as the emulated node
 * reads it, and write the node's sysfs into FOLDER. Prints "gpus N" on standard
 * output, and a line if only the first of several hosts is used. On failure
 * prints one sentence on standard error. ucx_mp_run calls it before it starts a
 * program.
 */

#include "node_xml.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    static char error[CUEMU_ERRBUF_SIZE];
    static cuemu_node_t node;
    static cuemu_xml_t xml;
    cuemu_status_t status;

    if ((argc != 2) && (argc != 3)) {
        fprintf(stderr, "usage: cuemu_node FILE [FOLDER]\n");
        return 2;
    }

    xml.path   = argv[1];
    xml.errbuf = error;
    status     = cuemu_xml_read(&xml);
    if (status == CUEMU_OK) {
        status = cuemu_node_build(&xml, &node);
    }
    if ((status == CUEMU_OK) && (argc == 3)) {
        status = cuemu_sysfs_write(&xml, argv[2]);
    }
    if (status != CUEMU_OK) {
        error[strcspn(error, "\n")] = '\0';
        fprintf(stderr, "%s\n", error);
        return 1;
    }

    printf("gpus %d\n", node.num_gpus);
    if (xml.num_others > 0) {
        printf("%s describes more than one host: this is the first%s%s, with "
               "%d GPUs\n", argv[1], (xml.host[0] != '\0') ? ", " : "",
               xml.host, node.num_gpus);
    }
    return 0;
}
