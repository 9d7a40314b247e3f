/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One record for each CUDA context, with all module data of that context. Each
 * member is created at first use, with the context current.
 *
 * A program may destroy a context, or reset its device, between any two calls.
 * Streams, events, modules and memory of the context go with it, and must not
 * be passed to the driver any more (uct_cuda_ctx_is_alive()). Creating a record
 * frees the records of such contexts, unless they are held. No other place
 * destroys members. At process exit the records stay; the driver cleans up.
 *
 * Thread safe.
 */
#ifndef UCT_CUDA_BASE_CONTEXT_DATA_H
#define UCT_CUDA_BASE_CONTEXT_DATA_H

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/driver.h>

#include <stdbool.h>
#include <stddef.h>

BEGIN_C_DECLS


typedef struct uct_cuda_context        uct_cuda_context_t;
typedef struct uct_cuda_context_member uct_cuda_context_member_t;


/** Kind of member; a static object, identified by its address. */
typedef struct {
    size_t       size; /**< Bytes, zeroed before create() */

    /** Create a member in the current context; NULL: a zeroed one is enough.
     *  On failure it must leave nothing behind. Takes no lock. */
    ucs_status_t (*create)(void *member);

    /** Free process memory of a member whose context is gone. May be NULL.
     *  Takes no lock. */
    void         (*destroy)(void *member);
} uct_cuda_context_kind_t;


struct uct_cuda_context {
    CUcontext                 cuda;
    unsigned long long        id;       /**< uct_cuda_ctx_current() */
    uct_cuda_context_t        *next;
    unsigned                  holders;
    uct_cuda_context_member_t *members;
};


/**
 * Hold the current context's record until uct_cuda_context_put(). The context
 * itself is not retained.
 *
 * @return UCS_OK, UCS_ERR_NO_MEMORY; UCS_ERR_IO_ERROR: no current context.
 */
ucs_status_t uct_cuda_context_hold(uct_cuda_context_t **context_p);

void uct_cuda_context_put(uct_cuda_context_t *context);


/**
 * Return a member of a held record, valid as long as the record. The context
 * must be current.
 *
 * @return UCS_OK, UCS_ERR_NO_MEMORY, or the status of create().
 */
ucs_status_t uct_cuda_context_member(uct_cuda_context_t *context,
                                     const uct_cuda_context_kind_t *kind,
                                     void **member_p);


/** Hold the current context's record and return a member of it. On failure
 *  nothing is held. */
ucs_status_t uct_cuda_context_hold_member(const uct_cuda_context_kind_t *kind,
                                          uct_cuda_context_t **context_p,
                                          void **member_p);


static inline bool uct_cuda_context_is_alive(const uct_cuda_context_t *context)
{
    return uct_cuda_ctx_is_alive(context->cuda, context->id);
}

/** Push the context if it is alive, see uct_cuda_ctx_push_alive(). */
static inline bool uct_cuda_context_push(const uct_cuda_context_t *context)
{
    return uct_cuda_ctx_push_alive(context->cuda, context->id);
}


/** Create a non-blocking stream of the highest priority in the current
 *  context, for work awaited by the program; logs a failure. */
ucs_status_t uct_cuda_context_create_stream(CUstream *stream_p);


END_C_DECLS

#endif
