/* SPDX-License-Identifier: BSD-3-Clause */
#pragma GCC visibility push(default)
#include <mpi.h>
#pragma GCC visibility pop

#include <mpi/nonblocking.h>
#include <mpi/message.h>

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>


#define NUM_BUCKETS 64

/* A call in progress, found by its request or file: two active ones never have
   the same handle. */
typedef struct ucx_mp_mpi_later later_t;
struct ucx_mp_mpi_later {
    later_t           *next;
    uintptr_t         key;
    int               index;     /* position in the array of requests */
    bool              is_again;  /* persistent: keep it after completion */
    bool              is_active; /* the MPI may be using the copies */
    bool              is_pending; /* this library completes the MPI's request */
    int               lost;      /* persistent: error of buffers that could not
                                    be staged at creation */
    MPI_Request       freed;     /* handle that the program has freed */
    ucx_mp_mpi_call_t call;
};

static struct {
    pthread_mutex_t lock;
    unsigned        count; /* entries of all buckets and freed ones; 0 in most
                              programs */
    later_t         *buckets[NUM_BUCKETS];
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

static later_t **table_bucket(uintptr_t key)
{
    return &table.buckets[(key ^ (key >> 6) ^ (key >> 12)) % NUM_BUCKETS];
}

static void table_put(later_t *later)
{
    later_t **bucket = table_bucket(later->key);

    pthread_mutex_lock(&table.lock);
    later->next = *bucket;
    *bucket     = later;
    __atomic_fetch_add(&table.count, 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&table.lock);
}

/* Remove the call with this request or file from the table, before the MPI may
   complete it: after that another thread's request can get the same handle.
   @return NULL: there is none. */
static later_t *table_take(uintptr_t key)
{
    later_t **link = table_bucket(key);
    later_t *later;

    pthread_mutex_lock(&table.lock);
    while ((*link != NULL) && ((*link)->key != key)) {
        link = &(*link)->next;
    }
    later = *link;
    if (later != NULL) {
        *link = later->next;
        __atomic_fetch_sub(&table.count, 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&table.lock);
    return later;
}

/* Remove all calls with a request in the array, and return them as a list */
static later_t *requests_take(int count, const MPI_Request *requests)
{
    later_t *taken = NULL;
    later_t *later;
    int i;

    for (i = 0; i < count; ++i) {
        later = table_take((uintptr_t)requests[i]);
        if (later != NULL) {
            later->index = i;
            later->next  = taken;
            taken        = later;
        }
    }
    return taken;
}

/* Result of an MPI call that completes requests. The status of request i is
   statuses[i]; with `indices`, statuses[k] for indices[k] == i. */
typedef struct {
    int        rc;
    bool       are_all_over;
    MPI_Status *statuses; /* NULL: unknown */
    const int  *indices;
    int        count;
} outcome_t;

static const MPI_Status *outcome_status(const outcome_t *outcome, int index)
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
static int later_end(later_t *later)
{
    int rc;

    if (later->is_active) {
        ucx_mp_mpi_call_copy(&later->call, UCX_MP_MPI_WRITE);
    }
    later->is_active = false;
    rc               = later->call.failed;
    rc               = (rc == MPI_SUCCESS) ? later->call.rc : rc;

    if (later->is_again) {
        later->call.rc      = MPI_SUCCESS;
        later->call.failed  = later->lost;
        later->call.arrived = SIZE_MAX;
        table_put(later);
    } else {
        ucx_mp_mpi_call_free(&later->call);
        free(later);
    }
    return rc;
}

/* Return whether the MPI's call has completed a request, maybe with an error.
   Do not ask the MPI again: it may report a failed persistent request as
   active. */
static bool outcome_ends(const outcome_t *outcome, const MPI_Status *known)
{
    return outcome->are_all_over ||
           ((known != NULL) && (outcome->rc != MPI_SUCCESS) &&
            ((outcome->rc != MPI_ERR_IN_STATUS) ||
             (known->MPI_ERROR != MPI_ERR_PENDING)));
}

/* Set the received bytes of a completed request; 0 if it failed. */
static void later_arrived(later_t *later, const MPI_Status *status, int rc)
{
    if ((rc == MPI_SUCCESS) ||
        ((rc == MPI_ERR_IN_STATUS) && (status->MPI_ERROR == MPI_SUCCESS))) {
        ucx_mp_mpi_message_arrived(&later->call, status);
    } else {
        later->call.arrived = 0;
    }
}

/* Return whether a request is complete; if so, set its received bytes. A
   persistent request keeps its handle: if the call's result does not decide,
   ask the MPI. One that the MPI has freed is persistent no longer. */
static bool request_is_over(later_t *later, MPI_Request request,
                            const outcome_t *outcome)
{
    const MPI_Status *known = outcome_status(outcome, later->index);
    int rc                  = outcome->rc;
    MPI_Status status;
    int is_over = 0;

    if ((request != ucx_mp_mpi_pmpi.request_null) &&
        !outcome_ends(outcome, known)) {
        if (!later->is_again || !later->is_active ||
            (ucx_mp_mpi_pmpi.Request_get_status(request, &is_over, &status) !=
             MPI_SUCCESS) || !is_over) {
            return false;
        }
        if (known == NULL) {
            known = &status;
            rc    = MPI_SUCCESS;
        }
    }

    if (later->is_active && (known != NULL)) {
        later_arrived(later, known, rc);
    }
    if (request == ucx_mp_mpi_pmpi.request_null) {
        later->is_again = false; /* Open MPI frees a failed request */
    }
    return true;
}

/* Finish the calls whose requests are complete and put the others back into the
   table. If the MPI's call fails without naming a request, the finished calls'
   buffers are undefined. @return The MPI's error, else the first one of
   later_end(), else MPI_SUCCESS. */
static int requests_settle(later_t *taken, const MPI_Request *requests,
                           const outcome_t *outcome)
{
    int rc = outcome->rc;
    later_t *later;
    int later_rc;

    while (taken != NULL) {
        later = taken;
        taken = later->next;
        if (!request_is_over(later, requests[later->index], outcome)) {
            table_put(later);
            continue;
        }

        later_rc = later_end(later);
        rc       = (rc == MPI_SUCCESS) ? later_rc : rc;
    }
    return rc;
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


/* Requests that the program freed while their message was in progress: the MPI
   still uses their staging memory */
static struct {
    pthread_mutex_t lock;
    later_t         *first;
} freed = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void freed_put(later_t *later)
{
    pthread_mutex_lock(&freed.lock);
    later->next = freed.first;
    freed.first = later;
    pthread_mutex_unlock(&freed.lock);
}

/* Finish freed requests whose message is complete. */
static void freed_look(void)
{
    later_t *later, *next;
    MPI_Status status;
    int is_over, rc;

    if (__atomic_load_n(&freed.first, __ATOMIC_RELAXED) == NULL) {
        return;
    }

    pthread_mutex_lock(&freed.lock);
    next        = freed.first;
    freed.first = NULL;
    pthread_mutex_unlock(&freed.lock);

    while (next != NULL) {
        later   = next;
        next    = later->next;
        is_over = 0;
        rc      = ucx_mp_mpi_pmpi.Test(&later->freed, &is_over, &status);
        if ((rc == MPI_SUCCESS) && !is_over) {
            freed_put(later);
            continue;
        }

        if (later->is_again) {
            (void)ucx_mp_mpi_pmpi.Request_free(&later->freed);
        }
        later_arrived(later, &status, rc);
        later->is_again = false;
        (void)later_end(later);
        __atomic_fetch_sub(&table.count, 1, __ATOMIC_RELEASE);
    }
}


/* --------------------------------------------------------------- starting */

/* Copy a call to the heap. The communicator may be freed before the call
   completes: raise later errors on MPI_COMM_WORLD. */
static later_t *later_new(ucx_mp_mpi_call_t *call, uintptr_t key)
{
    later_t *later = calloc(1, sizeof(*later));

    if (later == NULL) {
        abort(); /* too late to fail: the MPI has started */
    }

    later->key       = key;
    later->is_active = true;
    later->lost      = call->failed;
    later->call      = *call;
    later->call.comm = ucx_mp_mpi_pmpi.comm_world;
    return later;
}

int ucx_mp_mpi_nonblocking_defer(ucx_mp_mpi_call_t *call, MPI_Request *request)
{
    MPI_Status status;
    int is_over = 0;

    if (!ucx_mp_mpi_in_progress) {
        freed_look();
    }

    /* Nothing is staged: leave the request to the MPI */
    if ((call->num_buffers == 0) && (call->packed == NULL)) {
        call->ordinal.key = 0;
        return ucx_mp_mpi_call_end(call);
    }

    /* A request that is complete at once may share its handle with others:
       finish it now. A staging error is reported on completion. */
    if (call->rc != MPI_SUCCESS) {
        return ucx_mp_mpi_call_end(call);
    }
    if (!ucx_mp_mpi_in_progress &&
        ((ucx_mp_mpi_pmpi.Request_get_status(*request, &is_over, &status) !=
          MPI_SUCCESS) || is_over)) {
        if (is_over) {
            ucx_mp_mpi_message_arrived(call, &status);
        }
        return ucx_mp_mpi_call_end(call);
    }

    table_put(later_new(call, (uintptr_t)*request));
    return MPI_SUCCESS;
}

ucx_mp_mpi_pending_t *
ucx_mp_mpi_nonblocking_track(const char *name, MPI_Request request,
                             void (*func)(void))
{
    ucx_mp_mpi_call_t call;
    later_t *later;

    ucx_mp_mpi_call_init(&call, name, ucx_mp_mpi_pmpi.comm_world, 0);
    later             = later_new(&call, (uintptr_t)request);
    later->is_pending = true;
    advance           = func;
    table_put(later);
    return later;
}

void ucx_mp_mpi_nonblocking_over(ucx_mp_mpi_pending_t *pending, int rc)
{
    pending->call.rc = rc;
    __atomic_store_n(&pending->is_pending, false, __ATOMIC_RELEASE);
}

int ucx_mp_mpi_call_again(ucx_mp_mpi_call_t *call, MPI_Request *request)
{
    later_t *later;

    if ((call->rc != MPI_SUCCESS) || (call->num_buffers == 0)) {
        ucx_mp_mpi_call_free(call);
        return call->rc;
    }

    later            = later_new(call, (uintptr_t)*request);
    later->is_again  = true;
    later->is_active = false;
    table_put(later);
    return MPI_SUCCESS;
}

int ucx_mp_mpi_call_split(ucx_mp_mpi_call_t *call, MPI_File file)
{
    if ((call->rc != MPI_SUCCESS) || (call->num_buffers == 0)) {
        return ucx_mp_mpi_call_end(call);
    }

    table_put(later_new(call, (uintptr_t)file));
    return MPI_SUCCESS;
}

/* Copy in the data that a persistent request sends. @return An error: do not
   start the request. A collective starts anyway, since other ranks wait for it,
   and reports the error on completion. */
static int request_start(MPI_Request request)
{
    later_t *later = table_take((uintptr_t)request);
    int rc         = MPI_SUCCESS;

    if (later == NULL) {
        return MPI_SUCCESS;
    }

    ++later->call.ordinal.start;
    ucx_mp_mpi_call_copy(&later->call, UCX_MP_MPI_READ);
    if (later->call.failed != MPI_SUCCESS) {
        ucx_mp_mpi_failure_report(later->call.ordinal, later->call.rank);
    }
    if ((later->call.failed != later->lost) &&
        (later->call.flags & UCX_MP_MPI_EMPTY)) {
        rc                 = later->call.failed;
        later->call.failed = later->lost;
    }
    later->is_active = (rc == MPI_SUCCESS);
    table_put(later);
    return rc;
}


/* ------------------------------------------------------ wrapped functions */

static void look(void)
{
    freed_look();
    if (advance != NULL) {
        advance();
    }
}

/* Make progress if this library has yet to complete one of the requests.
   @return Whether there is such a request: the caller must test instead of
   waiting in the MPI. */
static bool look_again(const later_t *taken)
{
    while ((taken != NULL) &&
           !__atomic_load_n(&taken->is_pending, __ATOMIC_ACQUIRE)) {
        taken = taken->next;
    }
    if (taken == NULL) {
        return false;
    }

    look();
    sched_yield();
    return true;
}

static int test_some(int count, MPI_Request *requests, int *done, int *indices,
                     MPI_Status *statuses, int *is_over)
{
    const int rc = ucx_mp_mpi_pmpi.Testsome(count, requests, done, indices,
                                            statuses);

    *is_over = (*done != 0);
    return rc;
}

/* Define a call that completes requests. `_status`: its status argument,
   `_room`: size of that array. The MPI fills `_done` entries of `_indices`.
   `_try`: the same call without waiting; sets is_over. */
#define END(_name, _count, _requests, _all_over, _status, _room, _indices, \
            _done, _words, _try, ...) \
    UCX_MP_MPI_DEFINE(_name, _words, __VA_ARGS__) \
    { \
        MPI_Status *given = _status; \
        outcome_t outcome = {.indices = _indices}; \
        later_t *taken; \
        int is_over = 0; \
        MPI_Status own; \
        int rc; \
        \
        if (table_is_empty()) { \
            return ucx_mp_mpi_pmpi._name _words; \
        } \
        \
        look(); \
        taken = requests_take(_count, _requests); \
        if (taken != NULL) { \
            outcome.statuses = statuses_get(given, _room, &own); \
            _status = (outcome.statuses == NULL) ? given : outcome.statuses; \
        } \
        \
        outcome.rc = MPI_SUCCESS; \
        while (!is_over && (outcome.rc == MPI_SUCCESS) && look_again(taken)) { \
            outcome.rc = _try; \
        } \
        if (!is_over && (outcome.rc == MPI_SUCCESS)) { \
            outcome.rc = ucx_mp_mpi_pmpi._name _words; \
        } \
        outcome.are_all_over = (outcome.rc == MPI_SUCCESS) && (_all_over); \
        outcome.count        = _done; \
        rc = requests_settle(taken, _requests, &outcome); \
        if ((_status != given) && (_status != &own)) { \
            free(_status); \
        } \
        return rc; \
    }

END(Wait, 1, request, true, status, 1, NULL, 1, (request, status),
    ucx_mp_mpi_pmpi.Test(request, &is_over, status),
    MPI_Request *request, MPI_Status *status)
END(Test, 1, request, *flag, status, 1, NULL, 1, (request, flag, status),
    ucx_mp_mpi_pmpi.Test(request, flag, (is_over = 1, status)),
    MPI_Request *request, int *flag, MPI_Status *status)
END(Waitall, count, requests, true, statuses, count, NULL, count,
    (count, requests, statuses),
    ucx_mp_mpi_pmpi.Testall(count, requests, &is_over, statuses),
    int count, MPI_Request *requests, MPI_Status *statuses)
END(Testall, count, requests, *flag, statuses, count, NULL, count,
    (count, requests, flag, statuses),
    ucx_mp_mpi_pmpi.Testall(count, requests, flag, (is_over = 1, statuses)),
    int count, MPI_Request *requests, int *flag, MPI_Status *statuses)
END(Waitany, count, requests, false, status, 1, index, 1,
    (count, requests, index, status),
    ucx_mp_mpi_pmpi.Testany(count, requests, index, &is_over, status),
    int count, MPI_Request *requests, int *index, MPI_Status *status)
END(Testany, count, requests, false, status, 1, index, *flag,
    (count, requests, index, flag, status),
    ucx_mp_mpi_pmpi.Testany(count, requests, index, flag,
                            (is_over = 1, status)),
    int count, MPI_Request *requests, int *index, int *flag,
    MPI_Status *status)
END(Waitsome, count, requests, false, statuses, count, indices, *done,
    (count, requests, done, indices, statuses),
    test_some(count, requests, done, indices, statuses, &is_over),
    int count, MPI_Request *requests, int *done, int *indices,
    MPI_Status *statuses)
END(Testsome, count, requests, false, statuses, count, indices, *done,
    (count, requests, done, indices, statuses),
    ucx_mp_mpi_pmpi.Testsome(count, requests, done, indices,
                             (is_over = 1, statuses)),
    int count, MPI_Request *requests, int *done, int *indices,
    MPI_Status *statuses)

UCX_MP_MPI_DEFINE(Request_get_status, (request, flag, status),
                  MPI_Request request, int *flag, MPI_Status *status)
{
    const bool is_empty = table_is_empty();
    MPI_Status own;
    later_t *later;
    int rc;

    if (!is_empty) {
        look();
    }
    status = ucx_mp_mpi_message_status(status, &own);
    rc     = ucx_mp_mpi_pmpi.Request_get_status(request, flag, status);
    if (is_empty || (rc != MPI_SUCCESS) || !*flag) {
        return rc;
    }

    /* complete: the program may read the buffer */
    later = table_take((uintptr_t)request);
    if (later == NULL) {
        return MPI_SUCCESS;
    }

    if (later->is_active) {
        ucx_mp_mpi_message_arrived(&later->call, status);
    }
    return later_end(later);
}

/* Free a message's request without waiting: waiting for the other rank could
   deadlock, so later calls test it. Other operations are completed here, since
   no later call would do it. */
UCX_MP_MPI_DEFINE(Request_free, (request), MPI_Request *request)
{
    later_t *later = table_is_empty() ? NULL : table_take((uintptr_t)*request);
    int rc         = MPI_SUCCESS;

    if (later == NULL) {
        return ucx_mp_mpi_pmpi.Request_free(request);
    }

    if (later->is_active && later->call.is_message) {
        later->freed = *request;
        *request     = ucx_mp_mpi_pmpi.request_null;
        __atomic_fetch_add(&table.count, 1, __ATOMIC_RELEASE);
        freed_put(later);
        freed_look();
        return MPI_SUCCESS;
    }

    while (look_again(later)) {
    }
    if (later->is_active) {
        rc = ucx_mp_mpi_pmpi.Wait(request, MPI_STATUS_IGNORE);
    }
    if ((rc == MPI_SUCCESS) && later->is_again) {
        rc = ucx_mp_mpi_pmpi.Request_free(request);
    }
    later->is_again = false;
    later->call.rc  = rc;
    return later_end(later);
}

UCX_MP_MPI_DEFINE(Start, (request), MPI_Request *request)
{
    const int rc = table_is_empty() ? MPI_SUCCESS : request_start(*request);

    return (rc != MPI_SUCCESS) ? rc : ucx_mp_mpi_pmpi.Start(request);
}

UCX_MP_MPI_DEFINE(Startall, (count, requests), int count,
                  MPI_Request *requests)
{
    const bool is_empty = table_is_empty();
    int rc              = MPI_SUCCESS;
    int i;

    for (i = 0; !is_empty && (rc == MPI_SUCCESS) && (i < count); ++i) {
        rc = request_start(requests[i]);
    }
    return (rc != MPI_SUCCESS) ? rc : ucx_mp_mpi_pmpi.Startall(count, requests);
}

/* Define the second half of a split file operation: pass the same copy as the
   first half did */
#define FILE_END(_name, _const) \
    UCX_MP_MPI_DEFINE(File_##_name, (fh, buf, status), MPI_File fh, \
                      _const void *buf, MPI_Status *status) \
    { \
        later_t *later = table_is_empty() ? NULL : table_take((uintptr_t)fh); \
        \
        if (later == NULL) { \
            return ucx_mp_mpi_pmpi.File_##_name(fh, buf, status); \
        } \
        \
        buf = (void*)later->call.buffers[0].given; \
        later->call.rc = ucx_mp_mpi_pmpi.File_##_name(fh, buf, status); \
        return later_end(later); \
    }

FILE_END(read_all_end, )
FILE_END(read_at_all_end, )
FILE_END(read_ordered_end, )
FILE_END(write_all_end, const)
FILE_END(write_at_all_end, const)
FILE_END(write_ordered_end, const)
