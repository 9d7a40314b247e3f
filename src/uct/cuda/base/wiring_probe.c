/* SPDX-License-Identifier: BSD-3-Clause */
/* The probe: driver, NVML and sysfs, and a report of missing data. */
#include <uct/cuda/base/wiring.h>

#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/log.h>

#include <stdlib.h>
#include <string.h>


/* Log missing data, for a user looking for a missing path */
static void say_what_is_missing(const uct_cuda_wiring_t *wiring)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    const uct_cuda_wiring_gpu_t *gpu;
    char text[32];
    unsigned p;
    int i, j;

    if (wiring->num_hidden > 0) {
        uct_cuda_debug("%d more GPU%s in this node that this process may not "
                       "use (CUDA_VISIBLE_DEVICES%s%s): no path uses them",
                       wiring->num_hidden, (wiring->num_hidden > 1) ? "s" : "",
                       (visible != NULL) ? "=" : " is not set",
                       (visible != NULL) ? visible : "");
    }

    if (!wiring->has_nvml && (wiring->num_gpus > 1)) {
        uct_cuda_debug("no NVML: numbers and speeds of NVLinks are assumed");
    }

    if (!wiring->has_pci && (wiring->num_gpus > 1)) {
        uct_cuda_debug("sysfs does not show every GPU: their shared PCIe "
                       "switches are %s",
                       wiring->has_nvml ? "as reported by NVML" :
                                          "unknown");
    }

    for (i = 0; i < wiring->num_gpus; ++i) {
        gpu = &wiring->gpus[i];
        if (gpu->is_mig) {
            uct_cuda_debug("gpu%d is a slice (MIG): it has no peers and no "
                           "NVLinks",
                           i);
        }
        if (gpu->nvlinks_down > 0) {
            uct_cuda_debug("gpu%d: %u NVLink%s not active", i,
                           gpu->nvlinks_down,
                           (gpu->nvlinks_down > 1) ? "s are" : " is");
        }
        for (p = 0; p < gpu->num_peers; ++p) {
            if (gpu->peers[p].end == UCT_CUDA_WIRING_HIDDEN) {
                uct_cuda_debug("gpu%d: %u NVLink%s to %s, which this process "
                               "may not use",
                               i, gpu->peers[p].count,
                               (gpu->peers[p].count > 1) ? "s lead" : " leads",
                               uct_cuda_bus_id_str(&gpu->peers[p].bus_id, text,
                                                   sizeof(text)));
            }
        }
        for (j = i + 1; j < wiring->num_gpus; ++j) {
            if (!wiring->access[i][j] || !wiring->access[j][i]) {
                uct_cuda_debug("gpu%d and gpu%d have no peer access", i, j);
            }
        }
    }
}

ucs_status_t uct_cuda_wiring_probe(uct_cuda_wiring_t *wiring, bool details)
{
    double start = uct_cuda_wiring_now();
    ucs_status_t status;
    double now;

    memset(wiring, 0, sizeof(*wiring));
    (void)uct_cuda_driver_get();
    now                       = uct_cuda_wiring_now();
    wiring->times.driver_load = now - start;
    status                    = uct_cuda_wiring_read_driver(wiring, details);
    if (status != UCS_OK) {
        return status;
    }

    wiring->times.driver = uct_cuda_wiring_now() - now;

    start = uct_cuda_wiring_now();
    uct_cuda_wiring_read_host(wiring);
    wiring->times.host = uct_cuda_wiring_now() - start;

    /* a single GPU has no other paths: do not load NVML */
    if ((wiring->num_gpus > 1) || details) {
        uct_cuda_wiring_read_nvml(wiring, details);
    }

    if (!wiring->has_pci && wiring->has_nvml) {
        uct_cuda_wiring_read_nvml_switches(wiring);
    }

    say_what_is_missing(wiring);
    return UCS_OK;
}
