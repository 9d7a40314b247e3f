/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Measure bandwidth and latency between MPI ranks, as the OSU micro-benchmarks
 * do: one buffer per side, windows of nonblocking messages, a 4-byte answer
 * from the same kind of memory after each window. Two ranks; or an even number
 * as pairs, each alone (0 with 1, 2 with 3); or three and more as a ring, in
 * which every rank sends to the next one. The result is the median of all
 * samples. On an emulated node times are modelled, and other programs on the
 * machine do not affect them.
 */
#define _GNU_SOURCE
#include "gpu.h"
#include "pattern.h"
#include "util.h"

#include <mpi.h>

#include <getopt.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BW_MAX_REPEATS 100
#define BW_ANSWER_SIZE 4
#define BW_LARGE       ((size_t)8 << 20) /* from this size on fewer
                                            iterations */
#define BW_WARM_UP     32     /* least number of messages: the module prepares
                                 resources during the first few, the host path
                                 after 16 */
#define BW_WARM_TIME   0.6    /* seconds, on GPUs: a thread of the module opens
                                 the host path within 0.17 to 0.3 s of the first
                                 messages */
#define BW_MAX_LIST    8      /* maximum of benchmarks, or windows, per run */
#define BW_MAX_MESSAGE ((size_t)1 << 30)

enum { BENCH_BW, BENCH_BIBW, BENCH_LATENCY, BENCH_RING };

static const char *const bw_benchmarks[] = {"bw", "bibw", "latency", "ring",
                                            NULL};

/* Order of ucx_mp_mem_t: D and H as in OSU, then page-locked and managed */
static const char *const bw_sides[] = {"D", "H", "P", "M", NULL};

typedef struct {
    int          benchmarks[BW_MAX_LIST];
    int          num_benchmarks;
    int          windows[BW_MAX_LIST];
    int          num_windows;
    int          benchmark;  /* the running one */
    int          window;
    ucx_mp_sizes_t sizes;
    ucx_mp_sizes_t latency_sizes;
    size_t       max_size;   /* largest of both lists: size of a buffer */
    size_t       max_flight; /* limit of a window, bytes; 0: none */
    double       time;       /* limit of a sample, seconds; 0: none */
    int          iterations; /* 0: by size */
    int          warmup;     /* -1: by size */
    double       warm_time;  /* seconds per benchmark and window; -1: 0.6 on
                                GPUs */
    double       effort;     /* factor on the default iterations */
    int          repeats;
    int          validate;
    int          fresh;      /* allocate host memory anew for each window */
    const char  *json;
    ucx_mp_mem_t mem[2];     /* memory of even and of odd ranks */
} bw_options_t;

/* Results of one size */
typedef struct {
    double samples[BW_MAX_REPEATS];  /* seconds of an iteration, ascending */
    double evenness[BW_MAX_REPEATS]; /* time of the fastest pair, divided by the
                                        slowest pair's */
    int    count;
    int    iterations;
    int    valid;
} bw_result_t;

static struct {
    bw_options_t opts;
    int          rank;
    int          num_ranks;
    int          to;          /* receiver of this rank's messages */
    int          from;        /* sender of this rank's messages */
    int          side;        /* position in its pair, 0 or 1 */
    int          emulated;
    ucx_mp_mem_t mem;         /* this rank's kind of memory */
    uint8_t     *send_buf;
    uint8_t     *recv_buf;
    size_t       stride;      /* bytes between messages of a window */
    size_t       room;        /* bytes for these messages; the answer follows
                                 them */
    double       evenness;    /* evenness of the last sample */
    MPI_Request *requests;
    FILE        *json;
} bw;

static void bw_usage(void)
{
    printf("Usage: ucx_mp_bw [options] [SIDE SIDE]    (under mpirun -n 2, 4, "
           "...)\n"
           "Measures bandwidth or latency between pairs of ranks, as the OSU "
           "benchmarks do.\nWith more than one pair, bandwidth is that of all "
           "pairs together, and latency\nthat of the first pair.\n\n"
           "SIDE: memory of even and odd ranks: D device, H host, P "
           "page-locked host,\n      M managed (default: D D, or H H without a "
           "GPU)\n\n"
           "  --benchmark B    bw, bibw, latency, or ring (every rank sends to "
           "the next);\n                   several with commas (default: bw)\n"
           "  --sizes LIST     SIZE or MIN:MAX (powers of two between them); "
           "several with\n                   commas (default: 1M:256M; latency "
           "8:1M)\n"
           "  --latency-sizes LIST\n"
           "                   sizes of latency, if other than --sizes\n"
           "  --max-flight SIZE\n"
           "                   skip sizes of which a window has more bytes\n"
           "  --window N       messages in flight; several with commas "
           "(default: 1)\n"
           "  --iterations N   windows of a sample (default: 10 to 100, by "
           "size)\n"
           "  --warmup N       windows before the first sample (default: by "
           "size)\n"
           "  --warmup-time SECONDS\n"
           "                   time of messages of the largest size, before "
           "the first size\n                   (default: 0.6; none with "
           "--warmup, --fresh, or emulated)\n"
           "  --effort F       multiply the default iterations and warm-up by "
           "F\n"
           "  --time SECONDS   fewer iterations if a sample would take "
           "longer\n"
           "  --repeats N      samples of each size; prints median, minimum "
           "and maximum\n                   (default: 5)\n"
           "  --validate       compare every byte at the end of each size\n"
           "  --fresh          use new host buffers for every window, one for "
           "each message,\n                   written once before the time "
           "starts; one window a sample\n"
           "  --json FILE      write a JSON object for each size, one a line; "
           "- is standard\n                   output\n"
           "  --help           print this text\n\n"
           "With several pairs, the column \"even\" has the time of the "
           "fastest pair, divided\nby that of the slowest one.\n"
           "GB/s are 10^9 bytes a second.\n");
}

static ucx_mp_mem_t bw_parse_side(const char *text)
{
    return ucx_mp_parse_choice("SIDE", text, bw_sides);
}

/* Parse each word of a comma-separated list by `parse`, into `values`. Return
   their number. */
static int bw_parse_list(const char *name, const char *text,
                         int (*parse)(const char *word), int *values)
{
    char *copy = strdup(text);
    int count  = 0;
    char *word, *rest;

    for (rest = copy; (word = strsep(&rest, ",")) != NULL; ++count) {
        if (count == BW_MAX_LIST) {
            ucx_mp_die(UCX_MP_EXIT_USAGE, "%s: '%s' has more than %d values",
                       name, text, BW_MAX_LIST);
        }
        values[count] = parse(word);
    }
    free(copy);
    return count;
}

static int bw_parse_benchmark(const char *word)
{
    return ucx_mp_parse_choice("--benchmark", word, bw_benchmarks);
}

static int bw_parse_window(const char *word)
{
    return ucx_mp_parse_number("--window", word, 1, 4096);
}

static int bw_only_latency(void)
{
    return (bw.opts.num_benchmarks == 1) &&
           (bw.opts.benchmarks[0] == BENCH_LATENCY);
}

static void bw_parse_sizes(const char *name, const char *text,
                           ucx_mp_sizes_t *sizes)
{
    int i;

    ucx_mp_parse_sizes(name, text, BW_MAX_MESSAGE, sizes);
    for (i = 0; i < sizes->count; ++i) {
        if (bw.opts.max_size < sizes->values[i]) {
            bw.opts.max_size = sizes->values[i];
        }
    }
}

static void bw_parse(int argc, char **argv)
{
    static const struct option longopts[] = {
        {"benchmark", required_argument, NULL, 'b'},
        {"sizes", required_argument, NULL, 's'},
        {"latency-sizes", required_argument, NULL, 'l'},
        {"max-flight", required_argument, NULL, 'm'},
        {"time", required_argument, NULL, 't'},
        {"window", required_argument, NULL, 'w'},
        {"iterations", required_argument, NULL, 'i'},
        {"warmup", required_argument, NULL, 'x'},
        {"warmup-time", required_argument, NULL, 'y'},
        {"repeats", required_argument, NULL, 'r'},
        {"effort", required_argument, NULL, 'e'},
        {"validate", no_argument, NULL, 'v'},
        {"fresh", no_argument, NULL, 'f'},
        {"json", required_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0}};
    const char *sizes         = NULL;
    const char *latency_sizes = NULL;
    bw_options_t *o           = &bw.opts;
    int c;

    *o = (bw_options_t){.benchmarks     = {BENCH_BW},
                        .num_benchmarks = 1,
                        .windows        = {1},
                        .num_windows    = 1,
                        .warmup         = -1,
                        .warm_time      = -1,
                        .effort         = 1.0,
                        .repeats        = 5,
                        .mem = {UCX_MP_MEM_LAST, UCX_MP_MEM_LAST}};
    while ((c = getopt_long(argc, argv, "h", longopts, NULL)) != -1) {
        switch (c) {
        case 'b':
            o->num_benchmarks = bw_parse_list("--benchmark", optarg,
                                              bw_parse_benchmark,
                                              o->benchmarks);
            break;
        case 's':
            sizes = optarg;
            break;
        case 'l':
            latency_sizes = optarg;
            break;
        case 'm':
            o->max_flight = ucx_mp_parse_size("--max-flight", optarg);
            break;
        case 't':
            o->time = ucx_mp_parse_factor("--time", optarg);
            break;
        case 'w':
            o->num_windows = bw_parse_list("--window", optarg,
                                           bw_parse_window, o->windows);
            break;
        case 'i':
            o->iterations = ucx_mp_parse_number("--iterations", optarg, 1,
                                                1000000);
            break;
        case 'x':
            o->warmup = ucx_mp_parse_number("--warmup", optarg, 0, 1000000);
            break;
        case 'y':
            o->warm_time = ucx_mp_parse_seconds("--warmup-time", optarg);
            break;
        case 'r':
            o->repeats = ucx_mp_parse_number("--repeats", optarg, 1,
                                             BW_MAX_REPEATS);
            break;
        case 'e':
            o->effort = ucx_mp_parse_factor("--effort", optarg);
            break;
        case 'v':
            o->validate = 1;
            break;
        case 'f':
            o->fresh = 1;
            break;
        case 'j':
            o->json = optarg;
            break;
        case 'h':
            bw_usage();
            exit(UCX_MP_EXIT_OK);
        default:
            exit(UCX_MP_EXIT_USAGE); /* getopt has printed the reason */
        }
    }

    if (o->fresh && o->validate) {
        ucx_mp_die(UCX_MP_EXIT_USAGE,
                   "--fresh and --validate do not go together");
    }

    if (sizes == NULL) {
        sizes = bw_only_latency() ? "8:1M" : "1M:256M";
    }
    bw_parse_sizes("--sizes", sizes, &o->sizes);
    bw_parse_sizes("--latency-sizes",
                   (latency_sizes == NULL) ? sizes : latency_sizes,
                   &o->latency_sizes);

    if (argc - optind == 2) {
        o->mem[0] = bw_parse_side(argv[optind]);
        o->mem[1] = bw_parse_side(argv[optind + 1]);
    } else if (argc != optind) {
        ucx_mp_die(UCX_MP_EXIT_USAGE,
                   "expected two SIDEs (such as D D) after the options");
    }
}

/* ---------------------------------------------------------------- transfers */

static int bw_sends(void)
{
    return (bw.side == 0) || (bw.opts.benchmark == BENCH_BIBW) ||
           (bw.opts.benchmark == BENCH_RING);
}

static int bw_receives(void)
{
    return (bw.side == 1) || (bw.opts.benchmark != BENCH_BW);
}

static void bw_window(size_t size)
{
    int n = 0, i;

    for (i = 0; (i < bw.opts.window) && bw_receives(); ++i) {
        MPI_Irecv(bw.recv_buf + (i * bw.stride), size, MPI_BYTE, bw.from, 1,
                  MPI_COMM_WORLD, &bw.requests[n++]);
    }
    for (i = 0; (i < bw.opts.window) && bw_sends(); ++i) {
        MPI_Isend(bw.send_buf + (i * bw.stride), size, MPI_BYTE, bw.to, 1,
                  MPI_COMM_WORLD, &bw.requests[n++]);
    }
    MPI_Waitall(n, bw.requests, MPI_STATUSES_IGNORE);

    /* in a ring the answer goes to the sender, this rank's predecessor */
    if (bw.opts.benchmark == BENCH_RING) {
        MPI_Sendrecv(bw.send_buf + bw.room, BW_ANSWER_SIZE, MPI_BYTE,
                     bw.from, 2, bw.recv_buf + bw.room,
                     BW_ANSWER_SIZE, MPI_BYTE, bw.to, 2, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
    } else if (bw.side == 0) {
        MPI_Recv(bw.recv_buf + bw.room, BW_ANSWER_SIZE, MPI_BYTE,
                 bw.to, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Send(bw.send_buf + bw.room, BW_ANSWER_SIZE, MPI_BYTE,
                 bw.to, 2, MPI_COMM_WORLD);
    }
}

static void bw_pingpong(size_t size)
{
    if (bw.side == 0) {
        MPI_Send(bw.send_buf, size, MPI_BYTE, bw.to, 1, MPI_COMM_WORLD);
        MPI_Recv(bw.recv_buf, size, MPI_BYTE, bw.to, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(bw.recv_buf, size, MPI_BYTE, bw.to, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
        MPI_Send(bw.send_buf, size, MPI_BYTE, bw.to, 1, MPI_COMM_WORLD);
    }
}

/* Return the minimum of all ranks' values. */
static double bw_least(double value)
{
    double least;

    MPI_Allreduce(&value, &least, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
    return least;
}

static uint8_t *bw_alloc(int value)
{
    uint8_t *buffer = ucx_mp_mem_alloc(bw.mem, bw.room + BW_ANSWER_SIZE);

    ucx_mp_mem_set(bw.mem, buffer, value, bw.room + BW_ANSWER_SIZE);
    return buffer;
}

static void bw_alloc_buffers(size_t room)
{
    bw.room     = room;
    bw.send_buf = bw_alloc(1);
    bw.recv_buf = bw_alloc(2);
}

static void bw_free_buffers(void)
{
    ucx_mp_mem_free(bw.mem, bw.recv_buf);
    ucx_mp_mem_free(bw.mem, bw.send_buf);
}

/* With --fresh, replace host buffers by new ones, not used by any message. */
static void bw_renew(size_t size)
{
    if (bw.opts.fresh && (bw.mem == UCX_MP_MEM_HOST)) {
        bw_free_buffers();
        bw.stride = size;
        bw_alloc_buffers(size * bw.opts.window);
    }
}

/* Return the seconds of one iteration, averaged over `count`; of the slowest
   rank if there are more than two. */
static double bw_iterate(size_t size, int count)
{
    double start, seconds, least;
    int i;

    bw_renew(size);
    MPI_Barrier(MPI_COMM_WORLD);
    start = ucx_mp_time();
    for (i = 0; i < count; ++i) {
        if (bw.opts.benchmark == BENCH_LATENCY) {
            bw_pingpong(size);
        } else {
            bw_window(size);
        }
    }
    seconds = (ucx_mp_time() - start) / count;
    if (bw.num_ranks > 2) {
        least = bw_least(seconds);
        MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX,
                      MPI_COMM_WORLD);
        bw.evenness = least / seconds;
    }
    return seconds;
}

/* -------------------------------------------------------------- measurement */

static uint64_t bw_seed(size_t size, int round, int sender)
{
    return ucx_mp_hash((size << 16) + (round << 12) + sender);
}

static uint8_t bw_poison(int round)
{
    return 0x5a + round;
}

static void bw_fill(size_t size, int round)
{
    ucx_mp_pattern_fill(bw.mem, bw.send_buf, size,
                        bw_seed(size, round, bw.rank));
    ucx_mp_mem_set(bw.mem, bw.recv_buf, bw_poison(round), size);
}

/* Return non-zero if all ranks received the right bytes; otherwise print an
   error. */
static int bw_check(size_t size, int round)
{
    int wrong = bw_receives() &&
                ucx_mp_pattern_is_wrong(bw.mem, bw.recv_buf, size,
                                        bw_seed(size, round, bw.from),
                                        bw_poison(round), "message");
    int any;

    MPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return !any;
}

static int bw_default_iterations(size_t size)
{
    int count = (bw.opts.benchmark == BENCH_LATENCY) ? 200 : 100;

    if (size >= BW_LARGE) {
        count /= 10;
    }
    count *= bw.opts.effort;
    return (count > 0) ? count : 1;
}

static void bw_take_samples(size_t size, bw_result_t *result)
{
    double seconds;

    while (result->count < bw.opts.repeats) {
        seconds = bw_iterate(size, result->iterations);
        /* all ranks use rank 0's time */
        MPI_Bcast(&seconds, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        result->evenness[result->count]  = bw.evenness;
        result->samples[result->count++] = seconds;
    }
    ucx_mp_sort(result->samples, result->count);
    ucx_mp_sort(result->evenness, result->count);
}

/* Return non-zero if a size is measured with this window. */
static int bw_is_wanted(size_t size)
{
    return (bw.opts.max_flight == 0) ||
           (size * bw.opts.window <= bw.opts.max_flight);
}

/* Return the iterations that fit into the time of a sample, by the best of
   three: one-time work is done when a buffer is used for the first or second
   time. */
static int bw_limit_iterations(size_t size, int iterations)
{
    double seconds = bw_iterate(size, 1);
    double other;
    int i;

    for (i = 1; i < 3; ++i) {
        other   = bw_iterate(size, 1);
        seconds = (other < seconds) ? other : seconds;
    }
    MPI_Bcast(&seconds, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (seconds * iterations > bw.opts.time) {
        iterations = bw.opts.time / seconds;
    }
    return (iterations > 0) ? iterations : 1;
}

/* Return the windows before the first sample: `tenth`, a tenth of a sample's,
   but at least BW_WARM_UP messages. */
static int bw_warmup(int tenth)
{
    int least = (BW_WARM_UP + bw.opts.window - 1) / bw.opts.window;

    return (bw.opts.warmup >= 0) ? bw.opts.warmup :
           (tenth > least)       ? tenth :
                                   least;
}

/* Send messages before the first size: a user's program runs longer than a
   sample, so for most of its time the module has prepared all its resources. */
static void bw_warm_up(const ucx_mp_sizes_t *sizes)
{
    const bw_options_t *o = &bw.opts;
    double left           = o->warm_time;
    size_t largest        = 0;
    int i;

    if (left < 0) {
        left = (bw.emulated || o->fresh || (o->warmup >= 0)) ? 0 : BW_WARM_TIME;
    }
    for (i = 0; i < sizes->count; ++i) {
        if (bw_is_wanted(sizes->values[i]) && (sizes->values[i] > largest)) {
            largest = sizes->values[i];
        }
    }
    while ((left > 0) && (largest > 0)) {
        left -= bw_iterate(largest, 1);
        MPI_Bcast(&left, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    }
}

static void bw_measure(size_t size, bw_result_t *result)
{
    const bw_options_t *o = &bw.opts;
    int warmup;

    memset(result, 0, sizeof(*result));
    result->iterations = o->iterations ? o->iterations :
                                         bw_default_iterations(size);
    warmup = bw_warmup((result->iterations + 9) / 10);
    if (o->fresh) {
        result->iterations = 1;
    }

    result->valid = 1;
    if (o->validate) {
        bw_fill(size, 0);
    }
    if ((o->time > 0) && !o->fresh) {
        result->iterations = bw_limit_iterations(size, result->iterations);
        /* these iterations have warmed up */
        warmup = bw_warmup(result->iterations / 10);
    }
    if ((warmup > 0) && !o->fresh) {
        bw_iterate(size, warmup);
    }
    for (; (warmup > 0) && o->fresh; --warmup) {
        bw_iterate(size, 1);
    }
    bw_take_samples(size, result);

    if (o->validate) {
        /* the timed iterations all carried the same message; one more, with
           other bytes, detects a stale buffer */
        result->valid = bw_check(size, 0);
        MPI_Barrier(MPI_COMM_WORLD);
        bw_fill(size, 1);
        bw_iterate(size, 1);
        result->valid = bw_check(size, 1) && result->valid;
    }
}

/* ------------------------------------------------------------------- output */

static double bw_value(size_t size, double seconds)
{
    const bw_options_t *o = &bw.opts;

    switch (o->benchmark) {
    case BENCH_LATENCY:
        return seconds * 0.5e6;
    case BENCH_BIBW:
    case BENCH_RING:
        return 1e-9 * size * o->window * bw.num_ranks / seconds;
    default:
        return 0.5e-9 * size * o->window * bw.num_ranks / seconds;
    }
}

static void bw_print_head(void)
{
    const bw_options_t *o = &bw.opts;

    printf("# ucx_mp_bw %s %s %s, %d ranks, window %d, %s%s%s\n",
           bw_benchmarks[o->benchmark], bw_sides[o->mem[0]],
           bw_sides[o->mem[1]], bw.num_ranks, o->window,
           bw.emulated ? "modelled (emulated node)" : "measured",
           o->validate ? ", validated" : "",
           o->fresh ? ", fresh host memory" : "");
    printf("%12s %12s %12s %12s%s%s\n", "bytes",
           (o->benchmark == BENCH_LATENCY) ? "us" : "GB/s", "min", "max",
           (bw.num_ranks > 2) ? "     even" : "",
           o->validate ? "  bytes" : "");
    fflush(stdout);
}

/* Return the median of ascending values. */
static double bw_median(const double *values, int count)
{
    int middle = count / 2;

    return (count % 2) ? values[middle] :
                         (values[middle] + values[middle - 1]) / 2;
}

static void bw_print(size_t size, const bw_result_t *result)
{
    const bw_options_t *o = &bw.opts;
    int latency           = (o->benchmark == BENCH_LATENCY);
    double median         = bw_value(size, bw_median(result->samples,
                                                     result->count));
    double even           = (bw.num_ranks > 2) ?
                                    bw_median(result->evenness,
                                              result->count) :
                                    1;
    char evenness[16]     = "";
    double low, high, swap;
    int i;

    if (bw.num_ranks > 2) {
        snprintf(evenness, sizeof(evenness), " %8.3f", even);
    }
    low    = bw_value(size, result->samples[0]);
    high   = bw_value(size, result->samples[result->count - 1]);
    if (low > high) {
        swap = low;
        low  = high;
        high = swap;
    }

    if (bw.json != NULL) {
        fprintf(bw.json,
                "{\"benchmark\": \"%s\", \"memory\": \"%s %s\", "
                "\"ranks\": %d, \"size\": %zu, \"window\": %d, "
                "\"iterations\": %d, \"repeats\": %d, "
                "\"%s\": %.6g, \"median\": %.6g, \"min\": %.6g, "
                "\"max\": %.6g, \"even\": %.4g, \"fresh\": %s, "
                "\"validated\": %s, \"modelled\": %s, "
                "\"samples\": [",
                bw_benchmarks[o->benchmark], bw_sides[o->mem[0]],
                bw_sides[o->mem[1]], bw.num_ranks, size, o->window,
                result->iterations,
                result->count, latency ? "usec" : "gbps", median, median, low,
                high, even, o->fresh ? "true" : "false",
                (o->validate && result->valid) ? "true" : "false",
                bw.emulated ? "true" : "false");
        for (i = 0; i < result->count; ++i) {
            fprintf(bw.json, "%s%.6g", (i > 0) ? ", " : "",
                    bw_value(size, result->samples[i]));
        }
        fprintf(bw.json, "]}\n");
        fflush(bw.json);
    }
    if (bw.json != stdout) {
        printf("%12zu %12.2f %12.2f %12.2f%s%s\n", size, median, low, high,
               evenness,
               !o->validate  ? "" :
               result->valid ? "  right" :
                               "  WRONG");
        fflush(stdout);
    }
}

/* --------------------------------------------------------------------- main */

static void bw_prepare(void)
{
    bw_options_t *o = &bw.opts;
    char why[256]   = "";
    int max_window  = 1;
    int count       = 0;
    int i;

    /* with host memory only, do not open the driver */
    if ((o->mem[0] != UCX_MP_MEM_HOST) || (o->mem[1] != UCX_MP_MEM_HOST)) {
        count = ucx_mp_gpu_init(ucx_mp_gpu_local_rank(bw.rank), why,
                                sizeof(why));
    }
    for (i = 0; i < 2; ++i) {
        if (o->mem[i] == UCX_MP_MEM_LAST) {
            o->mem[i] = (count > 0) ? UCX_MP_MEM_DEVICE : UCX_MP_MEM_HOST;
        }
    }
    bw.mem = o->mem[bw.side];
    if ((count == 0) && (bw.mem != UCX_MP_MEM_HOST)) {
        ucx_mp_die(UCX_MP_EXIT_WRONG, "%s memory: %s", bw_sides[bw.mem], why);
    }

    if (o->fresh) {
        /* freed memory is returned to the system */
        mallopt(M_MMAP_THRESHOLD, 4096);
    }
    bw_alloc_buffers(o->max_size);
    for (i = 0; i < o->num_windows; ++i) {
        if (o->windows[i] > max_window) {
            max_window = o->windows[i];
        }
    }
    bw.requests = calloc(2 * max_window, sizeof(*bw.requests));
    if (bw.requests == NULL) {
        ucx_mp_die(UCX_MP_EXIT_WRONG, "out of memory");
    }
    if ((o->json != NULL) && (bw.rank == 0)) {
        bw.json = !strcmp(o->json, "-") ? stdout : fopen(o->json, "w");
        if (bw.json == NULL) {
            ucx_mp_die(UCX_MP_EXIT_USAGE, "--json: cannot write %s: %m",
                       o->json);
        }
    }
}

/* Set this rank's sender and receiver for the next benchmark. */
static void bw_set_peers(void)
{
    if (((bw.num_ranks % 2) || (bw.num_ranks > 1024)) &&
        (bw.opts.benchmark != BENCH_RING)) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "needs 2 ranks (mpirun -n 2) or another "
                   "even number, not %d", bw.num_ranks);
    } else if (bw.num_ranks < 2) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "needs 2 ranks or more (mpirun -n 4)");
    }

    if (bw.opts.benchmark == BENCH_RING) {
        bw.to   = (bw.rank + 1) % bw.num_ranks;
        bw.from = (bw.rank + bw.num_ranks - 1) % bw.num_ranks;
    } else {
        bw.to = bw.from = bw.rank ^ 1;
    }
}

/* Run all sizes of one benchmark with one window. Return an exit code. */
static int bw_run(int benchmark, int window)
{
    int ret = UCX_MP_EXIT_OK;
    const ucx_mp_sizes_t *sizes = (benchmark == BENCH_LATENCY) ?
                                      &bw.opts.latency_sizes :
                                      &bw.opts.sizes;
    bw_result_t result;
    size_t size;
    int i;

    bw.opts.benchmark = benchmark;
    bw.opts.window    = window;
    bw_set_peers();
    if ((bw.rank == 0) && (bw.json != stdout)) {
        bw_print_head();
    }

    bw_warm_up(sizes);
    for (i = 0; i < sizes->count; ++i) {
        size = sizes->values[i];
        if (!bw_is_wanted(size)) {
            continue;
        }
        bw_measure(size, &result);
        if (bw.rank == 0) {
            bw_print(size, &result);
        }
        if (!result.valid) {
            ret = UCX_MP_EXIT_WRONG;
        }
    }
    return ret;
}

int main(int argc, char **argv)
{
    int ret = UCX_MP_EXIT_OK;
    int benchmark, i, k, now;

    ucx_mp_program = "ucx_mp_bw";
    bw_parse(argc, argv);

    MPI_Init(&argc, &argv);
    ucx_mp_get_rank(&bw.rank, &bw.num_ranks);
    bw.side = bw.rank % 2;
    bw_prepare();
    bw.emulated = ucx_mp_gpu_emulated();

    for (i = 0; i < bw.opts.num_benchmarks; ++i) {
        benchmark = bw.opts.benchmarks[i];
        for (k = 0; k < bw.opts.num_windows; ++k) {
            if ((benchmark == BENCH_LATENCY) && (k > 0)) {
                break; /* latency has one message at a time: one window is
                          enough */
            }
            now = bw_run(benchmark, (benchmark == BENCH_LATENCY) ?
                                            1 : bw.opts.windows[k]);
            if ((ret == UCX_MP_EXIT_OK) || (now == UCX_MP_EXIT_WRONG)) {
                ret = now;
            }
        }
    }

    if ((bw.json != NULL) && (bw.json != stdout)) {
        fclose(bw.json);
    }
    free(bw.requests);
    bw_free_buffers();
    MPI_Finalize();
    return ret;
}
