/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi/collective.h>
#include <mpi/handles.h>
#include <mpi/layout.h>
#include <mpi/nodes.h>
#include <mpi/nonblocking.h>
#include <mpi/reduction.h>
#include <mpi/job.h>

#include <stdlib.h>


static void progress(void *arg)
{
    ucx_mp_mpi_progress(*(const MPI_Comm*)arg);
}

/* A rank's request to the module */
typedef struct {
    uct_cuda_coll_call_t what;
    uint64_t             counts[UCT_CUDA_COLL_API_RANKS];
    uct_cuda_coll_reason_t reason; /* fallback reason, if the module cannot
                                      carry out the call */
} call_request_t;


/* Fill the counts of all blocks. @return false if the blocks are not
   contiguous. */
static bool request_counts(call_request_t *request,
                           const ucx_mp_mpi_collective_t *args, int size)
{
    uint64_t at = 0;
    int rank;

    for (rank = 0; rank < size; ++rank) {
        if ((args->displs.values != NULL) &&
            ((uint64_t)ucx_mp_mpi_vector_at(args->displs, rank) != at)) {
            return false;
        }

        request->counts[rank] = ucx_mp_mpi_vector_at(args->counts, rank);
        at                   += request->counts[rank];
    }

    request->what.counts = request->counts;
    request->what.count  = 0;
    return true;
}

/* Compute the bytes of `count` elements. @return false: the count is negative,
   the size overflows, or the datatype has gaps or is not predefined: it may
   pack in another order. */
static bool contiguous_bytes(MPI_Count count, MPI_Datatype datatype,
                             uint64_t *bytes_p)
{
    MPI_Count size;

    if ((count < 0) || (datatype == ucx_mp_mpi_pmpi.datatype_null) ||
        !ucx_mp_mpi_layout_is_named(datatype) ||
        !ucx_mp_mpi_layout_is_array(datatype) ||
        (ucx_mp_mpi_pmpi.Type_size_x(datatype, &size) != MPI_SUCCESS)) {
        return false;
    }
    return !__builtin_mul_overflow((uint64_t)count, (uint64_t)size, bytes_p);
}

/* Describe a call that moves data as bytes: the datatypes may differ between
   ranks. @return false if a size is unknown, or if this rank would send itself
   another number of bytes than it receives. */
static bool request_bytes(call_request_t *request,
                          const ucx_mp_mpi_collective_t *args, int rank,
                          int size)
{
    uct_cuda_coll_call_t *what = &request->what;
    const bool is_bcast        = (args->kind == UCT_CUDA_COLL_KIND_BCAST);
    const bool is_sent         = (what->sendbuf != NULL) || is_bcast;
    const bool is_received     = (what->recvbuf != NULL) && !is_bcast;
    uint64_t sent, received, width;
    int i;

    request->reason = UCT_CUDA_COLL_NO_BYTES;
    if (!is_sent && !is_received) {
        return false; /* MPI ignores its counts and types */
    }

    request->reason = UCT_CUDA_COLL_NO_DATATYPE;
    what->type = UCX_MP_TYPE_U8;
    sent       = 0;
    if (is_sent && !contiguous_bytes(args->count, args->datatype, &sent)) {
        return false;
    }

    if (what->counts != NULL) {
        if (!contiguous_bytes(1, args->recvtype, &width)) {
            return false;
        }
        for (i = 0; i < size; ++i) {
            if (__builtin_mul_overflow(request->counts[i], width,
                                       &request->counts[i])) {
                return false;
            }
        }
        request->reason = UCT_CUDA_COLL_NO_BLOCKS;
        return !is_sent || (sent == request->counts[rank]);
    }

    if (is_received || !is_sent) {
        if (!contiguous_bytes(args->recvcount, args->recvtype, &received)) {
            return false;
        }

        request->reason = UCT_CUDA_COLL_NO_BLOCKS;
        if (is_sent && (sent != received)) {
            return false;
        }
        sent = received;
    }
    what->count = sent;
    return true;
}

/* Set the buffers that MPI uses on this rank; NULL for the others, and for
   MPI_IN_PLACE, which sets is_in_place. A broadcast has one buffer. */
static void request_buffers(call_request_t *request,
                            const ucx_mp_mpi_collective_t *args, int rank)
{
    const uct_cuda_coll_kind_desc_t *kind = uct_cuda_coll_kind(args->kind);
    uct_cuda_coll_call_t *what            = &request->what;
    const bool is_other                   = (rank != args->root);
    const void *sendbuf = (args->kind == UCT_CUDA_COLL_KIND_BCAST) ?
                                  args->recvbuf :
                                  args->sendbuf;

    what->sendbuf = (kind->send[is_other] != UCT_CUDA_COLL_PART_NONE) ?
                            sendbuf :
                            NULL;
    what->recvbuf = (kind->recv[is_other] != UCT_CUDA_COLL_PART_NONE) ?
                            args->recvbuf :
                            NULL;
    what->is_in_place = (what->sendbuf == MPI_IN_PLACE) ||
                        (what->recvbuf == MPI_IN_PLACE);
    what->sendbuf     = (what->sendbuf == MPI_IN_PLACE) ? NULL : what->sendbuf;
    what->recvbuf     = (what->recvbuf == MPI_IN_PLACE) ? NULL : what->recvbuf;
}

/* Return whether no buffer is GPU memory. NULL: no such buffer. */
static bool is_of_host(const void *sendbuf, const void *recvbuf)
{
    return ucx_mp_mpi_pointers_are_host(
            (sendbuf == NULL) ? MPI_IN_PLACE : sendbuf,
            (recvbuf == NULL) ? MPI_IN_PLACE : recvbuf);
}

/* Return whether the call sends one message between two ranks. An MPI with CUDA
   support sends it through the same module, so GPUs gain nothing. */
static bool is_one_message(const ucx_mp_mpi_comm_t *state, int kind)
{
    return (state->size == 2) && uct_cuda_coll_kind(kind)->has_root &&
           !uct_cuda_coll_kind(kind)->reduces;
}

/* Fill this rank's request. @return false, with the reason in `request`, if the
   module cannot carry it out. MPI_BOTTOM equals NULL and counts as no
   buffer. */
static bool request_make(call_request_t *request,
                         const ucx_mp_mpi_comm_t *state,
                         const ucx_mp_mpi_collective_t *args)
{
    uct_cuda_coll_call_t *what = &request->what;
    ucx_mp_type_t type;
    ucx_mp_op_t op;

    request->reason = UCT_CUDA_COLL_NO_HOST;
    if (is_of_host(args->sendbuf, args->recvbuf)) {
        return false;
    }

    request->reason = UCT_CUDA_COLL_NO_NATIVE_PATH;
    if (ucx_mp_mpi_job.has_rival && is_one_message(state, args->kind)) {
        return false;
    }

    request->reason = UCT_CUDA_COLL_NO_ARGUMENTS;
    if ((args->root < 0) || (args->root >= state->size) ||
        (state->size > UCT_CUDA_COLL_API_RANKS)) {
        return false;
    }

    request->reason = UCT_CUDA_COLL_NO_HOST;
    what->kind      = args->kind;
    what->count     = (uint64_t)args->count;
    what->counts    = NULL;
    what->root      = (unsigned)args->root;
    request_buffers(request, args, state->rank);
    if (is_of_host(what->sendbuf, what->recvbuf)) {
        return false;
    }

    request->reason = UCT_CUDA_COLL_NO_BLOCKS;
    if ((args->counts.values != NULL) &&
        !request_counts(request, args, state->size)) {
        return false;
    }

    if (!uct_cuda_coll_kind(args->kind)->reduces) {
        return request_bytes(request, args, state->rank, state->size);
    }

    request->reason = UCT_CUDA_COLL_NO_DATATYPE;
    if ((args->count < 0) ||
        !ucx_mp_mpi_handles_known(args->op, args->datatype, &op, &type)) {
        return false;
    }
    what->op   = op;
    what->type = type;
    return true;
}

/* Return whether the MPI rejects this rank's NULL or MPI_IN_PLACE, or one of
   its counts; other ranks do not learn of it */
static bool is_rejected(const ucx_mp_mpi_comm_t *state,
                        const ucx_mp_mpi_collective_t *args)
{
    const void *buffer = ((args->kind == UCT_CUDA_COLL_KIND_REDUCE) &&
                          (args->root != state->rank)) ?
                                 args->sendbuf :
                                 args->recvbuf;
    int i;

    for (i = 0; (args->counts.values != NULL) && (i < state->size); ++i) {
        if (ucx_mp_mpi_vector_at(args->counts, i) < 0) {
            return true;
        }
    }
#ifndef OPEN_MPI
    if (args->sendbuf == NULL) {
        return true;
    }
    /* MPICH does not check an empty result */
    if ((args->counts.values != NULL) &&
        (ucx_mp_mpi_vector_at(args->counts, state->rank) == 0)) {
        return false;
    }
    if (buffer == NULL) {
        return true;
    }
#endif
    return buffer == MPI_IN_PLACE;
}

bool ucx_mp_mpi_collective(ucx_mp_mpi_comm_t *state,
                           const ucx_mp_mpi_collective_t *args, int *rc_p)
{
    MPI_Comm comm = args->comm;
    uct_cuda_coll_result_t result;
    call_request_t request;
    char why[256];

    if (state == NULL) {
        return false;
    } else if (state->nodes != NULL) {
        return !is_rejected(state, args) &&
               ucx_mp_mpi_nodes_collective(state->nodes, args, rc_p);
    } else if (ucx_mp_mpi_comm_take_declined(state)) {
        return false;
    }

    if (!request_make(&request, state, args)) {
        (void)ucx_mp_mpi_comm_fall_back(state, comm, args->kind,
                                        request.reason);
        return false;
    }

    if (!ucx_mp_mpi_comm_has_team(state, comm)) {
        ++state->calls;
        return false;
    }

    request.what.has_native_path = ucx_mp_mpi_job.has_rival;
    request.what.progress        = progress;
    request.what.arg             = &comm;
    result = ucx_mp_mpi_job.api->collective(state->team, &request.what, why,
                                            sizeof(why));
    if (result == UCT_CUDA_COLL_STAGE) {
        return false;
    }

    if (result == UCT_CUDA_COLL_DONE) {
        if (state->has_reductions && (state->reductions == NULL)) {
            ucx_mp_mpi_comm_queue(state, comm);
        }
        *rc_p = MPI_SUCCESS;
    } else {
        *rc_p = ucx_mp_mpi_failure_raise(result, args->name, comm, why);
    }
    return true;
}

/* Return whether the kernels have a reduction's operation and datatype, and its
   root and sizes are valid; the same on all ranks, since these arguments
   are. */
static bool is_queueable(const ucx_mp_mpi_comm_t *state,
                         const ucx_mp_mpi_collective_t *args)
{
    MPI_Count count = args->count;
    ucx_mp_type_t type;
    ucx_mp_op_t op;

    if (args->counts.values != NULL) {
        count = ucx_mp_mpi_sum(args->counts, state->size);
    }
    return (count > 0) && (args->root >= 0) && (args->root < state->size) &&
           (state->size <= UCT_CUDA_COLL_API_RANKS) &&
           ucx_mp_mpi_handles_known(args->op, args->datatype, &op, &type);
}

/* Return whether the MPI rejects one pointer for both buffers likewise */
static bool is_alias_rejected(const ucx_mp_mpi_collective_t *args)
{
#ifdef OPEN_MPI
    return (args->kind == UCT_CUDA_COLL_KIND_REDUCE) ||
           ((args->kind == UCT_CUDA_COLL_KIND_ALLREDUCE) && (args->count > 1));
#else
    return true;
#endif
}

bool ucx_mp_mpi_collective_start(ucx_mp_mpi_comm_t *state,
                                 const ucx_mp_mpi_collective_t *args,
                                 bool is_usable, MPI_Request *request_p,
                                 int *rc_p)
{
    const uct_cuda_coll_api_t *api = ucx_mp_mpi_job.api;
    call_request_t request         = {.what   = {.kind = args->kind},
                                      .reason = UCT_CUDA_COLL_NO_ARGUMENTS};
    bool has_gpu;

    if ((state == NULL) || (state->nodes != NULL) ||
        !is_queueable(state, args) || is_rejected(state, args) ||
        (!is_usable && is_alias_rejected(args))) {
        return false;
    }

    has_gpu = is_usable && request_make(&request, state, args) &&
              ucx_mp_mpi_comm_has_team(state, args->comm);
    if ((state->team == NULL) || !ucx_mp_mpi_job.has_queues ||
        !api->is_queued(state->team, state->number, has_gpu)) {
        return false;
    }
    if (state->reductions == NULL) {
        ucx_mp_mpi_comm_await_queue(state);
        return false;
    }

    ucx_mp_mpi_comm_use_queue(state);
    request.what.has_native_path = 0;
    *rc_p = ucx_mp_mpi_reduction_start(state->reductions,
                                       ucx_mp_mpi_comm_take_declined(state) ?
                                               NULL :
                                               state->team,
                                       args, &request.what,
                                       has_gpu ? UCT_CUDA_COLL_AHEAD :
                                                 request.reason,
                                       request_p);
    return true;
}


/* -------------------------------------------------------------- persistent */

typedef struct {
    uct_cuda_coll_team_t    *team;
    ucx_mp_mpi_reductions_t *reductions;
    ucx_mp_mpi_collective_t args;
    call_request_t          request;
} persistent_t;


static void persistent_destroy(void *arg)
{
    persistent_t *persistent = arg;

    if (persistent->reductions != NULL) {
        ucx_mp_mpi_reductions_destroy(persistent->reductions,
                                      ucx_mp_mpi_pmpi.comm_null);
    }
    if (persistent->team != NULL) {
        ucx_mp_mpi_job.api->team_destroy(persistent->team);
    }
    free(persistent);
}

static int persistent_start(void *arg, MPI_Request *active_p)
{
    persistent_t *persistent = arg;

    return ucx_mp_mpi_reduction_start(persistent->reductions,
                                      persistent->team, &persistent->args,
                                      &persistent->request.what,
                                      UCT_CUDA_COLL_AHEAD, active_p);
}

/* Return the key of a team for the call counted last: no other one of this
   communicator has it. */
static uint64_t persistent_key(const ucx_mp_mpi_comm_t *state)
{
    return (state->key ^ (state->number * 0x9e3779b97f4a7c15ul)) | 1;
}

/* @return NULL: a rank declines; the MPI carries out all starts. */
static persistent_t *persistent_agree(ucx_mp_mpi_comm_t *state,
                                      const ucx_mp_mpi_collective_t *args,
                                      bool is_usable)
{
    persistent_t *persistent;

    if ((state == NULL) || (state->nodes != NULL) ||
        !ucx_mp_mpi_job.has_queues) {
        return NULL;
    }

    persistent = calloc(1, sizeof(*persistent));
    if (persistent != NULL) {
        persistent->args              = *args;
        persistent->request.what.kind = args->kind;
        if (is_usable && ucx_mp_mpi_may_be_gpu() &&
            is_queueable(state, args) &&
            request_make(&persistent->request, state, args)) {
            persistent->team = ucx_mp_mpi_job_join(args->comm,
                                                   persistent_key(state),
                                                   state->rank, state->size,
                                                   0);
        }
    }
    if (!ucx_mp_mpi_on_all(args->comm, (persistent != NULL) &&
                                               (persistent->team != NULL))) {
        if (persistent != NULL) {
            persistent_destroy(persistent);
        }
        return NULL;
    }
    return persistent;
}

int ucx_mp_mpi_persistent_begin(ucx_mp_mpi_comm_t *state,
                                const ucx_mp_mpi_collective_t *args,
                                bool is_usable, MPI_Request *request_p, int rc)
{
    static const ucx_mp_mpi_startable_t startable = {
        .start   = persistent_start,
        .destroy = persistent_destroy
    };
    persistent_t *persistent;
    MPI_Request request;

    if (rc != MPI_SUCCESS) {
        return rc;
    }

    persistent = persistent_agree(state, args, is_usable);
    if (persistent == NULL) {
        return rc;
    }

    /* A request that the MPI never starts is the program's handle. Not from
       MPI_PROC_NULL: after freeing that, MPICH 4.0 hangs in MPI_Scan_init. */
    rc = ucx_mp_mpi_pmpi.Recv_init(NULL, 0, ucx_mp_mpi_pmpi.byte, 0, 0,
                                   ucx_mp_mpi_pmpi.comm_world, &request);
    if (rc != MPI_SUCCESS) {
        (void)PMPI_Request_free(request_p);
        persistent_destroy(persistent);
        return rc;
    }

    persistent->reductions = ucx_mp_mpi_reductions_create(
            ucx_mp_mpi_pmpi.comm_null, 0, NULL, *request_p);
    ucx_mp_mpi_nonblocking_keep(request, &startable, persistent);
    *request_p = request;
    return MPI_SUCCESS;
}
