/* SPDX-License-Identifier: BSD-3-Clause */
/* Address ranges, without sums that could overflow: some come from peers. */
#ifndef UCT_CUDA_BASE_RANGE_H
#define UCT_CUDA_BASE_RANGE_H

#include <stdbool.h>
#include <stdint.h>


/**
 * Return whether @a length bytes at @a address are inside @a size bytes at @a
 * base. An empty range must begin inside.
 */
static inline bool uct_cuda_range_holds(uint64_t base, uint64_t size,
                                        uint64_t address, uint64_t length)
{
    return (address >= base) && (address - base < size) &&
           (length <= size - (address - base));
}

#endif
