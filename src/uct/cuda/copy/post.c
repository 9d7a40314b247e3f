/* SPDX-License-Identifier: BSD-3-Clause */
/* Check, choice of context, order of a stream, submission. */
#include <uct/cuda/copy/post.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/range.h>
#include <uct/cuda/copy/choose_context.h>
#include <uct/cuda/copy/method.h>

#include <ucs/sys/math.h>

#include <pthread.h>


/* Get the stream of a copy, by its key. Copies with host memory take longer
 * than those between GPUs and have streams of their own, one for each
 * direction. Only the first block of a list may fail for lack of
 * resources. */
static inline ucs_status_t
get_stream(const uct_cuda_copier_t *copier, const uct_cuda_copy_t *copy,
           bool is_next, const uct_cuda_ctx_scope_t *context,
           uct_cuda_stream_t **stream)
{
    const unsigned max_streams = copier->max_streams;
    unsigned index             = copy->remote.key->stream;

    if (copy->local.end.kind == UCT_CUDA_END_HOST) {
        index = max_streams - 1 - ((2 * index + !copy->is_put) % max_streams);
    } else if (index >= max_streams) {
        index %= max_streams;
    }

    return uct_cuda_queue_stream_in(copier->coalescer.queue, context->cuda,
                                    index, is_next, stream);
}

/* If only another context of the GPU has direct access to the remote memory of
 * this process, make that context current and get a stream of it */
static ucs_status_t use_direct(const uct_cuda_copier_t *copier,
                               const uct_cuda_copy_t *copy, bool is_next,
                               uct_cuda_ctx_scope_t *context,
                               uct_cuda_stream_t **stream)
{
    const int device = context->device;
    CUcontext cuda;
    ucs_status_t status;

    cuda = uct_cuda_copy_direct_context(copy->remote.key, (*stream)->context,
                                        device);
    if (cuda == NULL) {
        return UCS_OK;
    }

    uct_cuda_ctx_leave(context);
    status = uct_cuda_ctx_enter(cuda, device, context);
    return (status == UCS_OK) ?
                   get_stream(copier, copy, is_next, context, stream) :
                   status;
}

/* Submit a copy, coalesced or by itself, in the current context or in another
 * one made current (use_direct()). The caller leaves @a context. */
static ucs_status_t submit(uct_cuda_copier_t *copier,
                           const uct_cuda_copy_t *copy, bool has_more,
                           bool is_next, uct_cuda_ctx_scope_t *context)
{
    uct_cuda_copy_coalescer_t *coalescer = &copier->coalescer;
    uct_cuda_stream_t *stream;
    ucs_status_t status;

    status = get_stream(copier, copy, is_next, context, &stream);
    if ((status == UCS_OK) && copy->remote.key->is_self &&
        (copy->local.end.kind == UCT_CUDA_END_GPU)) {
        status = use_direct(copier, copy, is_next, context, &stream);
    }

    if (status != UCS_OK) {
        return status;
    }

    status = uct_cuda_copy_coalesce_add(coalescer, stream, context->device,
                                        copy, has_more);
    return (status != UCS_ERR_UNSUPPORTED) ?
                   status :
                   uct_cuda_copy_run(coalescer->queue, stream, copy,
                                     coalescer->engine, context->device,
                                     coalescer->enable_cache);
}


/* --------------------------------------------------------------- interface */

ucs_status_t uct_cuda_copy_check_key(const uct_cuda_copy_t *copy)
{
    const uct_cuda_copy_end_t *remote = &copy->remote;
    const uct_cuda_node_handle_t *handle;

    if (remote->key == NULL) {
        uct_cuda_error("transfer of %zu bytes at %#lx without a valid key",
                       copy->bytes, (unsigned long)remote->address);
        return UCS_ERR_INVALID_PARAM;
    }

    handle = &remote->key->handle;
    if (uct_cuda_range_holds(handle->base, handle->length, remote->address,
                             copy->bytes)) {
        return uct_cuda_node_rkey_update(remote->key);
    }

    uct_cuda_error("transfer of %zu bytes at %#lx is outside of the peer's "
                   "memory %#lx..%#lx",
                   copy->bytes, (unsigned long)remote->address,
                   (unsigned long)handle->base,
                   (unsigned long)(handle->base + handle->length));
    return UCS_ERR_INVALID_PARAM;
}

ucs_status_t uct_cuda_copy_post(uct_cuda_copier_t *copier,
                                uct_cuda_copy_t *copy, bool has_more,
                                bool is_next)
{
    uct_cuda_ctx_scope_t context;
    ucs_status_t status;

    if (!is_next) {
        status = uct_cuda_copy_check_key(copy);
        if (status != UCS_OK) {
            return status;
        }
    }

    if ((copier->coalescer.open != NULL) &&
        uct_cuda_copy_coalesce_follow(&copier->coalescer, copy, has_more,
                                      is_next)) {
        return UCS_INPROGRESS;
    }

    status = uct_cuda_copy_enter(copy, copy->remote.key->gpu, &context);
    if (status != UCS_OK) {
        return status;
    }

    status = submit(copier, copy, has_more, is_next, &context);
    uct_cuda_ctx_leave(&context);
    return status;
}


/* -------------------------------------------------------------- open, close */

/* Settings of the copier opened last, for uct_cuda_copier_open_shared() */
static struct {
    pthread_mutex_t          lock; /* takes no other lock */
    uct_cuda_copy_settings_t settings;
} last = {.lock = PTHREAD_MUTEX_INITIALIZER};


static void copier_set(uct_cuda_copier_t *copier, uct_cuda_queue_t *queue,
                       uct_cuda_mp_engine_t *engine,
                       const uct_cuda_copy_settings_t *settings)
{
    copier->max_streams             = ucs_max(settings->max_streams, 1);
    copier->coalescer.engine        = engine;
    copier->coalescer.kernel_blocks = ucs_min(
            settings->kernel_blocks, UCT_CUDA_COPY_KERNEL_MAX_BLOCKS / 2);
    copier->coalescer.enable_cache  = settings->enable_cache;
    uct_cuda_copy_coalesce_init(&copier->coalescer, queue);
}

void uct_cuda_copier_open(uct_cuda_copier_t *copier, uct_cuda_queue_t *queue,
                          uct_cuda_mp_engine_t *engine,
                          const uct_cuda_copy_settings_t *settings)
{
    copier_set(copier, queue, engine, settings);
    pthread_mutex_lock(&last.lock);
    last.settings = *settings;
    pthread_mutex_unlock(&last.lock);
}

/* An engine may exist before a copier is opened */
ucs_status_t uct_cuda_copier_open_shared(uct_cuda_copier_t *copier,
                                         uct_cuda_queue_t *queue)
{
    uct_cuda_copy_settings_t settings;
    uct_cuda_mp_engine_t *engine;
    ucs_status_t status;

    if (copier->coalescer.engine != NULL) {
        return UCS_OK;
    }

    status = uct_cuda_mp_engine_get_any(&engine);
    if (status != UCS_OK) {
        return status;
    }

    pthread_mutex_lock(&last.lock);
    settings = last.settings;
    pthread_mutex_unlock(&last.lock);
    copier_set(copier, queue, engine, &settings);
    return UCS_OK;
}

void uct_cuda_copier_close(uct_cuda_copier_t *copier)
{
    if (copier->coalescer.engine != NULL) {
        uct_cuda_copy_coalesce_cleanup(&copier->coalescer);
        uct_cuda_mp_engine_put(copier->coalescer.engine);
        copier->coalescer.engine = NULL;
    }
}
