/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Calls of host and GPU memory with a tool (tool.c) that counts them: prints
 * its own count, and whether the bytes are right. The tool does not interpose
 * MPI_Scan, which is called on MPI_COMM_SELF.
 */
#include "gpu.h"
#include "util.h"

#include <mpi.h>

#include <stdio.h>

#define COUNT  3000 /* ints */
#define ROUNDS 5

static int world_rank, world_size, calls, wrong;
static int host[COUNT];


static void fill(ucx_mp_mem_t mem, int *buffer, int value)
{
    int i;

    for (i = 0; i < COUNT; ++i) {
        host[i] = value;
    }
    ucx_mp_mem_write(mem, buffer, host, sizeof(host));
}

static void check(ucx_mp_mem_t mem, const int *buffer, int value)
{
    int i;

    ucx_mp_mem_read(mem, host, buffer, sizeof(host));
    for (i = 0; i < COUNT; ++i) {
        wrong += (host[i] != value);
    }
}

static void round_of(ucx_mp_mem_t mem, int *in, int *out)
{
    const int sum = world_size * (world_size + 1) / 2;
    MPI_Request request;

    fill(mem, in, world_rank + 1);
    MPI_Allreduce(in, out, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    check(mem, out, sum);

    fill(mem, out, 0);
    MPI_Iallreduce(in, out, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check(mem, out, sum);

    MPI_Bcast(in, COUNT, MPI_INT, 0, MPI_COMM_WORLD);
    check(mem, in, 1);
    calls += 4;

    fill(mem, out, 0);
    MPI_Scan(in, out, COUNT, MPI_INT, MPI_SUM, MPI_COMM_SELF);
    check(mem, out, 1);
}

int main(int argc, char **argv)
{
    int *in, *out;
    int mem, i;

    ucx_mp_program = "ucx_mp_tooled";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    ucx_mp_gpu_require(world_rank);

    for (mem = UCX_MP_MEM_DEVICE; mem <= UCX_MP_MEM_HOST; ++mem) {
        in  = ucx_mp_mem_alloc(mem, sizeof(host));
        out = ucx_mp_mem_alloc(mem, sizeof(host));
        for (i = 0; i < ROUNDS; ++i) {
            round_of(mem, in, out);
        }
        ucx_mp_mem_free(mem, out);
        ucx_mp_mem_free(mem, in);
    }

    printf("ucx_mp_tooled: rank %d of %d: %d calls made, %d wrong\n",
           world_rank, world_size, calls, wrong);
    fflush(stdout);
    return ucx_mp_finish(wrong > 0);
}
