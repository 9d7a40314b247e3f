/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi/nonblocking.h>
#include <mpi/message.h>

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>


#define NUM_BUCKETS 64

/* A call in progress, found by its request or file: two active ones never have
   the same handle. */
typedef struct ucx_mp_mpi_pending pending_t;
struct ucx_mp_mpi_pending {
    pending_t         *next;
    uintptr_t         key;
    int               index;     /* position in the array of requests */
    bool              is_again;  /* persistent: keep it after completion */
    bool              is_active; /* the MPI may be using the copies */
    bool              is_pending; /* this library completes the MPI's request */
    bool              is_reduction; /* its error is raised at its end */
    int               lost;      /* persistent: error of buffers that could not
                                    be staged at creation */
    MPI_Request       freed;     /* handle that the program has freed */
    const ucx_mp_mpi_startable_t *startable; /* NULL: the MPI starts it */
    void              *arg;      /* of `startable` */
    MPI_Request       active;    /* of a started `startable`, or the null
                                    handle */
    ucx_mp_mpi_call_t call;
};

static struct {
    pthread_mutex_t lock;
    unsigned        count; /* entries of all buckets and freed ones; 0 in most
                              programs */
    pending_t         *buckets[NUM_BUCKETS];
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Makes progress with pending requests; NULL: there was none yet */
static void (*advance)(void);

__thread bool ucx_mp_mpi_in_progress
        __attribute__((tls_model("initial-exec")));


static bool table_is_empty(void)
{
    if (__builtin_expect(!__atomic_load_n(&ucx_mp_mpi_pmpi_found,
                                          __ATOMIC_ACQUIRE), 0)) {
        ucx_mp_mpi_pmpi_find();
    }

    return __atomic_load_n(&table.count, __ATOMIC_ACQUIRE) == 0;
}

static pending_t **table_bucket(uintptr_t key)
{
    return &table.buckets[(key ^ (key >> 6) ^ (key >> 12)) % NUM_BUCKETS];
}

static void table_put(pending_t *pending)
{
    pending_t **bucket = table_bucket(pending->key);

    pthread_mutex_lock(&table.lock);
    pending->next = *bucket;
    *bucket       = pending;
    __atomic_fetch_add(&table.count, 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&table.lock);
}

/* Remove the call with this request or file from the table, before the MPI may
   complete it: after that another thread's request can get the same handle.
   @return NULL: there is none. */
static pending_t *table_take(uintptr_t key)
{
    pending_t **link = table_bucket(key);
    pending_t *pending;

    pthread_mutex_lock(&table.lock);
    while ((*link != NULL) && ((*link)->key != key)) {
        link = &(*link)->next;
    }
    pending = *link;
    if (pending != NULL) {
        *link = pending->next;
        __atomic_fetch_sub(&table.count, 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&table.lock);
    return pending;
}

static void taken_add(pending_t **taken_p, pending_t *pending, int index)
{
    pending->index = index;
    pending->next  = *taken_p;
    *taken_p       = pending;
}

/* Remove all calls with a request in the array, and return them as a list.
   Replace requests started by this library by their active ones, which precede
   them in the list; requests_settle() restores them. The MPI reports a missing
   array. */
static pending_t *requests_take(int count, MPI_Request *requests)
{
    pending_t *taken = NULL;
    pending_t *pending;
    int i;

    for (i = 0; (requests != NULL) && (i < count); ++i) {
        pending = table_take((uintptr_t)requests[i]);
        if ((pending != NULL) && (pending->startable != NULL)) {
            taken_add(&taken, pending, i);
            if (pending->active == ucx_mp_mpi_pmpi.request_null) {
                continue;
            }
            requests[i] = pending->active;
            pending     = table_take((uintptr_t)requests[i]);
        }
        if (pending != NULL) {
            taken_add(&taken, pending, i);
        }
    }
    return taken;
}

/* Put the program's handle back into the array, and into the table. The request
   is inactive if its active one was completed. */
static void request_restore(pending_t *pending, MPI_Request *requests)
{
    if (requests[pending->index] == ucx_mp_mpi_pmpi.request_null) {
        pending->active = ucx_mp_mpi_pmpi.request_null;
    }
    requests[pending->index] = (MPI_Request)pending->key;
    table_put(pending);
}

/* Result of an MPI call that completes requests. The status of request i is
   statuses[i]; with `indices`, statuses[k] for indices[k] == i. */
typedef struct {
    int        rc;
    bool       are_all_over;
    MPI_Status *statuses; /* NULL: unknown */
    int        *indices;
    int        count;
    bool       is_many;   /* the call may complete several requests */
} outcome_t;

static MPI_Status *outcome_status(const outcome_t *outcome, int index)
{
    int i;

    if (outcome->statuses == NULL) {
        return NULL;
    }

    if (outcome->indices == NULL) {
        return (outcome->are_all_over || (outcome->rc != MPI_SUCCESS)) ?
                       &outcome->statuses[index] :
                       NULL;
    }

    for (i = 0; i < outcome->count; ++i) {
        if (outcome->indices[i] == index) {
            return &outcome->statuses[i];
        }
    }
    return NULL;
}

/* Copy a call's received data to the program's buffers after the MPI has
   completed it. Put a persistent call back into the table for its next start;
   free any other. @return The first staging error, else the MPI's error, else
   MPI_SUCCESS. */
static int pending_end(pending_t *pending)
{
    int rc;

    if (pending->is_active) {
        ucx_mp_mpi_call_copy(&pending->call, UCX_MP_MPI_WRITE);
    }
    pending->is_active = false;
    rc                 = pending->call.failed;
    rc                 = (rc == MPI_SUCCESS) ? pending->call.rc : rc;
    if (pending->is_reduction && (rc != MPI_SUCCESS)) {
        ucx_mp_mpi_pmpi.Comm_call_errhandler(ucx_mp_mpi_pmpi.comm_world, rc);
    }

    if (pending->is_again) {
        pending->call.rc      = MPI_SUCCESS;
        pending->call.failed  = pending->lost;
        pending->call.arrived = SIZE_MAX;
        table_put(pending);
    } else {
        ucx_mp_mpi_call_free(&pending->call);
        free(pending);
    }
    return rc;
}

/* Return whether the MPI's call has completed a request, maybe with an error.
   A call for several requests completes none with an error of its own. Do not
   ask the MPI again: it may report a failed persistent request as active, and
   MPI_Request_get_status() of MPICH 4.2 to 5.0 deactivates a complete one. */
static bool outcome_ends(const outcome_t *outcome, const MPI_Status *known)
{
    return outcome->are_all_over ||
           ((known != NULL) &&
            ((outcome->rc == MPI_ERR_IN_STATUS) ?
                     (known->MPI_ERROR != MPI_ERR_PENDING) :
                     ((outcome->rc == MPI_SUCCESS) || !outcome->is_many)));
}

/* Return whether the MPI has set the number of completed requests; it does not
   if a request is invalid */
static bool outcome_is_valid(const outcome_t *outcome)
{
    return (outcome->rc == MPI_SUCCESS) || (outcome->rc == MPI_ERR_IN_STATUS);
}

/* Set the received bytes of a completed request; 0 if it failed. */
static void pending_arrived(pending_t *pending, const MPI_Status *status,
                            int rc)
{
    if ((rc == MPI_SUCCESS) ||
        ((rc == MPI_ERR_IN_STATUS) && (status->MPI_ERROR == MPI_SUCCESS))) {
        ucx_mp_mpi_message_arrived(&pending->call, status);
    } else {
        pending->call.arrived = 0;
    }
}

/* Return whether a request is complete; if so, set its received bytes. A
   persistent request keeps its handle: without statuses, for lack of memory,
   ask the MPI. A request that the MPI has freed counts as non-persistent. */
static bool request_is_over(pending_t *pending, MPI_Request request,
                            const outcome_t *outcome)
{
    const MPI_Status *known = outcome_status(outcome, pending->index);
    int rc                  = outcome->rc;
    MPI_Status status;
    int is_over = 0;

    if ((request != ucx_mp_mpi_pmpi.request_null) &&
        !outcome_ends(outcome, known)) {
        if ((outcome->statuses != NULL) || !pending->is_again ||
            !pending->is_active ||
            (ucx_mp_mpi_pmpi.Request_get_status(request, &is_over, &status) !=
             MPI_SUCCESS) || !is_over) {
            return false;
        }
        if (known == NULL) {
            known = &status;
            rc    = MPI_SUCCESS;
        }
    }

    if (pending->is_active && (known != NULL)) {
        pending_arrived(pending, known, rc);
    }
    if (request == ucx_mp_mpi_pmpi.request_null) {
        pending->is_again = false; /* Open MPI frees a failed request */
    }
    return true;
}

/* Add the error of a completed request to the outcome: to its status if the
   call may complete several */
static void outcome_fail(outcome_t *outcome, int index, int error)
{
    MPI_Status *status;
    int i;

    if (!outcome->is_many) {
        outcome->rc = (outcome->rc == MPI_SUCCESS) ? error : outcome->rc;
        return;
    }

    status = outcome_status(outcome, index);
    if (outcome->rc == MPI_SUCCESS) {
        outcome->rc = MPI_ERR_IN_STATUS;
        for (i = 0; (status != NULL) && (i < outcome->count); ++i) {
            outcome->statuses[i].MPI_ERROR = MPI_SUCCESS;
        }
    }
    if ((status != NULL) && (status->MPI_ERROR == MPI_SUCCESS)) {
        status->MPI_ERROR = error;
    }
}

/* Put the calls whose requests are not complete back into the table, then
   finish the others: an error handler may wait for any request. @return The
   MPI's error, else that of outcome_fail(), else MPI_SUCCESS. */
static int requests_settle(pending_t *taken, MPI_Request *requests,
                           outcome_t *outcome)
{
    pending_t *over = NULL;
    pending_t *pending;
    int index, rc;

    while (taken != NULL) {
        pending = taken;
        taken = pending->next;
        if (pending->startable != NULL) {
            request_restore(pending, requests);
            continue;
        }
        if (!request_is_over(pending, requests[pending->index], outcome)) {
            table_put(pending);
            continue;
        }
        taken_add(&over, pending, pending->index);
    }

    while (over != NULL) {
        pending = over;
        over    = pending->next;
        index   = pending->index;
        rc      = pending_end(pending);
        if (rc != MPI_SUCCESS) {
            outcome_fail(outcome, index, rc);
        }
    }
    return outcome->rc;
}

/* Return an array for the MPI's statuses: the program's, or a new one if it
   passed none; `own` serves for one status. NULL: no memory. */
static MPI_Status *statuses_get(MPI_Status *statuses, int count,
                                MPI_Status *own)
{
    if ((statuses != MPI_STATUS_IGNORE) && (statuses != MPI_STATUSES_IGNORE)) {
        return statuses;
    }

    return (count == 1) ? own : calloc(count, sizeof(*own));
}


/* Freed messages, whose staging memory the MPI still uses. The lock is held
   while they are tested and finished. An error handler may call the MPI then,
   so it is recursive. */
static struct {
    pthread_mutex_t lock;
    pending_t       *first;
} freed = {.lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP};

unsigned ucx_mp_mpi_freed;

static void freed_put(pending_t *pending)
{
    pthread_mutex_lock(&freed.lock);
    pending->next = freed.first;
    freed.first   = pending;
    pthread_mutex_unlock(&freed.lock);
}

/* Test a freed message, a receive up to `tries` times. */
static int freed_test(pending_t *pending, unsigned tries, int *is_over,
                      MPI_Status *status)
{
    int rc = ucx_mp_mpi_pmpi.Test(&pending->freed, is_over, status);

    while ((rc == MPI_SUCCESS) && !*is_over && (--tries > 0) &&
           (ucx_mp_mpi_message_partial(&pending->call) > 0)) {
        sched_yield();
        rc = ucx_mp_mpi_pmpi.Test(&pending->freed, is_over, status);
    }
    return rc;
}

void ucx_mp_mpi_freed_poll(unsigned tries)
{
    pending_t *pending, *next;
    MPI_Status status;
    int is_over, rc;

    if ((__atomic_load_n(&ucx_mp_mpi_freed, __ATOMIC_ACQUIRE) == 0) ||
        ucx_mp_mpi_raises_later) {
        return;
    }

    pthread_mutex_lock(&freed.lock);
    next        = freed.first;
    freed.first = NULL;
    while (next != NULL) {
        pending = next;
        next    = pending->next;
        is_over = 0;
        rc      = freed_test(pending, tries, &is_over, &status);
        if ((rc == MPI_SUCCESS) && !is_over) {
            freed_put(pending);
            continue;
        }

        if (pending->is_again) {
            (void)ucx_mp_mpi_pmpi.Request_free(&pending->freed);
        }
        pending_arrived(pending, &status, rc);
        pending->is_again = false;
        (void)pending_end(pending);
        __atomic_fetch_sub(&ucx_mp_mpi_freed, 1, __ATOMIC_RELEASE);
        __atomic_fetch_sub(&table.count, 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&freed.lock);
}


/* --------------------------------------------------------------- starting */

/* Copy a call to the heap. The communicator may be freed before the call
   completes: raise later errors on MPI_COMM_WORLD. */
static pending_t *pending_new(ucx_mp_mpi_call_t *call, uintptr_t key)
{
    pending_t *pending = calloc(1, sizeof(*pending));

    if (pending == NULL) {
        abort(); /* too late to fail: the MPI has started */
    }

    pending->key       = key;
    pending->is_active = true;
    pending->lost      = call->failed;
    pending->call      = *call;
    pending->call.comm = ucx_mp_mpi_pmpi.comm_world;
    return pending;
}

int ucx_mp_mpi_nonblocking_defer(ucx_mp_mpi_call_t *call, MPI_Request *request)
{
    int is_over = 0;

    if (!ucx_mp_mpi_in_progress) {
        ucx_mp_mpi_freed_poll(1);
    }

    /* Nothing is staged: leave the request to the MPI */
    if ((call->num_buffers == 0) && (call->packed == NULL)) {
        call->ordinal.key = 0;
        return ucx_mp_mpi_call_end(call);
    }

    /* A request that is complete at once may share its handle with others:
       finish it now. A staging error is reported on completion. A receive never
       shares its request, and MPICH would raise its error already in a test. */
    if (call->rc != MPI_SUCCESS) {
        return ucx_mp_mpi_call_end(call);
    }
    if (!ucx_mp_mpi_in_progress && (ucx_mp_mpi_message_partial(call) == 0) &&
        ((ucx_mp_mpi_pmpi.Request_get_status(*request, &is_over,
                                             MPI_STATUS_IGNORE) !=
          MPI_SUCCESS) || is_over)) {
        return ucx_mp_mpi_call_end(call);
    }

    table_put(pending_new(call, (uintptr_t)*request));
    return MPI_SUCCESS;
}

ucx_mp_mpi_pending_t *
ucx_mp_mpi_nonblocking_track(const char *name, MPI_Request request,
                             void (*func)(void))
{
    ucx_mp_mpi_call_t call;
    pending_t *pending;

    ucx_mp_mpi_call_init(&call, name, ucx_mp_mpi_pmpi.comm_world, 0);
    pending               = pending_new(&call, (uintptr_t)request);
    pending->is_pending   = true;
    pending->is_reduction = true;
    advance               = func;
    table_put(pending);
    return pending;
}

void ucx_mp_mpi_nonblocking_over(ucx_mp_mpi_pending_t *pending, int rc)
{
    pending->call.rc = rc;
    __atomic_store_n(&pending->is_pending, false, __ATOMIC_RELEASE);
}

void ucx_mp_mpi_nonblocking_keep(MPI_Request request,
                                 const ucx_mp_mpi_startable_t *startable,
                                 void *arg)
{
    ucx_mp_mpi_call_t call;
    pending_t *pending;

    ucx_mp_mpi_call_init(&call, "MPI_Start", ucx_mp_mpi_pmpi.comm_world, 0);
    pending            = pending_new(&call, (uintptr_t)request);
    pending->is_active = false;
    pending->startable = startable;
    pending->arg       = arg;
    pending->active    = ucx_mp_mpi_pmpi.request_null;
    table_put(pending);
}

int ucx_mp_mpi_call_again(ucx_mp_mpi_call_t *call, MPI_Request *request)
{
    pending_t *pending;

    if ((call->rc != MPI_SUCCESS) || (call->num_buffers == 0)) {
        ucx_mp_mpi_call_free(call);
        return call->rc;
    }

    pending            = pending_new(call, (uintptr_t)*request);
    pending->is_again  = true;
    pending->is_active = false;
    table_put(pending);
    return MPI_SUCCESS;
}

int ucx_mp_mpi_call_split(ucx_mp_mpi_call_t *call, MPI_File file)
{
    if ((call->rc != MPI_SUCCESS) || (call->num_buffers == 0)) {
        return ucx_mp_mpi_call_end(call);
    }

    table_put(pending_new(call, (uintptr_t)file));
    return MPI_SUCCESS;
}

/* Start a request of this library. */
static int startable_start(pending_t *pending)
{
    int rc;

    if (pending->active == ucx_mp_mpi_pmpi.request_null) {
        rc = pending->startable->start(pending->arg, &pending->active);
    } else {
        rc = ucx_mp_mpi_raise(pending->call.comm, MPI_ERR_REQUEST,
                              "MPI_Start: the persistent request is active");
    }
    table_put(pending);
    return rc;
}

/* Copy in the data that a persistent request sends. @return An error: do not
   start the request. A collective starts anyway, since other ranks wait for it,
   and reports the error on completion. `is_started_p` is set if this library
   has started the request, not the MPI. */
static int request_start(MPI_Request request, bool *is_started_p)
{
    pending_t *pending = table_take((uintptr_t)request);
    int rc             = MPI_SUCCESS;

    *is_started_p = (pending != NULL) && (pending->startable != NULL);
    if (*is_started_p) {
        return startable_start(pending);
    }

    if (pending == NULL) {
        return MPI_SUCCESS;
    }

    ++pending->call.ordinal.start;
    ucx_mp_mpi_call_copy(&pending->call, UCX_MP_MPI_READ);
    if (pending->call.failed != MPI_SUCCESS) {
        ucx_mp_mpi_failure_report(pending->call.ordinal, pending->call.rank);
    }
    if ((pending->call.failed != pending->lost) &&
        (pending->call.flags & UCX_MP_MPI_EMPTY)) {
        rc                   = pending->call.failed;
        pending->call.failed = pending->lost;
    }
    pending->is_active = (rc == MPI_SUCCESS);
    table_put(pending);
    return rc;
}


/* ------------------------------------------------------ wrapped functions */

static void make_progress(void)
{
    ucx_mp_mpi_freed_poll(1);
    if (advance != NULL) {
        advance();
    }
}

/* Return the first request that this library has yet to complete; NULL: none */
static const pending_t *first_pending(const pending_t *taken)
{
    while ((taken != NULL) &&
           !__atomic_load_n(&taken->is_pending, __ATOMIC_ACQUIRE)) {
        taken = taken->next;
    }
    return taken;
}

/* Make progress if this library has yet to complete one of the requests.
   @return Whether there is such a request: the caller must test instead of
   waiting in the MPI. */
static bool poll_again(const pending_t *taken)
{
    if (first_pending(taken) == NULL) {
        return false;
    }

    make_progress();
    sched_yield();
    return true;
}

/* Let the MPI make progress, by the first request that this library has yet to
   complete. MPICH's MPI_Testall() would fail beside its own persistent
   collectives. */
static int progress_by(const pending_t *taken, const MPI_Request *requests)
{
    int flag;

    taken = first_pending(taken);
    return (taken == NULL) ? MPI_SUCCESS :
                             ucx_mp_mpi_pmpi.Request_get_status(
                                     requests[taken->index], &flag,
                                     MPI_STATUS_IGNORE);
}

static int test_some(int count, MPI_Request *requests, int *done, int *indices,
                     MPI_Status *statuses, int *is_over)
{
    const int rc = ucx_mp_mpi_pmpi.Testsome(count, requests, done, indices,
                                            statuses);

    *is_over = (*done != 0);
    return rc;
}

/* Define a call that completes requests. `_is_many`: may complete several;
   `_status`: its status argument, `_room`: size of that array. The MPI fills
   `_done` entries of `_indices`. `_try`: the same call without waiting; sets
   is_over. */
#define END(_name, _is_many, _count, _requests, _all_over, _status, _room, \
            _indices, _done, _words, _try, ...) \
    UCX_MP_MPI_DEFINE(_name, _words, __VA_ARGS__) \
    { \
        MPI_Status *given = _status; \
        outcome_t outcome = {.indices = _indices, .is_many = _is_many}; \
        pending_t *taken; \
        int is_over = 0; \
        MPI_Status own; \
        int rc; \
        \
        if (table_is_empty()) { \
            return ucx_mp_mpi_pmpi._name _words; \
        } \
        \
        make_progress(); \
        taken = requests_take(_count, _requests); \
        if (taken != NULL) { \
            outcome.statuses = statuses_get(given, _room, &own); \
            _status = (outcome.statuses == NULL) ? given : outcome.statuses; \
            if (outcome.indices != NULL) { \
                *outcome.indices = MPI_UNDEFINED; \
            } \
        } \
        \
        outcome.rc = MPI_SUCCESS; \
        while (!is_over && (outcome.rc == MPI_SUCCESS) && poll_again(taken)) { \
            outcome.rc = _try; \
        } \
        if (!is_over && (outcome.rc == MPI_SUCCESS)) { \
            outcome.rc = ucx_mp_mpi_pmpi._name _words; \
        } \
        outcome.are_all_over = (outcome.rc == MPI_SUCCESS) && (_all_over); \
        outcome.count        = outcome_is_valid(&outcome) ? (_done) : 1; \
        rc = requests_settle(taken, _requests, &outcome); \
        if ((_status != given) && (_status != &own)) { \
            free(_status); \
        } \
        return ucx_mp_mpi_freed_end(rc); \
    }

END(Wait, false, 1, request, true, status, 1, NULL, 1, (request, status),
    ucx_mp_mpi_pmpi.Test(request, &is_over, status),
    MPI_Request *request, MPI_Status *status)
END(Test, false, 1, request, *flag, status, 1, NULL, 1, (request, flag, status),
    ucx_mp_mpi_pmpi.Test(request, flag, (is_over = 1, status)),
    MPI_Request *request, int *flag, MPI_Status *status)
END(Waitall, true, count, requests, true, statuses, count, NULL, count,
    (count, requests, statuses),
    progress_by(taken, requests),
    int count, MPI_Request *requests, MPI_Status *statuses)
END(Testall, true, count, requests, *flag, statuses, count, NULL, count,
    (count, requests, flag, statuses),
    ucx_mp_mpi_pmpi.Testall(count, requests, flag, (is_over = 1, statuses)),
    int count, MPI_Request *requests, int *flag, MPI_Status *statuses)
END(Waitany, false, count, requests, false, status, 1, index, 1,
    (count, requests, index, status),
    ucx_mp_mpi_pmpi.Testany(count, requests, index, &is_over, status),
    int count, MPI_Request *requests, int *index, MPI_Status *status)
END(Testany, false, count, requests, false, status, 1, index, *flag,
    (count, requests, index, flag, status),
    ucx_mp_mpi_pmpi.Testany(count, requests, index, flag,
                            (is_over = 1, status)),
    int count, MPI_Request *requests, int *index, int *flag,
    MPI_Status *status)
END(Waitsome, true, count, requests, false, statuses, count, indices, *done,
    (count, requests, done, indices, statuses),
    test_some(count, requests, done, indices, statuses, &is_over),
    int count, MPI_Request *requests, int *done, int *indices,
    MPI_Status *statuses)
END(Testsome, true, count, requests, false, statuses, count, indices, *done,
    (count, requests, done, indices, statuses),
    ucx_mp_mpi_pmpi.Testsome(count, requests, done, indices,
                             (is_over = 1, statuses)),
    int count, MPI_Request *requests, int *done, int *indices,
    MPI_Status *statuses)

/* Return the request to ask the MPI about */
static MPI_Request request_active(MPI_Request request)
{
    pending_t *pending = table_take((uintptr_t)request);

    if (pending == NULL) {
        return request;
    }

    if ((pending->startable != NULL) &&
        (pending->active != ucx_mp_mpi_pmpi.request_null)) {
        request = pending->active;
    }
    table_put(pending);
    return request;
}

/* End the call of a request that the MPI reports complete: the program may read
   the buffer. */
static int request_over(MPI_Request request, const MPI_Status *status)
{
    pending_t *pending = table_take((uintptr_t)request);

    if (pending == NULL) {
        return MPI_SUCCESS;
    }

    if (pending->startable != NULL) { /* inactive */
        table_put(pending);
        return MPI_SUCCESS;
    }

    if (pending->is_active) {
        ucx_mp_mpi_message_arrived(&pending->call, status);
    }
    return pending_end(pending);
}

UCX_MP_MPI_DEFINE(Request_get_status, (request, flag, status),
                  MPI_Request request, int *flag, MPI_Status *status)
{
    const bool is_empty = table_is_empty();
    MPI_Status own;
    int rc;

    if (!is_empty) {
        make_progress();
        request = request_active(request);
    }
    status = ucx_mp_mpi_message_status(status, &own);
    rc     = ucx_mp_mpi_pmpi.Request_get_status(request, flag, status);
    return (is_empty || (rc != MPI_SUCCESS) || !*flag) ?
                   rc :
                   request_over(request, status);
}

#ifndef OPEN_MPI
/* Define a call that asks for the status of several requests. The MPI gets an
   array of the active requests. `_room`: statuses in the array `_status`. The
   MPI reports `_done` requests complete, the i-th is requests[_index]. */
#define ASK(_name, _is_many, _status, _room, _done, _index, _words, ...) \
    UCX_MP_MPI_DEFINE(_name, _words, __VA_ARGS__) \
    { \
        const bool is_passed = table_is_empty() || (count <= 0) || \
                               (requests == NULL); \
        outcome_t outcome    = {.is_many = _is_many, .are_all_over = true}; \
        MPI_Status *given    = _status; \
        MPI_Request *active; \
        MPI_Status own; \
        int rc = MPI_SUCCESS; \
        int i; \
        \
        if (ucx_mp_mpi_pmpi._name == NULL) { \
            return ucx_mp_mpi_raise(ucx_mp_mpi_pmpi.comm_world, MPI_ERR_OTHER, \
                                    "MPI_" #_name ": this MPI lacks it"); \
        } \
        if (is_passed) { \
            return ucx_mp_mpi_pmpi._name _words; \
        } \
        \
        active  = malloc(count * sizeof(*active)); \
        _status = statuses_get(given, _room, &own); \
        if ((active == NULL) || (_status == NULL)) { \
            rc = ucx_mp_mpi_raise(ucx_mp_mpi_pmpi.comm_world, MPI_ERR_NO_MEM, \
                                  "MPI_" #_name ": no memory"); \
        } \
        if (rc == MPI_SUCCESS) { \
            make_progress(); \
            for (i = 0; i < count; ++i) { \
                active[i] = request_active(requests[i]); \
            } \
            requests = active; \
            rc       = ucx_mp_mpi_pmpi._name _words; \
        } \
        outcome.rc       = rc; \
        outcome.statuses = _status; \
        outcome.count    = (rc == MPI_SUCCESS) ? (_done) : 0; \
        for (i = 0; i < outcome.count; ++i) { \
            rc = request_over(requests[_index], &_status[i]); \
            if (rc != MPI_SUCCESS) { \
                outcome_fail(&outcome, i, rc); \
            } \
        } \
        free(active); \
        if ((_status != given) && (_status != &own)) { \
            free(_status); \
        } \
        return outcome.rc; \
    }

ASK(Request_get_status_all, true, statuses, count, *flag ? count : 0, i,
    (count, requests, flag, statuses),
    int count, const MPI_Request *requests, int *flag, MPI_Status *statuses)
ASK(Request_get_status_any, false, status, 1,
    *flag && (*index != MPI_UNDEFINED), *index,
    (count, requests, index, flag, status),
    int count, const MPI_Request *requests, int *index, int *flag,
    MPI_Status *status)
ASK(Request_get_status_some, true, statuses, count, *done, indices[i],
    (count, requests, done, indices, statuses),
    int count, const MPI_Request *requests, int *done, int *indices,
    MPI_Status *statuses)
#endif

/* Free a request of this library; an active one is completed first */
static int startable_free(pending_t *pending, MPI_Request *request)
{
    int rc = MPI_SUCCESS;

    if (pending->active != ucx_mp_mpi_pmpi.request_null) {
        rc = PMPI_Wait(&pending->active, MPI_STATUS_IGNORE);
    }
    pending->startable->destroy(pending->arg);
    free(pending);
    (void)ucx_mp_mpi_pmpi.Request_free(request);
    return rc;
}

/* Free a message's request without waiting: waiting for the other rank could
   deadlock, so later calls test it. Other operations are completed here, since
   no later call would do it. */
UCX_MP_MPI_DEFINE(Request_free, (request), MPI_Request *request)
{
    const bool is_passed = table_is_empty() || (request == NULL);
    pending_t *pending   = is_passed ? NULL : table_take((uintptr_t)*request);
    int rc               = MPI_SUCCESS;

    if (pending == NULL) {
        return ucx_mp_mpi_pmpi.Request_free(request);
    }

    if (pending->startable != NULL) {
        return startable_free(pending, request);
    }

    if (pending->is_active && (pending->call.flags & UCX_MP_MPI_MESSAGE)) {
        pending->freed = *request;
        *request       = ucx_mp_mpi_pmpi.request_null;
        __atomic_fetch_add(&table.count, 1, __ATOMIC_RELEASE);
        __atomic_fetch_add(&ucx_mp_mpi_freed, 1, __ATOMIC_RELEASE);
        freed_put(pending);
        ucx_mp_mpi_freed_poll(1);
        return MPI_SUCCESS;
    }

    while (poll_again(pending)) {
    }
    if (pending->is_active) {
        rc = ucx_mp_mpi_pmpi.Wait(request, MPI_STATUS_IGNORE);
    }
    if ((rc == MPI_SUCCESS) && pending->is_again) {
        rc = ucx_mp_mpi_pmpi.Request_free(request);
    }
    pending->is_again = false;
    if (rc != MPI_SUCCESS) {
        pending->call.rc = rc; /* else keep that of a reduction on GPUs */
    }
    return pending_end(pending);
}

UCX_MP_MPI_DEFINE(Start, (request), MPI_Request *request)
{
    bool is_started = false;
    int rc          = MPI_SUCCESS;

    if (!table_is_empty() && (request != NULL)) {
        rc = request_start(*request, &is_started);
    }
    return ((rc != MPI_SUCCESS) || is_started) ?
                   rc :
                   ucx_mp_mpi_pmpi.Start(request);
}

/* Start the MPI's requests by one call, in an array without those of this
   library */
UCX_MP_MPI_DEFINE(Startall, (count, requests), int count,
                  MPI_Request *requests)
{
    const bool is_passed = table_is_empty() || (requests == NULL);
    MPI_Request *others  = requests;
    int num_others       = 0;
    int rc               = MPI_SUCCESS;
    bool is_started      = false;
    int i;

    for (i = 0; !is_passed && (rc == MPI_SUCCESS) && (i < count); ++i) {
        rc = request_start(requests[i], &is_started);
        if (is_started && (others == requests)) {
            others = malloc(count * sizeof(*others));
            if (others == NULL) {
                abort(); /* other ranks rely on it */
            }
            memcpy(others, requests, i * sizeof(*others));
        }
        if (!is_started) {
            others[num_others++] = requests[i];
        }
    }
    if (others == requests) {
        return (rc == MPI_SUCCESS) ? ucx_mp_mpi_pmpi.Startall(count, requests) :
                                     rc;
    }

    if ((rc == MPI_SUCCESS) && (num_others > 0)) {
        rc = ucx_mp_mpi_pmpi.Startall(num_others, others);
    }
    free(others);
    return rc;
}

/* Define the second half of a split file operation: pass the same copy as the
   first half did */
#define FILE_END(_name, _const) \
    UCX_MP_MPI_DEFINE(File_##_name, (fh, buf, status), MPI_File fh, \
                      _const void *buf, MPI_Status *status) \
    { \
        pending_t *pending = table_is_empty() ? NULL : \
                                                table_take((uintptr_t)fh); \
        \
        if (pending == NULL) { \
            return ucx_mp_mpi_pmpi.File_##_name(fh, buf, status); \
        } \
        \
        buf = (void*)pending->call.buffers[0].given; \
        pending->call.rc = ucx_mp_mpi_pmpi.File_##_name(fh, buf, status); \
        return pending_end(pending); \
    }

FILE_END(read_all_end, )
FILE_END(read_at_all_end, )
FILE_END(read_ordered_end, )
FILE_END(write_all_end, const)
FILE_END(write_at_all_end, const)
FILE_END(write_ordered_end, const)
