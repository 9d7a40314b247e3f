/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One record per CUDA context, with everything that the process keeps of it:
 * members, each made at first use with the context current.
 *
 * A program may destroy a context, or reset its device, between any two
 * calls. Streams, events, modules and memory of the context go with it, and the
 * driver must not be asked about them any more (uct_cuda_ctx_is_alive()). The
 * records of such contexts are dropped when the next record is made, unless
 * somebody holds them: that is the one place where members end. A process that
 * ends drops nothing; the driver does.
 *
 * Any thread.
 */
#ifndef UCT_CUDA_BASE_CONTEXT_H
#define UCT_CUDA_BASE_CONTEXT_H

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/driver.h>

#include <stdbool.h>
#include <stddef.h>

BEGIN_C_DECLS


typedef struct uct_cuda_context        uct_cuda_context_t;
typedef struct uct_cuda_context_member uct_cuda_context_member_t;


/** A kind of member; a static one, whose address tells it apart. */
typedef struct {
    size_t       size; /**< Bytes, zeroed before create() */

    /** Make a member of the current context; NULL: zeros will do. After an
     *  error nothing of it is left. Takes no lock. */
    ucs_status_t (*create)(void *member);

    /** Free the process's own memory of a member whose context is gone. May be
     *  NULL. Takes no lock. */
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
 * The record of a context, which stays until uct_cuda_context_put(). It takes
 * no reference to the context itself.
 *
 * @param cuda  NULL: the current one.
 * @return UCS_OK, UCS_ERR_NO_MEMORY; UCS_ERR_IO_ERROR: no context is current.
 */
ucs_status_t uct_cuda_context_hold(CUcontext cuda,
                                   uct_cuda_context_t **context_p);

void uct_cuda_context_put(uct_cuda_context_t *context);


/**
 * A member of a record that the caller holds, there as long as the record. The
 * context is current.
 *
 * @return UCS_OK, UCS_ERR_NO_MEMORY, or what create() answered.
 */
ucs_status_t uct_cuda_context_member(uct_cuda_context_t *context,
                                     const uct_cuda_context_kind_t *kind,
                                     void **member_p);


/** Hold the current context's record, and get a member of it. After an error
 *  nothing is held. */
ucs_status_t uct_cuda_context_hold_member(const uct_cuda_context_kind_t *kind,
                                          uct_cuda_context_t **context_p,
                                          void **member_p);


static inline bool uct_cuda_context_is_alive(const uct_cuda_context_t *context)
{
    return uct_cuda_ctx_is_alive(context->cuda, context->id);
}

/** As uct_cuda_ctx_push_alive(). */
static inline bool uct_cuda_context_push(const uct_cuda_context_t *context)
{
    return uct_cuda_ctx_push_alive(context->cuda, context->id);
}


/** Create a non-blocking stream of the highest priority in the current context,
 *  for work that the program waits for; logs a failure. */
ucs_status_t uct_cuda_context_create_stream(CUstream *stream_p);


END_C_DECLS

#endif
