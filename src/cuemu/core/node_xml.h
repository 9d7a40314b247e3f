/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * What an NCCL topology file says, as it says it (internal to the core).
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
    uint8_t cores[CUEMU_XML_MAX_CORES / 8]; /* affinity; none: not given */
} cuemu_xml_cpu_t;

typedef struct {
    char   busid[CUEMU_BUSID_SIZE];
    int    cpu;     /* index */
    int    parent;  /* index of the bridge above, -1: the CPU */
    double gtps;    /* of one lane, 0: not given */
    int    width;   /* 0: not given */
    char   speed[32]; /* as the file has it, for sysfs */
    char   port_speed[32]; /* of the port above, and its lanes */
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
    int                c2c_count; /* <c2c>: NVLink-C2C to the CPU */
    int                c2c_mbps;  /* of one of them */
    int                mlopart;   /* part of a GPU that is split, or 0 */
    int                num_nvlinks;
    cuemu_xml_nvlink_t nvlinks[CUEMU_XML_MAX_NVLINKS];
} cuemu_xml_gpu_t;

/* A <cuemu> element: what we add and NCCL does not look at. */
typedef struct {
    char   set[16];                 /* link, shared, cost, copy, gpu */
    char   name[CUEMU_NAME_SIZE];
    char   members[CUEMU_XML_TEXT]; /* shared: patterns of link names */
    int    line;
    double gbps;                    /* -1: not given; likewise below */
    double us;
    double launch_us;
    double setup_us;
    double complete_us;
    double memory_mib;
    double sm_count;
    char   model[CUEMU_NAME_SIZE];  /* gpu: name */
} cuemu_xml_setting_t;

typedef struct {
    const char          *path;
    char                *errbuf;
    int                 num_cpus;
    int                 num_pci;
    int                 num_gpus;
    int                 num_settings;
    int                 num_nets;
    int                 num_others;   /* <cpu> of other hosts: passed over */
    char                host[32];     /* host_hash of the first <cpu> */
    cuemu_xml_cpu_t     cpus[CUEMU_XML_MAX_CPUS];
    cuemu_xml_pci_t     pci[CUEMU_XML_MAX_PCI];
    cuemu_xml_gpu_t     gpus[CUEMU_MAX_GPUS];
    cuemu_xml_net_t     nets[CUEMU_XML_MAX_NETS];
    cuemu_xml_setting_t settings[CUEMU_XML_MAX_SETTINGS];
} cuemu_xml_t;

/* Fills xml; the caller has set path and errbuf and zeroed the rest. */
cuemu_status_t cuemu_xml_read(cuemu_xml_t *xml);

/* cuemu_node_load() of what is read. */
cuemu_status_t cuemu_node_build(cuemu_xml_t *xml, cuemu_node_t *node_p);

/*
 * Writes what sysfs shows of the node's PCIe tree, NUMA nodes and network
 * devices below `folder`, which is made. Its path has at most 512 characters.
 */
cuemu_status_t cuemu_sysfs_write(const cuemu_xml_t *xml, const char *folder);

/* Writes "path:line: text" to errbuf and returns CUEMU_ERR_PARSE. */
cuemu_status_t cuemu_xml_error(const cuemu_xml_t *xml, int line,
                               const char *format, ...)
        __attribute__((format(printf, 3, 4)));

/* "1:2:3.0" and the like in the one form that we use; 0 if it is no bus id. */
int cuemu_xml_busid(const char *text, char *busid_p);

#endif
