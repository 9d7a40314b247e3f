/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hardware of the node as reported: GPUs, NVLinks, PCIe switches, NUMA nodes;
 * counts and speeds. uct_cuda_topo_build() turns it into the planner's
 * topology.
 */
#ifndef UCT_CUDA_BASE_WIRING_H
#define UCT_CUDA_BASE_WIRING_H

#include <uct/cuda/base/topo.h>

#include <stdbool.h>
#include <stddef.h>

BEGIN_C_DECLS


#define UCT_CUDA_WIRING_MAX_SWITCHES 32 /**< PCIe switches */
#define UCT_CUDA_WIRING_MAX_PEERS    24 /**< Far ends of a GPU's NVLinks */
#define UCT_CUDA_WIRING_NONE         (-1)


typedef struct {
    uint32_t domain;
    uint8_t  bus;
    uint8_t  device;
    uint8_t  function;
} uct_cuda_bus_id_t;


/** Far end of an NVLink. */
typedef enum {
    UCT_CUDA_WIRING_GPU,
    UCT_CUDA_WIRING_SWITCH,  /**< NVSwitch */
    UCT_CUDA_WIRING_CPU,     /**< POWER9 */
    UCT_CUDA_WIRING_HIDDEN,  /**< A GPU hidden from this process */
    UCT_CUDA_WIRING_UNKNOWN  /**< Hidden by a virtual machine */
} uct_cuda_wiring_end_t;


/** NVLinks of one GPU with the same far end. */
typedef struct {
    uct_cuda_wiring_end_t end;
    int                   gpu;    /**< Ordinal, or NONE */
    unsigned              count;
    uct_cuda_bus_id_t     bus_id; /**< Zeroed if not queried */
} uct_cuda_wiring_peer_t;


/** PCI Express link: both zero if unknown. */
typedef struct {
    unsigned generation;
    unsigned width; /**< Lanes */
} uct_cuda_wiring_pcie_t;


typedef struct {
    uint8_t                uuid[16];
    char                   name[64];
    size_t                 memory; /**< Bytes */
    int                    sm;     /**< Compute capability, times 10 */
    uct_cuda_bus_id_t      bus_id;
    int                    numa;       /**< Index in numa[], or NONE */
    int                    pci_switch; /**< Switch above it, or NONE */
    uct_cuda_wiring_pcie_t pcie;       /**< As reported by its slower end */
    /** Capability of the GPU, from sysfs or NVML */
    uct_cuda_wiring_pcie_t pcie_own;
    unsigned               lanes;      /**< In use; 0 unknown */
    bool                   is_mig;         /**< A MIG partition of a GPU */
    unsigned               nvlink_version; /**< In NVML's numbering */
    /** Signalling rate of a link, bytes/s, one way; 0 unknown */
    double                 nvlink_rate;
    /** NVLink-C2C links to the processor (Grace) */
    unsigned               num_c2c;
    double                 c2c_rate;       /**< Their total signalling rate */
    unsigned               nvlinks_down;   /**< Present but not active */
    unsigned               num_peers;
    uct_cuda_wiring_peer_t peers[UCT_CUDA_WIRING_MAX_PEERS];
} uct_cuda_wiring_gpu_t;


/** PCIe switch, identified by its upstream port. */
typedef struct {
    uct_cuda_bus_id_t      bus_id; /**< Zeroed if unknown */
    /** Switch above it, or NONE; its index is lower */
    int                    parent;
    int                    numa;   /**< Index in numa[], or NONE */
    uct_cuda_wiring_pcie_t pcie;   /**< The link above it */
} uct_cuda_wiring_switch_t;


typedef struct {
    int os_index;
    int socket;
} uct_cuda_wiring_numa_t;


/** Seconds taken by the parts of a probe. */
typedef struct {
    double driver_load;  /**< Loading the driver and cuInit, if new */
    double nvml_load;    /**< Loading NVML and nvmlInit */
    double nvml_handles; /**< nvmlDeviceGetHandleByPciBusId */
    double driver;       /**< Driver attributes */
    double nvml;         /**< NVML queries */
    double host;         /**< PCIe tree and NUMA nodes, from sysfs */
    double build;        /**< Links and limits from the wiring */
} uct_cuda_wiring_times_t;


typedef struct {
    int                      num_gpus;
    uct_cuda_wiring_gpu_t    gpus[UCT_CUDA_MAX_GPUS];
    /** [from][to]: the driver allows access; NVLink joins them (native
     *  atomics, as reported by the driver) */
    bool                     access[UCT_CUDA_MAX_GPUS]
                                   [UCT_CUDA_MAX_GPUS];
    bool                     atomics[UCT_CUDA_MAX_GPUS]
                                    [UCT_CUDA_MAX_GPUS];
    /** [from][to]: performance rank of the driver, 0 is the fastest; queried
     *  with details only */
    int                      rank[UCT_CUDA_MAX_GPUS]
                                 [UCT_CUDA_MAX_GPUS];
    int                      num_switches;
    uct_cuda_wiring_switch_t switches[UCT_CUDA_WIRING_MAX_SWITCHES];
    int                      num_numa;
    uct_cuda_wiring_numa_t   numa[UCT_CUDA_TOPO_MAX_NUMA];
    int                      num_hidden; /**< Further GPUs seen by NVML */
    bool                     has_nvml;
    bool                     has_pci; /**< sysfs knows every GPU */
    uct_cuda_wiring_times_t  times;
} uct_cuda_wiring_t;


/**
 * Query the driver, NVML and sysfs. Creates no context. Missing data is left
 * unknown and reported at debug level.
 *
 * @param details  Include data for display: names, memory, the NVSwitch of each
 *                 link.
 * @return UCS_OK, or UCS_ERR_NO_DEVICE: no driver or no GPU.
 */
ucs_status_t uct_cuda_wiring_probe(uct_cuda_wiring_t *wiring, bool details);


/** Build links and shared limits from the wiring: a pure function.
 *  Bandwidths are those available to copies for each kind of link;
 *  topo_build.c has their sources. */
void uct_cuda_topo_build(const uct_cuda_wiring_t *wiring,
                         uct_cuda_topo_t *topo);


/* Parts of a probe, in this order; each uses the GPUs found so far. */

/**
 * Query GPUs and access between them; names and memory with @a details only.
 */
ucs_status_t uct_cuda_wiring_read_driver(uct_cuda_wiring_t *wiring,
                                         bool details);

/** Query NVLinks and PCIe links of GPUs; without sysfs, also switches shared
 *  by GPUs. */
void uct_cuda_wiring_read_nvml(uct_cuda_wiring_t *wiring, bool details);

/** Query PCIe switches and NUMA nodes, from sysfs. */
void uct_cuda_wiring_read_host(uct_cuda_wiring_t *wiring);

/** Return the mount point of sysfs; libsysfs' variable for it is honoured. */
const char *uct_cuda_wiring_sysfs(void);

/** Group GPUs behind switches as reported by NVML, if sysfs reports none. */
void uct_cuda_wiring_read_nvml_switches(uct_cuda_wiring_t *wiring);


/* Helpers of the parts. */


/** Parse "0000:1B:00.0", with a domain of four or eight digits. */
bool uct_cuda_bus_id_parse(const char *text, uct_cuda_bus_id_t *bus_id);

bool uct_cuda_bus_id_equal(const uct_cuda_bus_id_t *a,
                           const uct_cuda_bus_id_t *b);

/**
 * Format "0000:1b:00.0". Returns @a buffer.
 */
const char *uct_cuda_bus_id_str(const uct_cuda_bus_id_t *bus_id, char *buffer,
                                size_t size);

/** Return the index of a NUMA node, adding it if new; NONE when full. */
int uct_cuda_wiring_numa(uct_cuda_wiring_t *wiring, int os_index);

/**
 * Count an NVLink of a GPU to @a end, adding the entry if new.
 */
void uct_cuda_wiring_add_nvlink(uct_cuda_wiring_gpu_t *gpu,
                                uct_cuda_wiring_end_t end, int peer,
                                const uct_cuda_bus_id_t *bus_id);

/**
 * Determine the PCIe link of a GPU from reports that may be wrong: bridges of
 * virtual machines report 2.5 GT/s and one lane, a GPU saving power may report
 * generation 1, and many report nothing.
 *
 * @param pcie_p  The reported link, no newer than the GPU; or the fastest
 *                reported one, if the link is below a quarter of that. Zeroed
 *                if unknown.
 * @return true: sources disagree that much.
 */
bool uct_cuda_wiring_believe(const uct_cuda_wiring_gpu_t *gpu,
                             uct_cuda_wiring_pcie_t *pcie_p);

/** Return whether a link has less than a quarter of another one's signalling
 *  rate. False if either is unknown. */
bool uct_cuda_wiring_is_slow(const uct_cuda_wiring_pcie_t *pcie,
                             const uct_cuda_wiring_pcie_t *other);

/** Return seconds of a monotonic clock. */
double uct_cuda_wiring_now(void);


END_C_DECLS

#endif
