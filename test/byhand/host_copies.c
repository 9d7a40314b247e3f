/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Measure small copies between GPU 0 and host memory as UCX makes them for
 * eager messages: pageable memory, memory shared with another process that has
 * just written or read it, and page-locked memory; by the calls that name the
 * direction and by cuMemcpyAsync. Then measure process_vm_readv() from that
 * process into page-locked memory, which carries larger messages. Each process
 * has a core.
 */
#define _GNU_SOURCE
#include "byhand.h"

#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#define MAX_ROUNDS 4000
#define MAX_SIZE   ((size_t)1 << 20)

enum { PAGEABLE, SHARED, FRESH, LOCKED, NUM_KINDS };
enum { START, WRITE, READ };

static const char *const kinds[] = {"pageable", "shared", "fresh", "locked"};

static size_t rounds = 400;

static const byhand_option_t options[] = {
    {"rounds", "copies for each figure", &rounds, 1, MAX_ROUNDS, NULL},
    {NULL, NULL, NULL, 0, 0, NULL}};

static const byhand_program_t program = {
    "host_copies",
    "Time of small copies between GPU 0 and host memory, and from another "
    "process: us.",
    "1M", options, MAX_SIZE};

/* What the other process is to do, and its memory */
typedef struct {
    sem_t        asked;
    volatile int is_done;
    int          what;
    size_t       size;
    char         *source[2]; /* pageable, page-locked */
} board_t;

static const size_t sizes[] = {8,     64,    512,   1024,  2048,     4096,
                               8192,  16384, 32768, 65536, 1ul << 18, MAX_SIZE};

static pid_t other;
static board_t *board;
static char *shared;
static char *memory[NUM_KINDS];
static CUdeviceptr gpu;
static CUstream stream;
static CUevent event;


static void print(double *times)
{
    const double median = byhand_median(times, rounds);

    printf(" %8.2f %8.2f", median, times[rounds / 10]);
}

/* Bind this process to the first or second of its processors. */
static void bind_to(int number)
{
    cpu_set_t allowed, one;
    int cpu;

    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
        return;
    }
    for (cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (CPU_ISSET(cpu, &allowed) && (number-- == 0)) {
            CPU_SET(cpu, &one);
            (void)sched_setaffinity(0, sizeof(one), &one);
        }
    }
}

static char *pageable_memory(void)
{
    char *address = aligned_alloc(4096, MAX_SIZE);

    if (address == NULL) {
        byhand_die("no memory");
    }
    return memset(address, 1, MAX_SIZE);
}

static void *shared_memory(size_t size)
{
    void *address = mmap(NULL, size, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (address == MAP_FAILED) {
        byhand_die("no shared memory");
    }
    return memset(address, 0, size);
}

/* ------------------------------------------------------------ other process */

static void serve(void)
{
    const volatile char *bytes = shared;
    size_t i;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    bind_to(1);
    board->source[0] = pageable_memory();
    board->source[1] = memset(byhand_host_memory(MAX_SIZE), 1, MAX_SIZE);
    for (;;) {
        while (sem_wait(&board->asked) != 0) {
        }
        if (board->what == WRITE) {
            memset(shared, 1, board->size);
        }
        for (i = 0; (board->what == READ) && (i < board->size); i += 64) {
            (void)bytes[i];
        }
        __sync_synchronize();
        board->is_done = 1;
    }
}

static void ask(int what, size_t size)
{
    board->what    = what;
    board->size    = size;
    board->is_done = 0;
    (void)sem_post(&board->asked);
    while (!board->is_done) {
        sched_yield();
    }
}

/* ------------------------------------------------------------------- copies */

static void submit(int to_gpu, int is_named, char *host, size_t size)
{
    const CUdeviceptr address = (CUdeviceptr)(uintptr_t)host;

    if (!is_named) {
        CU(MemcpyAsync(to_gpu ? gpu : address, to_gpu ? address : gpu, size,
                       stream));
    } else if (to_gpu) {
        CU(MemcpyHtoDAsync(gpu, host, size, stream));
    } else {
        CU(MemcpyDtoHAsync(host, gpu, size, stream));
    }
}

/* Wait as UCX does: by the stream for a short message, else by an event. */
static void wait_for(int by_event)
{
    if (!by_event) {
        CU(StreamSynchronize(stream));
        return;
    }

    CU(EventRecord(event, stream));
    while (cu.EventQuery(event) == CUDA_ERROR_NOT_READY) {
    }
}

static void time_copies(int to_gpu, int kind, int is_named, size_t size)
{
    static double call[MAX_ROUNDS], ended[2][MAX_ROUNDS];
    double start;
    int by_event;
    size_t i;

    for (i = 0; i < 2 * rounds; ++i) {
        by_event = i % 2;
        if (kind == FRESH) {
            ask(to_gpu ? WRITE : READ, size);
        }
        start = byhand_now();
        submit(to_gpu, is_named, memory[kind], size);
        call[i / 2] = (byhand_now() - start) * 1e6;
        wait_for(by_event);
        ended[by_event][i / 2] = (byhand_now() - start) * 1e6;
    }
    printf("%-8s %-9s %-6s %8zu", to_gpu ? "to GPU" : "to host",
           kinds[kind], is_named ? "named" : "any", size);
    print(call);
    print(ended[0]);
    print(ended[1]);
    printf("\n");
    fflush(stdout);
}

static void time_reads(int is_locked, size_t size)
{
    static double times[MAX_ROUNDS];
    struct iovec here  = {memory[LOCKED], size};
    struct iovec there = {board->source[is_locked], size};
    ssize_t bytes;
    double start;
    size_t i;

    for (i = 0; i < rounds; ++i) {
        start    = byhand_now();
        bytes    = process_vm_readv(other, &here, 1, &there, 1, 0);
        times[i] = (byhand_now() - start) * 1e6;
        if (bytes != (ssize_t)size) {
            printf("process_vm_readv() of %s memory: %zd\n",
                   kinds[is_locked ? LOCKED : PAGEABLE], bytes);
            return;
        }
    }
    printf("%-16s %-8s %8zu", "process_vm_readv",
           kinds[is_locked ? LOCKED : PAGEABLE], size);
    print(times);
    printf("\n");
    fflush(stdout);
}

static void begin(int argc, char **argv)
{
    board  = shared_memory(sizeof(*board));
    shared = shared_memory(MAX_SIZE);
    (void)sem_init(&board->asked, 1, 0);
    other = fork();
    byhand_begin(argc, argv, &program, 1);
    if (other == 0) {
        serve();
    }
    bind_to(0);
    ask(START, 0);
    memory[PAGEABLE] = pageable_memory();
    memory[SHARED]   = shared;
    memory[FRESH]    = shared;
    memory[LOCKED]   = byhand_host_memory(MAX_SIZE);
    gpu              = byhand_gpu_memory(0, MAX_SIZE);
    stream           = byhand_stream(0);
    event            = byhand_event(0);
}

int main(int argc, char **argv)
{
    const unsigned num_sizes = sizeof(sizes) / sizeof(sizes[0]);
    unsigned way, i;

    begin(argc, argv);
    printf("us, median and tenth: the call, until synchronized, until seen by "
           "an event\n");
    for (way = 0; way < 4 * NUM_KINDS; ++way) {
        for (i = 0; i < num_sizes; ++i) {
            time_copies(way % 2, way / 4, way / 2 % 2, sizes[i]);
        }
    }
    for (way = 0; way < 2; ++way) {
        for (i = 0; i < num_sizes; ++i) {
            time_reads(way, sizes[i]);
        }
    }
    return 0;
}
