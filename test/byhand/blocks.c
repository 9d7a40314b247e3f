/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Measure copies of many small blocks from GPU 0 to GPU 1, or between
 * page-locked host memory and GPU 0, until the host knows that they ended. On
 * either side the blocks are not adjacent. A call copies all blocks: with one
 * copy each, in groups by cuMemcpyBatchAsync, or in groups by one kernel with
 * the group's addresses as arguments.
 */
#include "byhand.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define MAX_BLOCKS  4096
#define MAX_GROUP   128
#define MAX_STREAMS 8
#define THREADS     512

enum { GPUS, TO_GPU, TO_HOST };
enum { SINGLE, BATCH, KERNEL };

static const char *const routes[] = {"gpus", "to-gpu", "to-host", NULL};
static const char *const ways[]   = {"single", "batch", "kernel", NULL};

static size_t route, way, blocks = 1000, group = MAX_GROUP, streams = 1;
static size_t parts = 1;

static const byhand_option_t options[] = {
    {"route", "GPU 0 to GPU 1, or page-locked memory and GPU 0", &route, 0, 0,
     routes},
    {"way", "of a group", &way, 0, 0, ways},
    {"blocks", "of a call", &blocks, 1, MAX_BLOCKS, NULL},
    {"group", "blocks that are submitted together", &group, 1, MAX_GROUP, NULL},
    {"streams", "groups go round them", &streams, 1, MAX_STREAMS, NULL},
    {"parts", "thread blocks of a kernel for each block", &parts, 1, 64, NULL},
    {NULL, NULL, NULL, 0, 0, NULL}};

static const byhand_program_t program = {
    "blocks", "Many small blocks; bytes are those of a block.", "64K", options,
    (size_t)4 << 20};

/* Arguments of the kernel: it copies at least 16 bytes */
static struct {
    uint64_t to[MAX_GROUP], from[MAX_GROUP], bytes;
} args;

static const char ptx[] =
        ".version 7.0\n"
        ".target sm_70\n"
        ".address_size 64\n"
        ".visible .entry copy_blocks(\n"
        "\t.param .align 8 .b8 copy_blocks_param_0[2056]\n"
        ")\n"
        "{\n"
        "\t.reg .pred \t%p<3>;\n"
        "\t.reg .b32 \t%r<24>;\n"
        "\t.reg .b64 \t%rd<24>;\n"
        "\tmov.b64 \t%rd1, copy_blocks_param_0;\n"
        "\tmov.u32 \t%r1, %ctaid.y;\n"
        "\tmul.wide.u32 \t%rd2, %r1, 8;\n"
        "\tadd.s64 \t%rd3, %rd1, %rd2;\n"
        "\tld.param.u64 \t%rd4, [%rd3];\n"
        "\tld.param.u64 \t%rd5, [%rd3+1024];\n"
        "\tld.param.u64 \t%rd6, [%rd1+2048];\n"
        "\tmov.u32 \t%r2, %ctaid.x;\n"
        "\tmov.u32 \t%r3, %ntid.x;\n"
        "\tmul.wide.u32 \t%rd7, %r2, %r3;\n"
        "\tmov.u32 \t%r4, %tid.x;\n"
        "\tcvt.u64.u32 \t%rd8, %r4;\n"
        "\tadd.s64 \t%rd9, %rd7, %rd8;\n"
        "\tshl.b64 \t%rd10, %rd9, 4;\n"
        "\tmov.u32 \t%r5, %nctaid.x;\n"
        "\tmul.wide.u32 \t%rd11, %r5, %r3;\n"
        "\tshl.b64 \t%rd12, %rd11, 4;\n"
        "$L__next:\n"
        "\tsetp.ge.u64 \t%p1, %rd10, %rd6;\n"
        "\t@%p1 bra \t$L__end;\n"
        "\tadd.s64 \t%rd13, %rd5, %rd10;\n"
        "\tadd.s64 \t%rd14, %rd4, %rd10;\n"
        "\tld.global.v4.u32 \t{%r6, %r7, %r8, %r9}, [%rd13];\n"
        "\tst.global.v4.u32 \t[%rd14], {%r6, %r7, %r8, %r9};\n"
        "\tadd.s64 \t%rd10, %rd10, %rd12;\n"
        "\tbra \t$L__next;\n"
        "$L__end:\n"
        "\tret;\n"
        "}\n";

static CUdeviceptr from, to;
static CUstream stream[MAX_STREAMS];
static CUfunction kernel;
static uint32_t *words;


/* The gaps between blocks are as long as the blocks */
static size_t at(size_t block, size_t size)
{
    return 2 * block * size;
}

static void submit(size_t first, size_t count, size_t size, CUstream in)
{
    void *params[] = {&args};
    size_t sizes[MAX_GROUP], i;

    for (i = 0; i < count; ++i) {
        args.to[i]   = to + at(first + i, size);
        args.from[i] = from + at(first + i, size);
        sizes[i]     = size;
    }
    args.bytes = size;

    if (way == KERNEL) {
        CU(LaunchKernel(kernel, parts, count, 1, THREADS, 1, 1, 0, in, params,
                        NULL));
    } else if (way == BATCH) {
        byhand_copy_batch((CUdeviceptr*)args.to, (CUdeviceptr*)args.from, sizes,
                          count, in);
    } else {
        for (i = 0; i < count; ++i) {
            CU(MemcpyAsync(args.to[i], args.from[i], size, in));
        }
    }
}

static void once(size_t size)
{
    size_t first, i;

    byhand_on(0);
    for (first = 0; first < blocks; first += group) {
        submit(first, (blocks - first < group) ? blocks - first : group, size,
               stream[(first / group) % streams]);
    }
    for (i = 0; i < streams; ++i) {
        CU(StreamSynchronize(stream[i]));
    }
}

static void prepare(size_t size)
{
    const size_t total = 2 * blocks * size;
    size_t k;

    byhand_on((route == GPUS) ? 1 : 0);
    memset(words, 0, total);
    CU(MemcpyHtoD(to, words, total));
    for (k = 0; k < total / sizeof(*words); ++k) {
        words[k] = byhand_element(k, size >> 12);
    }
    byhand_on(0);
    CU(MemcpyHtoD(from, words, total));
    CU(CtxSynchronize());
}

static int is_right(size_t size)
{
    int right = 1;
    size_t i;

    byhand_on((route == GPUS) ? 1 : 0);
    for (i = 0; i < blocks; ++i) {
        right &= byhand_holds(to + at(i, size), (char*)words + at(i, size),
                              size);
    }
    return right;
}

int main(int argc, char **argv)
{
    CUmodule module;
    char label[96];
    size_t total, i;

    byhand_begin(argc, argv, &program, 1);
    if ((route == GPUS) && (byhand_gpus < 2)) {
        byhand_die("needs 2 GPUs");
    }

    total = 2 * blocks * byhand_max_size();
    words = byhand_host_memory(total);
    from  = (route == TO_GPU) ? (CUdeviceptr)byhand_host_memory(total) :
                                byhand_gpu_memory(0, total);
    to    = (route == TO_HOST) ? (CUdeviceptr)byhand_host_memory(total) :
                                 byhand_gpu_memory(route == GPUS, total);
    for (i = 0; i < streams; ++i) {
        stream[i] = byhand_stream(0);
    }
    if (way == KERNEL) {
        byhand_on(0);
        CU(ModuleLoadData(&module, ptx));
        CU(ModuleGetFunction(&kernel, module, "copy_blocks"));
    }

    snprintf(label, sizeof(label),
             "%s, %s, %zu blocks, groups of %zu, %zu streams, %zu parts",
             routes[route], ways[way], blocks, group, streams, parts);
    return byhand_run(label, blocks, prepare, once, is_right);
}
