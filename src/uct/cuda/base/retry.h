/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * System calls that a signal interrupts. A program's timers and profilers send
 * signals at any rate, with or without SA_RESTART, and poll(), nanosleep() and
 * posix_fallocate() are never restarted by the kernel. An interrupted call has
 * said nothing: it is repeated, and no verdict is drawn from it.
 */
#ifndef UCT_CUDA_BASE_RETRY_H
#define UCT_CUDA_BASE_RETRY_H

#include <errno.h>
#include <time.h>


/** Repeat a call that returns -1 and sets errno until no signal interrupts it.
 *  Not for close(): a descriptor is closed even if that is interrupted. */
#define UCT_CUDA_RETRY(_call) \
    __extension__({ \
        __typeof__(_call) uct_cuda_retry_result; \
        do { \
            uct_cuda_retry_result = (_call); \
        } while ((uct_cuda_retry_result == -1) && (errno == EINTR)); \
        uct_cuda_retry_result; \
    })


/** Sleep for that long, however many signals come (less than a second, ns). */
static inline void uct_cuda_sleep_ns(long ns)
{
    struct timespec left = {.tv_sec = 0, .tv_nsec = ns};

    (void)UCT_CUDA_RETRY(nanosleep(&left, &left));
}

#endif
