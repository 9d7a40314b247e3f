/* SPDX-License-Identifier: BSD-3-Clause */

/* The driver's functions, their expected results, and reports. */
#include "harmless.h"
#include "driver.h"
#include "gpu.h"
#include "util.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define HARMLESS_MAX_REPORTS 5

harmless_t harmless;

void harmless_log(const char *fmt, ...)
{
    char text[512];
    va_list ap;

    if (!harmless.opts.verbose) {
        return;
    }
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    fprintf(stderr, "ucx_mp_harmless: rank %d: step %" PRIu64 ": %s\n",
            harmless.rank, harmless.step, text);
}

static void harmless_report(int number, const char *kind, const char *text)
{
    if (harmless.counts[number]++ >= HARMLESS_MAX_REPORTS) {
        return;
    }
    fprintf(stderr,
            "ucx_mp_harmless: rank %d: %s, step %" PRIu64 ": %s; again: "
            "mpirun -n %d ucx_mp_harmless --seed %" PRIu64 " --steps %" PRIu64
            " --max-size %zu%s%s%s\n",
            harmless.rank, kind, harmless.step, text, harmless.size,
            harmless.opts.seed, harmless.step + 1, harmless.opts.max_size,
            harmless.opts.resets ? " --resets" : "",
            harmless.opts.host_only ? " --host-only" : "",
            harmless.opts.no_windows ? " --no-windows" : "");
    fflush(stderr);
}

int harmless_call(int result, int expected, const char *fmt, ...)
{
    char call[384], text[640];
    va_list ap;

    if ((result == expected) && !harmless.opts.verbose) {
        return result == HARMLESS_CUDA_SUCCESS;
    }

    va_start(ap, fmt);
    vsnprintf(call, sizeof(call), fmt, ap);
    va_end(ap);
    harmless_log("%s: %s", call, ucx_mp_gpu_error_name(result));
    if (result != expected) {
        snprintf(text, sizeof(text), "%s: expected %s (%d), got %s (%d)", call,
                 ucx_mp_gpu_error_name(expected), expected,
                 ucx_mp_gpu_error_name(result), result);
        harmless_report(HARMLESS_NUM_REFUSED, "REFUSED", text);
    }
    return result == HARMLESS_CUDA_SUCCESS;
}

void harmless_wrong(const char *fmt, ...)
{
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    harmless_report(HARMLESS_NUM_WRONG, "WRONG", text);
}

void harmless_gpu_use(int gpu)
{
    harmless_call(ucx_mp_driver.ctx_set(harmless.gpus[gpu].ctx),
                  HARMLESS_CUDA_SUCCESS, "cuCtxSetCurrent of GPU %d",
                  harmless.gpus[gpu].device);
}

void harmless_gpu_open(int gpu)
{
    harmless_gpu_t *g = &harmless.gpus[gpu];
    int i;

    if (!harmless_call(ucx_mp_driver.ctx_retain(&g->ctx, g->device),
                       HARMLESS_CUDA_SUCCESS, "cuDevicePrimaryCtxRetain of "
                       "GPU %d", g->device)) {
        ucx_mp_die(UCX_MP_EXIT_WRONG, "no context on GPU %d", g->device);
    }
    harmless_gpu_use(gpu);
    for (i = 0; i < 2; ++i) {
        harmless_call(ucx_mp_driver.stream_create(
                              &g->streams[i],
                              i ? HARMLESS_CUDA_STREAM_NONBLOCK : 0),
                      HARMLESS_CUDA_SUCCESS, "cuStreamCreate on GPU %d",
                      g->device);
    }
}

void harmless_driver_init(int count)
{
    const int local_rank = ucx_mp_gpu_local_rank(harmless.rank);
    int can, i, j;

    ucx_mp_driver_load();

    /* Begin with this rank's GPU, so that each rank uses others, too */
    harmless.num_gpus = (count < HARMLESS_MAX_GPUS) ? count :
                                                      HARMLESS_MAX_GPUS;
    harmless.home     = 0;
    for (i = 0; i < harmless.num_gpus; ++i) {
        harmless_call(ucx_mp_driver.device_get(&harmless.gpus[i].device,
                                               (local_rank + i) % count),
                      HARMLESS_CUDA_SUCCESS, "cuDeviceGet");
        harmless_gpu_open(i);
    }
    for (i = 0; i < harmless.num_gpus; ++i) {
        for (j = 0; j < harmless.num_gpus; ++j) {
            if (i != j) {
                ucx_mp_driver.can_access_peer(&can, harmless.gpus[i].device,
                                              harmless.gpus[j].device);
                harmless.can_peer[i][j] = (can != 0);
            }
        }
    }
    harmless_gpu_use(harmless.home);
}
