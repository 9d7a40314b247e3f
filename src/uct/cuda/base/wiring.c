/* SPDX-License-Identifier: BSD-3-Clause */
/* Functions shared by the parts of the probe to fill in the wiring. */
#include <uct/cuda/base/wiring.h>

#include <ucs/sys/math.h>
#include <uct/cuda/base/clock.h>

#include <limits.h>
#include <stdio.h>


double uct_cuda_wiring_now(void)
{
    return (double)uct_cuda_now_ns() * 1e-9;
}

bool uct_cuda_bus_id_parse(const char *text, uct_cuda_bus_id_t *bus_id)
{
    unsigned domain, bus, device, function;
    int used = 0;

    if ((sscanf(text, "%8x:%2x:%2x.%1x%n", &domain, &bus, &device, &function,
                &used) != 4) ||
        (text[used] != '\0')) {
        return false;
    }

    bus_id->domain   = domain;
    bus_id->bus      = (uint8_t)bus;
    bus_id->device   = (uint8_t)device;
    bus_id->function = (uint8_t)function;
    return true;
}

bool uct_cuda_bus_id_equal(const uct_cuda_bus_id_t *a,
                           const uct_cuda_bus_id_t *b)
{
    return (a->domain == b->domain) && (a->bus == b->bus) &&
           (a->device == b->device) && (a->function == b->function);
}

const char *uct_cuda_bus_id_str(const uct_cuda_bus_id_t *bus_id, char *buffer,
                                size_t size)
{
    snprintf(buffer, size, "%04x:%02x:%02x.%x", bus_id->domain, bus_id->bus,
             bus_id->device, bus_id->function);
    return buffer;
}

int uct_cuda_wiring_numa(uct_cuda_wiring_t *wiring, int os_index)
{
    int i;

    for (i = 0; i < wiring->num_numa; ++i) {
        if (wiring->numa[i].os_index == os_index) {
            return i;
        }
    }

    if ((os_index < 0) || (wiring->num_numa == UCT_CUDA_TOPO_MAX_NUMA)) {
        return UCT_CUDA_WIRING_NONE;
    }

    /* unknown: a socket of its own */
    wiring->numa[i].os_index = os_index;
    wiring->numa[i].socket   = -1 - os_index;
    ++wiring->num_numa;
    return i;
}

void uct_cuda_wiring_add_nvlink(uct_cuda_wiring_gpu_t *gpu,
                                uct_cuda_wiring_end_t end, int peer,
                                const uct_cuda_bus_id_t *bus_id)
{
    uct_cuda_wiring_peer_t *entry;
    unsigned i;

    for (i = 0; i < gpu->num_peers; ++i) {
        entry = &gpu->peers[i];
        if ((entry->end == end) && (entry->gpu == peer) &&
            uct_cuda_bus_id_equal(&entry->bus_id, bus_id)) {
            ++entry->count;
            return;
        }
    }

    if (gpu->num_peers < UCT_CUDA_WIRING_MAX_PEERS) {
        entry         = &gpu->peers[gpu->num_peers++];
        entry->end    = end;
        entry->gpu    = peer;
        entry->count  = 1;
        entry->bus_id = *bus_id;
    }
}

/* Return the equivalent number of lanes of generation 1 */
static unsigned signalling(const uct_cuda_wiring_pcie_t *pcie)
{
    return ((pcie->generation > 0) && (pcie->generation < 16)) ?
                   pcie->width << (pcie->generation - 1) :
                   0;
}

bool uct_cuda_wiring_is_slow(const uct_cuda_wiring_pcie_t *pcie,
                             const uct_cuda_wiring_pcie_t *other)
{
    return (signalling(pcie) > 0) &&
           (signalling(pcie) * 4 < signalling(other));
}

/* NVIDIA's data sheets: V100 3, A100 4, H100 and B200 5 */
static uct_cuda_wiring_pcie_t pcie_of_generation(int sm)
{
    const uct_cuda_wiring_pcie_t none = {0, 0};
    const uct_cuda_wiring_pcie_t pcie = {(sm >= 90) ? 5 : (sm >= 80) ? 4 : 3,
                                         16};

    return (sm > 0) ? pcie : none;
}

/* PCIe generation of a GPU by capability; only of GPUs without later models of
 * the same capability */
static unsigned newest_generation(int sm)
{
    return ((sm > 0) && (sm < 90)) ? pcie_of_generation(sm).generation :
                                     UINT_MAX;
}

bool uct_cuda_wiring_believe(const uct_cuda_wiring_gpu_t *gpu,
                             uct_cuda_wiring_pcie_t *pcie_p)
{
    uct_cuda_wiring_pcie_t best = pcie_of_generation(gpu->sm);
    uct_cuda_wiring_pcie_t raw;
    bool is_slow;

    if ((signalling(&gpu->pcie_own) > signalling(&best)) ||
        (signalling(&best) == 0)) {
        best = gpu->pcie_own;
    }
    if (signalling(&gpu->pcie) == 0) {
        *pcie_p = best;
        return false;
    }

    raw             = gpu->pcie;
    raw.generation  = ucs_min(raw.generation, newest_generation(gpu->sm));

    /* a slot may be narrow: then no more lanes are in use, idle or not */
    if ((gpu->lanes > 0) && (gpu->lanes <= raw.width)) {
        best.width = ucs_min(best.width, raw.width);
    }

    /* no board for such GPUs has PCIe 1, but links in a power-saving state
     * report it */
    is_slow = uct_cuda_wiring_is_slow(&raw, &best) ||
              ((raw.generation == 1) && (best.generation > 2));
    *pcie_p = is_slow ? best : raw;
    return is_slow;
}
