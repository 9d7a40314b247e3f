/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Non-blocking and persistent reductions, several at once: on communicators
 * whose reductions each rank starts in an order of its own, of GPU and host
 * memory, between other collectives and messages. Each rank also starts the
 * persistent ones of a communicator in an order of its own, or none of them.
 * Every byte is checked.
 *
 * --overlap SIZE measures instead how much of an MPI_Iallreduce of GPU memory
 * is hidden by computing on the CPU that calls MPI_Test now and then.
 *
 * Prints one line of results; the exit status is 0 if nothing was wrong.
 */
#include "gpu.h"
#include "on_gpus.h"
#include "util.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>


/* Open MPI 5 reports MPI 3 */
#if (MPI_VERSION >= 4) || \
        (defined(OMPI_MAJOR_VERSION) && (OMPI_MAJOR_VERSION >= 5))
#define HAS_MPI_4 1
#else
#define HAS_MPI_4 0
#endif

#define HAS_MPI_4_1 (MPI_VERSION * 10 + MPI_SUBVERSION >= 41)

#define MAX_OPS   12
#define NUM_COMMS 4
#define NUM_EARLY 6
#define MAX_TAKEN 3000 /* communicators, more than MPICH has */

typedef enum {
    ALLREDUCE,
    REDUCE,
    REDUCE_SCATTER,
    REDUCE_SCATTER_BLOCK,
    NUM_KINDS
} kind_t;

/* A reduction of ints; all but the kind of memory is the same on all ranks */
typedef struct {
    kind_t       kind;
    int          number, comm, count, root, is_in_place;
    ucx_mp_mem_t mem;
    int          counts[64];
    int          *send, *recv;
    int          sent, received; /* elements of this rank's buffers */
    int          is_persistent, is_active;
    MPI_Request  request;
} op_t;

static struct {
    int    rounds, seed, host, max_ops, calls, frees, persistent, multiple,
           made;
    size_t max_size, overlap;
    double pause;
} options = {.rounds = 50, .seed = 1, .max_ops = MAX_OPS, .calls = 5,
             .persistent = 30,
             .max_size = 1 << 20, .pause = 50e-6};

static int rank, size, wrong;
static MPI_Comm comms[NUM_COMMS], early[NUM_EARLY];
static int comm_rank[NUM_COMMS];
static op_t ops[MAX_OPS];
static int num_ops, next_number, persistent_starts;

/* Element that a rank of a communicator gives to a reduction */
static int value_of(int number, int from, int index)
{
    return (int)((unsigned)number * 31 + (unsigned)from * 977 +
                 (unsigned)index * 7) % 10007;
}

static int sum_of(int number, int index)
{
    int sum = 0, from;

    for (from = 0; from < size; ++from) {
        sum += value_of(number, from, index);
    }
    return sum;
}


/* --------------------------------------------------------------- reductions */

/* Return whether the MPI has persistent reductions that work: those of MPICH
   4.0 and 5.0 fail beside others in MPI_Testall, also in host memory and
   without this library. With MPI_THREAD_MULTIPLE no GPUs take them over. */
static int has_persistent(void)
{
#ifdef OPEN_MPI
    return HAS_MPI_4;
#else
    return HAS_MPI_4 && (options.host == 0) && !options.multiple;
#endif
}

static void op_draw(op_t *op, uint64_t *shared, uint64_t *own)
{
    const int most = (int)(options.max_size / sizeof(int)) / size;
    int i, total = 0;

    op->number      = next_number++;
    op->kind        = ucx_mp_random_below(shared, NUM_KINDS);
    op->comm        = ucx_mp_random_below(shared, NUM_COMMS - 1);
    op->root        = ucx_mp_random_below(shared, size);
    op->is_in_place = ucx_mp_random_below(shared, 3) == 0;
    op->is_persistent = ((int)ucx_mp_random_below(shared, 100) <
                         options.persistent) && has_persistent();
    op->is_active     = 0;
    op->request       = MPI_REQUEST_NULL;
    op->count       = (int)ucx_mp_random_size(shared, 1, most);
    for (i = 0; i < size; ++i) {
        op->counts[i] = ucx_mp_random_below(shared, op->count + 1);
        total        += op->counts[i];
    }
    op->mem = ((int)ucx_mp_random_below(own, 100) < options.host) ?
                      UCX_MP_MEM_HOST :
                      UCX_MP_MEM_DEVICE;

#ifndef OPEN_MPI /* MPICH 4.0 fails an assertion, also without this library */
    op->is_in_place &= (options.host == 0) || (op->kind < REDUCE_SCATTER);
#endif

    op->sent = op->received = op->count;
    if (op->kind == REDUCE_SCATTER) {
        op->sent     = total;
        op->received = op->counts[comm_rank[op->comm]];
    } else if (op->kind == REDUCE_SCATTER_BLOCK) {
        op->sent = op->count * size;
    } else if (op->kind == REDUCE) {
        op->is_in_place &= (comm_rank[op->comm] == op->root);
    }
}

static void op_put(op_t *op)
{
    int *values = malloc((op->sent + 1) * sizeof(int));
    int i;

    for (i = 0; i < op->sent; ++i) {
        values[i] = value_of(op->number, comm_rank[op->comm], i);
    }
    ucx_mp_mem_put(op->mem, op->is_in_place ? op->recv : op->send, values,
                   op->sent * sizeof(int));
    free(values);
}

static void op_fill(op_t *op)
{
    const size_t bytes = (op->sent + 1) * sizeof(int);

    op->send = ucx_mp_mem_alloc(op->mem, bytes);
    op->recv = ucx_mp_mem_alloc(op->mem, bytes);
    op_put(op);
}

static void op_free(op_t *op)
{
    if (op->is_persistent) {
        MPI_Request_free(&op->request);
        wrong += (op->request != MPI_REQUEST_NULL);
    }
    ucx_mp_mem_free(op->mem, op->send);
    ucx_mp_mem_free(op->mem, op->recv);
}

#if HAS_MPI_4
/* Initialize a persistent reduction: all ranks in one order */
static void op_init(op_t *op)
{
    const void *send    = op->is_in_place ? MPI_IN_PLACE : op->send;
    const MPI_Info info = MPI_INFO_NULL;
    MPI_Comm comm       = comms[op->comm];
    int rc;

    switch (op->kind) {
    case ALLREDUCE:
        rc = MPI_Allreduce_init(send, op->recv, op->count, MPI_INT, MPI_SUM,
                                comm, info, &op->request);
        break;
    case REDUCE:
        rc = MPI_Reduce_init(send, op->recv, op->count, MPI_INT, MPI_SUM,
                             op->root, comm, info, &op->request);
        break;
    case REDUCE_SCATTER:
        rc = MPI_Reduce_scatter_init(send, op->recv, op->counts, MPI_INT,
                                     MPI_SUM, comm, info, &op->request);
        break;
    default:
        rc = MPI_Reduce_scatter_block_init(send, op->recv, op->count, MPI_INT,
                                           MPI_SUM, comm, info, &op->request);
    }
    if (rc != MPI_SUCCESS) {
        ucx_mp_die(UCX_MP_EXIT_WRONG, "persistent reduction %d fails",
                   op->number);
    }
}
#else
static void op_init(op_t *op)
{
}
#endif

static void op_start(op_t *op)
{
    const void *send = op->is_in_place ? MPI_IN_PLACE : op->send;
    MPI_Comm comm    = comms[op->comm];
    int rc;

    op->is_active = 1;
    if (op->is_persistent) {
        ++persistent_starts;
        MPI_Start(&op->request);
        return;
    }

    switch (op->kind) {
    case ALLREDUCE:
        rc = MPI_Iallreduce(send, op->recv, op->count, MPI_INT, MPI_SUM, comm,
                            &op->request);
        break;
    case REDUCE:
        rc = MPI_Ireduce(send, op->recv, op->count, MPI_INT, MPI_SUM, op->root,
                         comm, &op->request);
        break;
    case REDUCE_SCATTER:
        rc = MPI_Ireduce_scatter(send, op->recv, op->counts, MPI_INT, MPI_SUM,
                                 comm, &op->request);
        break;
    default:
        rc = MPI_Ireduce_scatter_block(send, op->recv, op->count, MPI_INT,
                                       MPI_SUM, comm, &op->request);
    }
    if (rc != MPI_SUCCESS) {
        ucx_mp_die(UCX_MP_EXIT_WRONG, "reduction %d fails", op->number);
    }
}

static void op_check(op_t *op)
{
    const int me = comm_rank[op->comm];
    int first    = 0, i;
    int *values  = malloc((op->sent + 1) * sizeof(int));

    if (op->kind == REDUCE_SCATTER_BLOCK) {
        first = me * op->count;
    }
    for (i = 0; (op->kind == REDUCE_SCATTER) && (i < me); ++i) {
        first += op->counts[i];
    }
    ucx_mp_mem_get(op->mem, values, op->recv, op->sent * sizeof(int));
    if ((op->kind != REDUCE) || (me == op->root)) {
        for (i = 0; i < op->received; ++i) {
            if (values[i] != sum_of(op->number, first + i)) {
                printf("rank %d: reduction %d, kind %d%s of %s: element %d of "
                       "%d, of %d, is %d, not %d\n", rank, op->number, op->kind,
                       op->is_in_place ? " in place" : "",
                       ucx_mp_mem_names[op->mem], i, op->received, op->sent,
                       values[i], sum_of(op->number, first + i));
                ++wrong;
                break;
            }
        }
    }
    free(values);
}


/* ------------------------------------------------------------------ rounds */

/* Start all persistent reductions of a range by one call, in any order */
static void start_all(int first, int end, uint64_t *own)
{
    MPI_Request requests[MAX_OPS], request;
    int count = 0, i, other;

    for (i = first; i < end; ++i) {
        if (ops[i].is_persistent && !ops[i].is_active) {
            ops[i].is_active  = 1;
            requests[count++] = ops[i].request;
        }
    }
    for (i = 0; i < count; ++i) {
        other           = ucx_mp_random_below(own, count);
        request         = requests[i];
        requests[i]     = requests[other];
        requests[other] = request;
    }
    persistent_starts += count;
    MPI_Startall(count, requests);
}

/* Start reductions: non-blocking ones of one communicator in the order of all
   ranks, persistent ones in any order */
static void start(int first, int end, uint64_t *own)
{
    int left = end - first, i, before;

    for (i = first; i < end; ++i) {
        left -= ops[i].is_active;
    }
    while (left > 0) {
        i = first + ucx_mp_random_below(own, end - first);
        if (ops[i].is_active) {
            continue;
        }
        for (before = first; before < i; ++before) {
            if (!ops[i].is_persistent && !ops[before].is_persistent &&
                !ops[before].is_active && (ops[before].comm == ops[i].comm)) {
                i = before;
            }
        }
        op_start(&ops[i]);
        --left;
    }
}

#if HAS_MPI_4_1
/* Ask for the status of all requests at once. Check the results of those that
   are reported complete, before another call completes them. */
static void ask(MPI_Request *requests, int how)
{
    const double end = ucx_mp_time() + 20;
    int indices[MAX_OPS];
    int done = 0, i;

    switch (how) {
    case 0:
        while (!done && (ucx_mp_time() < end)) {
            MPI_Request_get_status_all(num_ops, requests, &done,
                                       MPI_STATUSES_IGNORE);
        }
        if (!done) {
            ucx_mp_die(UCX_MP_EXIT_WRONG, "the requests never complete");
        }
        for (done = 0, i = 0; i < num_ops; ++i) {
            indices[done] = i;
            done         += ops[i].is_active;
        }
        break;
    case 1:
        MPI_Request_get_status_any(num_ops, requests, &indices[0], &done,
                                   MPI_STATUS_IGNORE);
        done = done && (indices[0] != MPI_UNDEFINED);
        break;
    default:
        MPI_Request_get_status_some(num_ops, requests, &done, indices,
                                    MPI_STATUSES_IGNORE);
    }
    for (i = 0; i < done; ++i) {
        if (!ops[indices[i]].is_active) {
            ucx_mp_die(UCX_MP_EXIT_WRONG, "request %d ends inactive",
                       indices[i]);
        }
        op_check(&ops[indices[i]]);
    }
}
#else
static void ask(MPI_Request *requests, int how)
{
    (void)requests;
    (void)how;
}
#endif

static void finish(uint64_t *own)
{
    MPI_Request requests[MAX_OPS];
    int indices[MAX_OPS];
    int left = 0, done, i, j;

    for (i = 0; i < num_ops; ++i) {
        requests[i] = ops[i].request;
        left       += ops[i].is_active;
    }
    while (left > 0) {
        i    = ucx_mp_random_below(own, num_ops);
        done = 0;
        switch (ucx_mp_random_below(own, HAS_MPI_4_1 ? 12 : 9)) {
        case 0:
            MPI_Waitall(num_ops, requests, MPI_STATUSES_IGNORE);
            left = 0;
            break;
        case 1:
            MPI_Waitany(num_ops, requests, &indices[0], MPI_STATUS_IGNORE);
            done = 1;
            break;
        case 2:
            MPI_Testany(num_ops, requests, &indices[0], &done,
                        MPI_STATUS_IGNORE);
            break;
        case 3:
            MPI_Waitsome(num_ops, requests, &done, indices,
                         MPI_STATUSES_IGNORE);
            break;
        case 4:
            MPI_Testsome(num_ops, requests, &done, indices,
                         MPI_STATUSES_IGNORE);
            break;
        case 5:
            MPI_Testall(num_ops, requests, &done, MPI_STATUSES_IGNORE);
            left = done ? 0 : left;
            done = 0;
            break;
        case 6:
            if (ops[i].is_active) {
                MPI_Test(&requests[i], &done, MPI_STATUS_IGNORE);
            }
            indices[0] = i;
            break;
        case 7:
            MPI_Request_get_status(requests[i], &done, MPI_STATUS_IGNORE);
            if (!ops[i].is_active && !done) {
                printf("rank %d: an inactive request is not complete\n", rank);
                ++wrong;
            }
            done = 0;
            break;
        case 8:
            if (ops[i].is_active) {
                MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
                indices[0] = i;
                done       = 1;
            }
            break;
        default:
            ask(requests, ucx_mp_random_below(own, 3));
        }
        for (j = 0; j < done; ++j) {
            if ((indices[j] < 0) || !ops[indices[j]].is_active) {
                ucx_mp_die(UCX_MP_EXIT_WRONG, "request %d ends twice",
                           indices[j]);
            }
            ops[indices[j]].is_active = 0;
        }
        left -= done;
    }

    for (i = 0; i < num_ops; ++i) {
        ops[i].is_active = 0;
        if (requests[i] != (ops[i].is_persistent ? ops[i].request :
                                                   MPI_REQUEST_NULL)) {
            ucx_mp_report("request %d has another handle", i);
            ++wrong;
        }
        if (!ops[i].is_persistent) {
            ops[i].request = MPI_REQUEST_NULL;
        }
    }
}

/* Blocking collectives between reductions on their communicators */
static void others(uint64_t *shared, uint64_t *own)
{
    op_t op = {.kind = ALLREDUCE, .number = next_number++};
    int value;

    value = (rank == 0) ? next_number : 0;
    op.comm = ucx_mp_random_below(shared, NUM_COMMS - 1);
    MPI_Bcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD);
    wrong += (value != next_number);

    op.count = op.sent = op.received = 1000;
    op.mem   = ((int)ucx_mp_random_below(own, 100) < options.host) ?
                     UCX_MP_MEM_HOST :
                     UCX_MP_MEM_DEVICE;
    op_fill(&op);
    MPI_Allreduce(op.send, op.recv, op.count, MPI_INT, MPI_SUM,
                  comms[op.comm]);
    op_check(&op);
    op_free(&op);
}

/* One rank receives from another, which first waits for all reductions. */
static void messages(uint64_t *shared, uint64_t *own)
{
    const int waits = ucx_mp_random_below(shared, size);
    int token       = 0;

    if (rank != waits) {
        finish(own);
        MPI_Send(&token, 1, MPI_INT, waits, 3, MPI_COMM_WORLD);
        return;
    }

    for (token = 0; token < size - 1; ++token) {
        MPI_Recv(&(int){0}, 1, MPI_INT, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    }
    finish(own);
}

/* Start persistent reductions again, with other values */
static void again(uint64_t *own)
{
    int i;

    for (i = 0; i < num_ops; ++i) {
        if (ops[i].is_persistent) {
            ops[i].number = next_number++;
            op_put(&ops[i]);
        }
    }
    start_all(0, num_ops, own);
    finish(own);
    for (i = 0; i < num_ops; ++i) {
        if (ops[i].is_persistent) {
            op_check(&ops[i]);
        }
    }
}

static void init(int first, int end)
{
    int i;

    for (i = first; i < end; ++i) {
        if (ops[i].is_persistent) {
            op_init(&ops[i]);
        }
    }
}

static void one_round(int round)
{
    uint64_t shared = ucx_mp_hash(options.seed * 1000003 + round);
    uint64_t own    = ucx_mp_hash(shared + rank + 1);
    int is_freed    = options.frees && (ucx_mp_random_below(&shared, 4) == 0);
    int i, half;

    num_ops = 1 + ucx_mp_random_below(&shared, options.max_ops);
    half    = ucx_mp_random_below(&shared, num_ops + 1);
    for (i = 0; i < num_ops; ++i) {
        op_draw(&ops[i], &shared, &own);
        ops[i].comm = is_freed && (i % 2) ? NUM_COMMS - 1 : ops[i].comm;
        op_fill(&ops[i]);
    }
    if (is_freed) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[NUM_COMMS - 1]);
    }
    init(0, half);
    start(0, half, &own);
    if (ucx_mp_random_below(&shared, 2)) {
        if (rank == (int)ucx_mp_random_below(&shared, size)) {
            finish(&own); /* while the other ranks wait in others() */
        }
        others(&shared, &own);
    }
    init(half, num_ops);
    if (ucx_mp_random_below(&shared, 2)) {
        start_all(half, num_ops, &own);
    }
    start(half, num_ops, &own);
    if (is_freed) {
        MPI_Comm_free(&comms[NUM_COMMS - 1]);
    }
    if (ucx_mp_random_below(&shared, 2)) {
        messages(&shared, &own);
    } else {
        finish(&own);
    }
    for (i = 0; i < num_ops; ++i) {
        op_check(&ops[i]);
    }
    for (i = ucx_mp_random_below(&shared, 3); i > 0; --i) {
        again(&own);
    }
    for (i = 0; i < num_ops; ++i) {
        op_free(&ops[i]);
    }
}


/* ----------------------------------------------------------------- overlap */

static void compute(double seconds, MPI_Request *request)
{
    const double end = ucx_mp_time() + seconds;
    double next      = ucx_mp_time() + options.pause;
    int is_done;

    while (ucx_mp_time() < end) {
        if ((request != NULL) && (ucx_mp_time() >= next)) {
            MPI_Test(request, &is_done, MPI_STATUS_IGNORE);
            next = ucx_mp_time() + options.pause;
        }
    }
}

/* Return the seconds of a reduction beside so much computing. */
static double timed(float *send, float *recv, int count, double seconds)
{
    MPI_Request request;
    double began, mine, longest;

    MPI_Barrier(MPI_COMM_WORLD);
    began = ucx_mp_time();
    MPI_Iallreduce(send, recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD,
                   &request);
    if (seconds > 0) {
        compute(seconds, &request);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    mine = ucx_mp_time() - began;
    MPI_Allreduce(&mine, &longest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return longest;
}

/* Return a sum of GPU memory of all ranks. */
static op_t device_sum(void)
{
    return (op_t){.count    = 1000,
                  .sent     = 1000,
                  .received = 1000,
                  .kind     = ALLREDUCE,
                  .number   = next_number++,
                  .mem      = UCX_MP_MEM_DEVICE};
}

/* Sum GPU memory on a communicator of all ranks. */
static void reduce_on(MPI_Comm comm, int is_blocking)
{
    MPI_Request request;
    op_t op = device_sum();

    op_fill(&op);
    if (is_blocking) {
        MPI_Allreduce(op.send, op.recv, op.count, MPI_INT, MPI_SUM, comm);
    } else {
        MPI_Iallreduce(op.send, op.recv, op.count, MPI_INT, MPI_SUM, comm,
                       &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    op_check(&op);
    op_free(&op);
}

/* Make communicators before any rank uses a GPU. */
static void make_early(void)
{
    MPI_Request requests[2];

    MPI_Comm_dup(MPI_COMM_WORLD, &early[0]);
    MPI_Comm_dup(MPI_COMM_WORLD, &early[1]);
    MPI_Comm_idup(MPI_COMM_WORLD, &early[2], &requests[0]);
    MPI_Comm_idup(MPI_COMM_WORLD, &early[3], &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    MPI_Comm_dup(MPI_COMM_WORLD, &early[4]);
    MPI_Comm_dup(MPI_COMM_WORLD, &early[5]);
}

/* Let the MPI reject a call of rank 0; no other rank learns of it. Open MPI
   accepts NULL, and rejects calls with neighbours without a topology, by two
   error handlers. After those calls MPICH's own reductions hang. */
static void reject_on(MPI_Comm comm)
{
#ifdef OPEN_MPI
    int found;

    if (rank == 0) {
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        wrong += MPI_Neighbor_allgather(&rank, 1, MPI_INT, &found, 1, MPI_INT,
                                        comm) == MPI_SUCCESS;
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    }
#else
    MPI_Request request;
    int *send;

    if (rank == 0) {
        send = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, sizeof(*send));
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
        wrong += MPI_Iallreduce(send, NULL, 1, MPI_INT, MPI_SUM, comm,
                                &request) == MPI_SUCCESS;
        ucx_mp_mem_free(UCX_MP_MEM_DEVICE, send);
    }
#endif
}

/* Rejected calls leave this communicator's queue alike on all ranks: the first
   barrier may create it only if the first reduction has announced it. */
static void reject_on_early(void)
{
    MPI_Comm *comm = &early[NUM_EARLY - 2];
    int i;

    reject_on(*comm);
    for (i = 0; i < 3; ++i) {
        reduce_on(*comm, 0);
        reject_on(*comm);
        MPI_Barrier(*comm);
    }
    reduce_on(*comm, 0);
    MPI_Comm_free(comm);
}

/* A barrier shall create the queue of this communicator, but the MPI has no
   communicator left for it, so the MPI carries out the reductions. Open MPI
   does not run out of communicators. */
static void without_queue(void)
{
    static MPI_Comm taken[MAX_TAKEN];
    MPI_Comm *comm = &early[NUM_EARLY - 1];
    int count      = 0;
    int i;

    reduce_on(*comm, 0);
    reduce_on(*comm, 0);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    while ((count < MAX_TAKEN) &&
           (MPI_Comm_dup(MPI_COMM_SELF, &taken[count]) == MPI_SUCCESS)) {
        ++count;
    }
    MPI_Barrier(*comm);
    for (i = 0; i < 4; ++i) {
        reduce_on(*comm, i % 2);
    }
    while (count > 0) {
        MPI_Comm_free(&taken[--count]);
    }
    MPI_Comm_free(comm);
}

/* On these communicators GPUs carry out blocking reductions; and non-blocking
   ones, after two of them and any blocking collective. */
static void on_early(int which)
{
    const int calls   = 3;
    const long before = ucx_mp_on_gpus();
    int i, sum        = 0;

    for (i = 0; i < 2; ++i) {
        reduce_on(early[which], 0);
    }
    switch (which) {
    case 0:
        MPI_Barrier(early[which]);
        break;
    case 1:
    case 2:
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, early[which]);
        wrong += (sum != size * (size - 1) / 2);
        break;
    default:
        reduce_on(early[which], 1);
    }
    for (i = 0; i < calls; ++i) {
        reduce_on(early[which], 0);
    }
    if (ucx_mp_on_gpus() - before != calls + (which == 3)) {
        ucx_mp_report("GPUs carried out %ld reductions on early communicator "
                      "%d", ucx_mp_on_gpus() - before, which);
        ++wrong;
    }
    MPI_Comm_free(&early[which]);
}

/* Reduce on new communicators by non-blocking calls alone. GPUs carry out all
   but the first reduction of each. */
static void only_later(void)
{
    const int calls = 5, periodic = 1;
    MPI_Comm made[3];
    long before;
    int i, k;

    MPI_Comm_dup(MPI_COMM_WORLD, &made[0]);
    MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &made[1]);
    MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &periodic, 0, &made[2]);
    before = ucx_mp_on_gpus();
    for (i = 0; i < 3 * calls; ++i) {
        reduce_on(made[i % 3], 0);
    }
    if (ucx_mp_on_gpus() - before != 3 * (calls - 1)) {
        printf("rank %d: GPUs carried out %ld of %d non-blocking reductions on "
               "new communicators\n", rank, ucx_mp_on_gpus() - before,
               3 * calls);
        ++wrong;
    }
    for (k = 0; k < 3; ++k) {
        MPI_Comm_free(&made[k]);
    }
    for (k = 0; k < NUM_EARLY - 2; ++k) {
        on_early(k);
    }
    reject_on_early();
    without_queue();
}

/* Free a communicator with a reduction in progress while a message is sent,
   which the other ranks receive before they begin their part. */
static void free_while_sending(void)
{
    const int bytes      = 4 << 20;
    char *message        = calloc(1, bytes);
    MPI_Request *request = malloc(size * sizeof(*request));
    op_t op              = device_sum();
    MPI_Comm comm;
    int i;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    op_fill(&op);
    for (i = 0; i < 2; ++i) { /* then GPUs queue reductions of it */
        MPI_Allreduce(op.send, op.recv, op.count, MPI_INT, MPI_SUM, comm);
        MPI_Iallreduce(op.send, op.recv, op.count, MPI_INT, MPI_SUM, comm,
                       &request[0]);
        MPI_Wait(&request[0], MPI_STATUS_IGNORE);
    }

    for (i = 1; i < size; ++i) {
        if (rank == 0) {
            MPI_Isend(message, bytes, MPI_BYTE, i, 5, MPI_COMM_WORLD,
                      &request[i]);
        } else if (rank == i) {
            MPI_Recv(message, bytes, MPI_BYTE, 0, 5, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        }
    }
    MPI_Iallreduce(op.send, op.recv, op.count, MPI_INT, MPI_SUM, comm,
                   &request[0]);
    MPI_Comm_free(&comm);
    MPI_Waitall((rank == 0) ? size : 1, request, MPI_STATUSES_IGNORE);
    op_check(&op);
    op_free(&op);
    free(request);
    free(message);
}

static double median(float *send, float *recv, int count, double seconds)
{
    double times[64];
    int i;

    for (i = 0; i < options.calls; ++i) {
        times[i] = timed(send, recv, count, seconds);
    }
    ucx_mp_sort(times, options.calls);
    return times[options.calls / 2];
}

static void overlap(void)
{
    const int count = (int)(options.overlap / sizeof(float));
    float *send     = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, options.overlap);
    float *recv     = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, options.overlap);
    double alone, both;

    ucx_mp_mem_set(UCX_MP_MEM_DEVICE, send, 0, options.overlap);
    (void)median(send, recv, count, 0);
    alone = median(send, recv, count, 0);
    both  = median(send, recv, count, alone);
    if (rank == 0) {
        printf("%zu bytes: %.1f us alone, %.1f us beside as much computing, "
               "%.1f %% overlap\n", options.overlap, alone * 1e6, both * 1e6,
               100 * (2 * alone - both) / alone);
    }
    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, send);
    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, recv);
}

int main(int argc, char **argv)
{
    static const ucx_mp_option_t table[] = {
        UCX_MP_NUMBER("rounds", options.rounds, 0, 1 << 30, "N",
                      "rounds of reductions"),
        UCX_MP_NUMBER("seed", options.seed, 0, 1 << 30, "N",
                      "seed of the random numbers"),
        UCX_MP_NUMBER("host", options.host, 0, 100, "PERCENT",
                      "share of a rank's buffers in host memory"),
        UCX_MP_NUMBER("ops", options.max_ops, 1, MAX_OPS, "N",
                      "maximum reductions in progress"),
        UCX_MP_NUMBER("persistent", options.persistent, 0, 100, "PERCENT",
                      "share of persistent reductions, if the MPI has them"),
        UCX_MP_NUMBER("frees", options.frees, 0, 1, "1",
                      "free communicators with reductions in progress"),
        UCX_MP_NUMBER("made", options.made, 0, 1, "1",
                      "non-blocking reductions on new and early communicators"),
        UCX_MP_NUMBER("multiple", options.multiple, 0, 1, "1",
                      "begin with MPI_THREAD_MULTIPLE"),
        UCX_MP_SIZE("max-size", options.max_size, 1024, (size_t)1 << 28,
                    "largest buffer"),
        UCX_MP_SIZE("overlap", options.overlap, 0, (size_t)1 << 30,
                    "measure the overlap of this size"),
        UCX_MP_NUMBER("calls", options.calls, 1, 64, "N",
                      "measured calls of each kind"),
        UCX_MP_SECONDS("pause", options.pause,
                       "time of computing between two MPI_Test"),
        {.name = NULL}
    };
    long mine, all;
    int i, level, total;

    ucx_mp_program = "ucx_mp_outstanding";
    ucx_mp_parse_options(argc, argv, "Checks reductions in progress.", table);
    MPI_Init_thread(&argc, &argv,
                    options.multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE,
                    &level);
    ucx_mp_get_rank(&rank, &size);
    if (options.made) {
        make_early();
    }
    ucx_mp_gpu_require(rank);

    comms[0] = MPI_COMM_WORLD;
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &comms[2]);
    for (i = 0; i < NUM_COMMS; ++i) {
        comm_rank[i] = (i == 2) ? size - 1 - rank : rank;
    }

    if (options.overlap > 0) {
        overlap();
    }
    for (i = 0; i < options.rounds; ++i) {
        one_round(i);
    }
    if (options.frees) {
        free_while_sending();
    }
    if (options.made) {
        only_later();
    }

    mine = ucx_mp_on_gpus();
    MPI_Reduce(&mine, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Allreduce(&wrong, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("ucx_mp_outstanding: %d rounds, %d reductions, %d of them by a "
               "persistent request, %d ranks, %ld times GPUs did a rank's "
               "part, %d wrong\n", options.rounds, next_number,
               persistent_starts, size, all, total);
    }
    return ucx_mp_finish(total > 0);
}
