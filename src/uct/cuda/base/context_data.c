/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Records are found and dropped under one lock, which calls the driver only for
 * ids of contexts. Members are created under another lock and found without
 * one: a held record only gains members.
 */
#include <uct/cuda/base/context_data.h>

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>


struct uct_cuda_context_member {
    uct_cuda_context_member_t     *next;
    const uct_cuda_context_kind_t *kind;
    max_align_t                   data[];
};

static struct {
    pthread_mutex_t    lock;    /* order: base/thread.h */
    pthread_mutex_t    members; /* creating a member */
    uct_cuda_context_t *head;
} contexts = {
    .lock    = PTHREAD_MUTEX_INITIALIZER,
    .members = PTHREAD_MUTEX_INITIALIZER
};


static void context_destroy(uct_cuda_context_t *context)
{
    uct_cuda_context_member_t *member;

    while ((member = context->members) != NULL) {
        context->members = member->next;
        if (member->kind->destroy != NULL) {
            member->kind->destroy(member->data);
        }
        free(member);
    }

    free(context);
}

/* Destroy the records of dead contexts that are not held. Call with the lock
 * held. */
static void drop_dead(void)
{
    uct_cuda_context_t **link = &contexts.head;
    uct_cuda_context_t *context;

    while ((context = *link) != NULL) {
        if ((__atomic_load_n(&context->holders, __ATOMIC_ACQUIRE) > 0) ||
            uct_cuda_context_is_alive(context)) {
            link = &context->next;
        } else {
            *link = context->next;
            context_destroy(context);
        }
    }
}

/* Call with the lock held */
static uct_cuda_context_t *find(CUcontext cuda, unsigned long long id)
{
    uct_cuda_context_t *context = contexts.head;

    while ((context != NULL) &&
           ((context->cuda != cuda) || (context->id != id))) {
        context = context->next;
    }

    return context;
}

/* Call with the lock held */
static uct_cuda_context_t *add(CUcontext cuda, unsigned long long id)
{
    uct_cuda_context_t *context;

    drop_dead();
    context = calloc(1, sizeof(*context));
    if (context != NULL) {
        context->cuda = cuda;
        context->id   = id;
        context->next = contexts.head;
        contexts.head = context;
    }

    return context;
}

ucs_status_t uct_cuda_context_hold(uct_cuda_context_t **context_p)
{
    unsigned long long id;
    uct_cuda_context_t *context;
    ucs_status_t status;
    CUcontext cuda;

    status = uct_cuda_ctx_current(&cuda, &id);
    if (status != UCS_OK) {
        return status;
    }

    pthread_mutex_lock(&contexts.lock);
    context = find(cuda, id);
    if (context == NULL) {
        context = add(cuda, id);
    }
    if (context != NULL) {
        __atomic_fetch_add(&context->holders, 1, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&contexts.lock);

    *context_p = context;
    return (context != NULL) ? UCS_OK : UCS_ERR_NO_MEMORY;
}

void uct_cuda_context_put(uct_cuda_context_t *context)
{
    __atomic_fetch_sub(&context->holders, 1, __ATOMIC_RELEASE);
}

static uct_cuda_context_member_t *
find_member(const uct_cuda_context_t *context,
            const uct_cuda_context_kind_t *kind)
{
    uct_cuda_context_member_t *member =
            __atomic_load_n(&context->members, __ATOMIC_ACQUIRE);

    while ((member != NULL) && (member->kind != kind)) {
        member = member->next;
    }

    return member;
}

/* Call with the lock of members held */
static ucs_status_t add_member(uct_cuda_context_t *context,
                               const uct_cuda_context_kind_t *kind)
{
    ucs_status_t status = UCS_OK;
    uct_cuda_context_member_t *member;

    member = calloc(1, sizeof(*member) + kind->size);
    if (member == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    if (kind->create != NULL) {
        status = kind->create(member->data);
        if (status != UCS_OK) {
            free(member);
            return status;
        }
    }

    member->kind = kind;
    member->next = context->members;
    __atomic_store_n(&context->members, member, __ATOMIC_RELEASE);
    return UCS_OK;
}

ucs_status_t uct_cuda_context_member(uct_cuda_context_t *context,
                                     const uct_cuda_context_kind_t *kind,
                                     void **member_p)
{
    uct_cuda_context_member_t *member = find_member(context, kind);
    ucs_status_t status               = UCS_OK;

    if (member == NULL) {
        pthread_mutex_lock(&contexts.members);
        member = find_member(context, kind);
        if (member == NULL) {
            status = add_member(context, kind);
            member = context->members;
        }
        pthread_mutex_unlock(&contexts.members);
    }

    if (status == UCS_OK) {
        *member_p = member->data;
    }

    return status;
}

ucs_status_t uct_cuda_context_hold_member(const uct_cuda_context_kind_t *kind,
                                          uct_cuda_context_t **context_p,
                                          void **member_p)
{
    ucs_status_t status;

    status = uct_cuda_context_hold(context_p);
    if (status != UCS_OK) {
        return status;
    }

    status = uct_cuda_context_member(*context_p, kind, member_p);
    if (status != UCS_OK) {
        uct_cuda_context_put(*context_p);
    }

    return status;
}

/* The driver clamps a priority beyond its range */
ucs_status_t uct_cuda_context_create_stream(CUstream *stream_p)
{
    if (uct_cuda_driver_get()->cuStreamCreateWithPriority == NULL) {
        return UCT_CUDA_CALL(cuStreamCreate, stream_p, CU_STREAM_NON_BLOCKING);
    }

    return UCT_CUDA_CALL(cuStreamCreateWithPriority, stream_p,
                         CU_STREAM_NON_BLOCKING, INT_MIN);
}
