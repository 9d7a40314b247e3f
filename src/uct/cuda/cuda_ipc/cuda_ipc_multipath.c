/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine's transfers as operations of the queue, and the peer's memory in
 * each context that a path reads or writes it from. */
#include <uct/cuda/cuda_ipc/cuda_ipc_multipath.h>

#include <uct/cuda/cuda_ipc/cuda_ipc_cache.h>

#include <stdlib.h>


/* A transfer over several paths, and the mappings of the peer's memory that it
 * uses: one in the local context, one in that of each relay */
typedef struct {
    uct_cuda_mp_transfer_t    *transfer;
    const uct_cuda_ipc_rkey_t *rkey;
    uint64_t                  offset; /* In the peer's allocation, bytes */
    bool                      keep;   /* Mappings may stay in the cache */
    void                      (*release)(void *arg);
    void                      *arg;
    unsigned                  num_mappings;
    uct_cuda_ipc_mapping_t    *mappings[1 + UCT_CUDA_MP_MAX_PATHS];
} multipath_t;


static ucs_status_t multipath_test(uct_cuda_op_t *op)
{
    return uct_cuda_mp_test(((multipath_t*)op->arg)->transfer);
}

static ucs_status_t multipath_notify(uct_cuda_op_t *op, CUhostFn func,
                                     void *arg)
{
    return uct_cuda_mp_notify(((multipath_t*)op->arg)->transfer, func, arg);
}

static void multipath_destroy(multipath_t *multipath)
{
    unsigned i;

    for (i = 0; i < multipath->num_mappings; ++i) {
        uct_cuda_ipc_cache_put(multipath->mappings[i], multipath->keep);
    }

    free(multipath);
}

static void multipath_done(uct_cuda_op_t *op)
{
    multipath_t *multipath = op->arg;

    uct_cuda_mp_release(multipath->transfer);
    if (multipath->release != NULL) {
        multipath->release(multipath->arg);
    }

    multipath_destroy(multipath);
}

/* Maps the peer's memory in the current context, of this device */
static ucs_status_t multipath_map(void *arg, int device, CUdeviceptr *ptr_p)
{
    multipath_t *multipath = arg;
    uct_cuda_ipc_mapping_t *mapping;
    ucs_status_t status;

    if (multipath->num_mappings == sizeof(multipath->mappings) /
                                           sizeof(multipath->mappings[0])) {
        return UCS_ERR_EXCEEDS_LIMIT;
    }

    status = uct_cuda_ipc_cache_get(&multipath->rkey->handle, device, &mapping);
    if (status != UCS_OK) {
        return status;
    }

    multipath->mappings[multipath->num_mappings++] = mapping;
    *ptr_p = mapping->mapped + multipath->offset;
    return UCS_OK;
}

void uct_cuda_ipc_multipath_count(uct_cuda_ipc_iface_t *iface,
                                  const uct_cuda_ipc_rkey_t *rkey,
                                  uct_cuda_end_t local, size_t length,
                                  bool is_put, uct_cuda_op_t *op)
{
    op->counter = iface->engine;
    op->counted = uct_cuda_mp_single_begin(iface->engine,
                                           is_put ? local : rkey->gpu,
                                           is_put ? rkey->gpu : local, length);
}

void uct_cuda_ipc_multipath_uncount(uct_cuda_op_t *op)
{
    if (op->counter != NULL) {
        uct_cuda_mp_single_end(op->counter, op->counted);
    }
}

ucs_status_t uct_cuda_ipc_multipath_start(
        uct_cuda_ipc_iface_t *iface,
        const uct_cuda_ipc_multipath_request_t *request, uct_cuda_op_t *op)
{
    const uct_cuda_ipc_rkey_t *rkey = request->rkey;
    const bool is_put               = request->is_put;
    const uct_cuda_end_t local_end  = request->local_end;
    const uct_cuda_end_t remote_end = rkey->gpu;
    CUdeviceptr local               = (CUdeviceptr)request->local;
    CUdeviceptr remote              = 0;
    uct_cuda_mp_request_t mp_request;
    multipath_t *multipath;

    /* Only the owner's handle of legacy memory can be opened once more for
     * every relay */
    if ((rkey->handle.type != UCT_CUDA_IPC_HANDLE_LEGACY) ||
        !uct_cuda_mp_may_split(iface->engine,
                               is_put ? local_end : remote_end,
                               is_put ? remote_end : local_end,
                               request->length)) {
        return UCS_ERR_UNSUPPORTED;
    }

    multipath = calloc(1, sizeof(*multipath));
    if (multipath == NULL) {
        return UCS_ERR_UNSUPPORTED;
    }

    multipath->rkey    = rkey;
    multipath->offset  = request->remote_addr - rkey->handle.base;
    multipath->keep    = iface->enable_cache;
    multipath->release = request->release;
    multipath->arg     = request->arg;

    /* With host memory, the engine has the GPU itself asked for */
    if (uct_cuda_end_is_gpu(local_end) &&
        (multipath_map(multipath, uct_cuda_end_device(local_end), &remote) !=
         UCS_OK)) {
        goto err;
    }

    mp_request.size      = request->length;
    mp_request.src       = is_put ? local : remote;
    mp_request.dst       = is_put ? remote : local;
    mp_request.src_end   = is_put ? local_end : remote_end;
    mp_request.dst_end   = is_put ? remote_end : local_end;
    mp_request.host_numa = request->host_numa;
    mp_request.num_cuts  = request->num_cuts;
    mp_request.cuts      = request->cuts;
    if ((uct_cuda_mp_start_remote(iface->engine, &mp_request,
                                  is_put ? UCT_CUDA_MP_REMOTE_DST :
                                           UCT_CUDA_MP_REMOTE_SRC,
                                  multipath_map, multipath,
                                  &multipath->transfer) != UCS_OK) ||
        (multipath->transfer == NULL)) {
        goto err;
    }

    op->test   = multipath_test;
    op->notify = multipath_notify;
    op->done   = multipath_done;
    op->arg    = multipath;
    op->steps  = uct_cuda_mp_num_steps(multipath->transfer);
    return UCS_OK;

err:
    multipath_destroy(multipath);
    return UCS_ERR_UNSUPPORTED;
}
