/* SPDX-License-Identifier: BSD-3-Clause */
/* Host memory of this process that keys were given out for: what the server
 * touches (cuda_cma_server.h). Any thread. */
#ifndef UCT_CUDA_CMA_RANGES_H
#define UCT_CUDA_CMA_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>


/** @return False: no memory. A range may be there more than once. */
bool uct_cuda_cma_ranges_add(uint64_t base, size_t length);

/** One of those that are alike. */
void uct_cuda_cma_ranges_remove(uint64_t base, size_t length);

/** One that all of some memory lies in. @return Whether there is one. */
bool uct_cuda_cma_ranges_find(uint64_t address, size_t length, uint64_t *base_p,
                              size_t *length_p);

#endif
