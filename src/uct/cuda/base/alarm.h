/* SPDX-License-Identifier: BSD-3-Clause */
/* Delayed callbacks, from a separate thread: they wake a sleeping caller whose
 * event may never happen. */
#ifndef UCT_CUDA_BASE_ALARM_H
#define UCT_CUDA_BASE_ALARM_H

#include <stdbool.h>
#include <stdint.h>

/**
 * Call @a func with @a arg once, at @a at or soon after; earlier if an earlier
 * time was set for the same pair. The function may only write to a descriptor.
 *
 * @param at  Time of uct_cuda_now_ns().
 * @return false: no thread or memory for it.
 */
bool uct_cuda_alarm_set(uint64_t at, void (*func)(void *arg), void *arg);

#endif
