/* SPDX-License-Identifier: BSD-3-Clause */

#define _GNU_SOURCE
#include "jacobi.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SIZE    ((uint64_t)1 << 40)
#define MAX_COLUMNS ((uint64_t)1 << 30)              /* a rank: MPI's counts */
#define MAX_ROWS    ((uint64_t)65535 * JACOBI_STRIP) /* ... a grid's height */
#define MAX_POINTS  ((uint64_t)1 << 40)              /* ... */

static const char usage[] =
    "Usage: mpirun -n RANKS jacobi [options]\n"
    "Laplace's equation on a grid by Jacobi's method, a GPU a rank. Top and\n"
    "bottom of the field are joined, so that ranks form a ring; left and\n"
    "right of it are given values. Neighbours get boundary rows by MPI\n"
    "messages from GPU memory to GPU memory: the MPI has to take GPU\n"
    "pointers, as any does under ucx_mp_run.\n\n"
    "  --row-size SIZE   bytes of a rank's boundary row, 4 a column (2M)\n"
    "  --rows N          rows of a rank (8)\n"
    "  --domain RxC      rows and columns of the whole field, instead of both\n"
    "  --grid RxC        ranks: rows and columns of them (RANKSx1)\n"
    "  --mode MODE       ordered: update, then one direction of the ring,\n"
    "                    then the other; overlapped: both at once, while the\n"
    "                    interior is updated (ordered)\n"
    "  --iterations N    at most (1000)\n"
    "  --untimed N       iterations at the beginning that no time shows (0)\n"
    "  --test-every N    iterations between tests for convergence (10)\n"
    "  --tolerance X     end when no point changes by more (0: never)\n"
    "  --allreduce WHERE memory of the tests' MPI_Allreduce: host, or gpu if\n"
    "                    the MPI reduces GPU memory (host)\n"
    "  --check           solve it on the host, too, and compare every bit\n"
    "  --json FILE       options, residuals, time of each iteration\n"
    "  --field FILE      the field at the end, .npy, up to 4096 columns of it\n"
    "  --quiet           no progress\n"
    "  --help            this text\n\n"
    "SIZE: bytes, or with K, M, G. Exit code: 0; 1 if --check found a\n"
    "difference or something failed; 2 if the options make no sense.\n";

static int complain(int rank, const char *fmt, ...)
        __attribute__((format(printf, 2, 3)));

static int complain(int rank, const char *fmt, ...)
{
    va_list args;

    if (rank == 0) {
        fprintf(stderr, "jacobi: ");
        va_start(args, fmt);
        vfprintf(stderr, fmt, args);
        va_end(args);
        fprintf(stderr, "\n");
    }
    return 0;
}

/* "123", and with `units` "64K", "2M", "1G"; 0: no such number above 0 */
static uint64_t number(const char *text, int units)
{
    unsigned long long value;
    unsigned shift = 0;
    char *end;

    if ((*text < '0') || (*text > '9')) {
        return 0;
    }

    value = strtoull(text, &end, 10);
    if (units && (*end != '\0')) {
        shift = (*end == 'K') ? 10 : (*end == 'M') ? 20 : (*end == 'G') ? 30 :
                                                                          0;
        end  += (shift > 0);
    }
    return ((*end != '\0') || (value > (MAX_SIZE >> shift))) ?
           0 : (value << shift);
}

/* "64x128" */
static int pair(const char *text, uint64_t values[2])
{
    char copy[64], *cross;

    snprintf(copy, sizeof(copy), "%s", text);
    cross = strchr(copy, 'x');
    if ((cross == NULL) || (strlen(text) >= sizeof(copy))) {
        return 0;
    }

    *cross    = '\0';
    values[0] = number(copy, 0);
    values[1] = number(cross + 1, 0);
    return (values[0] > 0) && (values[1] > 0);
}

static int set_number(int *value_p, const char *name, const char *text,
                      int zero_is_one, int rank)
{
    uint64_t value = number(text, 0);

    if ((value > 1000000000) ||
        ((value == 0) && !(zero_is_one && (strcmp(text, "0") == 0)))) {
        return complain(rank, "--%s: '%s' is no number from %d to 10^9", name,
                        text, !zero_is_one);
    }

    *value_p = (int)value;
    return 1;
}

/* Sizes of the field and the ranks' grid: do they fit each other? */
static int fits(jacobi_options_t *opts, uint64_t row_size, int rows,
                int rank, int num_ranks)
{
    uint64_t grid[2], own_rows, own_columns;

    if (num_ranks < 2) {
        return complain(rank, "one rank has no neighbour to exchange rows "
                        "with: start at least two (mpirun -n 4 jacobi)");
    }
    if (opts->grid[0] == 0) {
        opts->grid[0] = num_ranks;
        opts->grid[1] = 1;
    }

    grid[0] = (uint64_t)opts->grid[0];
    grid[1] = (uint64_t)opts->grid[1];
    if (grid[0] * grid[1] != (uint64_t)num_ranks) {
        return complain(rank, "--grid: %dx%d are %d ranks, but there are %d",
                        opts->grid[0], opts->grid[1],
                        opts->grid[0] * opts->grid[1], num_ranks);
    }
    if (grid[0] < 2) {
        return complain(rank, "--grid: a ring takes at least two rows of "
                        "ranks, not %d", opts->grid[0]);
    }

    if (opts->rows == 0) {
        if ((row_size % 16) != 0) {
            return complain(rank, "--row-size: %llu bytes are no multiple of "
                            "16, four columns of 4 bytes",
                            (unsigned long long)row_size);
        }
        opts->rows    = (uint64_t)rows * grid[0];
        opts->columns = row_size / 4 * grid[1];
    }
    if ((opts->rows % grid[0] != 0) || (opts->columns % grid[1] != 0)) {
        return complain(rank, "--domain: %llux%llu does not divide by %dx%d "
                        "ranks", (unsigned long long)opts->rows,
                        (unsigned long long)opts->columns, opts->grid[0],
                        opts->grid[1]);
    }

    own_rows    = opts->rows / grid[0];
    own_columns = opts->columns / grid[1];
    if (own_columns % 4 != 0) {
        return complain(rank, "--domain: %llu columns a rank are no multiple "
                        "of 4", (unsigned long long)own_columns);
    }
    if ((own_columns > MAX_COLUMNS) || (own_rows > MAX_ROWS) ||
        (own_columns * own_rows > MAX_POINTS)) {
        return complain(rank, "%llu rows of %llu columns a rank are too many: "
                        "at most %llu rows, 2^30 columns, 2^40 points",
                        (unsigned long long)own_rows,
                        (unsigned long long)own_columns,
                        (unsigned long long)MAX_ROWS);
    }
    return 1;
}

int jacobi_options_parse(jacobi_options_t *opts, int argc, char **argv,
                         int rank, int num_ranks, int *code)
{
    static const struct option names[] = {
        {"row-size", required_argument, NULL, 's'},
        {"rows", required_argument, NULL, 'r'},
        {"domain", required_argument, NULL, 'd'},
        {"grid", required_argument, NULL, 'g'},
        {"mode", required_argument, NULL, 'm'},
        {"iterations", required_argument, NULL, 'i'},
        {"untimed", required_argument, NULL, 'u'},
        {"test-every", required_argument, NULL, 'e'},
        {"tolerance", required_argument, NULL, 't'},
        {"allreduce", required_argument, NULL, 'a'},
        {"check", no_argument, NULL, 'c'},
        {"json", required_argument, NULL, 'j'},
        {"field", required_argument, NULL, 'f'},
        {"quiet", no_argument, NULL, 'q'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0}
    };
    uint64_t row_size = 2 << 20, values[2];
    int rows          = 8, good = 1, option, index = 0;
    char *end;

    memset(opts, 0, sizeof(*opts));
    opts->iterations = 1000;
    opts->test_every = 10;
    opterr           = (rank == 0);
    *code            = JACOBI_USAGE;
    while (good &&
           ((option = getopt_long(argc, argv, "h", names, &index)) != -1)) {
        switch (option) {
        case 's':
            row_size = number(optarg, 1);
            good     = (row_size > 0) ||
                       complain(rank, "--row-size: '%s' is no size (examples: "
                                "4096, 64K, 2M)", optarg);
            break;
        case 'r':
            good = set_number(&rows, "rows", optarg, 0, rank);
            break;
        case 'd':
            good = pair(optarg, values) ||
                   complain(rank, "--domain: '%s' is not as 64x4096, rows and "
                            "columns", optarg);
            if (good) {
                opts->rows    = values[0];
                opts->columns = values[1];
            }
            break;
        case 'g':
            good = (pair(optarg, values) && (values[0] <= 65536) &&
                    (values[1] <= 65536)) ||
                   complain(rank, "--grid: '%s' is not as 4x1, rows and "
                            "columns of ranks", optarg);
            if (good) {
                opts->grid[0] = (int)values[0];
                opts->grid[1] = (int)values[1];
            }
            break;
        case 'm':
            opts->mode = (strcmp(optarg, "overlapped") == 0) ?
                         JACOBI_OVERLAPPED : JACOBI_ORDERED;
            good       = (opts->mode == JACOBI_OVERLAPPED) ||
                         (strcmp(optarg, "ordered") == 0) ||
                         complain(rank, "--mode: '%s' is neither ordered nor "
                                  "overlapped", optarg);
            break;
        case 'i':
            good = set_number(&opts->iterations, "iterations", optarg, 0, rank);
            break;
        case 'u':
            good = set_number(&opts->untimed, "untimed", optarg, 1, rank);
            break;
        case 'e':
            good = set_number(&opts->test_every, "test-every", optarg, 0, rank);
            break;
        case 't':
            opts->tolerance = strtod(optarg, &end);
            good            = ((*end == '\0') && (end != optarg) &&
                               (opts->tolerance >= 0)) ||
                              complain(rank, "--tolerance: '%s' is no number "
                                       "from 0 on", optarg);
            break;
        case 'a':
            opts->reduce_on_gpu = (strcmp(optarg, "gpu") == 0);
            good                = opts->reduce_on_gpu ||
                                  (strcmp(optarg, "host") == 0) ||
                                  complain(rank, "--allreduce: '%s' is neither "
                                           "host nor gpu", optarg);
            break;
        case 'c':
            opts->check = 1;
            break;
        case 'j':
            opts->json = optarg;
            break;
        case 'f':
            opts->field = optarg;
            break;
        case 'q':
            opts->quiet = 1;
            break;
        case 'h':
            if (rank == 0) {
                printf("%s", usage);
            }
            *code = JACOBI_OK;
            return 0;
        default:
            good = complain(rank, "see --help");
            break;
        }
    }

    if (good && (optind < argc)) {
        good = complain(rank, "'%s' is no option; see --help", argv[optind]);
    }
    if (good && (opts->untimed >= opts->iterations)) {
        good = complain(rank, "--untimed: with %d iterations of %d nothing is "
                        "left to be timed", opts->untimed, opts->iterations);
    }
    return good && fits(opts, row_size, rows, rank, num_ranks);
}
