/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Parts of one array, sent and received through one pointer: a halo exchanged
 * in place, on host memory and on a GPU. Two ranks; every byte is compared.
 */
#include "gpu.h"
#include "util.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HALO_N    96
#define HALO_SIZE (HALO_N * HALO_N * sizeof(double))

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

int main(int argc, char **argv)
{
    const int num_parts = (int)(sizeof(halo_parts) / sizeof(halo_parts[0]));
    double *host = malloc(HALO_SIZE), *seen = malloc(HALO_SIZE), *gpu;
    char why[256] = "";
    int rank, size, i, wrong = 0, all;
    MPI_Datatype types[2];

    ucx_mp_program = "ucx_mp_halo";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    ucx_mp_set_rank(rank);
    if ((size != 2) || (host == NULL) || (seen == NULL) ||
        (ucx_mp_gpu_init(rank, why, sizeof(why)) == 0)) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "needs two ranks and a GPU: %s", why);
    }

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
            fprintf(stderr, "ucx_mp_halo: rank %d, exchange %d is wrong\n",
                    rank, i);
            ++wrong;
        }
        MPI_Type_free(&types[0]);
        MPI_Type_free(&types[1]);
    }

    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("ucx_mp_halo: %d exchanges in place, %d wrong\n", num_parts,
               all);
    }

    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, gpu);
    free(host);
    free(seen);
    MPI_Finalize();
    return (all > 0) ? UCX_MP_EXIT_WRONG : UCX_MP_EXIT_OK;
}
