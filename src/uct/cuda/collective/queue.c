/* SPDX-License-Identifier: BSD-3-Clause */
#include <uct/cuda/collective/queue.h>

#include <uct/cuda/base/iface.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/collective/call.h>

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>


struct uct_cuda_coll_op {
    uct_cuda_coll_op_t        *next;
    uct_cuda_coll_result_t    result;  /* set with release order */
    uct_cuda_coll_reason_t    reason;  /* of a declined call */
    bool                      is_begun;
    bool                      is_detached; /* not tested by the caller */
    uct_cuda_coll_call_t      what;
    uint64_t                  counts[UCT_CUDA_COLL_API_RANKS];
    char                      why[256];
    uct_cuda_coll_operation_t call;
};

/* Groups with calls in their queues */
static struct {
    pthread_mutex_t       lock; /* order: base/thread.h */
    uct_cuda_coll_group_t *first;
    int                   (*on_end)(void);
    bool                  is_wanted; /* on_end() has more to do */
} queues = {.lock = PTHREAD_MUTEX_INITIALIZER};


/* ----------------------------------------------------------------- progress */

/* Decline this rank's next call, which is at the head of its queue, and log it.
 * Without a group (NULL) log only. */
static void group_decline(uct_cuda_coll_group_t *group, int kind,
                          uct_cuda_coll_reason_t reason)
{
    const uct_cuda_coll_fallback_t fallback = {.reason = reason,
                                               .rank     = UCT_CUDA_COLL_ALL};
    const uint64_t sequence = (group == NULL) ? 0 :
                                                ++group->agreement.sequence;
    char why[192];

    if ((group != NULL) && !uct_cuda_coll_operation_is_paused(group)) {
        uct_cuda_coll_agree_decline(&group->agreement, reason, UCS_OK);
    }
    uct_cuda_debug("collective %lu: %s: falls back to the MPI: %s",
                   (unsigned long)sequence, uct_cuda_coll_kind(kind)->name,
                   uct_cuda_coll_fallback_str(&fallback, why, sizeof(why)));
}

static uct_cuda_coll_result_t op_begin(uct_cuda_coll_op_t *op,
                                       uct_cuda_coll_group_t *group)
{
    uct_cuda_gpu_context_t pushed;
    uct_cuda_coll_result_t result;

    op->is_begun = true;
    if (op->reason != UCT_CUDA_COLL_AHEAD) {
        group_decline(group, op->what.kind, op->reason);
        return UCT_CUDA_COLL_STAGE;
    }

    result = uct_cuda_coll_operation_begin(&op->call, group, &pushed);
    uct_cuda_gpu_context_pop(&pushed);
    if (result != UCT_CUDA_COLL_PENDING) {
        uct_cuda_coll_operation_end(&op->call, group, result);
    }
    return result;
}

/* Carry on a call in its buffers' context, and end it if it is over. If the
 * context was destroyed meanwhile, the call waits for nothing any more. */
static uct_cuda_coll_result_t op_test(uct_cuda_coll_op_t *op,
                                      uct_cuda_coll_group_t *group)
{
    const bool is_alive = uct_cuda_context_push(group->memory.context);
    ucs_status_t waited = uct_cuda_coll_agree_check(&group->agreement);
    uct_cuda_coll_result_t result;

    /* its steps must not wait for streams of a destroyed context */
    if (!is_alive && ((waited == UCS_OK) ||
                      (op->call.state == UCT_CUDA_COLL_OPERATION_RUNNING))) {
        waited = UCS_ERR_NO_DEVICE;
    }

    result = uct_cuda_coll_operation_test(&op->call, group, waited);
    if (is_alive) {
        uct_cuda_ctx_pop();
    }
    if (result != UCT_CUDA_COLL_PENDING) {
        uct_cuda_coll_operation_end(&op->call, group, result);
    }
    return result;
}

/* Carry out a group's calls until one has to wait; call with the lock held.
 * @return Whether one has ended. */
static bool group_progress(uct_cuda_coll_group_t *group)
{
    bool has_ended = false;
    uct_cuda_coll_result_t result;
    uct_cuda_coll_op_t *op;

    while ((op = group->ops) != NULL) {
        result = op->is_begun ? UCT_CUDA_COLL_PENDING : op_begin(op, group);
        if (result == UCT_CUDA_COLL_PENDING) {
            result = op_test(op, group);
        }
        if (result == UCT_CUDA_COLL_PENDING) {
            break;
        }

        has_ended = true;
        if (op->next == NULL) {
            group->last_op = NULL;
        }
        __atomic_store_n(&group->ops, op->next, __ATOMIC_RELEASE);
        if (op->is_detached) {
            free(op);
        } else {
            __atomic_store_n(&op->result, result, __ATOMIC_RELEASE);
        }
    }
    return has_ended;
}

/* Carry on the calls of all groups, then call on_end() if one has ended. Never
 * waits for the lock: if it is busy, another thread makes progress, or this
 * thread further down its stack. @return Whether calls may be left. */
static bool queues_progress(void)
{
    bool has_ended = false;
    uct_cuda_coll_group_t **link;
    bool is_left;

    if (pthread_mutex_trylock(&queues.lock) != 0) {
        return true;
    }

    for (link = &queues.first; *link != NULL;) {
        has_ended |= group_progress(*link);
        if ((*link)->ops == NULL) {
            *link = (*link)->next_queued;
        } else {
            link = &(*link)->next_queued;
        }
    }
    is_left = (queues.first != NULL);
    pthread_mutex_unlock(&queues.lock);
    if ((has_ended || queues.is_wanted) && (queues.on_end != NULL)) {
        queues.is_wanted = queues.on_end();
    }
    return is_left || queues.is_wanted;
}

void uct_cuda_coll_queue_progress(void)
{
    if (__atomic_load_n(&queues.first, __ATOMIC_RELAXED) != NULL) {
        (void)queues_progress();
    }
}

void uct_cuda_coll_queue_on_end(int (*func)(void))
{
    queues.on_end = func;
}


/* -------------------------------------------------------------------- calls */

static void group_add(uct_cuda_coll_group_t *group, uct_cuda_coll_op_t *op)
{
    pthread_mutex_lock(&queues.lock);
    if (group->last_op != NULL) {
        group->last_op->next = op;
    } else {
        if (group->ops == NULL) {
            group->next_queued = queues.first;
            __atomic_store_n(&queues.first, group, __ATOMIC_RELAXED);
        }
        __atomic_store_n(&group->ops, op, __ATOMIC_RELEASE);
    }
    group->last_op = op;
    pthread_mutex_unlock(&queues.lock);
}

int uct_cuda_coll_queue_is_queued(uct_cuda_coll_group_t *group, uint64_t number,
                                  int is_able)
{
    return uct_cuda_node_control_is_queued(group->agreement.control,
                                           group->agreement.size, number,
                                           is_able);
}

static uct_cuda_coll_op_t *
queue_add(uct_cuda_coll_group_t *group, const uct_cuda_coll_call_t *what,
          uct_cuda_coll_reason_t reason, bool is_detached)
{
    uct_cuda_coll_op_t *op = calloc(1, sizeof(*op));

    if (op == NULL) {
        uct_cuda_error("no memory to start a collective");
        abort(); /* the other ranks rely on it */
    }

    op->result        = UCT_CUDA_COLL_PENDING;
    op->reason        = reason;
    op->is_detached   = is_detached;
    op->what          = *what;
    op->what.progress = NULL;
    op->call.what     = &op->what;
    op->call.why      = op->why;
    op->call.why_size = sizeof(op->why);
    if (what->counts != NULL) {
        memcpy(op->counts, what->counts,
               group->agreement.size * sizeof(*op->counts));
        op->what.counts = op->counts;
    }
    group_add(group, op);
    if (queues_progress()) {
        uct_cuda_iface_call_soon(queues_progress);
    }
    return op;
}

uct_cuda_coll_op_t *
uct_cuda_coll_queue_start(uct_cuda_coll_group_t *group,
                          const uct_cuda_coll_call_t *what,
                          uct_cuda_coll_reason_t reason)
{
    return queue_add(group, what, reason, false);
}

uct_cuda_coll_result_t uct_cuda_coll_queue_test(uct_cuda_coll_op_t *op,
                                                char *why, size_t why_size)
{
    const uct_cuda_coll_result_t result = __atomic_load_n(&op->result,
                                                          __ATOMIC_ACQUIRE);

    if (result != UCT_CUDA_COLL_PENDING) {
        snprintf(why, why_size, "%s", op->why);
        free(op);
    }
    return result;
}

/* Wait until all calls of a group's queue are over. @a what: the blocking call
 * that waits, for its progress function, or NULL */
static void group_drain(uct_cuda_coll_group_t *group,
                        const uct_cuda_coll_call_t *what)
{
    while (__builtin_expect(__atomic_load_n(&group->ops, __ATOMIC_ACQUIRE) !=
                            NULL, 0)) {
        uct_cuda_coll_queue_progress();
        if ((what != NULL) && (what->progress != NULL)) {
            what->progress(what->arg);
        }
        sched_yield();
    }
}

uct_cuda_coll_result_t
uct_cuda_coll_queue_collective(uct_cuda_coll_group_t *group,
                               const uct_cuda_coll_call_t *what, char *why,
                               size_t why_size)
{
    uct_cuda_coll_operation_t call = {.what = what,
                                      .why  = why,
                                      .why_size = why_size};
    ucs_status_t waited            = UCS_OK;
    uct_cuda_gpu_context_t pushed; /* context of the buffers */
    uct_cuda_coll_result_t result;

    group_drain(group, what);
    result = uct_cuda_coll_operation_begin(&call, group, &pushed);
    while (result == UCT_CUDA_COLL_PENDING) {
        result = uct_cuda_coll_operation_test(&call, group, waited);
        if (result == UCT_CUDA_COLL_PENDING) {
            waited = uct_cuda_coll_agree_idle(&group->agreement);
        }
    }
    uct_cuda_gpu_context_pop(&pushed);
    uct_cuda_coll_operation_end(&call, group, result);
    return result;
}

void uct_cuda_coll_queue_decline(uct_cuda_coll_group_t *group, int kind,
                                 uct_cuda_coll_reason_t reason)
{
    const uct_cuda_coll_call_t what = {.kind = kind};

    if ((group == NULL) ||
        (__atomic_load_n(&group->ops, __ATOMIC_ACQUIRE) == NULL)) {
        group_decline(group, kind, reason);
    } else {
        queue_add(group, &what, reason, true);
    }
}

void uct_cuda_coll_queue_destroy(uct_cuda_coll_group_t *group)
{
    group_drain(group, NULL);
    pthread_mutex_lock(&queues.lock); /* another thread may be leaving it */
    pthread_mutex_unlock(&queues.lock);
    uct_cuda_coll_group_destroy(group);
}
