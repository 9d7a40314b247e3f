/* SPDX-License-Identifier: BSD-3-Clause */
/* Choice of the CUDA context to copy in; base/ctx.h enters and leaves it. */
#ifndef UCT_CUDA_COPY_CHOOSE_CONTEXT_H
#define UCT_CUDA_COPY_CHOOSE_CONTEXT_H

#include <uct/cuda/base/context_data.h>
#include <uct/cuda/base/ctx.h>
#include <uct/cuda/copy/copy.h>


/**
 * Locate the ends of a copy and make its context current, until
 * uct_cuda_ctx_leave():
 *
 *   host VMM memory        a context whose GPU has access to it;
 *   GPU memory of this     the context that owns the memory; if both ends are
 *   process                such memory, the local end's, or the other's if only
 *                          its GPU has access to both. If that context cannot
 *                          map the other end, a context of the peer's GPU: the
 *                          driver copies through host memory;
 *   else, with a key       a context of the peer's GPU, else any context.
 *
 * @param remote  Remote end, with memory of another process; none: memory of
 *                this process, to be located.
 * @return UCS_OK; UCS_ERR_UNSUPPORTED: only host memory, the copy needs no
 *         context; or an error (logged): no usable context.
 */
ucs_status_t
uct_cuda_copy_enter(uct_cuda_copy_t *copy, uct_cuda_end_t remote,
                    uct_cuda_ctx_scope_t *context);

/**
 * Return whether copies in contexts of a GPU can access this end, which is GPU
 * memory of this process. The driver refuses memory without a context, from
 * cuMemCreate or a pool, unless that GPU has access to it.
 */
bool uct_cuda_copy_is_open_to(const uct_cuda_copy_end_t *end, int device);

/**
 * Find a context for direct copies to memory behind a key of this process.
 *
 * The driver stages copies between GPUs through host memory (38 GB/s on H200)
 * unless peer access is enabled. The module cannot enable it in the program's
 * contexts: a later cudaDeviceEnablePeerAccess() of the program would fail.
 * Peer access belongs to a pair of contexts (measured, driver 580), so a
 * context of the module on the local GPU, with access to the context of the
 * peer's memory, copies directly and leaves both contexts of the program
 * unchanged. Queries the driver once for each key and context.
 *
 * @param key      Key of this process; one thread at a time.
 * @param context  Current context, with the local memory.
 * @param device   Device of that context.
 * @return Context for the copy; NULL: use @a context. key->own.is_reached is
 *         then true if its copies are direct.
 */
CUcontext uct_cuda_copy_direct_context(uct_cuda_node_rkey_t *key,
                                       const uct_cuda_context_t *context,
                                       int device);

#endif
