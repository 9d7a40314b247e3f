/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies between host memory and a GPU's, this process's or a peer's: the one
 * front of this folder, for both transports. A range of host memory, one of GPU
 * memory and a direction go in, and it says and does how:
 *
 *   by the engine  over the links of several GPUs, if all of the host memory is
 *                  page-locked and the engine gains by that;
 *   by threads     through their page-locked slots, if most of it is not
 *                  (host_pipeline.h);
 *   by a slot      for what is little and comes from a peer (host_bounce.h);
 *   by the driver  a copy a piece that is locked, or not (host_pieces.h).
 *
 * From which sizes on is in host_limits.h.
 */
#ifndef UCT_CUDA_BASE_HOST_HOST_TRANSFER_H
#define UCT_CUDA_BASE_HOST_HOST_TRANSFER_H

#include <uct/cuda/base/host/host_pieces.h>
#include <uct/cuda/base/queue.h>
#include <uct/cuda/multipath/multipath.h>

#include <ucs/sys/compiler_def.h>

#include <stdbool.h>

BEGIN_C_DECLS


typedef enum {
    UCT_CUDA_HOST_BY_ENGINE,
    UCT_CUDA_HOST_BY_THREADS,
    UCT_CUDA_HOST_BY_SLOT,
    UCT_CUDA_HOST_BY_DRIVER
} uct_cuda_host_way_t;


/** What is to be copied. */
typedef struct {
    void                   *host;
    size_t                 length;    /**< Bytes, at least 1 */
    bool                   to_gpu;    /**< Else from it */
    uct_cuda_end_t         gpu_end;   /**< The GPU, or hidden */
    bool                   may_split; /**< Other GPUs can be let reach it */

    /** Of this process: its address */
    CUdeviceptr            gpu;

    /** Of a peer: maps it for the engine; NULL: it is of this process. And maps
     *  it in the operation's context, which is current; logs errors. */
    uct_cuda_mp_map_func_t map;
    ucs_status_t           (*map_stream)(void *arg, CUdeviceptr *gpu_p);
    void                   *arg;
} uct_cuda_host_request_t;


/** One under way. The caller's memory, from the start to the end. */
typedef struct {
    uct_cuda_host_way_t    way;
    void                   *host;
    size_t                 length;
    void                   *bounce; /**< It comes here first; or NULL */
    bool                   to_gpu;
    uct_cuda_end_t         gpu_end;
    uint64_t               begin;   /**< For a timeline */
    uct_cuda_host_pieces_t pieces;  /**< Held; none if it was not looked at */
} uct_cuda_host_transfer_t;


/**
 * Submit a copy to the operation's stream, whose context is current, or have it
 * carried out otherwise; the operation is to be posted then, and its done() to
 * end the transfer. What of the host memory is page-locked stays so until then.
 *
 * @param engine  NULL: there is none.
 * @return UCS_OK, or an error after which nothing is under way and nothing is
 *         to be ended: UCS_ERR_NO_MEMORY, what mapping or the driver answered.
 */
ucs_status_t uct_cuda_host_start(uct_cuda_mp_engine_t *engine,
                                 const uct_cuda_host_request_t *request,
                                 uct_cuda_host_transfer_t *transfer,
                                 uct_cuda_op_t *op);

/** The operation is over. */
void uct_cuda_host_end(uct_cuda_host_transfer_t *transfer);


END_C_DECLS

#endif
