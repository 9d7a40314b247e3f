/* SPDX-License-Identifier: BSD-3-Clause */
/* Synchronisation of windows with GPU memory. */
#include <mpi/reduction.h>
#include <mpi/window.h>

#include <sched.h>
#include <stdlib.h>


#define EXCLUSIVE UINT32_MAX
#define SPINS     100

/* Locks of one target; each cell has a cache line of its own */
typedef struct {
    uint32_t lock;      /* holders of a shared lock, or EXCLUSIVE */
    uint32_t is_atomic; /* a rank accumulates */
} __attribute__((aligned(64))) cell_t;

/* Control block of a window; its counters wrap around */
struct ucx_mp_mpi_window_control {
    uint32_t fences; /* ranks' arrivals at barriers */
    cell_t   cells[]; /* one per rank; then the counters of posts() and
                         completions() */
};

/* An operation staged for the MPI's memory */
typedef struct deferred deferred_t;
struct deferred {
    deferred_t        *next;
    uint64_t          number; /* of this call, counted from 1 */
    MPI_Win           win;
    int               target;
    ucx_mp_mpi_call_t call;
};

static struct {
    pthread_mutex_t lock; /* recursive: error handlers may flush */
    deferred_t      *first;
    uint64_t        count; /* calls kept so far */
} deferred = {.lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP};


size_t ucx_mp_mpi_window_control_size(int ranks)
{
    return sizeof(ucx_mp_mpi_window_control_t) + ranks * sizeof(cell_t) +
           2 * (size_t)ranks * ranks * sizeof(uint32_t);
}

/* Return the counter of a target's MPI_Win_post() calls for an origin */
static uint32_t *posts(const ucx_mp_mpi_window_t *window, int target,
                       int origin)
{
    uint32_t *first = (uint32_t*)&window->control->cells[window->size];

    return &first[target * window->size + origin];
}

/* Return the counter of an origin's MPI_Win_complete() calls for a target */
static uint32_t *completions(const ucx_mp_mpi_window_t *window, int target,
                             int origin)
{
    return posts(window, target, origin) + window->size * window->size;
}

/* At every SPINS-th call, let the MPI make progress, and yield the CPU. */
static void progress(unsigned *spins)
{
    if (++*spins % SPINS != 0) {
        return;
    }

    ucx_mp_mpi_progress(ucx_mp_mpi_pmpi.comm_world);
    (void)sched_yield();
}

static bool has_reached(const uint32_t *word, uint32_t goal)
{
    return (int32_t)(__atomic_load_n(word, __ATOMIC_ACQUIRE) - goal) >= 0;
}

static void await(const uint32_t *word, uint32_t goal)
{
    unsigned spins = 0;

    while (!has_reached(word, goal)) {
        progress(&spins);
    }
}

static void count(uint32_t *word)
{
    (void)__atomic_fetch_add(word, 1, __ATOMIC_ACQ_REL);
}

/* Make the program's synchronous copies to this rank's GPU memory complete, so
   that other ranks can read it. Does nothing for host memory. */
static void expose(const ucx_mp_mpi_window_t *window)
{
    if (window->is_gpu) {
        window->api->sync(window->base);
    }
}

void ucx_mp_mpi_window_barrier(ucx_mp_mpi_window_t *window)
{
    uint32_t *word = &window->control->fences;

    expose(window);
    window->fences += window->size;
    count(word);
    await(word, window->fences);
}

void ucx_mp_mpi_window_begin_atomic(ucx_mp_mpi_window_t *window, int target)
{
    uint32_t *word = &window->control->cells[target].is_atomic;
    unsigned spins = 0;

    while (__atomic_exchange_n(word, 1, __ATOMIC_ACQUIRE)) {
        progress(&spins);
    }
}

void ucx_mp_mpi_window_end_atomic(ucx_mp_mpi_window_t *window, int target)
{
    __atomic_store_n(&window->control->cells[target].is_atomic, 0,
                     __ATOMIC_RELEASE);
}


/* --------------------------------------------------- operations in progress */

int ucx_mp_mpi_window_wait(ucx_mp_mpi_window_t *window)
{
    CUresult result = CUDA_SUCCESS;
    CUresult next;
    ucx_mp_mpi_copy_t copy;

    pthread_mutex_lock(&window->lock);
    while (window->num_busy > 0) {
        ucx_mp_mpi_copy_begin_in(&copy, window->busy[--window->num_busy], 0);
        next   = ucx_mp_mpi_copy_end(&copy);
        result = (result == CUDA_SUCCESS) ? next : result;
    }
    pthread_mutex_unlock(&window->lock);
    return (result == CUDA_SUCCESS) ?
                   MPI_SUCCESS :
                   ucx_mp_mpi_raise_win(window->win, MPI_ERR_OTHER);
}

int ucx_mp_mpi_window_defer(ucx_mp_mpi_call_t *call, MPI_Win win, int target)
{
    deferred_t *kept;

    if ((call->num_buffers == 0) || (call->rc != MPI_SUCCESS) ||
        (call->failed != MPI_SUCCESS)) {
        return ucx_mp_mpi_call_end(call);
    }

    kept = malloc(sizeof(*kept));
    if (kept == NULL) {
        abort(); /* the MPI has begun */
    }

    kept->win       = win;
    kept->target    = target;
    kept->call      = *call;
    kept->call.comm = ucx_mp_mpi_pmpi.comm_world;
    pthread_mutex_lock(&deferred.lock);
    kept->number   = deferred.count + 1;
    kept->next     = deferred.first;
    deferred.first = kept;
    __atomic_store_n(&deferred.count, kept->number, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&deferred.lock);
    __atomic_fetch_add(&ucx_mp_mpi_num_windows, 1, __ATOMIC_RELEASE);
    return MPI_SUCCESS;
}

int ucx_mp_mpi_window_request(MPI_Request *request_p)
{
    return ucx_mp_mpi_pmpi.Isend(NULL, 0, ucx_mp_mpi_pmpi.byte,
                                 MPI_PROC_NULL, 0, ucx_mp_mpi_pmpi.comm_world,
                                 request_p);
}

int ucx_mp_mpi_window_complete(ucx_mp_mpi_call_t *call, MPI_Win win, int target,
                               MPI_Request *request_p)
{
    const bool is_staged = (call->num_buffers > 0) || (call->packed != NULL);
    int rc;

    if (!is_staged || (call->rc != MPI_SUCCESS) ||
        (call->failed != MPI_SUCCESS)) {
        return ucx_mp_mpi_call_end(call);
    }

    call->rc = ucx_mp_mpi_pmpi.Wait(request_p, MPI_STATUS_IGNORE);
    if (call->rc == MPI_SUCCESS) {
        call->rc = ucx_mp_mpi_pmpi.Win_flush(target, win);
    }
    rc       = ucx_mp_mpi_call_end(call);
    return (rc == MPI_SUCCESS) ? ucx_mp_mpi_window_request(request_p) : rc;
}

/* Remove the first kept call to a target, or to any, up to `mark`. The caller
   holds the lock. @return NULL: none. */
static deferred_t *deferred_take(MPI_Win win, int target, uint64_t mark)
{
    deferred_t **link = &deferred.first;
    deferred_t *found;

    while ((*link != NULL) &&
           (((*link)->win != win) || ((*link)->number > mark) ||
            ((target != UCX_MP_MPI_ALL) && ((*link)->target != target)))) {
        link = &(*link)->next;
    }
    found = *link;
    if (found != NULL) {
        *link = found->next;
    }
    return found;
}

/* Return the lowest target above `target` of the calls kept up to `mark`; -1:
   none. */
static int deferred_target(MPI_Win win, int target, uint64_t mark)
{
    const deferred_t *kept;
    int lowest = -1;

    pthread_mutex_lock(&deferred.lock);
    for (kept = deferred.first; kept != NULL; kept = kept->next) {
        if ((kept->win == win) && (kept->number <= mark) &&
            (kept->target > target) &&
            ((lowest < 0) || (kept->target < lowest))) {
            lowest = kept->target;
        }
    }
    pthread_mutex_unlock(&deferred.lock);
    return lowest;
}

/* Let the MPI flush all targets, and those of kept calls one by one: with
   Open MPI's component rdma, MPI_Win_flush_all() does not wait for gets under
   MPI_Win_lock() that it carries out by messages. @return The MPI's result. */
static int flush_all(MPI_Win win, uint64_t mark)
{
    int rc     = ucx_mp_mpi_pmpi.Win_flush_all(win);
    int target = -1;

    while ((rc == MPI_SUCCESS) &&
           ((target = deferred_target(win, target, mark)) >= 0)) {
        rc = ucx_mp_mpi_pmpi.Win_flush(target, win);
    }
    return rc;
}

uint64_t ucx_mp_mpi_window_mark(void)
{
    return __atomic_load_n(&deferred.count, __ATOMIC_RELAXED);
}

int ucx_mp_mpi_window_settle(MPI_Win win, int target, uint64_t mark, int rc)
{
    deferred_t *next;
    int next_rc;

    if ((rc != MPI_SUCCESS) || !ucx_mp_mpi_has_windows()) {
        return rc;
    }

    pthread_mutex_lock(&deferred.lock); /* others' calls wait for the copies */
    while ((next = deferred_take(win, target, mark)) != NULL) {
        next_rc = ucx_mp_mpi_call_end(&next->call);
        rc      = (rc == MPI_SUCCESS) ? next_rc : rc;
        free(next);
        __atomic_fetch_sub(&ucx_mp_mpi_num_windows, 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&deferred.lock);
    return rc;
}


/* ------------------------------------------------------------------ groups */

/* Return the ranks in the window of a group's processes, an array to free.
   NULL: no memory, or a process is not in the window. */
static int *group_ranks(const ucx_mp_mpi_window_t *window, MPI_Group group,
                        int *count_p)
{
    const ucx_mp_mpi_pmpi_t *real = &ucx_mp_mpi_pmpi;
    int *ranks, count, i;

    if (real->Group_size(group, &count) != MPI_SUCCESS) {
        return NULL;
    }

    ranks = malloc((2 * count + 1) * sizeof(*ranks));
    if (ranks == NULL) {
        return NULL;
    }

    for (i = 0; i < count; ++i) {
        ranks[count + i] = i;
    }
    if (real->Group_translate_ranks(group, count, ranks + count, window->group,
                                    ranks) != MPI_SUCCESS) {
        goto err;
    }
    for (i = 0; i < count; ++i) {
        if ((ranks[i] < 0) || (ranks[i] >= window->size)) {
            goto err;
        }
    }

    *count_p = count;
    return ranks;

err:
    free(ranks);
    return NULL;
}

/* Begin the body of a wrapper: declare `window` and `rc`, and return `_result`
   if the window `win` has no GPU memory. */
#define FIND(_result) \
    ucx_mp_mpi_window_t *window; \
    int rc = MPI_SUCCESS; \
    \
    ucx_mp_mpi_pmpi_find_calls(); \
    window = ucx_mp_mpi_window_find(win); \
    if (window == NULL) { \
        return _result; \
    }

/* Begin a wrapper so; `_result` is that of the MPI's call. */
#define BEGIN(_name, ...) FIND(ucx_mp_mpi_pmpi._name(__VA_ARGS__))

/* The same for a call that completes operations on `_target`, which may be
   UCX_MP_MPI_ALL. Declare `mark`, too, and end the staged calls. */
#define BEGIN_END(_name, _target, ...) \
    const uint64_t mark = ucx_mp_mpi_window_mark(); \
    FIND(ucx_mp_mpi_window_settle(win, _target, mark, \
                                  ucx_mp_mpi_pmpi._name(__VA_ARGS__)))

/* Make the MPI's call, too, if ranks of the window have host memory. Set `rc`
   to its result unless `rc` is an error. */
#define REAL(_name, ...) \
    if (window->has_host) { \
        const int real_rc = ucx_mp_mpi_pmpi._name(__VA_ARGS__); \
        \
        rc = (rc == MPI_SUCCESS) ? real_rc : rc; \
    }


UCX_MP_MPI_DEFINE(Win_fence, (mode, win), int mode, MPI_Win win)
{
    BEGIN_END(Win_fence, UCX_MP_MPI_ALL, mode, win)

    rc = ucx_mp_mpi_window_wait(window);
    REAL(Win_fence, mode, win)
    ucx_mp_mpi_window_barrier(window);
    window->is_fenced = !(mode & MPI_MODE_NOSUCCEED);
    return ucx_mp_mpi_window_settle(win, UCX_MP_MPI_ALL, mark, rc);
}

UCX_MP_MPI_DEFINE(Win_post, (group, mode, win), MPI_Group group, int mode,
                  MPI_Win win)
{
    int i;
    BEGIN(Win_post, group, mode, win)

    if (window->posts != NULL) {
        return ucx_mp_mpi_raise_win(win, MPI_ERR_RMA_SYNC);
    }
    window->posts = group_ranks(window, group, &window->num_posts);
    if (window->posts == NULL) {
        return ucx_mp_mpi_raise_win(win, MPI_ERR_GROUP);
    }

    window->is_fenced = false;
    expose(window);
    REAL(Win_post, group, mode, win)
    for (i = 0; i < window->num_posts; ++i) {
        count(posts(window, window->rank, window->posts[i]));
    }
    return rc;
}

UCX_MP_MPI_DEFINE(Win_start, (group, mode, win), MPI_Group group, int mode,
                  MPI_Win win)
{
    ucx_mp_mpi_target_t *target;
    int i;
    BEGIN(Win_start, group, mode, win)

    if ((window->starts != NULL) || window->is_locked) {
        return ucx_mp_mpi_raise_win(win, MPI_ERR_RMA_SYNC);
    }
    window->starts = group_ranks(window, group, &window->num_starts);
    if (window->starts == NULL) {
        return ucx_mp_mpi_raise_win(win, MPI_ERR_GROUP);
    }

    window->is_fenced = false;
    REAL(Win_start, group, mode, win)
    for (i = 0; i < window->num_starts; ++i) {
        target = &window->targets[window->starts[i]];
        await(posts(window, window->starts[i], window->rank), ++target->starts);
        target->access |= UCX_MP_MPI_ACCESS_STARTED;
    }
    return rc;
}

UCX_MP_MPI_DEFINE(Win_complete, (win), MPI_Win win)
{
    int i;
    BEGIN_END(Win_complete, UCX_MP_MPI_ALL, win)

    if (window->starts == NULL) {
        return ucx_mp_mpi_raise_win(win, MPI_ERR_RMA_SYNC);
    }

    rc = ucx_mp_mpi_window_wait(window);
    REAL(Win_complete, win)
    for (i = 0; i < window->num_starts; ++i) {
        window->targets[window->starts[i]].access &=
                ~UCX_MP_MPI_ACCESS_STARTED;
        count(completions(window, window->starts[i], window->rank));
    }
    free(window->starts);
    window->starts = NULL;
    return ucx_mp_mpi_window_settle(win, UCX_MP_MPI_ALL, mark, rc);
}

static void exposure_end(ucx_mp_mpi_window_t *window)
{
    int i;

    for (i = 0; i < window->num_posts; ++i) {
        ++window->targets[window->posts[i]].waits;
    }
    free(window->posts);
    window->posts = NULL;
}

/* Return whether all origins of the exposure epoch have completed theirs. */
static bool exposure_is_over(const ucx_mp_mpi_window_t *window)
{
    int origin, i;

    for (i = 0; i < window->num_posts; ++i) {
        origin = window->posts[i];
        if (!has_reached(completions(window, window->rank, origin),
                         window->targets[origin].waits + 1)) {
            return false;
        }
    }
    return true;
}

UCX_MP_MPI_DEFINE(Win_wait, (win), MPI_Win win)
{
    unsigned spins = 0;
    BEGIN(Win_wait, win)

    if (window->posts == NULL) {
        return ucx_mp_mpi_raise_win(win, MPI_ERR_RMA_SYNC);
    }

    while (!exposure_is_over(window)) {
        progress(&spins);
    }
    REAL(Win_wait, win)
    exposure_end(window);
    return rc;
}

UCX_MP_MPI_DEFINE(Win_test, (win, flag), MPI_Win win, int *flag)
{
    unsigned spins = SPINS - 1;
    BEGIN(Win_test, win, flag)

    if (window->posts == NULL) {
        return ucx_mp_mpi_raise_win(win, MPI_ERR_RMA_SYNC);
    }

    *flag = exposure_is_over(window);
    if (!*flag) {
        progress(&spins);
        return MPI_SUCCESS;
    }

    REAL(Win_test, win, flag)
    if ((rc == MPI_SUCCESS) && *flag) {
        exposure_end(window);
    }
    return rc;
}


/* ------------------------------------------------------------------- locks */

static bool lock_try(ucx_mp_mpi_window_t *window, int target,
                     bool is_exclusive)
{
    uint32_t *word = &window->control->cells[target].lock;
    uint32_t held  = __atomic_load_n(word, __ATOMIC_RELAXED);

    return (is_exclusive ? (held == 0) : (held != EXCLUSIVE)) &&
           __atomic_compare_exchange_n(word, &held,
                                       is_exclusive ? EXCLUSIVE : held + 1,
                                       false, __ATOMIC_ACQUIRE,
                                       __ATOMIC_RELAXED);
}

static void lock_release(ucx_mp_mpi_window_t *window, int target,
                         bool is_exclusive)
{
    uint32_t *word = &window->control->cells[target].lock;

    if (is_exclusive) {
        __atomic_store_n(word, 0, __ATOMIC_RELEASE);
    } else {
        (void)__atomic_fetch_sub(word, 1, __ATOMIC_RELEASE);
    }
}

/* Return whether a rank is valid and this library, not the MPI, carries out
   operations on its memory */
static bool is_ours(const ucx_mp_mpi_window_t *window, int rank)
{
    return (rank >= 0) && (rank < window->size) &&
           window->targets[rank].is_ours;
}

/* Threads may lock different ranks at once. */
static void mpi_locks_add(ucx_mp_mpi_window_t *window, int rank, int change)
{
    if (rank != MPI_PROC_NULL) {
        (void)__atomic_fetch_add(&window->num_mpi_locks, change,
                                 __ATOMIC_RELAXED);
    }
}

static bool has_mpi_locks(const ucx_mp_mpi_window_t *window)
{
    return __atomic_load_n(&window->num_mpi_locks, __ATOMIC_RELAXED) > 0;
}

UCX_MP_MPI_DEFINE(Win_lock, (type, rank, mode, win), int type, int rank,
                  int mode, MPI_Win win)
{
    unsigned spins = 0;
    BEGIN(Win_lock, type, rank, mode, win)

    if (!is_ours(window, rank) ||
        ((type != MPI_LOCK_EXCLUSIVE) && (type != MPI_LOCK_SHARED))) {
        rc = ucx_mp_mpi_pmpi.Win_lock(type, rank, mode, win);
        if (rc == MPI_SUCCESS) {
            mpi_locks_add(window, rank, 1);
        }
        return rc;
    }
    if ((window->targets[rank].access != 0) || window->is_locked) {
        return ucx_mp_mpi_raise_win(win, MPI_ERR_RMA_SYNC);
    }

    while (!lock_try(window, rank, type == MPI_LOCK_EXCLUSIVE)) {
        progress(&spins);
    }
    window->is_fenced            = false;
    window->targets[rank].access = UCX_MP_MPI_ACCESS_LOCKED |
                                   ((type == MPI_LOCK_EXCLUSIVE) ?
                                            UCX_MP_MPI_ACCESS_EXCLUSIVE :
                                            0);
    return rc;
}

UCX_MP_MPI_DEFINE(Win_unlock, (rank, win), int rank, MPI_Win win)
{
    ucx_mp_mpi_target_t *target;
    BEGIN_END(Win_unlock, rank, rank, win)

    if (!is_ours(window, rank)) {
        /* before: another thread must not flush a lock that has ended */
        mpi_locks_add(window, rank, -1);
        rc = ucx_mp_mpi_pmpi.Win_unlock(rank, win);
        if (rc != MPI_SUCCESS) {
            mpi_locks_add(window, rank, 1);
        }
        return ucx_mp_mpi_window_settle(win, rank, mark, rc);
    }

    target = &window->targets[rank];
    if (!(target->access & UCX_MP_MPI_ACCESS_LOCKED)) {
        return ucx_mp_mpi_raise_win(win, MPI_ERR_RMA_SYNC);
    }

    if (rank == window->rank) {
        expose(window);
    }
    rc = ucx_mp_mpi_window_wait(window);
    lock_release(window, rank, target->access & UCX_MP_MPI_ACCESS_EXCLUSIVE);
    target->access = 0;
    return rc;
}

/* Lock all targets, shared, or none: a rank that kept some locks while waiting
   for others could deadlock. @return Whether all are locked. */
static bool lock_all_try(ucx_mp_mpi_window_t *window)
{
    int rank;

    for (rank = 0; rank < window->size; ++rank) {
        if (!lock_try(window, rank, false)) {
            while (rank-- > 0) {
                lock_release(window, rank, false);
            }
            return false;
        }
    }
    return true;
}

UCX_MP_MPI_DEFINE(Win_lock_all, (mode, win), int mode, MPI_Win win)
{
    unsigned spins = 0;
    int rank;
    BEGIN(Win_lock_all, mode, win)

    for (rank = 0; (rank < window->size) && (window->targets[rank].access == 0);
         ++rank) {
    }
    if ((rank < window->size) || window->is_locked) {
        return ucx_mp_mpi_raise_win(win, MPI_ERR_RMA_SYNC);
    }

    REAL(Win_lock_all, mode, win)
    if (rc != MPI_SUCCESS) {
        return rc;
    }

    while (!lock_all_try(window)) {
        progress(&spins);
    }
    window->is_fenced = false;
    window->is_locked = true;
    return MPI_SUCCESS;
}

UCX_MP_MPI_DEFINE(Win_unlock_all, (win), MPI_Win win)
{
    int rank;
    BEGIN_END(Win_unlock_all, UCX_MP_MPI_ALL, win)

    if (!window->is_locked) {
        return ucx_mp_mpi_raise_win(win, MPI_ERR_RMA_SYNC);
    }

    expose(window);
    rc = ucx_mp_mpi_window_wait(window);
    for (rank = 0; rank < window->size; ++rank) {
        lock_release(window, rank, false);
    }
    window->is_locked = false;
    REAL(Win_unlock_all, win)
    return ucx_mp_mpi_window_settle(win, UCX_MP_MPI_ALL, mark, rc);
}


/* ------------------------------------------------------------------- flush */

/* A copy is complete on both sides at once. In place of a local flush the MPI
   makes a full one when calls may be staged: Open MPI's pt2pt component returns
   from MPI_Win_flush_local() before the data of a get has arrived. */
#define FLUSH(_name) \
    UCX_MP_MPI_DEFINE(_name, (rank, win), int rank, MPI_Win win) \
    { \
        const uint64_t mark = ucx_mp_mpi_window_mark(); \
        ucx_mp_mpi_window_t *window; \
        int rc; \
        \
        ucx_mp_mpi_pmpi_find_calls(); \
        if (!ucx_mp_mpi_has_windows()) { \
            return ucx_mp_mpi_pmpi._name(rank, win); \
        } \
        \
        window = ucx_mp_mpi_window_find(win); \
        if ((window == NULL) || !is_ours(window, rank)) { \
            rc = ucx_mp_mpi_pmpi.Win_flush(rank, win); \
            return ucx_mp_mpi_window_settle(win, rank, mark, rc); \
        } \
        \
        return (window->is_locked || (window->targets[rank].access & \
                                      UCX_MP_MPI_ACCESS_LOCKED)) ? \
                       ucx_mp_mpi_window_wait(window) : \
                       ucx_mp_mpi_raise_win(win, MPI_ERR_RMA_SYNC); \
    }

#define FLUSH_ALL(_name) \
    UCX_MP_MPI_DEFINE(_name, (win), MPI_Win win) \
    { \
        const uint64_t mark = ucx_mp_mpi_window_mark(); \
        ucx_mp_mpi_window_t *window; \
        int rc = MPI_SUCCESS; \
        \
        ucx_mp_mpi_pmpi_find_calls(); \
        if (!ucx_mp_mpi_has_windows()) { \
            return ucx_mp_mpi_pmpi._name(win); \
        } \
        \
        window = ucx_mp_mpi_window_find(win); \
        if (window != NULL) { \
            rc = ucx_mp_mpi_window_wait(window); \
        } \
        if ((window == NULL) || has_mpi_locks(window) || \
            (window->is_locked && window->has_host)) { \
            const int real_rc = flush_all(win, mark); \
            \
            rc = (rc == MPI_SUCCESS) ? real_rc : rc; \
        } \
        return ucx_mp_mpi_window_settle(win, UCX_MP_MPI_ALL, mark, rc); \
    }

FLUSH(Win_flush)
FLUSH(Win_flush_local)
FLUSH_ALL(Win_flush_all)
FLUSH_ALL(Win_flush_local_all)

UCX_MP_MPI_DEFINE(Win_sync, (win), MPI_Win win)
{
    BEGIN(Win_sync, win)

    expose(window);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (window->is_locked || has_mpi_locks(window)) {
        REAL(Win_sync, win) /* an error outside of the MPI's own epochs */
    } else {
        /* as Open MPI's: programs call it in loops */
        ucx_mp_mpi_progress(ucx_mp_mpi_pmpi.comm_world);
    }
    return rc;
}
