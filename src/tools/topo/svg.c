/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The node as a picture: NUMA nodes on top, PCIe switches, GPUs in a row below,
 * and NVLinks as arcs under them, or lines to one box where there are
 * NVSwitches. With a plan, its paths are drawn in colours over the links.
 */
#include "tool.h"

#include <uct/cuda/plan/transfer_planner.h>

#include <math.h>
#include <string.h>


#define GIGA 1e9

/* Pixels */
#define PITCH       156 /* from GPU to GPU */
#define GPU_WIDTH   112
#define GPU_HEIGHT  52
#define BOX_HEIGHT  34
#define LEVEL       84 /* from a box to the one below it */
#define MARGIN      24
#define TITLE       40
#define TITLE_LETTER 9 /* width of one */
#define ARC_STEP    40
#define LEGEND_LINE 20
#define PATH_STEP   5 /* between paths on the same wire */
#define WIRE        .75 /* of a box's height: where paths cross it */

#define COLOUR_TEXT "#222222"
#define COLOUR_LINE "#8a8f98"
#define COLOUR_PALE "#d5d8dc"


typedef struct {
    const ucx_mp_topo_node_t *node;
    const ucx_mp_topo_plan_t *plan;
    FILE                     *out;
    int    num_placed;
    int    column[UCT_CUDA_MAX_GPUS];           /* of a GPU */
    int    first[UCT_CUDA_WIRING_MAX_SWITCHES];      /* columns of a switch */
    int    last[UCT_CUDA_WIRING_MAX_SWITCHES];
    int    depth[UCT_CUDA_WIRING_MAX_SWITCHES];      /* 1: at a NUMA node */
    int    numa_first[UCT_CUDA_TOPO_MAX_NUMA + 1];   /* the last one: none */
    int    numa_last[UCT_CUDA_TOPO_MAX_NUMA + 1];
    int    max_depth;
    bool   has_nvswitch;
} drawing_t;


static const char *colours[] = {"#c8371b", "#1f6fb4", "#2f8f3a", "#8e44ad",
                                "#d08500", "#0a8f8f", "#a03060", "#5a5a00"};


/* ---------------------------------------------------------- what goes where */

/* GPUs from left to right as they hang in the PCIe tree */
static void place_below(drawing_t *d, int parent, int numa, int depth)
{
    const uct_cuda_wiring_t *wiring = &d->node->wiring;
    int i;

    for (i = 0; i < wiring->num_gpus; ++i) {
        if ((wiring->gpus[i].pci_switch == parent) &&
            (wiring->gpus[i].numa == numa)) {
            d->column[i] = d->num_placed++;
        }
    }

    for (i = 0; i < wiring->num_switches; ++i) {
        if ((wiring->switches[i].parent == parent) &&
            (wiring->switches[i].numa == numa)) {
            d->depth[i] = depth;
            d->first[i] = d->num_placed;
            place_below(d, i, numa, depth + 1);
            d->last[i] = d->num_placed - 1;
            if ((d->last[i] >= d->first[i]) && (depth > d->max_depth)) {
                d->max_depth = depth;
            }
        }
    }
}

static void place(drawing_t *d)
{
    const uct_cuda_wiring_t *wiring = &d->node->wiring;
    int i, n, numa;

    for (n = 0; n <= wiring->num_numa; ++n) {
        numa             = (n < wiring->num_numa) ? n : UCT_CUDA_WIRING_NONE;
        d->numa_first[n] = d->num_placed;
        place_below(d, UCT_CUDA_WIRING_NONE, numa, 1);
        if ((d->num_placed == d->numa_first[n]) && (n < wiring->num_numa)) {
            ++d->num_placed; /* a NUMA node without GPUs has a column, too */
        }
        d->numa_last[n] = d->num_placed - 1;
    }

    for (i = 0; i < wiring->num_gpus; ++i) {
        for (n = 0; n < (int)wiring->gpus[i].num_peers; ++n) {
            d->has_nvswitch = d->has_nvswitch ||
                              (wiring->gpus[i].peers[n].end ==
                               UCT_CUDA_WIRING_SWITCH) ||
                              (wiring->gpus[i].peers[n].end ==
                               UCT_CUDA_WIRING_UNKNOWN);
        }
    }
}

static double column_x(int column)
{
    return MARGIN + PITCH * (column + .5);
}

static double gpu_x(const drawing_t *d, int gpu)
{
    return column_x(d->column[gpu]);
}

static double numa_y(void)
{
    return MARGIN + TITLE;
}

static double switch_y(const drawing_t *d, int index)
{
    return numa_y() + LEVEL * d->depth[index];
}

static double gpu_y(const drawing_t *d)
{
    return numa_y() + LEVEL * (d->max_depth + 1);
}

static double nvswitch_y(const drawing_t *d)
{
    return gpu_y(d) + GPU_HEIGHT + LEVEL - BOX_HEIGHT;
}

/* Is the pair joined by NVLinks of its own? */
static bool has_arc(const drawing_t *d, int a, int b)
{
    const uct_cuda_wiring_t *wiring = &d->node->wiring;
    unsigned i;

    for (i = 0; i < wiring->gpus[a].num_peers; ++i) {
        if ((wiring->gpus[a].peers[i].end == UCT_CUDA_WIRING_GPU) &&
            (wiring->gpus[a].peers[i].gpu == b)) {
            return true;
        }
    }

    return false;
}

/* Do two GPUs reach each other through the NVSwitches? */
static bool is_switched(const drawing_t *d, int a, int b)
{
    char text[16];

    return d->has_nvswitch && !has_arc(d, a, b) &&
           (strncmp(ucx_mp_topo_pair_str(&d->node->wiring, a, b, text,
                                         sizeof(text)),
                    "NV", 2) == 0);
}


/* ------------------------------------------------------------------- shapes */

static void put_text(const drawing_t *d, double x, double y, const char *anchor,
                     const char *style, const char *text)
{
    fprintf(d->out,
            "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" class=\"%s\">", x,
            y, anchor, style);
    for (; *text != '\0'; ++text) {
        if (*text == '&') {
            fputs("&amp;", d->out);
        } else if (*text == '<') {
            fputs("&lt;", d->out);
        } else if ((unsigned char)*text >= ' ') {
            fputc(*text, d->out);
        }
    }
    fputs("</text>\n", d->out);
}

static void put_box(const drawing_t *d, double x, double y, double width,
                    double height, const char *style)
{
    fprintf(d->out,
            "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
            "rx=\"5\" class=\"%s\"/>\n",
            x, y, width, height, style);
}

static void put_line(const drawing_t *d, double x1, double y1, double x2,
                     double y2, double width, const char *colour)
{
    fprintf(d->out,
            "<path d=\"M%.1f %.1f L%.1f %.1f\" fill=\"none\" stroke=\"%s\" "
            "stroke-width=\"%.1f\"/>\n",
            x1, y1, x2, y2, colour, width);
}

/* Thickness of a link, by its bandwidth */
static double thickness(double bandwidth)
{
    return 1 + 1.2 * log2(1 + bandwidth / GIGA / 12);
}

static const char *link_colour(const drawing_t *d)
{
    return (d->plan != NULL) ? COLOUR_PALE : COLOUR_LINE;
}

/* Where on a GPU's lower edge its arc to another one begins: so that arcs lie
 * in each other and do not cross */
static double port_x(const drawing_t *d, int gpu, int peer)
{
    const int own    = d->column[gpu];
    const int target = d->column[peer];
    int count        = 0;
    int rank         = 0;
    int i, column;

    for (i = 0; i < d->node->topo.num_gpus; ++i) {
        if ((i == gpu) || (!has_arc(d, gpu, i) && !has_arc(d, i, gpu))) {
            continue;
        }

        ++count;
        column = d->column[i];
        if (target < own) {
            rank += (column < own) && (column > target);
        } else {
            rank += (column < own) || (column > target);
        }
    }

    return gpu_x(d, gpu) - GPU_WIDTH * .4 +
           GPU_WIDTH * .8 * (rank + .5) / ((count > 0) ? count : 1);
}

static double arc_depth(const drawing_t *d, int a, int b)
{
    int distance = d->column[a] - d->column[b];

    distance = (distance < 0) ? -distance : distance;
    return 10 + ARC_STEP * distance;
}

static void put_arc(const drawing_t *d, int from, int to, double shift,
                    double width, const char *colour, const char *marker)
{
    double y  = gpu_y(d) + GPU_HEIGHT;
    double x1 = port_x(d, from, to) + shift;
    double x2 = port_x(d, to, from) + shift;
    double c  = y + arc_depth(d, from, to) / .75;

    fprintf(d->out,
            "<path d=\"M%.1f %.1f C%.1f %.1f %.1f %.1f %.1f %.1f\" "
            "fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\"%s/>\n",
            x1, y, x1, c, x2, c, x2, y, colour, width, marker);
}


/* ----------------------------------------------------------------- the node */

static void draw_numa(const drawing_t *d)
{
    const uct_cuda_wiring_t *wiring = &d->node->wiring;
    const uct_cuda_topo_t *topo     = &d->node->topo;
    double y                        = numa_y();
    double x1, x2;
    char text[64];
    int n;

    for (n = 0; n <= wiring->num_numa; ++n) {
        if (d->numa_last[n] < d->numa_first[n]) {
            continue;
        }

        x1 = column_x(d->numa_first[n]) - GPU_WIDTH / 2.;
        x2 = column_x(d->numa_last[n]) + GPU_WIDTH / 2.;
        put_box(d, x1, y, x2 - x1, BOX_HEIGHT, "host");
        if (n == wiring->num_numa) {
            snprintf(text, sizeof(text), "host");
        } else {
            snprintf(text, sizeof(text), "NUMA %d", wiring->numa[n].os_index);
        }
        put_text(d, (x1 + x2) / 2, y + 16, "middle", "name", text);

        if ((n > 0) && (n < wiring->num_numa) &&
            (topo->sockets[n - 1][n] != UCT_CUDA_TOPO_NO_LIMIT)) {
            x2 = column_x(d->numa_last[n - 1]) + GPU_WIDTH / 2.;
            put_line(d, x2, y + BOX_HEIGHT / 2., x1, y + BOX_HEIGHT / 2.,
                     thickness(topo->limits[topo->sockets[n - 1][n]]),
                     link_colour(d));
            snprintf(text, sizeof(text), "%.0f",
                     topo->limits[topo->sockets[n - 1][n]] / GIGA);
            put_text(d, (x1 + x2) / 2, y + BOX_HEIGHT / 2. - 5, "middle",
                     "label", text);
        }
    }
}

static double switch_x(const drawing_t *d, int index)
{
    return (column_x(d->first[index]) + column_x(d->last[index])) / 2;
}

static void draw_switches(const drawing_t *d)
{
    const uct_cuda_wiring_t *wiring = &d->node->wiring;
    const uct_cuda_wiring_switch_t *sw;
    char text[64], id[32];
    double above, x, y;
    int i;

    for (i = 0; i < wiring->num_switches; ++i) {
        sw = &wiring->switches[i];
        if (d->last[i] < d->first[i]) {
            continue;
        }

        x     = column_x(d->first[i]) - GPU_WIDTH / 2.;
        y     = switch_y(d, i);
        above = (sw->parent == UCT_CUDA_WIRING_NONE) ?
                        numa_y() + BOX_HEIGHT :
                        switch_y(d, sw->parent) + BOX_HEIGHT;
        put_line(d, switch_x(d, i), above, switch_x(d, i), y, 3,
                 link_colour(d));
        put_box(d, x, y,
                column_x(d->last[i]) - column_x(d->first[i]) + GPU_WIDTH,
                BOX_HEIGHT, "switch");
        snprintf(text, sizeof(text), "PCIe switch %s",
                 uct_cuda_bus_id_str(&sw->bus_id, id, sizeof(id)));
        put_text(d, x + 10, y + 16, "start", "name",
                 (d->last[i] > d->first[i]) ? text : "PCIe switch");
        if (sw->pcie.generation > 0) {
            snprintf(text, sizeof(text), "PCIe %u x%u", sw->pcie.generation,
                     sw->pcie.width);
            put_text(d, switch_x(d, i) + 12, y - 20, "start", "label", text);
        }
    }
}

static double above_gpu(const drawing_t *d, int gpu)
{
    int parent = d->node->wiring.gpus[gpu].pci_switch;

    return (parent == UCT_CUDA_WIRING_NONE) ?
                   numa_y() + BOX_HEIGHT :
                   switch_y(d, parent) + BOX_HEIGHT;
}

static void draw_gpus(const drawing_t *d)
{
    const uct_cuda_topo_t *topo = &d->node->topo;
    double y                    = gpu_y(d);
    char text[64], how[32];
    const char *style;
    double x;
    int i;

    for (i = 0; i < topo->num_gpus; ++i) {
        x = gpu_x(d, i);
        put_line(d, x, above_gpu(d, i), x, y,
                 thickness(topo->gpus[i].to_host.bandwidth), link_colour(d));
        snprintf(text, sizeof(text), "%s",
                 ucx_mp_topo_host_str(&d->node->wiring, i, how, sizeof(how)));
        put_text(d, x + 12, y - 24, "start", "label", text);
        snprintf(text, sizeof(text), "%.3g GB/s",
                 topo->gpus[i].to_host.bandwidth / GIGA);
        put_text(d, x + 12, y - 10, "start", "label", text);

        style = "gpu";
        if ((d->plan != NULL) &&
            (uct_cuda_end_is_device(d->plan->plan.src, i) ||
             uct_cuda_end_is_device(d->plan->plan.dst, i))) {
            style = "gpu end";
        }

        put_box(d, x - GPU_WIDTH / 2., y, GPU_WIDTH, GPU_HEIGHT, style);
        snprintf(text, sizeof(text), "GPU %d", i);
        put_text(d, x, y + 20, "middle", "name", text);
        snprintf(text, sizeof(text), "%.18s", d->node->wiring.gpus[i].name);
        put_text(d, x, y + 35, "middle", "small", text);
        put_text(d, x, y + 47, "middle", "small",
                 uct_cuda_bus_id_str(&d->node->wiring.gpus[i].bus_id, how,
                                     sizeof(how)));
    }
}

static void draw_nvswitch(const drawing_t *d)
{
    const uct_cuda_topo_t *topo = &d->node->topo;
    double y                    = nvswitch_y(d);
    double bandwidth            = 0;
    double left                 = 1e9;
    double right                = 0;
    char text[64];
    int i, j;

    for (i = 0; i < topo->num_gpus; ++i) {
        for (j = 0; j < topo->num_gpus; ++j) {
            if ((i == j) || !is_switched(d, i, j)) {
                continue;
            }

            bandwidth = topo->links[i][j].bandwidth;
            left      = fmin(left, gpu_x(d, i));
            right     = fmax(right, gpu_x(d, i));
            put_line(d, gpu_x(d, i), gpu_y(d) + GPU_HEIGHT, gpu_x(d, i), y,
                     thickness(bandwidth), link_colour(d));
            put_text(d, gpu_x(d, i) + 12, gpu_y(d) + GPU_HEIGHT + 20, "start",
                     "label",
                     ucx_mp_topo_pair_str(&d->node->wiring, i, j, text,
                                          sizeof(text)));
            snprintf(text, sizeof(text), "%.3g GB/s", bandwidth / GIGA);
            put_text(d, gpu_x(d, i) + 12, gpu_y(d) + GPU_HEIGHT + 34, "start",
                     "label", text);
            break;
        }
    }

    if (bandwidth > 0) {
        put_box(d, left - GPU_WIDTH / 2., y, right - left + GPU_WIDTH,
                BOX_HEIGHT, "nvswitch");
        put_text(d, (left + right) / 2, y + 26, "middle", "name", "NVSwitch");
    }
}

static void draw_arcs(const drawing_t *d)
{
    const uct_cuda_topo_t *topo = &d->node->topo;
    int i, j;

    for (i = 0; i < topo->num_gpus; ++i) {
        for (j = i + 1; j < topo->num_gpus; ++j) {
            if (has_arc(d, i, j)) {
                put_arc(d, i, j, 0, thickness(topo->links[i][j].bandwidth),
                        link_colour(d), "");
            }
        }
    }
}

/* Over everything else, or no one could read them */
static void draw_arc_labels(const drawing_t *d)
{
    const uct_cuda_topo_t *topo = &d->node->topo;
    char text[64], how[16];
    int i, j;

    for (i = 0; i < topo->num_gpus; ++i) {
        for (j = i + 1; j < topo->num_gpus; ++j) {
            if (has_arc(d, i, j)) {
                snprintf(text, sizeof(text), "%s, %.3g",
                         ucx_mp_topo_pair_str(&d->node->wiring, i, j, how,
                                              sizeof(how)),
                         topo->links[i][j].bandwidth / GIGA);
                put_text(d, (port_x(d, i, j) + port_x(d, j, i)) / 2,
                         gpu_y(d) + GPU_HEIGHT + arc_depth(d, i, j) + 4,
                         "middle", "label", text);
            }
        }
    }
}


/* ----------------------------------------------------------------- the plan */

/* Up or down the PCIe tree, between a GPU and what is at `top`: a switch, or
 * NONE for the NUMA node */
static void draw_climb(const drawing_t *d, int gpu, int top, double shift,
                       bool is_up, const char *colour, const char *marker)
{
    const uct_cuda_wiring_t *wiring = &d->node->wiring;
    double xs[2 * UCT_CUDA_WIRING_MAX_SWITCHES + 4];
    double ys[2 * UCT_CUDA_WIRING_MAX_SWITCHES + 4];
    int count = 0;
    int s, i;

    xs[count]   = gpu_x(d, gpu) + shift;
    ys[count++] = gpu_y(d);
    for (s = wiring->gpus[gpu].pci_switch;
         (s != UCT_CUDA_WIRING_NONE) && (s != top);
         s = wiring->switches[s].parent) {
        xs[count]   = xs[count - 1];
        ys[count++] = switch_y(d, s) + BOX_HEIGHT * WIRE;
        xs[count]   = switch_x(d, s) + shift;
        ys[count]   = ys[count - 1];
        ++count;
    }
    xs[count]   = xs[count - 1];
    ys[count++] = ((top == UCT_CUDA_WIRING_NONE) ? numa_y() :
                                                   switch_y(d, top)) +
                  BOX_HEIGHT * WIRE;

    fprintf(d->out, "<path d=\"");
    for (i = 0; i < count; ++i) {
        fprintf(d->out, "%s%.1f %.1f ", (i == 0) ? "M" : "L",
                xs[is_up ? i : count - 1 - i], ys[is_up ? i : count - 1 - i]);
    }
    fprintf(d->out,
            "\" fill=\"none\" stroke=\"%s\" stroke-width=\"3\"%s/>\n", colour,
            marker);
}

/* Where a wire into a switch or NUMA node ends, seen from above */
static double climb_x(const drawing_t *d, int gpu, int top, double shift)
{
    const uct_cuda_wiring_t *wiring = &d->node->wiring;
    double x                        = gpu_x(d, gpu);
    int s;

    for (s = wiring->gpus[gpu].pci_switch;
         (s != UCT_CUDA_WIRING_NONE) && (s != top);
         s = wiring->switches[s].parent) {
        x = switch_x(d, s);
    }

    return x + shift;
}

/* Over PCIe from a GPU to another one, or through the host's memory */
static void draw_over_host(const drawing_t *d, int from, int to, bool in_memory,
                           double shift, const char *colour, const char *marker)
{
    const uct_cuda_wiring_t *wiring = &d->node->wiring;
    int top                         = UCT_CUDA_WIRING_NONE;
    int s, t;
    double y;

    for (s = wiring->gpus[from].pci_switch;
         !in_memory && (s != UCT_CUDA_WIRING_NONE) &&
         (top == UCT_CUDA_WIRING_NONE);
         s = wiring->switches[s].parent) {
        for (t = wiring->gpus[to].pci_switch; t != UCT_CUDA_WIRING_NONE;
             t = wiring->switches[t].parent) {
            top = (s == t) ? s : top;
        }
    }

    /* up one side of the wire, down the other */
    draw_climb(d, from, top, shift, true, colour, "");
    y = ((top == UCT_CUDA_WIRING_NONE) ? numa_y() : switch_y(d, top)) +
        BOX_HEIGHT * WIRE;
    put_line(d, climb_x(d, from, top, shift), y, climb_x(d, to, top, -shift), y,
             3, colour);
    draw_climb(d, to, top, -shift, false, colour, marker);
}

static void draw_hop(const drawing_t *d, uint16_t lane, double shift,
                     const char *colour, const char *marker)
{
    const uct_cuda_end_t src = uct_cuda_mp_lane_from(lane);
    const uct_cuda_end_t dst = uct_cuda_mp_lane_to(lane);
    const int from           = uct_cuda_end_device(src);
    const int to             = uct_cuda_end_device(dst);
    double y;

    if (uct_cuda_end_is_host(src)) {
        draw_climb(d, to, UCT_CUDA_WIRING_NONE, -shift, false, colour, marker);
    } else if (uct_cuda_end_is_host(dst)) {
        draw_climb(d, from, UCT_CUDA_WIRING_NONE, shift, true, colour, marker);
    } else if (has_arc(d, from, to) || has_arc(d, to, from)) {
        put_arc(d, from, to, shift / 2, 3, colour, marker);
    } else if (is_switched(d, from, to)) {
        y = nvswitch_y(d) + BOX_HEIGHT * (1 - WIRE);
        fprintf(d->out,
                "<path d=\"M%.1f %.1f L%.1f %.1f L%.1f %.1f L%.1f %.1f\" "
                "fill=\"none\" stroke=\"%s\" stroke-width=\"3\"%s/>\n",
                gpu_x(d, from) + shift, gpu_y(d) + GPU_HEIGHT,
                gpu_x(d, from) + shift, y, gpu_x(d, to) - shift, y,
                gpu_x(d, to) - shift, gpu_y(d) + GPU_HEIGHT, colour, marker);
    } else {
        draw_over_host(d, from, to, false, shift, colour, marker);
    }
}

static void draw_plan(const drawing_t *d, double legend_y)
{
    const uct_cuda_mp_plan_t *plan = &d->plan->plan;
    const uct_cuda_mp_plan_path_t *path;
    const char *colour;
    char marker[64], text[160], name[16];
    uint16_t lanes[UCT_CUDA_MP_MAX_HOPS];
    double shift;
    unsigned i, hop, hops;

    for (i = 0; i < plan->num_paths; ++i) {
        path   = &plan->paths[i];
        colour = colours[i % (sizeof(colours) / sizeof(colours[0]))];
        shift  = PATH_STEP * (i + 1.) * ((i % 2) ? -1 : 1) - PATH_STEP / 2.;
        snprintf(marker, sizeof(marker), " marker-end=\"url(#arrow%u)\"", i);
        if (path->path.route == UCT_CUDA_MP_ROUTE_HOST) {
            draw_over_host(d, uct_cuda_end_device(plan->src),
                           uct_cuda_end_device(plan->dst), true, PATH_STEP,
                           colour, marker);
        } else {
            hops = uct_cuda_mp_plan_path_lanes(plan, &path->path, lanes);
            for (hop = 0; hop < hops; ++hop) {
                draw_hop(d, lanes[hop], shift, colour, marker);
            }
        }

        fprintf(d->out,
                "<rect x=\"%d\" y=\"%.1f\" width=\"18\" height=\"8\" "
                "fill=\"%s\"/>\n",
                MARGIN, legend_y + LEGEND_LINE * (i + 1.) - 8, colour);
        if (path->slots > 0) {
            snprintf(text, sizeof(text),
                     "%s: %.1f %%, %.1f MiB in %u chunk%s",
                     uct_cuda_mp_path_str(&path->path, name, sizeof(name)),
                     100. * path->bytes / plan->size,
                     path->bytes / 1048576., path->chunks,
                     (path->chunks > 1) ? "s" : "");
        } else {
            snprintf(text, sizeof(text), "%s: %.1f %%, %.1f MiB",
                     uct_cuda_mp_path_str(&path->path, name, sizeof(name)),
                     100. * path->bytes / plan->size,
                     path->bytes / 1048576.);
        }
        put_text(d, MARGIN + 26, legend_y + LEGEND_LINE * (i + 1.), "start",
                 "legend", text);
    }
}

static void end_str(uct_cuda_end_t end, char *text, size_t size)
{
    if (uct_cuda_end_is_host(end)) {
        snprintf(text, size, "host memory");
    } else {
        snprintf(text, size, "GPU %d", uct_cuda_end_device(end));
    }
}

static void title_str(const ucx_mp_topo_plan_t *plan, char *text, size_t size)
{
    const uct_cuda_mp_plan_t *p = (plan != NULL) ? &plan->plan : NULL;
    char from[16], to[16];

    if (p == NULL) {
        snprintf(text, size, "GB/s that one copy gets of each link, one way");
        return;
    }

    end_str(p->src, from, sizeof(from));
    end_str(p->dst, to, sizeof(to));
    if (p->num_paths == 0) {
        snprintf(text, size, "%s to %s, %.4g MiB: one plain copy", from, to,
                 p->size / 1048576.);
    } else {
        snprintf(text, size,
                 "%s to %s, %.4g MiB: %.1f us by the model, %.1f GB/s, %.2fx "
                 "of one path",
                 from, to, p->size / 1048576., p->seconds * 1e6,
                 p->size / p->seconds / GIGA, p->single_seconds / p->seconds);
    }
}

static void put_head(const drawing_t *d, double width, double height)
{
    size_t i;

    fprintf(d->out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" "
            "height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\">\n"
            "<style>\n"
            "text { font-family: sans-serif; fill: " COLOUR_TEXT "; }\n"
            ".title { font-size: 15px; font-weight: bold; }\n"
            ".name { font-size: 13px; font-weight: bold; }\n"
            ".small { font-size: 9px; }\n"
            ".legend { font-size: 13px; }\n"
            ".label { font-size: 11px; stroke: white; stroke-width: 3px; "
            "paint-order: stroke; }\n"
            ".gpu { fill: #e4f0dc; stroke: #4d7c33; }\n"
            ".end { fill: #f7e3b5; stroke: #9a6b00; stroke-width: 2px; }\n"
            ".host { fill: #e3e7f2; stroke: #56648f; }\n"
            ".switch { fill: #eeeeee; stroke: #777777; }\n"
            ".nvswitch { fill: #d7ebe9; stroke: #2d7a73; }\n"
            "</style>\n<defs>\n",
            width, height, width, height);
    for (i = 0; i < sizeof(colours) / sizeof(colours[0]); ++i) {
        fprintf(d->out,
                "<marker id=\"arrow%zu\" viewBox=\"0 0 8 8\" refX=\"7\" "
                "refY=\"4\" markerWidth=\"4\" markerHeight=\"4\" "
                "orient=\"auto\"><path d=\"M0 0 L8 4 L0 8 z\" fill=\"%s\"/>"
                "</marker>\n",
                i, colours[i]);
    }
    fprintf(d->out, "</defs>\n<rect width=\"100%%\" height=\"100%%\" "
                    "fill=\"white\"/>\n");
}

void ucx_mp_topo_svg(const ucx_mp_topo_node_t *node,
                     const ucx_mp_topo_plan_t *plan, FILE *stream)
{
    drawing_t d = {.node = node, .plan = plan, .out = stream};
    double width, height, below;
    char title[160];
    int i, j;

    place(&d);
    title_str(plan, title, sizeof(title));
    below = d.has_nvswitch ? LEVEL : 0;
    for (i = 0; i < node->topo.num_gpus; ++i) {
        for (j = 0; j < node->topo.num_gpus; ++j) {
            if (has_arc(&d, i, j)) {
                below = fmax(below, arc_depth(&d, i, j) + 12);
            }
        }
    }

    width  = 2 * MARGIN + fmax(PITCH * d.num_placed,
                               TITLE_LETTER * (double)strlen(title));
    height = gpu_y(&d) + GPU_HEIGHT + below;
    put_head(&d, width,
             height + MARGIN + LEGEND_LINE *
                                       ((plan != NULL) ? plan->plan.num_paths :
                                                         0));
    put_text(&d, MARGIN, MARGIN + 12, "start", "title", title);
    draw_numa(&d);
    draw_switches(&d);
    draw_nvswitch(&d);
    draw_arcs(&d);
    draw_gpus(&d);
    if (plan != NULL) {
        draw_plan(&d, height);
    }
    draw_arc_labels(&d);
    fprintf(stream, "</svg>\n");
}
