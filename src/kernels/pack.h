/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Packing and unpacking of MPI datatypes by a kernel that comes with the
 * library as PTX. Addresses are of device memory or of page-locked host memory.
 */
#ifndef UCX_MP_PACK_H_
#define UCX_MP_PACK_H_

#include "kernels.h"
#include "pack_args.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Load the kernel into the current context, for as long as that lives. */
CUresult ucx_mp_pack_load(const ucx_mp_kernels_driver_t *driver,
                          CUfunction *function);

/* Launch it. `args->bytes` and `args->num_rows` are not 0. */
CUresult ucx_mp_pack_launch(const ucx_mp_kernels_driver_t *driver,
                            CUfunction function,
                            const ucx_mp_pack_args_t *args, CUstream stream);

#ifdef __cplusplus
}
#endif

#endif
