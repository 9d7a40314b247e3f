/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Measure a copy engine moving a buffer from GPU 0 to GPU 1, and both GPUs
 * moving theirs to each other at once. A call is a window of copies, one behind
 * another, or as cuMemcpyBatchAsync orders them. Each GPU sends its own, or
 * fetches the other's, by one call per copy, or one per GPU. With several
 * buffers per GPU, each is copied to each of the peer's, to show whether the
 * choice of buffers matters.
 */
#include "byhand.h"

#include <stdio.h>
#include <stdint.h>
#include <string.h>

#define MAX_WINDOW  1024
#define MAX_BUFFERS 8

static const char *const directions[] = {"one", "both", NULL};
static const char *const ways[]       = {"each", "batch", NULL};
static const char *const engines[]    = {"source", "destination", NULL};

static size_t both, batched, fetched, window = 1, buffers = 1;

static const byhand_option_t options[] = {
    {"directions", "GPU 0 to GPU 1, or back as well", &both, 0, 0, directions},
    {"window", "copies of a call", &window, 1, MAX_WINDOW, NULL},
    {"by", "a call of the driver each, or one a GPU", &batched, 0, 0, ways},
    {"engine", "of which GPU copies", &fetched, 0, 0, engines},
    {"buffers", "of each GPU, each with each", &buffers, 1, MAX_BUFFERS, NULL},
    {NULL, NULL, NULL, 0, 0, NULL}};

static const byhand_program_t program = {
    "peer_copy", "A copy engine's copies between GPU 0 and GPU 1.", "64K:1G",
    options, (size_t)1 << 30};

static CUdeviceptr from[2], to[2]; /* of GPU i; from[i] goes to to[!i] */
static CUdeviceptr all_from[2][MAX_BUFFERS], all_to[2][MAX_BUFFERS];
static CUstream stream[2];
static uint32_t *words[2];


static void once_batched(size_t size)
{
    CUdeviceptr dst[MAX_WINDOW], src[MAX_WINDOW];
    size_t sizes[MAX_WINDOW];
    size_t i, w;

    for (i = 0; i <= both; ++i) {
        byhand_on(i ^ fetched);
        for (w = 0; w < window; ++w) {
            dst[w]   = to[!i];
            src[w]   = from[i];
            sizes[w] = size;
        }
        byhand_copy_batch(dst, src, sizes, window, stream[i ^ fetched]);
    }
}

static void once(size_t size)
{
    size_t i, w;

    if (batched) {
        once_batched(size);
    }
    for (w = 0; !batched && (w < window); ++w) {
        for (i = 0; i <= both; ++i) {
            byhand_on(i ^ fetched);
            CU(MemcpyAsync(to[!i], from[i], size, stream[i ^ fetched]));
        }
    }
    for (i = 0; i <= both; ++i) {
        byhand_on(i ^ fetched);
        CU(StreamSynchronize(stream[i ^ fetched]));
    }
}

static void prepare(size_t size)
{
    size_t i, k;

    for (i = 0; i < 2; ++i) {
        byhand_on(i);
        memset(words[i], 0, size);
        CU(MemcpyHtoD(to[i], words[i], size));
        for (k = 0; k < size / sizeof(**words); ++k) {
            words[i][k] = byhand_element(k, i + (size >> 12));
        }
        CU(MemcpyHtoD(from[i], words[i], size));
    }
}

static int is_right(size_t size)
{
    int right = 1;
    size_t i;

    for (i = 0; i <= both; ++i) {
        byhand_on(!i);
        right &= byhand_holds(to[!i], words[i], size);
    }
    return right;
}

static void get_ready(void)
{
    size_t k;
    int i;

    for (i = 0; i < 2; ++i) {
        for (k = 0; k < buffers; ++k) {
            all_from[i][k] = byhand_gpu_memory(i, byhand_max_size());
            all_to[i][k]   = byhand_gpu_memory(i, byhand_max_size());
        }
        stream[i] = byhand_stream(i);
        words[i]  = byhand_host_memory(byhand_max_size());
    }
}

int main(int argc, char **argv)
{
    char label[160], pair[64] = "";
    int status = 0;
    size_t i, j, gpu;

    byhand_begin(argc, argv, &program, 2);
    get_ready();

    for (i = 0; i < buffers; ++i) {
        for (j = 0; j < buffers; ++j) {
            for (gpu = 0; gpu < 2; ++gpu) {
                from[gpu] = all_from[gpu][i];
                to[gpu]   = all_to[gpu][j];
            }
            if (buffers > 1) {
                snprintf(pair, sizeof(pair), ", buffer %zu to %zu", i, j);
            }
            snprintf(label, sizeof(label), "%s, window %zu%s%s%s",
                     both ? "both directions, sum" : "one direction", window,
                     batched ? ", one call" : "",
                     fetched ? ", by the destination" : "", pair);
            status |= byhand_run(label, window * (both + 1.0), prepare, once,
                                 is_right);
        }
    }
    return status;
}
