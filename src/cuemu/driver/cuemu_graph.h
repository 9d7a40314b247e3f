/* SPDX-License-Identifier: BSD-3-Clause */

/* Graphs: shared by graph.c, by capture.c for captured streams, by job.c and
   kernel.c for kernels. */
#ifndef CUEMU_GRAPH_H_
#define CUEMU_GRAPH_H_

#include "cuemu_work.h"

/* A kernel with its arguments, launched any number of times */
typedef struct cuemu_job cuemu_job_t;

typedef union {
    CUDA_MEMCPY3D               copy;
    CUDA_MEMSET_NODE_PARAMS_v1  fill;
    CUDA_HOST_NODE_PARAMS_v1    host;
    CUevent                     event;
    cuemu_job_t                *kernel;
} cuemu_gparams_t;

/* Add a node behind `deps` and return it in *node_p. Takes no modelled time.
   `params` is copied (NULL: empty node); a kernel node takes a reference to
   params->kernel. `ctx` is the context of copies, fills and kernels.
   INVALID_VALUE if a dependency is listed twice or of another graph. */
CUresult cuemu_graph_add(CUgraphNode *node_p, CUgraph graph,
                         const CUgraphNode *deps, size_t num_deps, int type,
                         const cuemu_gparams_t *params, cuemu_context_t *ctx);

CUresult cuemu_graph_new(CUgraph *graph_p);
void cuemu_graph_delete(CUgraph graph);

/* Return non-zero if `to` is `from` or depends on it. */
int cuemu_graph_reaches(CUgraphNode to, CUgraphNode from);

typedef struct cuemu_exec cuemu_exec_t;

/* Return a valid executable graph, or NULL. With a node of a context that was
   reset or destroyed, launching ends the program and destroying never returns
   (seen on H100, driver 580). */
cuemu_exec_t *cuemu_exec_check(CUgraphExec handle);

/* Launch a graph in a stream. `begin`: when the call began. */
CUresult cuemu_exec_launch(cuemu_exec_t *exec, cuemu_stream_t *stream,
                           cuemu_time_t begin);

/* Replace the kernel of an executable graph's node by one of the same context.
   INVALID_VALUE if it has no such node. */
CUresult cuemu_exec_set_kernel(CUgraphExec exec, CUgraphNode node,
                               cuemu_job_t *job, const cuemu_context_t *ctx);

/* Add a reference to a job. */
void cuemu_job_hold(cuemu_job_t *job);
/* Drop a reference to a job; the last one frees the job. */
void cuemu_job_drop(cuemu_job_t *job);

/* Wait until `count` more launches fit beside the unfinished ones. Nothing is
   set aside: another thread may launch first. Call without a lock. */
void cuemu_job_reserve(unsigned count);

/* Launch a copy of the job behind `deps`, after cuemu_job_reserve(). Returns an
   operation that ends with the kernel, 0 if out of memory. Call with
   cuemu_lock(). */
cuemu_op_id_t cuemu_job_launch(const cuemu_job_t *job,
                               const cuemu_op_id_t *deps, unsigned num_deps,
                               cuemu_time_t at);

#endif
