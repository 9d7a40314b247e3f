/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Runtime: capture of streams, and graphs.
 */
#include "cudart.h"

CUDART_FORWARD_STREAM(cudaStreamBeginCapture, (CUstream stream, int mode),
                      cuStreamBeginCapture(stream, (CUstreamCaptureMode)mode))
CUDART_FORWARD_STREAM(cudaStreamEndCapture, (CUstream stream, CUgraph *graph),
                      cuStreamEndCapture(stream, graph))
CUDART_FORWARD_STREAM(cudaStreamIsCapturing,
                      (CUstream stream, CUstreamCaptureStatus *status),
                      cuStreamIsCapturing(stream, status))

#if CUEMU_CUDART_MAJOR < 13
/* Toolkits from 13 on declare only the newest version */
CUresult CUDAAPI cuStreamGetCaptureInfo_v2(CUstream, CUstreamCaptureStatus*,
                                           cuuint64_t*, CUgraph*,
                                           const CUgraphNode**, size_t*);

CUDART_FORWARD(cudaStreamGetCaptureInfo_v2,
               (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                CUgraph *graph, const CUgraphNode **deps, size_t *num_deps),
               cuStreamGetCaptureInfo_v2(stream, status, id, graph, deps,
                                         num_deps))
#else
CUDART_FORWARD(cudaStreamGetCaptureInfo,
               (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                CUgraph *graph, const CUgraphNode **deps,
                const CUgraphEdgeData **data, size_t *num_deps),
               cuStreamGetCaptureInfo_v3(stream, status, id, graph, deps, data,
                                         num_deps))
#endif

CUDART_FORWARD_PLAIN(cudaThreadExchangeStreamCaptureMode,
                     (CUstreamCaptureMode *mode),
                     cuThreadExchangeStreamCaptureMode(mode))
CUDART_FORWARD(cudaGraphInstantiate,
               (CUgraphExec *exec, CUgraph graph, unsigned long long flags),
               cuGraphInstantiateWithFlags(exec, graph, flags))
CUDART_FORWARD(cudaGraphInstantiateWithFlags,
               (CUgraphExec *exec, CUgraph graph, unsigned long long flags),
               cuGraphInstantiateWithFlags(exec, graph, flags))
CUDART_FORWARD_STREAM(cudaGraphLaunch, (CUgraphExec exec, CUstream stream),
                      cuGraphLaunch(exec, stream))
CUDART_FORWARD(cudaGraphGetNodes,
               (CUgraph graph, CUgraphNode *nodes, size_t *count),
               cuGraphGetNodes(graph, nodes, count))
CUDART_FORWARD(cudaGraphExecDestroy, (CUgraphExec exec),
               cuGraphExecDestroy(exec))
CUDART_FORWARD(cudaGraphDestroy, (CUgraph graph), cuGraphDestroy(graph))
