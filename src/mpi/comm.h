/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * State of a communicator on this rank: a key that is the same on all ranks,
 * and the number of calls. This library sets it up when the communicator is
 * created, where MPI synchronises the ranks anyway. The first collective with a
 * GPU buffer creates the team for GPU collectives: each rank joins before the
 * first call that needs it.
 */
#ifndef UCX_MP_MPI_COMM_H_
#define UCX_MP_MPI_COMM_H_

#include <mpi/failure.h>
#include <mpi/pmpi.h>

#include <uct/cuda/collective_api.h>

#include <stdbool.h>
#include <stdint.h>


typedef struct {
    uint64_t              key;    /* same number on all ranks of the
                                     communicator */
    uint64_t              calls;  /* collectives possible on GPUs, counted until
                                     the team exists */
    uint64_t              number; /* collectives with buffers so far */
    uint64_t              awaits_queue; /* number of the first call to queue:
                                           the next blocking collective creates
                                           the queue; 0: none */
    uint32_t              word;   /* segment's change counter when it was last
                                     read */
    bool                  has_failed; /* joining the team failed */
    bool                  has_declined; /* this rank already declined its next
                                           call: the MPI rejected the call that
                                           carried that number */
    int                   rank, size;
    bool                  has_topology; /* without one, the MPI rejects
                                           calls with neighbours */
    uint64_t              duplicates; /* made by MPI_Comm_idup() so far */
    uct_cuda_coll_team_t  *team; /* NULL: not created yet */
    struct ucx_mp_mpi_nodes *nodes; /* several nodes: state of nodes.c; NULL:
                                       all ranks are on one node */
    bool has_reductions; /* GPUs may carry out its non-blocking reductions */
    struct ucx_mp_mpi_reductions *reductions; /* NULL: none are queued */
    bool has_no_queue; /* it could not be created, on all ranks */
    bool is_idle; /* its queue has had no reduction yet */
} ucx_mp_mpi_comm_t;


/* Set up the state of a new communicator; all its ranks call this, and it
   blocks. `parent`: communicator with all of its ranks; MPI_COMM_NULL for
   MPI_COMM_WORLD. If the parent has a state, the ranks are known to be of this
   program. Intercommunicators, and those of one rank or with ranks of other
   programs, get no state: they use the MPI's collectives only. */
void ucx_mp_mpi_comm_new(MPI_Comm parent, MPI_Comm comm);

/* End a call of the MPI that made a communicator from ranks of `parent`, unless
   it failed with error `rc`. @return `rc`. */
int ucx_mp_mpi_comm_made(int rc, MPI_Comm parent, const MPI_Comm *comm);

/* Return a communicator's state; NULL: GPUs carry out none of its
   collectives. */
ucx_mp_mpi_comm_t *ucx_mp_mpi_comm_of(MPI_Comm comm);

/* Count a collective of this rank on `comm`. @return The communicator's state;
   NULL if it has none: nothing is counted. A collective with neighbours needs a
   topology: else the MPI rejects it, and no other rank knows of it. */
static inline ucx_mp_mpi_comm_t *ucx_mp_mpi_comm_next(MPI_Comm comm,
                                                      bool has_neighbors)
{
    ucx_mp_mpi_comm_t *state = ucx_mp_mpi_comm_of(comm);

    if ((state == NULL) || (has_neighbors && !state->has_topology)) {
        return NULL;
    }

    ++state->number;
    return state;
}

/* Identify the collective counted last */
static inline ucx_mp_mpi_ordinal_t
ucx_mp_mpi_comm_ordinal(const ucx_mp_mpi_comm_t *state)
{
    return (state == NULL) ? (ucx_mp_mpi_ordinal_t){0} :
                              (ucx_mp_mpi_ordinal_t){.key = state->key,
                                                     .number = state->number};
}

/* Take back the count of a collective that the MPI has rejected because of this
   rank's arguments: no other rank knows of it. `is_blocking`: this rank has
   declined the call; it then counts as having declined its next call, which
   carries the same number. After any other result, such a call creates the
   queue that the communicator awaits. @return rc. */
int ucx_mp_mpi_comm_finish(ucx_mp_mpi_comm_t *state, MPI_Comm comm, int rc,
                           bool is_blocking);

/* End the collective counted last with this result of the MPI; see
   ucx_mp_mpi_comm_finish(). @return rc. */
static inline int ucx_mp_mpi_comm_end(ucx_mp_mpi_comm_t *state, MPI_Comm comm,
                                      int rc, bool is_blocking)
{
    return ((state == NULL) ||
            __builtin_expect((rc == MPI_SUCCESS) &&
                             (state->awaits_queue == 0), 1)) ?
                   rc :
                   ucx_mp_mpi_comm_finish(state, comm, rc, is_blocking);
}

/* End a non-blocking reduction likewise: has_reductions is alike on all ranks,
   so a call that the MPI rejects on this one must not set it. */
static inline int ucx_mp_mpi_comm_end_reduction(ucx_mp_mpi_comm_t *state,
                                                MPI_Comm comm, int rc)
{
    if ((rc == MPI_SUCCESS) && (state != NULL)) {
        state->has_reductions = true;
    }
    return ucx_mp_mpi_comm_end(state, comm, rc, false);
}

/* Return whether this rank has declined its next call before. The caller makes
   this call. */
static inline bool ucx_mp_mpi_comm_take_declined(ucx_mp_mpi_comm_t *state)
{
    const bool has_declined = state->has_declined;

    state->has_declined = false;
    return has_declined;
}

/* Create the queue of a communicator's reductions, and a duplicate for declined
   ones, unless no rank of this program queues reductions, or the MPI has no
   communicator left, or a rank has failed. All its ranks call this; it
   blocks. */
void ucx_mp_mpi_comm_queue(ucx_mp_mpi_comm_t *state, MPI_Comm comm);

/* Let the communicator's next blocking collective create the queue: all ranks
   call this in the same non-blocking reduction. */
void ucx_mp_mpi_comm_await_queue(ucx_mp_mpi_comm_t *state);

/* Record that the communicator's queue has a reduction. */
void ucx_mp_mpi_comm_use_queue(ucx_mp_mpi_comm_t *state);

/*
 * Decline the next call on this rank, before any buffer is checked: because
 * this process uses no GPU, or because the arguments look invalid and the MPI
 * reports such errors. If another rank has created the team, join it; in a
 * team, all ranks then fall back. Without a team, count the call.
 *
 * @param state  NULL: GPUs carry out no call of this communicator.
 *
 * @return  true: make the MPI's call. false: the communicator is on several
 *          nodes, whose ranks agree otherwise: call ucx_mp_mpi_collective().
 */
bool ucx_mp_mpi_comm_fall_back(ucx_mp_mpi_comm_t *state, MPI_Comm comm,
                               uct_cuda_coll_kind_t kind,
                               uct_cuda_coll_reason_t reason);

/* Join the communicator's team, unless this rank is in it or has failed to
   join before. @return Whether this rank is in the team. */
bool ucx_mp_mpi_comm_has_team(ucx_mp_mpi_comm_t *state, MPI_Comm comm);

#endif
