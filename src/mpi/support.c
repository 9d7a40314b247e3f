/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What programs ask before they give an MPI GPU memory. The module takes their
 * messages and this library their collectives; the MPI knows of neither.
 */
#include <mpi/gpu.h>
#include <mpi/module.h>
#include <mpi/pmpi.h>


#define EXPORTED __attribute__((visibility("default")))


/* Before MPI_Init() no module is loaded, and the answer is the MPI's */
static bool takes_gpu_memory(void)
{
    ucx_mp_mpi_pmpi_find();
    return ucx_mp_mpi_pmpi.stages && (ucx_mp_mpi_module() != NULL) &&
           ucx_mp_mpi_gpu_is_there();
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
