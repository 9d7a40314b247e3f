/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A little page-locked memory for small copies from GPUs. Into other memory the
 * driver copies synchronously, by buffers of its own: 8 B take 10.6 us, into
 * page-locked memory 8.0 and the caller may do something else (measured on
 * H200).
 */
#ifndef UCT_CUDA_BASE_HOST_HOST_BOUNCE_H
#define UCT_CUDA_BASE_HOST_HOST_BOUNCE_H

#include <ucs/sys/compiler_def.h>

#include <stddef.h>

BEGIN_C_DECLS


#define UCT_CUDA_HOST_BOUNCE_SLOTS 16


/**
 * Take a slot; any thread. The memory is page-locked with the first one, in the
 * current context, and again when that one is destroyed. It stays where it is,
 * so that slots taken before are as good as others.
 *
 * @return Page-locked memory of UCT_CUDA_HOST_BOUNCE_MAX_SIZE bytes; or NULL
 *         if @a length is more, all are taken, or the driver has no memory.
 */
void *uct_cuda_host_bounce_get(size_t length);

/** Give it back, once nothing is copied there any more. Any thread. */
void uct_cuda_host_bounce_put(void *slot);


END_C_DECLS

#endif
