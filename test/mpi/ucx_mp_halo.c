/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Parts of one array, sent and received through one pointer: a halo exchanged
 * in place, on host memory and on a GPU; and a residual reduced on the GPUs
 * while a send is under way and a message waits. Two ranks; every byte is
 * compared.
 */
#include "gpu.h"
#include "util.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HALO_N    96
#define HALO_SIZE (HALO_N * HALO_N * sizeof(double))
#define HALO_SUMS 20
#define HALO_SENT (8 << 20)

typedef struct {
    int rows, columns, row, column;
} halo_part_t;

/* Send part and receive part: columns, rows, boxes of other widths, and parts
   that begin in the same row */
static const halo_part_t halo_parts[][2] = {
    {{HALO_N, 1, 0, HALO_N - 2}, {HALO_N, 1, 0, 0}},
    {{HALO_N, 1, 0, 0}, {HALO_N, 1, 0, HALO_N - 1}},
    {{2, HALO_N / 2, 4, 5}, {HALO_N / 2, 2, 40, 1}},
    {{HALO_N / 2, 2, 40, 1}, {2, HALO_N / 2, 4, 5}},
    {{8, 8, 1, 1}, {4, 16, 20, 70}},
    {{16, 2, 3, 3}, {2, 16, 3, 7}}
};

static MPI_Datatype halo_type(const halo_part_t *part)
{
    const int sizes[]  = {HALO_N, HALO_N};
    const int rows[]   = {part->rows, part->columns};
    const int starts[] = {part->row, part->column};
    MPI_Datatype type;

    MPI_Type_create_subarray(2, sizes, rows, starts, MPI_ORDER_C, MPI_DOUBLE,
                             &type);
    MPI_Type_commit(&type);
    return type;
}

static void halo_fill(double *array, int rank, int round)
{
    int i;

    for (i = 0; i < HALO_N * HALO_N; ++i) {
        array[i] = 1000000.0 * round + 100000.0 * rank + i;
    }
}

/* Rank 0 reduces on the GPUs while a message to it waits. Rank 1 comes once it
   has the other message, for which rank 0 has to make progress. @return Number
   of wrong results */
static int halo_residuals(int rank)
{
    char *sent    = malloc(HALO_SENT);
    double *gpu   = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, sizeof(double));
    double result = 0;
    int i, wrong = 0;
    MPI_Request request;

    /* the first ones prepare the GPUs' reductions */
    ucx_mp_mem_write(UCX_MP_MEM_DEVICE, gpu, &result, sizeof(result));
    for (i = 0; i < 10; ++i) {
        MPI_Allreduce(MPI_IN_PLACE, gpu, 1, MPI_DOUBLE, MPI_SUM,
                      MPI_COMM_WORLD);
    }

    for (i = 0; i < HALO_SUMS; ++i) {
        result = i + rank;
        ucx_mp_mem_write(UCX_MP_MEM_DEVICE, gpu, &result, sizeof(result));
        if (rank == 0) {
            memset(sent, i, HALO_SENT);
            MPI_Probe(1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Isend(sent, HALO_SENT, MPI_BYTE, 1, 0, MPI_COMM_WORLD,
                      &request);
        } else {
            MPI_Send(NULL, 0, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
            MPI_Recv(sent, HALO_SENT, MPI_BYTE, 0, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
            wrong += (sent[0] != i) || (sent[HALO_SENT - 1] != i);
        }

        MPI_Allreduce(MPI_IN_PLACE, gpu, 1, MPI_DOUBLE, MPI_SUM,
                      MPI_COMM_WORLD);
        ucx_mp_mem_read(UCX_MP_MEM_DEVICE, &result, gpu, sizeof(result));
        wrong += (result != 2 * i + 1);
        if (rank == 0) {
            MPI_Recv(NULL, 0, MPI_BYTE, 1, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
    }

    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, gpu);
    free(sent);
    return wrong;
}

int main(int argc, char **argv)
{
    const int num_parts = (int)(sizeof(halo_parts) / sizeof(halo_parts[0]));
    double *host = malloc(HALO_SIZE), *seen = malloc(HALO_SIZE), *gpu;
    int rank, size, i, wrong = 0, all;
    MPI_Datatype types[2];

    ucx_mp_program = "ucx_mp_halo";
    MPI_Init(&argc, &argv);
    ucx_mp_get_rank(&rank, &size);
    if ((size != 2) || (host == NULL) || (seen == NULL)) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "needs two ranks, and memory");
    }

    ucx_mp_gpu_require(rank);
    gpu = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, HALO_SIZE);
    for (i = 0; i < num_parts; ++i) {
        types[0] = halo_type(&halo_parts[i][0]);
        types[1] = halo_type(&halo_parts[i][1]);
        halo_fill(host, rank, i);
        ucx_mp_mem_write(UCX_MP_MEM_DEVICE, gpu, host, HALO_SIZE);
        MPI_Sendrecv(host, 1, types[0], 1 - rank, 0, host, 1, types[1],
                     1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Sendrecv(gpu, 1, types[0], 1 - rank, 0, gpu, 1, types[1],
                     1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        ucx_mp_mem_read(UCX_MP_MEM_DEVICE, seen, gpu, HALO_SIZE);
        if (memcmp(host, seen, HALO_SIZE) != 0) {
            ucx_mp_report("exchange %d is wrong", i);
            ++wrong;
        }
        MPI_Type_free(&types[0]);
        MPI_Type_free(&types[1]);
    }

    wrong += halo_residuals(rank);
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("ucx_mp_halo: %d exchanges in place, %d residuals, %d wrong\n",
               num_parts, HALO_SUMS, all);
    }

    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, gpu);
    free(host);
    free(seen);
    return ucx_mp_finish(all > 0);
}
