/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi/reduction.h>

#include <mpi/nonblocking.h>
#include <mpi/job.h>

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>


typedef struct reduction reduction_t;

struct reduction {
    reduction_t             *next;
    uct_cuda_coll_op_t      *op;   /* NULL: the GPUs' part has ended */
    bool                    is_staged; /* the MPI carries it out */
    bool                    is_issued; /* its call has been made */
    ucx_mp_mpi_collective_t args;
    MPI_Request             request;   /* the program's */
    MPI_Request             inner;     /* of the MPI's call */
    ucx_mp_mpi_ordinal_t    ordinal;   /* of the MPI's call */
    int                     rc;
    ucx_mp_mpi_pending_t    *pending;
};

/* Declined reductions go to the duplicate of a communicator, or they start the
   MPI's persistent request */
struct ucx_mp_mpi_reductions {
    ucx_mp_mpi_reductions_t *next;
    reduction_t             *first;
    MPI_Comm                duplicate;  /* or the null handle */
    uint64_t                key;        /* of the duplicate's calls */
    const uint64_t          *number;    /* of its last call */
    MPI_Request             persistent; /* or the null handle */
};

/* All queues. advance() and on_end() only try the lock:
   UCX's progress may call them in a thread that holds it. */
static struct {
    pthread_mutex_t         lock;
    ucx_mp_mpi_reductions_t *first;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};


/* ----------------------------------------------------------- the MPI's call */

/* Make one of two calls: that with large counts if is_large is set */
#if MPI_VERSION >= 4
#define CALL(_name, ...) \
    (is_large ? PMPI_##_name##_c(__VA_ARGS__) : PMPI_##_name(__VA_ARGS__))
#else
#define CALL(_name, ...) PMPI_##_name(__VA_ARGS__)
#endif

/* Start a declined reduction on the duplicate `comm`, by the wrappers of this
   library, which stage the buffers. @return Their result. */
static int reduction_call(reduction_t *reduction, MPI_Comm comm)
{
    const ucx_mp_mpi_collective_t *args = &reduction->args;
    const void *counts                  = args->counts.values;
    MPI_Request *request                = &reduction->inner;
#if MPI_VERSION >= 4
    const bool is_large                 = (args->count > INT_MAX) ||
                                          ((counts != NULL) &&
                                           (args->counts.width != sizeof(int)));
#endif

    switch (args->kind) {
    case UCT_CUDA_COLL_KIND_ALLREDUCE:
        return CALL(Iallreduce, args->sendbuf, args->recvbuf, args->count,
                    args->datatype, args->op, comm, request);
    case UCT_CUDA_COLL_KIND_REDUCE:
        return CALL(Ireduce, args->sendbuf, args->recvbuf, args->count,
                    args->datatype, args->op, args->root, comm, request);
    default:
        return (counts == NULL) ?
                       CALL(Ireduce_scatter_block, args->sendbuf,
                            args->recvbuf, args->count, args->datatype,
                            args->op, comm, request) :
                       CALL(Ireduce_scatter, args->sendbuf, args->recvbuf,
                            counts, args->datatype, args->op, comm, request);
    }
}


/* ----------------------------------------------------------------- progress */

/* Ask the module for a reduction's result. Once there is one, set `op` to NULL,
   and is_staged if the GPUs declined, or rc after a failure. */
static void reduction_check(reduction_t *reduction)
{
    uct_cuda_coll_result_t result;
    char why[256];

    result = ucx_mp_mpi_job.api->test(reduction->op, why, sizeof(why));
    if (result == UCT_CUDA_COLL_PENDING) {
        return;
    }

    reduction->op        = NULL;
    reduction->is_staged = (result == UCT_CUDA_COLL_STAGE);
    if ((result != UCT_CUDA_COLL_DONE) && (result != UCT_CUDA_COLL_STAGE)) {
        reduction->rc = ucx_mp_mpi_failure_raise(result, reduction->args.name,
                                                 ucx_mp_mpi_pmpi.comm_world,
                                                 why);
    }
}

/* Start a declined reduction in the MPI. @return Its result. */
static int reduction_issue(reduction_t *reduction,
                           const ucx_mp_mpi_reductions_t *reductions)
{
    int rc;

    if (reductions->persistent == ucx_mp_mpi_pmpi.request_null) {
        rc = reduction_call(reduction, reductions->duplicate);
        reduction->ordinal.key    = reductions->key;
        reduction->ordinal.number = *reductions->number;
        return rc;
    }

    reduction->inner = reductions->persistent;
    return PMPI_Start(&reduction->inner);
}

/* Make the MPI's calls of declined reductions in the order of the queue, up to
   the first reduction without a result. The caller holds the lock. */
static void reductions_issue(ucx_mp_mpi_reductions_t *reductions)
{
    reduction_t *reduction;

    for (reduction = reductions->first; reduction != NULL;
         reduction = reduction->next) {
        if (reduction->op != NULL) {
            reduction_check(reduction);
        }
        if (reduction->op != NULL) {
            return;
        }

        if (reduction->is_staged && !reduction->is_issued) {
            reduction->rc        = reduction_issue(reduction, reductions);
            reduction->is_issued = (reduction->rc == MPI_SUCCESS);
            reduction->is_staged = reduction->is_issued;
        }
    }
}

/* Complete the requests of ended reductions, and free these reductions. The
   caller holds the lock. */
static void reductions_complete(ucx_mp_mpi_reductions_t *reductions)
{
    reduction_t **link = &reductions->first;
    reduction_t *reduction;
    int is_over;

    while ((reduction = *link) != NULL) {
        is_over = (reduction->op == NULL) && !reduction->is_staged;
        if (reduction->is_issued) {
            is_over       = 0;
            reduction->rc = PMPI_Test(&reduction->inner, &is_over,
                                      MPI_STATUS_IGNORE);
            is_over       = is_over || (reduction->rc != MPI_SUCCESS);
            if (is_over) {
                reduction->rc = ucx_mp_mpi_failure_end(
                        reduction->ordinal, reduction->args.name,
                        ucx_mp_mpi_pmpi.comm_world, reduction->rc);
            }
        }
        if (!is_over) {
            link = &reduction->next;
            continue;
        }

        *link = reduction->next;
        /* another thread frees `pending` as soon as the request is complete */
        ucx_mp_mpi_nonblocking_over(reduction->pending, reduction->rc);
        (void)ucx_mp_mpi_pmpi.Grequest_complete(reduction->request);
        free(reduction);
    }
}

/* Make the MPI's calls of declined reductions, for which other ranks may wait.
   Inside the MPI's progress function, test and complete no request. @return
   false: the lock is busy. */
static bool advance_all(bool is_in_progress)
{
    ucx_mp_mpi_reductions_t *reductions;

    if (pthread_mutex_trylock(&all.lock) != 0) {
        return false;
    }

    ucx_mp_mpi_in_progress  = is_in_progress;
    ucx_mp_mpi_raises_later = true;
    for (reductions = all.first; reductions != NULL;
         reductions = reductions->next) {
        reductions_issue(reductions);
        if (!is_in_progress) {
            reductions_complete(reductions);
        }
    }
    ucx_mp_mpi_raises_later = false;
    ucx_mp_mpi_in_progress  = false;
    pthread_mutex_unlock(&all.lock);
    return true;
}

static void advance(void)
{
    ucx_mp_mpi_job.api->progress();
    (void)advance_all(false);
}

/* UCX's progress calls this inside the MPI's. @return Non-zero: call again. */
static int on_end(void)
{
    return !advance_all(true);
}


/* ------------------------------------------------------------------ request */

static int request_query(void *extra, MPI_Status *status)
{
    status->MPI_SOURCE = MPI_UNDEFINED;
    status->MPI_TAG    = MPI_UNDEFINED;
    (void)ucx_mp_mpi_pmpi.Status_set_cancelled(status, 0);
    return ucx_mp_mpi_pmpi.Status_set_elements(status, ucx_mp_mpi_pmpi.byte, 0);
}

static int request_free(void *extra)
{
    return MPI_SUCCESS;
}

static int request_cancel(void *extra, int is_complete)
{
    return MPI_SUCCESS; /* MPI cancels no collective */
}

/* Let the MPI make progress by a test of a request */
static void progress_by_test(void)
{
    const ucx_mp_mpi_pmpi_t *real = &ucx_mp_mpi_pmpi;
    MPI_Request request;
    int is_over;

    if (real->Grequest_start(request_query, request_free, request_cancel, NULL,
                             &request) == MPI_SUCCESS) {
        (void)real->Test(&request, &is_over, MPI_STATUS_IGNORE);
        (void)real->Grequest_complete(request);
        (void)real->Wait(&request, MPI_STATUS_IGNORE);
    }
}

void ucx_mp_mpi_progress(MPI_Comm comm)
{
    int is_found = 0;

    if ((ucx_mp_mpi_pmpi.Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &is_found,
                                MPI_STATUS_IGNORE) != MPI_SUCCESS) ||
        is_found) {
        progress_by_test();
    }
}

ucx_mp_mpi_reductions_t *
ucx_mp_mpi_reductions_create(MPI_Comm duplicate, uint64_t key,
                             const uint64_t *number, MPI_Request persistent)
{
    ucx_mp_mpi_reductions_t *reductions = calloc(1, sizeof(*reductions));

    if (reductions == NULL) {
        abort(); /* the other ranks rely on it */
    }

    reductions->duplicate  = duplicate;
    reductions->key        = key;
    reductions->number     = number;
    reductions->persistent = persistent;
    ucx_mp_mpi_job.api->on_end(on_end);
    pthread_mutex_lock(&all.lock);
    reductions->next = all.first;
    all.first        = reductions;
    pthread_mutex_unlock(&all.lock);
    return reductions;
}

int ucx_mp_mpi_reduction_start(ucx_mp_mpi_reductions_t *reductions,
                               uct_cuda_coll_team_t *team,
                               const ucx_mp_mpi_collective_t *args,
                               const uct_cuda_coll_call_t *what,
                               uct_cuda_coll_reason_t reason,
                               MPI_Request *request)
{
    reduction_t *reduction = calloc(1, sizeof(*reduction));
    reduction_t **link;
    int rc;

    if (reduction == NULL) {
        abort(); /* the other ranks rely on it */
    }

    rc = ucx_mp_mpi_pmpi.Grequest_start(request_query, request_free,
                                        request_cancel, NULL, request);
    if (rc != MPI_SUCCESS) {
        free(reduction);
        return rc;
    }

    reduction->args      = *args;
    reduction->request   = *request;
    reduction->is_staged = (team == NULL);
    reduction->pending   = ucx_mp_mpi_nonblocking_track(args->name, *request,
                                                        advance);
    if (team != NULL) {
        reduction->op = ucx_mp_mpi_job.api->start(team, what, reason);
    }

    pthread_mutex_lock(&all.lock);
    for (link = &reductions->first; *link != NULL; link = &(*link)->next) {
    }
    *link = reduction;
    pthread_mutex_unlock(&all.lock);
    advance();
    return MPI_SUCCESS;
}

void ucx_mp_mpi_reductions_destroy(ucx_mp_mpi_reductions_t *reductions,
                                   MPI_Comm comm)
{
    ucx_mp_mpi_reductions_t **link = &all.first;

    if (comm == ucx_mp_mpi_pmpi.comm_world) {
        return; /* the MPI ends */
    }

    /* another rank may need a message of this one before its own call */
    while (reductions->first != NULL) {
        advance();
        ucx_mp_mpi_progress(ucx_mp_mpi_pmpi.comm_world);
        sched_yield();
    }

    pthread_mutex_lock(&all.lock);
    while (*link != reductions) {
        link = &(*link)->next;
    }
    *link = reductions->next;
    pthread_mutex_unlock(&all.lock);
    if (reductions->duplicate != ucx_mp_mpi_pmpi.comm_null) {
        ucx_mp_mpi_pmpi.Comm_free(&reductions->duplicate);
    } else {
        (void)PMPI_Request_free(&reductions->persistent);
    }
    free(reductions);
}
