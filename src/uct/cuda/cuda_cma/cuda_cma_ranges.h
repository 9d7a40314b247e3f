/* SPDX-License-Identifier: BSD-3-Clause */
/* Host memory of this process with keys given out: the only memory that the
 * server accesses (cuda_cma_server.h). Thread safe. */
#ifndef UCT_CUDA_CMA_RANGES_H
#define UCT_CUDA_CMA_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>


/**
 * Add a range, which may be present more than once.
 *
 * @return false: no memory.
 */
bool uct_cuda_cma_ranges_add(uint64_t base, size_t length);

/** Remove one of several equal ranges. */
void uct_cuda_cma_ranges_remove(uint64_t base, size_t length);

/**
 * Find a range containing the memory.
 *
 * @return true: found.
 */
bool uct_cuda_cma_ranges_find(uint64_t address, size_t length, uint64_t *base_p,
                              size_t *length_p);

#endif
