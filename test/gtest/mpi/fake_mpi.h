/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An MPI of one process: functions called by the tested files, and the
 * variables behind Open MPI's handles.
 */
#ifndef UCX_MP_TEST_FAKE_MPI_H
#define UCX_MP_TEST_FAKE_MPI_H

#include <mpi/pmpi.h>


/* Install the functions in ucx_mp_mpi_pmpi, and find the handles. */
void fake_mpi_open(void);

/* Return a datatype or operation by Open MPI's name, "float" or "op_sum". */
void *fake_mpi_handle(const char *name);

#endif
