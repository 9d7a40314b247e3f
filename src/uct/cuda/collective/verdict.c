/* SPDX-License-Identifier: BSD-3-Clause */
#include <uct/cuda/collective/verdict.h>

#include <stdio.h>


/* docs/collectives.md explains each reason */
static const struct {
    const char *word, *sentence;
} reasons[UCT_CUDA_COLL_REASON_LAST] = {
    [UCT_CUDA_COLL_AHEAD]        = {"ahead", "has passed"},
    [UCT_CUDA_COLL_NO_HOST]      = {"host", "a buffer is not in GPU memory"},
    [UCT_CUDA_COLL_NO_ARGUMENTS] = {"arguments", "are the MPI's to judge"},
    [UCT_CUDA_COLL_NO_DATATYPE]  = {"datatype", "no kernel does it"},
    [UCT_CUDA_COLL_NO_BLOCKS]    = {"blocks", "are not one behind the other"},
    [UCT_CUDA_COLL_NO_OWN_WAY]   = {"own-way", "the MPI is as fast"},
    [UCT_CUDA_COLL_NO_BYTES]     = {"bytes", "there are none"},
    [UCT_CUDA_COLL_NO_LIMITS]    = {"limits", "beyond what plans can do"},
    [UCT_CUDA_COLL_NO_ALIGNMENT] = {"alignment", "elements lie askew"},
    [UCT_CUDA_COLL_NO_ONE_GPU]   = {"one-gpu", "buffers on two"},
    [UCT_CUDA_COLL_NO_CONTEXT]   = {"context", "is of no use"},
    [UCT_CUDA_COLL_NO_BUSY]      = {"busy", "a kernel waits to be loaded"},
    [UCT_CUDA_COLL_NO_EXPORT]    = {"export", "a buffer cannot be shown"},
    [UCT_CUDA_COLL_NO_JOIN]      = {"join", "has had no GPU memory yet"},
    [UCT_CUDA_COLL_NO_MIXED]     = {"mixed", "not what rank 0 does"},
    [UCT_CUDA_COLL_NO_GPUS]      = {"gpus", "more than a plan knows"},
    [UCT_CUDA_COLL_NO_PLAN]      = {"plan", "none here, or no memory"},
    [UCT_CUDA_COLL_NO_SCRATCH]   = {"scratch", "a plan takes too much of it"},
    [UCT_CUDA_COLL_NO_MAP]       = {"map", "cannot map what is shown to it"},
    [UCT_CUDA_COLL_FAULT_MAKE]   = {"make", "memory, streams or a kernel"},
    [UCT_CUDA_COLL_FAULT_RUN]    = {"run", "a step failed"},
    [UCT_CUDA_COLL_FAULT_ENDED]  = {"ended", "the process is gone"},
    [UCT_CUDA_COLL_PAUSE]        = {"pause", "too much could not be made"}
};


const char *uct_cuda_coll_verdict_str(const uct_cuda_coll_verdict_t *verdict,
                                      char *text, size_t size)
{
    char rank[32] = "", status[32] = "";

    if (verdict->rank != UCT_CUDA_COLL_ALL) {
        snprintf(rank, sizeof(rank), ", rank %d", verdict->rank);
    }
    if (verdict->status != UCS_OK) {
        snprintf(status, sizeof(status), " (status %d)", verdict->status);
    }
    snprintf(text, size, "%s%s: %s%s", reasons[verdict->reason].word, rank,
             reasons[verdict->reason].sentence, status);
    return text;
}
