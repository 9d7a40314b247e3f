/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies of all transports. A transport fills in one uct_cuda_copy_t. With a
 * key of a peer's GPU memory it calls uct_cuda_copy_post(), otherwise
 * uct_cuda_copy_enter() and uct_cuda_copy_run().
 *
 *   copy.h     description: two ends, bytes, direction, completion
 *   post.c     copies with a key: check it, choose context and stream, submit
 *   choose_context.c
 *              location of the ends, choice of the context to copy in
 *   method.c   one copy as one operation, by the first suitable method
 *   legs.c     copies between GPUs without access to each other's memory
 *   coalesce.c many small copies as one operation with many completions
 *   batch.c    copies of a group, by one driver call or one by one
 *   kernel.c   copies of a group, by a kernel
 *
 * A method is one way to carry out a copy. It is a table {name, test, wake,
 * end}, by which the queue tracks an operation (base/queue.h). method.c has its
 * conditions and start:
 *
 *   engine     over several links               multipath/
 *   threads    pageable or a peer's host memory base/host/host_pipeline.h
 *   slot       small, from a peer to the host   base/host/host_bounce.h
 *   legs       two copies, through host memory  legs.c
 *   driver     one copy for each piece          base/host/host_pieces.h
 *   batch      copies of a group                batch.c
 *   kernel     copies of a group                kernel.c
 *   peer       requests to a peer's server      cuda_cma/cuda_cma_channel.c
 *
 * Only the method's end() releases the resources of an operation (mappings,
 * slots, jobs, link counts).
 */
#ifndef UCT_CUDA_COPY_COPY_H
#define UCT_CUDA_COPY_COPY_H

#include <uct/abi/abi.h>
#include <uct/cuda/base/host/host_pipeline.h>
#include <uct/cuda/node/rkey.h>

#include <stdbool.h>
#include <stddef.h>


/** One end of a copy. */
typedef struct {
    /** Key of a peer's GPU memory, or NULL */
    uct_cuda_node_rkey_t       *key;
    /** Access of threads to a peer's host memory, or NULL */
    const uct_cuda_host_remote_t *by;
    CUdeviceptr                address; /**< In the process owning it */
    uct_cuda_end_t             end;     /**< GPU, host or host VMM memory */
    /** Context owning GPU memory of this process, or NULL */
    CUcontext                  context;
} uct_cuda_copy_end_t;


/** Copy between memory of this process and other memory. */
typedef struct {
    uct_cuda_copy_end_t local;  /**< Memory of this process */
    uct_cuda_copy_end_t remote; /**< Memory of a peer, or of this process */
    size_t              bytes;
    bool                is_put; /**< From local to remote */
    uct_completion_t    *comp;  /**< Called at the end; may be NULL */
} uct_cuda_copy_t;


/** Fill in a copy from a transport's data; ends are located later. */
static inline void
uct_cuda_copy_init(uct_cuda_copy_t *copy, const void *local,
                   uct_cuda_node_rkey_t *key, uint64_t remote,
                   size_t bytes, bool is_put, uct_completion_t *comp)
{
    copy->local.key      = NULL;
    copy->local.address  = (CUdeviceptr)local;
    copy->remote.key     = key;
    copy->remote.by      = NULL;
    copy->remote.address = remote;
    copy->bytes          = bytes;
    copy->is_put         = is_put;
    copy->comp           = comp;
}

/** Return whether one end is of this kind. */
static inline bool
uct_cuda_copy_has(const uct_cuda_copy_t *copy, uct_cuda_end_kind_t kind)
{
    return (copy->local.end.kind == kind) || (copy->remote.end.kind == kind);
}

#endif
