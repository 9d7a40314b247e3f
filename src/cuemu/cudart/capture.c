/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Runtime: capture of streams, and graphs.
 */
#include "cudart.h"

CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaStreamBeginCapture(CUstream stream,
                                                                int mode)
{
    CUEMU_CUDART_CALL(cuStreamBeginCapture(stream, (CUstreamCaptureMode)mode));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaStreamEndCapture(CUstream stream,
                                                              CUgraph *graph)
{
    CUEMU_CUDART_CALL(cuStreamEndCapture(stream, graph));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    CUEMU_CUDART_CALL(cuStreamIsCapturing(stream, status));
}

#if CUEMU_CUDART_MAJOR < 13
/* Toolkits from 13 on declare only the newest version */
CUresult CUDAAPI cuStreamGetCaptureInfo_v2(CUstream, CUstreamCaptureStatus*,
                                           cuuint64_t*, CUgraph*,
                                           const CUgraphNode**, size_t*);

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status,
                            cuuint64_t *id, CUgraph *graph,
                            const CUgraphNode **deps, size_t *num_deps)
{
    CUEMU_CUDART_CALL(cuStreamGetCaptureInfo_v2(stream, status, id, graph, deps,
                                                num_deps));
}
#else
CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status,
                         cuuint64_t *id, CUgraph *graph,
                         const CUgraphNode **deps, const CUgraphEdgeData **data,
                         size_t *num_deps)
{
    CUEMU_CUDART_CALL(cuStreamGetCaptureInfo_v3(stream, status, id, graph, deps,
                                                data, num_deps));
}
#endif

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    CUEMU_CUDART_PLAIN_CALL(cuThreadExchangeStreamCaptureMode(mode));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaGraphInstantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    CUEMU_CUDART_CALL(cuGraphInstantiateWithFlags(exec, graph, flags));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
                              unsigned long long flags)
{
    CUEMU_CUDART_CALL(cuGraphInstantiateWithFlags(exec, graph, flags));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaGraphLaunch(CUgraphExec exec,
                                                         CUstream stream)
{
    CUEMU_CUDART_CALL(cuGraphLaunch(exec, stream));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    CUEMU_CUDART_CALL(cuGraphGetNodes(graph, nodes, count));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaGraphExecDestroy(CUgraphExec exec)
{
    CUEMU_CUDART_CALL(cuGraphExecDestroy(exec));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaGraphDestroy(CUgraph graph)
{
    CUEMU_CUDART_CALL(cuGraphDestroy(graph));
}
