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

typedef enum {
    UCX_MP_OPTION_FLAG,   /* sets an integer to 1, has no argument */
    UCX_MP_OPTION_NUMBER, /* of any type, whole */
    UCX_MP_OPTION_SIZE,
    UCX_MP_OPTION_FACTOR,
    UCX_MP_OPTION_SECONDS,
    UCX_MP_OPTION_CHOICE, /* an int, the word's index */
    UCX_MP_OPTION_TEXT
} ucx_mp_option_kind_t;

/* An option of a program, by the macros below */
typedef struct {
    const char           *name; /* without "--"; NULL ends the table */
    ucx_mp_option_kind_t kind;
    void                 *value;
    size_t               bytes; /* of an integer */
    int                  is_real;
    uint64_t             min;
    uint64_t             max;
    const char *const    *words;
    const char           *arg;  /* what --help calls it */
    const char           *help;
} ucx_mp_option_t;

#define UCX_MP_OPTION(_kind, _name, _value, _min, _max, _words, _arg, _help) \
    {_name, UCX_MP_OPTION_##_kind, &(_value), sizeof(_value), \
     __builtin_types_compatible_p(__typeof__(_value), double), _min, _max, \
     _words, _arg, _help}

#define UCX_MP_FLAG(_name, _value, _help) \
    UCX_MP_OPTION(FLAG, _name, _value, 0, 0, NULL, "", _help)
#define UCX_MP_NUMBER(_name, _value, _min, _max, _arg, _help) \
    UCX_MP_OPTION(NUMBER, _name, _value, _min, _max, NULL, _arg, _help)
#define UCX_MP_SIZE(_name, _value, _min, _max, _help) \
    UCX_MP_OPTION(SIZE, _name, _value, _min, _max, NULL, "SIZE", _help)
#define UCX_MP_SECONDS(_name, _value, _help) \
    UCX_MP_OPTION(SECONDS, _name, _value, 0, 0, NULL, "SECONDS", _help)
#define UCX_MP_FACTOR(_name, _value, _arg, _help) \
    UCX_MP_OPTION(FACTOR, _name, _value, 0, 0, NULL, _arg, _help)
#define UCX_MP_CHOICE(_name, _value, _words, _help) \
    UCX_MP_OPTION(CHOICE, _name, _value, 0, 0, _words, "WORD", _help)
#define UCX_MP_TEXT(_name, _value, _arg, _help) \
    UCX_MP_OPTION(TEXT, _name, _value, 0, 0, NULL, _arg, _help)

/* Sets what the command line asks for. --help prints `what` (what the program
   does) and the table, and ends the program; so does what is wrong. */
void ucx_mp_parse_options(int argc, char **argv, const char *what,
                          const ucx_mp_option_t *options);

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
