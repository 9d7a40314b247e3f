/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Setup of memory type detection in UCX, so that UCX queries pointers whose
 * memory type it does not know.
 */
#ifndef UCT_CUDA_BASE_MEMTYPE_H
#define UCT_CUDA_BASE_MEMTYPE_H

#include <stdbool.h>


/**
 * Make sure that UCX takes no GPU memory for host memory. Call after the driver
 * is loaded, and for every UCP context; thread safe.
 *
 * A UCX without CUDA memory hooks never fills its memory type cache, and takes
 * every pointer for host memory. Until the process uses GPUs this is right, and
 * makes short host messages fast. Then this module disables the cache, and UCX
 * queries every buffer.
 */
void uct_cuda_memtype_setup(void);


/** Return whether this UCX sees frees of GPU memory and drops its
 *  registrations. False before uct_cuda_memtype_setup(). */
bool uct_cuda_memtype_sees_frees(void);


/** Return whether the function of uct_cuda_first_use_on_remap() is called.
 *  False before uct_cuda_memtype_setup(). */
bool uct_cuda_memtype_sees_remaps(void);

#endif
