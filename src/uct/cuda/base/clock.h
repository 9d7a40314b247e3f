/* SPDX-License-Identifier: BSD-3-Clause */
/* The module's clock. */
#ifndef UCT_CUDA_BASE_CLOCK_H
#define UCT_CUDA_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>


/** Return the time of the monotonic clock, ns. */
static inline uint64_t uct_cuda_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return ((uint64_t)now.tv_sec * UINT64_C(1000000000)) +
           (uint64_t)now.tv_nsec;
}

/** Return the time until @a end (ns), rounded up to ms; 0: it is over. */
static inline int uct_cuda_ms_until(uint64_t end)
{
    const uint64_t now = uct_cuda_now_ns();

    return (now < end) ? (int)((end - now) / 1000000) + 1 : 0;
}

#endif
