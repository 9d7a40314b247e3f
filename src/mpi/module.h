/* SPDX-License-Identifier: BSD-3-Clause */
/* The transport module that this process has loaded, if it is ours. */
#ifndef UCX_MP_MPI_MODULE_H_
#define UCX_MP_MPI_MODULE_H_

#include <uct/cuda/collective_api.h>


/* Its functions; NULL: there is none yet. Looked for until there is one, each
   time that something was loaded. */
const uct_cuda_coll_api_t *ucx_mp_mpi_module(void);

#endif
