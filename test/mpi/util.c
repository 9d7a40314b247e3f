/* SPDX-License-Identifier: BSD-3-Clause */

/* Utilities of the MPI programs. */
#define _GNU_SOURCE
#include "util.h"

#include <mpi.h>

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

const char *ucx_mp_program = "ucx_mp";

static int ucx_mp_rank = -1;

void ucx_mp_get_rank(int *rank_p, int *size_p)
{
    MPI_Comm_rank(MPI_COMM_WORLD, rank_p);
    MPI_Comm_size(MPI_COMM_WORLD, size_p);
    ucx_mp_rank = *rank_p;
}

int ucx_mp_finish(int is_wrong)
{
    MPI_Finalize();
    return is_wrong ? UCX_MP_EXIT_WRONG : UCX_MP_EXIT_OK;
}

static void report(const char *fmt, va_list ap)
{
    char text[1024];

    vsnprintf(text, sizeof(text), fmt, ap);
    fflush(stdout);
    if (ucx_mp_rank >= 0) {
        fprintf(stderr, "%s: rank %d: %s\n", ucx_mp_program, ucx_mp_rank, text);
    } else {
        fprintf(stderr, "%s: %s\n", ucx_mp_program, text);
    }
    fflush(stderr);
}

void ucx_mp_report(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    report(fmt, ap);
    va_end(ap);
}

void ucx_mp_die(int code, const char *fmt, ...)
{
    int initialized, finalized;
    va_list ap;

    va_start(ap, fmt);
    report(fmt, ap);
    va_end(ap);
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (initialized && !finalized) {
        MPI_Abort(MPI_COMM_WORLD, code);
    }
    exit(code);
}

size_t ucx_mp_parse_size(const char *option, const char *text)
{
    unsigned long long value;
    int shift = 0;
    char *end;

    errno = 0;
    value = strtoull(text, &end, 10);
    switch (*end) {
    case 'k':
    case 'K':
        shift = 10;
        break;
    case 'm':
    case 'M':
        shift = 20;
        break;
    case 'g':
    case 'G':
        shift = 30;
        break;
    }
    if (shift != 0) {
        end++;
    }
    if ((text[0] < '0') || (text[0] > '9') || (*end != '\0') || (errno != 0) ||
        (value > ((uint64_t)1 << 40 >> shift))) {
        ucx_mp_die(UCX_MP_EXIT_USAGE,
                   "%s: '%s' is not a size (examples: 0, 4096, 64K, 256M, 1G;"
                   " at most 1024G)", option, text);
    }
    return (size_t)value << shift;
}

static size_t ucx_mp_parse_size_up_to(const char *option, const char *word,
                                      size_t max)
{
    size_t size = ucx_mp_parse_size(option, word);

    if ((size < 1) || (size > max)) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "%s: '%s': from 1 byte to %zu MiB",
                   option, word, max >> 20);
    }
    return size;
}

void ucx_mp_parse_sizes(const char *option, const char *text, size_t max,
                        ucx_mp_sizes_t *sizes)
{
    char *copy = strdup(text);
    char *word, *rest, *colon;
    size_t size, last;

    sizes->count = 0;
    for (rest = copy; (word = strsep(&rest, ",")) != NULL;) {
        colon = strchr(word, ':');
        if (colon != NULL) {
            *colon++ = '\0';
        }
        size = ucx_mp_parse_size_up_to(option, word, max);
        last = (colon == NULL) ? size :
                                 ucx_mp_parse_size_up_to(option, colon, max);
        if (size > last) {
            ucx_mp_die(UCX_MP_EXIT_USAGE,
                       "%s: '%s': MIN:MAX with MIN above MAX", option, text);
        }
        for (; size <= last; size *= 2) {
            if (sizes->count == UCX_MP_MAX_SIZES) {
                ucx_mp_die(UCX_MP_EXIT_USAGE, "%s: '%s': more than %d sizes",
                           option, text, UCX_MP_MAX_SIZES);
            }
            sizes->values[sizes->count++] = size;
        }
    }
    free(copy);
}

uint64_t ucx_mp_parse_number(const char *option, const char *text,
                             uint64_t min, uint64_t max)
{
    unsigned long long value;
    char *end;

    errno = 0;
    value = strtoull(text, &end, 10);
    if ((text[0] < '0') || (text[0] > '9') || (*end != '\0') || (errno != 0) ||
        (value < min) || (value > max)) {
        ucx_mp_die(UCX_MP_EXIT_USAGE,
                   "%s: '%s' is not a whole number from %llu to %llu", option,
                   text, (unsigned long long)min, (unsigned long long)max);
    }
    return value;
}

/* Return the number in `text`, up to 1000; below 0 if it is none. */
static double parse_real(const char *text)
{
    char *end;
    double value = strtod(text, &end);

    return ((end == text) || (*end != '\0') || !(value <= 1000)) ? -1 : value;
}

double ucx_mp_parse_factor(const char *option, const char *text)
{
    double value = parse_real(text);

    if (!(value > 0)) {
        ucx_mp_die(UCX_MP_EXIT_USAGE,
                   "%s: '%s' is not a factor above 0 and up to 1000", option,
                   text);
    }
    return value;
}

double ucx_mp_parse_seconds(const char *option, const char *text)
{
    double value = parse_real(text);

    if (!(value >= 0)) {
        ucx_mp_die(UCX_MP_EXIT_USAGE,
                   "%s: '%s' is not a number of seconds up to 1000", option,
                   text);
    }
    return value;
}

int ucx_mp_parse_choice(const char *option, const char *text,
                        const char *const *names)
{
    char list[256] = "";
    int i;

    for (i = 0; names[i] != NULL; ++i) {
        if (!strcmp(names[i], text)) {
            return i;
        }
        snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s",
                 (i == 0) ? "" : ", ", names[i]);
    }
    ucx_mp_die(UCX_MP_EXIT_USAGE, "%s: '%s' is none of: %s", option, text,
               list);
}

static void options_help(const char *what, const ucx_mp_option_t *options)
{
    int is_initialized, i;
    char name[64];

    if (ucx_mp_rank <= 0) {
        printf("usage: %s [options]        (under mpirun)\n%s\n\n",
               ucx_mp_program, what);
        for (; options->name != NULL; ++options) {
            snprintf(name, sizeof(name), "--%s %s", options->name,
                     options->arg);
            printf("  %-22s %s", name, options->help);
            for (i = 0; (options->words != NULL) && (options->words[i] != NULL);
                 ++i) {
                printf("%s%s", (i > 0) ? ", " : " (", options->words[i]);
            }
            printf("%s\n", (i > 0) ? ")" : "");
        }
        printf("  %-22s %s\n", "--help", "this text");
    }

    MPI_Initialized(&is_initialized);
    if (is_initialized) {
        MPI_Finalize();
    }
    exit(UCX_MP_EXIT_OK);
}

static void option_store(const ucx_mp_option_t *option, uint64_t number)
{
    if (option->is_real) {
        *(double*)option->value = (double)number;
    } else if (option->bytes == sizeof(uint8_t)) { /* also a bool */
        *(uint8_t*)option->value = (uint8_t)number;
    } else if (option->bytes == sizeof(uint32_t)) {
        *(uint32_t*)option->value = (uint32_t)number;
    } else {
        *(uint64_t*)option->value = number;
    }
}

static void option_set(const ucx_mp_option_t *option, const char *text)
{
    char name[64];
    size_t size;

    snprintf(name, sizeof(name), "--%s", option->name);
    switch (option->kind) {
    case UCX_MP_OPTION_FLAG:
        option_store(option, 1);
        break;
    case UCX_MP_OPTION_NUMBER:
        option_store(option, ucx_mp_parse_number(name, text, option->min,
                                                 option->max));
        break;
    case UCX_MP_OPTION_SIZE:
        size = ucx_mp_parse_size(name, text);
        if ((size < option->min) || (size > option->max)) {
            ucx_mp_die(UCX_MP_EXIT_USAGE, "%s: %s is not within %llu and %llu "
                       "bytes", name, text, (unsigned long long)option->min,
                       (unsigned long long)option->max);
        }
        option_store(option, size);
        break;
    case UCX_MP_OPTION_FACTOR:
        *(double*)option->value = ucx_mp_parse_factor(name, text);
        break;
    case UCX_MP_OPTION_SECONDS:
        *(double*)option->value = ucx_mp_parse_seconds(name, text);
        break;
    case UCX_MP_OPTION_CHOICE:
        *(int*)option->value = ucx_mp_parse_choice(name, text, option->words);
        break;
    case UCX_MP_OPTION_TEXT:
        *(const char**)option->value = text;
        break;
    }
}

void ucx_mp_parse_options(int argc, char **argv, const char *what,
                          const ucx_mp_option_t *options)
{
    const ucx_mp_option_t *option;
    int i;

    for (i = 1; i < argc; ++i) {
        if ((strcmp(argv[i], "--help") == 0) || (strcmp(argv[i], "-h") == 0)) {
            options_help(what, options);
        }

        for (option = options;
             (option->name != NULL) &&
             ((strncmp(argv[i], "--", 2) != 0) ||
              (strcmp(argv[i] + 2, option->name) != 0));
             ++option) {
        }

        if (option->name == NULL) {
            ucx_mp_die(UCX_MP_EXIT_USAGE, "'%s' is not an option; see --help",
                       argv[i]);
        }

        if ((option->kind != UCX_MP_OPTION_FLAG) && (++i == argc)) {
            ucx_mp_die(UCX_MP_EXIT_USAGE, "--%s needs an argument",
                       option->name);
        }
        option_set(option, argv[i]);
    }
}

uint64_t ucx_mp_hash(uint64_t x)
{
    /* splitmix64's finalizer */
    x += 0x9e3779b97f4a7c15ull;
    x  = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x  = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

uint64_t ucx_mp_hash3(uint64_t a, uint64_t b, uint64_t c)
{
    return ucx_mp_hash(ucx_mp_hash(ucx_mp_hash(a) ^ b) ^ c);
}

uint64_t ucx_mp_random(uint64_t *state)
{
    return ucx_mp_hash((*state)++);
}

uint64_t ucx_mp_random_below(uint64_t *state, uint64_t n)
{
    return (uint64_t)(((__uint128_t)ucx_mp_random(state) * n) >> 64);
}

size_t ucx_mp_random_size(uint64_t *state, size_t min, size_t max)
{
    uint64_t zero = ucx_mp_random_below(state, 16);
    double u      = ucx_mp_random(state) / 18446744073709551616.0;
    double size;

    if (min >= max) {
        return max;
    }
    if ((min == 0) && (zero == 0)) {
        return 0;
    }
    size = (min + 1.0) * exp2(u * log2((max + 1.0) / (min + 1.0))) - 1;
    return (size >= max) ? max : (size < min) ? min : (size_t)size;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double*)a, y = *(const double*)b;

    return (x > y) - (x < y);
}

void ucx_mp_sort(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), compare);
}

double ucx_mp_time(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec + (ts.tv_nsec * 1e-9);
}

double ucx_mp_real_time(void)
{
    struct timespec ts;

    /* the system call cannot be interposed */
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &ts);
    return ts.tv_sec + (ts.tv_nsec * 1e-9);
}
