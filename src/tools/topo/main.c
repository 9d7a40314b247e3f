/* SPDX-License-Identifier: BSD-3-Clause */
/* ucx_mp_topo: print a node's wiring, and plans of transfers on it. */
#include "tool.h"

#include <draw/draw.h>

#include <uct/cuda/base/driver.h>

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>


const char ucx_mp_tool_name[] = "ucx_mp_topo";


static void probe(ucx_mp_topo_node_t *node, bool details)
{
    double start;

    if (uct_cuda_wiring_probe(&node->wiring, details) != UCS_OK) {
        if (uct_cuda_driver_status() == UCS_ERR_UNSUPPORTED) {
            ucx_mp_tool_die(UCX_MP_TOOL_FAILED, "no GPU is usable: the CUDA "
                                                "driver failed or is too "
                                                "old");
        }
        ucx_mp_tool_die(UCX_MP_TOOL_FAILED,
                        "no GPU is visible here: libcuda.so.1 is missing or "
                        "finds no device (--verbose shows which). "
                        "ucx_mp_run --emulate beluga ucx_mp_topo shows an "
                        "emulated node");
    }

    start = uct_cuda_wiring_now();
    uct_cuda_topo_build(&node->wiring, &node->topo);
    node->wiring.times.build = uct_cuda_wiring_now() - start;
}

static void check_end(const char *name, uct_cuda_end_t end,
                      const uct_cuda_topo_t *topo)
{
    if (uct_cuda_end_is_gpu(end) &&
        (uct_cuda_end_device(end) >= topo->num_gpus)) {
        ucx_mp_tool_die(UCX_MP_TOOL_USAGE,
                        "--plan: %s %d: this process sees %d GPU%s, from 0 on",
                        name, uct_cuda_end_device(end), topo->num_gpus,
                        (topo->num_gpus == 1) ? "" : "s");
    }
}

/* Close the file; reports if any write failed, for instance on a full disk. */
static void close_file(FILE *file, const char *name)
{
    int failed = ferror(file);

    if ((fclose(file) != 0) || failed) {
        ucx_mp_tool_die(UCX_MP_TOOL_FAILED, "%s cannot be written: %s", name,
                        strerror(errno));
    }
}

/* Convert the JSON with ucx_mp_draw. */
static void draw(const char *what, const char *name,
                 const ucx_mp_topo_node_t *node,
                 const ucx_mp_topo_near_t *near, const ucx_mp_topo_plan_t *plan)
{
    ucx_mp_draw_t draw;
    int error = ucx_mp_draw_open(&draw, what, name);

    if (error != 0) {
        ucx_mp_tool_die(UCX_MP_TOOL_FAILED, "%s cannot be written: %s",
                        (name == NULL) ? what : name, strerror(error));
    }

    ucx_mp_topo_json(node, near, plan, NULL, NULL, draw.json);
    if (ucx_mp_draw_close(&draw) != 0) {
        exit(UCX_MP_TOOL_FAILED);
    }
}

static void check_ends(const ucx_mp_topo_options_t *options,
                       const uct_cuda_topo_t *topo)
{
    char name[16];

    check_end("SRC", options->src, topo);
    check_end("DST", options->dst, topo);
    if (uct_cuda_end_equal(options->src, options->dst)) {
        ucx_mp_tool_die(UCX_MP_TOOL_USAGE, "--plan: SRC and DST are both %s",
                        uct_cuda_end_str(options->src, name, sizeof(name)));
    }
}

int main(int argc, char **argv)
{
    static ucx_mp_topo_plan_t plan; /* too large for a stack */
    static ucx_mp_topo_collective_t collective;
    static ucx_mp_topo_node_t node;
    static ucx_mp_topo_near_t near;
    ucx_mp_topo_options_t options;
    bool is_copy;

    /* The reader of our output may end early, as head does: end then, too, even
       if a parent such as Python ignores SIGPIPE */
    signal(SIGPIPE, SIG_DFL);
    ucx_mp_topo_options_read(argc, argv, &options);
    ucx_mp_tool_log(options.verbose ? UCT_CUDA_LOG_DEBUG : UCT_CUDA_LOG_WARN);
    is_copy = options.plan && (options.collective == NULL);
    if (options.plan) {
        ucx_mp_tool_config_read(&plan.config);
    }

    /* --time measures only the queries that a message needs */
    probe(&node, options.format != UCX_MP_TOPO_TIME);
    if (is_copy) {
        check_ends(&options, &node.topo);
        ucx_mp_topo_plan_make(&node.topo, &options, &plan);
    } else if (options.collective != NULL) {
        ucx_mp_topo_collective_make(&node.topo, &options, &collective);
    }

    if (options.format != UCX_MP_TOPO_TIME) {
        ucx_mp_topo_near_find(&node, &near);
    }

    switch (options.format) {
    case UCX_MP_TOPO_XML:
        draw("xml", NULL, &node, &near, NULL);
        break;
    case UCX_MP_TOPO_JSON:
        ucx_mp_topo_json(&node, &near, is_copy ? &plan : NULL,
                         (options.collective != NULL) ? &collective : NULL,
                         options.collective, stdout);
        break;
    case UCX_MP_TOPO_TIME:
        ucx_mp_topo_times(&node, stdout);
        break;
    case UCX_MP_TOPO_TEXT:
        if (is_copy) {
            ucx_mp_topo_plan_text(&node.topo, &options, &plan, stdout);
        } else if (options.collective != NULL) {
            ucx_mp_topo_collective_text(&options, &collective, stdout);
        } else {
            ucx_mp_topo_text(&node, stdout);
            ucx_mp_topo_near_text(&node, &near, stdout);
        }
        break;
    }

    if (options.svg != NULL) {
        draw("node", options.svg, &node, &near, is_copy ? &plan : NULL);
    }

    uct_cuda_plan_coll_release(&collective.plan);
    close_file(stdout, "standard output");
    return UCX_MP_TOOL_OK;
}
