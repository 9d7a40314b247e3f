/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Runtime: graphs that a program builds node by node. Nodes of copies between
 * arrays, and of child graphs, are refused.
 */
#include "cudart.h"

#include <string.h>

/* cudaKernelNodeParams */
typedef struct {
    void    *func;
    unsigned grid[3], block[3];
    unsigned shared;
    void   **params, **extra;
} cuemu_cudart_node_t;

/* Convert parameters of a kernel node for the driver. */
static cuemu_cudart_error_t convert(const cuemu_cudart_node_t *from,
                                    CUDA_KERNEL_NODE_PARAMS *to)
{
    CUkernel kernel;
    cuemu_cudart_error_t error = (from == NULL) ? CUDART_INVALID_VALUE :
                                 cuemu_cudart_kernel(from->func, &kernel);

    if (error == CUDART_SUCCESS) {
        memset(to, 0, sizeof(*to));
        to->func           = (CUfunction)kernel;
        to->gridDimX       = from->grid[0];
        to->gridDimY       = from->grid[1];
        to->gridDimZ       = from->grid[2];
        to->blockDimX      = from->block[0];
        to->blockDimY      = from->block[1];
        to->blockDimZ      = from->block[2];
        to->sharedMemBytes = from->shared;
        to->kernelParams   = from->params;
        to->extra          = from->extra;
    }
    return error;
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaGraphAddKernelNode(CUgraphNode *node, CUgraph graph,
                       const CUgraphNode *deps, size_t num_deps,
                       const cuemu_cudart_node_t *params)
{
    CUDA_KERNEL_NODE_PARAMS converted;
    cuemu_cudart_error_t error = convert(params, &converted);

    return cuemu_cudart_return((error != CUDART_SUCCESS) ? error :
           (cuemu_cudart_error_t)cuGraphAddKernelNode(node, graph, deps,
                                                      num_deps, &converted));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                 const cuemu_cudart_node_t *params)
{
    CUDA_KERNEL_NODE_PARAMS converted;
    cuemu_cudart_error_t error = convert(params, &converted);

    return cuemu_cudart_return((error != CUDART_SUCCESS) ? error :
           (cuemu_cudart_error_t)cuGraphExecKernelNodeSetParams(exec, node,
                                                                &converted));
}

static CUcontext current(void)
{
    CUcontext ctx = NULL;

    (void)cuCtxGetCurrent(&ctx);
    return ctx;
}

/* Return a copy of bytes for the driver. */
static CUDA_MEMCPY3D bytes(void *dst, const void *src, size_t count)
{
    CUDA_MEMCPY3D copy;

    memset(&copy, 0, sizeof(copy));
    copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
    copy.srcDevice     = (CUdeviceptr)(uintptr_t)src;
    copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    copy.dstDevice     = (CUdeviceptr)(uintptr_t)dst;
    copy.WidthInBytes  = count;
    copy.Height        = 1;
    copy.Depth         = 1;
    return copy;
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaGraphAddMemcpyNode1D(CUgraphNode *node, CUgraph graph,
                         const CUgraphNode *deps, size_t num_deps, void *dst,
                         const void *src, size_t count, int kind)
{
    const CUDA_MEMCPY3D copy = bytes(dst, src, count);

    CUEMU_CUDART_CALL(cuGraphAddMemcpyNode(node, graph, deps, num_deps, &copy,
                                           current()));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph,
                       const CUgraphNode *deps, size_t num_deps,
                       const cuemu_cudart_copy3d_t *p)
{
    const cuemu_cudart_error_t error = cuemu_cudart_boxes(p);
    CUDA_MEMCPY3D copy;

    if (error != CUDART_SUCCESS) {
        return cuemu_cudart_return(error);
    }

    copy              = bytes(p->dst.ptr, p->src.ptr, p->extent.x);
    copy.srcXInBytes  = p->src_pos.x;
    copy.srcY         = p->src_pos.y;
    copy.srcZ         = p->src_pos.z;
    copy.srcPitch     = p->src.pitch;
    copy.srcHeight    = p->src.ysize;
    copy.dstXInBytes  = p->dst_pos.x;
    copy.dstY         = p->dst_pos.y;
    copy.dstZ         = p->dst_pos.z;
    copy.dstPitch     = p->dst.pitch;
    copy.dstHeight    = p->dst.ysize;
    copy.Height       = p->extent.y;
    copy.Depth        = p->extent.z;
    CUEMU_CUDART_CALL(cuGraphAddMemcpyNode(node, graph, deps, num_deps, &copy,
                                           current()));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaGraphExecMemcpyNodeSetParams1D(CUgraphExec exec, CUgraphNode node,
                                   void *dst, const void *src, size_t count,
                                   int kind)
{
    const CUDA_MEMCPY3D copy = bytes(dst, src, count);

    CUEMU_CUDART_CALL(cuGraphExecMemcpyNodeSetParams(exec, node, &copy,
                                                     current()));
}

CUDART_FORWARD(cudaGraphCreate, (CUgraph *graph, unsigned flags),
               cuGraphCreate(graph, flags))
CUDART_FORWARD(cudaGraphAddEmptyNode,
               (CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
                size_t num_deps),
               cuGraphAddEmptyNode(node, graph, deps, num_deps))

/* cudaMemsetParams and cudaHostNodeParams are laid out as the driver's */
CUDART_FORWARD(cudaGraphAddMemsetNode,
               (CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
                size_t num_deps, const CUDA_MEMSET_NODE_PARAMS_v1 *params),
               cuGraphAddMemsetNode(node, graph, deps, num_deps, params,
                                    current()))
CUDART_FORWARD(cudaGraphAddHostNode,
               (CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
                size_t num_deps, const CUDA_HOST_NODE_PARAMS_v1 *params),
               cuGraphAddHostNode(node, graph, deps, num_deps, params))
CUDART_FORWARD(cudaGraphExecHostNodeSetParams,
               (CUgraphExec exec, CUgraphNode node,
                const CUDA_HOST_NODE_PARAMS_v1 *params),
               cuGraphExecHostNodeSetParams(exec, node, params))
CUDART_FORWARD(cudaGraphAddEventRecordNode,
               (CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
                size_t num_deps, CUevent event),
               cuGraphAddEventRecordNode(node, graph, deps, num_deps, event))
CUDART_FORWARD(cudaGraphAddEventWaitNode,
               (CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
                size_t num_deps, CUevent event),
               cuGraphAddEventWaitNode(node, graph, deps, num_deps, event))
/* CUDA 13 adds data of the edges */
#if CUEMU_CUDART_MAJOR >= 13
#define DATA_DECL CUgraphEdgeData *data,
#define DATA      data
#else
#define DATA_DECL
#define DATA      NULL
#endif
CUDART_FORWARD(cudaGraphAddDependencies,
               (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                const DATA_DECL size_t count),
               cuGraphAddDependencies_v2(graph, from, to, DATA, count))
CUDART_FORWARD(cudaGraphGetEdges,
               (CUgraph graph, CUgraphNode *from, CUgraphNode *to,
                DATA_DECL size_t *count),
               cuGraphGetEdges_v2(graph, from, to, DATA, count))
CUDART_FORWARD(cudaGraphNodeGetDependencies,
               (CUgraphNode node, CUgraphNode *deps, DATA_DECL size_t *count),
               cuGraphNodeGetDependencies_v2(node, deps, DATA, count))
CUDART_FORWARD(cudaGraphGetRootNodes,
               (CUgraph graph, CUgraphNode *nodes, size_t *count),
               cuGraphGetRootNodes(graph, nodes, count))
CUDART_FORWARD(cudaGraphNodeGetType,
               (CUgraphNode node, CUgraphNodeType *type),
               cuGraphNodeGetType(node, type))
CUDART_FORWARD(cudaGraphDestroyNode, (CUgraphNode node),
               cuGraphDestroyNode(node))
CUDART_FORWARD(cudaGraphClone, (CUgraph *clone, CUgraph graph),
               cuGraphClone(clone, graph))
CUDART_FORWARD(cudaGraphNodeFindInClone,
               (CUgraphNode *node, CUgraphNode original, CUgraph clone),
               cuGraphNodeFindInClone(node, original, clone))
CUDART_FORWARD(cudaGraphNodeSetEnabled,
               (CUgraphExec exec, CUgraphNode node, unsigned enabled),
               cuGraphNodeSetEnabled(exec, node, enabled))
CUDART_FORWARD(cudaGraphNodeGetEnabled,
               (CUgraphExec exec, CUgraphNode node, unsigned *enabled),
               cuGraphNodeGetEnabled(exec, node, enabled))
CUDART_FORWARD(cudaGraphExecUpdate,
               (CUgraphExec exec, CUgraph graph,
                CUgraphExecUpdateResultInfo *info),
               cuGraphExecUpdate(exec, graph, info))
CUDART_FORWARD(cudaGraphUpload, (CUgraphExec exec, CUstream stream),
               cuGraphUpload(exec, stream))
