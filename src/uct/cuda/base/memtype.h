/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Has UCX ask about a pointer wherever it could not know what it points to.
 */
#ifndef UCT_CUDA_BASE_MEMTYPE_H
#define UCT_CUDA_BASE_MEMTYPE_H

#include <stdbool.h>


/**
 * Make sure that UCX takes no GPU memory for the host's. Once the driver is
 * loaded, and again for every context of UCP; any thread.
 *
 * A UCX without CUDA memory hooks has a cache of memory types that nothing
 * fills, and takes every pointer for host memory. That is right, and what keeps
 * short host messages short, until the process begins to use GPUs; then the
 * cache must go, and UCX asks about every buffer.
 */
void uct_cuda_memtype_setup(void);


/** Does this UCX see GPU memory being freed, and forget its registrations? As
 *  far as setup knows; until then no. */
bool uct_cuda_memtype_sees_frees(void);

#endif
