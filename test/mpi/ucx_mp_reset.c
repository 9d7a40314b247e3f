/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Actions of a program on its GPU between two messages: reset the device, on
 * one side or on both; make a context, use and destroy it; run a kernel that
 * only a message ends, and free memory meanwhile; fill a buffer by a copy
 * inside GPU memory, for which the driver does not wait; send from pieces
 * mapped into a larger reservation, one or several at once; sum data on both
 * GPUs, if the MPI can ("collectives"); send host memory accessible to GPUs and
 * not to the CPU ("hostvmm"), and sum it ("hostvmm-sums"). Two ranks; messages
 * of several sizes between all kinds of memory there and back after each
 * action; every byte is compared. MPI_Finalize follows a reset.
 *
 * "own-context" sends a pool's memory instead, in a context created by the
 * program, while the GPU's primary context is inactive.
 *
 * A stream's wait for a word of memory replaces the kernel: the driver treats
 * it like one, and an emulated GPU supports it.
 */
#define _GNU_SOURCE
#include "driver.h"
#include "gpu.h"
#include "on_gpus.h"
#include "util.h"

#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RESET_MAX_SIZE  ((size_t)8 << 20)
#define RESET_POISON    0x5a
#define RESET_ROUNDS    3
#define RESET_USES      6  /* uses of a buffer, until a transport may remember
                              it */
#define RESET_TIMEOUT   20 /* real seconds for a free behind a kernel */

/* Constants of the driver's interface */
#define RESET_PORTABLE     1 /* CU_MEMHOSTALLOC_PORTABLE */
#define RESET_NON_BLOCKING 1 /* CU_STREAM_NON_BLOCKING */
#define RESET_WAIT_GEQ     0 /* CU_STREAM_WAIT_VALUE_GEQ */

static int reset_rank, reset_device, reset_wrong;

/* Fill with other bytes than pattern.h, whose buffers would be lost with a
   context. All sizes are multiples of a word. */
static void reset_fill(ucx_mp_mem_t mem, void *buf, size_t size, uint64_t seed)
{
    uint64_t *words = malloc(size);
    size_t i;

    for (i = 0; i < size / sizeof(*words); ++i) {
        words[i] = ucx_mp_hash(seed * RESET_MAX_SIZE + i);
    }

    ucx_mp_mem_write(mem, buf, words, size);
    free(words);
}

static void reset_compare(ucx_mp_mem_t mem, const void *buf, size_t size,
                          uint64_t seed, const char *what)
{
    uint64_t *words = malloc(size);
    size_t i;

    ucx_mp_mem_read(mem, words, buf, size);
    for (i = 0; i < size / sizeof(*words); ++i) {
        if (words[i] != ucx_mp_hash(seed * RESET_MAX_SIZE + i)) {
            fprintf(stderr, "ucx_mp_reset: WRONG data, %s, %zu bytes in %s "
                    "memory: at %zu\n", what, size, ucx_mp_mem_names[mem],
                    i * sizeof(*words));
            reset_wrong = 1;
            break;
        }
    }
    free(words);
}

/* Send one message there and one back. */
static void reset_message(ucx_mp_mem_t mine, size_t size, uint64_t seed,
                          const char *what)
{
    uint8_t *buf = ucx_mp_mem_alloc(mine, size);
    const int to = 1 - reset_rank;
    int turn;

    for (turn = 0; turn < 2; ++turn) {
        if (turn == reset_rank) {
            reset_fill(mine, buf, size, seed + (uint64_t)turn);
            MPI_Send(buf, (int)size, MPI_BYTE, to, 0, MPI_COMM_WORLD);
            continue;
        }

        ucx_mp_mem_set(mine, buf, RESET_POISON, size);
        MPI_Recv(buf, (int)size, MPI_BYTE, to, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
        reset_compare(mine, buf, size, seed + (uint64_t)turn, what);
    }

    ucx_mp_mem_free(mine, buf);
}

/* Send GPU memory into pageable memory, both ways at once: UCP 1.20 and later
   use buffers of their own in GPU memory in between, and keep them. */
static void reset_exchange(size_t size, uint64_t seed, const char *what)
{
    uint8_t *sent = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, size);
    uint8_t *got  = ucx_mp_mem_alloc(UCX_MP_MEM_HOST, size);
    const int to  = 1 - reset_rank;

    reset_fill(UCX_MP_MEM_DEVICE, sent, size, seed + (uint64_t)reset_rank);
    memset(got, RESET_POISON, size);
    MPI_Sendrecv(sent, (int)size, MPI_BYTE, to, 0, got, (int)size, MPI_BYTE, to,
                 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    reset_compare(UCX_MP_MEM_HOST, got, size, seed + (uint64_t)to, what);
    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, sent);
    ucx_mp_mem_free(UCX_MP_MEM_HOST, got);
}

static void reset_messages(const char *what)
{
    static const ucx_mp_mem_t mems[][2] = {
        {UCX_MP_MEM_DEVICE, UCX_MP_MEM_DEVICE},
        {UCX_MP_MEM_HOST, UCX_MP_MEM_DEVICE},
        {UCX_MP_MEM_DEVICE, UCX_MP_MEM_PINNED}
    };
    static const size_t sizes[] = {8, 4096, 65536, RESET_MAX_SIZE};
    static uint64_t seed        = 1;
    size_t i, k;

    for (i = 0; i < sizeof(mems) / sizeof(mems[0]); ++i) {
        for (k = 0; k < sizeof(sizes) / sizeof(sizes[0]); ++k) {
            reset_message(mems[i][reset_rank], sizes[k], seed, what);
            seed += 2;
        }
    }
    reset_exchange((size_t)3 << 20, seed, what);
    seed += 2;
}

/* Do what cudaDeviceReset() and the runtime's next call do. */
static void reset_gpu(int stay_away)
{
    void *ctx;

    UCX_MP_DRIVER(ctx_reset, reset_device);
    UCX_MP_DRIVER(ctx_release, reset_device);
    UCX_MP_DRIVER(ctx_set, NULL);
    if (!stay_away) {
        UCX_MP_DRIVER(ctx_retain, &ctx, reset_device);
        UCX_MP_DRIVER(ctx_set, ctx);
    }
}

/* No GPU of this rank has a context except those of the transport */
static void reset_host_message(void)
{
    int value = 0;

    if (reset_rank == 0) {
        MPI_Send(&reset_rank, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
    } else {
        MPI_Recv(&value, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

static void reset_resets(void)
{
    static const char *const names[] = {"rank 0 was reset", "rank 1 was reset",
                                        "both were reset"};
    void *ctx;
    int round, who;

    for (round = 0; round < RESET_ROUNDS; ++round) {
        for (who = 0; who < 3; ++who) {
            if ((who == 2) || (who == reset_rank)) {
                reset_gpu(round == 1);
            }

            reset_host_message();
            if ((round == 1) && ((who == 2) || (who == reset_rank))) {
                UCX_MP_DRIVER(ctx_retain, &ctx, reset_device);
                UCX_MP_DRIVER(ctx_set, ctx);
            }
            reset_messages(names[who]);
        }
    }
}

static void reset_contexts(void)
{
    void *ctx, *before;
    int round;

    UCX_MP_DRIVER(ctx_retain, &before, reset_device);
    for (round = 0; round < RESET_ROUNDS; ++round) {
        UCX_MP_DRIVER(ctx_create, &ctx, 0, reset_device);
        reset_messages("in a context of the program's");
        UCX_MP_DRIVER(ctx_destroy, ctx);
        UCX_MP_DRIVER(ctx_set, before);
        reset_messages("with that context destroyed");
    }
    UCX_MP_DRIVER(ctx_release, reset_device);
}

/* Return fresh pages, at an address if given; not from malloc(), which may keep
   freed memory. */
static uint8_t *reset_pages(size_t size, void *address)
{
    void *pages = mmap(address, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS |
                               ((address == NULL) ? 0 : MAP_FIXED),
                       -1, 0);

    if (pages == MAP_FAILED) {
        ucx_mp_die(UCX_MP_EXIT_WRONG, "mmap: %m");
    }
    memset(pages, RESET_POISON, size);
    return pages;
}

/* Free memory used by messages while a kernel runs, which ends with the next
   message. */
static void reset_kernel(void)
{
    const size_t size   = RESET_MAX_SIZE;
    const int is_first  = (reset_rank == 0);
    ucx_mp_mem_t mem    = is_first ? UCX_MP_MEM_HOST : UCX_MP_MEM_DEVICE;
    const int to        = 1 - reset_rank;
    unsigned *word      = NULL;
    uint8_t *buf        = is_first ? reset_pages(size, NULL) :
                                     ucx_mp_mem_alloc(mem, size);
    void *stream;
    unsigned one = 1;
    int i;

    for (i = 0; i < RESET_USES; ++i) {
        if (is_first) {
            MPI_Send(buf, (int)size, MPI_BYTE, to, 0, MPI_COMM_WORLD);
        } else {
            MPI_Recv(buf, (int)size, MPI_BYTE, to, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        }
    }

    if (is_first) {
        UCX_MP_DRIVER(host_alloc, (void**)&word, sizeof(*word), RESET_PORTABLE);
        *word = 0;
        UCX_MP_DRIVER(stream_create, &stream, RESET_NON_BLOCKING);
        UCX_MP_DRIVER(stream_wait, stream, (ucx_mp_ptr_t)(size_t)word, 1,
                      RESET_WAIT_GEQ);
        MPI_Send(&one, 1, MPI_UNSIGNED, to, 0, MPI_COMM_WORLD);
        /* The alarm ends the program if any of this waits for the kernel: other
           memory gets the address, and is received into as the first was sent
           from */
        alarm(RESET_TIMEOUT);
        munmap(buf, size);
        buf = reset_pages(size, buf);
        MPI_Recv(buf, (int)size, MPI_BYTE, to, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
        reset_compare(mem, buf, size, 1, "while a kernel runs");
        MPI_Recv(word, 1, MPI_UNSIGNED, to, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
        UCX_MP_DRIVER(stream_synchronize, stream);
        alarm(0);
        UCX_MP_DRIVER(stream_destroy, stream);
        ucx_mp_mem_free(UCX_MP_MEM_PINNED, word);
        munmap(buf, size);
    } else {
        MPI_Recv(&one, 1, MPI_UNSIGNED, to, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
        reset_fill(mem, buf, size, 1);
        MPI_Send(buf, (int)size, MPI_BYTE, to, 0, MPI_COMM_WORLD);
        MPI_Send(&one, 1, MPI_UNSIGNED, to, 0, MPI_COMM_WORLD);
        ucx_mp_mem_free(mem, buf);
    }

    reset_messages("behind a kernel");
}

/* Send the message while the copy into its buffer is in flight. */
static void reset_copies(void)
{
    const size_t size = 8 * RESET_MAX_SIZE;
    uint8_t *src      = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, size);
    uint8_t *buf      = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, size);
    const size_t part = 65536;
    uint8_t *end      = buf + size - part;
    const int to      = 1 - reset_rank;
    int i;

    for (i = 0; i < RESET_USES; ++i) {
        if (reset_rank == 0) {
            reset_fill(UCX_MP_MEM_DEVICE, src + size - part, part,
                       (uint64_t)i);
            UCX_MP_DRIVER(copy_dtod, (ucx_mp_ptr_t)(size_t)buf,
                          (ucx_mp_ptr_t)(size_t)src, size);
            MPI_Send(end, (int)part, MPI_BYTE, to, 0, MPI_COMM_WORLD);
        } else {
            ucx_mp_mem_set(UCX_MP_MEM_DEVICE, end, RESET_POISON, part);
            MPI_Recv(end, (int)part, MPI_BYTE, to, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
            /* The first one makes the transport know the memory */
            if (i > 0) {
                reset_compare(UCX_MP_MEM_DEVICE, end, part, (uint64_t)i,
                              "behind a copy inside GPU memory");
            }
        }
    }

    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, src);
    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, buf);
}

/* Map two adjacent pieces, with unmapped room around them. */
static void reset_mappings(void)
{
    const size_t piece     = RESET_MAX_SIZE;
    const size_t offsets[] = {0, piece, 4096, piece - 8, piece / 2};
    const size_t sizes[]   = {piece, piece, 65536, 16, piece};
    const int to           = 1 - reset_rank;
    ucx_mp_ptr_t range, base;
    void *buf;
    size_t i;

    UCX_MP_DRIVER(reserve, &range, 8 * piece, 0, 0, 0);
    base = range + piece;
    ucx_mp_driver_map(base, 2 * piece, piece);

    for (i = 0; i < 3 * sizeof(sizes) / sizeof(sizes[0]); ++i) {
        buf = (void*)(size_t)(base + offsets[i % 5]);
        if (reset_rank == (int)(i & 1)) {
            reset_fill(UCX_MP_MEM_DEVICE, buf, sizes[i % 5], i);
            MPI_Send(buf, (int)sizes[i % 5], MPI_BYTE, to, 0, MPI_COMM_WORLD);
        } else {
            ucx_mp_mem_set(UCX_MP_MEM_DEVICE, buf, RESET_POISON, sizes[i % 5]);
            MPI_Recv(buf, (int)sizes[i % 5], MPI_BYTE, to, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
            reset_compare(UCX_MP_MEM_DEVICE, buf, sizes[i % 5], i,
                          "in a larger reservation");
        }
    }

    MPI_Barrier(MPI_COMM_WORLD);
    UCX_MP_DRIVER(unmap, base, 2 * piece);
    UCX_MP_DRIVER(unreserve, range, 8 * piece);
}

/* Sum whole numbers, exactly, with or without a current context. */
static void reset_sum_in(void *send, void *recv, size_t count,
                         int has_context, const char *what)
{
    const size_t size = count * sizeof(float);
    float *values     = calloc(count, sizeof(float));
    void *ctx;
    size_t i;

    for (i = 0; i < count; ++i) {
        values[i] = (float)(i % 4099 + (size_t)reset_rank * 7);
    }
    ucx_mp_mem_write(UCX_MP_MEM_DEVICE, send, values, size);
    ucx_mp_mem_set(UCX_MP_MEM_DEVICE, recv, RESET_POISON, size);
    UCX_MP_DRIVER(ctx_get, &ctx);
    UCX_MP_DRIVER(ctx_set, has_context ? ctx : NULL);
    MPI_Allreduce(send, recv, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    UCX_MP_DRIVER(ctx_set, ctx);
    ucx_mp_mem_read(UCX_MP_MEM_DEVICE, values, recv, size);
    for (i = 0; i < count; ++i) {
        if (values[i] != (float)(2 * (i % 4099) + 7)) {
            fprintf(stderr, "ucx_mp_reset: WRONG sum, %s, of %zu: at %zu\n",
                    what, count, i);
            reset_wrong = 1;
            break;
        }
    }

    free(values);
}

static void reset_sum(size_t count, const char *what)
{
    const size_t size = count * sizeof(float);
    void *send        = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, size);
    void *recv        = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, size);

    reset_sum_in(send, recv, count, 1, what);
    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, send);
    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, recv);
}

/* Send and sum host memory, made with cuMemCreate, that only this rank's GPU
   may access: the driver reports host memory, and a CPU access crashes. To and
   from its own kind and a GPU's memory, and, if the MPI can, sums of it. */
static void reset_host_vmm_in(int has_sums)
{
    static const size_t sizes[] = {8, 4096, 65536, 1 << 20, RESET_MAX_SIZE};
    const ucx_mp_prop_t prop     = {.type = 1, .location_type = 3};
    const ucx_mp_access_t access = {.location_type = 1,
                                    .location      = reset_device,
                                    .flags         = 3};
    void *gpu    = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, RESET_MAX_SIZE);
    const int to = 1 - reset_rank;
    unsigned long long handle;
    ucx_mp_ptr_t range;
    size_t i, size;
    void *buf;

    UCX_MP_DRIVER(reserve, &range, 2 * RESET_MAX_SIZE, 0, 0, 0);
    UCX_MP_DRIVER(create, &handle, 2 * RESET_MAX_SIZE, &prop, 0);
    UCX_MP_DRIVER(map, range, 2 * RESET_MAX_SIZE, 0, handle, 0);
    UCX_MP_DRIVER(release, handle);
    UCX_MP_DRIVER(set_access, range, 2 * RESET_MAX_SIZE, &access, 1);

    for (i = 0; i < 6 * sizeof(sizes) / sizeof(sizes[0]); ++i) {
        size = sizes[i / 6];
        /* Both ranks use such memory, or one of them does */
        buf = (i / 2 % 3 == (size_t)reset_rank) ?
                      gpu :
                      (void*)(size_t)(range + 4096);
        if (reset_rank == (int)(i & 1)) {
            reset_fill(UCX_MP_MEM_DEVICE, buf, size, i);
            MPI_Send(buf, (int)size, MPI_BYTE, to, 0, MPI_COMM_WORLD);
        } else {
            ucx_mp_mem_set(UCX_MP_MEM_DEVICE, buf, RESET_POISON, size);
            MPI_Recv(buf, (int)size, MPI_BYTE, to, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
            reset_compare(UCX_MP_MEM_DEVICE, buf, size, i,
                          "of the host, for GPUs");
        }
    }

    for (i = 0; has_sums && (i < 8); ++i) {
        reset_sum_in((void*)(size_t)range,
                     (void*)(size_t)(range + RESET_MAX_SIZE),
                     sizes[i / 2] / sizeof(float), i & 1,
                     "of the host, for GPUs");
    }

    MPI_Barrier(MPI_COMM_WORLD);
    UCX_MP_DRIVER(unmap, range, 2 * RESET_MAX_SIZE);
    UCX_MP_DRIVER(unreserve, range, 2 * RESET_MAX_SIZE);
    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, gpu);
}

static void reset_host_vmm(void)
{
    reset_host_vmm_in(0);
}

static void reset_host_vmm_sums(void)
{
    reset_host_vmm_in(1);
}

/* State kept for other ranks' memory and kernels is lost with a GPU's context.
   At least half of the sums must run on the GPUs. */
static void reset_collectives(void)
{
    static const size_t counts[] = {256, 65536, RESET_MAX_SIZE / sizeof(float)};
    const long before            = ucx_mp_on_gpus();
    long sums                    = 0;
    int round;
    size_t i;

    for (round = 0; round < 2 * RESET_ROUNDS; ++round) {
        for (i = 0; i < 2 * sizeof(counts) / sizeof(counts[0]); ++i, ++sums) {
            reset_sum(counts[i / 2], (round == 0) ? "at first" :
                                     (round & 1)  ? "rank 0 was reset" :
                                                    "rank 1 was reset");
        }
        if (reset_rank == (round & 1)) {
            reset_gpu(0);
        }
    }

    if (ucx_mp_on_gpus() - before < sums / 2) {
        fprintf(stderr, "ucx_mp_reset: %ld of %ld sums were done on GPUs\n",
                ucx_mp_on_gpus() - before, sums);
        reset_wrong = 1;
    }
}

static void reset_own_context(void)
{
    static const size_t sizes[] = {64, 5000, 70000, 3 << 20, 33 << 20};
    void *context, *stream;
    ucx_mp_ptr_t memory;
    char why[256];
    size_t i;
    int gpus;

    gpus = ucx_mp_gpu_load(why, sizeof(why));
    if (gpus == 0) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "needs a GPU: %s", why);
    }

    UCX_MP_DRIVER(ctx_create, &context, 0, reset_rank % gpus);
    ucx_mp_driver_load();
    UCX_MP_DRIVER(stream_create, &stream, RESET_NON_BLOCKING);
    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
        UCX_MP_DRIVER(alloc_async, &memory, sizes[i], stream);
        UCX_MP_DRIVER(stream_synchronize, stream);
        reset_fill(UCX_MP_MEM_DEVICE, (void*)memory, sizes[i],
                   i + 100 * (uint64_t)reset_rank);
        if (reset_rank == 0) {
            MPI_Send((void*)memory, (int)sizes[i], MPI_BYTE, 1, 0,
                     MPI_COMM_WORLD);
        } else {
            MPI_Recv((void*)memory, (int)sizes[i], MPI_BYTE, 0, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            reset_compare(UCX_MP_MEM_DEVICE, (void*)memory, sizes[i], i,
                          "in a context of the program");
        }
        UCX_MP_DRIVER(free_async, memory, stream);
        UCX_MP_DRIVER(stream_synchronize, stream);
    }
    if (reset_rank == 1) {
        printf("ucx_mp_reset: own context, %zu messages, %d wrong\n", i,
               reset_wrong);
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void       (*run)(void);
        int        is_by_name; /* not supported by every MPI */
    } ways[] = {{"reset", reset_resets, 0},
                {"contexts", reset_contexts, 0},
                {"kernel", reset_kernel, 0},
                {"copies", reset_copies, 0},
                {"mappings", reset_mappings, 0},
                {"collectives", reset_collectives, 1},
                {"hostvmm", reset_host_vmm, 1},
                {"hostvmm-sums", reset_host_vmm_sums, 1}};
    int ranks, wrong = 0, ways_run = 0;
    size_t i;

    ucx_mp_program = "ucx_mp_reset";
    MPI_Init(&argc, &argv);
    ucx_mp_get_rank(&reset_rank, &ranks);
    if (ranks != 2) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "two ranks are needed");
    }

    if ((argc > 1) && (strcmp(argv[1], "own-context") == 0)) {
        reset_own_context();
        return ucx_mp_finish(reset_wrong);
    }

    ucx_mp_gpu_require(reset_rank);
    ucx_mp_driver_load();
    reset_device = ucx_mp_driver.prop.location;
    reset_messages("at first");
    for (i = 0; i < sizeof(ways) / sizeof(ways[0]); ++i) {
        if ((argc < 2) ? !ways[i].is_by_name :
                         (strcmp(argv[1], ways[i].name) == 0)) {
            ways[i].run();
            ++ways_run;
        }
    }

    MPI_Reduce(&reset_wrong, &wrong, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    reset_gpu(1);
    MPI_Finalize();
    if (reset_rank == 0) {
        printf("ucx_mp_reset: %d ways, finalized behind a reset, %d wrong\n",
               ways_run, wrong);
    }

    return reset_wrong;
}
