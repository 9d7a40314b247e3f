/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Measure an all-reduce of floats (or doubles) on this node by direct driver
 * calls. Each of n GPUs has a buffer and receives the sum; it computes the n-th
 * part (shard) of it.
 *
 * kernel: one kernel per GPU reads its shard of all buffers, adds, and writes
 *         the sum to all of them.
 * copies: in chunks, copy engines bring the peers' shards, a kernel adds them
 *         to its own, copy engines carry the sum to the peers.
 */
#include "byhand.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX_CHUNKS 16
#define BLOCKS     132 /* thread blocks of 512 threads */

enum { KERNEL, COPIES };
enum { IN_PLACE, OUT_OF_PLACE };

static const char *const ways[]   = {"kernel", "copies", NULL};
static const char *const types[]  = {"float", "double", NULL};
static const char *const places[] = {"in", "out", NULL};

static size_t way, type, place, chunks = 2, blocks = BLOCKS;

static const byhand_option_t options[] = {
    {"way", "how it is done", &way, 0, 0, ways},
    {"type", "what is added", &type, 0, 0, types},
    {"place", "in: in place, out: not", &place, 0, 0, places},
    {"chunks", "of a slice, with copies", &chunks, 1, MAX_CHUNKS, NULL},
    {"blocks", "of a kernel, 512 threads each", &blocks, 1, 65535, NULL},
    {NULL, NULL, NULL, 0, 0, NULL}};

static const byhand_program_t program = {
    "allreduce", "All-reduce (sum) of all GPUs' buffers by one process.",
    "8:1G", options, (size_t)1 << 30};

/* Resources of a GPU */
static struct {
    CUdeviceptr       send, recv;
    CUdeviceptr       peers[BYHAND_MAX_GPUS]; /* the peers' copies of this GPU's
                                                 shard */
    CUstream          add, pull[BYHAND_MAX_GPUS], push[BYHAND_MAX_GPUS];
    CUevent           pulled[BYHAND_MAX_GPUS][MAX_CHUNKS], added[MAX_CHUNKS];
    ucx_mp_kernels_t *kernels;
} gpus[BYHAND_MAX_GPUS];

static void *host;


static ucx_mp_type_t element(void)
{
    return (type == 0) ? UCX_MP_TYPE_F32 : UCX_MP_TYPE_F64;
}

/* Return where part `i` of `n` begins, bytes: multiples of 16, so there may be
   fewer parts than n. */
static size_t part_begin(size_t size, size_t i, size_t n)
{
    size_t part  = (((size + n - 1) / n) + 15) & ~(size_t)15;
    size_t begin = i * part;

    return (begin < size) ? begin : size;
}

static void launch(int gpu, const ucx_mp_reduce_args_t *args)
{
    byhand_check(ucx_mp_kernels_reduce(gpus[gpu].kernels, UCX_MP_OP_SUM,
                                       element(), args, blocks,
                                       gpus[gpu].add),
                 "LaunchKernel");
}

/* Start a GPU's work for its shard. */
static void by_kernel(int gpu, size_t begin, size_t bytes)
{
    ucx_mp_reduce_args_t args = {.count   = bytes / ucx_mp_type_size(element()),
                                 .num_src = byhand_gpus,
                                 .num_dst = byhand_gpus};
    int i;

    for (i = 0; i < byhand_gpus; ++i) {
        args.src[i] = gpus[i].send + begin;
        args.dst[i] = gpus[i].recv + begin;
    }
    byhand_on(gpu);
    launch(gpu, &args);
}

static void by_copies(int gpu, size_t slice, size_t bytes)
{
    ucx_mp_reduce_args_t args = {.num_src = byhand_gpus, .num_dst = 1};
    size_t begin, chunk, k;
    int i, peer;

    byhand_on(gpu);
    for (k = 0; k < chunks; ++k) {
        begin = part_begin(bytes, k, chunks);
        chunk = part_begin(bytes, k + 1, chunks) - begin;
        if (chunk == 0) {
            break;
        }
        args.src[gpu] = gpus[gpu].send + slice + begin;
        args.dst[0]   = gpus[gpu].recv + slice + begin;
        args.count    = chunk / ucx_mp_type_size(element());
        for (i = 1; i < byhand_gpus; ++i) {
            peer           = (gpu + i) % byhand_gpus;
            args.src[peer] = gpus[gpu].peers[peer] + begin;
            CU(MemcpyAsync(args.src[peer], gpus[peer].send + slice + begin,
                           chunk, gpus[gpu].pull[peer]));
            CU(EventRecord(gpus[gpu].pulled[peer][k], gpus[gpu].pull[peer]));
            CU(StreamWaitEvent(gpus[gpu].add, gpus[gpu].pulled[peer][k], 0));
        }
        launch(gpu, &args);
        CU(EventRecord(gpus[gpu].added[k], gpus[gpu].add));
        for (i = 1; i < byhand_gpus; ++i) {
            peer = (gpu + i) % byhand_gpus;
            CU(StreamWaitEvent(gpus[gpu].push[peer], gpus[gpu].added[k], 0));
            CU(MemcpyAsync(gpus[peer].recv + slice + begin, args.dst[0], chunk,
                           gpus[gpu].push[peer]));
        }
    }
}

static void once(size_t size)
{
    size_t begin, bytes;
    int gpu, i;

    for (gpu = 0; gpu < byhand_gpus; ++gpu) {
        begin = part_begin(size, gpu, byhand_gpus);
        bytes = part_begin(size, gpu + 1, byhand_gpus) - begin;
        if (bytes > 0) {
            (way == KERNEL) ? by_kernel(gpu, begin, bytes) :
                              by_copies(gpu, begin, bytes);
        }
    }
    for (gpu = 0; gpu < byhand_gpus; ++gpu) {
        byhand_on(gpu);
        CU(StreamSynchronize(gpus[gpu].add));
        for (i = 0; (way == COPIES) && (i < byhand_gpus); ++i) {
            if (i != gpu) {
                CU(StreamSynchronize(gpus[gpu].push[i]));
            }
        }
    }
}

static void prepare(size_t size)
{
    size_t i;
    int gpu;

    for (gpu = 0; gpu < byhand_gpus; ++gpu) {
        for (i = 0; i < size / ucx_mp_type_size(element()); ++i) {
            if (type == 0) {
                ((float*)host)[i] = byhand_element(i, gpu);
            } else {
                ((double*)host)[i] = byhand_element(i, gpu);
            }
        }
        byhand_on(gpu);
        /* results of an earlier size could be right for this one */
        CU(MemcpyHtoD(gpus[gpu].recv, host, size));
        CU(MemcpyHtoD(gpus[gpu].send, host, size));
    }
}

static int is_right(size_t size)
{
    double expected, got;
    int gpu, k;
    size_t i;

    for (gpu = 0; gpu < byhand_gpus; ++gpu) {
        byhand_on(gpu);
        CU(MemcpyDtoH(host, gpus[gpu].recv, size));
        for (i = 0; i < size / ucx_mp_type_size(element()); ++i) {
            for (k = 0, expected = 0; k < byhand_gpus; ++k) {
                expected += byhand_element(i, k);
            }
            got = (type == 0) ? ((float*)host)[i] : ((double*)host)[i];
            if (got != expected) {
                fprintf(stderr, "allreduce: GPU %d, %zu bytes: element %zu is "
                        "%.9g, not %.9g\n", gpu, size, i, got, expected);
                return 0;
            }
        }
    }
    return 1;
}

int main(int argc, char **argv)
{
    ucx_mp_kernels_driver_t driver;
    size_t size, part, k;
    char label[64];
    int gpu, i;

    byhand_begin(argc, argv, &program, 2);
    driver = (ucx_mp_kernels_driver_t){cu.ModuleLoadData, cu.ModuleGetFunction,
                                       cu.ModuleUnload, cu.LaunchKernel};
    size   = byhand_max_size();
    part   = part_begin(size, 1, byhand_gpus);
    host   = byhand_host_memory(size);
    for (gpu = 0; gpu < byhand_gpus; ++gpu) {
        gpus[gpu].send    = byhand_gpu_memory(gpu, size);
        gpus[gpu].recv    = (place == IN_PLACE) ? gpus[gpu].send :
                                                  byhand_gpu_memory(gpu, size);
        gpus[gpu].add     = byhand_stream(gpu);
        gpus[gpu].kernels = ucx_mp_kernels_create(&driver);
        if (gpus[gpu].kernels == NULL) {
            byhand_die("out of memory");
        }
        byhand_check(ucx_mp_kernels_load(gpus[gpu].kernels, UCX_MP_OP_SUM,
                                         element()),
                     "ModuleLoadData");
        for (i = 0; (way == COPIES) && (i < byhand_gpus); ++i) {
            if (i == gpu) {
                continue;
            }
            gpus[gpu].peers[i] = byhand_gpu_memory(gpu, part);
            gpus[gpu].pull[i]  = byhand_stream(gpu);
            gpus[gpu].push[i]  = byhand_stream(gpu);
            for (k = 0; k < chunks; ++k) {
                gpus[gpu].pulled[i][k] = byhand_event(gpu);
            }
        }
        for (k = 0; k < chunks; ++k) {
            gpus[gpu].added[k] = byhand_event(gpu);
        }
    }

    snprintf(label, sizeof(label), "%s, %s, %s", ways[way], types[type],
             (place == IN_PLACE) ? "in place" : "out of place");
    return byhand_run(label, 1, prepare, once, is_right);
}
