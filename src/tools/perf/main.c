/* SPDX-License-Identifier: BSD-3-Clause */
/* ucx_mp_perf: measure the planner's assumptions about a node. */
#include "tool.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>


#define TUNE "ucx_mp_tune"


const char ucx_mp_tool_name[] = "ucx_mp_perf";


static void check_gpu(const char *option, int gpu, int num_gpus)
{
    if (gpu >= num_gpus) {
        ucx_mp_tool_die(UCX_MP_TOOL_USAGE,
                        "%s %d: this process sees %d GPU%s, from 0 on", option,
                        gpu, num_gpus, (num_gpus == 1) ? "" : "s");
    }
}

/* Replace this process by ucx_mp_tune, to write the planner's constants for
 * this node, measured on real messages, to a file */
static void __attribute__((noreturn)) calibrate(const char *file)
{
    char path[PATH_MAX + sizeof(TUNE)];
    ssize_t length;
    char *name;

    /* ucx_mp_tune is installed in the folder of this program */
    length = readlink("/proc/self/exe", path, PATH_MAX - 1);
    if (length > 0) {
        path[length] = '\0';
        name         = strrchr(path, '/') + 1;
        strcpy(name, TUNE);
        (void)execl(path, TUNE, "--calibrate", "--output", file,
                    (char*)NULL);
    }

    (void)execlp(TUNE, TUNE, "--calibrate", "--output", file, (char*)NULL);
    ucx_mp_tool_die(UCX_MP_TOOL_FAILED, "%s cannot be started: %s", TUNE,
                    strerror(errno));
}

int main(int argc, char **argv)
{
    static ucx_mp_perf_options_t options;
    const uct_cuda_topo_t *topo;

    /* The reader of our output may end early, as head does: end then, too, even
       if a parent such as Python ignores SIGPIPE */
    signal(SIGPIPE, SIG_DFL);
    ucx_mp_perf_options_read(argc, argv, &options);
    if (options.calibrate != NULL) {
        calibrate(options.calibrate);
    }

    ucx_mp_tool_log(UCT_CUDA_LOG_WARN);
    ucx_mp_perf_calls_prepare(&options);
    topo = ucx_mp_perf_node_open();
    if (topo->num_gpus == 1) {
        options.dst = 0; /* measurements between two GPUs are left out */
    }
    check_gpu("--src", options.src, topo->num_gpus);
    check_gpu("--dst", options.dst, topo->num_gpus);
    if ((options.src == options.dst) && (topo->num_gpus > 1)) {
        ucx_mp_tool_die(UCX_MP_TOOL_USAGE, "--src and --dst are both GPU %d",
                        options.src);
    }

    ucx_mp_perf_report_open(&options,
                            (options.links ? 12 : 0) + (options.calls ? 1 : 0) +
                                    (options.matrix ? 3 : 0) +
                                    (options.blocks ? 4 : 0) +
                                    (options.graph ? options.num_nodes : 0));
    if (options.links) {
        ucx_mp_perf_apart(&options);
    }

    ucx_mp_perf_node_connect();
    if (options.calls) {
        ucx_mp_perf_calls(&options);
    }
    if (options.graph) {
        ucx_mp_perf_graph(topo, &options);
    }
    if (options.links) {
        ucx_mp_perf_links(topo, &options);
    }

    if (options.matrix) {
        ucx_mp_perf_matrix(topo, &options);
    }
    if (options.blocks) {
        ucx_mp_perf_blocks(topo, &options);
    }

    ucx_mp_perf_report_close();
    return UCX_MP_TOOL_OK;
}
