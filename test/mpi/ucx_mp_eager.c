/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Find the largest message between two GPUs that both ranks can MPI_Send before
 * either receives. MPI promises nothing, but programs depend on it, so a
 * replacement module must not support less.
 */
#include "gpu.h"
#include "util.h"

#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define EAGER_MAX_SIZE (64 << 10)
#define EAGER_SECONDS  5 /* a message takes microseconds, an emulated one
                            more */

static volatile size_t eager_size; /* size sent last and received by both */
static int eager_rank;

static void eager_print(void)
{
    char text[128];
    int length;

    if (eager_rank == 0) {
        length = snprintf(text, sizeof(text), "ucx_mp_eager: both ranks may "
                          "send %zu bytes before they receive\n", eager_size);
        if (write(STDOUT_FILENO, text, (size_t)length) != length) {
            _exit(UCX_MP_EXIT_WRONG);
        }
    }
}

/* End on a timeout: both ranks wait for the other to receive, so the last size
   needs a receiver. */
static void eager_on_alarm(int number)
{
    eager_print();
    _exit(UCX_MP_EXIT_OK);
}

int main(int argc, char **argv)
{
    uint8_t *from, *to;
    size_t size;
    int count;

    ucx_mp_program = "ucx_mp_eager";
    MPI_Init(&argc, &argv);
    ucx_mp_get_rank(&eager_rank, &count);
    if ((argc != 1) || (count != 2)) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "usage: mpirun -n 2 ucx_mp_eager");
    }

    ucx_mp_gpu_require(eager_rank);
    from = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, EAGER_MAX_SIZE);
    to   = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, EAGER_MAX_SIZE);
    signal(SIGALRM, eager_on_alarm);
    for (size = 1; size <= EAGER_MAX_SIZE; size *= 2) {
        MPI_Barrier(MPI_COMM_WORLD);
        alarm(EAGER_SECONDS);
        MPI_Send(from, (int)size, MPI_BYTE, 1 - eager_rank, 0, MPI_COMM_WORLD);
        MPI_Recv(to, (int)size, MPI_BYTE, 1 - eager_rank, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
        eager_size = size;
    }

    alarm(0);
    eager_print();
    MPI_Finalize();
    return UCX_MP_EXIT_OK;
}
