/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copy separate blocks in the module's three ways (copy/batch.h): one copy
 * each, one call for many, the kernel. The clock measures from the first
 * submission until the end of all copies is detected. The sizes at which the
 * module uses the kernel (copy/coalesce.c) are based on these figures.
 */
#include "tool.h"

#include <kernels/kernels.h>

#include <string.h>


#define TOTAL       (64ul << 20) /* bytes of all blocks */
#define QUICK_TOTAL (8ul << 20)
#define MAX_SIZE    (4ul << 20)  /* of a block */
#define BATCH       128u         /* blocks a call */
#define HOST        (-1)


/* Blocks with gaps of their size between them, in two memories */
typedef struct {
    CUdeviceptr src;
    CUdeviceptr dst;
    size_t      size;     /* of a block */
    unsigned    count;
    CUstream    stream;
    CUevent     ended;
} blocks_t;

static struct {
    bool                    is_ready;
    ucx_mp_kernels_driver_t functions;
    ucx_mp_copy_t           copy;
    CUdeviceptr             words;
    uint64_t                serial;
    unsigned                threads; /* thread blocks of a launch */
} kernel;


static CUdeviceptr place(CUdeviceptr base, const blocks_t *blocks, unsigned i)
{
    return base + (2ul * i * blocks->size);
}

static bool by_copies(const blocks_t *blocks)
{
    unsigned i;

    for (i = 0; i < blocks->count; ++i) {
        UCX_MP_PERF_CALL(cuMemcpyAsync, place(blocks->dst, blocks, i),
                         place(blocks->src, blocks, i), blocks->size,
                         blocks->stream);
    }

    return true;
}

static bool by_batches(const blocks_t *blocks)
{
    uct_cuda_memcpy_attributes_t attributes = {
        .src_access_order = UCT_CUDA_SRC_ACCESS_ORDER_STREAM
    };
    CUdeviceptr dst[BATCH], src[BATCH];
    size_t length[BATCH], first = 0, failed;
    unsigned i, n;

    if (uct_cuda_driver_get()->cuMemcpyBatchAsync_v1 == NULL) {
        return false;
    }

    for (i = 0; i < blocks->count; i += n) {
        for (n = 0; (n < BATCH) && (i + n < blocks->count); ++n) {
            dst[n]    = place(blocks->dst, blocks, i + n);
            src[n]    = place(blocks->src, blocks, i + n);
            length[n] = blocks->size;
        }
        if (uct_cuda_driver_get()->cuMemcpyBatchAsync_v1(
                    dst, src, length, n, &attributes, &first, 1, &failed,
                    blocks->stream) != CUDA_SUCCESS) {
            return false;
        }
    }

    return true;
}

static bool by_kernel(const blocks_t *blocks)
{
    const size_t units = 2 * blocks->size / UCX_MP_COPY_UNIT;
    ucx_mp_copy_alike_args_t args;
    unsigned i, n;

    if (!kernel.is_ready) {
        return false;
    }

    args.size  = blocks->size;
    args.words = kernel.words;
    for (i = 0; i < blocks->count; i += n) {
        args.base_dst = place(blocks->dst, blocks, i);
        args.base_src = place(blocks->src, blocks, i);
        for (n = 0; (n < UCX_MP_COPY_ALIKE_MAX) && (i + n < blocks->count);
             ++n) {
            args.dst[n] = args.src[n] = (unsigned)(n * units);
        }
        args.count  = n;
        args.serial = ++kernel.serial;
        ucx_mp_perf_check(ucx_mp_copy_launch_alike(&kernel.functions,
                                                   &kernel.copy, kernel.threads,
                                                   &args, blocks->stream),
                          "cuLaunchKernel");
    }

    return true;
}

static const struct {
    const char *name;
    bool       (*submit)(const blocks_t *blocks);
} ways[] = {
    {"a copy each", by_copies},
    {"batches of 128", by_batches},
    {"kernel", by_kernel}
};

#define NUM_WAYS (sizeof(ways) / sizeof(ways[0]))


/* Copy the blocks in one way, and wait; false if it is not available. */
static bool copy_blocks(const blocks_t *blocks, unsigned way)
{
    if (!ways[way].submit(blocks)) {
        return false;
    }

    UCX_MP_PERF_CALL(cuEventRecord, blocks->ended, blocks->stream);
    ucx_mp_perf_wait(blocks->ended);
    return true;
}

/* Load the kernel in the current GPU's context. */
static void kernel_open(unsigned threads)
{
    const size_t size = 8 * UCX_MP_COPY_WORDS(threads);

    memset(&kernel, 0, sizeof(kernel));
    kernel.threads = threads;
    if (!uct_cuda_driver_kernels(uct_cuda_driver_get(), &kernel.functions) ||
        (ucx_mp_copy_load(&kernel.functions, &kernel.copy) != CUDA_SUCCESS)) {
        return;
    }

    UCX_MP_PERF_CALL(cuMemAlloc, &kernel.words, size);
    UCX_MP_PERF_CALL(cuMemsetD8, kernel.words, 0, size);
    kernel.is_ready = true;
}

/* Measure one direction with all sizes and ways. */
static void route(int from, int to, const ucx_mp_perf_options_t *options)
{
    static ucx_mp_perf_series_t series[NUM_WAYS];
    const size_t total = options->quick ? QUICK_TOTAL : TOTAL;
    const int gpu      = (from == HOST) ? to : from;
    const bool is_host = (from == HOST) || (to == HOST);
    void *host         = is_host ? ucx_mp_perf_alloc_host(gpu, 2 * total) :
                                   NULL;
    size_t faster      = 0; /* block size from which on a batch is faster; 0:
                               none */
    blocks_t blocks;
    bool is_valid[NUM_WAYS];
    unsigned i, way;

    blocks.src    = (from == HOST) ? (CUdeviceptr)host :
                                     ucx_mp_perf_alloc(from, 2 * total);
    blocks.dst    = (to == HOST) ? (CUdeviceptr)host :
                                   ucx_mp_perf_alloc(to, 2 * total);
    blocks.stream = ucx_mp_perf_stream(gpu);
    blocks.ended  = ucx_mp_perf_event(gpu);
    kernel_open(is_host ? 8 : 16);
    for (i = 0; i < options->num_sizes; ++i) {
        blocks.size  = options->sizes[i];
        blocks.count = (unsigned)(total / blocks.size);
        if ((blocks.size > MAX_SIZE) || (blocks.count == 0)) {
            continue;
        }

        for (way = 0; way < NUM_WAYS; ++way) {
            is_valid[way] = true;
            UCX_MP_PERF_MEASURE(&series[way], options->repeats,
                                is_valid[way] = is_valid[way] &&
                                                copy_blocks(&blocks, way),
                                (void)0);
            if (is_valid[way]) {
                ucx_mp_perf_report_rate("blocks", from, to, ways[way].name,
                                        blocks.size,
                                        (double)blocks.size * blocks.count,
                                        &series[way]);
            }
        }

        /* set back to 0 by each size with a faster kernel */
        if (is_valid[1] && is_valid[2]) {
            faster = (ucx_mp_perf_median(&series[1]) >=
                      ucx_mp_perf_median(&series[2])) ?
                             0 :
                     (faster != 0) ? faster :
                                     blocks.size;
        }
    }

    if (faster != 0) {
        printf("%-12s batches are faster than the kernel from %zu bytes on\n",
               "", faster);
    }

    if (kernel.is_ready) {
        UCX_MP_PERF_CALL(cuMemFree, kernel.words);
    }
    UCX_MP_PERF_CALL(cuEventDestroy, blocks.ended);
    UCX_MP_PERF_CALL(cuStreamDestroy, blocks.stream);
    if (from != HOST) {
        UCX_MP_PERF_CALL(cuMemFree, blocks.src);
    }
    if (to != HOST) {
        UCX_MP_PERF_CALL(cuMemFree, blocks.dst);
    }
    if (host != NULL) {
        ucx_mp_perf_free_host(host, 2 * total);
    }
}

void ucx_mp_perf_blocks(const uct_cuda_topo_t *topo,
                        const ucx_mp_perf_options_t *options)
{
    const struct {
        int from, to;
    } routes[] = {
        {HOST, options->src},
        {options->src, HOST},
        {options->src, options->src},
        {options->src, options->dst}
    };
    unsigned i;

    ucx_mp_perf_report_part("Blocks that lie apart, GB/s by way and size of a "
                            "block: median (min..max)");
    for (i = 0; i < sizeof(routes) / sizeof(routes[0]); ++i) {
        ucx_mp_perf_report_step("blocks");
        if ((i == 3) && ((options->src == options->dst) ||
                         !(topo->links[options->src][options->dst].bandwidth >
                           0))) {
            continue;
        }

        route(routes[i].from, routes[i].to, options);
    }
}
