/* SPDX-License-Identifier: BSD-3-Clause */
/* Wrappers of the calls that start MPI. */
#include <mpi/comm.h>
#include <mpi/rank_check.h>
#include <mpi/job.h>


/* Look up the MPI's functions and publish this rank, before the MPI starts.
   start_end() follows. */
static void start_begin(void)
{
    ucx_mp_mpi_pmpi_find_calls();
    if (ucx_mp_mpi_pmpi.is_complete) {
        ucx_mp_mpi_rank_check_begin();
    }
}

/* Agree with the other ranks after the MPI has started; blocks. `rc`: result of
   the MPI's start; after an error, only stop publishing. @return `rc`. */
static int start_end(int rc)
{
    if (rc == MPI_SUCCESS) {
        ucx_mp_mpi_pmpi_update();
        if (ucx_mp_mpi_pmpi.is_complete) {
            ucx_mp_mpi_job_begin();
            if (ucx_mp_mpi_job.api != NULL) {
                ucx_mp_mpi_comm_new(ucx_mp_mpi_pmpi.comm_null,
                                    ucx_mp_mpi_pmpi.comm_world);
            }
        }
    }
    ucx_mp_mpi_rank_check_end();
    return rc;
}

UCX_MP_MPI_DEFINE(Init, (argc, argv), int *argc, char ***argv)
{
    start_begin();
    return start_end(ucx_mp_mpi_pmpi.Init(argc, argv));
}

UCX_MP_MPI_DEFINE(Init_thread, (argc, argv, required, provided), int *argc,
                  char ***argv, int required, int *provided)
{
    start_begin();
    return start_end(ucx_mp_mpi_pmpi.Init_thread(argc, argv, required,
                                                 provided));
}
