/* SPDX-License-Identifier: BSD-3-Clause */
/* Data of tests. */
#ifndef UCT_CUDA_TEST_REPEAT_H
#define UCT_CUDA_TEST_REPEAT_H

#include <algorithm>
#include <cstring>


/* Number of bytes after which test data repeats: a prime, so that no page, slot
   or chunk is a multiple of it away from another one. A test notices if one of
   them arrives in the place of another. */
constexpr size_t REPEAT_PERIOD = 65537;

/**
 * Repeat the first REPEAT_PERIOD bytes of @a memory. A loop over words would
 * take long without optimization, and ten times longer if a tool watches every
 * access.
 */
static inline void repeat(void *memory, size_t size)
{
    for (size_t done = REPEAT_PERIOD; done < size; done += done) {
        memcpy((char*)memory + done, memory, std::min(done, size - done));
    }
}

#endif
