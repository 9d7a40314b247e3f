/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A rank that cannot stage its buffer returns an error, and so does each rank
 * whose result depends on this rank's data; the others succeed. Each rank in
 * turn sends from an allocation shorter than its count, or while it gets no
 * more memory. At first the last rank uses no GPU. After each call the
 * communicator is used again. A thread that calls MPI while another one ends
 * the program gets an error, too.
 *
 * Then, with non-blocking reductions on GPUs: a rank fails in a declined one,
 * and every error handler reduces, or waits for another request of the array; a
 * call that the MPI rejects on one rank changes no buffer, and is repeated
 * there, also with an error handler of the program; a call with an invalid
 * request completes nothing.
 */
#include "gpu.h"
#include "util.h"

#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* Open MPI 5 reports MPI 3 */
#if (MPI_VERSION >= 4) || \
        (defined(OMPI_MAJOR_VERSION) && (OMPI_MAJOR_VERSION >= 5))
#define HAS_PERSISTENT 1
#else
#define HAS_PERSISTENT 0
#endif

#if !defined(OPEN_MPI) && (MPI_VERSION * 100 + MPI_SUBVERSION >= 401)
#define HAS_STATUS_ALL 1
#else
#define HAS_STATUS_ALL 0
#endif

#define MAX_RANKS 8
#define COUNT     32768     /* elements of 8 bytes in 12 */
#define LARGE     (6 << 20) /* more than is kept for the next call */

/* Ranks whose result depends on a rank's data */
typedef enum {
    FOR_ALL,
    FROM_ROOT, /* all; only the root has a part */
    FOR_ROOT,
    FOR_LATER, /* those behind the rank */
    FOR_NEXT,
    MESSAGE    /* the next rank, with a message of no bytes */
} unstaged_flow_t;

typedef struct {
    const char      *name;
    unstaged_flow_t flow;
    bool            is_large; /* also tried without memory */
    int             (*call)(const void *send, void *recv, MPI_Request *request);
} unstaged_call_t;

static MPI_Datatype type, types[MAX_RANKS];
static MPI_Op op;
static MPI_Comm ring;
static int rank, size, last, next;
static int counts[MAX_RANKS], displs[MAX_RANKS], bytes[MAX_RANKS];
static int count;   /* elements for each rank */
static int arrived; /* bytes of the last message */
static int tried;

#define CALL(_name, _call) \
    static int call_##_name(const void *send, void *recv, \
                            MPI_Request *request) \
    { \
        (void)send; \
        (void)recv; \
        (void)request; \
        return _call; \
    }
#define WORLD MPI_COMM_WORLD

CALL(Bcast, MPI_Bcast((rank == 0) ? (void*)send : recv, count, type, 0, WORLD))
CALL(Ibcast, MPI_Ibcast((rank == 0) ? (void*)send : recv, count, type, 0, WORLD,
                        request))
CALL(Gather, MPI_Gather(send, count, type, recv, count, type, 0, WORLD))
CALL(Igatherv, MPI_Igatherv(send, count, type, recv, counts, displs, type, 0,
                            WORLD, request))
CALL(Scatter, MPI_Scatter(send, count, type, recv, count, type, 0, WORLD))
CALL(Scatterv, MPI_Scatterv(send, counts, displs, type, recv, count, type, 0,
                            WORLD))
CALL(Allgather, MPI_Allgather(send, count, type, recv, count, type, WORLD))
CALL(Allgatherv, MPI_Allgatherv(send, count, type, recv, counts, displs, type,
                                WORLD))
CALL(Iallgather, MPI_Iallgather(send, count, type, recv, count, type, WORLD,
                                request))
CALL(Alltoall, MPI_Alltoall(send, count, type, recv, count, type, WORLD))
CALL(Alltoallv, MPI_Alltoallv(send, counts, displs, type, recv, counts, displs,
                              type, WORLD))
CALL(Ialltoallw, MPI_Ialltoallw(send, counts, bytes, types, recv, counts, bytes,
                                types, WORLD, request))
CALL(Neighbor_allgather, MPI_Neighbor_allgather(send, count, type, recv, count,
                                                type, ring))
CALL(Reduce, MPI_Reduce(send, recv, count, MPI_INT, op, 0, WORLD))
CALL(Allreduce, MPI_Allreduce(send, recv, count, MPI_INT, op, WORLD))
CALL(Iallreduce, MPI_Iallreduce(send, recv, count, MPI_INT, op, WORLD, request))
CALL(Scan, MPI_Scan(send, recv, count, MPI_INT, op, WORLD))
CALL(Reduce_scatter, MPI_Reduce_scatter(send, recv, counts, MPI_INT, op, WORLD))

/* The neighbour of a rank that cannot send receives a message of no bytes */
static int call_Sendrecv(const void *send, void *recv, MPI_Request *request)
{
    MPI_Status status;
    int rc;

    (void)request;
    arrived = -1;
    rc      = MPI_Sendrecv(send, count, type, next, 0, recv, count, type, last,
                           0, WORLD, &status);
    if (rc == MPI_SUCCESS) {
        MPI_Get_count(&status, MPI_BYTE, &arrived);
    }
    return rc;
}

#if MPI_VERSION >= 4
/* The error is reported when the request completes, after each start */
static int call_Allgather_init(const void *send, void *recv,
                               MPI_Request *request)
{
    MPI_Request again;
    int rc, turn;

    (void)request;
    rc = MPI_Allgather_init(send, count, type, recv, count, type, WORLD,
                            MPI_INFO_NULL, &again);
    for (turn = 0; (rc == MPI_SUCCESS) && (turn < 2); ++turn) {
        rc = MPI_Start(&again);
        if (rc == MPI_SUCCESS) {
            rc = MPI_Wait(&again, MPI_STATUS_IGNORE);
        }
        rc = (turn == 0) ? ((rc == MPI_SUCCESS) ? rc : MPI_SUCCESS) : rc;
    }
    MPI_Request_free(&again);
    return rc;
}
#endif

static const unstaged_call_t calls[] = {
#define ENTRY(_name, _flow, _is_large) \
    {"MPI_" #_name, _flow, _is_large, call_##_name}
    ENTRY(Bcast, FROM_ROOT, true),     ENTRY(Ibcast, FROM_ROOT, false),
    ENTRY(Gather, FOR_ROOT, false),    ENTRY(Igatherv, FOR_ROOT, false),
    ENTRY(Scatter, FROM_ROOT, false),  ENTRY(Scatterv, FROM_ROOT, false),
    ENTRY(Allgather, FOR_ALL, false),  ENTRY(Allgatherv, FOR_ALL, false),
    ENTRY(Iallgather, FOR_ALL, false), ENTRY(Alltoall, FOR_ALL, false),
    ENTRY(Alltoallv, FOR_ALL, false),  ENTRY(Ialltoallw, FOR_ALL, false),
    ENTRY(Neighbor_allgather, FOR_NEXT, false),
    ENTRY(Reduce, FOR_ROOT, false),    ENTRY(Allreduce, FOR_ALL, false),
    ENTRY(Iallreduce, FOR_ALL, false), ENTRY(Scan, FOR_LATER, false),
    ENTRY(Reduce_scatter, FOR_ALL, false),
    ENTRY(Sendrecv, MESSAGE, false),
#if MPI_VERSION >= 4
    ENTRY(Allgather_init, FOR_ALL, false)
#endif
};

static void add(void *in, void *inout, int *count, MPI_Datatype *datatype)
{
    int i;

    (void)datatype;
    for (i = 0; i < *count; ++i) {
        ((int*)inout)[i] += ((int*)in)[i];
    }
}

static void init(void)
{
    const int weight = 1;

    MPI_Type_vector(2, 1, 2, MPI_INT, &type);
    MPI_Type_commit(&type);
    MPI_Op_create(add, 1, &op);
    last = (rank + size - 1) % size;
    next = (rank + 1) % size;
    MPI_Dist_graph_create_adjacent(WORLD, 1, &last, &weight, 1, &next, &weight,
                                   MPI_INFO_NULL, 0, &ring);
    MPI_Comm_set_errhandler(ring, MPI_ERRORS_RETURN);
}

static void set_count(int elements)
{
    int i;

    count = elements;
    for (i = 0; i < size; ++i) {
        counts[i] = count;
        displs[i] = i * count;
        bytes[i]  = i * count * 12;
        types[i]  = type;
    }
}

/* Limit the process's additional pages: none, or as before. */
static void limit(bool is_none)
{
    struct rlimit limits;

    getrlimit(RLIMIT_AS, &limits);
    limits.rlim_cur = is_none ? 4096 : limits.rlim_max;
    setrlimit(RLIMIT_AS, &limits);
}

/* Return whether a rank's result depends on data of the failing one. */
static bool needs_part(unstaged_flow_t flow, int failing)
{
    switch (flow) {
    case FOR_ROOT:
        return rank == 0;
    case FOR_LATER:
        return rank > failing;
    case FOR_NEXT:
        return last == failing;
    case MESSAGE:
        return false;
    default:
        return true;
    }
}

/* Call on all ranks; one of them fails. A rank without GPU buffers may not
   learn of it when a request completes. @return Whether this rank returned as
   expected, and the communicator still works. */
static bool try_call(const unstaged_call_t *call, int failing, bool is_memory,
                     bool is_host, const char *send, char *recv)
{
    const bool is_one   = (call->flow != FROM_ROOT) || (failing == 0);
    const bool fails    = is_one && (rank == failing);
    MPI_Request request = MPI_REQUEST_NULL;
    int rc, sum = 0;
    bool is_right, is_reported;
    int error_class = MPI_SUCCESS;
    MPI_Status status;

    if (fails && is_memory) {
        limit(true);
    }
    rc          = call->call(send, recv, &request);
    is_reported = is_one && needs_part(call->flow, failing) &&
                  !(is_host && ((request != MPI_REQUEST_NULL) ||
                                (strstr(call->name, "_init") != NULL)));
    if ((rc == MPI_SUCCESS) && (request != MPI_REQUEST_NULL)) {
        rc = MPI_Waitall(1, &request, &status);
        rc = (rc == MPI_ERR_IN_STATUS) ? status.MPI_ERROR : -(rc != 0);
    }
    if (fails && is_memory) {
        limit(false);
    }
    if (rc > 0) {
        MPI_Error_class(rc, &error_class);
    }

    is_right = (rc != MPI_SUCCESS) ?
                       is_one && (fails || (call->flow != MESSAGE)) &&
                               ((error_class == MPI_ERR_OTHER) ||
                                (error_class == MPI_ERR_NO_MEM)) :
                       !fails && !is_reported;
    if (call->flow == MESSAGE) {
        is_right = is_right && (fails || (arrived == ((last == failing) ?
                                                      0 : count * 8)));
    }
    if (!is_right) {
        ucx_mp_report("%s, rank %d cannot%s: returns %d, class %d, %d bytes "
                      "arrived", call->name, failing,
                      is_memory ? " for want of memory" : "", rc, error_class,
                      arrived);
    }
    return (MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, WORLD) ==
            MPI_SUCCESS) && (sum == size * (size - 1) / 2) && is_right;
}

/* Let the driver report its shutdown, as to threads that still run after one of
   them has called exit(). For an emulated GPU. */
static bool try_end(const char *send, char *recv)
{
    const char *faults          = "cuPointerGetAttributes:1:4,"
                                  "cuPointerGetAttributes:2:4,"
                                  "cuPointerGetAttributes:3:4,"
                                  "cuPointerGetAttributes:4:4,"
                                  "cuPointerGetAttributes:5:4";
    int (*set)(const char *all) = ucx_mp_gpu_function("cuemu_fault");
    int rc;

    if (set == NULL) {
        return true;
    }

    set(faults);
    rc = MPI_Reduce_local(send, recv, 16, MPI_INT, MPI_SUM);
    set("");
    if (rc == MPI_SUCCESS) {
        ucx_mp_report("GPU memory is added up without a driver");
    }
    return rc != MPI_SUCCESS;
}

/* Let each rank, except those with host memory, fail in each call. */
static int try_calls(bool has_host)
{
    const int num_calls    = (int)(sizeof(calls) / sizeof(calls[0]));
    const bool is_host     = has_host && (rank == size - 1);
    const ucx_mp_mem_t mem = is_host ? UCX_MP_MEM_HOST : UCX_MP_MEM_DEVICE;
    char *send             = ucx_mp_mem_alloc(mem, size * (size_t)LARGE * 12);
    char *recv             = ucx_mp_mem_alloc(mem, size * (size_t)LARGE * 12);
    int wrong              = 0;
    char *small, *behind;
    int i, failing;

    /* What a message is packed in is kept: it must not lie behind the short
       allocation */
    set_count(COUNT);
    wrong += (call_Sendrecv(send, recv, NULL) != MPI_SUCCESS);
    small  = ucx_mp_mem_alloc(mem, 4096);
    behind = ucx_mp_mem_alloc(mem, 1 << 20);
    ucx_mp_mem_free(mem, behind);

    for (i = 0; i < num_calls; ++i) {
        set_count(COUNT);
        for (failing = 0; failing < size - has_host; ++failing, ++tried) {
            wrong += !try_call(&calls[i], failing, false, is_host,
                               (rank == failing) ? small : send, recv);
        }
#ifdef OPEN_MPI /* MPICH itself needs memory, as Open MPI does in others */
        set_count(LARGE);
        if (calls[i].is_large && !has_host) {
            wrong += !try_call(&calls[i], 0, true, is_host, send, recv);
            ++tried;
        }
#endif
    }
    if (!has_host) {
        wrong += !try_end(send, recv);
    }
    ucx_mp_mem_free(mem, small);
    ucx_mp_mem_free(mem, recv);
    ucx_mp_mem_free(mem, send);
    return wrong;
}


/* ------------------------------------------ non-blocking reductions on GPUs */

/* Buffers of the next reduction, of `COUNT` ints */
static struct {
    MPI_Comm    comm;
    void        *gpu_send, *gpu_recv, *host_send, *host_recv, *small;
    int         handled;     /* calls of the error handler */
    MPI_Request requests[2]; /* a receive, or null, and the failing reduction */
} queued;

static bool has_sums(ucx_mp_mem_t mem, const void *recv, int elements)
{
    static int values[COUNT];
    int i;

    ucx_mp_mem_get(mem, values, recv, elements * sizeof(int));
    for (i = 0; (i < elements) && (values[i] == size * (size + 1) / 2); ++i) {
    }
    return i == elements;
}

typedef enum {
    BLOCKING,
    NONBLOCKING,
    PERSISTENT, /* NONBLOCKING under an MPI without it */
    NUM_WAYS
} way_t;

static int reduce(way_t way, const void *send, MPI_Op op, MPI_Request *request)
{
#if HAS_PERSISTENT
    int rc;

    if (way == PERSISTENT) {
        rc = MPI_Allreduce_init(send, queued.gpu_recv, COUNT, MPI_INT, op,
                                queued.comm, MPI_INFO_NULL, request);
        return (rc == MPI_SUCCESS) ? MPI_Start(request) : rc;
    }
#endif
    return (way == BLOCKING) ?
                   MPI_Allreduce(send, queued.gpu_recv, COUNT, MPI_INT, op,
                                 queued.comm) :
                   MPI_Iallreduce(send, queued.gpu_recv, COUNT, MPI_INT, op,
                                  queued.comm, request);
}

/* Reduce on all ranks. @return Whether all sums are right. */
static bool reduces(way_t way)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int rc;

    ucx_mp_mem_set(UCX_MP_MEM_DEVICE, queued.gpu_recv, 0, COUNT * sizeof(int));
    rc = reduce(way, queued.gpu_send, MPI_SUM, &request);
    rc = (rc == MPI_SUCCESS) ? MPI_Wait(&request, MPI_STATUS_IGNORE) : rc;
    if (request != MPI_REQUEST_NULL) {
        MPI_Request_free(&request);
    }
    return (rc == MPI_SUCCESS) &&
           has_sums(UCX_MP_MEM_DEVICE, queued.gpu_recv, COUNT);
}

static void handle(MPI_Comm *comm, int *code, ...)
{
    int value = 0;

    (void)comm;
    (void)code;
    if (queued.requests[0] != MPI_REQUEST_NULL) {
        MPI_Barrier(WORLD); /* no receive is complete before */
        MPI_Send(queued.gpu_send, 64, type, next, 2, WORLD);
        MPI_Wait(&queued.requests[0], MPI_STATUS_IGNORE);
        ucx_mp_mem_get(UCX_MP_MEM_DEVICE, &value, queued.gpu_recv, sizeof(int));
        queued.handled += (value == last + 1) ? 0 : 1000;
    }
    queued.handled += reduces(NONBLOCKING) ? 1 : 1000;
}

/* End the failing reduction. @return MPI_SUCCESS: the call reports no error. */
static int end_failing(int how)
{
    MPI_Request *request = &queued.requests[1];
    int index;
#if HAS_STATUS_ALL
    MPI_Status status;
    int flag, rc;
#endif

    switch (how) {
    case 0:
        return MPI_Wait(request, MPI_STATUS_IGNORE);
    case 1:
        return MPI_Request_free(request);
#if HAS_STATUS_ALL
    case 2:
        do {
            rc = MPI_Request_get_status_all(1, request, &flag, &status);
        } while ((rc == MPI_SUCCESS) && !flag);
        MPI_Wait(request, MPI_STATUS_IGNORE);
        return (rc == MPI_ERR_IN_STATUS) ? status.MPI_ERROR : MPI_SUCCESS;
#endif
    default:
        return MPI_Waitany(2, queued.requests, &index, MPI_STATUS_IGNORE);
    }
}

/* The GPUs decline a reduction because of one rank, and another one cannot
   stage it: all ranks return an error. */
static int try_declined(int failing, int how)
{
    const void *send = queued.gpu_send;
    void *recv       = queued.gpu_recv;
    int rc;

    if (rank == failing) {
        send = queued.small;
    } else if (rank == (failing + 1) % size) {
        send = queued.host_send;
        recv = queued.host_recv;
    }
    if (how == 3) {
        MPI_Irecv(queued.gpu_recv, 64, type, last, 2, WORLD,
                  &queued.requests[0]);
    }
    queued.handled = 0;
    rc = MPI_Iallreduce(send, recv, COUNT, MPI_INT, MPI_SUM, WORLD,
                        &queued.requests[1]);
    rc = (rc == MPI_SUCCESS) ? end_failing(how) : rc;
    if ((rc == MPI_SUCCESS) || (queued.handled != 1)) {
        ucx_mp_report("a declined MPI_Iallreduce, rank %d cannot: end %d "
                      "returns %d, %d errors handled", failing, how, rc,
                      queued.handled);
        return 1;
    }
    return !reduces(NONBLOCKING);
}

/* Arguments of one rank that the MPI rejects, behind those of way_t */
enum {
    SAME_BUFFER = NUM_WAYS,
    SCAN,
    BAD_INFO,
    RECV_IN_PLACE,
    SEND_IN_PLACE,
    NEGATIVE_COUNT,
    UNSTAGED, /* and its buffer cannot be staged */
    NUM_REJECTED
};

/* Make a call that the MPI rejects; MPI_Scan for those that this MPI accepts */
static int call_rejected(int which)
{
    MPI_Request request;

    switch (which) {
    case BLOCKING:
    case NONBLOCKING:
    case PERSISTENT:
        return reduce(which, queued.gpu_send, MPI_OP_NULL, &request);
    case SAME_BUFFER:
        return reduce(BLOCKING, queued.gpu_recv, MPI_SUM, &request);
    case RECV_IN_PLACE:
        return MPI_Iallreduce(queued.gpu_send, MPI_IN_PLACE, COUNT, MPI_INT,
                              MPI_SUM, queued.comm, &request);
#ifdef OPEN_MPI /* MPICH crashes */
    case SEND_IN_PLACE:
        return MPI_Ireduce(MPI_IN_PLACE, queued.gpu_recv, COUNT, MPI_INT,
                           MPI_SUM, next, queued.comm, &request);
#elif MPI_VERSION == 4 /* MPICH 5 crashes by the standard ABI */
    case BAD_INFO:
        return MPI_Allreduce_init(queued.gpu_send, queued.gpu_recv, COUNT,
                                  MPI_INT, MPI_SUM, queued.comm,
                                  (MPI_Info)MPI_COMM_NULL, &request);
#endif
    case NEGATIVE_COUNT:
        set_count(COUNT / size);
        counts[1] = -1;
        return MPI_Ireduce_scatter(queued.gpu_send, queued.gpu_recv, counts,
                                   MPI_INT, MPI_SUM, queued.comm, &request);
    case UNSTAGED:
        return reduce(BLOCKING, queued.small, MPI_OP_NULL, &request);
    default:
        return MPI_Scan(queued.gpu_send, queued.gpu_recv, COUNT, MPI_INT,
                        MPI_OP_NULL, queued.comm);
    }
}

static int noted; /* calls of the error handler below */

static void note(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    (void)code;
    ++noted;
}

/* Return whether the MPI rejects a call and leaves the buffer alone. MPICH 5
   returns MPI_SUCCESS after an error handler of the program. */
static bool is_rejected(int which)
{
    const size_t bytes = COUNT * sizeof(int);
    int rc;

    ucx_mp_mem_put(UCX_MP_MEM_DEVICE, queued.gpu_recv, queued.host_send, bytes);
    noted = 0;
    rc    = call_rejected(which);
    ucx_mp_mem_get(UCX_MP_MEM_DEVICE, queued.host_recv, queued.gpu_recv, bytes);
    return ((rc != MPI_SUCCESS) || (noted > 0)) &&
           (memcmp(queued.host_recv, queued.host_send, bytes) == 0);
}

/* The MPI rejects a call of one rank. The others make only those behind it. */
static int try_rejected(int failing, int which)
{
    static const unstaged_call_t allreduce = {"MPI_Allreduce", FOR_ALL, false,
                                              call_Allreduce};
    int wrong = (rank == failing) && !is_rejected(which);
    int i;

    for (i = 0; i < 2 * NUM_WAYS; ++i) {
        wrong += !reduces((failing + i) % NUM_WAYS);
    }
    set_count(COUNT);
    wrong += !try_call(&allreduce, failing, false, false,
                       (rank == failing) ? queued.small : queued.gpu_send,
                       queued.gpu_recv);
    if (wrong > 0) {
        ucx_mp_report("call %d of rank %d is not rejected, or another one "
                      "fails", which, failing);
    }
    return wrong;
}

/* No rank can describe the datatype; the next call is staged. */
static int try_indescribable(void)
{
    MPI_Datatype inner, outer;
    int i, rc;

    MPI_Type_vector(1 << 29, 1, 2, MPI_INT, &inner);
    for (i = 0; i < 64; ++i) { /* deeper than the library looks */
        MPI_Type_contiguous(1, inner, &outer);
        MPI_Type_free(&inner);
        inner = outer;
    }
    MPI_Type_commit(&inner);
    rc = (MPI_Allreduce(queued.gpu_send, queued.gpu_recv, 1, inner, op,
                        WORLD) == MPI_SUCCESS);
    MPI_Type_free(&inner);
    rc = rc || (MPI_Allreduce(queued.gpu_send, queued.gpu_recv, COUNT, MPI_INT,
                              op, WORLD) != MPI_SUCCESS) ||
         !has_sums(UCX_MP_MEM_DEVICE, queued.gpu_recv, COUNT);
    if (rc) {
        ucx_mp_report("a datatype is described, or the next call fails");
    }
    return rc;
}

/* One rank gives one pointer for both buffers, where the MPI allows it. */
static int try_alias(int failing)
{
    int rc = MPI_SUCCESS;
#ifdef OPEN_MPI
    MPI_Request request;

    ucx_mp_mem_put(UCX_MP_MEM_DEVICE, queued.gpu_recv, queued.host_send,
                   COUNT * sizeof(int));
    rc = MPI_Ireduce_scatter_block((rank == failing) ? queued.gpu_recv :
                                                       queued.gpu_send,
                                   queued.gpu_recv, COUNT / size, MPI_INT,
                                   MPI_SUM, WORLD, &request);
    rc = (rc == MPI_SUCCESS) ? MPI_Wait(&request, MPI_STATUS_IGNORE) : rc;
    rc = rc || !has_sums(UCX_MP_MEM_DEVICE, queued.gpu_recv, COUNT / size);
#endif
    if ((rc != MPI_SUCCESS) || !reduces(NONBLOCKING)) {
        ucx_mp_report("a reduce-scatter of rank %d's one buffer returns %d",
                      failing, rc);
        return 1;
    }
    return 0;
}

/* A call with an invalid request completes none, whatever its results were
   before: rank 0 waits before the other ranks reduce. Open MPI 5 and MPICH 5
   crash. */
static int try_invalid(int how)
{
    int rc = MPI_SUCCESS;
#if (MPI_VERSION < 5) && \
        (!defined(OMPI_MAJOR_VERSION) || (OMPI_MAJOR_VERSION < 5))
    MPI_Request requests[2] = {MPI_REQUEST_NULL, (MPI_Request)0};
    void *other             = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE,
                                               COUNT * sizeof(int));
    MPI_Status statuses[2];
    int indices[2] = {0};
    int done       = 1 << 28;
    int i;

    /* the next staging memory has other sums */
    MPI_Allreduce(queued.gpu_recv, other, COUNT, MPI_INT, op, WORLD);
    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, other);
    if (rank > 0) {
        MPI_Recv(NULL, 0, MPI_BYTE, 0, 1, WORLD, &statuses[0]);
    }
    ucx_mp_mem_set(UCX_MP_MEM_DEVICE, queued.gpu_recv, 0, COUNT * sizeof(int));
    rc = MPI_Iallreduce(queued.gpu_send, queued.gpu_recv, COUNT, MPI_INT, op,
                        WORLD, &requests[0]);
    if (rank == 0) {
        switch (how) {
        case 0:
            i = MPI_Waitall(2, requests, statuses);
            break;
        case 1:
            i = MPI_Waitany(2, requests, indices, statuses);
            break;
        case 2:
            i = MPI_Testany(2, requests, indices, &done, statuses);
            break;
        case 3:
            i = MPI_Waitsome(2, requests, &done, indices, statuses);
            break;
        default:
            i = MPI_Testsome(2, requests, &done, indices, statuses);
        }
        rc = rc || (i == MPI_SUCCESS);
        for (i = 1; i < size; ++i) {
            MPI_Send(NULL, 0, MPI_BYTE, i, 1, WORLD);
        }
    }
    rc = rc || (MPI_Wait(&requests[0], &statuses[0]) != MPI_SUCCESS) ||
         !has_sums(UCX_MP_MEM_DEVICE, queued.gpu_recv, COUNT);
#endif
    if (rc != MPI_SUCCESS) {
        ucx_mp_report("end %d with an invalid request loses a valid one", how);
    }
    return rc != MPI_SUCCESS;
}

static int try_queued(void)
{
    const size_t bytes = COUNT * sizeof(int);
    static int values[COUNT];
    MPI_Errhandler handler;
    int wrong = 0;
    int i, failing;

    for (i = 0; i < COUNT; ++i) {
        values[i] = rank + 1;
    }
    queued.requests[0] = MPI_REQUEST_NULL;
    queued.gpu_send  = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, bytes);
    queued.gpu_recv  = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, bytes);
    queued.small     = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, 4096);
    queued.host_send = values;
    queued.host_recv = malloc(bytes);
    ucx_mp_mem_put(UCX_MP_MEM_DEVICE, queued.gpu_send, values, bytes);
    MPI_Comm_dup(WORLD, &queued.comm);
    wrong += try_rejected(0, NONBLOCKING);
    MPI_Comm_free(&queued.comm);
    queued.comm = WORLD;
    for (i = 0; i < 4; ++i) {
        wrong += !reduces(i % 2 ? BLOCKING : NONBLOCKING);
    }

    MPI_Comm_create_errhandler(handle, &handler);
    MPI_Comm_set_errhandler(WORLD, handler);
    for (failing = 0; failing < size; ++failing, ++tried) {
        for (i = 0; i < 4; ++i) {
            wrong += try_declined(failing, i);
        }
        wrong += try_alias(failing);
    }
    MPI_Errhandler_free(&handler);

    MPI_Comm_create_errhandler(note, &handler);
    for (i = 0; i < 2 * NUM_REJECTED; ++i) {
        MPI_Comm_set_errhandler(WORLD, (i < NUM_REJECTED) ? handler :
                                                            MPI_ERRORS_RETURN);
        for (failing = 0; failing < size; ++failing, ++tried) {
            wrong += try_rejected(failing, i % NUM_REJECTED);
        }
    }
    MPI_Errhandler_free(&handler);
    for (i = 0; i < 5; ++i) {
        wrong += try_invalid(i);
    }
    return wrong + try_indescribable();
}

int main(int argc, char **argv)
{
    int wrong, all;

    ucx_mp_program = "ucx_mp_unstaged";
    MPI_Init(&argc, &argv);
    ucx_mp_get_rank(&rank, &size);
    if (size > MAX_RANKS) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "%d ranks at most", MAX_RANKS);
    }

    MPI_Comm_set_errhandler(WORLD, MPI_ERRORS_RETURN);
    init();
    if (rank < size - 1) {
        ucx_mp_gpu_require(rank);
    }
    wrong = try_calls(true);
    if (rank == size - 1) {
        ucx_mp_gpu_require(rank);
    }
    wrong += try_calls(false);
    wrong += try_queued();
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, WORLD);
    if (rank == 0) {
        printf("ucx_mp_unstaged: %d calls, %d wrong\n", tried, all);
    }
    MPI_Comm_free(&ring);
    MPI_Op_free(&op);
    MPI_Type_free(&type);
    return ucx_mp_finish(all > 0);
}
