/* SPDX-License-Identifier: BSD-3-Clause */
#include <uct/cuda/copy/context.h>

#include <uct/cuda/base/log.h>


static ucs_status_t
enter_host_vmm(const uct_cuda_copy_t *copy, const uct_cuda_copy_end_t *gpu,
               uct_cuda_gpu_context_t *context)
{
    const uct_cuda_copy_end_t *src = uct_cuda_copy_src(copy);
    const uct_cuda_copy_end_t *vmm = uct_cuda_end_is_host_vmm(src->end) ?
                                             src :
                                             uct_cuda_copy_dst(copy);

    return uct_cuda_gpu_context_push_touching(
            vmm->address, (gpu != NULL) ? gpu->context : NULL,
            (gpu != NULL) ? gpu->end : uct_cuda_end_none(), context);
}

/* The context retained for the engine is tried first: a peer's memory is opened
 * in one context of a GPU */
static ucs_status_t
enter_peer(uct_cuda_end_t gpu, uct_cuda_gpu_context_t *context)
{
    if (!uct_cuda_end_is_gpu(gpu)) {
        return UCS_ERR_NO_DEVICE;
    }

    if (uct_cuda_gpu_context_push_kept(uct_cuda_end_device(gpu), context) ==
        UCS_OK) {
        return UCS_OK;
    }

    return uct_cuda_gpu_context_push_any(gpu, context);
}

static ucs_status_t
enter_gpu(const uct_cuda_copy_t *copy, const uct_cuda_copy_end_t *gpu,
          uct_cuda_gpu_context_t *context)
{
    uct_cuda_node_rkey_t *key = (uct_cuda_node_rkey_t*)copy->remote.key;
    ucs_status_t status;

    status = uct_cuda_gpu_context_push(gpu->context,
                                       uct_cuda_end_device(gpu->end), context);
    if ((status != UCS_OK) || (key == NULL) || key->is_self ||
        uct_cuda_node_rkey_reaches(key, context->device)) {
        return status;
    }

    uct_cuda_gpu_context_pop(context);
    if (enter_peer(key->gpu, context) == UCS_OK) {
        return UCS_OK;
    }

    return uct_cuda_gpu_context_push_any(key->from, context);
}

static ucs_status_t
enter_host(const uct_cuda_copy_t *copy, uct_cuda_gpu_context_t *context)
{
    if ((copy->remote.key != NULL) &&
        (enter_peer(copy->remote.key->gpu, context) == UCS_OK)) {
        return UCS_OK;
    }

    return uct_cuda_gpu_context_push_any(uct_cuda_end_none(), context);
}

static bool is_own_gpu(const uct_cuda_copy_end_t *end)
{
    return (end->key == NULL) && uct_cuda_end_is_gpu(end->end);
}

/* Return an end with GPU memory of this process, or NULL */
static const uct_cuda_copy_end_t *find_gpu(const uct_cuda_copy_t *copy)
{
    const uct_cuda_copy_end_t *src = uct_cuda_copy_src(copy);
    const uct_cuda_copy_end_t *dst = uct_cuda_copy_dst(copy);

    return is_own_gpu(src) ? src : is_own_gpu(dst) ? dst : NULL;
}

static void
log_failure(const uct_cuda_copy_t *copy, const uct_cuda_copy_end_t *gpu)
{
    char name[16];

    gpu = (gpu != NULL) ? gpu : &copy->local;
    uct_cuda_error("no usable context for %s memory at %p to copy %zu bytes",
                   uct_cuda_end_str(gpu->end, name, sizeof(name)),
                   (void*)gpu->address, copy->bytes);
}

ucs_status_t uct_cuda_copy_enter(const uct_cuda_copy_t *copy,
                                 uct_cuda_gpu_context_t *context)
{
    const uct_cuda_copy_end_t *gpu = find_gpu(copy);
    ucs_status_t status;

    status = uct_cuda_copy_has_host_vmm(copy) ?
                     enter_host_vmm(copy, gpu, context) :
             (gpu != NULL) ? enter_gpu(copy, gpu, context) :
                             enter_host(copy, context);
    if (status != UCS_OK) {
        log_failure(copy, gpu);
    }

    return status;
}
