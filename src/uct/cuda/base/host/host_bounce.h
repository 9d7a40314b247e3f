/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Page-locked slots for small copies from GPUs. To pageable memory the driver
 * copies synchronously through its own buffers: 8 B take 10.6 us; to
 * page-locked memory 8.0, and the caller is not blocked (measured on H200).
 */
#ifndef UCT_CUDA_BASE_HOST_HOST_BOUNCE_H
#define UCT_CUDA_BASE_HOST_HOST_BOUNCE_H

#include <ucs/sys/compiler_def.h>

#include <stddef.h>

BEGIN_C_DECLS


#define UCT_CUDA_HOST_BOUNCE_SLOTS 16


/**
 * Take a slot; thread safe. The memory is page-locked for the first one, in the
 * current context, and again after that context is destroyed. It stays in
 * place, so slots taken earlier remain valid.
 *
 * @return Page-locked memory of UCT_CUDA_HOST_BOUNCE_MAX_SIZE bytes; NULL: @a
 *         length is larger, all slots are taken, or the driver has no memory.
 */
void *uct_cuda_host_bounce_get(size_t length);

/** Release a slot when no copy uses it any more. Thread safe. */
void uct_cuda_host_bounce_put(void *slot);


END_C_DECLS

#endif
