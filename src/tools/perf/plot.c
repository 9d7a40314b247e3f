/* SPDX-License-Identifier: BSD-3-Clause */
/* --plot: the matrices side by side, a square a pair of GPUs, as SVG. */
#include "tool.h"

#include <errno.h>
#include <string.h>


/* Pixels */
#define CELL   52
#define LEFT   54 /* of a matrix, for its rows' names */
#define TOP    58 /* for titles and its columns' names */
#define MARGIN 16

/* From the paper's colour to that of the largest value, each of red, green and
 * blue */
static const int pale[] = {0xf2, 0xf6, 0xfb};
static const int full[] = {0x0b, 0x4a, 0x8f};

static struct {
    FILE       *out; /* NULL: no picture is wanted */
    const char *name;
    int        width; /* of a matrix with its margin */
    int        count; /* of those that are drawn */
} plot;


void ucx_mp_perf_plot_open(const char *name, int num_gpus, int num_matrices)
{
    if (name == NULL) {
        return;
    }

    plot.name  = name;
    plot.width = LEFT + (num_gpus * CELL) + MARGIN;
    plot.out   = fopen(name, "w");
    if (plot.out == NULL) {
        ucx_mp_perf_die(UCX_MP_PERF_FAILED, "%s cannot be written: %s", name,
                        strerror(errno));
    }

    fprintf(plot.out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
            "height=\"%d\" font-family=\"sans-serif\" font-size=\"12\" "
            "text-anchor=\"middle\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            num_matrices * plot.width, TOP + (num_gpus * CELL) + MARGIN);
}

static void draw_cell(int x, int y, double value, double largest)
{
    const double part = (value > 0) ? value / largest : 0;
    int colour[3];
    unsigned i;

    for (i = 0; i < 3; ++i) {
        colour[i] = pale[i] + (int)(part * (full[i] - pale[i]));
    }

    fprintf(plot.out,
            "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" "
            "fill=\"#%02x%02x%02x\"/>\n",
            x, y, CELL - 1, CELL - 1, colour[0], colour[1], colour[2]);
    if (value > 0) {
        fprintf(plot.out,
                "<text x=\"%d\" y=\"%d\" fill=\"%s\">%.*f</text>\n",
                x + (CELL / 2), y + (CELL / 2) + 4,
                (part > 0.5) ? "white" : "black", (value < 1000) ? 1 : 0,
                value);
    }
}

void ucx_mp_perf_plot_matrix(const char *what, const char *unit, size_t size,
                             int num_gpus,
                             double values[][UCT_CUDA_MAX_GPUS])
{
    const int left = (plot.count++ * plot.width) + LEFT;
    double largest = 0;
    int i, j;

    if (plot.out == NULL) {
        return;
    }

    for (i = 0; i < num_gpus; ++i) {
        for (j = 0; j < num_gpus; ++j) {
            largest = (values[i][j] > largest) ? values[i][j] : largest;
        }
    }

    fprintf(plot.out,
            "<g text-anchor=\"start\"><text x=\"%d\" y=\"18\" "
            "font-weight=\"bold\">%s, %s</text>\n"
            "<text x=\"%d\" y=\"34\">%zu bytes, from row to column</text></g>"
            "\n", left, what, unit, left, size);
    for (i = 0; i < num_gpus; ++i) {
        fprintf(plot.out,
                "<text x=\"%d\" y=\"%d\">gpu%d</text>\n"
                "<text x=\"%d\" y=\"%d\">gpu%d</text>\n",
                left + (i * CELL) + (CELL / 2), TOP - 6, i, left - (LEFT / 2),
                TOP + (i * CELL) + (CELL / 2) + 4, i);
        for (j = 0; j < num_gpus; ++j) {
            draw_cell(left + (j * CELL), TOP + (i * CELL), values[i][j],
                      largest);
        }
    }
}

void ucx_mp_perf_plot_close(void)
{
    int failed;

    if (plot.out == NULL) {
        return;
    }

    fputs("</svg>\n", plot.out);
    failed = ferror(plot.out);
    if ((fclose(plot.out) != 0) || (failed != 0)) {
        ucx_mp_perf_die(UCX_MP_PERF_FAILED, "%s cannot be written: %s",
                        plot.name, strerror(errno));
    }
}
