/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measure the bandwidth of single links, and of sets of paths with several
 * links each: by events around the copies, or by the clock for copies of
 * pageable memory, which block.
 */
#include "tool.h"

#include <uct/cuda/plan/transfer_planner.h>
#include <uct/cuda/plan/transfer_steps.h>

#include <ucs/sys/math.h>

#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>


#define MAX_PATHS (UCT_CUDA_MAX_GPUS + 2)
#define CHUNKS    16u /* chunks of a staged path without a plan */

#define TUNING_FILE "UCX_CUDA_IPC_MULTIPATH_TUNING_FILE"


/* A path from one GPU to another, with its resources for one message */
typedef struct {
    int         relay;      /* GPU; VIA_HOST or DIRECT */
    size_t      bytes;
    size_t      chunk;      /* bytes of its chunks but the last */
    int         last;       /* GPU that copies the last hop */
    CUdeviceptr staging;    /* each chunk has its own: it never waits for a
                               slot */
    CUstream    streams[2]; /* of the hops; one of a direct path */
    CUevent     hopped[UCT_CUDA_PLAN_MAX_CHUNKS];
    CUevent     ended;
} path_t;

enum {
    DIRECT   = -1,
    VIA_HOST = -2
};

typedef struct {
    int         src;
    CUdeviceptr from, to;
    path_t      *paths;
    unsigned    count;
} message_t;


static const uct_cuda_topo_t *topo;
static const ucx_mp_perf_options_t *options;


static int relay_of(uct_cuda_end_t via)
{
    return uct_cuda_end_is_none(via) ? DIRECT :
           uct_cuda_end_is_gpu(via)  ? uct_cuda_end_device(via) :
                                       VIA_HOST;
}

static bool has_link(int from, int to)
{
    return topo->links[from][to].bandwidth > 0;
}

static void path_open(path_t *path, int src, int dst)
{
    unsigned i;

    path->last       = src;
    path->streams[0] = path->streams[1] = ucx_mp_perf_stream(src);
    if (path->relay != DIRECT) {
        for (i = 0; i < UCT_CUDA_PLAN_MAX_CHUNKS; ++i) {
            path->hopped[i] = ucx_mp_perf_event(src);
        }
        path->last       = (path->relay == VIA_HOST) ? dst : path->relay;
        path->streams[1] = ucx_mp_perf_stream(path->last);
        path->staging    = (path->relay == VIA_HOST) ?
                                   (CUdeviceptr)ucx_mp_perf_alloc_host(
                                           src, path->bytes) :
                                   ucx_mp_perf_alloc(path->relay, path->bytes);
    }
    path->ended = ucx_mp_perf_event(path->last);
}

static void path_close(const path_t *path)
{
    unsigned i;

    UCX_MP_PERF_CALL(cuEventDestroy, path->ended);
    UCX_MP_PERF_CALL(cuStreamDestroy, path->streams[0]);
    if (path->relay == DIRECT) {
        return;
    }

    UCX_MP_PERF_CALL(cuStreamDestroy, path->streams[1]);
    for (i = 0; i < UCT_CUDA_PLAN_MAX_CHUNKS; ++i) {
        UCX_MP_PERF_CALL(cuEventDestroy, path->hopped[i]);
    }
    if (path->relay == VIA_HOST) {
        ucx_mp_perf_free_host((void*)path->staging, path->bytes);
    } else {
        UCX_MP_PERF_CALL(cuMemFree, path->staging);
    }
}

static void copy(int gpu, CUdeviceptr to, CUdeviceptr from, size_t bytes,
                 CUstream stream)
{
    ucx_mp_perf_use(gpu);
    UCX_MP_PERF_CALL(cuMemcpyAsync, to, from, bytes, stream);
}

static void chunk_submit(const message_t *message, const path_t *path,
                         size_t offset, unsigned number)
{
    const size_t done     = number * path->chunk;
    const size_t bytes    = ucs_min(path->bytes - done, path->chunk);
    const CUdeviceptr to  = message->to + offset + done;
    const CUdeviceptr hop = (path->relay == DIRECT) ? to :
                                                      path->staging + done;

    copy(message->src, hop, message->from + offset + done, bytes,
         path->streams[0]);
    if (path->relay != DIRECT) {
        UCX_MP_PERF_CALL(cuEventRecord, path->hopped[number],
                         path->streams[0]);
        ucx_mp_perf_use(path->last);
        UCX_MP_PERF_CALL(cuStreamWaitEvent, path->streams[1],
                         path->hopped[number], 0);
        copy(path->last, to, hop, bytes, path->streams[1]);
    }
}

/* Submit the paths' chunks alternately, so that no path waits for the others'
   submission, and wait until the last copy of each path is seen to have ended.
   Times are by the clock: events would add the time that streams wait for each
   other */
static void message_send(const message_t *message)
{
    const path_t *end = message->paths + message->count;
    const path_t *path;
    unsigned number;
    size_t offset;

    for (number = 0; number < UCT_CUDA_PLAN_MAX_CHUNKS; ++number) {
        offset = 0;
        for (path = message->paths; path < end; ++path) {
            if (number * path->chunk < path->bytes) {
                chunk_submit(message, path, offset, number);
            }
            offset += path->bytes;
        }
    }

    for (path = message->paths; path < end; ++path) {
        ucx_mp_perf_use(path->last);
        UCX_MP_PERF_CALL(cuEventRecord, path->ended, path->streams[1]);
    }
    for (path = message->paths; path < end; ++path) {
        ucx_mp_perf_wait(path->ended);
    }
}

/* Measure a message over a set of paths. */
static void measure_set(const char *what, const char *via, int src, int dst,
                        path_t *paths, unsigned count, size_t size)
{
    static ucx_mp_perf_series_t series;
    message_t message = {.src = src, .paths = paths, .count = count};
    unsigned i;

    message.from = ucx_mp_perf_alloc(src, size);
    message.to   = ucx_mp_perf_alloc(dst, size);
    for (i = 0; i < count; ++i) {
        path_open(&paths[i], src, dst);
    }

    UCX_MP_PERF_MEASURE(&series, options->repeats, message_send(&message),
                        (void)0);
    ucx_mp_perf_report_rate(what, src, dst, via, size, (double)size, &series);

    for (i = 0; i < count; ++i) {
        path_close(&paths[i]);
    }
    UCX_MP_PERF_CALL(cuMemFree, message.from);
    UCX_MP_PERF_CALL(cuMemFree, message.to);
}

/* Measure all sizes; shares are proportional to the links' bandwidths. */
static void measure_paths(const char *what, const char *via, int src, int dst,
                          const path_t *wanted, unsigned count)
{
    path_t paths[MAX_PATHS];
    double rates[MAX_PATHS], total = 0;
    size_t size, rest, least;
    unsigned i, n;

    for (i = 0; i < count; ++i) {
        paths[i] = wanted[i];
        rates[i] = (paths[i].relay == DIRECT) ?
                           topo->links[src][dst].bandwidth :
                   (paths[i].relay == VIA_HOST) ?
                           topo->gpus[src].to_host.bandwidth :
                           topo->links[src][paths[i].relay].bandwidth;
        total   += rates[i];
    }

    for (n = 0; n < options->num_sizes; ++n) {
        size  = options->sizes[n];
        rest  = size;
        least = size;
        for (i = count; i-- > 1;) {
            paths[i].bytes = (size_t)(size * rates[i] / total) & ~4095ul;
            rest          -= paths[i].bytes;
            least          = ucs_min(least, paths[i].bytes);
        }
        if (least == 0) {
            continue; /* too small for a page on each path */
        }
        paths[0].bytes = rest;
        for (i = 0; i < count; ++i) {
            paths[i].chunk = (paths[i].relay == DIRECT) ?
                                     paths[i].bytes :
                                     (paths[i].bytes / CHUNKS + 4095) & ~4095ul;
        }
        measure_set(what, via, src, dst, paths, count, size);
    }
}

/* Measure the plan of a single message, with this node's table of constants if
   there is one; a plan of one path uses this path */
static void measure_planned(int src, int dst)
{
    static uct_cuda_plan_t plan;
    static uct_cuda_plan_config_t config;
    const uct_cuda_plan_load_t idle = {.is_known = true,
                                       .uncrossed  = UINT64_MAX};
    const char *table               = getenv(TUNING_FILE);
    uct_cuda_plan_tuning_t *tuning  = NULL;
    uct_cuda_plan_knowledge_t know  = {
        .topo = topo, .config = &config, .load = &idle
    };
    const uct_cuda_plan_path_share_t *planned;
    path_t paths[UCT_CUDA_PLAN_MAX_PATHS];
    char via[256], error[512];
    unsigned i, n;

    uct_cuda_plan_config_init(&config);
    (void)uct_cuda_plan_tuning_get((table != NULL) ? table : config.tuning_file,
                                   topo, error, sizeof(error), &tuning);
    know.tuning = tuning;
    for (n = 0; n < options->num_sizes; ++n) {
        if (options->sizes[n] > uct_cuda_plan_max_size(&config)) {
            continue; /* sent piece by piece */
        }

        uct_cuda_plan_make(&know, uct_cuda_end_gpu(src),
                           uct_cuda_end_gpu(dst), options->sizes[n], &plan);
        if (plan.num_paths == 0) {
            uct_cuda_plan_single(uct_cuda_end_gpu(src),
                                 uct_cuda_end_gpu(dst), uct_cuda_end_none(),
                                 options->sizes[n], &plan);
        }

        for (i = 0; i < plan.num_paths; ++i) {
            planned  = &plan.paths[i];
            paths[i] = (path_t){.relay = relay_of(planned->via),
                                .bytes = planned->bytes,
                                .chunk = planned->chunk};
            if (paths[i].relay == DIRECT) {
                paths[i].chunk = paths[i].bytes;
            }
        }
        measure_set("planned",
                    uct_cuda_plan_paths_str(&plan, via, sizeof(via)), src, dst,
                    paths, plan.num_paths, options->sizes[n]);
    }
    free(tuning);
}

/* Measure copies at the same time, and report the sum of their rates. `via`
   names the copies that run at the same time as the first one. */
static void measure_at_once(const char *what, const char *via,
                            const ucx_mp_perf_hop_t *hops, unsigned count,
                            int numa)
{
    static ucx_mp_perf_series_t series;
    unsigned n;
    size_t size;

    for (n = 0; n < options->num_sizes; ++n) {
        size = options->sizes[n];
        ucx_mp_perf_copies(hops, count, numa, size, options->repeats, &series);
        ucx_mp_perf_report_rate(what, hops[0].from, hops[0].to, via, size,
                                (double)count * (double)size, &series);
    }
}

static void measure_both_ways(int a, int b)
{
    measure_at_once("both ways", "", (ucx_mp_perf_hop_t[]){{a, b}, {b, a}}, 2,
                    UCX_MP_PERF_NEAR);
}

/* Memory on another NUMA node than the GPU's, the one of another GPU */
static void measure_far_host(int gpu)
{
    int numa = UCX_MP_PERF_NEAR, i;
    char via[32];

    for (i = 0; (i < topo->num_gpus) && (numa == UCX_MP_PERF_NEAR); ++i) {
        if (topo->gpus[i].numa != topo->gpus[gpu].numa) {
            numa = topo->gpus[i].numa;
        }
    }
    if ((numa == UCX_MP_PERF_NEAR) ||
        (syscall(SYS_get_mempolicy, NULL, NULL, 0ul, NULL, 0ul) != 0)) {
        return; /* memory cannot be placed, as in some containers */
    }

    snprintf(via, sizeof(via), "NUMA node %d", numa);
    measure_at_once("far memory", via,
                    &(ucx_mp_perf_hop_t){UCX_MP_PERF_HOST, gpu}, 1, numa);
    measure_at_once("far memory", via,
                    &(ucx_mp_perf_hop_t){gpu, UCX_MP_PERF_HOST}, 1, numa);
}

/* All GPUs with the host, and a ring of GPUs, at the same time */
static void measure_all_gpus(void)
{
    ucx_mp_perf_hop_t down[UCT_CUDA_MAX_GPUS], up[UCT_CUDA_MAX_GPUS];
    ucx_mp_perf_hop_t ring[UCT_CUDA_MAX_GPUS];
    const int num_gpus = topo->num_gpus;
    unsigned links     = 0;
    int i;

    for (i = 0; i < num_gpus; ++i) {
        down[i] = (ucx_mp_perf_hop_t){UCX_MP_PERF_HOST, i};
        up[i]   = (ucx_mp_perf_hop_t){i, UCX_MP_PERF_HOST};
        ring[i] = (ucx_mp_perf_hop_t){i, (i + 1) % num_gpus};
        links  += has_link(i, ring[i].to);
    }

    measure_at_once("at once", "all GPUs", down, num_gpus, UCX_MP_PERF_NEAR);
    measure_at_once("at once", "all GPUs", up, num_gpus, UCX_MP_PERF_NEAR);
    if ((num_gpus > 2) && (links == (unsigned)num_gpus)) {
        measure_at_once("at once", "ring of all GPUs", ring, num_gpus,
                        UCX_MP_PERF_NEAR);
    }
}

static void measure_host(int gpu, bool is_pinned, bool is_up)
{
    static ucx_mp_perf_series_t series;
    const char *what = is_pinned ? "page-locked" : "pageable";
    CUdeviceptr memory;
    CUstream stream;
    CUevent begin, end;
    double started;
    unsigned i, n;
    size_t size;
    void *host;
    float ms;

    for (n = 0; n < options->num_sizes; ++n) {
        size   = options->sizes[n];
        memory = ucx_mp_perf_alloc(gpu, size);
        host   = is_pinned ? ucx_mp_perf_alloc_host(gpu, size) :
                             aligned_alloc(4096, (size + 4095) & ~4095ul);
        if (host == NULL) {
            ucx_mp_tool_die(UCX_MP_TOOL_FAILED, "cannot allocate %zu bytes",
                            size);
        }

        memset(host, 1, size);
        stream       = ucx_mp_perf_stream(gpu);
        begin        = ucx_mp_perf_event(gpu);
        end          = ucx_mp_perf_event(gpu);
        series.count = 0;
        for (i = 0; (i < UCX_MP_PERF_WARM_UP + options->repeats) ||
             !ucx_mp_perf_is_certain(&series); ++i) {
            started = ucx_mp_perf_now();
            UCX_MP_PERF_CALL(cuEventRecord, begin, stream);
            if (is_up) {
                UCX_MP_PERF_CALL(cuMemcpyDtoHAsync, host, memory, size, stream);
            } else {
                UCX_MP_PERF_CALL(cuMemcpyHtoDAsync, memory, host, size, stream);
            }
            UCX_MP_PERF_CALL(cuEventRecord, end, stream);
            UCX_MP_PERF_CALL(cuEventSynchronize, end);
            UCX_MP_PERF_CALL(cuEventElapsedTime, &ms, begin, end);
            series.samples[series.count] =
                    is_pinned ? ms * 1e-3 : ucx_mp_perf_now() - started;
            series.count += (i >= UCX_MP_PERF_WARM_UP);
        }

        ucx_mp_perf_report_rate(what, is_up ? gpu : -1, is_up ? -1 : gpu, "",
                                size, (double)size, &series);
        UCX_MP_PERF_CALL(cuEventDestroy, begin);
        UCX_MP_PERF_CALL(cuEventDestroy, end);
        UCX_MP_PERF_CALL(cuStreamDestroy, stream);
        UCX_MP_PERF_CALL(cuMemFree, memory);
        if (is_pinned) {
            ucx_mp_perf_free_host(host, size);
        } else {
            free(host);
        }
    }
}

static void measure_sets(int src, int dst)
{
    const path_t beside_host[] = {{.relay = DIRECT}, {.relay = VIA_HOST}};
    path_t paths[MAX_PATHS];
    unsigned count = 0;
    char via[128]  = "direct"; /* and 14 times ",gpu15" */
    size_t length;
    int gpu;

    measure_paths("set", "direct,host", src, dst, beside_host, 2);
    paths[count++] = (path_t){.relay = DIRECT};
    for (gpu = 0; gpu < topo->num_gpus; ++gpu) {
        if ((gpu == src) || (gpu == dst) || !has_link(src, gpu) ||
            !has_link(gpu, dst)) {
            continue;
        }

        length = strlen(via);
        snprintf(via + length, sizeof(via) - length, ",gpu%d", gpu);
        paths[count++] = (path_t){.relay = gpu};
        measure_paths("set", via, src, dst, paths, count);
    }

    if (count > 1) {
        length = strlen(via);
        snprintf(via + length, sizeof(via) - length, ",host");
        paths[count++] = (path_t){.relay = VIA_HOST};
        measure_paths("set", via, src, dst, paths, count);
    }

    measure_planned(src, dst);
    printf("sets: shares as the links' GB/s, %u chunks each, by streams; "
           "planned: as\nfor a single message (ucx_mp_topo --plan %d "
           "%d SIZE)\n", CHUNKS, src, dst);
}

static void print_heads(const char *title)
{
    ucx_mp_perf_report_part(title);
    printf("%-12s %-5s -> %-5s %-22s %11s %8s\n", "what", "from", "to", "over",
           "bytes", "GB/s");
}

void ucx_mp_perf_apart(const ucx_mp_perf_options_t *asked)
{
    options = asked;
    if (options->src != options->dst) {
        print_heads("GPUs without access to each other's memory, GB/s");
        ucx_mp_perf_report_step("a pair of GPUs without access");
        measure_at_once("no access", "driver",
                        &(ucx_mp_perf_hop_t){options->src, options->dst}, 1,
                        UCX_MP_PERF_NEAR);
    }
}

void ucx_mp_perf_links(const uct_cuda_topo_t *node,
                       const ucx_mp_perf_options_t *asked)
{
    const path_t direct = {.relay = DIRECT};
    int src             = asked->src;
    int dst             = asked->dst;
    int num_gpus, i, j;
    path_t path;
    char via[32];

    topo     = node;
    options  = asked;
    num_gpus = topo->num_gpus;
    print_heads("Links, GB/s (10^9 bytes/s): median (min..max)");

    ucx_mp_perf_report_step("host and GPU, page-locked");
    for (i = 0; i < (options->quick ? 1 : num_gpus); ++i) {
        measure_host(i, true, false);
        measure_host(i, true, true);
    }

    ucx_mp_perf_report_step("host and GPU, pageable");
    measure_host(src, false, false);
    measure_host(src, false, true);

    ucx_mp_perf_report_step("host and GPU, both ways");
    for (i = 0; i < (options->quick ? 1 : num_gpus); ++i) {
        measure_both_ways(UCX_MP_PERF_HOST, i);
    }

    ucx_mp_perf_report_step("host memory on another NUMA node");
    measure_far_host(src);
    if (num_gpus == 1) {
        return;
    }

    ucx_mp_perf_report_step("all GPUs at once");
    measure_all_gpus();

    ucx_mp_perf_report_step("pairs of GPUs");
    for (i = 0; i < num_gpus; ++i) {
        for (j = 0; j < num_gpus; ++j) {
            if ((i != j) && has_link(i, j) &&
                (!options->quick || (i == src))) {
                measure_paths("direct", "", i, j, &direct, 1);
            }
        }
    }

    ucx_mp_perf_report_step("pairs of GPUs, both ways");
    for (i = 0; i < num_gpus; ++i) {
        for (j = i + 1; j < num_gpus; ++j) {
            if (has_link(i, j) && has_link(j, i) &&
                (!options->quick || ((i == src) && (j == dst)))) {
                measure_both_ways(i, j);
            }
        }
    }

    ucx_mp_perf_report_step("relays");
    for (i = 0; i < num_gpus; ++i) {
        if ((i != src) && (i != dst) && has_link(src, i) && has_link(i, dst)) {
            path = (path_t){.relay = i};
            snprintf(via, sizeof(via), "gpu%d", i);
            measure_paths("relay", via, src, dst, &path, 1);
        }
    }

    ucx_mp_perf_report_step("over the host");
    path = (path_t){.relay = VIA_HOST};
    measure_paths("staged", "host", src, dst, &path, 1);

    ucx_mp_perf_report_step("sets of paths");
    if (has_link(src, dst)) {
        measure_sets(src, dst);
    }
}
