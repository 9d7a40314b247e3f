/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Ranks that use several GPUs: random messages and collectives whose buffers
 * lie in any context of any GPU, primary or created by the driver's API, while
 * another context is current, or none. The program sometimes enables access
 * between its contexts, and checks that it was not enabled before. Every byte
 * is compared: messages by their pattern, collectives with the MPI's own on
 * host memory.
 *
 * With --threads each thread has a communicator and the contexts of one GPU.
 */
#include "driver.h"
#include "gpu.h"
#include "on_gpus.h"
#include "pattern.h"
#include "util.h"

#include <mpi.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPUS_MAX         16
#define GPUS_MAX_THREADS 8
#define GPUS_MAX_RANKS   8
#define GPUS_GUARD       256 /* bytes around a buffer */
#define GPUS_POISON      0x5a
#define GPUS_WINDOW      3
#define GPUS_KEPT        4 /* pieces of memory a context */

/* A context: the primary one of a GPU, or another one */
typedef struct {
    void    *handle;
    int     gpu;
    bool    reaches[2 * GPUS_MAX]; /* access enabled by the program */
    uint8_t *kept[GPUS_KEPT];      /* memory to use again */
    size_t  kept_size[GPUS_KEPT];  /* bytes of this memory */
} place_t;

typedef struct {
    place_t *place;
    uint8_t *memory;
    size_t  capacity;
    uint8_t *ptr; /* behind the guard, and not aligned */
    size_t  size;
} buffer_t;

typedef struct {
    MPI_Comm  comm;
    pthread_t thread;
    int       number;
    int       gpu; /* the only GPU; -1: all */
    place_t   places[2 * GPUS_MAX];
    int       num_places;
    uint64_t  state;
    long      messages, large, collectives, wrong;
} worker_t;

enum {
    CALL_ALLREDUCE,
    CALL_REDUCE,
    CALL_BCAST,
    CALL_ALLGATHER,
    CALL_ALLTOALL,
    CALL_REDUCE_SCATTER,
    CALL_LAST
};

static const char *const call_names[] = {
    "MPI_Allreduce", "MPI_Reduce", "MPI_Bcast", "MPI_Allgather",
    "MPI_Alltoall", "MPI_Reduce_scatter_block"
};

static int gpus_rank, gpus_ranks, gpus_count, gpus_threads;
static long gpus_steps = 300;
static uint64_t gpus_seed = 1;
static size_t gpus_max_size = (size_t)4 << 20;


/* --------------------------------------------------------------- contexts */

static void use(const place_t *place)
{
    UCX_MP_DRIVER(ctx_set, (place == NULL) ? NULL : place->handle);
}

static void driver_init(void)
{
    gpus_count = ucx_mp_gpu_require(gpus_rank);
    if (gpus_count > GPUS_MAX) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "at most %d GPUs", GPUS_MAX);
    }

    ucx_mp_driver_load();
}

/* Contexts are created on first use: a transport that looks at a GPU before
   must find them later */
static place_t *draw_place(worker_t *self)
{
    const uint64_t random = ucx_mp_random_below(&self->state, 3u * gpus_count);
    const int gpu         = (self->gpu >= 0) ? self->gpu : (int)random / 3;
    place_t *place        = &self->places[2 * gpu + (random % 3 == 0)];
    void *popped;

    if ((place->handle == NULL) && (random % 3 == 0)) {
        UCX_MP_DRIVER(ctx_create, &place->handle, 0, gpu);
        UCX_MP_DRIVER(ctx_pop, &popped);
    } else if (place->handle == NULL) {
        UCX_MP_DRIVER(ctx_retain, &place->handle, gpu);
    }
    place->gpu = gpu;
    return place;
}

/* The program enables access once: no other code may have enabled it, or
   disabled it afterwards */
static void enable(worker_t *self)
{
    place_t *user  = draw_place(self);
    place_t *owner = draw_place(self);
    bool *reaches  = &user->reaches[owner - self->places];
    int can, error;

    UCX_MP_DRIVER(can_access_peer, &can, user->gpu, owner->gpu);
    if (!can || (user->gpu == owner->gpu)) {
        return;
    }

    use(user);
    error = ucx_mp_driver.peer_enable(owner->handle, 0);
    if ((error == 0) == *reaches) {
        ucx_mp_report("access from GPU %d to GPU %d, which the program had%s "
                      "enabled: %s", user->gpu, owner->gpu,
                      *reaches ? "" : " not", ucx_mp_gpu_error_name(error));
        ++self->wrong;
    }
    *reaches = true;
}


/* ---------------------------------------------------------------- buffers */

/* Memory that peers may already have mapped, if it is large enough */
static void memory_take(buffer_t *buffer, size_t size)
{
    place_t *place = buffer->place;
    int i;

    for (i = 0; i < GPUS_KEPT; ++i) {
        if (place->kept_size[i] >= size) {
            buffer->memory      = place->kept[i];
            buffer->capacity    = place->kept_size[i];
            place->kept_size[i] = 0;
            return;
        }
    }
    buffer->memory   = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, size);
    buffer->capacity = size;
}

static void memory_give(const buffer_t *buffer, worker_t *self)
{
    place_t *place = buffer->place;
    int i;

    for (i = 0; ucx_mp_random_below(&self->state, 16) && (i < GPUS_KEPT); ++i) {
        if (place->kept_size[i] == 0) {
            place->kept[i]      = buffer->memory;
            place->kept_size[i] = buffer->capacity;
            return;
        }
    }
    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, buffer->memory);
}

static void buffer_make(buffer_t *buffer, worker_t *self, size_t size)
{
    buffer->place = draw_place(self);
    buffer->size  = size;
    use(buffer->place);
    memory_take(buffer, size + 3 * GPUS_GUARD);
    buffer->ptr = buffer->memory + GPUS_GUARD +
                  4 * ucx_mp_random_below(&self->state, GPUS_GUARD / 4);
    ucx_mp_mem_set(UCX_MP_MEM_DEVICE, buffer->memory, GPUS_POISON,
                   size + 3 * GPUS_GUARD);
}

static void complain(worker_t *self, const buffer_t *buffer, const char *what,
                     size_t offset)
{
    ucx_mp_report("thread %d: WRONG data of %s, %zu bytes on GPU %d, at %zd",
                  self->number, what, buffer->size, buffer->place->gpu,
                  (ptrdiff_t)offset);
    ++self->wrong;
}

/* Free or keep its memory. */
static void buffer_done(buffer_t *buffer, worker_t *self, const char *what)
{
    const size_t before = buffer->ptr - buffer->memory;
    ucx_mp_pattern_error_t error;

    use(buffer->place);
    if (ucx_mp_pattern_check_value(UCX_MP_MEM_DEVICE, buffer->memory, before,
                                   GPUS_POISON, &error) ||
        ucx_mp_pattern_check_value(UCX_MP_MEM_DEVICE,
                                   buffer->ptr + buffer->size,
                                   3 * GPUS_GUARD - before, GPUS_POISON,
                                   &error)) {
        complain(self, buffer, what, error.offset);
    }
    memory_give(buffer, self);
}

/* Any context is current when MPI is called, or none, and it must be the same
   afterwards */
static void *elsewhere(worker_t *self)
{
    const place_t *place = (ucx_mp_random_below(&self->state, 8) == 0) ?
                                   NULL : draw_place(self);

    use(place);
    return (place == NULL) ? NULL : place->handle;
}

static void back(worker_t *self, void *expected)
{
    void *current;

    UCX_MP_DRIVER(ctx_get, &current);
    if (current != expected) {
        ucx_mp_report("another context is current after MPI than before");
        ++self->wrong;
    }
}


/* ------------------------------------------------------------------ steps */

static void check_mpi(int rc, const char *what)
{
    char text[MPI_MAX_ERROR_STRING];
    int length;

    if (rc != MPI_SUCCESS) {
        MPI_Error_string(rc, text, &length);
        ucx_mp_die(UCX_MP_EXIT_WRONG, "%s fails: %s", what, text);
    }
}

/* A quarter of all sizes is 1 MiB or more, if allowed */
static size_t draw_size(uint64_t *state)
{
    const size_t least = ((ucx_mp_random_below(state, 4) == 0) &&
                          (gpus_max_size > (size_t)1 << 20)) ?
                                 (size_t)1 << 20 : 1;

    return ucx_mp_random_size(state, least, gpus_max_size);
}

/* A window around the ring; all ranks know `seed` */
static void messages(worker_t *self, uint64_t seed)
{
    const int step   = 1 + (int)(seed % (unsigned)(gpus_ranks - 1));
    const int to     = (gpus_rank + step) % gpus_ranks;
    const int from   = (gpus_rank + gpus_ranks - step) % gpus_ranks;
    const int window = 1 + (int)((seed >> 8) % GPUS_WINDOW);
    buffer_t in[GPUS_WINDOW], out[GPUS_WINDOW];
    MPI_Request requests[2 * GPUS_WINDOW];
    ucx_mp_pattern_error_t error;
    uint64_t sent, got, state;
    void *current;
    int i;

    for (i = 0; i < window; ++i) {
        state = sent = ucx_mp_hash(seed + 64 * gpus_rank + i + 1);
        buffer_make(&out[i], self, draw_size(&state));
        ucx_mp_pattern_fill(UCX_MP_MEM_DEVICE, out[i].ptr, out[i].size, sent);
        state = ucx_mp_hash(seed + 64 * from + i + 1);
        buffer_make(&in[i], self, draw_size(&state));
    }

    current = elsewhere(self);
    for (i = 0; i < window; ++i) {
        check_mpi(MPI_Irecv(in[i].ptr, (int)in[i].size, MPI_BYTE, from, i,
                            self->comm, &requests[i]), "MPI_Irecv");
        check_mpi(MPI_Isend(out[i].ptr, (int)out[i].size, MPI_BYTE, to, i,
                            self->comm, &requests[window + i]), "MPI_Isend");
    }
    back(self, current);
    current = elsewhere(self);
    check_mpi(MPI_Waitall(2 * window, requests, MPI_STATUSES_IGNORE),
              "MPI_Waitall");
    back(self, current);

    for (i = 0; i < window; ++i) {
        got = ucx_mp_hash(seed + 64 * from + i + 1);
        use(in[i].place);
        if (ucx_mp_pattern_check(UCX_MP_MEM_DEVICE, in[i].ptr, in[i].size, got,
                                 0, GPUS_POISON, &error)) {
            complain(self, &in[i], "a message", error.offset);
        }
        self->large += (in[i].size >= (size_t)1 << 20);
        buffer_done(&in[i], self, "a message");
        buffer_done(&out[i], self, "a message that was sent");
    }
    self->messages += window;
}

static int call(int what, const void *send, void *recv, int count, int root,
                MPI_Comm comm)
{
    switch (what) {
    case CALL_ALLREDUCE:
        return MPI_Allreduce(send, recv, count, MPI_INT, MPI_SUM, comm);
    case CALL_REDUCE:
        return MPI_Reduce(send, recv, count, MPI_INT, MPI_SUM, root, comm);
    case CALL_BCAST:
        return MPI_Bcast(recv, count, MPI_INT, root, comm);
    case CALL_ALLGATHER:
        return MPI_Allgather(send, count, MPI_INT, recv, count, MPI_INT, comm);
    case CALL_ALLTOALL:
        return MPI_Alltoall(send, count, MPI_INT, recv, count, MPI_INT, comm);
    default:
        return MPI_Reduce_scatter_block(send, recv, count, MPI_INT, MPI_SUM,
                                        comm);
    }
}

/* Run it on host memory and on GPUs. Bytes that neither writes are the same at
   the start. */
static void collective(worker_t *self, uint64_t seed)
{
    uint64_t state   = seed;
    const int what   = (int)ucx_mp_random_below(&state, CALL_LAST);
    const int root   = (int)ucx_mp_random_below(&state, gpus_ranks);
    const size_t all = draw_size(&state);
    const int count  = (int)(all / sizeof(int) / gpus_ranks) + 1;
    const size_t num = (size_t)count * gpus_ranks;
    int *host[3];
    buffer_t buffer[2];
    void *current;
    size_t k;
    int i;

    for (i = 0; i < 3; ++i) {
        host[i] = malloc(num * sizeof(int));
        if (host[i] == NULL) {
            ucx_mp_die(UCX_MP_EXIT_WRONG, "no memory for %zu numbers", num);
        }
    }

    for (i = 0; i < 2; ++i) {
        for (k = 0; k < num; ++k) {
            host[i][k] = (int)(ucx_mp_hash(seed + 2 * gpus_rank + i +
                                           (k << 8)) >> 40);
        }
        buffer_make(&buffer[i], self, num * sizeof(int));
        ucx_mp_mem_write(UCX_MP_MEM_DEVICE, buffer[i].ptr, host[i],
                         buffer[i].size);
    }

    current = elsewhere(self);
    check_mpi(call(what, host[0], host[1], count, root, self->comm),
              call_names[what]);
    check_mpi(call(what, buffer[0].ptr, buffer[1].ptr, count, root,
                   self->comm), call_names[what]);
    back(self, current);

    for (i = 0; i < 2; ++i) {
        use(buffer[i].place);
        ucx_mp_mem_read(UCX_MP_MEM_DEVICE, host[2], buffer[i].ptr,
                        buffer[i].size);
        k = 0;
        while ((k < num) && (host[2][k] == host[i][k])) {
            ++k;
        }
        if (k < num) {
            complain(self, &buffer[i], call_names[what], k * sizeof(int));
        }
        buffer_done(&buffer[i], self, call_names[what]);
        free(host[i]);
    }
    free(host[2]);
    ++self->collectives;
}

static void *work(void *arg)
{
    worker_t *self = arg;
    uint64_t seed;
    long step;

    self->state = ucx_mp_hash(gpus_seed + 1000 * gpus_rank + self->number + 1);
    for (step = 0; (step < gpus_steps) && (self->wrong < 10); ++step) {
        seed = ucx_mp_hash(gpus_seed + ((uint64_t)step << 20) +
                           ((uint64_t)self->number << 52));
        if (ucx_mp_random_below(&self->state, 8) == 0) {
            enable(self);
        }
        if (seed % 2 == 0) {
            messages(self, seed / 2);
        } else {
            collective(self, seed / 2);
        }
    }
    return NULL;
}


/* ------------------------------------------------------------------- main */

static void parse(int argc, char **argv)
{
    static const ucx_mp_option_t options[] = {
        UCX_MP_NUMBER("steps", gpus_steps, 1, 1 << 30, "N", "of each thread"),
        UCX_MP_NUMBER("seed", gpus_seed, 0, 1 << 30, "N",
                      "seed of the random numbers"),
        UCX_MP_SIZE("max-size", gpus_max_size, 0, (size_t)1 << 28,
                    "largest buffer, 256M at most"),
        UCX_MP_NUMBER("threads", gpus_threads, 1, GPUS_MAX_THREADS, "N",
                      "each with a GPU of its own"),
        {.name = NULL}
    };

    ucx_mp_parse_options(argc, argv, "Random messages and collectives of ranks "
                         "that use several GPUs.", options);
}

static void workers_run(worker_t *workers, int count)
{
    int i;

    for (i = 0; i < count; ++i) {
        workers[i].number = i;
        workers[i].gpu    = (gpus_threads == 0) ? -1 : i % gpus_count;
        check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &workers[i].comm),
                  "MPI_Comm_dup");
    }

    for (i = 1; i < count; ++i) {
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) {
            ucx_mp_die(UCX_MP_EXIT_WRONG, "no thread");
        }
    }
    work(&workers[0]);
    for (i = 1; i < count; ++i) {
        pthread_join(workers[i].thread, NULL);
    }
}

int main(int argc, char **argv)
{
    static worker_t workers[GPUS_MAX_THREADS];
    long mine[5] = {0}, all[5];
    int i, count, wanted, provided;

    ucx_mp_program = "ucx_mp_gpus";
    parse(argc, argv);
    count  = (gpus_threads == 0) ? 1 : gpus_threads;
    wanted = (count == 1) ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE;
    MPI_Init_thread(&argc, &argv, wanted, &provided);
    ucx_mp_get_rank(&gpus_rank, &gpus_ranks);
    if ((provided < wanted) || (gpus_ranks < 2) ||
        (gpus_ranks > GPUS_MAX_RANKS)) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "needs 2 to %d ranks, and an MPI for "
                   "threads", GPUS_MAX_RANKS);
    }

    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    driver_init();
    workers_run(workers, count);
    for (i = 0; i < count; ++i) {
        mine[0] += workers[i].messages;
        mine[1] += workers[i].large;
        mine[2] += workers[i].collectives;
        mine[4] += workers[i].wrong;
    }

    mine[3] = ucx_mp_on_gpus();
    MPI_Allreduce(mine, all, 5, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (gpus_rank == 0) {
        printf("ucx_mp_gpus: %d threads, %d GPUs a rank, %ld messages (%ld of "
               "1 MiB or more), %ld times a rank called a collective, %ld "
               "times GPUs did its part, %ld wrong\n", count, gpus_count,
               all[0], all[1], all[2], all[3], all[4]);
    }
    return ucx_mp_finish(all[4] > 0);
}
