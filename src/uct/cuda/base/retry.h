/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Repetition of system calls interrupted by signals. A program's timers and
 * profilers send signals at any rate, with or without SA_RESTART, and the
 * kernel never restarts poll(), nanosleep() and posix_fallocate(). An
 * interrupted call has no result, so it is repeated.
 */
#ifndef UCT_CUDA_BASE_RETRY_H
#define UCT_CUDA_BASE_RETRY_H

#include <errno.h>
#include <time.h>


/** Repeat a call that returns -1 and sets errno until no signal interrupts
 *  it. Not for close(): an interrupted close() has closed the descriptor. */
#define UCT_CUDA_RETRY(_call) \
    __extension__({ \
        __typeof__(_call) uct_cuda_retry_result; \
        do { \
            uct_cuda_retry_result = (_call); \
        } while ((uct_cuda_retry_result == -1) && (errno == EINTR)); \
        uct_cuda_retry_result; \
    })


/** Sleep for a time in ns, below one second, in spite of signals. */
static inline void uct_cuda_sleep_ns(long ns)
{
    struct timespec left = {.tv_sec = 0, .tv_nsec = ns};

    (void)UCT_CUDA_RETRY(nanosleep(&left, &left));
}

#endif
