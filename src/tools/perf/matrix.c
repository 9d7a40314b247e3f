/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Matrices of all pairs of GPUs: one direction, both directions at once, and
 * the time of a small copy, as medians.
 */
#include "tool.h"

#include <draw/draw.h>

#include <ucs/sys/math.h>

#include <stdlib.h>
#include <string.h>


#define SMALL 8ul


static void plot_open(const char *name, ucx_mp_draw_t *draw)
{
    const int error = (name == NULL) ? 0 :
                                       ucx_mp_draw_open(draw, "matrices", name);

    if (error != 0) {
        ucx_mp_tool_die(UCX_MP_TOOL_FAILED, "%s cannot be written: %s", name,
                        strerror(error));
    }
}

/* Write a matrix as JSON for ucx_mp_draw. */
static void plot_matrix(const char *what, const char *unit, size_t size,
                        int num_gpus, double values[][UCT_CUDA_MAX_GPUS],
                        const char *comma, FILE *json)
{
    int i, j;

    fprintf(json, "%s{\"what\": \"%s\", \"unit\": \"%s\", \"size\": %zu, "
            "\"values\": [", comma, what, unit, size);
    for (i = 0; i < num_gpus; ++i) {
        for (j = 0; j < num_gpus; ++j) {
            fprintf(json, "%s%.6f", (j > 0) ? ", " : (i > 0) ? "], [" : "[",
                    values[i][j]);
        }
    }
    fprintf(json, "]]}");
}

void ucx_mp_perf_matrix(const uct_cuda_topo_t *topo,
                        const ucx_mp_perf_options_t *options)
{
    static ucx_mp_perf_series_t series;
    static double values[UCT_CUDA_MAX_GPUS][UCT_CUDA_MAX_GPUS];
    const size_t large = options->sizes[options->num_sizes - 1];
    const struct {
        const char *what;
        const char *unit;
        size_t     size;
        unsigned   count; /* number of simultaneous copies */
    } kinds[] = {
        {"one way", "GB/s", large, 1},
        {"both ways", "GB/s", large, 2},
        {"latency", "us", SMALL, 1}
    };
    ucx_mp_draw_t draw;
    double seconds;
    unsigned k, repeats;
    int i, j;

    plot_open(options->plot, &draw);
    for (k = 0; k < sizeof(kinds) / sizeof(kinds[0]); ++k) {
        ucx_mp_perf_report_step(kinds[k].what);
        repeats = 0;
        memset(values, 0, sizeof(values));
        for (i = 0; i < topo->num_gpus; ++i) {
            for (j = 0; j < topo->num_gpus; ++j) {
                if ((i == j) || !(topo->links[i][j].bandwidth > 0)) {
                    continue;
                }

                ucx_mp_perf_copies((ucx_mp_perf_hop_t[]){{i, j}, {j, i}},
                                   kinds[k].count, UCX_MP_PERF_NEAR,
                                   kinds[k].size, options->repeats, &series);
                seconds      = ucx_mp_perf_median(&series);
                repeats      = ucs_max(repeats, series.count);
                values[i][j] = (kinds[k].size == SMALL) ?
                                       seconds * 1e6 :
                                       (double)kinds[k].size *
                                               kinds[k].count / seconds * 1e-9;
            }
        }
        ucx_mp_perf_report_matrix(kinds[k].what, kinds[k].unit, kinds[k].size,
                                  topo->num_gpus, values, repeats);
        if (options->plot != NULL) {
            plot_matrix(kinds[k].what, kinds[k].unit, kinds[k].size,
                        topo->num_gpus, values, (k > 0) ? ",\n" : "[",
                        draw.json);
        }
    }

    if (options->plot != NULL) {
        fprintf(draw.json, "]\n");
        if (ucx_mp_draw_close(&draw) != 0) {
            exit(UCX_MP_TOOL_FAILED);
        }
    }
}
