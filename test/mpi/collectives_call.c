/* SPDX-License-Identifier: BSD-3-Clause */
#include "collectives.h"


#define SEND_ONE send, d->send.count[0], d->send.type[0]->mpi
#define RECV_ONE recv, d->recv.count[0], d->recv.type[0]->mpi

/* The arrays of the calls that have them: displacements in extents or bytes */
typedef struct {
    int          displs[COLL_MAX_RANKS];
    MPI_Count    counts[COLL_MAX_RANKS];
    MPI_Aint     large_displs[COLL_MAX_RANKS];
    MPI_Count    all[COLL_MAX_RANKS]; /* the draw's */
    MPI_Datatype types[COLL_MAX_RANKS];
    int          bytes[COLL_MAX_RANKS];
    MPI_Aint     address[COLL_MAX_RANKS];
    MPI_Datatype type;
} arrays_t;

static arrays_t arrays(const coll_draw_t *draw, const coll_side_t *side)
{
    arrays_t result = {.type = MPI_DATATYPE_NULL};
    int i;

    for (i = 0; side->is_used && (i < side->parts); ++i) {
        result.displs[i]  = side->displ[i] / side->type[i]->extent;
        result.counts[i]       = side->count[i];
        result.large_displs[i] = result.displs[i];
        result.address[i] = side->displ[i] *
                            (MPI_Aint)side->type[i]->base->size;
        result.bytes[i]   = (int)result.address[i];
        result.types[i]   = side->type[i]->mpi;
    }

    for (i = 0; i < COLL_MAX_RANKS; ++i) {
        result.all[i] = draw->counts[i];
    }
    if (side->is_used) {
        result.type = side->type[0]->mpi;
    }

    return result;
}

/* A call as its arguments: d is the draw, s and r the sides' arrays; once as it
 * is, once with large counts, where the MPI has that */
#define CALL_OF(_function, _name, ...) \
    static int _function(const coll_draw_t *d, const void *send, void *recv) \
    { \
        const arrays_t s = arrays(d, &d->send), r = arrays(d, &d->recv); \
        \
        (void)s; \
        (void)r; \
        return _name(__VA_ARGS__); \
    }

#define REDUCTION send, recv, d->send.count[0], d->send.type[0]->mpi, d->op
#define SENDS send, SEND_COUNTS, s.DISPLS, s.type
#define RECVS recv, RECV_COUNTS, r.DISPLS, r.type

#define CALLS \
    CALL(Bcast, RECV_ONE, d->root, d->comm) \
    CALL(Reduce, REDUCTION, d->root, d->comm) \
    CALL(Allreduce, REDUCTION, d->comm) \
    CALL(Scan, REDUCTION, d->comm) \
    CALL(Exscan, REDUCTION, d->comm) \
    CALL(Reduce_scatter, send, recv, COUNTS, d->recv.type[0]->mpi, d->op, \
         d->comm) \
    CALL(Reduce_scatter_block, send, recv, d->counts[0], d->recv.type[0]->mpi, \
         d->op, d->comm) \
    CALL(Gather, SEND_ONE, recv, d->recv.count[0], r.type, d->root, d->comm) \
    CALL(Gatherv, SEND_ONE, RECVS, d->root, d->comm) \
    CALL(Scatter, send, d->send.count[0], s.type, RECV_ONE, d->root, d->comm) \
    CALL(Scatterv, SENDS, RECV_ONE, d->root, d->comm) \
    CALL(Allgather, SEND_ONE, RECV_ONE, d->comm) \
    CALL(Allgatherv, SEND_ONE, RECVS, d->comm) \
    CALL(Alltoall, SEND_ONE, RECV_ONE, d->comm) \
    CALL(Alltoallv, SENDS, RECVS, d->comm) \
    CALL(Alltoallw, send, SEND_COUNTS, s.BYTES, s.types, recv, RECV_COUNTS, \
         r.BYTES, r.types, d->comm) \
    CALL(Neighbor_allgather, SEND_ONE, RECV_ONE, d->comm) \
    CALL(Neighbor_allgatherv, SEND_ONE, RECVS, d->comm) \
    CALL(Neighbor_alltoall, SEND_ONE, RECV_ONE, d->comm) \
    CALL(Neighbor_alltoallv, SENDS, RECVS, d->comm) \
    CALL(Neighbor_alltoallw, send, SEND_COUNTS, s.address, s.types, recv, \
         RECV_COUNTS, r.address, r.types, d->comm) \
    CALL(Reduce_local, REDUCTION) \
    CALL(Sendrecv, SEND_ONE, d->dest, 1, RECV_ONE, d->source, 1, d->comm, \
         MPI_STATUS_IGNORE) \
    CALL(Sendrecv_replace, RECV_ONE, d->dest, 1, d->source, 1, d->comm, \
         MPI_STATUS_IGNORE)

#define CALL(_name, ...) CALL_OF(call_##_name, MPI_##_name, __VA_ARGS__)
#define SEND_COUNTS d->send.count
#define RECV_COUNTS d->recv.count
#define COUNTS      d->counts
#define DISPLS      displs
#define BYTES       bytes
CALLS

#if MPI_VERSION >= 4
#undef CALL
#undef SEND_COUNTS
#undef RECV_COUNTS
#undef COUNTS
#undef DISPLS
#undef BYTES
#define CALL(_name, ...) CALL_OF(large_##_name, MPI_##_name##_c, __VA_ARGS__)
#define SEND_COUNTS s.counts
#define RECV_COUNTS r.counts
#define COUNTS      s.all
#define DISPLS      large_displs
#define BYTES       address
CALLS
#define LARGE(_name) large_##_name
#else
#define LARGE(_name) NULL
#endif

const coll_call_t coll_calls[] = {
    /* reduces, neighbours, in place, inter, plan, flow, sent, received */
#define LINE(_name, ...) \
    {"MPI_" #_name, __VA_ARGS__, call_##_name, LARGE(_name)},
    LINE(Bcast, 0, 0, 0, 1, 1, COLL_FROM_ROOT, COLL_NONE, COLL_ONE)
    LINE(Reduce, 1, 0, 1, 1, 1, COLL_TO_ROOT, COLL_ONE, COLL_ONE)
    LINE(Allreduce, 1, 0, 1, 1, 1, COLL_ALL, COLL_ONE, COLL_ONE)
    LINE(Scan, 1, 0, 1, 0, 0, COLL_ALL, COLL_ONE, COLL_ONE)
    LINE(Exscan, 1, 0, 1, 0, 0, COLL_ALL, COLL_ONE, COLL_ONE)
    LINE(Reduce_scatter, 1, 0, 1, 1, 1, COLL_ALL, COLL_VECTOR, COLL_ONE)
    LINE(Reduce_scatter_block, 1, 0, 1, 1, 1, COLL_ALL, COLL_EACH, COLL_ONE)
    LINE(Gather, 0, 0, 1, 1, 1, COLL_TO_ROOT, COLL_ONE, COLL_EACH)
    LINE(Gatherv, 0, 0, 1, 1, 0, COLL_TO_ROOT, COLL_ONE, COLL_VECTOR)
    LINE(Scatter, 0, 0, 1, 1, 1, COLL_FROM_ROOT, COLL_EACH, COLL_ONE)
    LINE(Scatterv, 0, 0, 1, 1, 0, COLL_FROM_ROOT, COLL_VECTOR, COLL_ONE)
    LINE(Allgather, 0, 0, 1, 1, 1, COLL_ALL, COLL_ONE, COLL_EACH)
    LINE(Allgatherv, 0, 0, 1, 1, 1, COLL_ALL, COLL_ONE, COLL_VECTOR)
    LINE(Alltoall, 0, 0, 1, 1, 1, COLL_ALL, COLL_EACH, COLL_EACH)
    LINE(Alltoallv, 0, 0, 1, 1, 0, COLL_ALL, COLL_VECTOR, COLL_VECTOR)
    LINE(Alltoallw, 0, 0, 1, 1, 0, COLL_ALL, COLL_TYPES, COLL_TYPES)
    LINE(Neighbor_allgather, 0, 1, 0, 0, 0, COLL_ALL, COLL_ONE, COLL_EACH)
    LINE(Neighbor_allgatherv, 0, 1, 0, 0, 0, COLL_ALL, COLL_ONE, COLL_VECTOR)
    LINE(Neighbor_alltoall, 0, 1, 0, 0, 0, COLL_ALL, COLL_EACH, COLL_EACH)
    LINE(Neighbor_alltoallv, 0, 1, 0, 0, 0, COLL_ALL, COLL_VECTOR, COLL_VECTOR)
    LINE(Neighbor_alltoallw, 0, 1, 0, 0, 0, COLL_ALL, COLL_TYPES, COLL_TYPES)
    LINE(Reduce_local, 1, 0, 0, 0, 0, COLL_ALL, COLL_ONE, COLL_ONE)
    LINE(Sendrecv, 0, 0, 0, 0, 0, COLL_ALL, COLL_ONE, COLL_ONE)
    LINE(Sendrecv_replace, 0, 0, 0, 0, 0, COLL_ALL, COLL_NONE, COLL_ONE)
};
const int coll_num_calls = sizeof(coll_calls) / sizeof(coll_calls[0]);
