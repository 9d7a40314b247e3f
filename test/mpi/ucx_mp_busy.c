/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A GPU that waits for the program: a stream waits for a word that each rank
 * writes only after MPI's calls have ended. None of them may wait for the GPU:
 * collectives that need more memory, with new operations, new buffers and new
 * communicators; freed communicators; messages of all sizes and kinds of
 * memory, and of datatypes with gaps; calls that are staged; windows; temporary
 * buffers. A call that does not return is named, and results are compared.
 */
#include "driver.h"
#include "gpu.h"
#include "on_gpus.h"
#include "util.h"

#include <mpi.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BUSY_SECONDS 20 /* of real time per call */
#define BUSY_SMALL   ((size_t)1 << 20)
#define BUSY_LARGE   ((size_t)64 << 20)
#define BUSY_WAIT_GEQ 0
#define BUSY_GAPS     9  /* messages whose packed bytes, BUSY_LARGE each, exceed
                            the memory kept for them */
#define BUSY_LEGACY   2
#define BUSY_PACKED   0.01 /* seconds for a packed message of BUSY_LARGE */
#define BUSY_AGAIN    0.002 /* seconds until a busy GPU is queried again, and
                               more */
#define BUSY_SPAN     (BUSY_LARGE + BUSY_SMALL)

static struct {
    int rank, size;
    volatile uint32_t *word; /* page-locked */
    void *waiting;           /* stream waiting for it */
    void *own;               /* stream of the program's own copies */
    uint32_t *window;        /* page-locked */
    uint64_t wrong, calls;
    char call[64];
} busy;


static void busy_hangs(int signal)
{
    char line[160];
    int length = snprintf(line, sizeof(line),
                          "ucx_mp_busy: rank %d: %s: waits for the GPU\n",
                          busy.rank, busy.call);

    (void)signal;
    if (write(2, line, (size_t)length) == length) {
        *busy.word = 1;
    }
    _exit(UCX_MP_EXIT_WRONG);
}

static void busy_call(const char *what, size_t size)
{
    snprintf(busy.call, sizeof(busy.call), "%s of %zu bytes", what, size);
    ++busy.calls;
    alarm(BUSY_SECONDS);
}

/* Copy as a program with a stream of its own does: wait for this stream
   only. */
static void busy_set(ucx_mp_mem_t mem, void *ptr, uint32_t value, size_t size)
{
    size_t i;

    if (mem != UCX_MP_MEM_DEVICE) {
        for (i = 0; i < size / 4; ++i) {
            ((uint32_t*)ptr)[i] = value;
        }
        return;
    }

    UCX_MP_DRIVER(fill_async, (uintptr_t)ptr, value, size / 4, busy.own);
    UCX_MP_DRIVER(stream_synchronize, busy.own);
}

static void busy_expect_at(ucx_mp_mem_t mem, const void *ptr, uint32_t value,
                           size_t offset)
{
    uint32_t got = *busy.window;

    if (mem == UCX_MP_MEM_DEVICE) {
        UCX_MP_DRIVER(copy_dtoh_async, busy.window, (uintptr_t)ptr + offset, 4,
                      busy.own);
        UCX_MP_DRIVER(stream_synchronize, busy.own);
        got = *busy.window;
    } else {
        memcpy(&got, (const char*)ptr + offset, 4);
    }

    if (got != value) {
        ucx_mp_report("%s: %u at %zu, not %u", busy.call, got, offset, value);
        ++busy.wrong;
    }
}

static void busy_expect(ucx_mp_mem_t mem, const void *ptr, uint32_t value,
                        size_t size)
{
    alarm(0);
    busy_expect_at(mem, ptr, value, 0);
    busy_expect_at(mem, ptr, value, (size / 8) * 4);
    busy_expect_at(mem, ptr, value, size - 4);
}

static uint32_t busy_sum(void)
{
    return (uint32_t)(busy.size * (busy.size + 1) / 2);
}

static void busy_allreduce(const char *what, MPI_Comm comm, MPI_Op op,
                           void *from, void *to, size_t size)
{
    busy_set(UCX_MP_MEM_DEVICE, from, (uint32_t)busy.rank + 1, size);
    busy_call(what, size);
    MPI_Allreduce(from, to, (int)(size / 4), MPI_UINT32_T, op, comm);
    busy_expect(UCX_MP_MEM_DEVICE, to,
                (op == MPI_MAX) ? (uint32_t)busy.size : busy_sum(), size);
}

static void busy_copies(void *from, void *to, size_t size)
{
    const size_t block = size / busy.size / 4 * 4;

    busy_set(UCX_MP_MEM_DEVICE, from, (uint32_t)busy.rank + 7, size);
    busy_call("MPI_Bcast", size);
    MPI_Bcast(from, (int)(size / 4), MPI_UINT32_T, busy.size - 1,
              MPI_COMM_WORLD);
    busy_expect(UCX_MP_MEM_DEVICE, from, (uint32_t)busy.size + 6, size);

    busy_set(UCX_MP_MEM_DEVICE, from, 9, size);
    busy_call("MPI_Allgather", size);
    MPI_Allgather(from, (int)(block / 4), MPI_UINT32_T, to, (int)(block / 4),
                  MPI_UINT32_T, MPI_COMM_WORLD);
    busy_expect(UCX_MP_MEM_DEVICE, to, 9, block * busy.size);

    busy_call("MPI_Alltoall", size);
    MPI_Alltoall(from, (int)(block / 4), MPI_UINT32_T, to, (int)(block / 4),
                 MPI_UINT32_T, MPI_COMM_WORLD);
    busy_expect(UCX_MP_MEM_DEVICE, to, 9, block * busy.size);
}

static void busy_message(ucx_mp_mem_t from_mem, void *from, ucx_mp_mem_t to_mem,
                         void *to, size_t size)
{
    const int next = (busy.rank + 1) % busy.size;
    const int last = (busy.rank + busy.size - 1) % busy.size;
    char what[40];

    snprintf(what, sizeof(what), "message from %s to %s",
             ucx_mp_mem_names[from_mem], ucx_mp_mem_names[to_mem]);
    busy_set(from_mem, from, (uint32_t)(busy.rank + size), size);
    busy_call(what, size);
    MPI_Sendrecv(from, (int)(size / 4), MPI_UINT32_T, next, 0, to,
                 (int)(size / 4), MPI_UINT32_T, last, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    busy_expect(to_mem, to, (uint32_t)(last + size), size);
}

static void busy_messages(void)
{
    static const size_t sizes[] = {4, 1024, 8192, 65536, 1 << 20, 16 << 20};
    void *from[UCX_MP_MEM_MANAGED], *to[UCX_MP_MEM_MANAGED];
    size_t i;
    int a, b;

    for (a = 0; a < UCX_MP_MEM_MANAGED; ++a) {
        from[a] = ucx_mp_mem_alloc((ucx_mp_mem_t)a, 16 << 20);
        to[a]   = ucx_mp_mem_alloc((ucx_mp_mem_t)a, 16 << 20);
    }

    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
        for (a = 0; a < UCX_MP_MEM_MANAGED; ++a) {
            for (b = 0; b < UCX_MP_MEM_MANAGED; ++b) {
                busy_message((ucx_mp_mem_t)a, from[a], (ucx_mp_mem_t)b, to[b],
                             sizes[i]);
            }
        }
    }
}

static MPI_Datatype busy_vector(size_t size)
{
    MPI_Datatype type;

    MPI_Type_vector(64, (int)(size / 64 / 4), (int)(size / 64 / 4) + 64,
                    MPI_UINT32_T, &type);
    MPI_Type_commit(&type);
    return type;
}

/* Receive messages with gaps at once, of which one word arrives. */
static void busy_gaps(const char *what, uint32_t *buf, int count)
{
    const int next    = (busy.rank + 1) % busy.size;
    const int last    = (busy.rank + busy.size - 1) % busy.size;
    MPI_Datatype type = busy_vector(BUSY_LARGE);
    MPI_Request requests[BUSY_GAPS];
    uint32_t word;
    int i;

    busy_call(what, BUSY_LARGE);
    for (i = 0; i < count; ++i) {
        MPI_Irecv((char*)buf + (size_t)i * BUSY_SPAN, 1, type, last, i,
                  MPI_COMM_WORLD, &requests[i]);
    }
    for (i = 0; i < count; ++i) {
        word = (uint32_t)(busy.rank + i);
        MPI_Send(&word, 1, MPI_UINT32_T, next, i, MPI_COMM_WORLD);
    }
    for (i = 0; i < count; ++i) {
        busy_call(what, BUSY_LARGE);
        alarm((unsigned)count * BUSY_SECONDS); /* it may unpack all of them */
        MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
        alarm(0);
        busy_expect_at(UCX_MP_MEM_DEVICE, (char*)buf + (size_t)i * BUSY_SPAN,
                       (uint32_t)(last + i), 0);
    }
    MPI_Type_free(&type);
}

/* Calls whose buffers are staged */
static void busy_staged(void *from, void *to)
{
    const int count   = (int)(BUSY_SMALL / 4);
    const int next    = (busy.rank + 1) % busy.size;
    const int last    = (busy.rank + busy.size - 1) % busy.size;
    MPI_Datatype type = busy_vector(BUSY_SMALL / 2);
    int position      = 0;
    MPI_Request request;

    busy_set(UCX_MP_MEM_DEVICE, from, (uint32_t)busy.rank + 1, BUSY_SMALL);
    busy_set(UCX_MP_MEM_DEVICE, to, 3, BUSY_SMALL);
    busy_call("MPI_Reduce_local", BUSY_SMALL);
    MPI_Reduce_local(from, to, count, MPI_UINT32_T, MPI_SUM);
    busy_expect(UCX_MP_MEM_DEVICE, to, (uint32_t)busy.rank + 4, BUSY_SMALL);

    busy_call("MPI_Sendrecv_replace", BUSY_SMALL);
    MPI_Sendrecv_replace(to, count, MPI_UINT32_T, next, 0, last, 0,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    busy_expect(UCX_MP_MEM_DEVICE, to, (uint32_t)last + 4, BUSY_SMALL);

    busy_call("MPI_Scan", BUSY_SMALL);
    MPI_Scan(from, to, count, MPI_UINT32_T, MPI_MAX, MPI_COMM_WORLD);
    busy_expect(UCX_MP_MEM_DEVICE, to, (uint32_t)busy.rank + 1, BUSY_SMALL);

    busy_call("MPI_Iallreduce", BUSY_SMALL);
    MPI_Iallreduce(from, to, count, MPI_UINT32_T, MPI_SUM, MPI_COMM_WORLD,
                   &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    busy_expect(UCX_MP_MEM_DEVICE, to, busy_sum(), BUSY_SMALL);

    busy_call("MPI_Pack", BUSY_SMALL / 2);
    MPI_Pack(from, 1, type, to, (int)BUSY_SMALL, &position, MPI_COMM_WORLD);
    busy_expect(UCX_MP_MEM_DEVICE, to, (uint32_t)busy.rank + 1,
                BUSY_SMALL / 2);

    busy_call("message with gaps", BUSY_SMALL / 2);
    MPI_Sendrecv(from, 1, type, next, 0, to, (int)(BUSY_SMALL / 8),
                 MPI_UINT32_T, last, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    busy_expect(UCX_MP_MEM_DEVICE, to, (uint32_t)last + 1, BUSY_SMALL / 2);
    MPI_Type_free(&type);
}

/* One-sided calls on a window in GPU memory */
static void busy_windows(void *from, void *to)
{
    const int count   = (int)(BUSY_SMALL / 4);
    const int next    = (busy.rank + 1) % busy.size;
    const int last    = (busy.rank + busy.size - 1) % busy.size;
    MPI_Datatype type = busy_vector(BUSY_SMALL / 2);
    MPI_Win win;

    busy_set(UCX_MP_MEM_DEVICE, from, (uint32_t)busy.rank + 1, BUSY_SMALL);
    busy_set(UCX_MP_MEM_DEVICE, to, 0, BUSY_SMALL);
    busy_call("MPI_Win_create", BUSY_SMALL);
    MPI_Win_create(to, (MPI_Aint)BUSY_SMALL, 4, MPI_INFO_NULL, MPI_COMM_WORLD,
                   &win);
    MPI_Win_fence(0, win);
    busy_call("MPI_Put", BUSY_SMALL);
    MPI_Put(from, count, MPI_UINT32_T, next, 0, count, MPI_UINT32_T, win);
    MPI_Win_fence(0, win);
    busy_expect(UCX_MP_MEM_DEVICE, to, (uint32_t)last + 1, BUSY_SMALL);
    MPI_Win_fence(0, win);
    busy_call("MPI_Accumulate", BUSY_SMALL);
    MPI_Accumulate(from, count, MPI_UINT32_T, next, 0, count, MPI_UINT32_T,
                   MPI_SUM, win);
    MPI_Win_fence(0, win);
    busy_expect(UCX_MP_MEM_DEVICE, to, 2 * ((uint32_t)last + 1), BUSY_SMALL);
    MPI_Win_fence(0, win);
    busy_call("MPI_Put with gaps", BUSY_SMALL / 2);
    MPI_Put(from, 1, type, next, 0, count / 2, MPI_UINT32_T, win);
    MPI_Win_fence(0, win);
    busy_expect(UCX_MP_MEM_DEVICE, to, (uint32_t)last + 1, BUSY_SMALL / 2);
    busy_call("MPI_Win_free", BUSY_SMALL);
    MPI_Win_free(&win);
    alarm(0);
    MPI_Type_free(&type);
}

static void busy_wait(void)
{
    *busy.word = 0;
    UCX_MP_DRIVER(stream_wait, busy.waiting, (uintptr_t)busy.word, 1,
                  BUSY_WAIT_GEQ);
}

static void busy_release(void)
{
    alarm(0);
    *busy.word = 1;
    UCX_MP_DRIVER(stream_synchronize, busy.waiting);
}

static void busy_ends(int signal)
{
    (void)signal;
    *busy.word = 1;
}

/* Free a window whose memory the GPU still writes: as cuMemFree(), the call
   waits for the GPU, which ends after a second. */
static void busy_allocated(void)
{
    MPI_Info info;
    MPI_Win win;
    void *base;

    MPI_Info_create(&info);
    MPI_Info_set(info, "mpi_memory_alloc_kinds", "cuda:device");
    MPI_Win_allocate((MPI_Aint)BUSY_SMALL, 4, info, MPI_COMM_WORLD, &base,
                     &win);
    MPI_Info_free(&info);
    busy_call("MPI_Win_free of memory in use", BUSY_SMALL);
    busy_wait();
    UCX_MP_DRIVER(fill_async, (uintptr_t)base, 1, BUSY_SMALL / 4, busy.waiting);
    signal(SIGALRM, busy_ends);
    alarm(1);
    MPI_Win_free(&win);
    if (*busy.word == 0) {
        ucx_mp_report("%s: does not wait", busy.call);
        ++busy.wrong;
    }
    busy_release();
    signal(SIGALRM, busy_hangs);
}

static void busy_setup(unsigned stream)
{
    ucx_mp_get_rank(&busy.rank, &busy.size);
    ucx_mp_gpu_require(ucx_mp_gpu_local_rank(busy.rank));
    ucx_mp_driver_load();
    busy.word   = ucx_mp_mem_alloc(UCX_MP_MEM_PINNED, 4096);
    busy.window = ucx_mp_mem_alloc(UCX_MP_MEM_PINNED, 4096);
    *busy.word  = 0;
    UCX_MP_DRIVER(stream_create, &busy.own, 1);
    if (stream < BUSY_LEGACY) {
        UCX_MP_DRIVER(stream_create, &busy.waiting, stream);
    }
    signal(SIGALRM, busy_hangs);
}

/* Send a datatype with gaps that was committed before the GPU waited: a kernel
   packs it. Through host memory this takes fifteen times as long. */
static void busy_committed(void)
{
    const int next    = (busy.rank + 1) % busy.size;
    const int last    = (busy.rank + busy.size - 1) % busy.size;
    void *from        = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, BUSY_SPAN);
    void *to          = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, BUSY_SPAN);
    MPI_Datatype type = busy_vector(BUSY_LARGE);
    double best       = BUSY_SECONDS;
    double start;
    int i;

    busy_set(UCX_MP_MEM_DEVICE, from, (uint32_t)busy.rank + 1, BUSY_SPAN);
    busy_wait();
    for (i = 0; i < 3; ++i) {
        busy_call("message with gaps, committed before", BUSY_LARGE);
        MPI_Barrier(MPI_COMM_WORLD);
        start = ucx_mp_time();
        MPI_Sendrecv(from, 1, type, next, 0, to, 1, type, last, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        start = ucx_mp_time() - start;
        best  = (start < best) ? start : best;
    }
    busy_expect(UCX_MP_MEM_DEVICE, to, (uint32_t)last + 1, BUSY_LARGE);
    if (ucx_mp_gpu_emulated() && (best > BUSY_PACKED)) {
        ucx_mp_report("%s: %.1f ms", busy.call, best * 1e3);
        ++busy.wrong;
    }

    busy_release();
    MPI_Type_free(&type);
    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, from);
    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, to);
}

/* Run everything while the GPU waits. */
static void busy_run(MPI_Comm old)
{
    void *from = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, BUSY_LARGE);
    void *to   = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, BUSY_SPAN);
    MPI_Comm comm;

    busy_allreduce("a larger MPI_Allreduce", MPI_COMM_WORLD, MPI_SUM, from, to,
                   BUSY_LARGE);
    busy_allreduce("MPI_Allreduce of a new operation", MPI_COMM_WORLD, MPI_MAX,
                   from, to, BUSY_SMALL);
    busy_copies(from, to, BUSY_LARGE);
    busy_call("MPI_Comm_dup", 0);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    busy_allreduce("MPI_Allreduce of a new communicator", comm, MPI_SUM, from,
                   to, BUSY_SMALL);
    busy_call("MPI_Comm_free of the new communicator", 0);
    MPI_Comm_free(&comm);
    busy_call("MPI_Comm_free", 0);
    MPI_Comm_free(&old);
    busy_messages();
    busy_staged(from, to);
    busy_windows(from, to);
    busy_gaps("message with gaps", to, 1);
}

/* Free buffers while the GPU is idle, since freeing would wait for it, and make
   larger ones: the other ranks must not close their mappings of the old buffers
   during calls on the new ones. */
static void busy_grow(void)
{
    void *from, *to;
    size_t size;

    for (size = BUSY_SMALL; size < BUSY_LARGE; size *= 2) {
        from = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, size);
        to   = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, size);
        busy_wait();
        busy_allreduce("MPI_Allreduce of new buffers", MPI_COMM_WORLD, MPI_SUM,
                       from, to, size);
        busy_message(UCX_MP_MEM_DEVICE, from, UCX_MP_MEM_DEVICE, to, size);
        busy_release();
        MPI_Barrier(MPI_COMM_WORLD); /* no rank reads them any more */
        ucx_mp_mem_free(UCX_MP_MEM_DEVICE, from);
        ucx_mp_mem_free(UCX_MP_MEM_DEVICE, to);
    }
}

/* Sum small buffers at addresses where others have been freed: they share a
   block of memory with one that stays, and the other ranks still map the freed
   ones. Once the GPU is idle again, it sums them. */
static void busy_small(void)
{
    const size_t size = 64 << 10;
    void *stays       = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, size);
    long on_gpus      = 0;
    void *from, *to;
    int round, call;
    double end;

    for (round = 0; round < 2; ++round) {
        from = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, size);
        to   = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, size);
        if (round == 1) {
            busy_wait();
            for (call = 0; call < 4; ++call) {
                busy_allreduce("MPI_Allreduce of small buffers",
                               MPI_COMM_WORLD, MPI_SUM, from, to, size);
            }
            busy_release();
            for (end = ucx_mp_time() + BUSY_AGAIN; ucx_mp_time() < end;)
                ;
            on_gpus = ucx_mp_on_gpus();
        }
        MPI_Barrier(MPI_COMM_WORLD); /* no GPU is busy */
        busy_allreduce("MPI_Allreduce of small buffers on an idle GPU",
                       MPI_COMM_WORLD, MPI_SUM, from, to, size);
        if (ucx_mp_on_gpus() == on_gpus) {
            ucx_mp_report("%s: not on the GPU", busy.call);
            ++busy.wrong;
        }
        MPI_Barrier(MPI_COMM_WORLD); /* no rank reads them any more */
        ucx_mp_mem_free(UCX_MP_MEM_DEVICE, from);
        ucx_mp_mem_free(UCX_MP_MEM_DEVICE, to);
    }
    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, stays);
}

/* Load the kernels for gaps and windows while the GPU is idle. Free no buffers:
   the other ranks would close their mappings of so much memory in later
   messages, which may wait for a non-blocking stream. */
static void busy_kernels(void)
{
    void *from = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, BUSY_LARGE);
    void *to   = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, BUSY_GAPS * BUSY_SPAN);

    busy_staged(from, to);
    busy_windows(from, to);
    busy_wait();
    busy_staged(from, to);
    busy_windows(from, to);
    busy_gaps("many messages with gaps", to, BUSY_GAPS);
    busy_release();
}

int main(int argc, char **argv)
{
    static const char *const streams[] = {"blocking", "non-blocking", "legacy",
                                          NULL};
    void *from, *to;
    MPI_Comm old;
    unsigned stream;
    uint64_t wrong;

    ucx_mp_program = "ucx_mp_busy";
    MPI_Init(&argc, &argv);
    if (argc != 2) {
        ucx_mp_die(UCX_MP_EXIT_USAGE,
                   "usage: ucx_mp_busy blocking|non-blocking|legacy");
    }

    stream = (unsigned)ucx_mp_parse_choice("stream", argv[1], streams);
    busy_setup(stream);
    from = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, BUSY_SMALL);
    to   = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, BUSY_SMALL);
    MPI_Comm_dup(MPI_COMM_WORLD, &old);
    busy_allreduce("the first MPI_Allreduce", MPI_COMM_WORLD, MPI_SUM, from, to,
                   BUSY_SMALL);
    busy_allreduce("the first MPI_Allreduce", old, MPI_SUM, from, to,
                   BUSY_SMALL);
    busy_copies(from, to, BUSY_SMALL);

    if (stream == BUSY_LEGACY) { /* the others begin without the kernel */
        busy_committed();
    }
    busy_wait();
    busy_run(old);
    busy_release();
    busy_kernels();
    busy_grow();
    busy_small();
    busy_allocated();
    MPI_Allreduce(&busy.wrong, &wrong, 1, MPI_UINT64_T, MPI_SUM,
                  MPI_COMM_WORLD);
    if (busy.rank == 0) {
        printf("ucx_mp_busy: %llu calls beside a %s stream that waits for the "
               "program, %ld collectives on GPUs, %llu results wrong\n",
               (unsigned long long)busy.calls, argv[1], ucx_mp_on_gpus(),
               (unsigned long long)wrong);
    }

    alarm(0);
    return ucx_mp_finish(wrong > 0);
}
