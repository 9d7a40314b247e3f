/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The bytes of a transfer: a function of the transfer's seed and the position
 * in it, so that a displaced byte, one of another transfer and one that never
 * came all differ from what belongs there.
 *
 * Word w (of 8 bytes) of transfer s is x ^ (x >> 32) with x = a(s) + w * m(s),
 * m odd. Given s a word thus tells its position, which pattern_explain() uses.
 */
#ifndef UCX_MP_TEST_PATTERN_H_
#define UCX_MP_TEST_PATTERN_H_

#include "gpu.h"

#include <stddef.h>
#include <stdint.h>

/* What was found wrong first in a transfer. */
typedef struct {
    size_t  offset;    /* bytes from the start of the message */
    uint8_t expected;
    uint8_t got;
    size_t  count;     /* wrong bytes seen in all */
    char    hint[128]; /* where the wrong bytes come from, if known */
} ucx_mp_pattern_error_t;

/* The same bytes by the CPU alone, to host memory of any alignment: nothing of
   CUDA is called or allocated. */
void ucx_mp_pattern_bytes(void *dst, size_t size, uint64_t seed);

/* Writes bytes [0, size) of transfer `seed` to `dst`. */
void ucx_mp_pattern_fill(ucx_mp_mem_t mem, void *dst, size_t size,
                         uint64_t seed);

/*
 * Compares `size` bytes at `src` with transfer `seed`.
 *
 * @param sampled  0: every byte; otherwise both ends and blocks between them.
 * @param poison   Value that the memory had before, for the hint.
 *
 * @return  0 if all bytes looked at are right; otherwise *error is filled in.
 */
int ucx_mp_pattern_check(ucx_mp_mem_t mem, const void *src, size_t size,
                         uint64_t seed, int sampled, uint8_t poison,
                         ucx_mp_pattern_error_t *error);

/* Checks that `size` bytes at `src` all have the value `value`; as above. */
int ucx_mp_pattern_check_value(ucx_mp_mem_t mem, const void *src, size_t size,
                               uint8_t value, ucx_mp_pattern_error_t *error);

#endif
