/* SPDX-License-Identifier: BSD-3-Clause */
#include <uct/cuda/plan/reason.h>


const char *uct_cuda_mp_reason_str(uct_cuda_mp_reason_t reason)
{
    static const char *reasons[UCT_CUDA_MP_NO_LAST] = {
        [UCT_CUDA_MP_ADMITTED] = "several paths carry it",
        [UCT_CUDA_MP_NO_OFF] = "UCX_CUDA_IPC_MULTIPATH is n",
        [UCT_CUDA_MP_NO_HIDDEN] =
                "the peer's GPU is not visible to this process "
                "(CUDA_VISIBLE_DEVICES)",
        [UCT_CUDA_MP_NO_SAME_END] = "both ends are the same",
        [UCT_CUDA_MP_NO_INDEX] =
                "there are more GPUs than plans have room for",
        [UCT_CUDA_MP_NO_MAPPING] =
                "the peer's memory can be mapped in one context only",
        [UCT_CUDA_MP_NO_SMALL] =
                "no transfer of this size gains on this node",
        [UCT_CUDA_MP_NO_ALONE] =
                "with nothing ahead of it, no transfer of this size gains on "
                "this node",
        [UCT_CUDA_MP_NO_TWO_CONTEXTS] =
                "its GPU was a relay before the program had a context there",
        [UCT_CUDA_MP_NO_NODE] = "nothing is known of the node yet",
        [UCT_CUDA_MP_NO_MIN_SIZE] =
                "the message is smaller than UCX_CUDA_IPC_MULTIPATH_MIN_SIZE",
        [UCT_CUDA_MP_NO_LINK] =
                "the two are no peers: the driver offers no access between "
                "them",
        [UCT_CUDA_MP_NO_GAIN] =
                "no set of paths that may be used is sure to gain 2 % over one "
                "path",
        [UCT_CUDA_MP_NO_RESOURCES] = "what the paths need is not to be had"
    };

    return reasons[reason];
}
