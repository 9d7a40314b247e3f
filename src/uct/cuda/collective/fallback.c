/* SPDX-License-Identifier: BSD-3-Clause */
#include <uct/cuda/collective/fallback.h>

#include <stdio.h>


/* docs/troubleshooting.md explains each reason */
static const struct {
    const char *word, *sentence;
} reasons[UCT_CUDA_COLL_REASON_LAST] = {
    [UCT_CUDA_COLL_AHEAD]        = {"ahead", "has declined before"},
    [UCT_CUDA_COLL_NO_HOST]      = {"host", "a buffer is not in GPU memory"},
    [UCT_CUDA_COLL_NO_ARGUMENTS] = {"arguments", "invalid arguments"},
    [UCT_CUDA_COLL_NO_DATATYPE]  = {"datatype", "no kernel for this datatype"},
    [UCT_CUDA_COLL_NO_BLOCKS]    = {"blocks", "blocks are not contiguous"},
    [UCT_CUDA_COLL_NO_NATIVE_PATH]   = {"native", "the MPI is as fast"},
    [UCT_CUDA_COLL_NO_BYTES]     = {"bytes", "the message is empty"},
    [UCT_CUDA_COLL_NO_LIMITS]    = {"limits", "beyond the limits of plans"},
    [UCT_CUDA_COLL_NO_ALIGNMENT] = {"alignment", "misaligned buffer"},
    [UCT_CUDA_COLL_NO_ONE_GPU]   = {"one-gpu", "buffers on different GPUs"},
    [UCT_CUDA_COLL_NO_CONTEXT]   = {"context", "no usable context"},
    [UCT_CUDA_COLL_NO_BUSY]      = {"busy", "cannot load a kernel yet"},
    [UCT_CUDA_COLL_NO_EXPORT]    = {"export", "cannot export a buffer"},
    [UCT_CUDA_COLL_NO_JOIN]      = {"join", "has not used GPU memory yet"},
    [UCT_CUDA_COLL_NO_MIXED]     = {"mixed", "differs from rank 0"},
    [UCT_CUDA_COLL_NO_GPUS]      = {"gpus", "more GPUs than plans support"},
    [UCT_CUDA_COLL_NO_PLAN]      = {"plan",
                                    "no peer access, or no memory to plan"},
    [UCT_CUDA_COLL_NO_SCRATCH]   = {"scratch", "needs too much scratch memory"},
    [UCT_CUDA_COLL_NO_MAP]       = {"map", "cannot map a peer's memory"},
    [UCT_CUDA_COLL_NO_UNMAP]     = {"unmap",
                                    "cannot close an old mapping yet"},
    [UCT_CUDA_COLL_FAULT_MAKE]   = {"make",
                                    "cannot create memory, streams or kernel"},
    [UCT_CUDA_COLL_FAULT_RUN]    = {"run", "a step failed"},
    [UCT_CUDA_COLL_FAULT_ENDED]  = {"ended", "the process has ended"},
    [UCT_CUDA_COLL_PAUSE]        = {"pause", "paused after failures"}
};


const char *uct_cuda_coll_fallback_str(const uct_cuda_coll_fallback_t *fallback,
                                       char *text, size_t size)
{
    char rank[32] = "", status[32] = "";

    if (fallback->rank != UCT_CUDA_COLL_ALL) {
        snprintf(rank, sizeof(rank), ", rank %d", fallback->rank);
    }
    if (fallback->status != UCS_OK) {
        snprintf(status, sizeof(status), " (status %d)", fallback->status);
    }
    snprintf(text, size, "%s%s: %s%s", reasons[fallback->reason].word, rank,
             reasons[fallback->reason].sentence, status);
    return text;
}
