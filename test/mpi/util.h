/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Utilities of the MPI programs: failing with a sentence, parsing sizes and
 * numbers of the command line, random numbers, time.
 */
#ifndef UCX_MP_TEST_UTIL_H_
#define UCX_MP_TEST_UTIL_H_

#include <stddef.h>
#include <stdint.h>

/* Exit codes of the programs */
enum {
    UCX_MP_EXIT_OK    = 0,
    UCX_MP_EXIT_WRONG = 1, /* a wrong byte, or a failure of the transport */
    UCX_MP_EXIT_USAGE = 2
};

/* Program's name, printed before messages; set it first */
extern const char *ucx_mp_program;

/* Print "program: rank R: message" and end the whole job. */
void ucx_mp_die(int code, const char *fmt, ...)
        __attribute__((noreturn, format(printf, 2, 3)));

/* Print "program: rank R: message" to standard error. */
void ucx_mp_report(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* End the MPI. @return The program's exit code: UCX_MP_EXIT_WRONG or _OK. */
int ucx_mp_finish(int is_wrong);

/* Get this rank and the number of ranks in MPI_COMM_WORLD; messages print the
   rank from now on. */
void ucx_mp_get_rank(int *rank_p, int *size_p);

/* Parse a size such as "123", "64K", "2M", "1G" (powers of 1024), in bytes. An
   invalid text ends the program with a message naming `option`. */
size_t ucx_mp_parse_size(const char *option, const char *text);

#define UCX_MP_MAX_SIZES 64

typedef struct {
    size_t values[UCX_MP_MAX_SIZES]; /* bytes, in the order of the text */
    int    count;
} ucx_mp_sizes_t;

/* Parse a comma-separated list of SIZE and MIN:MAX (MIN doubled up to MAX),
   sizes from 1 byte to `max`. An invalid list ends the program. */
void ucx_mp_parse_sizes(const char *option, const char *text, size_t max,
                        ucx_mp_sizes_t *sizes);

/* Parse a whole number within [min, max]; others end the program. */
uint64_t ucx_mp_parse_number(const char *option, const char *text,
                             uint64_t min, uint64_t max);

/* Parse a number above 0 and up to 1000; others end the program. */
double ucx_mp_parse_factor(const char *option, const char *text);

/* Parse a number of seconds from 0 to 1000; others end the program. */
double ucx_mp_parse_seconds(const char *option, const char *text);

/* Return the index of `text` in the NULL-terminated `names`; another text ends
   the program. */
int ucx_mp_parse_choice(const char *option, const char *text,
                        const char *const *names);

typedef enum {
    UCX_MP_OPTION_FLAG,   /* without argument, sets an integer to 1 */
    UCX_MP_OPTION_NUMBER, /* whole number, of any integer type */
    UCX_MP_OPTION_SIZE,
    UCX_MP_OPTION_FACTOR,
    UCX_MP_OPTION_SECONDS,
    UCX_MP_OPTION_CHOICE, /* word; its index is stored in an int */
    UCX_MP_OPTION_TEXT
} ucx_mp_option_kind_t;

/* An option of a program, defined by the macros below */
typedef struct {
    const char           *name; /* without "--"; NULL ends the table */
    ucx_mp_option_kind_t kind;
    void                 *value;
    size_t               bytes; /* size of the integer `value` points to */
    int                  is_real;
    uint64_t             min;
    uint64_t             max;
    const char *const    *words;
    const char           *arg;  /* argument's name in --help */
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

/* Parse the command line and store the options' values. --help prints `what` (a
   description of the program) and the table, and ends the program; so does an
   invalid command line. */
void ucx_mp_parse_options(int argc, char **argv, const char *what,
                          const ucx_mp_option_t *options);

/* Return 64 well-mixed bits computed from `x`; equal on every machine. */
uint64_t ucx_mp_hash(uint64_t x);

/* Return 64 bits computed from three numbers likewise. */
uint64_t ucx_mp_hash3(uint64_t a, uint64_t b, uint64_t c);

/* Return the next number of the random sequence determined by `state`. */
uint64_t ucx_mp_random(uint64_t *state);

/* Return a random number in [0, n); n > 0. */
uint64_t ucx_mp_random_below(uint64_t *state, uint64_t n);

/* Return a random size from `min` to `max`, distributed log-uniformly. With
   `min` 0, one in 16 is 0. */
size_t ucx_mp_random_size(uint64_t *state, size_t min, size_t max);

/* Sort numbers, the smallest first. */
void ucx_mp_sort(double *values, size_t count);

/* Return seconds of CLOCK_MONOTONIC: modelled time on an emulated node, as that
   interposes the clock. */
double ucx_mp_time(void);

/* Return seconds of real time, also on an emulated node. */
double ucx_mp_real_time(void);

#endif
