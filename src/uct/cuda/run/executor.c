/* SPDX-License-Identifier: BSD-3-Clause */
/* Choice of the executor of a plan. */
#include <uct/cuda/run/executor.h>


ucs_status_t uct_cuda_run_executors_create(uct_cuda_run_rsc_t *rsc,
                                           uct_cuda_run_executors_t *executors)
{
    ucs_status_t status = uct_cuda_run_graphs_create(rsc, &executors->graphs);

    if (status != UCS_OK) {
        return status;
    }

    status = uct_cuda_run_streams_create(rsc, &executors->streams);
    if (status != UCS_OK) {
        uct_cuda_run_graphs_destroy(executors->graphs);
    }

    return status;
}

void uct_cuda_run_executors_destroy(uct_cuda_run_executors_t *executors)
{
    uct_cuda_run_graphs_destroy(executors->graphs);
    uct_cuda_run_streams_destroy(executors->streams);
}

ucs_status_t uct_cuda_run_executors_submit(uct_cuda_run_executors_t *executors,
                                           const uct_cuda_run_work_t *work,
                                           const uct_cuda_run_memory_t *memory)
{
    ucs_status_t status;

    status = uct_cuda_run_graphs_submit(executors->graphs, work, memory);
    if (status == UCS_ERR_NO_RESOURCE) {
        status = uct_cuda_run_streams_submit(executors->streams, work, memory);
        if (status == UCS_OK) {
            uct_cuda_run_graphs_build_wanted(executors->graphs);
        }
    }

    return status;
}
