/* SPDX-License-Identifier: BSD-3-Clause */
/* Addresses, without sums that could wrap around: some come from peers. */
#ifndef UCT_CUDA_BASE_RANGE_H
#define UCT_CUDA_BASE_RANGE_H

#include <stdbool.h>
#include <stdint.h>


/** Do @a length bytes from @a address on lie in @a size bytes from @a base on?
 *  None lie anywhere but in front of one of them. */
static inline bool uct_cuda_range_holds(uint64_t base, uint64_t size,
                                        uint64_t address, uint64_t length)
{
    return (address >= base) && (address - base < size) &&
           (length <= size - (address - base));
}

#endif
