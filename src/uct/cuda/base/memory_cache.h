/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cache of pages known to be host memory. A UCX without a working memory type
 * cache queries every buffer; this avoids the driver calls.
 */
#ifndef UCT_CUDA_BASE_MEMORY_CACHE_H
#define UCT_CUDA_BASE_MEMORY_CACHE_H

#include <stdbool.h>


/** Enable the cache. Needs UCX's hooks on unmapping, since an unmapped
 *  address may come back as GPU memory; without them nothing is cached. */
void uct_cuda_memory_cache_enable(void);

/** Return true if this is certainly host memory. Takes nanoseconds; thread
 *  safe. */
bool uct_cuda_memory_cache_is_host(const void *address);

/** Add memory unknown to the driver. It is cached as host memory if this
 *  process can read it (a system call of 0.1 us): freed GPU memory is
 *  unknown to the driver, too. */
void uct_cuda_memory_cache_add_host(const void *address);

#endif
