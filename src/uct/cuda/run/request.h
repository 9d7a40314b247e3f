/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Request of a transport to move data, unchanged through all phases of the
 * transfer.
 */
#ifndef UCT_CUDA_RUN_REQUEST_H
#define UCT_CUDA_RUN_REQUEST_H

#include <uct/cuda/base/driver.h>
#include <uct/cuda/plan/transfer_plan.h>

#include <stdbool.h>
#include <stddef.h>

BEGIN_C_DECLS


/**
 * Map the remote end in the current context, which belongs to @a device. For
 * the local end's GPU it is the context current at the start; for each relay,
 * and for the remote GPU if a path needs its copy engines, one of the engine.
 * Called during the start with the engine's lock held, so it must not call the
 * engine.
 *
 * A mapping must stay until the transfer is released. If the transfer does not
 * start, all mappings may be released.
 *
 * @param ptr_p  Filled with the address of the transfer's first byte.
 * @return UCS_OK, or an error: the engine then omits that path for all
 *         transfers from the same source GPU; with the local end's GPU, for
 *         this transfer only.
 */
typedef ucs_status_t (*uct_cuda_run_map_func_t)(void *arg, int device,
                                                CUdeviceptr *ptr_p);


/** Transfer between two GPUs, or between host memory and a GPU. */
typedef struct {
    uct_cuda_end_t src_end; /**< GPU, or host memory */
    uct_cuda_end_t dst_end; /**< GPU, or host memory if src_end is a GPU */
    size_t         size;    /**< Bytes */
    /** End with memory of another process, or none. The other end belongs to
     *  this process. */
    uct_cuda_end_t remote;
    /** The remote memory may be mapped in more contexts; otherwise one path
     *  is used */
    bool           is_mappable;
    /** The local GPU's memory belongs to no context (cuMemCreate, pools): other
     *  GPUs have no access */
    bool           is_unowned;
    /** NUMA node of host memory, UCT_CUDA_TOPO_NO_NUMA if unknown */
    int            host_numa;
} uct_cuda_run_request_t;


/**
 * Location of the data. Copies of this process must be able to use the
 * pointers.
 *
 * Host memory is page-locked for all contexts (CU_MEMHOSTREGISTER_PORTABLE, or
 * by the driver) until the transfer is released.
 *
 * A copy is fast only through a mapping opened in the context of its stream:
 * 316 against 72 to 220 GB/s in chunks of 4 MiB between two GPUs, 391 against
 * 91 in one piece from a relay (measured on H200). So memory of another process
 * is given by a function instead of a pointer.
 */
typedef struct {
    CUdeviceptr             src; /**< Ignored for a remote end */
    CUdeviceptr             dst;
    uct_cuda_run_map_func_t map; /**< Of a remote end */
    void                    *map_arg;
    uint64_t                allocation; /**< Distinguishes allocations */
    /** Offsets in host memory, bytes, ascending, at which a registration
     *  ends and another begins: the driver refuses a copy across. */
    unsigned                num_boundaries;
    const size_t            *boundaries;
    /** For the engine: addresses of the remote end in GPUs' contexts, or 0;
     *  and the offset of the plan's first byte in the transfer */
    CUdeviceptr             mapped[UCT_CUDA_MAX_GPUS];
    size_t                  offset;
} uct_cuda_run_memory_t;


/** Return whether one end is host memory. */
static inline bool
uct_cuda_run_request_is_host(const uct_cuda_run_request_t *ends)
{
    return uct_cuda_plan_ends_host(ends->src_end, ends->dst_end);
}


END_C_DECLS

#endif
