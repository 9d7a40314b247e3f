/* SPDX-License-Identifier: BSD-3-Clause */
#pragma GCC visibility push(default)
#include <mpi.h>
#pragma GCC visibility pop

#include <mpi/later.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>


#define NUM_BUCKETS 64

/* A call that was begun. Its request, or file, is the key: those that live have
   handles of their own. */
typedef struct later later_t;
struct later {
    later_t           *next;
    uintptr_t         key;
    int               index;     /* among a call's requests */
    bool              is_again;  /* persistent; the request outlives its end */
    bool              is_active; /* the MPI may use the copies */
    int               lost;      /* persistent; buffers that cannot be staged,
                                    whenever it is started */
    ucx_mp_mpi_call_t call;
};

static struct {
    pthread_mutex_t lock;
    unsigned        count; /* of all; most programs have none */
    later_t         *buckets[NUM_BUCKETS];
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};


static bool table_is_empty(void)
{
    if (__builtin_expect(!__atomic_load_n(&ucx_mp_mpi_real_found,
                                          __ATOMIC_ACQUIRE), 0)) {
        ucx_mp_mpi_real_find();
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

/* Out of the table before the MPI may end it: then another thread's call can
   have the same handle */
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

/* Those of an array of requests that are ours, as a list */
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

/* The MPI's part is over. @return The call's error, or MPI_SUCCESS. */
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
        later->call.rc     = MPI_SUCCESS;
        later->call.failed = later->lost;
        table_put(later);
    } else {
        ucx_mp_mpi_call_free(&later->call);
        free(later);
    }
    return rc;
}

/* A persistent request's handle does not tell whether it is at its end: asked
   of the MPI where the call has not said so of all */
static bool request_is_over(const later_t *later, MPI_Request request,
                            bool are_all_over)
{
    int is_over = 0;

    return are_all_over || (request == ucx_mp_mpi_real.request_null) ||
           (later->is_again && later->is_active &&
            (ucx_mp_mpi_real.Request_get_status(request, &is_over,
                                                MPI_STATUS_IGNORE) ==
             MPI_SUCCESS) &&
            is_over);
}

/* The MPI has looked at the requests, with this result. Of a call that failed
   it does not say for which: what is copied back then is nobody's promise. */
static int requests_settle(later_t *taken, const MPI_Request *requests,
                           bool are_all_over, int rc)
{
    later_t *later;
    int later_rc;

    while (taken != NULL) {
        later = taken;
        taken = later->next;
        if (!request_is_over(later, requests[later->index], are_all_over)) {
            table_put(later);
            continue;
        }

        later_rc = later_end(later);
        rc       = (rc == MPI_SUCCESS) ? later_rc : rc;
    }
    return rc;
}


/* ------------------------------------------------------------- beginnings */

/* The end may come when the communicator is freed, and its errors go to the
   world's */
static later_t *later_new(ucx_mp_mpi_call_t *call, uintptr_t key)
{
    later_t *later = calloc(1, sizeof(*later));

    if (later == NULL) {
        abort(); /* the MPI has begun */
    }

    later->key       = key;
    later->is_active = true;
    later->lost      = call->failed;
    later->call      = *call;
    later->call.comm = ucx_mp_mpi_real.comm_world;
    return later;
}

int ucx_mp_mpi_call_later(ucx_mp_mpi_call_t *call, MPI_Request *request)
{
    int is_over = 0;

    /* Nothing is staged: the request is left to the MPI alone */
    if ((call->num_buffers == 0) && (call->packed == NULL)) {
        call->ordinal.key = 0;
        return ucx_mp_mpi_call_end(call);
    }

    /* what is over at once may have a handle that all such share; a failure in
       staging is reported when the rest of the call is over */
    if ((call->rc != MPI_SUCCESS) ||
        (ucx_mp_mpi_real.Request_get_status(*request, &is_over,
                                            MPI_STATUS_IGNORE) !=
         MPI_SUCCESS) ||
        is_over) {
        return ucx_mp_mpi_call_end(call);
    }

    table_put(later_new(call, (uintptr_t)*request));
    return MPI_SUCCESS;
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

/* Copy what a persistent request of ours sends. @return An error that keeps it
   from being started: other ranks wait for a collective all the same, and the
   error is that of its end. */
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


/* ------------------------------------------------- the MPI's own, and ours */

#define END(_name, _count, _requests, _all_over, _words, ...) \
    UCX_MP_MPI_DEFINE(_name, _words, __VA_ARGS__) \
    { \
        later_t *taken; \
        int rc; \
        \
        if (table_is_empty()) { \
            return ucx_mp_mpi_real._name _words; \
        } \
        \
        taken = requests_take(_count, _requests); \
        rc    = ucx_mp_mpi_real._name _words; \
        return requests_settle(taken, _requests, \
                               (rc == MPI_SUCCESS) && (_all_over), rc); \
    }

END(Wait, 1, request, true, (request, status), MPI_Request *request,
    MPI_Status *status)
END(Test, 1, request, *flag, (request, flag, status), MPI_Request *request,
    int *flag, MPI_Status *status)
END(Waitall, count, requests, true, (count, requests, statuses), int count,
    MPI_Request *requests, MPI_Status *statuses)
END(Testall, count, requests, *flag, (count, requests, flag, statuses),
    int count, MPI_Request *requests, int *flag, MPI_Status *statuses)
END(Waitany, count, requests, false, (count, requests, index, status),
    int count, MPI_Request *requests, int *index, MPI_Status *status)
END(Testany, count, requests, false, (count, requests, index, flag, status),
    int count, MPI_Request *requests, int *index, int *flag, MPI_Status *status)
END(Waitsome, count, requests, false,
    (count, requests, done, indices, statuses), int count,
    MPI_Request *requests, int *done, int *indices, MPI_Status *statuses)
END(Testsome, count, requests, false,
    (count, requests, done, indices, statuses), int count,
    MPI_Request *requests, int *done, int *indices, MPI_Status *statuses)

UCX_MP_MPI_DEFINE(Request_get_status, (request, flag, status),
                  MPI_Request request, int *flag, MPI_Status *status)
{
    const bool is_empty = table_is_empty();
    const int rc        = ucx_mp_mpi_real.Request_get_status(request, flag,
                                                             status);
    later_t *later;

    if (is_empty || (rc != MPI_SUCCESS) || !*flag) {
        return rc;
    }

    /* the program may look at the buffer now */
    later = table_take((uintptr_t)request);
    return (later == NULL) ? MPI_SUCCESS : later_end(later);
}

/* Of what is under way nobody would hear again: it is waited for. Files alone
   may be left so. */
UCX_MP_MPI_DEFINE(Request_free, (request), MPI_Request *request)
{
    later_t *later = table_is_empty() ? NULL : table_take((uintptr_t)*request);
    int rc         = MPI_SUCCESS;

    if (later == NULL) {
        return ucx_mp_mpi_real.Request_free(request);
    }

    if (later->is_active) {
        rc = ucx_mp_mpi_real.Wait(request, MPI_STATUS_IGNORE);
    }
    if ((rc == MPI_SUCCESS) && later->is_again) {
        rc = ucx_mp_mpi_real.Request_free(request);
    }
    later->is_again = false;
    later->call.rc  = rc;
    return later_end(later);
}

UCX_MP_MPI_DEFINE(Start, (request), MPI_Request *request)
{
    const int rc = table_is_empty() ? MPI_SUCCESS : request_start(*request);

    return (rc != MPI_SUCCESS) ? rc : ucx_mp_mpi_real.Start(request);
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
    return (rc != MPI_SUCCESS) ? rc : ucx_mp_mpi_real.Startall(count, requests);
}

/* The buffer's argument leads to the copy, as it did at the beginning */
#define FILE_END(_name, _const) \
    UCX_MP_MPI_DEFINE(File_##_name, (fh, buf, status), MPI_File fh, \
                      _const void *buf, MPI_Status *status) \
    { \
        later_t *later = table_is_empty() ? NULL : table_take((uintptr_t)fh); \
        \
        if (later == NULL) { \
            return ucx_mp_mpi_real.File_##_name(fh, buf, status); \
        } \
        \
        buf = (void*)later->call.buffers[0].given; \
        later->call.rc = ucx_mp_mpi_real.File_##_name(fh, buf, status); \
        return later_end(later); \
    }

FILE_END(read_all_end, )
FILE_END(read_at_all_end, )
FILE_END(read_ordered_end, )
FILE_END(write_all_end, const)
FILE_END(write_at_all_end, const)
FILE_END(write_ordered_end, const)
