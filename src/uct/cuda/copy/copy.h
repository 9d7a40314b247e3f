/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The room for a copy. A transport knows addresses, keys and endpoints; from
 * those it fills in one uct_cuda_copy_t, and all that follows is here.
 *
 *   copy.h     one description: two ends, bytes, direction, completion
 *   where.c    the one rule for the context that a copy runs in
 *   post.c     check, choose the context, keep the order of a stream, submit
 *   method.c   one copy as one operation, by the first method that can carry it
 *   group.c    many small copies as one operation with many completions
 *   batch.c    ... carried by one call of the driver's, or a call a copy
 *   kernel.c   ... or by a kernel of ours
 *
 * A method is a row {name, test, wake, end} that the queue follows an operation
 * by (base/queue.h), with what it can carry and how it starts (method.c):
 *
 *   engine     over several links               multipath/
 *   threads    pageable and peers' host memory  base/host/host_pipeline.h
 *   slot       little, from a peer to the host  base/host/host_bounce.h
 *   driver     one copy a piece of memory       base/host/host_pieces.h
 *   batch      copies of a group                batch.c
 *   kernel     blocks of a group                kernel.c
 *   peer       requests to a process's server   cuda_cma/cuda_cma_channel.c
 *
 * What an operation holds (mappings, slots, jobs, counts on links) is given
 * back by its method's end(), and nowhere else.
 */
#ifndef UCT_CUDA_COPY_COPY_H
#define UCT_CUDA_COPY_COPY_H

#include <uct/abi/abi.h>
#include <uct/cuda/base/host/host_pipeline.h>
#include <uct/cuda/base/memory.h>
#include <uct/cuda/node/rkey.h>

#include <stdbool.h>
#include <stddef.h>


/** Where a copy's bytes are at one end. */
typedef struct {
    const uct_cuda_node_rkey_t *key;    /**< Of a peer's GPU memory, or NULL */
    const uct_cuda_host_remote_t *by;   /**< By it threads reach a peer's host
                                             memory, or NULL */
    CUdeviceptr                address; /**< In the process that has it */
    uct_cuda_end_t             end;     /**< GPU, host or host VMM memory */
    CUcontext                  context; /**< That GPU memory of this process
                                             belongs to, or NULL */
} uct_cuda_copy_end_t;


/** A copy between memory of this process and other memory. */
typedef struct {
    uct_cuda_copy_end_t local;  /**< Memory of this process */
    uct_cuda_copy_end_t remote; /**< A peer's, or of this process, too */
    size_t              bytes;
    bool                is_put; /**< From local to remote */
    uct_completion_t    *comp;  /**< Told at the end; may be NULL */
} uct_cuda_copy_t;


/** Fill in what a transport knows; where memory is, is found out later. */
static inline void
uct_cuda_copy_init(uct_cuda_copy_t *copy, const void *local,
                   const uct_cuda_node_rkey_t *key, uint64_t remote,
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

static inline const uct_cuda_copy_end_t *
uct_cuda_copy_src(const uct_cuda_copy_t *copy)
{
    return copy->is_put ? &copy->local : &copy->remote;
}

static inline const uct_cuda_copy_end_t *
uct_cuda_copy_dst(const uct_cuda_copy_t *copy)
{
    return copy->is_put ? &copy->remote : &copy->local;
}

/** Find out where memory of this process is. */
static inline void uct_cuda_copy_place(uct_cuda_copy_end_t *end)
{
    uct_cuda_memory_place((void*)end->address, &end->end, &end->context);
}

/** Is one end host memory that the CPU can touch? */
static inline bool uct_cuda_copy_has_host(const uct_cuda_copy_t *copy)
{
    return uct_cuda_end_is_host(copy->local.end) ||
           uct_cuda_end_is_host(copy->remote.end);
}

/** Is one end host memory that only the driver can copy? */
static inline bool uct_cuda_copy_has_host_vmm(const uct_cuda_copy_t *copy)
{
    return uct_cuda_end_is_host_vmm(copy->local.end) ||
           uct_cuda_end_is_host_vmm(copy->remote.end);
}

#endif
