/* SPDX-License-Identifier: BSD-3-Clause */
#include <uct/cuda/plan/reason.h>


const char *uct_cuda_plan_reason_str(uct_cuda_plan_reason_t reason)
{
    static const char *reasons[UCT_CUDA_PLAN_NO_LAST] = {
        [UCT_CUDA_PLAN_ADMITTED] = "several paths are used",
        [UCT_CUDA_PLAN_NO_OFF] = "UCX_CUDA_IPC_MULTIPATH is n",
        [UCT_CUDA_PLAN_NO_HIDDEN] =
                "the peer's GPU is not visible to this process "
                "(CUDA_VISIBLE_DEVICES)",
        [UCT_CUDA_PLAN_NO_SAME_END] = "both ends are the same",
        [UCT_CUDA_PLAN_NO_INDEX] =
                "there are more GPUs than plans support",
        [UCT_CUDA_PLAN_NO_MAPPING] =
                "the peer's memory can be mapped in one context only",
        [UCT_CUDA_PLAN_NO_SMALL] =
                "transfers of this size gain nothing from several paths",
        [UCT_CUDA_PLAN_NO_ALONE] =
                "a single transfer of this size gains nothing from several "
                "paths",
        [UCT_CUDA_PLAN_NO_TWO_CONTEXTS] =
                "the GPU was used as a relay before the program created a "
                "context on it",
        [UCT_CUDA_PLAN_NO_NODE] = "the node has not been probed yet",
        [UCT_CUDA_PLAN_NO_MIN_SIZE] =
                "the message is smaller than UCX_CUDA_IPC_MULTIPATH_MIN_SIZE",
        [UCT_CUDA_PLAN_NO_LINK] =
                "the link between the GPUs failed before",
        [UCT_CUDA_PLAN_NO_GAIN] =
                "no allowed set of paths gains at least 2 % over one path",
        [UCT_CUDA_PLAN_NO_RESOURCES] =
                "resources of the paths are not available"
    };

    return reasons[reason];
}
