/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A tool on MPI's PMPI_ names: counts the calls of some MPI_ functions and
 * prints the counts at the end. With KEEPS_A_RANK it keeps the world's last
 * rank for itself, never returning to the program, and gives the others a world
 * of their own.
 */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>


static int calls;
#ifdef KEEPS_A_RANK
static MPI_Comm world = MPI_COMM_NULL;

#define COMM(_comm) (((_comm) == MPI_COMM_WORLD) ? world : (_comm))
#define TAG         4711
#else
#define COMM(_comm) (_comm)
#endif

/* Called before an MPI_Finalize that other tools may interpose, too */
static void finish(int rank)
{
    printf("tool: rank %d: %d calls seen\n", rank, calls);
    fflush(stdout);
    PMPI_Finalize();
}

#ifdef KEEPS_A_RANK
static void begin(void)
{
    int rank, size, word;

    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    PMPI_Comm_split(MPI_COMM_WORLD, rank == size - 1, rank, &world);
    if (rank == size - 1) {
        PMPI_Recv(&word, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD,
                  MPI_STATUS_IGNORE);
        finish(rank);
        exit(0);
    }
}

int MPI_Init(int *argc, char ***argv)
{
    int rc = PMPI_Init(argc, argv);

    begin();
    return rc;
}

int MPI_Comm_rank(MPI_Comm comm, int *rank)
{
    return PMPI_Comm_rank(COMM(comm), rank);
}

int MPI_Comm_size(MPI_Comm comm, int *size)
{
    return PMPI_Comm_size(COMM(comm), size);
}
#endif

int MPI_Finalize(void)
{
    int rank;

    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
#ifdef KEEPS_A_RANK
    if (rank == 0) {
        int size;

        PMPI_Comm_size(MPI_COMM_WORLD, &size);
        PMPI_Send(&rank, 1, MPI_INT, size - 1, TAG, MPI_COMM_WORLD);
    }
    PMPI_Comm_free(&world);
#endif
    finish(rank);
    return MPI_SUCCESS;
}

int MPI_Allreduce(const void *sendbuf, void *recvbuf, int count,
                  MPI_Datatype datatype, MPI_Op op, MPI_Comm comm)
{
    ++calls;
    return PMPI_Allreduce(sendbuf, recvbuf, count, datatype, op, COMM(comm));
}

int MPI_Iallreduce(const void *sendbuf, void *recvbuf, int count,
                   MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                   MPI_Request *request)
{
    ++calls;
    return PMPI_Iallreduce(sendbuf, recvbuf, count, datatype, op, COMM(comm),
                           request);
}

int MPI_Bcast(void *buffer, int count, MPI_Datatype datatype, int root,
              MPI_Comm comm)
{
    ++calls;
    return PMPI_Bcast(buffer, count, datatype, root, COMM(comm));
}

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    ++calls;
    return PMPI_Wait(request, status);
}
