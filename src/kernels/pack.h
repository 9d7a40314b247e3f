/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Pack and unpack MPI datatypes by a kernel. The library contains it as PTX.
 * Addresses are device memory or page-locked host memory.
 */
#ifndef UCX_MP_PACK_H_
#define UCX_MP_PACK_H_

#include "kernels.h"
#include "pack_args.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Load the kernel into the current context. It stays loaded as long as the
   context exists. Returns SUCCESS or the driver's error. */
CUresult ucx_mp_pack_load(const ucx_mp_kernels_driver_t *driver,
                          CUfunction *function);

/* Launch the kernel in the stream. `args->bytes` and `args->num_rows` must not
   be 0. Returns SUCCESS or the driver's error. */
CUresult ucx_mp_pack_launch(const ucx_mp_kernels_driver_t *driver,
                            CUfunction function,
                            const ucx_mp_pack_args_t *args, CUstream stream);

#ifdef __cplusplus
}
#endif

#endif
