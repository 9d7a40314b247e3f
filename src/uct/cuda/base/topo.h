/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Topology of the node's GPUs: all hardware data used by the planner, as plain
 * data that a test can write.
 */
#ifndef UCT_CUDA_BASE_TOPO_H
#define UCT_CUDA_BASE_TOPO_H

#include <ucs/sys/compiler_def.h>
#include <ucs/type/status.h>
#include <uct/cuda/base/end.h>

#include <stdbool.h>
#include <stdint.h>

BEGIN_C_DECLS


#define UCT_CUDA_TOPO_MAX_NUMA    16
#define UCT_CUDA_TOPO_MAX_LIMITS  192
#define UCT_CUDA_TOPO_LINK_LIMITS 8 /**< Of a link */
#define UCT_CUDA_TOPO_NO_LIMIT    (-1)
#define UCT_CUDA_TOPO_NO_NUMA     (-1) /**< The node is unknown */


/** Hardware behind a shared limit. */
typedef enum {
    UCT_CUDA_TOPO_LIMIT_NVLINK, /**< Ports of a GPU to NVSwitches */
    /** Link of a GPU to the host, or the link above a PCIe switch */
    UCT_CUDA_TOPO_LIMIT_HOST,
    UCT_CUDA_TOPO_LIMIT_MEMORY, /**< Memory of a NUMA node */
    UCT_CUDA_TOPO_LIMIT_SOCKET  /**< Link between two sockets */
} uct_cuda_topo_limit_kind_t;


/** Performance of a single copy in one direction between two places. */
typedef struct {
    double  bandwidth; /**< Effective bytes/s; 0: no such link */
    /** Seconds from submission to detected completion of an empty copy */
    double  latency;
    /** Sources disagree on the bandwidth, and the largest is used: only for
     *  direct paths */
    bool    is_doubtful;
    /** Limits of uct_cuda_topo_t.limits shared by copies over this link, or
     *  NO_LIMIT */
    int16_t limits[UCT_CUDA_TOPO_LINK_LIMITS];
} uct_cuda_topo_link_t;


typedef struct {
    uint8_t              uuid[16];
    uint32_t             pci_domain;
    uint8_t              pci_bus;
    uint8_t              pci_device;
    uint8_t              pci_function;
    int                  numa; /**< NUMA node near it; 0 if unknown */
    uct_cuda_topo_link_t to_host;   /**< To memory of that node */
    uct_cuda_topo_link_t from_host; /**< From memory of that node */
} uct_cuda_topo_gpu_t;


/** NUMA node of the host. */
typedef struct {
    int     os_index;
    int     socket;
    int16_t write; /**< Limit of GPU writes to its memory, or NO_LIMIT */
    int16_t read;  /**< Limit of GPU reads of its memory, or NO_LIMIT */
} uct_cuda_topo_numa_t;


/** GPUs visible to this process, by ordinal. Other processes may number them
 *  differently; UUIDs identify GPUs across processes. */
typedef struct {
    int                  num_gpus;
    int                  num_hidden; /**< Further GPUs of the node */
    uct_cuda_topo_gpu_t  gpus[UCT_CUDA_MAX_GPUS];
    /** [from][to]; bandwidth 0: the driver offers no peer access */
    uct_cuda_topo_link_t links[UCT_CUDA_MAX_GPUS][UCT_CUDA_MAX_GPUS];
    int                  num_numa;
    uct_cuda_topo_numa_t numa[UCT_CUDA_TOPO_MAX_NUMA];
    /** [from][to] of numa[]: limit between their sockets, or NO_LIMIT */
    int16_t              sockets[UCT_CUDA_TOPO_MAX_NUMA]
                                [UCT_CUDA_TOPO_MAX_NUMA];
    int                  num_limits;
    /** Bytes/s shared by all copies through one piece of hardware: a GPU's
     *  ports to an NVSwitch, its PCIe link, the link above a PCIe switch,
     *  host memory, a link between sockets; separate for each direction */
    double               limits[UCT_CUDA_TOPO_MAX_LIMITS];
    /** uct_cuda_topo_limit_kind_t of each limit */
    uint8_t              kinds[UCT_CUDA_TOPO_MAX_LIMITS];
} uct_cuda_topo_t;


/** Return the topology, probed at the first call of the process (30 to 60 ms
 *  on a node with NVLink, mostly in NVML). NULL without a driver. Thread
 *  safe. Creates no context. */
const uct_cuda_topo_t *uct_cuda_topo_get(void);


/** Return whether uct_cuda_topo_get() takes no time. */
bool uct_cuda_topo_is_known(void);


/** Let uct_cuda_topo_get() return this topology, or with NULL the real one.
 *  For tests, before other threads run. */
void uct_cuda_topo_override(const uct_cuda_topo_t *topo);


/**
 * Probe the node now, into @a topo.
 *
 * @param details  As for uct_cuda_wiring_probe().
 * @return UCS_OK, UCS_ERR_NO_DEVICE or UCS_ERR_NO_MEMORY; @a topo is unchanged
 *         without UCS_OK.
 */
ucs_status_t uct_cuda_topo_probe(uct_cuda_topo_t *topo, bool details);


/**
 * Initialize a topology of @a num_gpus GPUs without links.
 */
void uct_cuda_topo_init(uct_cuda_topo_t *topo, int num_gpus);


/** Return whether the node has an end: host memory, or one of its GPUs. */
static inline bool uct_cuda_topo_has_end(const uct_cuda_topo_t *topo,
                                         uct_cuda_end_t end)
{
    return uct_cuda_end_is_host(end) ||
           (uct_cuda_end_is_gpu(end) &&
            (uct_cuda_end_device(end) < topo->num_gpus));
}


/**
 * Add a shared limit, bytes/s.
 *
 * @return Its number, or NO_LIMIT when full
 */
int uct_cuda_topo_add_limit(uct_cuda_topo_t *topo,
                            uct_cuda_topo_limit_kind_t kind, double bandwidth);


/** Add a limit to a link; NO_LIMIT, or a limit it has already, changes
 *  nothing. A limit below the link's bandwidth lowers that. */
void uct_cuda_topo_link_add_limit(const uct_cuda_topo_t *topo,
                                  uct_cuda_topo_link_t *link, int limit);


/** Set one direction between two GPUs, bandwidth in bytes/s. */
void uct_cuda_topo_set_link(uct_cuda_topo_t *topo, int from, int to,
                            double bandwidth, int limit_from, int limit_to);


/** Set a GPU's links to and from host memory, bandwidth in bytes/s. */
void uct_cuda_topo_set_host(uct_cuda_topo_t *topo, int gpu, double bandwidth,
                            int limit_to_host, int limit_from_host);


/** Return the link from one end of the node to another, at least one of them a
 *  GPU. Host memory is that of the GPU's NUMA node. Bandwidth 0: no link. */
const uct_cuda_topo_link_t *
uct_cuda_topo_link(const uct_cuda_topo_t *topo, uct_cuda_end_t from,
                   uct_cuda_end_t to);


/**
 * Return the link from one end to another, with host memory of any NUMA node:
 * the link of the GPU's own node, plus the link between sockets if needed.
 *
 * @param numa  Number in the system; unknown: the GPU's own node.
 */
uct_cuda_topo_link_t
uct_cuda_topo_numa_link(const uct_cuda_topo_t *topo, uct_cuda_end_t from,
                        uct_cuda_end_t to, int numa);


END_C_DECLS

#endif
