/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The bytes of a transfer: a function of the transfer's seed and the position
 * in it. So a displaced byte, a byte of another transfer and a missing byte all
 * differ from the expected one.
 *
 * Word w (of 8 bytes) of transfer s is x ^ (x >> 32) with x = a(s) + w * m(s),
 * m odd. Given s, a word determines its position: ucx_mp_pattern_explain().
 */
#ifndef UCX_MP_TEST_PATTERN_H_
#define UCX_MP_TEST_PATTERN_H_

#include "gpu.h"

#include <stddef.h>
#include <stdint.h>

/* The first error found in a transfer. */
typedef struct {
    size_t  offset;    /* bytes from the start of the message */
    uint8_t expected;
    uint8_t got;
    size_t  count;     /* total of wrong bytes */
    char    hint[128]; /* origin of the wrong bytes, if known */
} ucx_mp_pattern_error_t;

/* Write the same bytes with the CPU alone, to host memory of any alignment:
   calls and allocates nothing of CUDA. */
void ucx_mp_pattern_bytes(void *dst, size_t size, uint64_t seed);

/* Write bytes [0, size) of transfer `seed` to `dst`. */
void ucx_mp_pattern_fill(ucx_mp_mem_t mem, void *dst, size_t size,
                         uint64_t seed);

/*
 * Compare `size` bytes at `src` with transfer `seed`.
 *
 * @param sampled  0: every byte; otherwise both ends and blocks between them.
 * @param poison   Earlier value of the memory, for the hint.
 *
 * @return  0 if all compared bytes are right; otherwise *error is filled in.
 */
int ucx_mp_pattern_check(ucx_mp_mem_t mem, const void *src, size_t size,
                         uint64_t seed, int sampled, uint8_t poison,
                         ucx_mp_pattern_error_t *error);

/* Compare all bytes likewise, and report wrong ones, after a description of the
   message. @return Non-zero if any byte is wrong. */
int ucx_mp_pattern_is_wrong(ucx_mp_mem_t mem, const void *src, size_t size,
                            uint64_t seed, uint8_t poison, const char *fmt, ...)
        __attribute__((format(printf, 6, 7)));

/* Check that `size` bytes at `src` all have the value `value`; returns as
   above. */
int ucx_mp_pattern_check_value(ucx_mp_mem_t mem, const void *src, size_t size,
                               uint8_t value, ucx_mp_pattern_error_t *error);

#endif
