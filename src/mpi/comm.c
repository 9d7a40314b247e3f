/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi/comm.h>
#include <mpi/call.h>
#include <mpi/nodes.h>
#include <mpi/nonblocking.h>
#include <mpi/reduction.h>
#include <mpi/job.h>
#include <uct/cuda/base/hash.h>

#include <pthread.h>
#include <stdlib.h>
#include <sys/random.h>


/* Bit of a communicator's key: create its queue together with the
   communicator */
#define KEY_EARLY 1ul

/* Maximum queues created together with their communicators: those without a
   reduction yet, and all. Each has a duplicate of the communicator, and MPICH
   has 2048 communicators. */
#define EARLY_MAX_IDLE 16
#define EARLY_MAX      64

static struct {
    int idle, count;
} early;

static struct {
    pthread_once_t once;
    bool           has_keyval;
    int            keyval;
    unsigned       generation; /* changes when cached states become invalid */
    bool           has_awaiting; /* a communicator has awaited its queue */
    MPI_Comm       world; /* duplicate of MPI_COMM_WORLD, or MPI_COMM_NULL */
} shared = {.once = PTHREAD_ONCE_INIT};

/* State of the communicator of this thread's last call, valid until a
   communicator is freed. Saves an attribute lookup, which would be noticeable
   in small calls on host memory. */
static __thread struct {
    MPI_Comm          comm;
    ucx_mp_mpi_comm_t *state;
    unsigned          generation;
} last __attribute__((tls_model("initial-exec")));

/* This thread is in MPI_Comm_idup(). */
static __thread bool is_in_idup __attribute__((tls_model("initial-exec")));


/* ---------------------------------------------------------------- attribute */

/* @return NULL: no memory; this rank never joins, and the calls of the others
   are staged. Aborts if other ranks would wait for this one. */
static ucx_mp_mpi_comm_t *state_new(uint64_t key, int rank, int size,
                                    bool is_spread)
{
    ucx_mp_mpi_comm_t *state = calloc(1, sizeof(*state));

    if (state != NULL) {
        state->key   = key;
        state->rank  = rank;
        state->size  = size;
        state->nodes = is_spread ? ucx_mp_mpi_nodes_create(key) : NULL;
    }
    if ((is_spread && ((state == NULL) || (state->nodes == NULL))) ||
        ((key & KEY_EARLY) && (state == NULL))) {
        abort();
    }
    return state;
}

/* Copy a state to the duplicate of MPI_Comm_idup() alone: other calls make one
   later. Its key follows from its parent's, so no rank waits. */
static int comm_copy(MPI_Comm comm, int keyval, void *extra, void *value,
                     void *new_value, int *is_copied_p)
{
    ucx_mp_mpi_comm_t *parent = value;
    ucx_mp_mpi_comm_t *state  = NULL;
    uint64_t key;

    if (is_in_idup) {
        key   = uct_cuda_hash64(uct_cuda_hash64(UCT_CUDA_HASH64, parent->key),
                                ++parent->duplicates) & ~KEY_EARLY;
        state = state_new(key, parent->rank, parent->size,
                          parent->nodes != NULL);
        if (state != NULL) {
            state->has_topology = parent->has_topology;
        }
        *(void**)new_value = state;
        __atomic_fetch_add(&shared.generation, 1, __ATOMIC_RELEASE);
    }
    *is_copied_p = (state != NULL);
    return MPI_SUCCESS;
}

static int comm_delete(MPI_Comm comm, int keyval, void *value, void *extra)
{
    ucx_mp_mpi_comm_t *state = value;

    /* MPI may reuse the handle for another communicator */
    __atomic_fetch_add(&shared.generation, 1, __ATOMIC_RELEASE);
    if (state->reductions != NULL) {
        ucx_mp_mpi_reductions_destroy(state->reductions, comm);
        if (state->key & KEY_EARLY) {
            __atomic_fetch_sub(&early.count, 1, __ATOMIC_RELAXED);
        }
    }
    if (state->team != NULL) {
        ucx_mp_mpi_job.api->team_destroy(state->team);
    }
    if (state->nodes != NULL) {
        ucx_mp_mpi_nodes_destroy(state->nodes, comm);
    }
    free(state);
    return MPI_SUCCESS;
}

static void state_init(void)
{
    shared.world      = ucx_mp_mpi_pmpi.comm_null;
    shared.has_keyval = ucx_mp_mpi_pmpi.Comm_create_keyval(comm_copy,
                                                           comm_delete,
                                                           &shared.keyval,
                                                           NULL) == MPI_SUCCESS;
}

static ucx_mp_mpi_comm_t *comm_find(MPI_Comm comm)
{
    ucx_mp_mpi_comm_t *state = NULL;
    int is_found             = 0;

    /* the MPI reports an invalid communicator, once */
    return ((comm != ucx_mp_mpi_pmpi.comm_null) && (comm != (MPI_Comm)0) &&
            (ucx_mp_mpi_pmpi.Comm_get_attr(comm, shared.keyval, &state,
                                           &is_found) == MPI_SUCCESS) &&
            is_found) ?
               state :
               NULL;
}

ucx_mp_mpi_comm_t *ucx_mp_mpi_comm_of(MPI_Comm comm)
{
    const unsigned generation = __atomic_load_n(&shared.generation,
                                                __ATOMIC_ACQUIRE);

    if (ucx_mp_mpi_job.api == NULL) {
        return NULL;
    }

    if ((last.comm != comm) || (last.generation != generation)) {
        last.state      = comm_find(comm);
        last.comm       = comm;
        last.generation = generation;
    }
    return last.state;
}


/* -------------------------------------------------------------------- begin */

/* Return whether to create the queue of a new communicator's reductions: the
   program uses GPUs, and has started reductions on most communicators whose
   queue was created in this way. A program with only blocking calls pays for a
   few duplicates. */
static bool is_early(MPI_Comm comm, int size)
{
    return (comm == ucx_mp_mpi_pmpi.comm_world) ||
           (ucx_mp_mpi_job.has_queues && ucx_mp_mpi_may_be_gpu() &&
            (size <= UCT_CUDA_COLL_API_RANKS) &&
            (__atomic_load_n(&early.idle, __ATOMIC_RELAXED) < EARLY_MAX_IDLE) &&
            (__atomic_load_n(&early.count, __ATOMIC_RELAXED) < EARLY_MAX));
}

/* Choose a random key on rank 0, with its decision in a bit, and broadcast it.
   0: failed. */
static uint64_t key_new(MPI_Comm comm, int rank, int size)
{
    uint64_t key = 0;

    if ((rank == 0) &&
        (getrandom(&key, sizeof(key), GRND_NONBLOCK) != (ssize_t)sizeof(key))) {
        key = 0;
    }
    if (key != 0) {
        key = is_early(comm, size) ? (key | KEY_EARLY) : (key & ~KEY_EARLY);
    }
    return (ucx_mp_mpi_pmpi.Bcast(&key, sizeof(key), ucx_mp_mpi_pmpi.byte, 0,
                                  comm) == MPI_SUCCESS) ?
               key :
               0;
}

/* Return whether all ranks belong to this program's MPI_COMM_WORLD;
   `is_spread_p` is set if they are on several nodes */
static bool ranks_are_known(MPI_Comm parent, MPI_Comm comm, int size,
                            bool *is_spread_p)
{
    *is_spread_p = false;
    return ((comm_find(parent) != NULL) && !ucx_mp_mpi_job.is_spread) ||
           ucx_mp_mpi_job_has(comm, size, is_spread_p);
}

/* Attach a state to its communicator. Aborts on failure. */
static void state_set(MPI_Comm comm, ucx_mp_mpi_comm_t *state)
{
    if (ucx_mp_mpi_pmpi.Comm_set_attr(comm, shared.keyval, state) !=
        MPI_SUCCESS) {
        abort(); /* other ranks may rely on this one */
    }

    /* a thread may have cached "no state" for a reused handle */
    __atomic_fetch_add(&shared.generation, 1, __ATOMIC_RELEASE);
}

static void early_count(ucx_mp_mpi_comm_t *state)
{
    if (state->reductions != NULL) {
        state->is_idle = true;
        __atomic_fetch_add(&early.idle, 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(&early.count, 1, __ATOMIC_RELAXED);
    }
}

/* Duplicate a communicator of which no other thread uses the error handler
   meanwhile. MPI_Comm_dup() would copy the program's attributes. MPI_COMM_WORLD
   keeps its handler in MPI_Init(): if a call has set MPI_ERRORS_ARE_FATAL,
   MPICH 4.0 crashes after an error on an intercommunicator that inherits it,
   and may end one rank alone. @return Whether the MPI has done so. */
static bool comm_split(MPI_Comm comm, int rank, MPI_Comm *duplicate)
{
    const ucx_mp_mpi_pmpi_t *real = &ucx_mp_mpi_pmpi;
    MPI_Errhandler handler;
    bool is_made;

    if (comm == real->comm_world) {
        return real->Comm_split(comm, 0, rank, duplicate) == MPI_SUCCESS;
    }

    if ((real->Comm_get_errhandler(comm, &handler) != MPI_SUCCESS) ||
        (real->Comm_set_errhandler(comm, real->errors_return) !=
         MPI_SUCCESS)) {
        abort(); /* the other ranks rely on it */
    }

    is_made = (real->Comm_split(comm, 0, rank, duplicate) == MPI_SUCCESS);
    real->Comm_set_errhandler(comm, handler);
    real->Errhandler_free(&handler);
    return is_made;
}

/* Duplicate a communicator that another thread may use or give an error handler
   meanwhile: as a part of MPI_COMM_WORLD's duplicate, whose handler is called
   instead. Under MPICH, queues exist only if one thread at a time calls the
   MPI; its MPI_Comm_create_group() crashes without communicators left. @return
   As comm_split(). */
static bool comm_part(MPI_Comm comm, const ucx_mp_mpi_comm_t *state,
                      MPI_Comm *duplicate)
{
#ifdef OPEN_MPI
    const ucx_mp_mpi_pmpi_t *real = &ucx_mp_mpi_pmpi;
    MPI_Group group;
    int *max_tag;
    int is_found;
    bool is_made;

    if ((shared.world == real->comm_null) ||
        (real->Comm_get_attr(real->comm_world, MPI_TAG_UB, &max_tag,
                             &is_found) != MPI_SUCCESS) ||
        (real->Comm_group(comm, &group) != MPI_SUCCESS)) {
        return false;
    }

    /* the tag tells calls of several threads apart */
    is_made = (real->Comm_create_group(shared.world, group,
                                       (int)(state->key % (unsigned)*max_tag),
                                       duplicate) == MPI_SUCCESS);
    real->Group_free(&group);
    return is_made;
#else
    return comm_split(comm, state->rank, duplicate);
#endif
}

/* Make a duplicate of a communicator, which returns errors. The program has not
   asked for it, so its error handler is not called. @return Whether all ranks
   have one; if a rank has ended, they may not agree. */
static bool duplicate_make(MPI_Comm comm, const ucx_mp_mpi_comm_t *state,
                           MPI_Comm *duplicate)
{
    const ucx_mp_mpi_pmpi_t *real = &ucx_mp_mpi_pmpi;
    const bool is_made = (comm == real->comm_world) ?
                                 comm_split(comm, state->rank, duplicate) :
                                 comm_part(comm, state, duplicate);
    const bool is_whole = ucx_mp_mpi_on_all(comm, is_made);

    if (is_whole) {
        real->Comm_set_errhandler(*duplicate, real->errors_return);
    } else if (is_made) {
        real->Comm_free(duplicate);
    }
    return is_whole;
}

/* Communicators inside a node get their queues from it */
static void world_duplicate(int rank)
{
    const ucx_mp_mpi_pmpi_t *real = &ucx_mp_mpi_pmpi;
    const ucx_mp_mpi_comm_t state = {.rank = rank};
    MPI_Comm duplicate;

    if (ucx_mp_mpi_job.has_queues &&
        duplicate_make(real->comm_world, &state, &duplicate)) {
        shared.world = duplicate;
    }
}

/* The duplicate has a state, by which ranks learn of staging failures */
void ucx_mp_mpi_comm_queue(ucx_mp_mpi_comm_t *state, MPI_Comm comm)
{
    ucx_mp_mpi_comm_t *other;
    MPI_Comm duplicate;

    state->awaits_queue = 0;
    if (!ucx_mp_mpi_job.has_queues || state->has_no_queue) {
        return;
    }

    state->has_no_queue = !duplicate_make(comm, state, &duplicate);
    if (state->has_no_queue) {
        return;
    }
    if (comm == ucx_mp_mpi_pmpi.comm_world) {
        shared.world = duplicate;
    }

    other = calloc(1, sizeof(*other));
    if (other == NULL) {
        abort(); /* the other ranks rely on it */
    }

    other->key        = ~state->key;
    other->rank       = state->rank;
    other->has_failed = true; /* GPUs carry out none of its collectives */
    state_set(duplicate, other);
    state->reductions = ucx_mp_mpi_reductions_create(
            duplicate, other->key, &other->number,
            ucx_mp_mpi_pmpi.request_null);
}

void ucx_mp_mpi_comm_new(MPI_Comm parent, MPI_Comm comm)
{
    const ucx_mp_mpi_pmpi_t *real = &ucx_mp_mpi_pmpi;
    ucx_mp_mpi_comm_t *state;
    int topology = MPI_UNDEFINED;
    int is_inter, rank, size;
    bool is_spread;
    uint64_t key;

    pthread_once(&shared.once, state_init);
    if (!shared.has_keyval || (comm == real->comm_null) ||
        (real->Comm_test_inter(comm, &is_inter) != MPI_SUCCESS) || is_inter ||
        (real->Comm_rank(comm, &rank) != MPI_SUCCESS) ||
        (real->Comm_size(comm, &size) != MPI_SUCCESS) || (size < 2) ||
        !ranks_are_known(parent, comm, size, &is_spread)) {
        return;
    }

    if (is_spread && (comm == real->comm_world)) {
        world_duplicate(rank);
    }
    if (is_spread && ucx_mp_mpi_job.has_rival) {
        return;
    }

    key   = key_new(comm, rank, size);
    state = (key == 0) ? NULL : state_new(key, rank, size, is_spread);
    if (state == NULL) {
        return;
    }

    (void)real->Topo_test(comm, &topology);
    state->has_topology = (topology != MPI_UNDEFINED);
    if (!is_spread && (key & KEY_EARLY)) {
        ucx_mp_mpi_comm_queue(state, comm);
        early_count(state);
    }
    state_set(comm, state);
}

void ucx_mp_mpi_comm_await_queue(ucx_mp_mpi_comm_t *state)
{
    if ((state->awaits_queue == 0) && !state->has_no_queue) {
        state->awaits_queue = state->number;
    }
    __atomic_store_n(&shared.has_awaiting, true, __ATOMIC_RELAXED);
}

void ucx_mp_mpi_comm_use_queue(ucx_mp_mpi_comm_t *state)
{
    if (state->is_idle) {
        state->is_idle = false;
        __atomic_fetch_sub(&early.idle, 1, __ATOMIC_RELAXED);
    }
}


/* -------------------------------------------------------------------- calls */

bool ucx_mp_mpi_comm_has_team(ucx_mp_mpi_comm_t *state, MPI_Comm comm)
{
    if ((state->team == NULL) && !state->has_failed) {
        state->team       = ucx_mp_mpi_job_join(comm, state->key,
                                                state->rank, state->size,
                                                state->calls);
        state->has_failed = (state->team == NULL);
    }
    return state->team != NULL;
}

/* Return whether another rank has created the team of this communicator, and
   this rank must join it. false, too, if no team was created in the segment
   since the last look: one memory read. */
static bool comm_is_awaited(ucx_mp_mpi_comm_t *state)
{
    const uct_cuda_coll_api_t *api = ucx_mp_mpi_job.api;
    uct_cuda_node_segment_t *segment = ucx_mp_mpi_job.segment;
    const uint32_t word = __atomic_load_n(api->segment_changes(segment),
                                          __ATOMIC_ACQUIRE);

    if (__builtin_expect(word == state->word, 1)) {
        return false;
    }

    state->word = word;
    return api->segment_has(segment, state->key);
}

int ucx_mp_mpi_comm_finish(ucx_mp_mpi_comm_t *state, MPI_Comm comm, int rc,
                           bool is_blocking)
{
    int error_class = MPI_SUCCESS;

    if (rc != MPI_SUCCESS) {
        (void)PMPI_Error_class(rc, &error_class);
    }
    switch (error_class) {
    case MPI_ERR_ARG:
    case MPI_ERR_BUFFER:
    case MPI_ERR_COUNT:
    case MPI_ERR_INFO:
    case MPI_ERR_OP:
    case MPI_ERR_ROOT:
    case MPI_ERR_TYPE:
        if (*ucx_mp_mpi_failures != 0) { /* the next call gets its number */
            ucx_mp_mpi_job.api->segment_withdraw_failure(
                    ucx_mp_mpi_job.segment, state->key, state->number,
                    (uint32_t)state->rank);
        }
        if (state->awaits_queue == state->number) {
            state->awaits_queue = 0; /* on this rank alone */
        }
        --state->number;
        /* on several nodes, only a call with valid arguments begins an
           agreement */
        state->has_declined |= is_blocking && (state->nodes == NULL);
        break;
    default: /* after messages to other ranks */
        if (is_blocking && (state->awaits_queue != 0)) {
            ucx_mp_mpi_comm_queue(state, comm);
        }
    }
    return rc;
}

bool ucx_mp_mpi_comm_fall_back(ucx_mp_mpi_comm_t *state, MPI_Comm comm,
                               uct_cuda_coll_kind_t kind,
                               uct_cuda_coll_reason_t reason)
{
    if (state == NULL) {
        return true;
    } else if (state->nodes != NULL) {
        return false;
    } else if (ucx_mp_mpi_comm_take_declined(state)) {
        return true;
    }

    if ((state->team != NULL) ||
        (comm_is_awaited(state) &&
         ucx_mp_mpi_comm_has_team(state, comm))) {
        ucx_mp_mpi_job.api->fall_back(state->team, kind, reason);
        return true;
    }

    ++state->calls;
    if (reason != UCT_CUDA_COLL_NO_HOST) {
        ucx_mp_mpi_job.api->fall_back(NULL, kind, reason);
    }
    return true;
}

UCX_MP_MPI_DEFINE(Barrier, (comm), MPI_Comm comm)
{
    ucx_mp_mpi_comm_t *state = NULL;
    int rc;

    ucx_mp_mpi_pmpi_find_calls();
    rc = ucx_mp_mpi_pmpi.Barrier(comm);
    if (__atomic_load_n(&shared.has_awaiting, __ATOMIC_RELAXED) &&
        (rc == MPI_SUCCESS)) {
        state = ucx_mp_mpi_comm_of(comm);
    }
    if ((state != NULL) && (state->awaits_queue != 0)) {
        ucx_mp_mpi_comm_queue(state, comm);
    }
    return ucx_mp_mpi_freed_end(rc);
}


/* ------------------------------------------------------------ communicators */

int ucx_mp_mpi_comm_made(int rc, MPI_Comm parent, const MPI_Comm *comm)
{
    if ((rc == MPI_SUCCESS) && (ucx_mp_mpi_job.api != NULL)) {
        ucx_mp_mpi_comm_new(parent, *comm);
    }
    return rc;
}

UCX_MP_MPI_DEFINE(Comm_idup, (comm, new_comm, request), MPI_Comm comm,
                  MPI_Comm *new_comm, MPI_Request *request)
{
    int rc;

    ucx_mp_mpi_pmpi_find_calls();
    is_in_idup = true;
    rc         = ucx_mp_mpi_pmpi.Comm_idup(comm, new_comm, request);
    is_in_idup = false;
    return rc;
}
