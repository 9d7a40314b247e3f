/* SPDX-License-Identifier: BSD-3-Clause */
/* Access to the transport module, if this process has loaded it. */
#ifndef UCX_MP_MPI_MODULE_H_
#define UCX_MP_MPI_MODULE_H_

#include <uct/cuda/collective_api.h>


/* Return the module's functions, or NULL if it is not loaded. Until it is
   found, each call looks for it again if objects were loaded since. */
const uct_cuda_coll_api_t *ucx_mp_mpi_module(void);

#endif
