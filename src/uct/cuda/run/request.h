/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a transport wants moved: made by it once, and the same through all
 * phases of the transfer.
 */
#ifndef UCT_CUDA_MP_REQUEST_H
#define UCT_CUDA_MP_REQUEST_H

#include <uct/cuda/base/driver.h>
#include <uct/cuda/plan/transfer_plan.h>

#include <stdbool.h>
#include <stddef.h>

BEGIN_C_DECLS


/**
 * Map the remote end in the current context, which is one of @a device. For the
 * local end's GPU that is the context which was current at the start; for each
 * relay of a transfer, and for the remote GPU itself when a path needs its copy
 * engines, one of the engine's. Called from within the start and with the
 * engine's lock held, so it may not call the engine.
 *
 * A mapping must stay until the transfer is released; if it does not start, all
 * may go.
 *
 * @param ptr_p  Filled with the address of the transfer's first byte.
 * @return UCS_OK, or an error: the engine then leaves that path out for all
 *         transfers from the same source GPU, and with the local end's GPU this
 *         one transfer alone.
 */
typedef ucs_status_t (*uct_cuda_mp_map_func_t)(void *arg, int device,
                                               CUdeviceptr *ptr_p);


/** A transfer, between two GPUs or between host memory and one: all that is
 *  decided by. */
typedef struct {
    uct_cuda_end_t src_end; /**< A GPU, or host memory, which ... */
    uct_cuda_end_t dst_end; /**< ... not both of them are */
    size_t         size;    /**< Bytes */
    uct_cuda_end_t remote;  /**< The one of them, or none, whose memory is
                                 another process's. The other end is this
                                 process's own. */
    bool           is_mappable; /**< The remote end's memory may be mapped more
                                     than once; the engine asks of no other.
                                     Else it takes one path. */
    int            host_numa;   /**< Node of host memory, UCT_CUDA_TOPO_NO_NUMA
                                     if unknown. Counts for such memory only. */
} uct_cuda_mp_request_t;


/**
 * Where its bytes are. Pointers must be usable by copies of this process.
 *
 * Host memory is page-locked for all contexts (CU_MEMHOSTREGISTER_PORTABLE or
 * the driver's own) and stays so until the transfer is released.
 *
 * A copy runs at full speed only through a mapping that was opened in the
 * context of its stream: 316 against 72 to 220 GB/s in chunks of 4 MiB between
 * two GPUs, 391 against 91 in one piece from a relay (measured on H200). Hence
 * a function, and no pointer, for memory of another process.
 */
typedef struct {
    CUdeviceptr            src; /**< The remote end's does not matter */
    CUdeviceptr            dst;
    uct_cuda_mp_map_func_t map; /**< Of a remote end */
    void                   *map_arg;
    uint64_t               allocation; /**< Tells its allocation apart */
    /** Where in host memory, in bytes and ascending, one registration ends and
     *  another begins: the driver refuses a copy across. */
    unsigned               num_boundaries;
    const size_t           *boundaries;
    /** For the engine: the remote end in GPUs' contexts, or 0; and where the
     *  plan's first byte is in the transfer */
    CUdeviceptr            mapped[UCT_CUDA_MAX_GPUS];
    size_t                 offset;
} uct_cuda_mp_memory_t;


/** Is one of the ends host memory? */
static inline bool uct_cuda_mp_ends_is_host(const uct_cuda_mp_request_t *ends)
{
    return uct_cuda_mp_plan_ends_host(ends->src_end, ends->dst_end);
}


END_C_DECLS

#endif
