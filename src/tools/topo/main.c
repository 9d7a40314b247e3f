/* SPDX-License-Identifier: BSD-3-Clause */
/* ucx_mp_topo: shows how the node is wired, and plans of transfers on it. */
#include "tool.h"

#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/log.h>

#include <errno.h>
#include <string.h>


static void log_message(uct_cuda_log_level_t level, const char *file,
                        unsigned line, const char *function,
                        const char *message)
{
    fprintf(stderr, "ucx_mp_topo: %s\n", message);
}

static const uct_cuda_topo_t *probe(void)
{
    const uct_cuda_topo_t *topo = uct_cuda_topo_get();

    if (topo != NULL) {
        return topo;
    }

    if (uct_cuda_driver_status() == UCS_OK) {
        ucx_mp_topo_die(UCX_MP_TOPO_FAILED, "the CUDA driver is here but shows "
                                            "no GPU to this process");
    }

    ucx_mp_topo_die(UCX_MP_TOPO_FAILED,
                    "no GPU is visible here: libcuda.so.1 is not to be found "
                    "or finds no device (--verbose tells which). ucx_mp_run "
                    "--emulate beluga ucx_mp_topo shows an emulated node");
}

static void check_gpu(const char *name, int gpu, const uct_cuda_topo_t *topo)
{
    if (gpu >= topo->num_gpus) {
        ucx_mp_topo_die(UCX_MP_TOPO_USAGE,
                        "--plan: %s %d: this process sees %d GPU%s, from 0 on",
                        name, gpu, topo->num_gpus,
                        (topo->num_gpus == 1) ? "" : "s");
    }
}

int main(int argc, char **argv)
{
    static ucx_mp_topo_plan_t plan; /* too large for a stack */
    ucx_mp_topo_options_t options;
    const uct_cuda_topo_t *topo;

    ucx_mp_topo_options_read(argc, argv, &options);
    uct_cuda_log_set(log_message, options.verbose ? UCT_CUDA_LOG_DEBUG :
                                                    UCT_CUDA_LOG_WARN);
    if (options.plan) {
        ucx_mp_topo_config_read(&plan.config);
    }

    topo = probe();
    if (options.plan) {
        check_gpu("SRC", options.src, topo);
        check_gpu("DST", options.dst, topo);
        if (options.src == options.dst) {
            ucx_mp_topo_die(UCX_MP_TOPO_USAGE,
                            "--plan: SRC and DST are both GPU %d", options.src);
        }
        ucx_mp_topo_plan_make(topo, &options, &plan);
        ucx_mp_topo_plan_text(topo, &options, &plan, stdout);
    } else {
        ucx_mp_topo_text(topo, stdout);
    }

    if ((fflush(stdout) != 0) || ferror(stdout)) {
        ucx_mp_topo_die(UCX_MP_TOPO_FAILED, "cannot write: %s",
                        strerror(errno));
    }

    return UCX_MP_TOPO_OK;
}
