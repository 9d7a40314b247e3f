/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measure the phases of a CUDA graph by its number of nodes, as Sojoodi et al.
 * did (multi-path communication with CUDA Graphs, section 5.5), and the same
 * copies by streams. The copies are those of one message: first a direct one,
 * then, chunk by chunk, two hops over another GPU.
 */
#include "tool.h"

#include <string.h>


#define CHUNK     65536ul /* bytes of a copy; small, as the submission is
                             measured */
#define MAX_NODES 512u
#define LINKS     3u      /* direct, to the relay, from the relay */
#define SLOTS     8u

enum {
    CREATE, CONSTRUCT, INSTANTIATE, FIRST_LAUNCH, LAUNCH, UPDATE_LAUNCH,
    STREAMS, NUM_PHASES
};

static const char *const phases[NUM_PHASES] = {
    "create", "construct", "instantiate", "first_launch", "launch",
    "update_launch", "streams"
};


typedef struct {
    unsigned link;
    int      wait; /* copy on another directed link, or -1 */
    unsigned from; /* index into the buffers below */
    unsigned to;
    size_t   from_offset;
    size_t   to_offset;
} graph_copy_t;

static struct {
    int          gpus[LINKS]; /* context of each directed link's copies */
    CUdeviceptr  buffers[2][3]; /* source, destination, staging; two sets */
    CUstream     streams[LINKS];
    CUevent      events[MAX_NODES];
    CUcontext    contexts[LINKS];
    graph_copy_t copies[MAX_NODES];
    CUgraphNode  nodes[MAX_NODES];
    CUgraph      graph;
    CUgraphExec  exec;
} work;


/* Plan copies: the first one is direct; then each chunk has two. */
static void plan(unsigned count)
{
    unsigned i, chunk, slot;
    graph_copy_t *copy;

    for (i = 0; i < count; ++i) {
        chunk = (i + 1) / 2;
        slot  = (chunk - 1) % SLOTS;
        copy  = &work.copies[i];
        memset(copy, 0, sizeof(*copy));
        copy->link = (i == 0) ? 0 : 2 - (i % 2);
        copy->wait = -1;
        if (copy->link == 0) {
            copy->to = 1;
        } else if (copy->link == 1) {
            copy->to          = 2;
            copy->from_offset = chunk * CHUNK;
            copy->to_offset   = slot * CHUNK;
            if (chunk > SLOTS) { /* the slot's previous chunk has been
                                    forwarded */
                copy->wait = (int)(i + 1 - 2 * SLOTS);
            }
        } else {
            copy->from        = 2;
            copy->to          = 1;
            copy->wait        = (int)i - 1;
            copy->from_offset = slot * CHUNK;
            copy->to_offset   = chunk * CHUNK;
        }
    }
}

static CUdeviceptr address(unsigned set, unsigned buffer, size_t offset)
{
    return work.buffers[set][buffer] + offset;
}

static void copy_params(const graph_copy_t *copy, unsigned set,
                        CUDA_MEMCPY3D *params)
{
    memset(params, 0, sizeof(*params));
    params->srcMemoryType = CU_MEMORYTYPE_DEVICE;
    params->dstMemoryType = CU_MEMORYTYPE_DEVICE;
    params->srcDevice     = address(set, copy->from, copy->from_offset);
    params->dstDevice     = address(set, copy->to, copy->to_offset);
    params->WidthInBytes  = CHUNK;
    params->Height        = 1;
    params->Depth         = 1;
}

static void construct(unsigned count)
{
    CUgraphNode after[2], last[LINKS] = {NULL};
    CUDA_MEMCPY3D params;
    const graph_copy_t *copy;
    unsigned i, n;

    for (i = 0; i < count; ++i) {
        copy = &work.copies[i];
        n    = 0;
        if (last[copy->link] != NULL) {
            after[n++] = last[copy->link];
        }
        if (copy->wait >= 0) {
            after[n++] = work.nodes[copy->wait];
        }

        copy_params(copy, 0, &params);
        UCX_MP_PERF_CALL(cuGraphAddMemcpyNode, &work.nodes[i], work.graph,
                         after, n, &params, work.contexts[copy->link]);
        last[copy->link] = work.nodes[i];
    }
}

static void update(unsigned count, unsigned set)
{
    CUDA_MEMCPY3D params;
    unsigned i;

    for (i = 0; i < count; ++i) {
        copy_params(&work.copies[i], set, &params);
        UCX_MP_PERF_CALL(cuGraphExecMemcpyNodeSetParams, work.exec,
                         work.nodes[i], &params,
                         work.contexts[work.copies[i].link]);
    }
}

/* Submit copies by streams: each waits for others by events, and the first
   stream for all. */
static void submit(unsigned count)
{
    bool is_used[LINKS] = {false};
    const graph_copy_t *copy;
    unsigned i, link;

    for (i = 0; i < count; ++i) {
        copy = &work.copies[i];
        UCX_MP_PERF_CALL(cuCtxSetCurrent, work.contexts[copy->link]);
        if (copy->wait >= 0) {
            UCX_MP_PERF_CALL(cuStreamWaitEvent, work.streams[copy->link],
                             work.events[copy->wait], 0);
        }

        UCX_MP_PERF_CALL(cuMemcpyAsync,
                         address(0, copy->to, copy->to_offset),
                         address(0, copy->from, copy->from_offset), CHUNK,
                         work.streams[copy->link]);
        if (copy->link != 0) {
            UCX_MP_PERF_CALL(cuEventRecord, work.events[i],
                             work.streams[copy->link]);
        }
        is_used[copy->link] = true;
    }

    for (link = 1; link < LINKS; ++link) {
        if (is_used[link] && (count > link)) {
            /* its last copy is one of the final two */
            i = ((count - 1) % 2 == link % 2) ? count - 1 : count - 2;
            UCX_MP_PERF_CALL(cuStreamWaitEvent, work.streams[0],
                             work.events[i], 0);
        }
    }
}

static void settle(void)
{
    unsigned link;

    for (link = 0; link < LINKS; ++link) {
        UCX_MP_PERF_CALL(cuStreamSynchronize, work.streams[link]);
    }
    ucx_mp_perf_use(work.gpus[0]);
}

static void measure(unsigned count, unsigned repeats)
{
    static ucx_mp_perf_series_t series[NUM_PHASES];
    double times[NUM_PHASES + 1];
    unsigned i, phase;

    plan(count);
    for (i = 0; (i < UCX_MP_PERF_WARM_UP + repeats) ||
         !ucx_mp_perf_is_certain(&series[UPDATE_LAUNCH]); ++i) {
        settle();
        times[CREATE] = ucx_mp_perf_now();
        UCX_MP_PERF_CALL(cuGraphCreate, &work.graph, 0);
        times[CONSTRUCT] = ucx_mp_perf_now();
        construct(count);
        times[INSTANTIATE] = ucx_mp_perf_now();
        UCX_MP_PERF_CALL(cuGraphInstantiateWithFlags, &work.exec, work.graph,
                         0);
        times[FIRST_LAUNCH] = ucx_mp_perf_now();
        UCX_MP_PERF_CALL(cuGraphLaunch, work.exec, work.streams[0]);
        times[LAUNCH] = ucx_mp_perf_now();
        for (phase = CREATE; phase < LAUNCH; ++phase) {
            times[phase] = times[phase + 1] - times[phase];
        }

        settle();
        times[LAUNCH] = ucx_mp_perf_now();
        UCX_MP_PERF_CALL(cuGraphLaunch, work.exec, work.streams[0]);
        times[LAUNCH] = ucx_mp_perf_now() - times[LAUNCH];

        settle();
        times[UPDATE_LAUNCH] = ucx_mp_perf_now();
        update(count, 1);
        UCX_MP_PERF_CALL(cuGraphLaunch, work.exec, work.streams[0]);
        times[UPDATE_LAUNCH] = ucx_mp_perf_now() - times[UPDATE_LAUNCH];

        settle();
        times[STREAMS] = ucx_mp_perf_now();
        submit(count);
        times[STREAMS] = ucx_mp_perf_now() - times[STREAMS];

        settle();
        UCX_MP_PERF_CALL(cuGraphExecDestroy, work.exec);
        UCX_MP_PERF_CALL(cuGraphDestroy, work.graph);
        for (phase = 0; (phase < NUM_PHASES) && (i >= UCX_MP_PERF_WARM_UP);
             ++phase) {
            series[phase].samples[i - UCX_MP_PERF_WARM_UP] = times[phase];
            series[phase].count                = i - UCX_MP_PERF_WARM_UP + 1;
        }
    }

    ucx_mp_perf_report_graph(count, NUM_PHASES, phases, series);
}

static int relay_of(const uct_cuda_topo_t *topo, int src, int dst)
{
    int gpu;

    for (gpu = 0; gpu < topo->num_gpus; ++gpu) {
        if ((gpu != src) && (gpu != dst) &&
            (topo->links[src][gpu].bandwidth > 0) &&
            (topo->links[gpu][dst].bandwidth > 0)) {
            return gpu;
        }
    }

    return dst; /* no relay: use the receiving GPU, so that the same calls run
                   in two contexts */
}

void ucx_mp_perf_graph(const uct_cuda_topo_t *topo,
                       const ucx_mp_perf_options_t *options)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    int relay = relay_of(topo, options->src, options->dst);
    const int owners[3] = {options->src, options->dst, relay};
    unsigned i, set, phase;
    char title[160];
    size_t size;

    if ((driver->cuGraphCreate == NULL) ||
        (driver->cuGraphAddMemcpyNode == NULL) ||
        (driver->cuGraphInstantiateWithFlags == NULL) ||
        (driver->cuGraphExecMemcpyNodeSetParams == NULL) ||
        (driver->cuGraphLaunch == NULL)) {
        printf("\nThis driver has no graphs.\n");
        return;
    }

    work.gpus[0] = work.gpus[1] = options->src;
    work.gpus[2] = relay;
    for (i = 0; i < LINKS; ++i) {
        work.streams[i] = ucx_mp_perf_stream(work.gpus[i]);
        UCX_MP_PERF_CALL(cuCtxGetCurrent, &work.contexts[i]);
    }

    size = (MAX_NODES / 2 + 1) * CHUNK;
    for (set = 0; set < 2; ++set) {
        for (i = 0; i < 3; ++i) {
            work.buffers[set][i] = ucx_mp_perf_alloc(owners[i], size);
        }
    }

    for (i = 0; i < MAX_NODES; ++i) {
        /* an event must be recorded in its own context */
        work.events[i] = ucx_mp_perf_event(work.gpus[(i == 0) ? 0 :
                                                     (i % 2) ? 1 : 2]);
    }

    snprintf(title, sizeof(title),
             "CUDA graph of one message's copies, GPU %d to GPU %d over GPU "
             "%d, microseconds of the calling thread: median (min..max)",
             options->src, options->dst, relay);
    ucx_mp_perf_report_part(title);
    printf("%5s", "nodes");
    for (phase = 0; phase < NUM_PHASES; ++phase) {
        printf("  %-22s", phases[phase]);
    }
    printf("\n");
    for (i = 0; i < options->num_nodes; ++i) {
        ucx_mp_perf_report_step("graph");
        measure((unsigned)options->nodes[i], options->repeats);
    }

    settle();
    for (set = 0; set < 2; ++set) {
        for (i = 0; i < 3; ++i) {
            UCX_MP_PERF_CALL(cuMemFree, work.buffers[set][i]);
        }
    }
}
