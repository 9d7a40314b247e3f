/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Small things that both MPI programs need: failing with a sentence, parsing
 * sizes and numbers of the command line, random numbers, time.
 */
#ifndef UCX_MP_TEST_UTIL_H_
#define UCX_MP_TEST_UTIL_H_

#include <stddef.h>
#include <stdint.h>

/* Exit codes of the programs */
enum {
    UCX_MP_EXIT_OK    = 0,
    UCX_MP_EXIT_WRONG = 1, /* a byte was wrong, or the transport failed */
    UCX_MP_EXIT_USAGE = 2
};

/* Name that messages begin with; set it first. */
extern const char *ucx_mp_program;

/* Prints "program: rank R: message" and ends the whole job. */
void ucx_mp_die(int code, const char *fmt, ...)
        __attribute__((noreturn, format(printf, 2, 3)));

/* Rank to name in messages; -1 (as at start) prints none. */
void ucx_mp_set_rank(int rank);

/* Bytes from "123", "64K", "2M", "1G" (powers of 1024). Anything else ends the
   program with a message that names `option`. */
size_t ucx_mp_parse_size(const char *option, const char *text);

#define UCX_MP_MAX_SIZES 64

typedef struct {
    size_t values[UCX_MP_MAX_SIZES]; /* bytes, in the order of the text */
    int    count;
} ucx_mp_sizes_t;

/* Sizes from 1 byte to `max` from a list of SIZE and MIN:MAX (MIN doubled up to
   MAX) with commas, or the program ends as above. */
void ucx_mp_parse_sizes(const char *option, const char *text, size_t max,
                        ucx_mp_sizes_t *sizes);

/* Whole number within [min, max], or the program ends as above. */
uint64_t ucx_mp_parse_number(const char *option, const char *text,
                             uint64_t min, uint64_t max);

/* Number above 0 and up to 1000, or the program ends as above. */
double ucx_mp_parse_factor(const char *option, const char *text);

/* Seconds, 0 to 1000, or the program ends as above. */
double ucx_mp_parse_seconds(const char *option, const char *text);

/* Index of `text` in the NULL-terminated `names`, or the program ends. */
int ucx_mp_parse_choice(const char *option, const char *text,
                        const char *const *names);

/* 64 well-mixed bits from `x`; the same everywhere. */
uint64_t ucx_mp_hash(uint64_t x);

/* A sequence of random numbers that `state` alone determines. */
uint64_t ucx_mp_random(uint64_t *state);

/* Random number in [0, n); n > 0. */
uint64_t ucx_mp_random_below(uint64_t *state, uint64_t n);

/* min..max bytes, log-uniform; with a min of 0 once in 16 0. */
size_t ucx_mp_random_size(uint64_t *state, size_t min, size_t max);

/* Seconds of CLOCK_MONOTONIC. An emulated node interposes that clock, so this
   is modelled time there. */
double ucx_mp_time(void);

/* Seconds as the wall clock has them, on an emulated node too. */
double ucx_mp_real_time(void);

#endif
