/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Freed memory must become free. Rank 0 allocates GPU memory, exchanges
 * messages with rank 1 in each piece of it, and frees it. Then both ranks only
 * make progress (MPI_Iprobe). Within a time limit rank 0's GPU must have as
 * much in use as before, with some slack.
 */
#include "driver.h"
#include "gpu.h"
#include "util.h"

#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>

#define FREED_GIVE_UP 5.0 /* seconds */

static struct {
    size_t   size;
    size_t   piece;
    size_t   message;
    size_t   slack;
    uint64_t within; /* milliseconds */
} freed = {
    .size    = (size_t)1 << 30,
    .piece   = (size_t)20 << 20,
    .message = (size_t)1 << 20,
    .slack   = (size_t)64 << 20,
    .within  = 100
};

static int freed_rank;
static void *freed_pool;
static ucx_mp_ptr_t freed_range;

static void freed_load(void)
{
    ucx_mp_gpu_require(freed_rank);

    ucx_mp_driver_load();
    UCX_MP_DRIVER(reserve, &freed_range, freed.size, 0, 0, 0);
    UCX_MP_DRIVER(pool_create, &freed_pool, &ucx_mp_driver.prop);
}


/* ------------------------------------------------------ kinds of memory */

static ucx_mp_ptr_t freed_alloc(size_t piece)
{
    ucx_mp_ptr_t ptr;

    UCX_MP_DRIVER(alloc, &ptr, freed.size);
    return ptr;
}

static void freed_free(ucx_mp_ptr_t ptr)
{
    UCX_MP_DRIVER(free, ptr);
}

static ucx_mp_ptr_t freed_pool_alloc(size_t piece)
{
    ucx_mp_ptr_t ptr;

    UCX_MP_DRIVER(alloc_from_pool, &ptr, freed.size, freed_pool, NULL);
    UCX_MP_DRIVER(stream_synchronize, NULL);
    return ptr;
}

static void freed_pool_free(ucx_mp_ptr_t ptr)
{
    UCX_MP_DRIVER(free_async, ptr, NULL);
    UCX_MP_DRIVER(stream_synchronize, NULL);
    UCX_MP_DRIVER(trim, freed_pool, 0);
}

static ucx_mp_ptr_t freed_map(size_t piece)
{
    ucx_mp_driver_map(freed_range, freed.size, piece);
    return freed_range;
}

static void freed_unmap(ucx_mp_ptr_t ptr)
{
    UCX_MP_DRIVER(unmap, ptr, freed.size);
}

static const struct {
    const char   *name;
    int          is_in_pieces;
    ucx_mp_ptr_t (*get)(size_t piece);
    void         (*put)(ucx_mp_ptr_t ptr);
} freed_kinds[] = {
    {"legacy", 0, freed_alloc, freed_free},
    {"pool", 0, freed_pool_alloc, freed_pool_free},
    {"vmm", 0, freed_map, freed_unmap},
    {"pieces", 1, freed_map, freed_unmap}
};


/* ---------------------------------------------------------------- ranks */

/* Send each piece there and back. */
static void freed_exchange(void *memory, size_t step)
{
    const int peer = 1 - freed_rank;
    size_t offset;
    char *at;

    for (offset = 0; offset < freed.size; offset += step) {
        at = (freed_rank == 0) ? (char*)memory + offset : memory;
        if (freed_rank == 0) {
            MPI_Send(at, (int)freed.message, MPI_BYTE, peer, 0,
                     MPI_COMM_WORLD);
            MPI_Recv(at, (int)freed.message, MPI_BYTE, peer, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(at, (int)freed.message, MPI_BYTE, peer, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
            MPI_Send(at, (int)freed.message, MPI_BYTE, peer, 0,
                     MPI_COMM_WORLD);
        }
    }
}

static int freed_progress(void)
{
    int flag;

    MPI_Iprobe(1 - freed_rank, 1, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    return flag;
}

/* Rank 0: return whether the memory was released in time. */
static int freed_wait(const char *name, size_t before, size_t during)
{
    const double start = ucx_mp_real_time();
    double seconds;
    size_t after;
    int is_right;

    do {
        (void)freed_progress();
        after   = ucx_mp_driver_in_use();
        seconds = ucx_mp_real_time() - start;
    } while ((after > before + freed.slack) && (seconds < FREED_GIVE_UP));

    is_right = (after <= before + freed.slack) &&
               (seconds * 1e3 <= (double)freed.within);
    printf("ucx_mp_freed: %s: %zu MiB in use before, %zu with it, %zu after "
           "%.0f ms%s\n",
           name, before >> 20, during >> 20, after >> 20, seconds * 1e3,
           is_right ? "" : ": WRONG");
    fflush(stdout);
    return is_right;
}

/* The other rank is idle until rank 0 is done. */
static int freed_kind(int kind, size_t before, void *peers)
{
    const size_t step = freed_kinds[kind].is_in_pieces ? freed.piece :
                                                         freed.size;
    int is_right = 1;
    ucx_mp_ptr_t memory;
    size_t during;

    if (freed_rank == 1) {
        freed_exchange(peers, step);
        while (!freed_progress()) {
        }
        MPI_Recv(&is_right, 1, MPI_INT, 0, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
        return is_right;
    }

    memory = freed_kinds[kind].get(step);
    freed_exchange((void*)(size_t)memory, step);
    during = ucx_mp_driver_in_use();
    freed_kinds[kind].put(memory);
    is_right = freed_wait(freed_kinds[kind].name, before, during);
    MPI_Send(&is_right, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
    return is_right;
}

static void freed_parse(int argc, char **argv)
{
    static const ucx_mp_option_t options[] = {
        UCX_MP_SIZE("size", freed.size, 0, SIZE_MAX, "of an allocation"),
        UCX_MP_SIZE("piece", freed.piece, 1, SIZE_MAX, "of a message"),
        UCX_MP_SIZE("slack", freed.slack, 0, SIZE_MAX,
                    "that may stay in use"),
        UCX_MP_NUMBER("within", freed.within, 1, 10000, "MILLISECONDS",
                      "until freed memory is free"),
        {.name = NULL}
    };

    ucx_mp_parse_options(argc, argv, "Memory that a process frees is free, "
                         "whoever has read it.", options);
    freed.size -= freed.size % freed.piece;
    if (freed.size == 0) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "--size is less than a piece");
    }
}

int main(int argc, char **argv)
{
    int wrong = 0, ranks, kind;
    size_t before;
    void *peers;

    ucx_mp_program = "ucx_mp_freed";
    freed_parse(argc, argv);
    MPI_Init(&argc, &argv);
    ucx_mp_get_rank(&freed_rank, &ranks);
    if (ranks != 2) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "two ranks, no more");
    }

    freed_load();
    peers = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, freed.message);
    /* The first messages allocate permanent memory */
    freed_exchange(peers, freed.size);
    before = ucx_mp_driver_in_use();
    for (kind = 0; kind < (int)(sizeof(freed_kinds) / sizeof(freed_kinds[0]));
         ++kind) {
        wrong += !freed_kind(kind, before, peers);
    }

    if (freed_rank == 0) {
        printf("ucx_mp_freed: %d kinds of memory, %d not given back\n", kind,
               wrong);
    }

    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, peers);
    return ucx_mp_finish(wrong > 0);
}
