/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Graphs, built node by node or captured, instantiated, updated and launched.
 * Nodes are copies, fills, host functions, events, empty nodes, and captured
 * kernels. Graphs cannot be nested.
 */
#include "cuemu_gate.h"
#include "cuemu_graph.h"

#include <stdlib.h>
#include <string.h>

typedef struct cuemu_graph cuemu_graph_t;
typedef struct cuemu_node  cuemu_gnode_t;

struct cuemu_node {
    cuemu_object_t    obj;
    cuemu_graph_t    *graph;
    cuemu_gnode_t    *next;
    int               type;       /* CUgraphNodeType */
    cuemu_gparams_t   params;
    cuemu_context_t  *ctx;        /* context of copies and fills */
    cuemu_gnode_t    *origin;     /* node it was cloned from */
    cuemu_gnode_t   **deps;
    unsigned          num_deps;
    int               index;      /* scratch of instantiation and searches */
};

struct cuemu_graph {
    cuemu_object_t  obj;
    cuemu_gnode_t  *first, *last; /* in the order of creation */
    unsigned        num_nodes;
};

/* A node of an executable graph: ready to be submitted. */
typedef struct {
    cuemu_gnode_t   *node;        /* only compared: may be deleted */
    int              type;
    int              enabled;
    cuemu_gparams_t  params;
    cuemu_context_t *ctx;
    uint64_t         ctx_id;      /* id of `ctx` at instantiation */
    CUcontext        dst_ctx, src_ctx; /* contexts of the memory at
                                          instantiation */
    unsigned        *deps;        /* smaller indices than this node's */
    unsigned         num_deps;
    int              has_next;
} cuemu_xnode_t;

struct cuemu_exec {
    cuemu_object_t  obj;
    cuemu_xnode_t  *nodes;        /* sorted: each node behind its
                                     dependencies */
    unsigned        num_nodes;
    cuemu_op_id_t   last;         /* newest launch: launches run one at a
                                     time */
    int             launched;
    unsigned long long flags;
};


static cuemu_graph_t *cuemu_graph_check(CUgraph handle)
{
    return cuemu_object_check(handle, CUEMU_OBJ_GRAPH);
}

static cuemu_gnode_t *cuemu_gnode_check(CUgraphNode handle)
{
    return cuemu_object_check(handle, CUEMU_OBJ_NODE);
}

cuemu_exec_t *cuemu_exec_check(CUgraphExec handle)
{
    cuemu_exec_t *exec = cuemu_object_check(handle, CUEMU_OBJ_EXEC);
    unsigned i;

    for (i = 0; (exec != NULL) && (i < exec->num_nodes); ++i) {
        if ((exec->nodes[i].ctx != NULL) &&
            (!exec->nodes[i].ctx->alive ||
             (exec->nodes[i].ctx->id != exec->nodes[i].ctx_id))) {
            cuemu_die("executable graph", handle);
        }
    }

    return exec;
}

/* -------------------------------------------------------------- building */

CUresult cuemu_graph_new(CUgraph *graph_p)
{
    cuemu_graph_t *graph = cuemu_object_new(CUEMU_OBJ_GRAPH, sizeof(*graph));

    if (graph == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    *graph_p = (CUgraph)graph;
    return CUDA_SUCCESS;
}

CUEMU_API(cuGraphCreate, (CUgraph *graph_p, unsigned flags), (graph_p, flags))
{
    return ((graph_p == NULL) || (flags != 0)) ? CUDA_ERROR_INVALID_VALUE :
                                                 cuemu_graph_new(graph_p);
}

static int cuemu_gnode_depends(const cuemu_gnode_t *node,
                               const cuemu_gnode_t *on)
{
    unsigned i;

    for (i = 0; i < node->num_deps; ++i) {
        if (node->deps[i] == on) {
            return 1;
        }
    }

    return 0;
}

static CUresult cuemu_gnode_add_dep(cuemu_gnode_t *node, cuemu_gnode_t *on)
{
    cuemu_gnode_t **deps;

    deps = realloc(node->deps, (node->num_deps + 1) * sizeof(*deps));
    if (deps == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    node->deps                   = deps;
    node->deps[node->num_deps++] = on;
    return CUDA_SUCCESS;
}

static void cuemu_gparams_hold(int type, const cuemu_gparams_t *params)
{
    if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
        cuemu_job_hold(params->kernel);
    }
}

static void cuemu_gparams_drop(int type, const cuemu_gparams_t *params)
{
    if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
        cuemu_job_drop(params->kernel);
    }
}

static void cuemu_gnode_free(cuemu_gnode_t *node)
{
    cuemu_gparams_drop(node->type, &node->params);
    free(node->deps);
    node->deps = NULL;
    cuemu_object_delete(node);
}

CUresult cuemu_graph_add(CUgraphNode *node_p, CUgraph handle,
                         const CUgraphNode *deps, size_t num_deps, int type,
                         const cuemu_gparams_t *params, cuemu_context_t *ctx)
{
    cuemu_graph_t *graph = cuemu_graph_check(handle);
    cuemu_gnode_t *node, *dep;
    CUresult result = CUDA_SUCCESS;
    size_t i;

    if ((graph == NULL) || (node_p == NULL) ||
        ((num_deps > 0) && (deps == NULL))) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    node = cuemu_object_new(CUEMU_OBJ_NODE, sizeof(*node));
    if (node == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    node->graph = graph;
    node->type  = type;
    node->ctx   = ctx;
    if (params != NULL) {
        node->params = *params;
    }
    cuemu_gparams_hold(type, &node->params);

    for (i = 0; (i < num_deps) && (result == CUDA_SUCCESS); ++i) {
        dep = cuemu_gnode_check(deps[i]);
        if ((dep == NULL) || (dep->graph != graph) ||
            cuemu_gnode_depends(node, dep)) {
            result = CUDA_ERROR_INVALID_VALUE;
        } else {
            result = cuemu_gnode_add_dep(node, dep);
        }
    }

    if (result != CUDA_SUCCESS) {
        cuemu_gnode_free(node);
        return result;
    }

    if (graph->last != NULL) {
        graph->last->next = node;
    } else {
        graph->first = node;
    }
    graph->last = node;
    ++graph->num_nodes;

    *node_p = (CUgraphNode)node;
    return CUDA_SUCCESS;
}

static CUresult cuemu_gnode_new(CUgraphNode *node_p, CUgraph handle,
                                const CUgraphNode *deps, size_t num_deps,
                                int type, const cuemu_gparams_t *params,
                                cuemu_context_t *ctx)
{
    CUresult result = cuemu_graph_add(node_p, handle, deps, num_deps, type,
                                      params, ctx);

    if (result == CUDA_SUCCESS) {
        cuemu_work_spend(CUEMU_CALL_GRAPH_ADD_NODE);
    }

    return result;
}

/* ----------------------------------------------------------- copy nodes */

typedef struct {
    uint64_t      dst, src;
    uint64_t      dst_pitch, src_pitch;
    uint64_t      width, height;
    cuemu_range_t dst_range, src_range;
} cuemu_gcopy_t;

/* Resolve the operands of a copy node. Call with the lock. */
static CUresult cuemu_gcopy_resolve(const CUDA_MEMCPY3D *p,
                                    const cuemu_context_t *ctx,
                                    cuemu_gcopy_t *copy)
{
    CUresult result;

    if ((p->dstMemoryType == CU_MEMORYTYPE_ARRAY) ||
        (p->srcMemoryType == CU_MEMORYTYPE_ARRAY) || (p->Depth > 1)) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }

    if ((p->WidthInBytes == 0) || (p->Height == 0) || (p->Depth == 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    copy->width     = p->WidthInBytes;
    copy->height    = p->Height;
    copy->dst_pitch = (p->dstPitch != 0) ? p->dstPitch : p->WidthInBytes;
    copy->src_pitch = (p->srcPitch != 0) ? p->srcPitch : p->WidthInBytes;
    copy->dst       = cuemu_mem_side(p->dstMemoryType, p->dstHost, p->dstDevice,
                                     copy->dst_pitch, p->dstXInBytes,
                                     p->dstZ * p->dstHeight + p->dstY);
    copy->src       = cuemu_mem_side(p->srcMemoryType, p->srcHost, p->srcDevice,
                                     copy->src_pitch, p->srcXInBytes,
                                     p->srcZ * p->srcHeight + p->srcY);
    if ((copy->dst == 0) || (copy->src == 0) ||
        ((copy->height > 1) && ((copy->dst_pitch < copy->width) ||
                                (copy->src_pitch < copy->width)))) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    result = cuemu_mem_resolve(copy->dst, (copy->height - 1) * copy->dst_pitch +
                               copy->width, ctx, &copy->dst_range);
    if (result == CUDA_SUCCESS) {
        result = cuemu_mem_resolve(copy->src, (copy->height - 1) *
                                   copy->src_pitch + copy->width, ctx,
                                   &copy->src_range);
    }

    /* Operands declared as device memory must be device memory; cuMemcpy
       detects the type only with CU_MEMORYTYPE_UNIFIED */
    if ((result == CUDA_SUCCESS) &&
        (((p->dstMemoryType == CU_MEMORYTYPE_DEVICE) &&
          copy->dst_range.pageable) ||
         ((p->srcMemoryType == CU_MEMORYTYPE_DEVICE) &&
          copy->src_range.pageable))) {
        result = CUDA_ERROR_INVALID_VALUE;
    }

    return result;
}

static CUresult cuemu_gcopy_check(const CUDA_MEMCPY3D *p, CUcontext handle,
                                  cuemu_context_t **ctx_p, cuemu_gcopy_t *copy)
{
    cuemu_context_t *ctx = cuemu_context_find(handle);
    CUresult result;

    if (ctx == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }

    if (p == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    cuemu_lock();
    result = cuemu_gcopy_resolve(p, ctx, copy);
    cuemu_unlock();
    *ctx_p = ctx;
    return result;
}

CUEMU_API(cuGraphAddMemcpyNode,
          (CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
           size_t num_deps, const CUDA_MEMCPY3D *p, CUcontext handle),
          (node, graph, deps, num_deps, p, handle))
{
    cuemu_gparams_t params;
    cuemu_context_t *ctx;
    cuemu_gcopy_t copy;
    CUresult result;

    result = cuemu_gcopy_check(p, handle, &ctx, &copy);
    if (result != CUDA_SUCCESS) {
        return result;
    }

    params.copy = *p;
    return cuemu_gnode_new(node, graph, deps, num_deps,
                           CU_GRAPH_NODE_TYPE_MEMCPY, &params, ctx);
}

CUEMU_API(cuGraphMemcpyNodeGetParams, (CUgraphNode handle, CUDA_MEMCPY3D *p),
          (handle, p))
{
    cuemu_gnode_t *node = cuemu_gnode_check(handle);

    if ((node == NULL) || (p == NULL) ||
        (node->type != CU_GRAPH_NODE_TYPE_MEMCPY)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    *p = node->params.copy;
    return CUDA_SUCCESS;
}

CUEMU_API(cuGraphMemcpyNodeSetParams,
          (CUgraphNode handle, const CUDA_MEMCPY3D *p), (handle, p))
{
    cuemu_gnode_t *node = cuemu_gnode_check(handle);
    cuemu_context_t *ctx;
    cuemu_gcopy_t copy;
    CUresult result;

    if ((node == NULL) || (node->type != CU_GRAPH_NODE_TYPE_MEMCPY)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    result = cuemu_gcopy_check(p, (CUcontext)node->ctx, &ctx, &copy);
    if (result == CUDA_SUCCESS) {
        node->params.copy = *p;
    }

    return result;
}

/* ---------------------------------------------------------- other nodes */

CUEMU_API(cuGraphAddEmptyNode,
          (CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
           size_t num_deps),
          (node, graph, deps, num_deps))
{
    return cuemu_gnode_new(node, graph, deps, num_deps,
                           CU_GRAPH_NODE_TYPE_EMPTY, NULL, NULL);
}

CUEMU_API(cuGraphAddHostNode,
          (CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
           size_t num_deps, const CUDA_HOST_NODE_PARAMS_v1 *p),
          (node, graph, deps, num_deps, p))
{
    cuemu_gparams_t params;

    if ((p == NULL) || (p->fn == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    params.host = *p;
    return cuemu_gnode_new(node, graph, deps, num_deps, CU_GRAPH_NODE_TYPE_HOST,
                           &params, NULL);
}

CUEMU_API(cuGraphAddMemsetNode,
          (CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
           size_t num_deps, const CUDA_MEMSET_NODE_PARAMS_v1 *p,
           CUcontext handle),
          (node, graph, deps, num_deps, p, handle))
{
    cuemu_context_t *ctx = (handle == NULL) ?
                           cuemu_context_current() :
                           cuemu_object_check(handle, CUEMU_OBJ_CONTEXT);
    cuemu_gparams_t params;
    cuemu_range_t range;
    CUresult result;

    if ((ctx == NULL) || !ctx->alive) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }

    if ((p == NULL) || (p->width == 0) || (p->height == 0) ||
        ((p->elementSize != 1) && (p->elementSize != 2) &&
         (p->elementSize != 4)) || (p->dst % p->elementSize)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    cuemu_lock();
    result = cuemu_mem_resolve(p->dst, (p->height - 1) * p->pitch +
                               p->width * p->elementSize, ctx, &range);
    cuemu_unlock();
    if ((result != CUDA_SUCCESS) || range.pageable) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    params.fill = *p;
    return cuemu_gnode_new(node, graph, deps, num_deps,
                           CU_GRAPH_NODE_TYPE_MEMSET, &params, ctx);
}

static CUresult cuemu_graph_add_event(CUgraphNode *node, CUgraph graph,
                                      const CUgraphNode *deps, size_t num_deps,
                                      CUevent event, int type)
{
    cuemu_gparams_t params;

    if (cuemu_object_check(event, CUEMU_OBJ_EVENT) == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    params.event = event;
    return cuemu_gnode_new(node, graph, deps, num_deps, type, &params, NULL);
}

CUEMU_API(cuGraphAddEventRecordNode,
          (CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
           size_t num_deps, CUevent event),
          (node, graph, deps, num_deps, event))
{
    return cuemu_graph_add_event(node, graph, deps, num_deps, event,
                                 CU_GRAPH_NODE_TYPE_EVENT_RECORD);
}

CUEMU_API(cuGraphAddEventWaitNode,
          (CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
           size_t num_deps, CUevent event),
          (node, graph, deps, num_deps, event))
{
    return cuemu_graph_add_event(node, graph, deps, num_deps, event,
                                 CU_GRAPH_NODE_TYPE_WAIT_EVENT);
}

/* ----------------------------------------------------------------- shape */

/* Return non-zero if `to` is `from` or depends on it. Nodes visited before have
   the index 1. */
static int cuemu_gnode_visit(cuemu_gnode_t *to, const cuemu_gnode_t *from)
{
    unsigned i;

    if ((to == from) || (to->index == 1)) {
        return to == from;
    }

    to->index = 1;
    for (i = 0; i < to->num_deps; ++i) {
        if (cuemu_gnode_visit(to->deps[i], from)) {
            return 1;
        }
    }

    return 0;
}

int cuemu_graph_reaches(CUgraphNode to, CUgraphNode from)
{
    cuemu_gnode_t *last = (cuemu_gnode_t*)to, *node;

    for (node = last->graph->first; node != NULL; node = node->next) {
        node->index = 0;
    }

    return cuemu_gnode_visit(last, (const cuemu_gnode_t*)from);
}

/* Add or remove the edges from[i] to to[i]. */
static CUresult cuemu_graph_set_deps(CUgraph handle, const CUgraphNode *from,
                                     const CUgraphNode *to, size_t count,
                                     int adds)
{
    cuemu_graph_t *graph = cuemu_graph_check(handle);
    CUresult result      = CUDA_SUCCESS;
    cuemu_gnode_t *a, *b;
    unsigned k;
    size_t i;

    if ((graph == NULL) || ((count > 0) && ((from == NULL) || (to == NULL)))) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    for (i = 0; (i < count) && (result == CUDA_SUCCESS); ++i) {
        a = cuemu_gnode_check(from[i]);
        b = cuemu_gnode_check(to[i]);
        if ((a == NULL) || (b == NULL) || (b->graph != graph) ||
            (cuemu_gnode_depends(b, a) == adds) ||
            (adds &&
             ((a->graph != graph) || cuemu_graph_reaches(from[i], to[i])))) {
            return CUDA_ERROR_INVALID_VALUE;
        }

        if (adds) {
            result = cuemu_gnode_add_dep(b, a);
            continue;
        }

        for (k = 0; b->deps[k] != a; ++k) {
        }
        b->deps[k] = b->deps[--b->num_deps];
    }

    return result;
}

CUEMU_API(cuGraphAddDependencies,
          (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
           size_t count),
          (graph, from, to, count))
{
    return cuemu_graph_set_deps(graph, from, to, count, 1);
}

/* Add dependencies; ignore the edge data, which only kernels use */
CUEMU_API(cuGraphAddDependencies_v2,
          (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
           const void *data, size_t count),
          (graph, from, to, data, count))
{
    return cuemu_graph_set_deps(graph, from, to, count, 1);
}

CUEMU_API(cuGraphRemoveDependencies,
          (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
           size_t count),
          (graph, from, to, count))
{
    return cuemu_graph_set_deps(graph, from, to, count, 0);
}

CUEMU_API(cuGraphRemoveDependencies_v2,
          (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
           const void *data, size_t count),
          (graph, from, to, data, count))
{
    return cuemu_graph_set_deps(graph, from, to, count, 0);
}

/* Copy up to *count_p nodes of a graph, and set *count_p to the number copied;
   with `nodes` NULL, to the number of nodes. Entries behind the last node
   become NULL. */
static CUresult cuemu_list_nodes(cuemu_graph_t *graph, int roots_only,
                                 CUgraphNode *nodes, size_t *count_p)
{
    cuemu_gnode_t *node;
    size_t count = 0;

    if ((graph == NULL) || (count_p == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    for (node = graph->first; node != NULL; node = node->next) {
        if (roots_only && (node->num_deps > 0)) {
            continue;
        }

        if ((nodes != NULL) && (count < *count_p)) {
            nodes[count] = (CUgraphNode)node;
        }
        ++count;
    }

    if (nodes != NULL) {
        for (; count < *count_p; --*count_p) {
            nodes[*count_p - 1] = NULL;
        }
    } else {
        *count_p = count;
    }

    return CUDA_SUCCESS;
}

CUEMU_API(cuGraphGetNodes, (CUgraph graph, CUgraphNode *nodes, size_t *count),
          (graph, nodes, count))
{
    return cuemu_list_nodes(cuemu_graph_check(graph), 0, nodes, count);
}

CUEMU_API(cuGraphGetRootNodes,
          (CUgraph graph, CUgraphNode *nodes, size_t *count),
          (graph, nodes, count))
{
    return cuemu_list_nodes(cuemu_graph_check(graph), 1, nodes, count);
}

static CUresult cuemu_graph_edges(CUgraph handle, CUgraphNode *from,
                                  CUgraphNode *to, size_t *count_p)
{
    cuemu_graph_t *graph = cuemu_graph_check(handle);
    cuemu_gnode_t *node;
    size_t count = 0;
    unsigned i;

    if ((graph == NULL) || (count_p == NULL) ||
        ((from == NULL) != (to == NULL))) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    for (node = graph->first; node != NULL; node = node->next) {
        for (i = 0; i < node->num_deps; ++i, ++count) {
            if ((from != NULL) && (count < *count_p)) {
                from[count] = (CUgraphNode)node->deps[i];
                to[count]   = (CUgraphNode)node;
            }
        }
    }

    *count_p = (from == NULL) ? count :
               (count < *count_p) ? count : *count_p;
    return CUDA_SUCCESS;
}

CUEMU_API(cuGraphGetEdges,
          (CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count),
          (graph, from, to, count))
{
    return cuemu_graph_edges(graph, from, to, count);
}

CUEMU_API(cuGraphGetEdges_v2,
          (CUgraph graph, CUgraphNode *from, CUgraphNode *to, void *data,
           size_t *count),
          (graph, from, to, data, count))
{
    if ((data != NULL) && (count != NULL)) {
        memset(data, 0, *count * 8); /* CUgraphEdgeData: no ports */
    }

    return cuemu_graph_edges(graph, from, to, count);
}

CUEMU_API(cuGraphNodeGetType, (CUgraphNode handle, CUgraphNodeType *type),
          (handle, type))
{
    cuemu_gnode_t *node = cuemu_gnode_check(handle);

    if ((node == NULL) || (type == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    *type = (CUgraphNodeType)node->type;
    return CUDA_SUCCESS;
}

static CUresult cuemu_gnode_list_deps(CUgraphNode handle, CUgraphNode *deps,
                                      size_t *count_p)
{
    cuemu_gnode_t *node = cuemu_gnode_check(handle);
    size_t i;

    if ((node == NULL) || (count_p == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    for (i = 0; (deps != NULL) && (i < *count_p); ++i) {
        deps[i] = (i < node->num_deps) ? (CUgraphNode)node->deps[i] : NULL;
    }

    if ((deps == NULL) || (*count_p > node->num_deps)) {
        *count_p = node->num_deps;
    }

    return CUDA_SUCCESS;
}

CUEMU_API(cuGraphNodeGetDependencies,
          (CUgraphNode node, CUgraphNode *deps, size_t *count),
          (node, deps, count))
{
    return cuemu_gnode_list_deps(node, deps, count);
}

CUEMU_API(cuGraphNodeGetDependencies_v2,
          (CUgraphNode node, CUgraphNode *deps, void *data, size_t *count),
          (node, deps, data, count))
{
    return cuemu_gnode_list_deps(node, deps, count);
}

CUEMU_API(cuGraphDestroyNode, (CUgraphNode handle), (handle))
{
    cuemu_gnode_t *node = cuemu_gnode_check(handle), *other, *prev = NULL;
    cuemu_graph_t *graph;
    unsigned i;

    if (node == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    graph = node->graph;
    for (other = graph->first; other != NULL; other = other->next) {
        if (other->next == node) {
            prev = other;
        }

        for (i = 0; i < other->num_deps; ++i) {
            if (other->deps[i] == node) {
                other->deps[i--] = other->deps[--other->num_deps];
            }
        }
    }

    if (prev != NULL) {
        prev->next = node->next;
    } else {
        graph->first = node->next;
    }

    if (graph->last == node) {
        graph->last = prev;
    }

    --graph->num_nodes;
    cuemu_gnode_free(node);
    return CUDA_SUCCESS;
}

static void cuemu_graph_free(cuemu_graph_t *graph)
{
    cuemu_gnode_t *node, *next;

    for (node = graph->first; node != NULL; node = next) {
        next = node->next;
        cuemu_gnode_free(node);
    }

    cuemu_object_delete(graph);
}

void cuemu_graph_delete(CUgraph graph)
{
    cuemu_graph_free((cuemu_graph_t*)graph);
}

CUEMU_API(cuGraphDestroy, (CUgraph handle), (handle))
{
    cuemu_graph_t *graph = cuemu_graph_check(handle);

    if (graph == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    cuemu_graph_free(graph);
    return CUDA_SUCCESS;
}

static cuemu_gnode_t *cuemu_graph_find_clone(const cuemu_graph_t *graph,
                                             const cuemu_gnode_t *origin)
{
    cuemu_gnode_t *node;

    for (node = graph->first; node != NULL; node = node->next) {
        if (node->origin == origin) {
            break;
        }
    }

    return node;
}

CUEMU_API(cuGraphClone, (CUgraph *clone_p, CUgraph handle), (clone_p, handle))
{
    cuemu_graph_t *graph = cuemu_graph_check(handle), *clone;
    cuemu_gnode_t *node, *copy;
    CUgraphNode added;
    CUresult result = CUDA_SUCCESS;
    unsigned i;

    if ((graph == NULL) || (clone_p == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    clone = cuemu_object_new(CUEMU_OBJ_GRAPH, sizeof(*clone));
    if (clone == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    for (node = graph->first; (node != NULL) && (result == CUDA_SUCCESS);
         node = node->next) {
        result = cuemu_gnode_new(&added, (CUgraph)clone, NULL, 0, node->type,
                                 &node->params, node->ctx);
        if (result == CUDA_SUCCESS) {
            ((cuemu_gnode_t*)added)->origin = node;
        }
    }

    for (node = graph->first; (node != NULL) && (result == CUDA_SUCCESS);
         node = node->next) {
        copy = cuemu_graph_find_clone(clone, node);
        for (i = 0; (i < node->num_deps) && (result == CUDA_SUCCESS); ++i) {
            result = cuemu_gnode_add_dep(copy, cuemu_graph_find_clone(
                                                   clone, node->deps[i]));
        }
    }

    if (result != CUDA_SUCCESS) {
        cuemu_graph_free(clone);
        return result;
    }

    *clone_p = (CUgraph)clone;
    return CUDA_SUCCESS;
}

CUEMU_API(cuGraphNodeFindInClone,
          (CUgraphNode *node_p, CUgraphNode origin, CUgraph handle),
          (node_p, origin, handle))
{
    cuemu_graph_t *clone = cuemu_graph_check(handle);
    cuemu_gnode_t *node;

    if ((clone == NULL) || (node_p == NULL) || (origin == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    node    = cuemu_graph_find_clone(clone, (cuemu_gnode_t*)origin);
    *node_p = (CUgraphNode)node;
    return (node == NULL) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* ---------------------------------------------------------- instantiation */

static void cuemu_exec_free(cuemu_exec_t *exec)
{
    unsigned i;

    for (i = 0; i < exec->num_nodes; ++i) {
        cuemu_gparams_drop(exec->nodes[i].type, &exec->nodes[i].params);
        free(exec->nodes[i].deps);
    }

    free(exec->nodes);
    exec->nodes = NULL;
    cuemu_object_delete(exec);
}

static CUresult cuemu_exec_fill(cuemu_exec_t *exec, cuemu_gnode_t *node)
{
    cuemu_xnode_t *x = &exec->nodes[exec->num_nodes];
    cuemu_gcopy_t copy;
    CUresult result = CUDA_SUCCESS;
    unsigned i;

    x->node     = node;
    x->type     = node->type;
    x->enabled  = 1;
    x->params   = node->params;
    x->ctx      = node->ctx;
    x->ctx_id   = (node->ctx == NULL) ? 0 : node->ctx->id;
    x->num_deps = node->num_deps;
    x->deps     = malloc((node->num_deps + 1) * sizeof(*x->deps));
    if (x->deps == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    for (i = 0; i < node->num_deps; ++i) {
        x->deps[i] = (unsigned)node->deps[i]->index;
        exec->nodes[x->deps[i]].has_next = 1;
    }

    if (node->type == CU_GRAPH_NODE_TYPE_MEMCPY) {
        result     = cuemu_gcopy_resolve(&x->params.copy, x->ctx, &copy);
        x->dst_ctx = (CUcontext)copy.dst_range.ctx;
        x->src_ctx = (CUcontext)copy.src_range.ctx;
    }

    cuemu_gparams_hold(x->type, &x->params);
    node->index = (int)exec->num_nodes++;
    return result;
}

/* Make an executable graph; takes no modelled time. */
static CUresult cuemu_exec_new(cuemu_graph_t *graph, unsigned long long flags,
                               cuemu_exec_t **exec_p)
{
    CUresult result = CUDA_SUCCESS;
    cuemu_gnode_t *node;
    cuemu_exec_t *exec;
    unsigned i;
    int ready, progress = 1;

    exec = cuemu_object_new(CUEMU_OBJ_EXEC, sizeof(*exec));
    if (exec == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    exec->flags = flags;
    exec->nodes = calloc(graph->num_nodes + 1, sizeof(*exec->nodes));
    if (exec->nodes == NULL) {
        cuemu_object_delete(exec);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    for (node = graph->first; node != NULL; node = node->next) {
        node->index = -1;
    }

    cuemu_lock();
    while (progress && (result == CUDA_SUCCESS)) {
        progress = 0;
        for (node = graph->first; (node != NULL) && (result == CUDA_SUCCESS);
             node = node->next) {
            ready = (node->index < 0);
            for (i = 0; ready && (i < node->num_deps); ++i) {
                ready = (node->deps[i]->index >= 0);
            }

            if (ready) {
                result   = cuemu_exec_fill(exec, node);
                progress = 1;
            }
        }
    }
    cuemu_unlock();

    if (result != CUDA_SUCCESS) {
        cuemu_exec_free(exec);
        return result;
    }

    *exec_p = exec;
    return CUDA_SUCCESS;
}

static CUresult cuemu_graph_instantiate(CUgraphExec *exec_p, CUgraph handle,
                                        unsigned long long flags)
{
    cuemu_graph_t *graph = cuemu_graph_check(handle);
    cuemu_exec_t *exec   = NULL;
    CUresult result;

    if ((graph == NULL) || (exec_p == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    result = cuemu_exec_new(graph, flags, &exec);
    if (result != CUDA_SUCCESS) {
        return result;
    }

    cuemu_work_spend_until(cuemu_now() +
                           cuemu_cost(CUEMU_CALL_GRAPH_INSTANTIATE) +
                           exec->num_nodes *
                           cuemu_session.node->cost.graph_instantiate_node);
    *exec_p = (CUgraphExec)exec;
    return CUDA_SUCCESS;
}

CUEMU_API(cuGraphInstantiateWithFlags,
          (CUgraphExec *exec, CUgraph graph, unsigned long long flags),
          (exec, graph, flags))
{
    return cuemu_graph_instantiate(exec, graph, flags);
}

CUEMU_API(cuGraphInstantiate,
          (CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
           char *log, size_t log_size),
          (exec, graph, error_node, log, log_size))
{
    if ((log != NULL) && (log_size > 0)) {
        log[0] = '\0';
    }

    return cuemu_graph_instantiate(exec, graph, 0);
}

CUEMU_ALSO(cuGraphInstantiate_v2, cuGraphInstantiate);

CUEMU_API(cuGraphInstantiateWithParams,
          (CUgraphExec *exec, CUgraph graph,
           CUDA_GRAPH_INSTANTIATE_PARAMS *params),
          (exec, graph, params))
{
    CUresult result;

    if (params == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    result                 = cuemu_graph_instantiate(exec, graph,
                                                     params->flags);
    params->hErrNode_out   = NULL;
    params->result_out     = (result == CUDA_SUCCESS) ?
                             CUDA_GRAPH_INSTANTIATE_SUCCESS :
                             CUDA_GRAPH_INSTANTIATE_ERROR;
    return result;
}

CUEMU_API(cuGraphExecGetFlags, (CUgraphExec handle, cuuint64_t *flags),
          (handle, flags))
{
    cuemu_exec_t *exec = cuemu_exec_check(handle);

    if ((exec == NULL) || (flags == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    *flags = exec->flags;
    return CUDA_SUCCESS;
}

CUEMU_API(cuGraphExecDestroy, (CUgraphExec handle), (handle))
{
    cuemu_exec_t *exec = cuemu_exec_check(handle);

    if (exec == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    cuemu_exec_free(exec);
    return CUDA_SUCCESS;
}

static cuemu_xnode_t *cuemu_exec_find(CUgraphExec handle, CUgraphNode node,
                                      int type)
{
    cuemu_exec_t *exec = cuemu_exec_check(handle);
    unsigned i;

    for (i = 0; (exec != NULL) && (i < exec->num_nodes); ++i) {
        if ((exec->nodes[i].node == (cuemu_gnode_t*)node) &&
            ((type < 0) || (exec->nodes[i].type == type))) {
            return &exec->nodes[i];
        }
    }

    return NULL;
}

CUEMU_API(cuGraphExecMemcpyNodeSetParams,
          (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *p,
           CUcontext handle),
          (exec, node, p, handle))
{
    cuemu_xnode_t *x = cuemu_exec_find(exec, node, CU_GRAPH_NODE_TYPE_MEMCPY);
    cuemu_context_t *ctx;
    cuemu_gcopy_t copy;
    CUresult result;

    if (x == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    result = cuemu_gcopy_check(p, handle, &ctx, &copy);
    if (result != CUDA_SUCCESS) {
        return result;
    }

    /* New operands must be linear and in the contexts of the old ones */
    if ((copy.height != 1) || (x->params.copy.Height != 1) ||
        ((CUcontext)copy.dst_range.ctx != x->dst_ctx) ||
        ((CUcontext)copy.src_range.ctx != x->src_ctx) || (ctx != x->ctx) ||
        (p->dstMemoryType != x->params.copy.dstMemoryType) ||
        (p->srcMemoryType != x->params.copy.srcMemoryType)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    x->params.copy = *p;
    cuemu_work_spend(CUEMU_CALL_GRAPH_UPDATE_NODE);
    return CUDA_SUCCESS;
}

CUEMU_API(cuGraphExecHostNodeSetParams,
          (CUgraphExec exec, CUgraphNode node,
           const CUDA_HOST_NODE_PARAMS_v1 *p),
          (exec, node, p))
{
    cuemu_xnode_t *x = cuemu_exec_find(exec, node, CU_GRAPH_NODE_TYPE_HOST);

    if ((x == NULL) || (p == NULL) || (p->fn == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    x->params.host = *p;
    cuemu_work_spend(CUEMU_CALL_GRAPH_UPDATE_NODE);
    return CUDA_SUCCESS;
}

CUresult cuemu_exec_set_kernel(CUgraphExec exec, CUgraphNode node,
                               cuemu_job_t *job, const cuemu_context_t *ctx)
{
    cuemu_xnode_t *x = cuemu_exec_find(exec, node, CU_GRAPH_NODE_TYPE_KERNEL);

    if ((x == NULL) || (x->ctx != ctx)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    cuemu_job_hold(job);
    cuemu_job_drop(x->params.kernel);
    x->params.kernel = job;
    cuemu_work_spend(CUEMU_CALL_GRAPH_UPDATE_NODE);
    return CUDA_SUCCESS;
}

/* Return the reason why `exec` cannot take the parameters of `by`, and the
   first node that differs. */
static CUgraphExecUpdateResult cuemu_exec_differs(const cuemu_exec_t *exec,
                                                  const cuemu_exec_t *by,
                                                  CUgraphNode *node_p)
{
    const cuemu_xnode_t *x, *y;
    unsigned i;

    *node_p = NULL;
    if (exec->num_nodes != by->num_nodes) {
        return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    }

    for (i = 0; i < exec->num_nodes; ++i) {
        x       = &exec->nodes[i];
        y       = &by->nodes[i];
        *node_p = (CUgraphNode)y->node;
        if (x->type != y->type) {
            return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
        }
        if ((x->num_deps != y->num_deps) ||
            (memcmp(x->deps, y->deps, x->num_deps * sizeof(*x->deps)) != 0)) {
            return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        }
        if ((x->ctx != y->ctx) || (x->dst_ctx != y->dst_ctx) ||
            (x->src_ctx != y->src_ctx)) {
            return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
        }
    }
    *node_p = NULL;
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

CUEMU_API(cuGraphExecUpdate_v2,
          (CUgraphExec handle, CUgraph graph_handle,
           CUgraphExecUpdateResultInfo *info),
          (handle, graph_handle, info))
{
    cuemu_exec_t *exec   = cuemu_exec_check(handle), *by = NULL;
    cuemu_graph_t *graph = cuemu_graph_check(graph_handle);
    cuemu_gparams_t params;
    CUresult result;
    unsigned i;

    if ((exec == NULL) || (graph == NULL) || (info == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    result = cuemu_exec_new(graph, exec->flags, &by);
    if (result != CUDA_SUCCESS) {
        return result;
    }

    memset(info, 0, sizeof(*info));
    info->result = cuemu_exec_differs(exec, by, &info->errorNode);
    for (i = 0; (info->result == CU_GRAPH_EXEC_UPDATE_SUCCESS) &&
         (i < exec->num_nodes); ++i) {
        params                = exec->nodes[i].params;
        exec->nodes[i].params = by->nodes[i].params;
        by->nodes[i].params   = params;
        cuemu_work_spend(CUEMU_CALL_GRAPH_UPDATE_NODE);
    }
    cuemu_exec_free(by);
    return (info->result == CU_GRAPH_EXEC_UPDATE_SUCCESS) ?
           CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

static CUresult cuemu_exec_set_event(CUgraphExec exec, CUgraphNode node,
                                     CUevent event, int type)
{
    cuemu_xnode_t *x = cuemu_exec_find(exec, node, type);

    if ((x == NULL) || (cuemu_object_check(event, CUEMU_OBJ_EVENT) == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    x->params.event = event;
    cuemu_work_spend(CUEMU_CALL_GRAPH_UPDATE_NODE);
    return CUDA_SUCCESS;
}

CUEMU_API(cuGraphExecEventRecordNodeSetEvent,
          (CUgraphExec exec, CUgraphNode node, CUevent event),
          (exec, node, event))
{
    return cuemu_exec_set_event(exec, node, event,
                                CU_GRAPH_NODE_TYPE_EVENT_RECORD);
}

CUEMU_API(cuGraphExecEventWaitNodeSetEvent,
          (CUgraphExec exec, CUgraphNode node, CUevent event),
          (exec, node, event))
{
    return cuemu_exec_set_event(exec, node, event,
                                CU_GRAPH_NODE_TYPE_WAIT_EVENT);
}

static int cuemu_gnode_can_disable(const cuemu_xnode_t *x)
{
    return (x != NULL) && ((x->type == CU_GRAPH_NODE_TYPE_KERNEL) ||
                           (x->type == CU_GRAPH_NODE_TYPE_MEMCPY) ||
                           (x->type == CU_GRAPH_NODE_TYPE_MEMSET));
}

CUEMU_API(cuGraphNodeSetEnabled,
          (CUgraphExec exec, CUgraphNode node, unsigned enabled),
          (exec, node, enabled))
{
    cuemu_xnode_t *x = cuemu_exec_find(exec, node, -1);

    if (!cuemu_gnode_can_disable(x)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    x->enabled = (enabled != 0);
    return CUDA_SUCCESS;
}

CUEMU_API(cuGraphNodeGetEnabled,
          (CUgraphExec exec, CUgraphNode node, unsigned *enabled),
          (exec, node, enabled))
{
    cuemu_xnode_t *x = cuemu_exec_find(exec, node, -1);

    if (!cuemu_gnode_can_disable(x) || (enabled == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    *enabled = (unsigned)x->enabled;
    return CUDA_SUCCESS;
}

/* --------------------------------------------------------------- launching */

static CUresult cuemu_exec_make_work(const cuemu_xnode_t *x, cuemu_work_t *work,
                                     int *direct_p)
{
    const CUDA_MEMSET_NODE_PARAMS_v1 *fill = &x->params.fill;
    cuemu_range_t range;
    cuemu_gcopy_t copy;
    CUresult result;
    size_t width;

    memset(work, 0, sizeof(*work));
    work->desc.kind = CUEMU_OP_MARK;
    *direct_p       = 1;
    if (!x->enabled) {
        return CUDA_SUCCESS;
    }

    switch (x->type) {
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        result = cuemu_gcopy_resolve(&x->params.copy, x->ctx, &copy);
        if (result != CUDA_SUCCESS) {
            return result;
        }

        cuemu_work_set_move(work, &copy.dst_range, copy.dst_pitch,
                            &copy.src_range, copy.src_pitch, copy.width,
                            copy.height);
        cuemu_work_set_engine(work, x->ctx, &copy.dst_range, &copy.src_range);
        *direct_p = cuemu_work_is_direct(&copy.dst_range, &copy.src_range);
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        width  = fill->width * fill->elementSize;
        result = cuemu_mem_resolve(fill->dst, (fill->height - 1) * fill->pitch +
                                   width, x->ctx, &range);
        if (result != CUDA_SUCCESS) {
            return result;
        }

        cuemu_work_set_move(work, &range, fill->pitch, &range, fill->pitch,
                            width, fill->height);
        work->payload.kind       = CUEMU_PAYLOAD_FILL;
        work->payload.value      = fill->value;
        work->payload.value_size = fill->elementSize;
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_HOST:
        cuemu_work_set_call(work, CUEMU_PAYLOAD_CALL,
                            (void*)x->params.host.fn, x->params.host.userData);
        return CUDA_SUCCESS;
    default:
        return CUDA_SUCCESS;
    }
}

/* Let the event stand for the node's place in the graph. Call with the lock. */
static void cuemu_exec_record(CUevent handle, const cuemu_op_id_t *deps,
                              unsigned num_deps, cuemu_time_t at)
{
    cuemu_event_t *event = cuemu_object_check(handle, CUEMU_OBJ_EVENT);

    if (event != NULL) {
        cuemu_event_forget_capture(event);
        cuemu_work_record(event, deps, num_deps, at, at);
    }
}

static CUresult cuemu_exec_submit(cuemu_exec_t *exec, cuemu_stream_t *stream,
                                  cuemu_time_t begin, cuemu_time_t per_node)
{
    cuemu_op_id_t *ops, *deps, root, halves[2];
    CUresult result = CUDA_SUCCESS;
    cuemu_work_t work, mark;
    cuemu_time_t at = begin;
    const cuemu_event_t *event;
    const cuemu_xnode_t *x;
    unsigned i, k, num_deps, num_ends = 0;
    int direct;

    ops  = calloc(2 * (size_t)exec->num_nodes + 4, sizeof(*ops));
    deps = (ops == NULL) ? NULL : (ops + exec->num_nodes + 1);
    if (ops == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    /* Wait for all earlier work in the stream and for this graph's previous
       launch */
    mark = (cuemu_work_t){.desc.kind = CUEMU_OP_MARK};
    root = cuemu_work_submit(stream, &mark, &exec->last, 1, begin);

    for (i = 0; (i < exec->num_nodes) && (result == CUDA_SUCCESS); ++i) {
        x        = &exec->nodes[i];
        at      += per_node;
        num_deps = 0;
        for (k = 0; k < x->num_deps; ++k) {
            deps[num_deps++] = ops[x->deps[k]];
        }

        if (num_deps == 0) {
            deps[num_deps++] = root;
        }

        if (x->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT) {
            event = cuemu_object_check(x->params.event, CUEMU_OBJ_EVENT);
            deps[num_deps++] = (event == NULL) ? 0 : event->op;
        } else if (x->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
            cuemu_exec_record(x->params.event, deps, num_deps, at);
        }

        if ((x->type == CU_GRAPH_NODE_TYPE_KERNEL) && x->enabled) {
            ops[i] = cuemu_job_launch(x->params.kernel, deps, num_deps, at);
            result = (ops[i] == 0) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
            continue;
        }

        result = cuemu_exec_make_work(x, &work, &direct);
        if (result == CUDA_SUCCESS) {
            if (direct) {
                ops[i] = cuemu_work_add(&work, deps, num_deps, at);
            } else {
                cuemu_work_stage(&work, deps, num_deps, at, halves);
                ops[i] = cuemu_work_add(&work, halves, 2, at);
            }
        }
    }

    for (i = 0; i < exec->num_nodes; ++i) {
        if (!exec->nodes[i].has_next) {
            deps[num_ends++] = ops[i];
        }
    }

    if (num_ends > 0) {
        mark = (cuemu_work_t){.desc.kind = CUEMU_OP_MARK};
        root = cuemu_work_submit(stream, &mark, deps, num_ends, at);
    }

    exec->last     = root;
    exec->launched = 1;
    free(ops);
    return result;
}

static unsigned cuemu_exec_kernels(const cuemu_exec_t *exec)
{
    unsigned i, count = 0;

    for (i = 0; i < exec->num_nodes; ++i) {
        count += (exec->nodes[i].type == CU_GRAPH_NODE_TYPE_KERNEL);
    }

    return count;
}

CUresult cuemu_exec_launch(cuemu_exec_t *exec, cuemu_stream_t *stream,
                           cuemu_time_t begin)
{
    const cuemu_cost_t *cost    = &cuemu_session.node->cost;
    const cuemu_time_t per_node = cost->graph_launch_node;
    cuemu_time_t end;
    CUresult result;

    cuemu_job_reserve(cuemu_exec_kernels(exec));
    begin += cuemu_cost(CUEMU_CALL_GRAPH_LAUNCH) +
             (exec->launched ? 0 : cost->graph_first_launch);
    end    = begin + exec->num_nodes * per_node;
    cuemu_lock();
    result = cuemu_exec_submit(exec, stream, begin, per_node);
    cuemu_unlock();
    cuemu_work_spend_until(end);
    return result;
}

CUEMU_API(cuGraphUpload, (CUgraphExec handle, CUstream stream_handle),
          (handle, stream_handle))
{
    cuemu_exec_t *exec = cuemu_exec_check(handle);

    if (exec == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    if (!exec->launched) {
        cuemu_work_spend_until(cuemu_now() +
                               cuemu_session.node->cost.graph_first_launch);
        exec->launched = 1;
    }

    return CUDA_SUCCESS;
}
