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

/* Teams with calls in their queues */
static struct {
    pthread_mutex_t       lock; /* order: base/thread.h */
    uct_cuda_coll_team_t  *first;
    int                   (*on_end)(void);
    bool                  is_wanted; /* on_end() has more to do */
} queues = {.lock = PTHREAD_MUTEX_INITIALIZER};


/* ----------------------------------------------------------------- progress */

/* Decline this rank's next call, which is at the head of its queue, and log it.
 * Without a team (NULL) log only. */
static void team_decline(uct_cuda_coll_team_t *team, int kind,
                         uct_cuda_coll_reason_t reason)
{
    const uct_cuda_coll_fallback_t fallback = {.reason = reason,
                                               .rank     = UCT_CUDA_COLL_ALL};
    const uint64_t sequence = (team == NULL) ? 0 :
                                                ++team->agreement.sequence;
    char why[192];

    if ((team != NULL) && !uct_cuda_coll_operation_is_paused(team)) {
        uct_cuda_coll_agree_decline(&team->agreement, reason, UCS_OK);
    }
    uct_cuda_debug("collective %lu: %s: falls back to the MPI: %s",
                   (unsigned long)sequence, uct_cuda_coll_kind(kind)->name,
                   uct_cuda_coll_fallback_str(&fallback, why, sizeof(why)));
}

static uct_cuda_coll_result_t op_begin(uct_cuda_coll_op_t *op,
                                       uct_cuda_coll_team_t *team)
{
    uct_cuda_ctx_scope_t pushed;
    uct_cuda_coll_result_t result;

    op->is_begun = true;
    if (op->reason != UCT_CUDA_COLL_AHEAD) {
        team_decline(team, op->what.kind, op->reason);
        return UCT_CUDA_COLL_STAGE;
    }

    result = uct_cuda_coll_operation_begin(&op->call, team, &pushed);
    uct_cuda_ctx_leave(&pushed);
    if (result != UCT_CUDA_COLL_PENDING) {
        uct_cuda_coll_operation_end(&op->call, team, result);
    }
    return result;
}

/* Carry on a call in its buffers' context, and end it if it is over. If the
 * context was destroyed meanwhile, the call waits for nothing any more. */
static uct_cuda_coll_result_t op_test(uct_cuda_coll_op_t *op,
                                      uct_cuda_coll_team_t *team)
{
    const bool is_alive = uct_cuda_context_push(team->memory.context);
    ucs_status_t waited = uct_cuda_coll_agree_check(&team->agreement);
    uct_cuda_coll_result_t result;

    /* its steps must not wait for streams of a destroyed context */
    if (!is_alive && ((waited == UCS_OK) ||
                      (op->call.state == UCT_CUDA_COLL_OPERATION_RUNNING))) {
        waited = UCS_ERR_NO_DEVICE;
    }

    result = uct_cuda_coll_operation_test(&op->call, team, waited);
    if (is_alive) {
        uct_cuda_ctx_pop();
    }
    if (result != UCT_CUDA_COLL_PENDING) {
        uct_cuda_coll_operation_end(&op->call, team, result);
    }
    return result;
}

/* Carry out a team's calls until one has to wait; call with the lock held.
 * @return Whether one has ended. */
static bool team_progress(uct_cuda_coll_team_t *team)
{
    bool has_ended = false;
    uct_cuda_coll_result_t result;
    uct_cuda_coll_op_t *op;

    while ((op = team->ops) != NULL) {
        result = op->is_begun ? UCT_CUDA_COLL_PENDING : op_begin(op, team);
        if (result == UCT_CUDA_COLL_PENDING) {
            result = op_test(op, team);
        }
        if (result == UCT_CUDA_COLL_PENDING) {
            break;
        }

        has_ended = true;
        if (op->next == NULL) {
            team->last_op = NULL;
        }
        __atomic_store_n(&team->ops, op->next, __ATOMIC_RELEASE);
        if (op->is_detached) {
            free(op);
        } else {
            __atomic_store_n(&op->result, result, __ATOMIC_RELEASE);
        }
    }
    return has_ended;
}

/* Carry on the calls of all teams, then call on_end() if one has ended. Never
 * waits for the lock: if it is busy, another thread makes progress, or this
 * thread further down its stack. @return Whether calls may be left. */
static bool queues_progress(void)
{
    bool has_ended = false;
    uct_cuda_coll_team_t **link;
    bool is_left;

    if (pthread_mutex_trylock(&queues.lock) != 0) {
        return true;
    }

    for (link = &queues.first; *link != NULL;) {
        has_ended |= team_progress(*link);
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

static void team_add(uct_cuda_coll_team_t *team, uct_cuda_coll_op_t *op)
{
    pthread_mutex_lock(&queues.lock);
    if (team->last_op != NULL) {
        team->last_op->next = op;
    } else {
        if (team->ops == NULL) {
            team->next_queued = queues.first;
            __atomic_store_n(&queues.first, team, __ATOMIC_RELAXED);
        }
        __atomic_store_n(&team->ops, op, __ATOMIC_RELEASE);
    }
    team->last_op = op;
    pthread_mutex_unlock(&queues.lock);
}

int uct_cuda_coll_queue_is_queued(uct_cuda_coll_team_t *team, uint64_t number,
                                  int is_able)
{
    return uct_cuda_node_control_is_queued(team->agreement.control,
                                           team->agreement.size, number,
                                           is_able);
}

static uct_cuda_coll_op_t *
queue_add(uct_cuda_coll_team_t *team, const uct_cuda_coll_call_t *what,
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
               team->agreement.size * sizeof(*op->counts));
        op->what.counts = op->counts;
    }
    team_add(team, op);
    if (queues_progress()) {
        uct_cuda_iface_call_soon(queues_progress);
    }
    return op;
}

uct_cuda_coll_op_t *
uct_cuda_coll_queue_start(uct_cuda_coll_team_t *team,
                          const uct_cuda_coll_call_t *what,
                          uct_cuda_coll_reason_t reason)
{
    return queue_add(team, what, reason, false);
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

/* Wait until all calls of a team's queue are over. @a what: the blocking call
 * that waits, for its progress function, or NULL */
static void team_drain(uct_cuda_coll_team_t *team,
                       const uct_cuda_coll_call_t *what)
{
    while (__builtin_expect(__atomic_load_n(&team->ops, __ATOMIC_ACQUIRE) !=
                            NULL, 0)) {
        uct_cuda_coll_queue_progress();
        if ((what != NULL) && (what->progress != NULL)) {
            what->progress(what->arg);
        }
        sched_yield();
    }
}

uct_cuda_coll_result_t
uct_cuda_coll_queue_collective(uct_cuda_coll_team_t *team,
                               const uct_cuda_coll_call_t *what, char *why,
                               size_t why_size)
{
    uct_cuda_coll_operation_t call = {.what = what,
                                      .why  = why,
                                      .why_size = why_size};
    ucs_status_t waited            = UCS_OK;
    uct_cuda_ctx_scope_t pushed; /* context of the buffers */
    uct_cuda_coll_result_t result;

    team_drain(team, what);
    result = uct_cuda_coll_operation_begin(&call, team, &pushed);
    while (result == UCT_CUDA_COLL_PENDING) {
        result = uct_cuda_coll_operation_test(&call, team, waited);
        if (result == UCT_CUDA_COLL_PENDING) {
            waited = uct_cuda_coll_agree_idle(&team->agreement);
        }
    }
    uct_cuda_ctx_leave(&pushed);
    uct_cuda_coll_operation_end(&call, team, result);
    return result;
}

void uct_cuda_coll_queue_decline(uct_cuda_coll_team_t *team, int kind,
                                 uct_cuda_coll_reason_t reason)
{
    const uct_cuda_coll_call_t what = {.kind = kind};

    if ((team == NULL) ||
        (__atomic_load_n(&team->ops, __ATOMIC_ACQUIRE) == NULL)) {
        team_decline(team, kind, reason);
    } else {
        queue_add(team, &what, reason, true);
    }
}

void uct_cuda_coll_queue_destroy(uct_cuda_coll_team_t *team)
{
    team_drain(team, NULL);
    pthread_mutex_lock(&queues.lock); /* another thread may be leaving it */
    pthread_mutex_unlock(&queues.lock);
    uct_cuda_coll_team_destroy(team);
}
