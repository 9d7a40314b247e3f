/* SPDX-License-Identifier: BSD-3-Clause */
/* The exported table of collectives. */
#include <uct/cuda/collective_api.h>

#include <uct/abi/host.h>
#include <uct/cuda/base/memory.h>
#include <uct/cuda/collective/call.h>
#include <uct/cuda/collective/group.h>
#include <uct/cuda/collective/options.h>
#include <uct/cuda/collective/queue.h>
#include <uct/cuda/collective/remote_memory.h>
#include <uct/cuda/plan/collective_plan.h>


#define SEGMENT_DIR "/dev/shm"


_Static_assert((UCT_CUDA_COLL_API_RANKS == UCT_CUDA_PLAN_COLL_MAX_RANKS) &&
                       (UCT_CUDA_COLL_API_NAME == UCT_CUDA_NODE_SEGMENT_NAME),
               "what is said outside is what is meant inside");


static int api_segment_open(unsigned rank, unsigned size,
                            char name[UCT_CUDA_COLL_API_NAME],
                            uct_cuda_node_segment_t **segment_p)
{
    return (uct_cuda_node_segment_open(SEGMENT_DIR, rank, size, name,
                                       segment_p) == UCS_OK) ?
               0 :
               -1;
}

static int api_segment_has(const uct_cuda_node_segment_t *segment, uint64_t key)
{
    return uct_cuda_node_segment_has(segment, key);
}

static int api_group_create(uct_cuda_node_segment_t *segment, uint64_t key,
                            unsigned rank, unsigned size,
                            const unsigned *members, uint64_t calls,
                            uct_cuda_coll_group_t **group_p)
{
    return (uct_cuda_coll_group_create(segment, key, rank, size, members, calls,
                                       group_p) == UCS_OK) ?
                   0 :
                   -1;
}

UCT_ABI_EXPORT const uct_cuda_coll_api_t uct_cuda_coll_api_v7 = {
    .size                   = sizeof(uct_cuda_coll_api_t),
    .is_on                  = uct_cuda_coll_is_on,
    .segment_open           = api_segment_open,
    .segment_opened         = uct_cuda_node_segment_unlink,
    .segment_changes        = uct_cuda_node_segment_changes,
    .segment_has            = api_segment_has,
    .group_create           = api_group_create,
    .group_destroy          = uct_cuda_coll_queue_destroy,
    .fall_back              = uct_cuda_coll_queue_decline,
    .collective             = uct_cuda_coll_queue_collective,
    .counts                 = uct_cuda_coll_counts,
    .sync                   = uct_cuda_memory_sync,
    .segment_failures       = uct_cuda_node_segment_failures,
    .segment_report_failure = uct_cuda_node_segment_report_failure,
    .segment_failed_rank    = uct_cuda_node_segment_failed_rank,
    .memory_export          = uct_cuda_coll_remote_export,
    .memory_release         = uct_cuda_coll_remote_release,
    .memory_map             = uct_cuda_coll_remote_map,
    .memory_unmap           = uct_cuda_coll_remote_unmap,
    .is_queued              = uct_cuda_coll_queue_is_queued,
    .start                  = uct_cuda_coll_queue_start,
    .test                   = uct_cuda_coll_queue_test,
    .progress               = uct_cuda_coll_queue_progress,
    .on_end                 = uct_cuda_coll_queue_on_end
};
