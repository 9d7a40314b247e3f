/* SPDX-License-Identifier: BSD-3-Clause */
/* Probe the node once in a process. */
#include <uct/cuda/base/topo.h>

#include <uct/cuda/base/log.h>
#include <uct/cuda/base/wiring.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>


#define MILLI 1e3


static struct {
    pthread_mutex_t       lock; /* order: base/thread.h */
    bool                  is_valid;
    uct_cuda_topo_t       topo;
    const uct_cuda_topo_t *override;
} cached = {.lock = PTHREAD_MUTEX_INITIALIZER};


ucs_status_t uct_cuda_topo_probe(uct_cuda_topo_t *topo, bool details)
{
    uct_cuda_wiring_t *wiring = malloc(sizeof(*wiring));
    double start, end;
    ucs_status_t status;

    if (wiring == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    status = uct_cuda_wiring_probe(wiring, details);
    if (status != UCS_OK) {
        goto out;
    }

    start = uct_cuda_wiring_now();
    uct_cuda_topo_build(wiring, topo);
    end   = uct_cuda_wiring_now();
    uct_cuda_debug("%d GPUs probed: NVML's start %.1f ms, its handles %.1f ms; "
                   "driver %.1f ms, NVML %.1f ms, sysfs %.1f ms, the rest "
                   "%.1f ms",
                   wiring->num_gpus, wiring->times.nvml_load * MILLI,
                   wiring->times.nvml_handles * MILLI,
                   wiring->times.driver * MILLI, wiring->times.nvml * MILLI,
                   wiring->times.host * MILLI, (end - start) * MILLI);
out:
    free(wiring);
    return status;
}

const uct_cuda_topo_t *uct_cuda_topo_get(void)
{
    const uct_cuda_topo_t *topo;

    pthread_mutex_lock(&cached.lock);
    topo = cached.override;
    if (topo == NULL) {
        if (!cached.is_valid) {
            cached.is_valid = (uct_cuda_topo_probe(&cached.topo, false) ==
                               UCS_OK);
        }
        topo = cached.is_valid ? &cached.topo : NULL;
    }
    pthread_mutex_unlock(&cached.lock);

    return topo;
}

bool uct_cuda_topo_is_known(void)
{
    bool is_known;

    /* a holder of the lock may be probing the node */
    if (pthread_mutex_trylock(&cached.lock) != 0) {
        return false;
    }

    is_known = cached.is_valid || (cached.override != NULL);
    pthread_mutex_unlock(&cached.lock);
    return is_known;
}

void uct_cuda_topo_override(const uct_cuda_topo_t *topo)
{
    pthread_mutex_lock(&cached.lock);
    cached.override = topo;
    pthread_mutex_unlock(&cached.lock);
}
