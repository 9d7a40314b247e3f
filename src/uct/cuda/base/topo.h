/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How the node's GPUs are wired: all that the planner knows of the hardware,
 * as plain data that a test can write down.
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
#define UCT_CUDA_TOPO_LINK_LIMITS 8 /**< Of one link */
#define UCT_CUDA_TOPO_NO_LIMIT    (-1)
#define UCT_CUDA_TOPO_NO_NUMA     (-1) /**< The node is not known */


/** What a shared limit is the limit of. */
typedef enum {
    UCT_CUDA_TOPO_LIMIT_NVLINK, /**< A GPU's ports to NVSwitches */
    UCT_CUDA_TOPO_LIMIT_HOST,   /**< A GPU's link to the host, or the one above
                                     a PCIe switch */
    UCT_CUDA_TOPO_LIMIT_MEMORY, /**< Memory of a NUMA node */
    UCT_CUDA_TOPO_LIMIT_SOCKET  /**< A link between two sockets */
} uct_cuda_topo_limit_kind_t;


/** What a copy in one direction between two places gets when it is alone. */
typedef struct {
    double  bandwidth; /**< Bytes/s in effect; 0: no such link */
    double  latency;   /**< Seconds from submission to seen completion of an
                            empty copy */
    bool    is_doubtful; /**< Sources disagree on the bandwidth, which is the
                              largest: good for a direct path, for no other */
    /** Entries of uct_cuda_topo_t.limits that copies over this link share with
     *  others, or NO_LIMIT */
    int16_t limits[UCT_CUDA_TOPO_LINK_LIMITS];
} uct_cuda_topo_link_t;


typedef struct {
    uint8_t              uuid[16];
    uint32_t             pci_domain;
    uint8_t              pci_bus;
    uint8_t              pci_device;
    uint8_t              pci_function;
    int                  numa; /**< NUMA node that it is near; 0 if unknown */
    uct_cuda_topo_link_t to_host;   /**< To memory of that node ... */
    uct_cuda_topo_link_t from_host; /**< ... and back */
} uct_cuda_topo_gpu_t;


/** A NUMA node of the host. */
typedef struct {
    int     os_index;
    int     socket;
    int16_t write; /**< Limit of what GPUs write to its memory, or NO_LIMIT */
    int16_t read;  /**< ... and read of it */
} uct_cuda_topo_numa_t;


/**
 * The GPUs that this process sees, by ordinal. Other processes may number them
 * differently: GPUs are matched between processes by UUID.
 */
typedef struct {
    int                  num_gpus;
    uct_cuda_topo_gpu_t  gpus[UCT_CUDA_MAX_GPUS];
    /** [from][to]; bandwidth 0 where the driver offers no peer access */
    uct_cuda_topo_link_t links[UCT_CUDA_MAX_GPUS][UCT_CUDA_MAX_GPUS];
    int                  num_numa;
    uct_cuda_topo_numa_t numa[UCT_CUDA_TOPO_MAX_NUMA];
    /** [from][to] of numa[]: limit of what goes between their sockets, or
     *  NO_LIMIT */
    int16_t              sockets[UCT_CUDA_TOPO_MAX_NUMA]
                                [UCT_CUDA_TOPO_MAX_NUMA];
    int                  num_limits;
    /** Bytes/s that all copies through one piece of hardware share: a GPU's
     *  ports to an NVSwitch, its PCIe link, the link above a PCIe switch, the
     *  host's memory, a link between sockets; each direction by itself */
    double               limits[UCT_CUDA_TOPO_MAX_LIMITS];
    uint8_t              kinds[UCT_CUDA_TOPO_MAX_LIMITS]; /**< Of these */
} uct_cuda_topo_t;


/**
 * The node, probed once a process at the first call (30 to 60 ms on a node with
 * NVLink, most of it NVML's). NULL without a driver. Any thread. Creates no
 * context.
 */
const uct_cuda_topo_t *uct_cuda_topo_get(void);


/** Does uct_cuda_topo_get() take no time? */
bool uct_cuda_topo_is_known(void);


/** Have uct_cuda_topo_get() say this, or with NULL the truth again. For tests,
 *  before other threads run. */
void uct_cuda_topo_override(const uct_cuda_topo_t *topo);


/** Probe now, into @a topo. UCS_OK or UCS_ERR_NO_DEVICE. */
ucs_status_t uct_cuda_topo_probe(uct_cuda_topo_t *topo);


/** A topology of @a num_gpus GPUs that have no links yet. */
void uct_cuda_topo_init(uct_cuda_topo_t *topo, int num_gpus);


/** Add a shared limit, bytes/s. @return its number, or NO_LIMIT when full. */
int uct_cuda_topo_add_limit(uct_cuda_topo_t *topo,
                            uct_cuda_topo_limit_kind_t kind, double bandwidth);


/** Let a link share one more limit; NO_LIMIT, or one that it has already,
 *  changes nothing. A limit below the link's bandwidth lowers that. */
void uct_cuda_topo_link_add_limit(const uct_cuda_topo_t *topo,
                                  uct_cuda_topo_link_t *link, int limit);


/** Describe one direction between two GPUs, bandwidth in bytes/s. */
void uct_cuda_topo_set_link(uct_cuda_topo_t *topo, int from, int to,
                            double bandwidth, int limit_from, int limit_to);


/** Describe a GPU's way to host memory and back, bandwidth in bytes/s. */
void uct_cuda_topo_set_host(uct_cuda_topo_t *topo, int gpu, double bandwidth,
                            int limit_to_host, int limit_from_host);


/**
 * A GPU's way to (@a to_host) or from memory of any NUMA node: that of its own
 * node, and the link between the sockets where there is one in between.
 *
 * @param numa  As the system numbers it; an unknown one is the GPU's own.
 */
uct_cuda_topo_link_t uct_cuda_topo_host_link(const uct_cuda_topo_t *topo,
                                             int gpu, int numa, int to_host);


END_C_DECLS

#endif
