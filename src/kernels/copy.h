/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Copy many small blocks in one kernel launch. The library contains the kernel
 * as PTX. Addresses are device memory of this GPU, mapped memory of peers, or
 * page-locked host memory, at any alignment. Blocks must not overlap.
 */
#ifndef UCX_MP_COPY_H_
#define UCX_MP_COPY_H_

#include "copy_args.h"
#include "kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Copy kernels loaded into one context */
typedef struct {
    CUfunction copy;
    CUfunction alike; /* kernel for blocks of equal size */
} ucx_mp_copy_t;

/*
 * Load the kernels into the current context. They stay loaded as long as the
 * context exists, since unloading would wait for all work queued there. Loading
 * waits for it, too. Returns SUCCESS or the driver's error.
 */
CUresult ucx_mp_copy_load(const ucx_mp_kernels_driver_t *driver,
                          ucx_mp_copy_t *kernels);

/*
 * Launch the copy kernel with `blocks` (> 0) blocks of UCX_MP_COPY_THREADS
 * threads, without waiting. `args->words` is the address of
 * UCX_MP_COPY_WORDS(blocks) words. Returns SUCCESS or the driver's error.
 */
CUresult ucx_mp_copy_launch(const ucx_mp_kernels_driver_t *driver,
                            const ucx_mp_copy_t *kernels, unsigned blocks,
                            const ucx_mp_copy_args_t *args, CUstream stream);

/* Launch the kernel for blocks of equal size, else as ucx_mp_copy_launch(). */
CUresult
ucx_mp_copy_launch_alike(const ucx_mp_kernels_driver_t *driver,
                         const ucx_mp_copy_t *kernels, unsigned blocks,
                         const ucx_mp_copy_alike_args_t *args, CUstream stream);

#ifdef __cplusplus
}
#endif

#endif
