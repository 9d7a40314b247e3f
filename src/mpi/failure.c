/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi/failure.h>

#include <mpi/error.h>


void ucx_mp_mpi_failure_report(ucx_mp_mpi_ordinal_t ordinal, int rank)
{
    const ucx_mp_mpi_job_t *job = &ucx_mp_mpi_job;

    if (ordinal.key != 0) {
        job->api->segment_report_failure(job->segment, ordinal.key,
                                         ordinal.number, ordinal.start,
                                         (uint32_t)rank);
    }
}

int ucx_mp_mpi_failure_find(ucx_mp_mpi_ordinal_t ordinal, const char *name,
                            MPI_Comm comm, int rc)
{
    const ucx_mp_mpi_job_t *job = &ucx_mp_mpi_job;
    int rank;

    if ((ordinal.key == 0) || (rc != MPI_SUCCESS)) {
        return rc;
    }

    rank = job->api->segment_failed_rank(job->segment, ordinal.key,
                                         ordinal.number, ordinal.start);
    return (rank < 0) ? rc :
                        ucx_mp_mpi_raise(comm, MPI_ERR_OTHER,
                                         "%s: rank %d could not stage its GPU "
                                         "buffers", name, rank);
}

int ucx_mp_mpi_failure_raise(uct_cuda_coll_result_t result, const char *name,
                             MPI_Comm comm, const char *why)
{
    return (result == UCT_CUDA_COLL_DIFFERS) ?
                   ucx_mp_mpi_raise(comm, MPI_ERR_COUNT, "%s: %s", name, why) :
                   ucx_mp_mpi_raise(comm, MPI_ERR_OTHER,
                                    "%s: the GPUs' part failed: %s", name,
                                    why);
}
