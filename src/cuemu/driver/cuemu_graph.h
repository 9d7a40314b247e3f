/* SPDX-License-Identifier: BSD-3-Clause */

/* Graphs: shared by graph.c, by capture.c for captured streams, and by kernel.c
   for kernels. */
#ifndef CUEMU_GRAPH_H_
#define CUEMU_GRAPH_H_

#include "cuemu_driver.h"

/* A kernel with its arguments, launched any number of times */
typedef struct cuemu_job cuemu_job_t;

typedef union {
    CUDA_MEMCPY3D               copy;
    CUDA_MEMSET_NODE_PARAMS_v1  fill;
    CUDA_HOST_NODE_PARAMS_v1    host;
    CUevent                     event;
    cuemu_job_t                *kernel;
} cuemu_gparams_t;

/* Add `node_p` behind `deps`. A kernel node takes a reference to `params`.
   `ctx` is the context of copies, fills and kernels. */
CUresult cuemu_graph_add(CUgraphNode *node_p, CUgraph graph,
                         const CUgraphNode *deps, size_t num_deps, int type,
                         const cuemu_gparams_t *params, cuemu_context_t *ctx);

CUresult cuemu_graph_new(CUgraph *graph_p);
void cuemu_graph_delete(CUgraph graph);

/* Non-zero if `from` is `to` or comes before it. */
int cuemu_graph_reaches(CUgraphNode to, CUgraphNode from);

void cuemu_job_hold(cuemu_job_t *job);
void cuemu_job_drop(cuemu_job_t *job);

/* Reserve room for `count` more launches. Call without a lock. */
void cuemu_job_reserve(unsigned count);

/* Launch the kernel behind `deps`, in reserved room. Returns an operation that
   ends with it, 0 if out of memory. Call with cuemu_lock(). */
cuemu_op_id_t cuemu_job_launch(const cuemu_job_t *job,
                               const cuemu_op_id_t *deps, unsigned num_deps,
                               cuemu_time_t at);

#endif
