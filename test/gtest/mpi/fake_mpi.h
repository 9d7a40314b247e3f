/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An MPI of one process: the functions that the tested files call, and the
 * variables that Open MPI's handles are.
 */
#ifndef UCX_MP_TEST_FAKE_MPI_H
#define UCX_MP_TEST_FAKE_MPI_H

#include <mpi/real.h>


/* Puts the functions into ucx_mp_mpi_real, and finds the handles. */
void fake_mpi_open(void);

/* A datatype or operation by Open MPI's name, "float" or "op_sum" */
void *fake_mpi_handle(const char *name);

#endif
