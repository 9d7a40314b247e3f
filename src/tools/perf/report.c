/* SPDX-License-Identifier: BSD-3-Clause */
/* Tables, JSON and progress. */
#include "tool.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>


#define MICRO    1e6
#define GOVERNOR "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"

static struct {
    FILE       *json;
    const char *json_name;
    unsigned   num_objects;
    unsigned   step;
    unsigned   num_steps;
    bool       is_terminal;
    bool       has_progress; /* the terminal shows a progress line */
    double     start;
    double     deviation;
} report;

typedef struct {
    double median, least, most;
} spread_t;


static int compare(const void *a, const void *b)
{
    const double x = *(const double*)a;
    const double y = *(const double*)b;

    return (x > y) - (x < y);
}

static spread_t spread(ucx_mp_perf_series_t *series)
{
    const double *samples = series->samples;

    qsort(series->samples, series->count, sizeof(samples[0]), compare);
    return (spread_t){samples[(series->count - 1) / 2], samples[0],
                      samples[series->count - 1]};
}

/* The 95 % interval of a median reaches 1.81 times the quartiles' distance over
   the root of the number of samples to each side: 1.96 x 1.25 / 1.35 (McGill,
   Tukey, Larsen, The American Statistician 32, 1978) */
bool ucx_mp_perf_is_certain(const ucx_mp_perf_series_t *series)
{
    static ucx_mp_perf_series_t sorted;
    double median, quartiles;

    if ((report.deviation <= 0) || (series->count >= UCX_MP_PERF_MAX_REPEATS)) {
        return true;
    }

    memcpy(sorted.samples, series->samples,
           series->count * sizeof(sorted.samples[0]));
    sorted.count = series->count;
    median       = spread(&sorted).median;
    quartiles    = sorted.samples[(3 * sorted.count - 1) / 4] -
                   sorted.samples[(sorted.count - 1) / 4];
    return 1.81 * quartiles / sqrt(sorted.count) <= report.deviation * median;
}

static void governor_print(void)
{
    FILE *file          = fopen(GOVERNOR, "r");
    char name[64];
    const bool is_known = (file != NULL) && (fscanf(file, "%63s", name) == 1);

    if (file != NULL) {
        fclose(file);
    }

    printf("CPU frequency governor: %s. No cache is flushed.\n",
           is_known ? name : "not known");
}

static void progress_clear(void)
{
    if (report.has_progress) {
        fprintf(stderr, "\r\033[K");
        report.has_progress = false;
    }
}

void ucx_mp_perf_report_open(const ucx_mp_perf_options_t *options,
                             unsigned num_steps)
{
    const char *json = options->json;

    governor_print();
    report.deviation   = options->deviation;
    report.num_steps   = num_steps;
    report.is_terminal = isatty(STDERR_FILENO);
    report.start       = ucx_mp_perf_now();
    report.json_name   = json;
    if (json == NULL) {
        return;
    }

    report.json = fopen(json, "w");
    if (report.json == NULL) {
        ucx_mp_tool_die(UCX_MP_TOOL_FAILED, "%s cannot be written: %s", json,
                        strerror(errno));
    }
    fputs("[", report.json);
}

void ucx_mp_perf_report_step(const char *what)
{
    double passed = ucx_mp_perf_now() - report.start;

    if (report.is_terminal && (report.num_steps > 0)) {
        progress_clear();
        fprintf(stderr, "%3u %%  %.0f s  %s",
                (100 * report.step) / report.num_steps, passed, what);
        fflush(stderr);
        report.has_progress = true;
    }

    ++report.step;
}

void ucx_mp_perf_report_part(const char *title)
{
    progress_clear();
    printf("\n%s\n", title);
}

static void json_begin(const char *what)
{
    fprintf(report.json, "%s\n{\"what\": \"%s\"",
            (report.num_objects++ > 0) ? "," : "", what);
}

static void json_end(unsigned repeats)
{
    fprintf(report.json, ", \"repeats\": %u}", repeats);
}

static const char *place_str(int gpu, char *buffer, size_t size)
{
    if (gpu < 0) {
        snprintf(buffer, size, "host");
    } else {
        snprintf(buffer, size, "gpu%d", gpu);
    }

    return buffer;
}

void ucx_mp_perf_report_rate(const char *what, int from, int to,
                             const char *via, size_t size, double bytes,
                             ucx_mp_perf_series_t *seconds)
{
    const spread_t time = spread(seconds);
    const double median = bytes / time.median * 1e-9;
    const double low    = bytes / time.most * 1e-9;
    const double high   = bytes / time.least * 1e-9;
    char name[2][16];

    place_str(from, name[0], sizeof(name[0]));
    place_str(to, name[1], sizeof(name[1]));

    progress_clear();
    printf("%-12s %-5s -> %-5s %-22s %11zu %8.2f (%.2f..%.2f)\n", what,
           name[0], name[1], via, size, median, low, high);
    fflush(stdout);
    if (report.json != NULL) {
        json_begin(what);
        fprintf(report.json,
                ", \"src\": \"%s\", \"dst\": \"%s\", \"via\": \"%s\", "
                "\"size\": %zu, \"gbps\": %.4f, \"gbps_min\": %.4f, "
                "\"gbps_max\": %.4f",
                name[0], name[1], via, size, median, low, high);
        json_end(seconds->count);
    }
}

double ucx_mp_perf_median(ucx_mp_perf_series_t *seconds)
{
    return spread(seconds).median;
}

void ucx_mp_perf_report_matrix(
        const char *what, const char *unit, size_t size, int num_gpus,
        double values[][UCT_CUDA_MAX_GPUS], unsigned repeats)
{
    int i, j;

    progress_clear();
    printf("\n%s, %zu bytes, %s from row to column\n%-6s", what, size, unit,
           "");
    for (j = 0; j < num_gpus; ++j) {
        printf("     gpu%-2d", j);
    }
    for (i = 0; i < num_gpus; ++i) {
        printf("\ngpu%-3d", i);
        for (j = 0; j < num_gpus; ++j) {
            if (values[i][j] > 0) {
                printf(" %9.2f", values[i][j]);
            } else {
                printf(" %9s", (i == j) ? "X" : "-");
            }
        }
    }
    printf("\n");
    fflush(stdout);
    if (report.json == NULL) {
        return;
    }

    json_begin("matrix");
    fprintf(report.json, ", \"of\": \"%s\", \"unit\": \"%s\", \"size\": "
                         "%zu, \"values\": [", what, unit, size);
    for (i = 0; i < num_gpus; ++i) {
        for (j = 0; j < num_gpus; ++j) {
            fprintf(report.json, "%s", (j > 0) ? ", " : (i > 0) ? "], [" : "[");
            if (values[i][j] > 0) {
                fprintf(report.json, "%.4f", values[i][j]);
            } else {
                fprintf(report.json, "null");
            }
        }
    }
    fprintf(report.json, "]]");
    json_end(repeats);
}

void ucx_mp_perf_report_call(const char *name, ucx_mp_perf_series_t *seconds)
{
    const spread_t time = spread(seconds);
    const double median = time.median * MICRO;
    const double low    = time.least * MICRO;
    const double high   = time.most * MICRO;

    progress_clear();
    printf("%-44s %10.2f (%.2f..%.2f)\n", name, median, low, high);
    fflush(stdout);
    if (report.json != NULL) {
        json_begin("call");
        fprintf(report.json,
                ", \"name\": \"%s\", \"usec\": %.4f, \"usec_min\": %.4f, "
                "\"usec_max\": %.4f",
                name, median, low, high);
        json_end(seconds->count);
    }
}

void ucx_mp_perf_report_graph(unsigned nodes, unsigned num_phases,
                              const char *const *phases,
                              ucx_mp_perf_series_t *series)
{
    spread_t time;
    char cell[64];
    unsigned i;

    progress_clear();
    printf("%5u", nodes);
    for (i = 0; i < num_phases; ++i) {
        time = spread(&series[i]);
        snprintf(cell, sizeof(cell), "%.1f (%.1f..%.1f)", time.median * MICRO,
                 time.least * MICRO, time.most * MICRO);
        printf("  %-22s", cell);
    }
    printf("\n");
    fflush(stdout);
    if (report.json == NULL) {
        return;
    }

    json_begin("graph");
    fprintf(report.json, ", \"nodes\": %u", nodes);
    for (i = 0; i < num_phases; ++i) {
        time = spread(&series[i]);
        fprintf(report.json, ", \"%s\": %.4f, \"%s_min\": %.4f, "
                "\"%s_max\": %.4f", phases[i], time.median * MICRO, phases[i],
                time.least * MICRO, phases[i], time.most * MICRO);
    }
    json_end(series[0].count);
}

void ucx_mp_perf_report_close(void)
{
    int failed;

    progress_clear();
    if (report.json == NULL) {
        return;
    }

    fputs("\n]\n", report.json);
    failed = ferror(report.json);
    if ((fclose(report.json) != 0) || (failed != 0)) {
        ucx_mp_tool_die(UCX_MP_TOOL_FAILED, "%s cannot be written: %s",
                        report.json_name, strerror(errno));
    }
}
