/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Stands behind ucx-mp's library, on the names by which that calls the MPI, and
 * says at a process's end what all-reduces over several nodes have asked of it:
 * bytes reduced between nodes, and agreements, seven integers each.
 */
#define _GNU_SOURCE
#include <mpi.h>

#include <dlfcn.h>
#include <stdio.h>


static long long bytes;
static long agreements;


#define NEXT(_name) ((__typeof__(&_name))dlsym(RTLD_NEXT, #_name))

int PMPI_Iallreduce(const void *sendbuf, void *recvbuf, int count,
                    MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                    MPI_Request *request)
{
    int size;

    PMPI_Type_size(datatype, &size);
    bytes += (long long)count * size;
    return NEXT(PMPI_Iallreduce)(sendbuf, recvbuf, count, datatype, op, comm,
                                 request);
}

int PMPI_Allreduce(const void *sendbuf, void *recvbuf, int count,
                   MPI_Datatype datatype, MPI_Op op, MPI_Comm comm)
{
    agreements += (count == 7) && (datatype == MPI_INT);
    return NEXT(PMPI_Allreduce)(sendbuf, recvbuf, count, datatype, op, comm);
}

/* Ours takes an MPI_ name in another object than its PMPI_ one for a tool's */
int MPI_Iallreduce(const void *sendbuf, void *recvbuf, int count,
                   MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                   MPI_Request *request)
{
    return PMPI_Iallreduce(sendbuf, recvbuf, count, datatype, op, comm,
                           request);
}

int MPI_Allreduce(const void *sendbuf, void *recvbuf, int count,
                  MPI_Datatype datatype, MPI_Op op, MPI_Comm comm)
{
    return PMPI_Allreduce(sendbuf, recvbuf, count, datatype, op, comm);
}

__attribute__((destructor)) static void tell(void)
{
    if (agreements > 0) {
        fprintf(stderr, "counted: %lld bytes, %ld agreements\n", bytes,
                agreements);
    }
}
