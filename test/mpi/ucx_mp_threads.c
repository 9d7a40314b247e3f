/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Several threads per rank, each with a communicator and a GPU of its own, send
 * windows of messages of any size between host and GPU memory around the ring
 * of ranks, concurrently, and compare every byte. Some replace their memory
 * between windows. With --collectives they also sum and broadcast GPU memory
 * after each window: each communicator's calls run while others' are in flight.
 * The queue of a communicator's reductions must not replace its error handler.
 * With --freed they first free the requests of receives, and receive messages
 * sent later, while another thread completes requests; and their threads send
 * datatypes that they free before the messages complete.
 */
#include "gpu.h"
#include "on_gpus.h"
#include "pattern.h"
#include "util.h"

#include <mpi.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS_MAX    16
#define THREADS_WINDOW 4
#define THREADS_POISON 0x5a

typedef struct {
    MPI_Comm  comm;
    pthread_t thread;
    int       number;
    int       wrong;
    long      transfers;
    long      collectives;
} thread_t;

typedef struct {
    ucx_mp_mem_t mem;
    uint8_t      *ptr;
    size_t       size;
} buffer_t;

static int threads_rank, threads_ranks, threads_count = 4, threads_windows = 40;
static int threads_collectives, threads_freed;
static size_t threads_max_size = 16 << 20, threads_stack;

static void buffer_renew(buffer_t *buffer, ucx_mp_mem_t mem, size_t size)
{
    if (buffer->ptr != NULL) {
        ucx_mp_mem_free(buffer->mem, buffer->ptr);
    }

    buffer->mem  = mem;
    buffer->size = size;
    buffer->ptr  = ucx_mp_mem_alloc(mem, (size > 0) ? size : 1);
}

/* Return the seed of a message, known to both ends. */
static uint64_t message_seed(int from, int thread, int window, int message)
{
    return ucx_mp_hash(((uint64_t)from << 48) + ((uint64_t)thread << 32) +
                       ((uint64_t)window << 8) + (uint64_t)message);
}

static size_t message_size(uint64_t seed)
{
    return ucx_mp_random_size(&seed, 1, threads_max_size);
}

static ucx_mp_mem_t random_mem(uint64_t *state)
{
    static const ucx_mp_mem_t mems[] = {UCX_MP_MEM_DEVICE, UCX_MP_MEM_DEVICE,
                                        UCX_MP_MEM_HOST, UCX_MP_MEM_PINNED};

    return mems[ucx_mp_random_below(state, 4)];
}

/* Use the memory again, or replace it. */
static void buffer_want(buffer_t *buffer, size_t size, uint64_t *state)
{
    if ((buffer->size < size) || (ucx_mp_random_below(state, 3) == 0)) {
        buffer_renew(buffer, random_mem(state), size);
    }
}

static void check(thread_t *self, const buffer_t *buffer, uint64_t seed)
{
    const size_t size = message_size(seed);
    ++self->transfers;
    self->wrong |= ucx_mp_pattern_is_wrong(buffer->mem, buffer->ptr, size, seed,
                                           THREADS_POISON, "thread %d",
                                           self->number);
}

static void window(thread_t *self, int number, buffer_t *out, buffer_t *in,
                   uint64_t *state)
{
    const int next = (threads_rank + 1) % threads_ranks;
    const int last = (threads_rank + threads_ranks - 1) % threads_ranks;
    MPI_Request requests[2 * THREADS_WINDOW];
    uint64_t sent, received;
    int i;

    for (i = 0; i < THREADS_WINDOW; ++i) {
        received = message_seed(last, self->number, number, i);
        buffer_want(&in[i], message_size(received), state);
        ucx_mp_mem_set(in[i].mem, in[i].ptr, THREADS_POISON,
                       message_size(received));
        MPI_Irecv(in[i].ptr, (int)message_size(received), MPI_BYTE, last, i,
                  self->comm, &requests[i]);
    }

    for (i = 0; i < THREADS_WINDOW; ++i) {
        sent = message_seed(threads_rank, self->number, number, i);
        buffer_want(&out[i], message_size(sent), state);
        ucx_mp_pattern_fill(out[i].mem, out[i].ptr, message_size(sent), sent);
        MPI_Isend(out[i].ptr, (int)message_size(sent), MPI_BYTE, next, i,
                  self->comm, &requests[THREADS_WINDOW + i]);
    }

    MPI_Waitall(2 * THREADS_WINDOW, requests, MPI_STATUSES_IGNORE);
    for (i = 0; i < THREADS_WINDOW; ++i) {
        check(self, &in[i], message_seed(last, self->number, number, i));
    }
}

/* Return element @a i of a rank's term; the sum over all ranks stays below
   2^31. */
static int32_t addend(uint64_t seed, int rank, size_t i)
{
    return (int32_t)(ucx_mp_hash(seed + (uint64_t)rank * 0x10001 + i) >> 44);
}

static int32_t sum(uint64_t seed, size_t i)
{
    int32_t all = 0;
    int rank;

    for (rank = 0; rank < threads_ranks; ++rank) {
        all += addend(seed, rank, i);
    }
    return all;
}

/* Sum over all ranks, in place or not, and broadcast one rank's result times
   -1. */
static void collective(thread_t *self, uint64_t seed)
{
    const size_t count = 1 + message_size(seed) / sizeof(int32_t);
    const size_t size  = count * sizeof(int32_t);
    const int root     = (int)(seed % (uint64_t)threads_ranks);
    const int in_place = (seed >> 8) & 1;
    int32_t *gpu       = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, size);
    int32_t *result    = in_place ? gpu :
                                    ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, size);
    int32_t *host      = malloc(size);
    size_t i, wrong    = 0;

    if (host == NULL) {
        ucx_mp_die(UCX_MP_EXIT_WRONG, "no memory");
    }

    for (i = 0; i < count; ++i) {
        host[i] = addend(seed, threads_rank, i);
    }

    ucx_mp_mem_write(UCX_MP_MEM_DEVICE, gpu, host, size);
    MPI_Allreduce(in_place ? MPI_IN_PLACE : gpu, result, (int)count,
                  MPI_INT32_T, MPI_SUM, self->comm);
    ucx_mp_mem_read(UCX_MP_MEM_DEVICE, host, result, size);
    for (i = 0; i < count; ++i) {
        wrong  += (host[i] != sum(seed, i));
        host[i] = (threads_rank == root) ? -host[i] : 0;
    }

    ucx_mp_mem_write(UCX_MP_MEM_DEVICE, result, host, size);
    MPI_Bcast(result, (int)count, MPI_INT32_T, root, self->comm);
    ucx_mp_mem_read(UCX_MP_MEM_DEVICE, host, result, size);
    for (i = 0; i < count; ++i) {
        wrong += (host[i] != -sum(seed, i));
    }

    if (wrong > 0) {
        ucx_mp_report("WRONG data, thread %d: %zu of %zu elements of a sum and "
                      "its broadcast%s", self->number, wrong, 2 * count,
                      in_place ? ", in place" : "");
        self->wrong = 1;
    }

    ++self->collectives;
    free(host);
    if (!in_place) {
        ucx_mp_mem_free(UCX_MP_MEM_DEVICE, result);
    }
    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, gpu);
}

/* Send host memory with gaps, and free the datatype before the messages
   complete: the MPI destroys it in the middle of its progress. */
static void send_freed_types(thread_t *self)
{
    enum { COUNT = 150 };
    const int next = (threads_rank + 1) % threads_ranks;
    const int last = (threads_rank + threads_ranks - 1) % threads_ranks;
    int out[2 * COUNT] = {0}, in[2 * COUNT] = {0}, sum, i, done;
    MPI_Request requests[2];
    MPI_Datatype type;

    for (i = 1; i <= threads_freed; ++i) {
        out[0] = out[2 * (COUNT - 1)] = i;
        MPI_Type_vector(COUNT, 1, 2, MPI_INT, &type);
        MPI_Type_commit(&type);
        MPI_Irecv(in, 1, type, last, 0, self->comm, &requests[0]);
        MPI_Isend(out, 1, type, next, 0, self->comm, &requests[1]);
        MPI_Type_free(&type);
        MPI_Waitany(2, requests, &done, MPI_STATUS_IGNORE);
        MPI_Waitany(2, requests, &done, MPI_STATUS_IGNORE);
        MPI_Allreduce(&i, &sum, 1, MPI_INT, MPI_SUM, self->comm);
        if ((in[0] != i) || (in[2 * (COUNT - 1)] != i) ||
            (sum != threads_ranks * i)) {
            ucx_mp_report("WRONG data, thread %d: message %d of a freed "
                          "datatype", self->number, i);
            self->wrong = 1;
        }
    }
}

static void *thread_main(void *arg)
{
    buffer_t out[THREADS_WINDOW] = {{0}}, in[THREADS_WINDOW] = {{0}};
    thread_t *self               = arg;
    uint64_t state               = message_seed(threads_rank, self->number, -1,
                                                0);
    int i, k;

    ucx_mp_gpu_require(threads_rank + self->number);
    send_freed_types(self);
    for (i = 0; i < threads_windows; ++i) {
        window(self, i, out, in, &state);
        for (k = 0; k < threads_collectives; ++k) {
            collective(self, message_seed(-1, self->number, i, k));
        }
    }

    MPI_Barrier(self->comm);
    for (i = 0; i < THREADS_WINDOW; ++i) {
        ucx_mp_mem_free(out[i].mem, out[i].ptr);
        ucx_mp_mem_free(in[i].mem, in[i].ptr);
    }
    return NULL;
}

static void *test_always(void *is_over)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int flag;

    while (!__atomic_load_n((int*)is_over, __ATOMIC_ACQUIRE)) {
        MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    }
    return NULL;
}

/* Return the number of freed receives without data, although a message that was
   sent later has arrived. Another thread tests requests meanwhile. */
static int freed_receives(void)
{
    const int count = 1 << 18; /* of an int in two */
    const int next  = (threads_rank + 1) % threads_ranks;
    const int last  = (threads_rank + threads_ranks - 1) % threads_ranks;
    int *out        = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, count * 8);
    int *in         = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, count * 8);
    int is_over     = 0, wrong = 0, i, token, got;
    MPI_Request request;
    MPI_Datatype type;
    pthread_t thread;

    MPI_Type_vector(count, 1, 2, MPI_INT, &type);
    MPI_Type_commit(&type);
    pthread_create(&thread, NULL, test_always, &is_over);
    for (i = 1; i <= threads_freed; ++i) {
        ucx_mp_mem_put(UCX_MP_MEM_DEVICE, out + 2 * (count - 1), &i, sizeof(i));
        MPI_Irecv(in, 1, type, last, 0, MPI_COMM_WORLD, &request);
        MPI_Request_free(&request);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Send(out, 1, type, next, 0, MPI_COMM_WORLD);
        MPI_Sendrecv(&i, 1, MPI_INT, next, 1, &token, 1, MPI_INT, last, 1,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        ucx_mp_mem_get(UCX_MP_MEM_DEVICE, &got, in + 2 * (count - 1),
                       sizeof(got));
        wrong += (got != token);
    }

    __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    MPI_Type_free(&type);
    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, in);
    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, out);
    if (wrong > 0) {
        ucx_mp_report("WRONG data, %d of %d freed receives", wrong,
                      threads_freed);
    }
    return wrong;
}

typedef struct {
    MPI_Comm       comm;
    MPI_Errhandler handler;
    int            is_over;
    int            others; /* looks that found another handler */
} looker_t;

static void not_called(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    (void)code;
}

static void *look_always(void *arg)
{
    looker_t *looker = arg;
    MPI_Errhandler found;

    while (!__atomic_load_n(&looker->is_over, __ATOMIC_ACQUIRE)) {
        MPI_Comm_get_errhandler(looker->comm, &found);
        looker->others += (found != looker->handler);
        MPI_Errhandler_free(&found);
    }
    return NULL;
}

/* Return the number of times that a communicator's error handler is another,
   while its barrier creates the queue of its non-blocking reductions. */
static int other_handlers(void)
{
    float *gpu = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, 2 * sizeof(*gpu));
    looker_t looker = {0};
    MPI_Request request;
    pthread_t thread;
    int i;

    ucx_mp_mem_set(UCX_MP_MEM_DEVICE, gpu, 0, sizeof(*gpu));
    MPI_Comm_idup(MPI_COMM_WORLD, &looker.comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Comm_create_errhandler(not_called, &looker.handler);
    MPI_Comm_set_errhandler(looker.comm, looker.handler);
    for (i = 0; i < 2; ++i) {
        MPI_Iallreduce(gpu, gpu + 1, 1, MPI_FLOAT, MPI_SUM, looker.comm,
                       &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }

    pthread_create(&thread, NULL, look_always, &looker);
    MPI_Barrier(looker.comm);
    __atomic_store_n(&looker.is_over, 1, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    MPI_Errhandler_free(&looker.handler);
    MPI_Comm_free(&looker.comm);
    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, gpu);
    if (looker.others > 0) {
        ucx_mp_report("another error handler %d times", looker.others);
    }
    return looker.others > 0;
}

static void parse(int argc, char **argv)
{
    static const ucx_mp_option_t options[] = {
        UCX_MP_NUMBER("threads", threads_count, 1, THREADS_MAX, "N",
                      "of each rank"),
        UCX_MP_NUMBER("windows", threads_windows, 1, 1 << 20, "N",
                      "of messages, of each thread"),
        UCX_MP_NUMBER("collectives", threads_collectives, 0, 1 << 20, "N",
                      "after each window"),
        UCX_MP_NUMBER("freed", threads_freed, 0, 1 << 20, "N",
                      "receives whose requests are freed"),
        UCX_MP_SIZE("stack", threads_stack, 16 << 10, 1 << 30,
                    "of each thread; the system's default without it"),
        UCX_MP_SIZE("max-size", threads_max_size, 1, (size_t)1 << 30,
                    "largest message, 1G at most"),
        {.name = NULL}
    };

    ucx_mp_parse_options(argc, argv, "Windows of messages and collectives of "
                         "threads, at once.", options);
}

static void start(thread_t *self)
{
    pthread_attr_t attr;

    pthread_attr_init(&attr);
    if (((threads_stack > 0) &&
         (pthread_attr_setstacksize(&attr, threads_stack) != 0)) ||
        (pthread_create(&self->thread, &attr, thread_main, self) != 0)) {
        ucx_mp_die(UCX_MP_EXIT_WRONG, "no thread %d", self->number);
    }
    pthread_attr_destroy(&attr);
}

int main(int argc, char **argv)
{
    thread_t threads[THREADS_MAX] = {{0}};
    long mine[4] = {0}, all[4];
    int i, level;

    ucx_mp_program = "ucx_mp_threads";
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    ucx_mp_get_rank(&threads_rank, &threads_ranks);
    parse(argc, argv);
    if ((level < MPI_THREAD_MULTIPLE) || (threads_ranks < 2)) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "needs an MPI for many threads, and two "
                   "ranks");
    }

    ucx_mp_gpu_require(threads_rank);
    mine[1] = freed_receives();
    if (threads_collectives > 0) {
        mine[1] += other_handlers();
    }
    for (i = 0; i < threads_count; ++i) {
        threads[i].number = i;
        MPI_Comm_dup(MPI_COMM_WORLD, &threads[i].comm);
    }

    for (i = 0; i < threads_count; ++i) {
        start(&threads[i]);
    }

    for (i = 0; i < threads_count; ++i) {
        pthread_join(threads[i].thread, NULL);
        MPI_Comm_free(&threads[i].comm);
        mine[0] += threads[i].transfers;
        mine[1] += threads[i].wrong;
        mine[2] += threads[i].collectives;
    }

    mine[3] = ucx_mp_on_gpus();
    MPI_Allreduce(mine, all, 4, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (threads_rank == 0) {
        printf("ucx_mp_threads: %d threads a rank, %ld transfers, %ld wrong\n",
               threads_count, all[0], all[1]);
        if (threads_collectives > 0) {
            printf("ucx_mp_threads: %ld times a thread added and broadcast, "
                   "%ld times on GPUs\n", all[2], all[3]);
        }
    }

    return ucx_mp_finish(all[1] > 0);
}
