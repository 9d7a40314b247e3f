/* SPDX-License-Identifier: BSD-3-Clause */

/* Graphs: what their building (graph.c), the capture of streams (capture.c) and
   kernels (kernel.c) know of each other. */
#ifndef CUEMU_GRAPH_H_
#define CUEMU_GRAPH_H_

#include "cuemu_driver.h"

/* A kernel with its arguments, as often as it is launched */
typedef struct cuemu_job cuemu_job_t;

typedef union {
    CUDA_MEMCPY3D               copy;
    CUDA_MEMSET_NODE_PARAMS_v1  fill;
    CUDA_HOST_NODE_PARAMS_v1    host;
    CUevent                     event;
    cuemu_job_t                *kernel;
} cuemu_gparams_t;

/* `node_p` behind `deps`. `params` of a kernel: the node has a hold of its own.
   `ctx`: of copies, fills and kernels. */
CUresult cuemu_graph_add(CUgraphNode *node_p, CUgraph graph,
                         const CUgraphNode *deps, size_t num_deps, int type,
                         const cuemu_gparams_t *params, cuemu_context_t *ctx);

CUresult cuemu_graph_new(CUgraph *graph_p);
void cuemu_graph_delete(CUgraph graph);

/* Non-zero if `from` is `to` or comes before it. */
int cuemu_graph_reaches(CUgraphNode to, CUgraphNode from);

void cuemu_job_hold(cuemu_job_t *job);
void cuemu_job_drop(cuemu_job_t *job);

/* Room for so many launches more; without a lock. */
void cuemu_job_reserve(unsigned count);

/* Launches it once more, behind `deps`, in room that was reserved. Returns what
   ends with it, 0 if out of memory. With cuemu_lock(). */
cuemu_op_id_t cuemu_job_launch(const cuemu_job_t *job,
                               const cuemu_op_id_t *deps, unsigned num_deps,
                               cuemu_time_t at);

#endif
