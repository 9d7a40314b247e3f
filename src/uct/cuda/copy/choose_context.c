/* SPDX-License-Identifier: BSD-3-Clause */
#include <uct/cuda/copy/choose_context.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/memory.h>
#include <uct/cuda/base/pointer.h>
#include <uct/cuda/base/vmm.h>


static void
log_failure(const uct_cuda_copy_t *copy, const uct_cuda_copy_end_t *gpu)
{
    char name[16];

    gpu = (gpu != NULL) ? gpu : &copy->local;
    uct_cuda_error("no usable context for %s memory at %p to copy %zu bytes",
                   uct_cuda_end_str(gpu->end, name, sizeof(name)),
                   (void*)gpu->address, copy->bytes);
}

/* Make a context of the peer's GPU current, preferably the one retained for the
 * engine: the peer's memory is then mapped in one context of that GPU only. */
static ucs_status_t
enter_peer(const uct_cuda_node_rkey_t *key, uct_cuda_ctx_scope_t *context)
{
    if (key->gpu.kind != UCT_CUDA_END_GPU) {
        return UCS_ERR_NO_DEVICE;
    }

    return (uct_cuda_ctx_enter_kept(key->gpu.device, context) == UCS_OK) ?
                   UCS_OK :
                   uct_cuda_ctx_enter_any(key->gpu, 0, context);
}

/* Make the context current, by the rules in choose_context.h. @param gpu  End
 * with GPU memory of this process, or NULL. @param memory  Host VMM memory, or
 * 0. */
static ucs_status_t
enter(uct_cuda_node_rkey_t *key, const uct_cuda_copy_end_t *gpu,
      CUdeviceptr memory, uct_cuda_ctx_scope_t *context)
{
    ucs_status_t status;

    if ((gpu != NULL) &&
        ((memory == 0) ||
         uct_cuda_pointer_has_access(uct_cuda_driver_get(), gpu->end.device,
                                     memory, CU_MEM_ACCESS_FLAGS_PROT_READ))) {
        status = (gpu->context != NULL) ?
                         uct_cuda_ctx_enter(gpu->context, gpu->end.device,
                                            context) :
                         uct_cuda_ctx_enter_for(gpu->end.device, gpu->address,
                                                context);
        if ((status != UCS_OK) || (key == NULL) || key->is_self ||
            uct_cuda_node_rkey_reaches(key, context->device)) {
            return status;
        }

        uct_cuda_ctx_leave(context);
    }

    if ((memory == 0) && (key != NULL) &&
        (enter_peer(key, context) == UCS_OK)) {
        return UCS_OK;
    }

    return uct_cuda_ctx_enter_any(
            ((gpu != NULL) && (key != NULL)) ? key->from : uct_cuda_end_none(),
            memory, context);
}

bool uct_cuda_copy_is_open_to(const uct_cuda_copy_end_t *end, int device)
{
    return (end->context != NULL) ||
           uct_cuda_end_is_device(end->end, device) ||
           uct_cuda_pointer_has_access(uct_cuda_driver_get(), device,
                                       end->address,
                                       CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

/* Return whether the copy is between two GPUs in memory of this process */
static bool is_between_own_gpus(const uct_cuda_copy_t *copy)
{
    const uct_cuda_copy_end_t *remote = &copy->remote;

    return (copy->local.end.kind == UCT_CUDA_END_GPU) &&
           uct_cuda_end_is_gpu(remote->end) &&
           !uct_cuda_end_equal(remote->end, copy->local.end) &&
           ((remote->key == NULL) || remote->key->is_self);
}

/* Choose the end whose context can access both, of two ends on different GPUs
 * of this process. If neither can, give the other GPU access to memory
 * allocated by this module; the driver refuses that for other memory. */
static const uct_cuda_copy_end_t *choose(const uct_cuda_copy_t *copy)
{
    const int local  = uct_cuda_end_device(copy->local.end);
    const int remote = uct_cuda_end_device(copy->remote.end);

    if (uct_cuda_copy_is_open_to(&copy->remote, local)) {
        return &copy->local;
    }
    if (uct_cuda_copy_is_open_to(&copy->local, remote)) {
        return &copy->remote;
    }

    if (uct_cuda_vmm_open(copy->remote.address, local) == UCS_OK) {
        return &copy->local;
    }

    (void)uct_cuda_vmm_open(copy->local.address, remote);
    return &copy->remote;
}

/* Find the location of both ends. @param remote Of the remote end if it is
 * known, by its key or as a peer's host memory, or none. The context of memory
 * of this process needs a query of the driver. */
static void locate(uct_cuda_copy_t *copy, uct_cuda_end_t remote)
{
    uct_cuda_memory_place((void*)copy->local.address, &copy->local.end,
                          &copy->local.context);
    copy->remote.end     = remote;
    copy->remote.context = NULL;
    if ((remote.kind == UCT_CUDA_END_NONE) ||
        ((copy->remote.key != NULL) && is_between_own_gpus(copy))) {
        uct_cuda_memory_place((void*)copy->remote.address, &copy->remote.end,
                              &copy->remote.context);
    }
}

ucs_status_t
uct_cuda_copy_enter(uct_cuda_copy_t *copy, uct_cuda_end_t remote,
                    uct_cuda_ctx_scope_t *context)
{
    const uct_cuda_copy_end_t *gpu = NULL;
    CUdeviceptr memory             = 0;
    ucs_status_t status;

    locate(copy, remote);
    if (copy->remote.end.kind == UCT_CUDA_END_HOST_VMM) {
        memory = copy->remote.address;
    }

    if (copy->local.end.kind == UCT_CUDA_END_GPU) {
        gpu = is_between_own_gpus(copy) ? choose(copy) : &copy->local;
    } else if (copy->local.end.kind == UCT_CUDA_END_HOST_VMM) {
        memory = copy->local.address;
    }

    if ((gpu == NULL) && (copy->remote.key == NULL)) {
        if (copy->remote.end.kind == UCT_CUDA_END_GPU) {
            gpu = &copy->remote;
        } else if (memory == 0) {
            return UCS_ERR_UNSUPPORTED;
        }
    }

    status = enter(copy->remote.key, gpu, memory, context);
    if (status != UCS_OK) {
        log_failure(copy, gpu);
    }

    return status;
}


/* -------------------------------------------- access between local contexts */

CUcontext uct_cuda_copy_direct_context(uct_cuda_node_rkey_t *key,
                                       const uct_cuda_context_t *context,
                                       int device)
{
    const CUdeviceptr memory = key->handle.base;
    uct_cuda_end_t end;
    CUcontext owner;

    if (key->own.context_id != context->id) {
        /* memory without a context (pools, VMM) has access rights of its own */
        uct_cuda_memory_place((void*)memory, &end, &owner);
        key->own.is_reached = (owner != NULL) &&
                              uct_cuda_ctx_has_peer(context->cuda, memory);
        key->own.instead    = (key->own.is_reached || (owner == NULL)) ?
                                      NULL :
                                      uct_cuda_ctx_own_for(device, owner,
                                                           memory);
        key->own.context_id = context->id;
    }

    return key->own.instead;
}
