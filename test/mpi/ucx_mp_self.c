/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * One rank sends messages to itself, between GPUs or between a GPU and host
 * memory, in windows, and compares every byte. Prints the bandwidth of the last
 * window.
 */
#include "gpu.h"
#include "pattern.h"
#include "util.h"

#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SELF_WINDOW  4
#define SELF_POISON  0x5a
#define SELF_MAX_GPU 4

/* Windows from the same buffers with host memory: page-locking begins after
   some */
#define SELF_HOST_ROUNDS 3

/* Ends of messages; host memory has no GPU. All messages with host memory use
   GPU 0. */
typedef struct {
    ucx_mp_mem_t mem;
    int          gpu;
    const char   *name;
} self_end_t;

static int self_wrong;

/* Send a window of messages; returns GB/s. */
static double self_send(uint8_t **dst, uint8_t **src, size_t size)
{
    MPI_Request requests[2 * SELF_WINDOW];
    double start;
    int i;

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
    return 1e-9 * SELF_WINDOW * size / (ucx_mp_time() - start);
}

/* Send windows of messages between the same buffers; returns GB/s of the
   fastest one. */
static double self_windows(const self_end_t *from, const self_end_t *to,
                           size_t size, int rounds)
{
    uint8_t *src[SELF_WINDOW], *dst[SELF_WINDOW];
    double rate = 0, now;
    char what[64];
    int i, round;

    for (i = 0; i < SELF_WINDOW; ++i) {
        ucx_mp_gpu_require(from->gpu);
        src[i] = ucx_mp_mem_alloc(from->mem, size);
        ucx_mp_gpu_require(to->gpu);
        dst[i] = ucx_mp_mem_alloc(to->mem, size);
    }

    snprintf(what, sizeof(what), "%s %d to %s %d", from->name, from->gpu,
             to->name, to->gpu);
    for (round = 0; round < rounds; ++round) {
        for (i = 0; i < SELF_WINDOW; ++i) {
            ucx_mp_gpu_require(from->gpu);
            ucx_mp_pattern_fill(from->mem, src[i], size, size + i + round);
            ucx_mp_gpu_require(to->gpu);
            ucx_mp_mem_set(to->mem, dst[i], SELF_POISON, size);
        }

        now  = self_send(dst, src, size);
        rate = (now > rate) ? now : rate;
        for (i = 0; i < SELF_WINDOW; ++i) {
            self_wrong |= ucx_mp_pattern_is_wrong(to->mem, dst[i], size,
                                                  size + i + round, SELF_POISON,
                                                  "%s", what);
        }
    }

    for (i = 0; i < SELF_WINDOW; ++i) {
        ucx_mp_mem_free(from->mem, src[i]);
        ucx_mp_mem_free(to->mem, dst[i]);
    }

    return rate;
}

/* Parse "D", "H" (pageable) or "P" (page-locked); anything else ends the
   program. */
static self_end_t self_parse(const char *text)
{
    static const char *const sides[] = {"D", "H", "P", NULL};
    static const self_end_t ends[]   = {{UCX_MP_MEM_DEVICE, 0, "GPU"},
                                        {UCX_MP_MEM_HOST, 0, "host"},
                                        {UCX_MP_MEM_PINNED, 0, "pinned"}};

    return ends[ucx_mp_parse_choice("memory", text, sides)];
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {4096, 300001, 3 << 20, (16 << 20) + 12345,
                                   64 << 20};
    int rank, ranks, count, from_count, to_count, transfers = 0, rounds;
    self_end_t from, to;
    double rate = 0;
    size_t i;

    ucx_mp_program = "ucx_mp_self";
    MPI_Init(&argc, &argv);
    ucx_mp_get_rank(&rank, &ranks);
    if (((argc != 1) && (argc != 3)) || (ranks != 1)) {
        ucx_mp_die(UCX_MP_EXIT_USAGE,
                   "usage: ucx_mp_self [D|H|P D|H|P], one rank");
    }

    from  = self_parse((argc == 3) ? argv[1] : "D");
    to    = self_parse((argc == 3) ? argv[2] : "D");
    count = ucx_mp_gpu_require(0);
    if (count < 2) {
        ucx_mp_die(UCX_MP_EXIT_WRONG, "needs two GPUs");
    }

    /* Without peer access such messages take one path, as without the module */
    if ((from.mem == UCX_MP_MEM_DEVICE) && (to.mem == UCX_MP_MEM_DEVICE)) {
        ucx_mp_gpu_enable_peers();
    }

    rounds     = (from.mem == to.mem) ? 1 : SELF_HOST_ROUNDS;
    count      = (count > SELF_MAX_GPU) ? SELF_MAX_GPU : count;
    from_count = (rounds > 1) ? 1 : 2;
    to_count   = (rounds > 1) ? 1 : count;
    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
        for (from.gpu = 0; from.gpu < from_count; ++from.gpu) {
            for (to.gpu = 0; to.gpu < to_count; ++to.gpu) {
                if ((i < 4) || (from.gpu != to.gpu) || (from.mem != to.mem)) {
                    rate       = self_windows(&from, &to, sizes[i], rounds);
                    transfers += SELF_WINDOW * rounds;
                }
            }
        }
    }

    printf("ucx_mp_self: %d transfers, %.1f GB/s at best, %s\n", transfers,
           rate, self_wrong ? "WRONG" : "0 wrong");
    return ucx_mp_finish(self_wrong);
}
