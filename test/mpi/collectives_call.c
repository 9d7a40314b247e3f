/* SPDX-License-Identifier: BSD-3-Clause */
#include "collectives.h"


#define SEND_ONE send, d->send.count[0], d->send.type[0]->mpi
#define RECV_ONE recv, d->recv.count[0], d->recv.type[0]->mpi

/* Arrays for calls with arrays: displacements in extents or bytes */
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

static const arrays_t *arrays(const coll_draw_t *draw, const coll_side_t *side)
{
    static arrays_t kept[4]; /* at most two calls are in flight */
    static unsigned next;
    arrays_t *result = &kept[next++ % 4];
    int i;

    result->type = MPI_DATATYPE_NULL;

    for (i = 0; side->is_used && (i < side->parts); ++i) {
        result->displs[i]  = side->displ[i] / side->type[i]->extent;
        result->counts[i]       = side->count[i];
        result->large_displs[i] = result->displs[i];
        result->address[i] = side->displ[i] *
                            (MPI_Aint)side->type[i]->base->size;
        result->bytes[i]   = (int)result->address[i];
        result->types[i]   = side->type[i]->mpi;
    }

    for (i = 0; i < COLL_MAX_RANKS; ++i) {
        result->all[i] = draw->counts[i];
    }
    if (side->is_used) {
        result->type = side->type[0]->mpi;
    }

    return result;
}

/* Define a call by its arguments: d is the draw, s and r are the sides' arrays,
   valid as long as calls with them are in flight */
#define CALL_OF(_function, _name, ...) \
    static int _function(const coll_draw_t *d, const void *send, void *recv, \
                         MPI_Request *request) \
    { \
        const arrays_t *s = arrays(d, &d->send), *r = arrays(d, &d->recv); \
        \
        (void)request; \
        (void)s; \
        (void)r; \
        return _name(__VA_ARGS__); \
    }

#define REDUCTION send, recv, d->send.count[0], d->send.type[0]->mpi, d->op
#define SENDS send, SEND_COUNTS, s->DISPLS, s->type
#define RECVS recv, RECV_COUNTS, r->DISPLS, r->type

#define CALLS \
    CALL(Bcast, bcast, RECV_ONE, d->root, d->comm) \
    CALL(Reduce, reduce, REDUCTION, d->root, d->comm) \
    CALL(Allreduce, allreduce, REDUCTION, d->comm) \
    CALL(Scan, scan, REDUCTION, d->comm) \
    CALL(Exscan, exscan, REDUCTION, d->comm) \
    CALL(Reduce_scatter, reduce_scatter, \
         send, recv, COUNTS, d->recv.type[0]->mpi, d->op, \
         d->comm) \
    CALL(Reduce_scatter_block, reduce_scatter_block, \
         send, recv, d->counts[0], d->recv.type[0]->mpi, \
         d->op, d->comm) \
    CALL(Gather, gather, \
         SEND_ONE, recv, d->recv.count[0], r->type, d->root, d->comm) \
    CALL(Gatherv, gatherv, SEND_ONE, RECVS, d->root, d->comm) \
    CALL(Scatter, scatter, \
         send, d->send.count[0], s->type, RECV_ONE, d->root, d->comm) \
    CALL(Scatterv, scatterv, SENDS, RECV_ONE, d->root, d->comm) \
    CALL(Allgather, allgather, SEND_ONE, RECV_ONE, d->comm) \
    CALL(Allgatherv, allgatherv, SEND_ONE, RECVS, d->comm) \
    CALL(Alltoall, alltoall, SEND_ONE, RECV_ONE, d->comm) \
    CALL(Alltoallv, alltoallv, SENDS, RECVS, d->comm) \
    CALL(Alltoallw, alltoallw, \
         send, SEND_COUNTS, s->BYTES, \
         (send == MPI_IN_PLACE) ? NULL : s->types, recv, RECV_COUNTS, \
         r->BYTES, r->types, d->comm) \
    CALL(Neighbor_allgather, neighbor_allgather, SEND_ONE, RECV_ONE, d->comm) \
    CALL(Neighbor_allgatherv, neighbor_allgatherv, SEND_ONE, RECVS, d->comm) \
    CALL(Neighbor_alltoall, neighbor_alltoall, SEND_ONE, RECV_ONE, d->comm) \
    CALL(Neighbor_alltoallv, neighbor_alltoallv, SENDS, RECVS, d->comm) \
    CALL(Neighbor_alltoallw, neighbor_alltoallw, \
         send, SEND_COUNTS, s->address, s->types, recv, \
         RECV_COUNTS, r->address, r->types, d->comm)

#define OTHERS \
    OTHER(Reduce_local, REDUCTION) \
    OTHER(Sendrecv, SEND_ONE, d->dest, 1, RECV_ONE, d->source, 1, d->comm, \
         MPI_STATUS_IGNORE) \
    OTHER(Sendrecv_replace, RECV_ONE, d->dest, 1, d->source, 1, d->comm, \
         MPI_STATUS_IGNORE)

#define CALL(_name, _later, ...) \
    CALL_OF(now_##_name, MPI_##_name, __VA_ARGS__) \
    CALL_OF(later_##_name, MPI_I##_later, __VA_ARGS__, request)
#define OTHER(_name, ...) CALL_OF(now_##_name, MPI_##_name, __VA_ARGS__)
#define SEND_COUNTS d->send.count
#define RECV_COUNTS d->recv.count
#define COUNTS      d->counts
#define DISPLS      displs
#define BYTES       bytes
CALLS
OTHERS

#if MPI_VERSION >= 4
#undef CALL
#undef OTHER
#undef SEND_COUNTS
#undef RECV_COUNTS
#undef COUNTS
#undef DISPLS
#undef BYTES
#define CALL(_name, _later, ...) \
    CALL_OF(large_##_name, MPI_##_name##_c, __VA_ARGS__) \
    CALL_OF(large_later_##_name, MPI_I##_later##_c, __VA_ARGS__, request)
#define OTHER(_name, ...) CALL_OF(large_##_name, MPI_##_name##_c, __VA_ARGS__)
#define SEND_COUNTS s->counts
#define RECV_COUNTS r->counts
#define COUNTS      s->all
#define DISPLS      large_displs
#define BYTES       address
CALLS
OTHERS
#define LARGE(_name) _name
#else
#define LARGE(_name) NULL
#endif

const coll_call_t coll_calls[] = {
    /* reduces, neighbours, in place, inter, plan, flow, sent, received */
#define LINE(_name, ...) \
    {"MPI_" #_name, __VA_ARGS__, \
     {now_##_name, LARGE(large_##_name), later_##_name, \
      LARGE(large_later_##_name)}},
#define OTHER_LINE(_name, ...) \
    {"MPI_" #_name, __VA_ARGS__, \
     {now_##_name, LARGE(large_##_name), NULL, NULL}},
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
    OTHER_LINE(Reduce_local, 1, 0, 0, 0, 0, COLL_ALL, COLL_ONE, COLL_ONE)
    OTHER_LINE(Sendrecv, 0, 0, 0, 0, 0, COLL_ALL, COLL_ONE, COLL_ONE)
    OTHER_LINE(Sendrecv_replace, 0, 0, 0, 0, 0, COLL_ALL, COLL_NONE, COLL_ONE)
};
const int coll_num_calls = sizeof(coll_calls) / sizeof(coll_calls[0]);
