/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A program that fills GPU memory by plain cuMemcpyHtoD and calls MPI at once,
 * as cudaMemcpy() seems to allow: when it returns, the driver is still copying
 * the last bytes. Collectives and messages, on new buffers and on used ones;
 * every byte is compared.
 */
#include "driver.h"
#include "gpu.h"
#include "util.h"

#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILLED_BUFFERS   6 /* kept by each rank */
#define FILLED_MAX_WORDS ((size_t)256 << 10)
#define FILLED_GRANULE   ((size_t)2 << 20) /* granularity of cuMemCreate */

static const char *const filled_kinds[] = {"device", "pool", "vmm", NULL};

typedef enum {
    FILLED_SENDRECV,
    FILLED_VECTOR, /* every other word of a buffer */
    FILLED_SELF,
    FILLED_BCAST,
    FILLED_ALLREDUCE,
    FILLED_REDUCE,
    FILLED_ALLGATHER,
    FILLED_GATHER,
    FILLED_ALLTOALL,
    FILLED_LAST
} filled_call_t;

static const char *const filled_names[] = {"Sendrecv", "vector", "self",
                                           "Bcast", "Allreduce", "Reduce",
                                           "Allgather", "Gather", "Alltoall"};

/* Memory of FILLED_MAX_WORDS, and the same in host memory */
typedef struct {
    uint32_t *gpu;
    uint32_t *host;
} filled_buffer_t;

static struct {
    int rank, size;
    int kind; /* index into filled_kinds */
    filled_buffer_t buffers[FILLED_BUFFERS];
    MPI_Datatype vector; /* of one word and a gap of one */
    uint64_t wrong[FILLED_LAST];
    uint64_t calls[FILLED_LAST];
} filled;


static void *filled_pool(void)
{
    ucx_mp_ptr_t ptr;

    UCX_MP_DRIVER(alloc_async, &ptr, FILLED_MAX_WORDS * sizeof(uint32_t), NULL);
    return (void*)(uintptr_t)ptr;
}

/* Free a buffer; memory of cuMemCreate stays. */
static void filled_drop(filled_buffer_t *buffer)
{
    if (filled.kind == 0) {
        ucx_mp_mem_free(UCX_MP_MEM_DEVICE, buffer->gpu);
    } else if (filled.kind == 1) {
        (void)ucx_mp_driver.free_async((uintptr_t)buffer->gpu, NULL);
    }
}

static void filled_make(filled_buffer_t *buffer)
{
    const size_t size = FILLED_MAX_WORDS * sizeof(uint32_t);

    if (buffer->gpu != NULL) {
        filled_drop(buffer);
    }

    buffer->gpu = (filled.kind == 0) ?
                          ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, size) :
                  (filled.kind == 1) ? filled_pool() :
                                       ucx_mp_driver_vmm(FILLED_GRANULE);
    if (buffer->host == NULL) {
        buffer->host = ucx_mp_mem_alloc(UCX_MP_MEM_HOST, size);
    }
}

static uint32_t filled_word(uint64_t step, int rank, size_t i)
{
    return (uint32_t)ucx_mp_hash((step << 40) ^ ((uint64_t)rank << 32) ^ i);
}

/* Fill the buffer; the call follows immediately. */
static void filled_fill(const filled_buffer_t *buffer, size_t words)
{
    UCX_MP_DRIVER(copy_htod, (uintptr_t)buffer->gpu, buffer->host, words * 4);
}

static void filled_make_call(filled_call_t call, const filled_buffer_t *from,
                             const filled_buffer_t *to, int count, int root)
{
    const int next = (filled.rank + 1) % filled.size;
    const int last = (filled.rank + filled.size - 1) % filled.size;
    MPI_Comm world = MPI_COMM_WORLD;

    switch (call) {
    case FILLED_SENDRECV:
        MPI_Sendrecv(from->gpu, count, MPI_UINT32_T, next, 0, to->gpu, count,
                     MPI_UINT32_T, last, 0, world, MPI_STATUS_IGNORE);
        break;
    case FILLED_VECTOR:
        MPI_Sendrecv(from->gpu, count / 2, filled.vector, next, 0, to->gpu,
                     count / 2, filled.vector, last, 0, world,
                     MPI_STATUS_IGNORE);
        break;
    case FILLED_SELF:
        MPI_Sendrecv(from->gpu, count, MPI_UINT32_T, filled.rank, 0, to->gpu,
                     count, MPI_UINT32_T, filled.rank, 0, world,
                     MPI_STATUS_IGNORE);
        break;
    case FILLED_BCAST:
        MPI_Bcast((filled.rank == root) ? from->gpu : to->gpu, count,
                  MPI_UINT32_T, root, world);
        break;
    case FILLED_ALLREDUCE:
        MPI_Allreduce(from->gpu, to->gpu, count, MPI_UINT32_T, MPI_SUM, world);
        break;
    case FILLED_REDUCE:
        MPI_Reduce(from->gpu, to->gpu, count, MPI_UINT32_T, MPI_SUM, root,
                   world);
        break;
    case FILLED_ALLGATHER:
        MPI_Allgather(from->gpu, count, MPI_UINT32_T, to->gpu, count,
                      MPI_UINT32_T, world);
        break;
    case FILLED_GATHER:
        MPI_Gather(from->gpu, count, MPI_UINT32_T, to->gpu, count, MPI_UINT32_T,
                   root, world);
        break;
    default:
        MPI_Alltoall(from->gpu, count, MPI_UINT32_T, to->gpu, count,
                     MPI_UINT32_T, world);
    }
}

/* Return word `i` after the call; `count` is that of a block. */
static uint32_t filled_expected(filled_call_t call, uint64_t step, size_t count,
                                int root, size_t i)
{
    const int last = (filled.rank + filled.size - 1) % filled.size;
    uint32_t sum   = 0;
    int rank;

    switch (call) {
    case FILLED_SENDRECV:
        return filled_word(step, last, i);
    case FILLED_VECTOR:
        return (i % 2) ? ~filled_word(step, filled.rank, i) :
                         filled_word(step, last, i);
    case FILLED_SELF:
        return filled_word(step, filled.rank, i);
    case FILLED_BCAST:
        return filled_word(step, root, i);
    case FILLED_ALLREDUCE:
    case FILLED_REDUCE:
        for (rank = 0; rank < filled.size; ++rank) {
            sum += filled_word(step, rank, i);
        }
        return sum;
    case FILLED_ALLGATHER:
    case FILLED_GATHER:
        return filled_word(step, (int)(i / count), i % count);
    default:
        return filled_word(step, (int)(i / count),
                           (size_t)filled.rank * count + i % count);
    }
}

static int filled_has_result(filled_call_t call, int root)
{
    switch (call) {
    case FILLED_BCAST:
        return filled.rank != root;
    case FILLED_REDUCE:
    case FILLED_GATHER:
        return filled.rank == root;
    default:
        return 1;
    }
}

static void filled_step(uint64_t step, uint64_t *state)
{
    const filled_call_t call = ucx_mp_random_below(state, FILLED_LAST);
    const int root           = (int)ucx_mp_random_below(state, filled.size);
    const int many           = (call >= FILLED_ALLGATHER) ? filled.size : 1;
    const size_t count       = ucx_mp_random_size(state, 8,
                                                  FILLED_MAX_WORDS * 4 / many) /
                         8 * 2;
    const size_t sent        = (call == FILLED_ALLTOALL) ? count * many : count;
    const size_t got         = count * many;
    filled_buffer_t *from    = &filled.buffers[ucx_mp_random_below(
            state, FILLED_BUFFERS / 2)];
    filled_buffer_t *to      = &filled.buffers[FILLED_BUFFERS / 2 +
                                          ucx_mp_random_below(
                                                  state, FILLED_BUFFERS / 2)];
    size_t i;

    if (ucx_mp_random_below(state, 3) == 0) {
        filled_make(from);
        filled_make(to);
    }

    for (i = 0; i < sent; ++i) {
        from->host[i] = filled_word(step, filled.rank, i);
    }
    for (i = 0; i < got; ++i) {
        to->host[i] = ~filled_word(step, filled.rank, i);
    }
    filled_fill(to, got);
    filled_fill(from, sent);
    filled_make_call(call, from, to, (int)count, root);

    ++filled.calls[call];
    if (!filled_has_result(call, root)) {
        return;
    }

    ucx_mp_mem_read(UCX_MP_MEM_DEVICE, to->host, to->gpu, got * 4);
    for (i = 0; i < got; ++i) {
        if (to->host[i] != filled_expected(call, step, count, root, i)) {
            ++filled.wrong[call];
            break;
        }
    }
}

static void filled_setup(const char *memory)
{
    unsigned i;

    ucx_mp_get_rank(&filled.rank, &filled.size);
    ucx_mp_gpu_require(ucx_mp_gpu_local_rank(filled.rank));
    ucx_mp_driver_load();
    filled.kind = ucx_mp_parse_choice("--memory", memory, filled_kinds);
    MPI_Type_vector(1, 1, 2, MPI_UINT32_T, &filled.vector);
    MPI_Type_create_resized(filled.vector, 0, 8, &filled.vector);
    MPI_Type_commit(&filled.vector);
    for (i = 0; i < FILLED_BUFFERS; ++i) {
        filled_make(&filled.buffers[i]);
    }
}

int main(int argc, char **argv)
{
    uint64_t steps = 200, seed = 1, state, step, wrong = 0, calls = 0, all;
    const char *memory = "device";
    const ucx_mp_option_t options[] = {
        UCX_MP_NUMBER("steps", steps, 1, 1000000, "N", "calls (200)"),
        UCX_MP_NUMBER("seed", seed, 0, UINT64_MAX, "N",
                      "seed of the random numbers (1)"),
        UCX_MP_TEXT("memory", memory, "KIND", "device, pool or vmm"),
        {.name = NULL}
    };
    unsigned i;

    ucx_mp_program = "ucx_mp_filled";
    MPI_Init(&argc, &argv);
    ucx_mp_parse_options(argc, argv, "Fills memory by plain copies just before "
                         "MPI's calls, and compares.", options);
    filled_setup(memory);
    state = seed;
    for (step = 0; step < steps; ++step) {
        filled_step(step, &state);
    }

    for (i = 0; i < FILLED_LAST; ++i) {
        MPI_Allreduce(&filled.wrong[i], &all, 1, MPI_UINT64_T, MPI_SUM,
                      MPI_COMM_WORLD);
        wrong += all;
        calls += filled.calls[i];
        if ((all > 0) && (filled.rank == 0)) {
            printf("ucx_mp_filled: %s: %llu calls, %llu results wrong\n",
                   filled_names[i], (unsigned long long)filled.calls[i],
                   (unsigned long long)all);
        }
    }
    if (filled.rank == 0) {
        printf("ucx_mp_filled: %llu calls on %s memory filled by cuMemcpyHtoD, "
               "%llu results wrong\n", (unsigned long long)calls, memory,
               (unsigned long long)wrong);
    }
    return ucx_mp_finish(wrong > 0);
}
