/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Many small blocks copied at once by a kernel that comes with the library as
 * PTX. Addresses are of device memory, of peers' that is mapped, or of
 * page-locked host memory, at any alignment; nothing overlaps.
 */
#ifndef UCX_MP_COPY_H_
#define UCX_MP_COPY_H_

#include "copy_args.h"
#include "kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The kernels, as a context has them */
typedef struct {
    CUfunction copy;
    CUfunction alike; /* of blocks that are alike */
} ucx_mp_copy_t;

/*
 * Loads the kernels into the current context, which is never undone: unloading
 * would wait for all that is queued there, and so does loading. SUCCESS, or
 * what the driver says.
 */
CUresult ucx_mp_copy_load(const ucx_mp_kernels_driver_t *driver,
                          ucx_mp_copy_t *kernels);

/*
 * Launches one with `blocks` (> 0) blocks of UCX_MP_COPY_THREADS threads. The
 * words are UCX_MP_COPY_WORDS(blocks).
 */
CUresult ucx_mp_copy_launch(const ucx_mp_kernels_driver_t *driver,
                            const ucx_mp_copy_t *kernels, unsigned blocks,
                            const ucx_mp_copy_args_t *args, CUstream stream);
CUresult
ucx_mp_copy_launch_alike(const ucx_mp_kernels_driver_t *driver,
                         const ucx_mp_copy_t *kernels, unsigned blocks,
                         const ucx_mp_copy_alike_args_t *args, CUstream stream);

#ifdef __cplusplus
}
#endif

#endif
