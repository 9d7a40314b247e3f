/* SPDX-License-Identifier: BSD-3-Clause */

/* The bytes of a transfer: written, compared, and explained when wrong. */
#include "pattern.h"
#include "util.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define UCX_MP_PATTERN_WORD  sizeof(uint64_t)
#define UCX_MP_PATTERN_STEP  ((size_t)4 << 20) /* staged at once, bytes */
#define UCX_MP_PATTERN_BLOCK ((size_t)8 << 10) /* compared at once, bytes */
#define UCX_MP_PATTERN_SAMPLES 16              /* blocks of a sampled check */

/* Return host memory used to read and write device memory. */
static uint8_t *ucx_mp_pattern_staging(void)
{
    static _Thread_local uint8_t *staging; /* freed with the process */

    if (staging == NULL) {
        staging = ucx_mp_mem_alloc(ucx_mp_gpu_present() ? UCX_MP_MEM_PINNED :
                                                          UCX_MP_MEM_HOST,
                                   UCX_MP_PATTERN_STEP);
    }
    return staging;
}

static uint64_t ucx_mp_pattern_factor(uint64_t seed)
{
    return ucx_mp_hash(seed) | 1;
}

static uint64_t ucx_mp_pattern_start(uint64_t seed)
{
    return ucx_mp_hash(~seed);
}

/* Generate words [first, first + count) of transfer `seed`. */
static void ucx_mp_pattern_generate(uint64_t *words, uint64_t first,
                                    size_t count, uint64_t seed)
{
    const uint64_t factor = ucx_mp_pattern_factor(seed);
    uint64_t x            = ucx_mp_pattern_start(seed) + (first * factor);
    size_t i;

    for (i = 0; i < count; ++i) {
        words[i] = x ^ (x >> 32);
        x       += factor;
    }
}

void ucx_mp_pattern_bytes(void *dst, size_t size, uint64_t seed)
{
    uint64_t words[UCX_MP_PATTERN_BLOCK / UCX_MP_PATTERN_WORD];
    size_t offset, length;

    for (offset = 0; offset < size; offset += length) {
        length = size - offset;
        if (length > UCX_MP_PATTERN_BLOCK) {
            length = UCX_MP_PATTERN_BLOCK;
        }
        ucx_mp_pattern_generate(words, offset / UCX_MP_PATTERN_WORD,
                                (length + UCX_MP_PATTERN_WORD - 1) /
                                        UCX_MP_PATTERN_WORD,
                                seed);
        memcpy((uint8_t*)dst + offset, words, length);
    }
}

void ucx_mp_pattern_fill(ucx_mp_mem_t mem, void *dst, size_t size,
                         uint64_t seed)
{
    uint8_t *staging = ucx_mp_pattern_staging();
    size_t offset, length;

    for (offset = 0; offset < size; offset += length) {
        length = size - offset;
        if (length > UCX_MP_PATTERN_STEP) {
            length = UCX_MP_PATTERN_STEP;
        }
        ucx_mp_pattern_generate((uint64_t*)staging,
                                offset / UCX_MP_PATTERN_WORD,
                                (length + UCX_MP_PATTERN_WORD - 1) /
                                        UCX_MP_PATTERN_WORD,
                                seed);
        ucx_mp_mem_put(mem, (uint8_t*)dst + offset, staging, length);
    }
}

/* Return the inverse of an odd number modulo 2^64, by Newton's iteration. */
static uint64_t ucx_mp_pattern_inverse(uint64_t odd)
{
    uint64_t inverse = odd;
    int i;

    for (i = 0; i < 6; ++i) {
        inverse *= 2 - (odd * inverse);
    }
    return inverse;
}

/* Describe the origin of the word around a wrong byte. */
static void ucx_mp_pattern_explain(const uint8_t *bytes, size_t length,
                                   size_t at, size_t base, size_t size,
                                   uint64_t seed, uint8_t poison,
                                   ucx_mp_pattern_error_t *error)
{
    uint64_t inverse = ucx_mp_pattern_inverse(ucx_mp_pattern_factor(seed));
    uint64_t word, x, position;
    size_t shift, i;

    for (i = at; (i < length) && (i < at + 16) && (bytes[i] == poison); ++i) {
    }
    if ((i == length) || (i >= at + 16)) {
        snprintf(error->hint, sizeof(error->hint),
                 "never written: the poison 0x%02x is still there", poison);
        return;
    }

    /* a word of the message may lie here at any displacement */
    for (shift = 0; shift < UCX_MP_PATTERN_WORD; ++shift) {
        if (at + shift + UCX_MP_PATTERN_WORD > length) {
            break;
        }
        memcpy(&word, bytes + at + shift, sizeof(word));
        x        = word ^ (word >> 32);
        position = (x - ucx_mp_pattern_start(seed)) * inverse;
        if ((position < size / UCX_MP_PATTERN_WORD) &&
            (position * UCX_MP_PATTERN_WORD != base + at + shift)) {
            snprintf(error->hint, sizeof(error->hint),
                     "displaced: byte %llu of this message lies here",
                     (unsigned long long)((position * UCX_MP_PATTERN_WORD) -
                                          shift));
            return;
        }
    }
    snprintf(error->hint, sizeof(error->hint),
             "bytes of something else, or stale");
}

/* Compare bytes [offset, offset + length) with the pattern. */
static void ucx_mp_pattern_compare(const uint8_t *bytes, size_t offset,
                                   size_t length, size_t size, uint64_t seed,
                                   uint8_t poison,
                                   ucx_mp_pattern_error_t *error)
{
    uint64_t words[UCX_MP_PATTERN_BLOCK / UCX_MP_PATTERN_WORD];
    const uint8_t *expected = (const uint8_t*)words;
    size_t done, block, i;

    for (done = 0; done < length; done += block) {
        block = length - done;
        if (block > UCX_MP_PATTERN_BLOCK) {
            block = UCX_MP_PATTERN_BLOCK;
        }
        ucx_mp_pattern_generate(words, (offset + done) / UCX_MP_PATTERN_WORD,
                                (block + UCX_MP_PATTERN_WORD - 1) /
                                        UCX_MP_PATTERN_WORD,
                                seed);
        if (!memcmp(bytes + done, expected, block)) {
            continue;
        }
        for (i = 0; i < block; ++i) {
            if (bytes[done + i] == expected[i]) {
                continue;
            }
            if (error->count++ == 0) {
                error->offset   = offset + done + i;
                error->expected = expected[i];
                error->got      = bytes[done + i];
                ucx_mp_pattern_explain(bytes, length, done + i, offset, size,
                                       seed, poison, error);
            }
        }
    }
}

static void ucx_mp_pattern_check_range(ucx_mp_mem_t mem, const uint8_t *src,
                                       size_t begin, size_t end, size_t size,
                                       uint64_t seed, uint8_t poison,
                                       ucx_mp_pattern_error_t *error)
{
    size_t offset, length;
    const uint8_t *bytes;

    for (offset = begin; offset < end; offset += length) {
        length = end - offset;
        if (length > UCX_MP_PATTERN_STEP) {
            length = UCX_MP_PATTERN_STEP;
        }
        bytes = src + offset;
        if (mem == UCX_MP_MEM_DEVICE) {
            bytes = ucx_mp_pattern_staging();
            ucx_mp_mem_get(mem, (void*)bytes, src + offset, length);
        }
        ucx_mp_pattern_compare(bytes, offset, length, size, seed, poison,
                               error);
    }
}

int ucx_mp_pattern_check(ucx_mp_mem_t mem, const void *src, size_t size,
                         uint64_t seed, int sampled, uint8_t poison,
                         ucx_mp_pattern_error_t *error)
{
    uint64_t state = seed;
    size_t begin, num_blocks;
    int i;

    memset(error, 0, sizeof(*error));
    num_blocks = size / UCX_MP_PATTERN_BLOCK;
    if (!sampled || (num_blocks <= UCX_MP_PATTERN_SAMPLES)) {
        ucx_mp_pattern_check_range(mem, src, 0, size, size, seed, poison,
                                   error);
        return error->count != 0;
    }

    ucx_mp_pattern_check_range(mem, src, 0, UCX_MP_PATTERN_BLOCK, size, seed,
                               poison, error);
    for (i = 0; i < UCX_MP_PATTERN_SAMPLES; ++i) {
        begin = ucx_mp_random_below(&state, num_blocks) * UCX_MP_PATTERN_BLOCK;
        ucx_mp_pattern_check_range(mem, src, begin,
                                   begin + UCX_MP_PATTERN_BLOCK, size, seed,
                                   poison, error);
    }
    begin = (num_blocks - 1) * UCX_MP_PATTERN_BLOCK;
    ucx_mp_pattern_check_range(mem, src, begin, size, size, seed, poison,
                               error);
    return error->count != 0;
}

int ucx_mp_pattern_is_wrong(ucx_mp_mem_t mem, const void *src, size_t size,
                            uint64_t seed, uint8_t poison, const char *fmt, ...)
{
    ucx_mp_pattern_error_t error;
    char message[256];
    va_list ap;

    if (!ucx_mp_pattern_check(mem, src, size, seed, 0, poison, &error)) {
        return 0;
    }

    va_start(ap, fmt);
    vsnprintf(message, sizeof(message), fmt, ap);
    va_end(ap);
    ucx_mp_report("WRONG data, %s: %zu of %zu bytes of %s memory, the first at "
                  "%zu: expected 0x%02x, got 0x%02x; %s", message, error.count,
                  size, ucx_mp_mem_names[mem], error.offset, error.expected,
                  error.got, error.hint);
    return 1;
}

int ucx_mp_pattern_check_value(ucx_mp_mem_t mem, const void *src, size_t size,
                               uint8_t value, ucx_mp_pattern_error_t *error)
{
    const uint8_t *bytes;
    size_t offset, length, i;

    memset(error, 0, sizeof(*error));
    for (offset = 0; offset < size; offset += length) {
        length = size - offset;
        if (length > UCX_MP_PATTERN_STEP) {
            length = UCX_MP_PATTERN_STEP;
        }
        bytes = (const uint8_t*)src + offset;
        if (mem == UCX_MP_MEM_DEVICE) {
            bytes = ucx_mp_pattern_staging();
            ucx_mp_mem_get(mem, (void*)bytes, (const uint8_t*)src + offset,
                           length);
        }
        for (i = 0; i < length; ++i) {
            if ((bytes[i] != value) && (error->count++ == 0)) {
                error->offset   = offset + i;
                error->expected = value;
                error->got      = bytes[i];
            }
        }
    }
    return error->count != 0;
}
