/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * One rank sends messages to itself, from each GPU to each other one, windows
 * of them, and compares every byte. Prints the bandwidth of a window.
 */
#include "gpu.h"
#include "pattern.h"
#include "util.h"

#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>

#define SELF_WINDOW  4
#define SELF_POISON  0x5a
#define SELF_MAX_GPU 4

static int self_wrong;

static void self_check(const char *what, const uint8_t *buf, size_t size,
                       uint64_t seed)
{
    ucx_mp_pattern_error_t error;

    if (ucx_mp_pattern_check(UCX_MP_MEM_DEVICE, buf, size, seed, 0, SELF_POISON,
                             &error)) {
        fprintf(stderr, "ucx_mp_self: WRONG data, %s, %zu bytes: offset %zu "
                "expected 0x%02x got 0x%02x\n", what, size, error.offset,
                error.expected, error.got);
        self_wrong = 1;
    }
}

/* A window from GPU to GPU; returns GB/s */
static double self_window(int from, int to, size_t size)
{
    MPI_Request requests[2 * SELF_WINDOW];
    uint8_t *src[SELF_WINDOW], *dst[SELF_WINDOW];
    char what[64], why[256];
    double start;
    int i;

    for (i = 0; i < SELF_WINDOW; ++i) {
        ucx_mp_gpu_init(from, why, sizeof(why));
        src[i] = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, size);
        ucx_mp_pattern_fill(UCX_MP_MEM_DEVICE, src[i], size, size + i);
        ucx_mp_gpu_init(to, why, sizeof(why));
        dst[i] = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, size);
        ucx_mp_mem_set(UCX_MP_MEM_DEVICE, dst[i], SELF_POISON, size);
    }

    start = ucx_mp_time();
    for (i = 0; i < SELF_WINDOW; ++i) {
        MPI_Irecv(dst[i], (int)size, MPI_BYTE, 0, i, MPI_COMM_WORLD,
                  &requests[i]);
    }
    for (i = 0; i < SELF_WINDOW; ++i) {
        MPI_Isend(src[i], (int)size, MPI_BYTE, 0, i, MPI_COMM_WORLD,
                  &requests[SELF_WINDOW + i]);
    }
    MPI_Waitall(2 * SELF_WINDOW, requests, MPI_STATUSES_IGNORE);
    start = ucx_mp_time() - start;

    snprintf(what, sizeof(what), "GPU %d to GPU %d", from, to);
    for (i = 0; i < SELF_WINDOW; ++i) {
        self_check(what, dst[i], size, size + i);
        ucx_mp_mem_free(UCX_MP_MEM_DEVICE, src[i]);
        ucx_mp_mem_free(UCX_MP_MEM_DEVICE, dst[i]);
    }

    return 1e-9 * SELF_WINDOW * size / start;
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {4096, 300001, 3 << 20, (16 << 20) + 12345,
                                   64 << 20};
    int count, from, to, transfers = 0;
    char why[256] = "";
    double rate = 0;
    size_t i;

    ucx_mp_program = "ucx_mp_self";
    MPI_Init(&argc, &argv);
    ucx_mp_set_rank(0);
    count = ucx_mp_gpu_init(0, why, sizeof(why));
    if (count < 2) {
        ucx_mp_die(UCX_MP_EXIT_WRONG, "needs two GPUs: %s", why);
    }

    count = (count > SELF_MAX_GPU) ? SELF_MAX_GPU : count;
    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
        for (from = 0; from < count; ++from) {
            for (to = 0; to < count; ++to) {
                if ((from < 2) && ((i < 4) || (from != to))) {
                    rate       = self_window(from, to, sizes[i]);
                    transfers += SELF_WINDOW;
                }
            }
        }
    }

    printf("ucx_mp_self: %d transfers, %.1f GB/s at last, %s\n", transfers,
           rate, self_wrong ? "WRONG" : "0 wrong");
    MPI_Finalize();
    return self_wrong ? UCX_MP_EXIT_WRONG : UCX_MP_EXIT_OK;
}
