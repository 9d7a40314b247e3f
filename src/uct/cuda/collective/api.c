/* SPDX-License-Identifier: BSD-3-Clause */
/* The exported table of collectives, and of GPU memory that processes of a node
 * open to each other for MPI windows. */
#include <uct/cuda/collective_api.h>

#include <uct/abi/host.h>
#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/gpu.h>
#include <uct/cuda/base/memory.h>
#include <uct/cuda/collective/call.h>
#include <uct/cuda/collective/options.h>
#include <uct/cuda/collective/queue.h>
#include <uct/cuda/collective/team.h>
#include <uct/cuda/node/exports.h>
#include <uct/cuda/node/mappings.h>
#include <uct/cuda/plan/collective_plan.h>

#include <stdlib.h>
#include <string.h>


#define SEGMENT_DIR "/dev/shm"


/* Content of a handle */
typedef struct {
    uct_cuda_node_handle_t handle;
    uint64_t               offset; /* of the memory in its allocation, bytes */
    uint64_t               size;
} remote_t;

struct uct_cuda_coll_mapping {
    uct_cuda_node_mapping_t *mapping;
    int                     retained; /* device of a retained context, or -1 */
};

_Static_assert(sizeof(remote_t) <= UCT_CUDA_COLL_API_HANDLE,
               "a handle does not fit into the interface's bytes");

_Static_assert((UCT_CUDA_COLL_API_RANKS == UCT_CUDA_PLAN_COLL_MAX_RANKS) &&
                       (UCT_CUDA_COLL_API_NAME == UCT_CUDA_NODE_SEGMENT_NAME),
               "the interface and the module disagree");


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

static int api_team_create(uct_cuda_node_segment_t *segment, uint64_t key,
                           unsigned rank, unsigned size,
                           const unsigned *members, uint64_t calls,
                           uct_cuda_coll_team_t **team_p)
{
    return (uct_cuda_coll_team_create(segment, key, rank, size, members, calls,
                                      team_p) == UCS_OK) ?
                   0 :
                   -1;
}

static int api_memory_export(const void *address, size_t size,
                                char handle[UCT_CUDA_COLL_API_HANDLE])
{
    remote_t remote = {0};
    uct_cuda_memory_t memory;

    uct_cuda_memory_query(address, 1, &memory);
    if ((memory.type != UCS_MEMORY_TYPE_CUDA) ||
        (uct_cuda_node_exports_get(address, &memory, &remote.handle) !=
         UCS_OK)) {
        return -1;
    }

    remote.offset = (CUdeviceptr)address - remote.handle.base;
    remote.size   = size;
    memcpy(handle, &remote, sizeof(remote));
    if ((remote.handle.type == UCT_CUDA_NODE_HANDLE_NONE) ||
        (remote.offset > remote.handle.length) ||
        (size > remote.handle.length - remote.offset)) {
        uct_cuda_node_exports_put(&remote.handle);
        return -1;
    }

    return 0;
}

static void api_memory_release(char handle[UCT_CUDA_COLL_API_HANDLE])
{
    remote_t remote;

    memcpy(&remote, handle, sizeof(remote));
    uct_cuda_node_exports_put(&remote.handle);
}

/* Map into a context of the memory's own GPU; the context is retained
 * until the mapping is removed */
static ucs_status_t map_there(const uct_cuda_node_handle_t *handle,
                              uct_cuda_coll_mapping_t *mapping)
{
    const uct_cuda_end_t gpu = uct_cuda_gpu_by_uuid(handle->gpu);
    ucs_status_t status;
    CUcontext ctx;

    if (!uct_cuda_end_is_gpu(gpu)) {
        return UCS_ERR_UNREACHABLE;
    }

    status = uct_cuda_ctx_retain(uct_cuda_end_device(gpu), true, &ctx);
    if (status != UCS_OK) {
        return status;
    }

    status = uct_cuda_ctx_push(ctx);
    if (status == UCS_OK) {
        status = uct_cuda_node_cache_get(handle, uct_cuda_end_device(gpu),
                                         &mapping->mapping);
        uct_cuda_ctx_pop();
    }
    if (status != UCS_OK) {
        uct_cuda_ctx_release(uct_cuda_end_device(gpu));
        return status;
    }

    mapping->retained = uct_cuda_end_device(gpu);
    return UCS_OK;
}

static uint64_t api_memory_map(const char handle[UCT_CUDA_COLL_API_HANDLE],
                                  uct_cuda_coll_mapping_t **mapping_p,
                                  void **context_p, int *is_copied_p)
{
    uct_cuda_coll_mapping_t *mapping = calloc(1, sizeof(*mapping));
    ucs_status_t status              = UCS_ERR_UNREACHABLE;
    unsigned long long id            = 0;
    remote_t remote;
    CUcontext ctx;
    CUdevice device;

    memcpy(&remote, handle, sizeof(remote));
    if ((mapping == NULL) || !uct_cuda_node_handle_is_valid(&remote.handle) ||
        (remote.offset > remote.handle.length) ||
        (remote.size > remote.handle.length - remote.offset)) {
        free(mapping);
        return 0;
    }

    mapping->retained = -1;
    if ((uct_cuda_ctx_current(&ctx, &id) == UCS_OK) &&
        (uct_cuda_driver_get()->cuCtxGetDevice(&device) == CUDA_SUCCESS)) {
        status = uct_cuda_node_cache_get(&remote.handle, device,
                                         &mapping->mapping);
    }
    *is_copied_p = (status != UCS_OK) ||
                   !uct_cuda_node_mapping_is_in(mapping->mapping, id);
    if (status != UCS_OK) {
        status = map_there(&remote.handle, mapping);
    }
    if (status != UCS_OK) {
        uct_cuda_node_cache_log_failure(&remote.handle, status);
        free(mapping);
        return 0;
    }

    *mapping_p = mapping;
    *context_p = mapping->mapping->context;
    return mapping->mapping->mapped + remote.offset;
}

static void api_memory_unmap(uct_cuda_coll_mapping_t *mapping)
{
    uct_cuda_node_cache_put(mapping->mapping, true);
    if (mapping->retained >= 0) {
        uct_cuda_ctx_release(mapping->retained);
    }
    free(mapping);
}

static void api_note(const char *sentence)
{
    uct_cuda_info("%s", sentence);
}

UCT_ABI_EXPORT const uct_cuda_coll_api_t uct_cuda_coll_api_v7 = {
    .size                   = sizeof(uct_cuda_coll_api_t),
    .is_on                  = uct_cuda_coll_is_on,
    .segment_open           = api_segment_open,
    .segment_opened         = uct_cuda_node_segment_unlink,
    .segment_changes        = uct_cuda_node_segment_changes,
    .segment_has            = api_segment_has,
    .team_create            = api_team_create,
    .team_destroy           = uct_cuda_coll_queue_destroy,
    .fall_back              = uct_cuda_coll_queue_decline,
    .collective             = uct_cuda_coll_queue_collective,
    .counts                 = uct_cuda_coll_counts,
    .sync                   = uct_cuda_memory_sync,
    .segment_failures       = uct_cuda_node_segment_failures,
    .segment_report_failure = uct_cuda_node_segment_report_failure,
    .segment_failed_rank    = uct_cuda_node_segment_failed_rank,
    .memory_export          = api_memory_export,
    .memory_release         = api_memory_release,
    .memory_map             = api_memory_map,
    .memory_unmap           = api_memory_unmap,
    .is_queued              = uct_cuda_coll_queue_is_queued,
    .start                  = uct_cuda_coll_queue_start,
    .test                   = uct_cuda_coll_queue_test,
    .progress               = uct_cuda_coll_queue_progress,
    .on_end                 = uct_cuda_coll_queue_on_end,
    .note                   = api_note,
    .segment_withdraw_failure = uct_cuda_node_segment_withdraw_failure,
    .may_load               = uct_cuda_ctx_wait_idle
};
