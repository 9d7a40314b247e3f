/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Temporary buffers. Each step allocates GPU memory, fills it, sends it to one
 * rank, receives from another, compares every byte and frees; some buffers may
 * be kept for a few steps. The memory in use on the ranks' GPUs, by all
 * processes, is read after a tenth of the steps, without buffers of this
 * program, and at the end. The difference shows memory kept for freed buffers.
 */
#include "driver.h"
#include "gpu.h"
#include "pattern.h"
#include "util.h"

#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>

#define CHURN_POISON    0x5a
#define CHURN_PIECE     ((size_t)2 << 20)
#define CHURN_MAX_SIZE  ((size_t)256 << 20)
#define CHURN_MAX_SLOTS 64

/* Kinds of allocation; CHURN_MIXED: each time another of the kinds above it */
enum {
    CHURN_ALLOC, /* cuMemAlloc */
    CHURN_ASYNC, /* cuMemAllocAsync, of the device's pool */
    CHURN_POOL,  /* of a pool that can be shared */
    CHURN_VMM,   /* adjacent pieces, as in PyTorch's expandable segments */
    CHURN_RANGE, /* pieces that come and go at the end of a kept range */
    CHURN_MIXED,
    CHURN_MANAGED
};

static const char *const churn_kinds[] = {"alloc", "async", "pool", "vmm",
                                          "range", "mixed", "managed", NULL};

typedef struct {
    ucx_mp_ptr_t ptr;
    size_t       size; /* 0: no buffer */
    int          kind;
    ucx_mp_ptr_t range; /* VMM, RANGE: reserved once, for any size */
} churn_buf_t;

static struct {
    uint64_t steps;
    uint64_t seed;
    size_t   min_size;
    size_t   max_size;
    size_t   slack;
    int      kind;
    int      num_slots;
} churn = {
    .steps    = 1000,
    .min_size = 1,
    .max_size = (size_t)16 << 20,
    .slack    = (size_t)256 << 20
};

static int churn_rank, churn_ranks, churn_gpus;
static void *churn_pool;
static unsigned long long churn_wrong;
static churn_buf_t churn_send[CHURN_MAX_SLOTS], churn_recv[CHURN_MAX_SLOTS];

static void churn_load(void)
{
    churn_gpus = ucx_mp_gpu_require(churn_rank);
    ucx_mp_driver_load();
    churn_pool = ucx_mp_driver_pool();
}

/* Return the bytes of full pieces. */
static size_t churn_pieces(size_t size)
{
    return (size + CHURN_PIECE - 1) / CHURN_PIECE * CHURN_PIECE;
}

static void churn_map(churn_buf_t *buf, size_t size)
{
    if (buf->range == 0) {
        UCX_MP_DRIVER(reserve, &buf->range, CHURN_MAX_SIZE, 0, 0, 0);
    }

    ucx_mp_driver_map(buf->range, churn_pieces(size), CHURN_PIECE);
    buf->ptr = buf->range;
}

static void churn_get(churn_buf_t *buf, size_t size, uint64_t dice)
{
    buf->size = size;
    buf->kind = (churn.kind == CHURN_MIXED) ? (int)(dice % CHURN_MIXED) :
                                              churn.kind;
    switch (buf->kind) {
    case CHURN_ASYNC:
        UCX_MP_DRIVER(alloc_async, &buf->ptr, size, NULL);
        UCX_MP_DRIVER(stream_synchronize, NULL);
        break;
    case CHURN_POOL:
        UCX_MP_DRIVER(alloc_from_pool, &buf->ptr, size, churn_pool, NULL);
        UCX_MP_DRIVER(stream_synchronize, NULL);
        break;
    case CHURN_VMM:
    case CHURN_RANGE:
        churn_map(buf, size);
        break;
    case CHURN_MANAGED:
        UCX_MP_DRIVER(alloc_managed, &buf->ptr, size, 1);
        break;
    default:
        UCX_MP_DRIVER(alloc, &buf->ptr, size);
        break;
    }
}

static void churn_put(churn_buf_t *buf)
{
    if (buf->size == 0) {
        return;
    }

    switch (buf->kind) {
    case CHURN_ASYNC:
    case CHURN_POOL:
        UCX_MP_DRIVER(free_async, buf->ptr, NULL);
        UCX_MP_DRIVER(stream_synchronize, NULL);
        break;
    case CHURN_VMM:
    case CHURN_RANGE:
        UCX_MP_DRIVER(unmap, buf->ptr, churn_pieces(buf->size));
        break;
    default:
        UCX_MP_DRIVER(free, buf->ptr);
        break;
    }

    buf->size = 0;
}

/* Map or unmap pieces at the end of a range. */
static void churn_resize(churn_buf_t *buf, size_t size)
{
    const size_t before = churn_pieces(buf->size), after = churn_pieces(size);

    if (after > before) {
        ucx_mp_driver_map(buf->range + before, after - before, CHURN_PIECE);
    } else if (after < before) {
        UCX_MP_DRIVER(unmap, buf->range + after, before - after);
    }
    buf->size = size;
}

/* Return the slot's buffer, if it is large enough and the dice say so, or a new
   one. */
static void *churn_take(churn_buf_t *buf, size_t size, uint64_t dice)
{
    if ((buf->size < size) || ((dice & 3) == 0)) {
        if ((buf->size > 0) && (buf->kind == CHURN_RANGE) && (dice & 12)) {
            churn_resize(buf, size);
        } else {
            churn_put(buf);
            churn_get(buf, size, dice >> 2);
        }
    }

    return (void*)(size_t)buf->ptr;
}

static ucx_mp_mem_t churn_mem(void)
{
    return (churn.kind == CHURN_MANAGED) ? UCX_MP_MEM_MANAGED :
                                           UCX_MP_MEM_DEVICE;
}

/* Return the seed of a rank's data in a step. */
static uint64_t churn_seed(uint64_t step, int rank)
{
    return ucx_mp_hash(churn.seed ^ ucx_mp_hash(step * 1024 + (uint64_t)rank));
}

static size_t churn_size(uint64_t seed)
{
    return ucx_mp_random_size(&seed, churn.min_size, churn.max_size);
}

static void churn_exchange(void *send, size_t send_size, int to, void *recv,
                           size_t recv_size, int from, int at_once)
{
    MPI_Request requests[2];
    MPI_Status statuses[2];

    if (at_once) {
        MPI_Sendrecv(send, (int)send_size, MPI_BYTE, to, 0, recv,
                     (int)recv_size, MPI_BYTE, from, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
    } else {
        MPI_Irecv(recv, (int)recv_size, MPI_BYTE, from, 0, MPI_COMM_WORLD,
                  &requests[0]);
        MPI_Isend(send, (int)send_size, MPI_BYTE, to, 0, MPI_COMM_WORLD,
                  &requests[1]);
        MPI_Waitall(2, requests, statuses);
    }
}

static void churn_step(uint64_t step)
{
    const int shift  = 1 + (int)(step % (uint64_t)(churn_ranks - 1));
    const int to     = (churn_rank + shift) % churn_ranks;
    const int from   = (churn_rank + churn_ranks - shift) % churn_ranks;
    const uint64_t mine   = churn_seed(step, churn_rank);
    const uint64_t theirs = churn_seed(step, from);
    const size_t send_size = churn_size(mine), recv_size = churn_size(theirs);
    churn_buf_t *send_buf, *recv_buf;
    uint64_t dice = ucx_mp_hash(mine);
    void *send, *recv;

    send_buf = &churn_send[dice % (uint64_t)churn.num_slots];
    recv_buf = &churn_recv[(dice >> 16) % (uint64_t)churn.num_slots];
    send     = churn_take(send_buf, send_size, dice >> 32);
    recv     = churn_take(recv_buf, recv_size, dice >> 40);

    ucx_mp_pattern_fill(churn_mem(), send, send_size, mine);
    ucx_mp_mem_set(churn_mem(), recv, CHURN_POISON, recv_size);
    churn_exchange(send, send_size, to, recv, recv_size, from,
                   (int)(step / 8 % 2));
    churn_wrong += ucx_mp_pattern_is_wrong(
            churn_mem(), recv, recv_size, theirs, CHURN_POISON,
            "step %llu, from rank %d", (unsigned long long)step, from);

    if (churn.num_slots == 1) {
        churn_put(send_buf);
        churn_put(recv_buf);
    }
}

/* Return the bytes in use on the ranks' GPUs, when no rank has a buffer. */
static unsigned long long churn_in_use(void)
{
    unsigned long long used = 0, sum;
    int i;

    for (i = 0; i < churn.num_slots; ++i) {
        churn_put(&churn_send[i]);
        churn_put(&churn_recv[i]);
    }

    MPI_Barrier(MPI_COMM_WORLD);
    if (churn_rank < churn_gpus) {
        used = ucx_mp_driver_in_use();
    }
    MPI_Allreduce(&used, &sum, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM,
                  MPI_COMM_WORLD);
    return sum;
}

static void churn_parse(int argc, char **argv)
{
    static const ucx_mp_option_t options[] = {
        UCX_MP_NUMBER("steps", churn.steps, 10, 100000000, "N", "in all"),
        UCX_MP_NUMBER("seed", churn.seed, 0, UINT64_MAX, "S",
                      "seed of the random numbers"),
        UCX_MP_CHOICE("kind", churn.kind, churn_kinds, "of memory"),
        UCX_MP_SIZE("min-size", churn.min_size, 1, CHURN_MAX_SIZE,
                    "smallest buffer"),
        UCX_MP_SIZE("max-size", churn.max_size, 1, CHURN_MAX_SIZE,
                    "largest buffer"),
        UCX_MP_NUMBER("kept", churn.num_slots, 0, CHURN_MAX_SLOTS - 1, "N",
                      "buffers that live on for some steps, each way"),
        UCX_MP_SIZE("slack", churn.slack, 0, SIZE_MAX,
                    "that the GPUs may have in use more at the end than after "
                    "a tenth of the steps (256M)"),
        {.name = NULL}
    };

    ucx_mp_parse_options(argc, argv, "Messages from and to memory that comes "
                         "and goes.", options);
    ++churn.num_slots;
    if ((churn.min_size < 1) || (churn.min_size > churn.max_size) ||
        (churn.max_size > CHURN_MAX_SIZE)) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "sizes are 1 to %zu MiB",
                   CHURN_MAX_SIZE >> 20);
    }
}

int main(int argc, char **argv)
{
    unsigned long long early = 0, late, wrong = 0;
    int is_too_much;
    uint64_t step;

    ucx_mp_program = "ucx_mp_churn";
    churn_parse(argc, argv);
    MPI_Init(&argc, &argv);
    ucx_mp_get_rank(&churn_rank, &churn_ranks);
    if (churn_ranks < 2) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "two ranks at least");
    }

    churn_load();
    for (step = 0; step < churn.steps; ++step) {
        if (step == churn.steps / 10) {
            early = churn_in_use();
        }
        churn_step(step);
    }

    late        = churn_in_use();
    is_too_much = (late > early + churn.slack);
    MPI_Allreduce(&churn_wrong, &wrong, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM,
                  MPI_COMM_WORLD);
    if (churn_rank == 0) {
        printf("ucx_mp_churn: %llu steps, %d ranks, %s: %llu MiB in use after "
               "%llu, %llu at the end%s, %llu wrong\n",
               (unsigned long long)churn.steps, churn_ranks,
               churn_kinds[churn.kind], early >> 20,
               (unsigned long long)(churn.steps / 10), late >> 20,
               is_too_much ? " (TOO MUCH)" : "", wrong);
    }

    MPI_Finalize();
    return (is_too_much || (wrong > 0)) ? UCX_MP_EXIT_WRONG : UCX_MP_EXIT_OK;
}
