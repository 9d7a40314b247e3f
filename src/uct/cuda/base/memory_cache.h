/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pages known to be host memory. Where UCX has no working cache of memory types
 * it asks about every buffer; this keeps the driver out of the answer.
 */
#ifndef UCT_CUDA_BASE_MEMORY_CACHE_H
#define UCT_CUDA_BASE_MEMORY_CACHE_H

#include <stdbool.h>
#include <stddef.h>


/**
 * Start to remember. Needs UCX's hooks on unmapping, since an address that was
 * unmapped may come back as GPU memory; without them nothing is remembered.
 */
void uct_cuda_memory_cache_enable(void);

/** Is this surely host memory? Nanoseconds; any thread. */
bool uct_cuda_memory_cache_is_host(const void *address);

/**
 * The driver knows nothing of this memory. It is remembered as the host's if
 * this process can read it (a system call of 0.1 us): of GPU memory that was
 * freed the driver knows nothing, either.
 */
void uct_cuda_memory_cache_add_host(const void *address);

#endif
