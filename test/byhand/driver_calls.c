/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Measure the driver calls that a transfer makes, and what copies between two
 * GPUs cost: one by one, and several by one call, in an idle stream and behind
 * a long copy. These are the costs that a node file of the emulator names.
 */
#include "byhand.h"

#include <stdio.h>

#define CALLS      2000
#define ROUNDS     200
#define MAX_COPIES 32
#define LONG_COPY  ((size_t)64 << 20)
#define MAX_SIZE   ((size_t)1 << 20)

static const byhand_option_t options[] = {{NULL, NULL, NULL, 0, 0, NULL}};

static const byhand_program_t program = {
    "driver_calls",
    "Time of driver calls, and of copies from GPU 0 to GPU 1: medians, us.",
    "1M", options, MAX_SIZE};

static const size_t copies[] = {8ul << 10, 64ul << 10, 256ul << 10, 512ul << 10,
                                MAX_SIZE};

static CUdeviceptr from, to;
static CUdeviceptr sources[MAX_COPIES], targets[MAX_COPIES];
static size_t sizes[MAX_COPIES];
static CUstream stream;
static CUevent event, begin, end;


/* -------------------------------------------------------------------- calls */

static void nothing(void)
{
}

static void get_current(void)
{
    CUcontext context;

    CU(CtxGetCurrent(&context));
}

static void get_device(void)
{
    CUdevice device;

    CU(CtxGetDevice(&device));
}

static void get_id(void)
{
    unsigned long long id;

    CU(CtxGetId(byhand_contexts[0], &id));
}

static void push_and_pop(void)
{
    CUcontext context;

    CU(CtxPushCurrent(byhand_contexts[0]));
    CU(CtxPopCurrent(&context));
}

static void exchange_mode(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    CU(ThreadExchangeStreamCaptureMode(&mode));
}

static void get_attributes(CUdeviceptr address)
{
    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                   CU_POINTER_ATTRIBUTE_CONTEXT};
    unsigned type, is_managed;
    CUcontext context;
    int device;
    void *values[] = {&type, &is_managed, &device, &context};

    CU(PointerGetAttributes(4, names, values, address));
}

static void ask_gpu(void)
{
    get_attributes(from + 4096);
}

static void ask_host(void)
{
    static char unknown[4096];

    get_attributes((CUdeviceptr)unknown);
}

static void get_range(void)
{
    CUdeviceptr base;
    size_t size;

    CU(MemGetAddressRange(&base, &size, from + 4096));
}

static void query_event(void)
{
    (void)cu.EventQuery(event);
}

static void query_stream(void)
{
    (void)cu.StreamQuery(stream);
}

static void record(void)
{
    CU(EventRecord(event, stream));
}

static void wait_event(void)
{
    CU(StreamWaitEvent(stream, event, 0));
}

static void copy_long(void)
{
    CU(MemcpyAsync(to, from, LONG_COPY, stream));
    CU(EventRecord(event, stream));
}

/* Calls without and with work in the stream; a long copy lasts for some 100 of
   the second kind */
static const struct {
    const char *name;
    void       (*call)(void);
    int        is_busy;
} calls[] = {{"nothing (the clock)", nothing, 0},
             {"cuCtxGetCurrent", get_current, 0},
             {"cuCtxGetDevice", get_device, 0},
             {"cuCtxGetId", get_id, 0},
             {"cuCtxPushCurrent and cuCtxPopCurrent", push_and_pop, 0},
             {"cuThreadExchangeStreamCaptureMode", exchange_mode, 0},
             {"cuPointerGetAttributes, GPU memory", ask_gpu, 0},
             {"cuPointerGetAttributes, unknown memory", ask_host, 0},
             {"cuMemGetAddressRange", get_range, 0},
             {"cuEventQuery, complete", query_event, 0},
             {"cuStreamQuery, idle", query_stream, 0},
             {"cuEventQuery, not complete", query_event, 1},
             {"cuEventRecord", record, 0},
             {"cuStreamWaitEvent", wait_event, 0}};

static void time_call(unsigned number)
{
    static double times[CALLS];
    double start;
    int i;

    for (i = 0; i < CALLS; ++i) {
        if (calls[number].is_busy && (i % 64 == 0)) {
            CU(StreamSynchronize(stream));
            copy_long();
        }
        start = byhand_now();
        calls[number].call();
        times[i] = (byhand_now() - start) * 1e6;
    }
    CU(StreamSynchronize(stream));
    (void)byhand_median(times, CALLS);
    printf("%-40s %8.3f %8.3f %8.3f\n", calls[number].name, times[CALLS / 2],
           times[CALLS / 10], times[CALLS * 9 / 10]);
}

/* ------------------------------------------------------------------- copies */

static void submit(int count, int is_batch)
{
    int i;

    if (is_batch) {
        byhand_copy_batch(targets, sources, sizes, count, stream);
        return;
    }

    for (i = 0; i < count; ++i) {
        CU(MemcpyAsync(targets[i], sources[i], sizes[i], stream));
    }
}

static void time_copies(int count, int is_batch)
{
    double call[ROUNDS], seen[ROUNDS], busy[ROUNDS], gpu[ROUNDS], start;
    float ms;
    int i;

    for (i = 0; i < ROUNDS; ++i) {
        start = byhand_now();
        submit(count, is_batch);
        call[i] = (byhand_now() - start) * 1e6;
        CU(EventRecord(event, stream));
        while (cu.EventQuery(event) == CUDA_ERROR_NOT_READY) {
        }
        seen[i] = (byhand_now() - start) * 1e6;

        CU(MemcpyAsync(to, from, LONG_COPY, stream));
        CU(EventRecord(begin, stream));
        start = byhand_now();
        submit(count, is_batch);
        busy[i] = (byhand_now() - start) * 1e6;
        CU(EventRecord(end, stream));
        CU(StreamSynchronize(stream));
        CU(EventElapsedTime(&ms, begin, end));
        gpu[i] = ms * 1e3;
    }
    printf(" | %7.1f %7.1f %7.1f %7.1f", byhand_median(call, ROUNDS),
           byhand_median(seen, ROUNDS), byhand_median(busy, ROUNDS),
           byhand_median(gpu, ROUNDS));
}

static void prepare(size_t size)
{
    int i;

    for (i = 0; i < MAX_COPIES; ++i) {
        sources[i] = from + 2 * i * size;
        targets[i] = to + 2 * i * size;
        sizes[i]   = size;
    }
}

int main(int argc, char **argv)
{
    unsigned i;
    int count;

    byhand_begin(argc, argv, &program, 2);
    from   = byhand_gpu_memory(0, LONG_COPY);
    to     = byhand_gpu_memory(1, LONG_COPY);
    stream = byhand_stream(0);
    event  = byhand_event(0);
    CU(EventCreate(&begin, CU_EVENT_DEFAULT));
    CU(EventCreate(&end, CU_EVENT_DEFAULT));

    printf("%-40s %8s %8s %8s\n", "us", "median", "tenth", "nine");
    record();
    for (i = 0; i < sizeof(calls) / sizeof(calls[0]); ++i) {
        time_call(i);
    }

    printf("\nfor each way: the call, until seen; behind a long copy: the "
           "call, time on the GPU\n%8s %3s | %31s | %31s\n", "bytes", "n",
           "one by one", "by one call");
    for (i = 0; i < sizeof(copies) / sizeof(copies[0]); ++i) {
        prepare(copies[i]);
        for (count = 1; count <= MAX_COPIES; count *= 2) {
            printf("%8zu %3d", copies[i], count);
            time_copies(count, 0);
            time_copies(count, 1);
            printf("\n");
            fflush(stdout);
        }
    }
    return 0;
}
