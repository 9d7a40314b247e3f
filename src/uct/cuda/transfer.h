/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The one front of all copies that a queue's operations stand for, whichever
 * transport has them made. What is to be copied, between which ends, goes in,
 * and it says and does how:
 *
 *   by the engine  over several links, if it gains by that;
 *   by threads     through their page-locked slots, host memory most of which
 *                  is not page-locked (host/host_pipeline.h);
 *   by a slot      what is little and comes from a peer to host memory
 *                  (host/host_bounce.h);
 *   by the driver  one copy; of host memory, a copy a piece that is locked, or
 *                  not (host/host_pieces.h).
 *
 * From which sizes on is in host/host_limits.h; the engine has its own.
 */
#ifndef UCT_CUDA_TRANSFER_H
#define UCT_CUDA_TRANSFER_H

#include <uct/cuda/base/host/host_pieces.h>
#include <uct/cuda/base/host/host_pipeline.h>
#include <uct/cuda/base/queue.h>
#include <uct/cuda/multipath/multipath.h>

#include <ucs/sys/compiler_def.h>

BEGIN_C_DECLS


typedef enum {
    UCT_CUDA_BY_ENGINE,
    UCT_CUDA_BY_THREADS,
    UCT_CUDA_BY_SLOT,
    UCT_CUDA_BY_DRIVER
} uct_cuda_way_t;


/** One under way. The caller's memory, from the start to the end. */
typedef struct {
    uct_cuda_way_t         way;
    uct_cuda_end_t         src_end;
    uct_cuda_end_t         dst_end;
    size_t                 size;   /**< Bytes */
    void                   *host;  /**< The end that is host memory, or NULL */
    void                   *slot;  /**< It comes here first; or NULL */
    uint64_t               begin;  /**< For a timeline */
    uct_cuda_host_pieces_t pieces; /**< None if it was not looked at */
} uct_cuda_transfer_t;


/**
 * Submit a copy to the operation's stream, whose context is current, or have it
 * carried out otherwise; the operation is to be posted then, and its done() to
 * end the transfer.
 *
 * @param engine   NULL: there is none.
 * @param request  At least one byte. Without a remote end, both are of this
 *                 process, and is_mappable says that other GPUs can be let
 *                 reach the memory; host_numa is found out.
 * @param memory   Needed during the start only.
 *
 * @return UCS_OK, or an error after which nothing is under way and nothing is
 *         to be ended: UCS_ERR_NO_MEMORY, what mapping or the driver answered.
 */
ucs_status_t uct_cuda_transfer_start(uct_cuda_mp_engine_t *engine,
                                     uct_cuda_mp_request_t *request,
                                     uct_cuda_mp_memory_t *memory,
                                     uct_cuda_transfer_t *transfer,
                                     uct_cuda_op_t *op);

/** The operation is over. */
void uct_cuda_transfer_end(uct_cuda_transfer_t *transfer);


/** Have the operation follow a job, and give it back before done(). */
void uct_cuda_op_follow_job(uct_cuda_op_t *op, uct_cuda_host_job_t *job);


/** Have the engine count an operation that is one copy, until that is over, as
 *  uct_cuda_mp_single_begin() does. */
void uct_cuda_op_count(uct_cuda_op_t *op, uct_cuda_mp_engine_t *engine,
                       uct_cuda_end_t src, uct_cuda_end_t dst, size_t size);


END_C_DECLS

#endif
