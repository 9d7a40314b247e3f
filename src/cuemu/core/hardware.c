/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Constants of hardware generations.
 *
 * Sources, named in the tables by their letter:
 *  H  measured on 4 x H200 behind NVSwitch, PCIe 5, driver 580 (2026): direct
 *     copies of 1 to 1024 MiB, host copies, costs of driver calls, graphs
 *  C  Pearson et al., "Evaluating Characteristics of CUDA Communication
 *     Primitives on High-Bandwidth Interconnects" (Comm|Scope), 2019: AC922,
 *     S822LC, 4029GP
 *  T  Temucin et al., multi-path UCX on Mist and Cedar, 2021: single-path UCX
 *     puts of 72 GB/s over three NVLink 2 links, 45 GB/s over two
 *  S  Sojoodi et al., multi-path UCX on Beluga and Narval: topology, two
 *     NVLinks a pair of V100s, four a pair of A100s; no rates
 *  D  Dell EMC Ready Solutions for AI, V100-SXM2, C4130 configuration K: 47.88
 *     to 47.93 GB/s over two NVLinks, twice that both ways
 *     (p2pBandwidthLatencyTest)
 *  P  p2pBandwidthLatencyTest of 8 x A100-SXM4-80GB, LLMServe/DistServe issue 3
 *     (2024): the processor takes 2.2 to 2.8 us for a copy, median 2.3; one
 *     after the other small copies take 2.5 to 3.3 us
 *  V  vendor's data sheet or specification
 *  A  assumption by analogy, no measurement at hand
 */

#include "hardware.h"

#include <string.h>

/*
 * Names, memory, multiprocessors, link versions and signalling rates: V. NVLink
 * 1: 20 GB/s a link, 90 % of it: A from C's figure for AC922. NVLink 2: 24
 * GB/s: T, D, and C (72 GB/s over three links, "95 % of peak"). NVLink 3: 25
 * GB/s a link, 93 % of it: A. NVLink 4: 397 GB/s over 18 links for one copy: H.
 * NVLink 5: twice NVLink 4: A. Copies inside a GPU read and write its memory:
 * 0.43 of V's rate, A. PCIe: V.
 */
static const cuemu_gpu_model_t cuemu_gpu_models[] = {
    {100, "NVIDIA B200",           183359, 148, 5, 50000, 44.11, 3400, 32},
    { 90, "NVIDIA H100 80GB HBM3",  81559, 132, 4, 26562, 22.056, 1440, 32},
    { 80, "NVIDIA A100-SXM4-40GB",  40960, 108, 3, 25000, 23.25, 670, 16},
    { 70, "Tesla V100-SXM2-16GB",   16160,  80, 2, 25781, 24.0, 385, 8},
    { 60, "Tesla P100-SXM2-16GB",   16280,  56, 1, 19531, 18.0, 315, 8},
    {  0, "Tesla K80",              11441,  13, 0,     0,  0.0, 100, 8}
};

const cuemu_gpu_model_t *cuemu_gpu_model(int sm)
{
    const cuemu_gpu_model_t *model = cuemu_gpu_models;

    while (model->sm > sm) {
        ++model;
    }
    return model;
}

int cuemu_shared_bytes(int sm, int *reserved_p)
{
    /* programming guide, table of technical specifications; newest first */
    static const struct {
        int sm, bytes, reserved;
    } sizes[] = {
        {120, 101376, 1024}, {90, 232448, 1024}, {88, 101376, 1024},
        {87, 166912, 1024},  {86, 101376, 1024}, {80, 166912, 1024},
        {75, 65536, 0},      {0, 98304, 0}
    };
    int i = 0;

    while (sm < sizes[i].sm) {
        ++i;
    }
    if (reserved_p != NULL) {
        *reserved_p = sizes[i].reserved;
    }
    return sizes[i].bytes;
}

/*
 * Generation 5: 55 GB/s over 16 lanes, H. Generation 3: 12.5 over 16, C's
 * 4029GP. Generation 4: twice generation 3, A. 1 and 2: half of each other, A.
 */
double cuemu_pcie_lane_gbps(double gtps, int *gen_p)
{
    static const struct {
        double gtps;
        double lane_gbps;
    } pcie[] = {
        { 2.5, 0.195}, { 5.0, 0.39}, { 8.0, 0.78125}, {16.0, 1.5625},
        {32.0, 3.4375}, {64.0, 6.875}
    };
    int i;

    for (i = 0; i < (int)(sizeof(pcie) / sizeof(pcie[0])); ++i) {
        if ((gtps > pcie[i].gtps * 0.95) && (gtps < pcie[i].gtps * 1.05)) {
            *gen_p = i + 1;
            return pcie[i].lane_gbps;
        }
    }
    *gen_p = 0;
    return 0;
}

/* The same share of the signalling rate as a copy gets of NVLink 4's, 397 of
   478: A */
double cuemu_c2c_gbps(double mbps)
{
    return mbps * 1e-3 * 397 / 478;
}

/*
 * arm64 is Grace: LPDDR5X of 512 GB/s (V), four fifths of it for devices, A;
 * 100 GB/s between two of them, A; one of its threads copies 20 GB/s, A; GPUs
 * of two superchips without NVLink between them are no peers (nvidia-smi topo
 * of two GH200 480GB).
 * ppc64: 41 GB/s across the X-bus, C; memory 135 GB/s a socket (V: 170), A.
 * x86_64: 3 UPI links of 10.4 GB/s one way, two thirds of it usable: C saw no
 * loss at PCIe 3 rates; memory of a socket with six DDR4-2666/2933 channels, A.
 * Pageable copies are limited by one CPU thread: C; 12 GB/s, H.
 */
static const cuemu_host_model_t cuemu_host_models[] = {
    {"arm64",   400, 400, 100, 20, 999},
    {"ppc64",   120, 120, 41, 10,  70},
    {"x86_64",  100,  80, 20, 12, 999},
    {NULL,       60,  60, 20, 10, 999}
};

const cuemu_host_model_t *cuemu_host_model(const char *arch)
{
    const cuemu_host_model_t *model = cuemu_host_models;

    while ((model->arch != NULL) &&
           (strncmp(arch, model->arch, strlen(model->arch)) != 0)) {
        ++model;
    }
    return model;
}

/*
 * H. An 8-byte copy with event and polling takes 8.0 us (GPU to GPU), 6.6 us
 * (pinned host to GPU) and 8.2 us (back). Subtract 2.9 of submission and 1.5
 * for the query that returns SUCCESS. Splitting a copy over 8 streams costs 2.7
 * us a stream; this part occupies the link. Pageable: plain copies of 8 bytes
 * take 5.8 and 10.6 us. Older GPUs: the same, A; consistent with P's 2.5 to 3.3
 * us between small copies of an A100.
 */
const cuemu_copy_model_t cuemu_copy_models[CUEMU_ROUTE_LAST] = {
    [CUEMU_ROUTE_LOCAL]        = {"local",        0.4, 1.2, 0.5},
    [CUEMU_ROUTE_PEER]         = {"peer",         0.4, 2.7, 0.5},
    [CUEMU_ROUTE_STAGED]       = {"staged",       0.8, 5.4, 1.0},
    [CUEMU_ROUTE_H2D]          = {"h2d",          0.4, 1.5, 0.3},
    [CUEMU_ROUTE_D2H]          = {"d2h",          0.5, 2.7, 0.6},
    [CUEMU_ROUTE_PAGEABLE_H2D] = {"pageable-h2d", 0.4, 1.9, 0.6},
    [CUEMU_ROUTE_PAGEABLE_D2H] = {"pageable-d2h", 0.5, 5.7, 1.5},
    [CUEMU_ROUTE_HOST]         = {"host",         0.0, 0.1, 0.0}
};

/* H unless marked. Batches: 8 and 32 copies of 64 KiB by one call take 5.5 and
   19.8 us (docs/results/logs/h200-x2-blocks.txt). */
const cuemu_call_model_t cuemu_call_models[CUEMU_CALL_LAST] = {
    [CUEMU_CALL_COPY_ASYNC]        = {"copy-async",        2.9},
    [CUEMU_CALL_COPY_BATCH]        = {"copy-batch",        0.7},
    [CUEMU_CALL_COPY_OF_BATCH]     = {"copy-of-batch",     0.6},
    [CUEMU_CALL_KERNEL]            = {"kernel",            2.5},  /* A */
    [CUEMU_CALL_EVENT_RECORD]      = {"event-record",      0.35},
    [CUEMU_CALL_STREAM_WAIT]       = {"stream-wait",       0.33},
    [CUEMU_CALL_QUERY_DONE]        = {"query-done",        1.5},
    [CUEMU_CALL_QUERY_BUSY]        = {"query-busy",        0.3},  /* A */
    [CUEMU_CALL_CTX_SWITCH]        = {"ctx-switch",        0.12},
    [CUEMU_CALL_POINTER_ATTR]      = {"pointer-attr",      0.14},
    [CUEMU_CALL_POINTER_ATTR_HOST] = {"pointer-attr-host", 0.26},
    [CUEMU_CALL_ADDRESS_RANGE]     = {"address-range",     0.15},
    [CUEMU_CALL_IPC_GET]           = {"ipc-get",           0.10},
    [CUEMU_CALL_IPC_OPEN]          = {"ipc-open",          46},
    [CUEMU_CALL_IPC_CLOSE]         = {"ipc-close",         36},
    [CUEMU_CALL_EVENT_CREATE]      = {"event-create",      0.2},
    [CUEMU_CALL_STREAM_CREATE]     = {"stream-create",     3.9},
    [CUEMU_CALL_MEM_ALLOC]         = {"mem-alloc",         150},
    [CUEMU_CALL_MEM_FREE]          = {"mem-free",          155},
    [CUEMU_CALL_HOST_REGISTER]     = {"host-register",     300},
    [CUEMU_CALL_HOST_UNREGISTER]   = {"host-unregister",   50},   /* A */
    [CUEMU_CALL_GRAPH_ADD_NODE]    = {"graph-add-node",    0.4},
    [CUEMU_CALL_GRAPH_INSTANTIATE] = {"graph-instantiate", 30},
    [CUEMU_CALL_GRAPH_LAUNCH]      = {"graph-launch",      0.7},
    [CUEMU_CALL_GRAPH_UPDATE_NODE] = {"graph-update-node", 0.6},
    /* H: 140000 to 240000. 0 because it would delay the start of each process;
       a node file about first messages sets it (<cuemu set="cost">) */
    [CUEMU_CALL_CONTEXT]           = {"context",           0},
    /* 0 likewise. Two H100, driver 580.159.04: a thread creates a context on
       another GPU in 165 to 303 ms. Calls of the thread that sends messages
       stand still once, near the end, for 7.3, 18.9 and 20.6 ms. */
    [CUEMU_CALL_CONTEXT_HOLD]      = {"context-hold",      0}
};

cuemu_time_t cuemu_us(double us)
{
    return (cuemu_time_t)(us * (double)CUEMU_PS_PER_US + 0.5);
}

void cuemu_cost_defaults(cuemu_cost_t *cost, int sm)
{
    int i;

    for (i = 0; i < CUEMU_CALL_LAST; ++i) {
        cost->call[i] = cuemu_us(cuemu_call_models[i].us);
    }

    if ((sm >= 80) && (sm < 90)) {
        cost->call[CUEMU_CALL_COPY_ASYNC] = cuemu_us(2.3); /* P */
    }

    /* H: registering 1/16/64 MiB takes 358/1655/3946 us, unregistering 64 MiB
       1550 us */
    cost->host_register_rate     = 17.5e9;
    cost->host_unregister_rate   = 44.7e9;
    /* H: graphs of 1 to 64 copies, fitted within 25 %. Launching 16 takes 19.7
       us on one machine and 35.3 us on another: a value between these */
    cost->graph_instantiate_node = cuemu_us(1.9);
    cost->graph_launch_node      = cuemu_us(1.68);
    cost->graph_first_launch     = cuemu_us(8);
    /* H: each chunk of a staged chain takes so much longer than its copies
       alone */
    cost->cross_stream           = cuemu_us(1.5);
    cost->kernel                 = cuemu_us(2.0); /* A */
    /* node files with a measured value set it (h200-x2) */
    cost->pull                   = 0;
}
