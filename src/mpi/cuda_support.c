/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Functions by which programs ask whether the MPI supports GPU memory. With the
 * module and this library it does, although the MPI alone does not.
 */
#include <mpi/gpu.h>
#include <mpi/module.h>
#include <mpi/pmpi.h>


#define EXPORTED __attribute__((visibility("default")))


/* Return whether this library and the module handle GPU memory for an MPI
   without CUDA support. false if the MPI has it itself, or before MPI_Init(),
   since the module is not loaded then. */
static bool takes_gpu_memory(void)
{
    ucx_mp_mpi_pmpi_find();
    return ucx_mp_mpi_pmpi.stages && (ucx_mp_mpi_module() != NULL) &&
           ucx_mp_mpi_gpu_is_available();
}

EXPORTED int MPIX_Query_cuda_support(void)
{
    return takes_gpu_memory() ||
           ((ucx_mp_mpi_pmpi.query_cuda_support != NULL) &&
            ucx_mp_mpi_pmpi.query_cuda_support());
}

#ifdef MPIX_GPU_SUPPORT_CUDA
EXPORTED int MPIX_GPU_query_support(int type, int *is_supported_p)
{
    if ((type == MPIX_GPU_SUPPORT_CUDA) && (is_supported_p != NULL) &&
        takes_gpu_memory()) {
        *is_supported_p = 1;
        return MPI_SUCCESS;
    }

    ucx_mp_mpi_pmpi_find();
    return (ucx_mp_mpi_pmpi.gpu_query_support != NULL) ?
                   ucx_mp_mpi_pmpi.gpu_query_support(type, is_supported_p) :
                   MPI_ERR_OTHER;
}
#endif
