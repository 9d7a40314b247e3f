/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * What hardware of a generation can do: constants that a node file does not
 * hold, each with its source in hardware.c.
 */
#ifndef CUEMU_HARDWARE_H_
#define CUEMU_HARDWARE_H_

#include "cuemu_core.h"

/* GPU generation. Rates in GB/s, one way. */
typedef struct {
    int         sm;            /* first compute capability it holds for */
    const char  *name;
    uint64_t    memory_mib;
    int         sm_count;
    int         nvlink_version;
    int         nvlink_mbps;   /* what NVML reports for a link */
    double      nvlink_gbps;   /* what a copy gets out of a link */
    double      local_gbps;    /* copy inside the GPU's memory */
    double      pcie_gtps;     /* of a lane */
} cuemu_gpu_model_t;

const cuemu_gpu_model_t *cuemu_gpu_model(int sm);

/* One PCIe lane of `gtps` GT/s: what a copy gets out of it. 0 if unknown. */
double cuemu_pcie_lane_gbps(double gtps, int *gen_p);

/* One NVLink-C2C link that signals at `mbps`: what a copy gets out of it. */
double cuemu_c2c_gbps(double mbps);

/* Host by architecture. */
typedef struct {
    const char *arch;
    double     dram_read_gbps;   /* one NUMA node, by devices */
    double     dram_write_gbps;
    double     socket_gbps;      /* between two NUMA nodes, one way */
    double     memcpy_gbps;      /* one CPU thread, pageable copies */
    int        remote_p2p_sm;    /* peers across sockets from this capability */
} cuemu_host_model_t;

const cuemu_host_model_t *cuemu_host_model(const char *arch);

/* Fixed times of a copy, in microseconds. */
typedef struct {
    const char *name;            /* of the kind of route, for <cuemu> */
    double     launch_us;
    double     setup_us;
    double     complete_us;
} cuemu_copy_model_t;

typedef enum {
    CUEMU_ROUTE_LOCAL,           /* inside one GPU */
    CUEMU_ROUTE_PEER,            /* GPU to GPU */
    CUEMU_ROUTE_STAGED,          /* GPU to GPU without peer access */
    CUEMU_ROUTE_H2D,
    CUEMU_ROUTE_D2H,
    CUEMU_ROUTE_PAGEABLE_H2D,
    CUEMU_ROUTE_PAGEABLE_D2H,
    CUEMU_ROUTE_HOST,            /* host to host */
    CUEMU_ROUTE_LAST
} cuemu_route_kind_t;

extern const cuemu_copy_model_t cuemu_copy_models[CUEMU_ROUTE_LAST];

typedef struct {
    const char *name;            /* for <cuemu> */
    double     us;
} cuemu_call_model_t;

extern const cuemu_call_model_t cuemu_call_models[CUEMU_CALL_LAST];

/* What calls cost on a node whose GPUs are of compute capability `sm`. */
void cuemu_cost_defaults(cuemu_cost_t *cost, int sm);

#endif
