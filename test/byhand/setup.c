/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Measure how long a process's calls on one GPU wait while another of its
 * threads prepares staging through the host: a context on a second GPU, its
 * streams, page-locked memory. The driver's locks decide, and its manual does
 * not describe them.
 */
#include "byhand.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MIB       ((size_t)1 << 20)
#define STAGING   (64 * MIB)
#define PIECE     (2 * MIB)
#define PAUSE_US  50000 /* before each step */
#define COPY      MIB

enum {
    WAY_CREATE,
    WAY_RETAIN,
    WAY_HOLD
};

static const char *const ways[] = {"create", "retain", "hold", NULL};

static size_t way;

static const byhand_option_t options[] = {
    {"way", "see below", &way, 0, 0, ways},
    {NULL, NULL, NULL, 0, 0, NULL}};

static const byhand_program_t program = {
    "setup",
    "One thread copies within GPU 0, 1 MiB at a time, and notes the longest "
    "time that\none of its calls took; the other gets things ready, one step "
    "after another.\n"
    "  create  the context on GPU 1 is made by cuCtxCreate\n"
    "  retain  it is its primary context\n"
    "  hold    have contexts on all GPUs for 30 s: for others to run beside\n"
    "Take --gpus 1 for create and retain, so that there is none before.",
    "1M", options, MIB};

static CUcontext context;
static CUstream streams[2];
static CUdeviceptr there;
static void *locked, *touched;


static void do_nothing(void)
{
    usleep(PAUSE_US);
}

static void make_context(void)
{
    if (way == WAY_CREATE) {
        CU(CtxCreate(&context, 0, 1));
    } else {
        CU(DevicePrimaryCtxRetain(&context, 1));
    }
}

static void make_stream(void)
{
    CU(CtxSetCurrent(context));
    CU(StreamCreate(&streams[0], CU_STREAM_NON_BLOCKING));
    CU(StreamCreate(&streams[1], CU_STREAM_NON_BLOCKING));
}

static void make_memory(void)
{
    CU(MemAlloc(&there, COPY));
}

static void lock_memory(void)
{
    CU(CtxSetCurrent(byhand_contexts[0]));
    CU(MemHostAlloc(&locked, STAGING, CU_MEMHOSTALLOC_PORTABLE));
}

static void make_copy(void)
{
    CU(CtxSetCurrent(context));
    CU(MemcpyAsync(there, (CUdeviceptr)locked, COPY, streams[0]));
    CU(StreamSynchronize(streams[0]));
}

static void map_memory(void)
{
    touched = mmap(NULL, STAGING, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (touched == MAP_FAILED) {
        byhand_die("out of memory");
    }
}

static void touch_memory(void)
{
    map_memory();
    memset(touched, 1, STAGING);
}

static void touch_huge(void)
{
    map_memory();
    (void)madvise(touched, STAGING, MADV_HUGEPAGE);
    memset(touched, 1, STAGING);
}

static void lock_whole(void)
{
    CU(CtxSetCurrent(byhand_contexts[0]));
    CU(MemHostRegister(touched, STAGING, CU_MEMHOSTREGISTER_PORTABLE));
}

static void lock_pieces(void)
{
    size_t done;

    CU(CtxSetCurrent(byhand_contexts[0]));
    for (done = 0; done < STAGING; done += PIECE) {
        CU(MemHostRegister((char*)touched + done, PIECE,
                           CU_MEMHOSTREGISTER_PORTABLE));
    }
}

/* Calls of one step, in order */
static const struct {
    const char *name;
    void       (*run)(void);
} steps[] = {{"nothing, 50 ms", do_nothing},
             {"context on GPU 1", make_context},
             {"two streams there", make_stream},
             {"1 MiB there", make_memory},
             {"cuMemHostAlloc, 64 MiB", lock_memory},
             {"first copy there", make_copy},
             {"64 MiB touched, not locked", touch_memory},
             {"cuMemHostRegister, 64 MiB", lock_whole},
             {"64 MiB touched, not locked", touch_memory},
             {"cuMemHostRegister, 32 x 2 MiB", lock_pieces},
             {"... of huge pages", touch_huge},
             {"cuMemHostRegister, 64 MiB", lock_whole},
             {"nothing, 50 ms", do_nothing}};

#define NUM_STEPS ((int)(sizeof(steps) / sizeof(steps[0])))

enum {
    CALL_COPY,
    CALL_RECORD,
    CALL_QUERY,
    CALL_ALL, /* until the copy has ended */
    NUM_CALLS
};

static double longest[NUM_STEPS][NUM_CALLS]; /* seconds */
static double took[NUM_STEPS];
static int current = -1;


static void *get_ready(void *arg)
{
    double begin;
    int i;

    for (i = 0; i < NUM_STEPS; ++i) {
        usleep(PAUSE_US);
        __atomic_store_n(&current, i, __ATOMIC_RELEASE);
        begin = byhand_now();
        steps[i].run();
        took[i] = byhand_now() - begin;
        __atomic_store_n(&current, -1, __ATOMIC_RELEASE);
    }

    __atomic_store_n(&current, NUM_STEPS, __ATOMIC_RELEASE);
    return NULL;
}

/* Count a call for the step that was current when the call began, or when it
   ended. */
static void note(int call, double begin, int step)
{
    const double seconds = byhand_now() - begin;

    step = (step < 0) ? __atomic_load_n(&current, __ATOMIC_ACQUIRE) : step;
    if ((step >= 0) && (step < NUM_STEPS) && (seconds > longest[step][call])) {
        longest[step][call] = seconds;
    }
}

static void copy_once(CUstream stream, CUevent event, CUdeviceptr memory)
{
    const int step     = __atomic_load_n(&current, __ATOMIC_ACQUIRE);
    const double first = byhand_now();
    double begin       = first;
    CUresult result;

    CU(MemcpyAsync(memory + COPY, memory, COPY, stream));
    note(CALL_COPY, begin, step);
    begin = byhand_now();
    CU(EventRecord(event, stream));
    note(CALL_RECORD, begin, step);
    do {
        begin  = byhand_now();
        result = cu.EventQuery(event);
        note(CALL_QUERY, begin, step);
    } while (result == CUDA_ERROR_NOT_READY);
    byhand_check(result, "EventQuery");
    note(CALL_ALL, first, step);
}

int main(int argc, char **argv)
{
    CUdeviceptr memory;
    pthread_t thread;
    CUstream stream;
    CUevent event;
    int i;

    byhand_begin_apart(argc, argv, &program, 1);
    if (way == WAY_HOLD) {
        printf("# contexts on %d GPUs\n", byhand_gpus);
        fflush(stdout);
        sleep(30);
        return 0;
    }

    memory = byhand_gpu_memory(0, 2 * COPY);
    stream = byhand_stream(0);
    event  = byhand_event(0);
    if (pthread_create(&thread, NULL, get_ready, NULL) != 0) {
        byhand_die("no thread is to be had");
    }
    while (__atomic_load_n(&current, __ATOMIC_ACQUIRE) < NUM_STEPS) {
        copy_once(stream, event, memory);
    }
    pthread_join(thread, NULL);

    printf("# milliseconds: the step; the longest of GPU 0's copies meanwhile, "
           "and of its calls\n# %-30s %9s %9s %9s %9s %9s\n",
           "step", "takes", "a copy", "Memcpy", "Record", "Query");
    for (i = 0; i < NUM_STEPS; ++i) {
        printf("  %-30s %9.2f %9.2f %9.2f %9.2f %9.2f\n", steps[i].name,
               1e3 * took[i], 1e3 * longest[i][CALL_ALL],
               1e3 * longest[i][CALL_COPY], 1e3 * longest[i][CALL_RECORD],
               1e3 * longest[i][CALL_QUERY]);
    }
    return 0;
}
