/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls back later, from a thread of its own: for who sleeps until something
 * happens that may never happen. */
#ifndef UCT_CUDA_BASE_ALARM_H
#define UCT_CUDA_BASE_ALARM_H

#include <stdbool.h>
#include <stdint.h>

/**
 * Call @a func with @a arg once, at @a at or soon after; or earlier, if that
 * was asked for the same two before. It may write to a descriptor, not more.
 *
 * @param at  uct_cuda_now_ns().
 * @return false: there is no thread or memory for it.
 */
bool uct_cuda_alarm_set(uint64_t at, void (*func)(void *arg), void *arg);

#endif
