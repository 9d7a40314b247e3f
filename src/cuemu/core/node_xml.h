/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Contents of an NCCL topology file, before the node is built (internal to the
 * core).
 */
#ifndef CUEMU_NODE_XML_H_
#define CUEMU_NODE_XML_H_

#include "cuemu_core.h"

#define CUEMU_XML_MAX_CPUS     CUEMU_MAX_NUMA
#define CUEMU_XML_MAX_PCI      256
#define CUEMU_XML_MAX_NVLINKS  32
#define CUEMU_XML_MAX_SETTINGS 128
#define CUEMU_XML_MAX_NETS     64
#define CUEMU_XML_MAX_CORES    8192 /* Linux's largest CONFIG_NR_CPUS */
#define CUEMU_XML_TEXT         160

typedef struct {
    int     numaid;
    char    arch[16];
    uint8_t cores[CUEMU_XML_MAX_CORES / 8]; /* bit per core, from "affinity";
                                               all 0: not given */
} cuemu_xml_cpu_t;

typedef struct {
    char   busid[CUEMU_BUSID_SIZE];
    int    cpu;     /* index */
    int    parent;  /* index of the bridge above, -1: directly at the CPU */
    double gtps;    /* signalling rate of a lane, GT/s; 0: not given */
    int    width;   /* lanes; 0: not given */
    char   speed[32]; /* text of the file, for sysfs */
    char   port_speed[32]; /* speed of the port above the device, and its
                              lanes */
    int    port_width;
    int    has_gpu;
} cuemu_xml_pci_t;

/* A network device, as sysfs lists it below class/infiniband */
typedef struct {
    char name[32];
    int  pci;
} cuemu_xml_net_t;

typedef struct {
    char target[24];
    int  tclass;
    int  count;
    int  line;
} cuemu_xml_nvlink_t;

typedef struct {
    int                pci;
    int                dev;
    int                sm;
    int                line;
    int                c2c_count; /* from <c2c>: number of NVLink-C2C links to
                                     the CPU */
    int                c2c_mbps;  /* rate of one C2C link, MB/s */
    int                mlopart;   /* part of a GPU split by MLOPart, or 0 */
    int                num_nvlinks;
    cuemu_xml_nvlink_t nvlinks[CUEMU_XML_MAX_NVLINKS];
} cuemu_xml_gpu_t;

/* A <cuemu> element: the emulator's settings in a node file. NCCL ignores
   them. */
typedef struct {
    char   set[16];                 /* kind: link, shared, cost, copy, gpu */
    char   name[CUEMU_NAME_SIZE];
    char   members[CUEMU_XML_TEXT]; /* shared: patterns of link names */
    int    line;
    double gbps;                    /* rate; -1 here and below: not given */
    double us;
    double launch_us;
    double setup_us;
    double complete_us;
    double small_us;
    double memory_mib;
    double sm_count;
    double peers;                   /* gpu: 0: no peer access over PCIe */
    char   model[CUEMU_NAME_SIZE];  /* gpu: product name */
} cuemu_xml_setting_t;

typedef struct {
    const char          *path;
    char                *errbuf;
    int                 num_cpus;
    int                 num_pci;
    int                 num_gpus;
    int                 num_settings;
    int                 num_nets;
    int                 num_others;   /* number of <cpu> of other hosts,
                                         ignored */
    char                host[32];     /* host_hash of the first <cpu> */
    cuemu_xml_cpu_t     cpus[CUEMU_XML_MAX_CPUS];
    cuemu_xml_pci_t     pci[CUEMU_XML_MAX_PCI];
    cuemu_xml_gpu_t     gpus[CUEMU_MAX_GPUS];
    cuemu_xml_net_t     nets[CUEMU_XML_MAX_NETS];
    cuemu_xml_setting_t settings[CUEMU_XML_MAX_SETTINGS];
} cuemu_xml_t;

/* Read the file xml->path into `xml`. The caller sets path and errbuf and
   clears the rest. Errors: IO, PARSE, with a sentence in errbuf. */
cuemu_status_t cuemu_xml_read(cuemu_xml_t *xml);

/* Build a node from a file already read: the second half of cuemu_node_load().
   Errors: PARSE (contradictory or too large), IO (out of memory), with a
   sentence in errbuf. */
cuemu_status_t cuemu_node_build(cuemu_xml_t *xml, cuemu_node_t *node_p);

/*
 * Write the node's PCIe tree, NUMA nodes and network devices below `folder`, as
 * sysfs shows them. Creates the folder; its path has at most 512 characters.
 * IO, with a sentence in errbuf, if a file cannot be written or a link exists
 * already. Uses a static buffer: one call at a time.
 */
cuemu_status_t cuemu_sysfs_write(const cuemu_xml_t *xml, const char *folder);

/* Write "path:line: text" to errbuf and return CUEMU_ERR_PARSE. */
cuemu_status_t cuemu_xml_error(const cuemu_xml_t *xml, int line,
                               const char *format, ...)
        __attribute__((format(printf, 3, 4)));

/* Convert a PCI bus id such as "1:2:3.0" to the form "0001:02:03.0". Return 1,
   or 0 if the text is not a bus id: `busid_p` is unchanged then. */
int cuemu_xml_busid(const char *text, char *busid_p);

#endif
