/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Rates and times of hardware generations: constants missing in node files.
 * hardware.c names the source of each.
 */
#ifndef CUEMU_HARDWARE_H_
#define CUEMU_HARDWARE_H_

#include "cuemu_core.h"

/* GPU generation. Rates are in GB/s and for one direction. */
typedef struct {
    int         sm;            /* lowest compute capability, 70 for 7.0 */
    const char  *name;
    uint64_t    memory_mib;
    int         sm_count;
    int         nvlink_version;
    int         nvlink_mbps;   /* signalling rate of a link, as NVML reports it,
                                  MB/s */
    double      nvlink_gbps;   /* rate of a copy over one link */
    double      local_gbps;    /* rate of a copy inside the GPU's memory */
    double      pcie_gtps;     /* signalling rate of a PCIe lane, GT/s */
} cuemu_gpu_model_t;

/* Return the newest generation that is not above compute capability `sm` (75
   gives that of 70). `sm` >= 0; never NULL. */
const cuemu_gpu_model_t *cuemu_gpu_model(int sm);

/* Return the most shared memory of a block on a GPU of compute capability `sm`,
   in bytes. A block reserves as many more as *reserved_p (NULL: not needed). */
int cuemu_shared_bytes(int sm, int *reserved_p);

/* Return the rate of a copy over one PCIe lane of `gtps` GT/s, in GB/s, and the
   PCIe generation in *gen_p; 0 if unknown. */
double cuemu_pcie_lane_gbps(double gtps, int *gen_p);

/* Return the rate of a copy over one NVLink-C2C link with a signalling rate of
   `mbps` MB/s, in GB/s. */
double cuemu_c2c_gbps(double mbps);

/* Host memory and sockets, by CPU architecture. Rates are in GB/s. */
typedef struct {
    const char *arch;
    double     dram_read_gbps;   /* reads of one NUMA node's memory by
                                    devices */
    double     dram_write_gbps;
    double     socket_gbps;      /* between two NUMA nodes, one direction */
    double     memcpy_gbps;      /* one CPU thread, limits pageable copies */
    int        remote_p2p_sm;    /* lowest compute capability with peer access
                                    between sockets */
} cuemu_host_model_t;

/* Return the model of an architecture by the beginning of its name ("ppc64le"
   gives "ppc64"); of an unknown or empty one, a default. Never NULL. */
const cuemu_host_model_t *cuemu_host_model(const char *arch);

/* Convert microseconds to emulated time. */
cuemu_time_t cuemu_us(double us);

/* Fixed times of a copy, in microseconds. */
typedef struct {
    const char *name;            /* name of the kind of route in <cuemu>
                                    elements */
    double     launch_us;
    double     setup_us;
    double     complete_us;
} cuemu_copy_model_t;

typedef enum {
    CUEMU_ROUTE_LOCAL,           /* inside one GPU */
    CUEMU_ROUTE_PEER,            /* GPU to GPU */
    CUEMU_ROUTE_STAGED,          /* GPU to GPU without peer access, through the
                                    host */
    CUEMU_ROUTE_H2D,
    CUEMU_ROUTE_D2H,
    CUEMU_ROUTE_PAGEABLE_H2D,
    CUEMU_ROUTE_PAGEABLE_D2H,
    CUEMU_ROUTE_HOST,            /* host to host */
    CUEMU_ROUTE_LAST
} cuemu_route_kind_t;

extern const cuemu_copy_model_t cuemu_copy_models[CUEMU_ROUTE_LAST];

typedef struct {
    const char *name;            /* call's name in <cuemu> elements */
    double     us;
} cuemu_call_model_t;

extern const cuemu_call_model_t cuemu_call_models[CUEMU_CALL_LAST];

/* Set the costs of driver calls on a node with GPUs of compute capability `sm`
   (80 for 8.0). */
void cuemu_cost_defaults(cuemu_cost_t *cost, int sm);

#endif
