/* SPDX-License-Identifier: BSD-3-Clause */

/* Launch kernels and graphs. */
#include "cuemu_capture.h"
#include "cuemu_kernel.h"

#include <stdio.h>


/* Check a launch against the limits of current GPUs (programming guide, table
   of technical specifications) and the kernel's launch bounds. */
static CUresult cuemu_launch_check(const cuemu_function_t *function,
                                   const CUlaunchConfig *config)
{
    uint64_t threads = (uint64_t)config->blockDimX * config->blockDimY *
                       config->blockDimZ;
    int gpu          = function->module->ctx->gpu;
    unsigned i;

    if ((threads == 0) || (config->gridDimX == 0) || (config->gridDimY == 0) ||
        (config->gridDimZ == 0) || (config->gridDimX > 0x7fffffffu) ||
        (config->gridDimY > 65535) || (config->gridDimZ > 65535) ||
        (config->blockDimX > 1024) || (config->blockDimY > 1024) ||
        (config->blockDimZ > 64) ||
        (threads > cuemu_function_threads(function)) ||
        (config->sharedMemBytes > cuemu_function_shared(function))) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    for (i = 0; i < config->numAttrs; ++i) {
        if ((config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) &&
            (config->attrs[i].value.clusterDim.x *
             config->attrs[i].value.clusterDim.y *
             config->attrs[i].value.clusterDim.z != 1)) {
            fprintf(stderr, "cuemu: kernel %s: the emulator does not support "
                            "clusters of blocks\n", function->info.name);
            return CUDA_ERROR_NOT_SUPPORTED;
        }
    }

    if (cuemu_job_is_cooperative(config) &&
        ((uint64_t)config->gridDimX * config->gridDimY * config->gridDimZ >
         (uint64_t)cuemu_session.node->gpus[gpu].sm_count *
         cuemu_function_blocks(function, threads, config->sharedMemBytes))) {
        return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    }

    return CUDA_SUCCESS;
}

static CUresult cuemu_job_capture(cuemu_job_t *job, cuemu_stream_t *stream)
{
    cuemu_gparams_t params = {.kernel = job};
    CUresult result = cuemu_capture_add(stream, CU_GRAPH_NODE_TYPE_KERNEL,
                                        &params, stream->ctx);

    cuemu_job_drop(job);
    return result;
}

static CUresult cuemu_launch(const CUlaunchConfig *config, CUfunction handle,
                             void **params, void **extra)
{
    cuemu_time_t at = cuemu_now() + cuemu_cost(CUEMU_CALL_KERNEL);
    cuemu_function_t *function;
    cuemu_stream_t *stream;
    int is_captured;
    cuemu_job_t *job;
    CUresult result;

    result = cuemu_stream_resolve(config->hStream, &stream);
    if (result == CUDA_SUCCESS) {
        result = cuemu_function_resolve(handle, &function);
    }
    if (result == CUDA_SUCCESS) {
        result = (stream->ctx != function->module->ctx) ?
                 CUDA_ERROR_INVALID_HANDLE :
                 cuemu_launch_check(function, config);
    }
    if (result == CUDA_SUCCESS) {
        result = cuemu_capture_use(stream, &is_captured);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }

    result = cuemu_job_new(function, config, params, extra, &job);
    if (result != CUDA_SUCCESS) {
        return result;
    }

    if (is_captured) {
        return cuemu_job_capture(job, stream);
    }

    cuemu_job_submit(job, stream, at);
    return CUDA_SUCCESS;
}

/* A launch of the parameters that older calls have one by one */
#define CUEMU_CONFIG(_attr, _num) \
    (CUlaunchConfig) \
    { \
        .gridDimX = grid_x, .gridDimY = grid_y, .gridDimZ = grid_z, \
        .blockDimX = block_x, .blockDimY = block_y, .blockDimZ = block_z, \
        .sharedMemBytes = shared, .hStream = stream, .attrs = _attr, \
        .numAttrs = _num \
    }

CUEMU_API(cuLaunchKernel,
          (CUfunction function, unsigned grid_x, unsigned grid_y,
           unsigned grid_z, unsigned block_x, unsigned block_y,
           unsigned block_z, unsigned shared, CUstream stream, void **params,
           void **extra),
          (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared,
           stream, params, extra))
{
    return cuemu_launch(&CUEMU_CONFIG(NULL, 0), function, params, extra);
}

CUEMU_API(cuLaunchCooperativeKernel,
          (CUfunction function, unsigned grid_x, unsigned grid_y,
           unsigned grid_z, unsigned block_x, unsigned block_y,
           unsigned block_z, unsigned shared, CUstream stream, void **params),
          (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared,
           stream, params))
{
    CUlaunchAttribute together = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
                                  .value = {.cooperative = 1}};

    return cuemu_launch(&CUEMU_CONFIG(&together, 1), function, params, NULL);
}

CUEMU_API(cuLaunchKernelEx,
          (const CUlaunchConfig *config, CUfunction function, void **params,
           void **extra),
          (config, function, params, extra))
{
    return (config == NULL) ? CUDA_ERROR_INVALID_VALUE :
                              cuemu_launch(config, function, params, extra);
}

/* Make a job of a node's parameters, for `*ctx_p`. */
static CUresult cuemu_node_job(const CUDA_KERNEL_NODE_PARAMS_v2 *p,
                               cuemu_job_t **job_p, cuemu_context_t **ctx_p)
{
    cuemu_function_t *function;
    CUlaunchConfig config;
    CUresult result;

    if (p == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    config = (CUlaunchConfig){.gridDimX       = p->gridDimX,
                              .gridDimY       = p->gridDimY,
                              .gridDimZ       = p->gridDimZ,
                              .blockDimX      = p->blockDimX,
                              .blockDimY      = p->blockDimY,
                              .blockDimZ      = p->blockDimZ,
                              .sharedMemBytes = p->sharedMemBytes};
    result = cuemu_function_resolve((p->func != NULL) ? p->func :
                                    (CUfunction)p->kern, &function);
    if (result == CUDA_SUCCESS) {
        result = cuemu_launch_check(function, &config);
    }
    if (result == CUDA_SUCCESS) {
        result = cuemu_job_new(function, &config, p->kernelParams, p->extra,
                               job_p);
        *ctx_p = function->module->ctx;
    }
    return result;
}

CUEMU_API(cuGraphAddKernelNode_v2,
          (CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
           size_t num_deps, const CUDA_KERNEL_NODE_PARAMS_v2 *p),
          (node, graph, deps, num_deps, p))
{
    cuemu_gparams_t params;
    cuemu_context_t *ctx;
    CUresult result = (node == NULL) ? CUDA_ERROR_INVALID_VALUE :
                      cuemu_node_job(p, &params.kernel, &ctx);

    if (result == CUDA_SUCCESS) {
        result = cuemu_graph_add(node, graph, deps, num_deps,
                                 CU_GRAPH_NODE_TYPE_KERNEL, &params, ctx);
        cuemu_job_drop(params.kernel);
    }
    return result;
}

CUEMU_API(cuGraphExecKernelNodeSetParams_v2,
          (CUgraphExec exec, CUgraphNode node,
           const CUDA_KERNEL_NODE_PARAMS_v2 *p),
          (exec, node, p))
{
    cuemu_context_t *ctx;
    cuemu_job_t *job;
    CUresult result = cuemu_node_job(p, &job, &ctx);

    if (result == CUDA_SUCCESS) {
        result = cuemu_exec_set_kernel(exec, node, job, ctx);
        cuemu_job_drop(job);
    }
    return result;
}

CUEMU_API(cuGraphLaunch, (CUgraphExec handle, CUstream stream_handle),
          (handle, stream_handle))
{
    cuemu_exec_t *exec = cuemu_exec_check(handle);
    cuemu_time_t begin = cuemu_now();
    cuemu_stream_t *stream;
    CUresult result;

    if (exec == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    result = cuemu_stream_resolve(stream_handle, &stream);
    if (result == CUDA_SUCCESS) {
        /* graphs cannot be nested here */
        result = cuemu_capture_refuse(stream);
    }
    return (result == CUDA_SUCCESS) ? cuemu_exec_launch(exec, stream, begin) :
                                      result;
}
