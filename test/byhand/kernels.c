/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Measure launches of a small kernel on GPU 0 that copies 16 bytes in each
 * thread: the call, the time until an event after it is seen, and the time on
 * the GPU of each further kernel of a stream. With a second GPU, also a kernel
 * that writes to its memory.
 */
#include "byhand.h"

#include <stdio.h>

#define ROUNDS  1000
#define THREADS 256
#define MANY    64

static const byhand_option_t options[] = {{NULL, NULL, NULL, 0, 0, NULL}};

static const byhand_program_t program = {
    "kernels", "Time of launches of a small kernel on GPU 0: medians, us.",
    "1M", options, (size_t)1 << 20};

/* Parameters: target, source, and 3,984 bytes that the kernel does not read, as
   many as a list of blocks has */
static const char ptx[] =
        ".version 6.0\n.target sm_60\n.address_size 64\n"
        ".visible .entry copy_16(.param .u64 to, .param .u64 from,"
        " .param .align 8 .b8 rest[3984])\n{\n"
        ".reg .u32 %a, %b, %c, %i, %x<5>;\n.reg .u64 %o, %t, %f;\n"
        "mov.u32 %a, %ctaid.x;\nmov.u32 %b, %ntid.x;\nmov.u32 %c, %tid.x;\n"
        "mad.lo.u32 %i, %a, %b, %c;\nmul.wide.u32 %o, %i, 16;\n"
        "ld.param.u64 %t, [to];\nld.param.u64 %f, [from];\n"
        "add.u64 %t, %t, %o;\nadd.u64 %f, %f, %o;\n"
        "ld.global.v4.u32 {%x0, %x1, %x2, %x3}, [%f];\n"
        "st.global.v4.u32 [%t], {%x0, %x1, %x2, %x3};\nret;\n}\n";

static CUfunction kernel;
static CUdeviceptr from, to;
static CUstream stream;
static CUevent event, begin, end;


static void launch(unsigned blocks)
{
    static char rest[3984];
    void *params[] = {&to, &from, rest};

    CU(LaunchKernel(kernel, blocks, 1, 1, THREADS, 1, 1, 0, stream, params,
                    NULL));
}

/* Return the time on the GPU of `count` kernels, us. */
static double time_on_gpu(unsigned blocks, int count)
{
    float ms;
    int i;

    CU(EventRecord(begin, stream));
    for (i = 0; i < count; ++i) {
        launch(blocks);
    }
    CU(EventRecord(end, stream));
    CU(StreamSynchronize(stream));
    CU(EventElapsedTime(&ms, begin, end));
    return ms * 1e3;
}

static void measure(const char *label, unsigned blocks)
{
    static double call[ROUNDS], seen[ROUNDS], next[ROUNDS];
    double start;
    int i;

    for (i = 0; i < ROUNDS; ++i) {
        start = byhand_now();
        launch(blocks);
        call[i] = (byhand_now() - start) * 1e6;
        CU(EventRecord(event, stream));
        while (cu.EventQuery(event) == CUDA_ERROR_NOT_READY) {
        }
        seen[i] = (byhand_now() - start) * 1e6;
    }

    for (i = 0; i < ROUNDS; ++i) {
        next[i] = (time_on_gpu(blocks, MANY) - time_on_gpu(blocks, 1)) /
                  (MANY - 1);
    }
    printf("%-12s %6u %8.2f %8.2f %8.2f\n", label, blocks,
           byhand_median(call, ROUNDS), byhand_median(seen, ROUNDS),
           byhand_median(next, ROUNDS));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static const unsigned blocks[] = {1, 16, 132};
    CUmodule module;
    int gpu;
    size_t i;

    byhand_begin(argc, argv, &program, 1);
    byhand_on(0);
    CU(ModuleLoadData(&module, ptx));
    CU(ModuleGetFunction(&kernel, module, "copy_16"));
    from   = byhand_gpu_memory(0, (size_t)1 << 20);
    stream = byhand_stream(0);
    event  = byhand_event(0);
    CU(EventCreate(&begin, CU_EVENT_DEFAULT));
    CU(EventCreate(&end, CU_EVENT_DEFAULT));

    printf("%-12s %6s %8s %8s %8s\n", "writes to", "blocks", "call", "seen",
           "each more");
    for (gpu = 0; (gpu < byhand_gpus) && (gpu < 2); ++gpu) {
        to = byhand_gpu_memory(gpu, (size_t)1 << 20);
        byhand_on(0);
        for (i = 0; i < sizeof(blocks) / sizeof(blocks[0]); ++i) {
            measure((gpu == 0) ? "its own GPU" : "another GPU", blocks[i]);
        }
    }
    return 0;
}
