/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "fake_mpi.h"

#include <mpi/handles.h>

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>


int fake_mpi_reductions;
void (*fake_mpi_others)(int *result, int count);


void *fake_mpi_handle(const char *name)
{
    char symbol[64];

    snprintf(symbol, sizeof(symbol), "ompi_mpi_%s", name);
    return dlsym(RTLD_DEFAULT, symbol);
}

/* Bytes of a type: the first word of its variable */
static int type_size(MPI_Datatype datatype, MPI_Count *size)
{
    memcpy(size, datatype, sizeof(*size));
    return MPI_SUCCESS;
}

static int reduce(const void *send, void *recv, int count,
                  MPI_Datatype datatype, MPI_Op op, MPI_Comm comm)
{
    memcpy(recv, send, count * sizeof(int));
    ++fake_mpi_reductions;
    if (fake_mpi_others != NULL) {
        fake_mpi_others(recv, count);
    }
    return MPI_SUCCESS;
}

void fake_mpi_open(void)
{
    fake_mpi_reductions         = 0;
    fake_mpi_others             = NULL;
    ucx_mp_mpi_real.Type_size_x = type_size;
    ucx_mp_mpi_real.Allreduce   = reduce;
    ucx_mp_mpi_handles_find();
}
