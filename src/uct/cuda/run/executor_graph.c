/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Executor of graphs: a plan is one CUDA graph, with a copy node for each step
 * in the context of the link's stream, after the steps it waits for and the one
 * before it on its link.
 *
 * The link's ordering event keeps the order between graphs: a graph waits for
 * it before its first copy on the link and records it after its last one. A
 * graph that is alone omits these nodes: the next user of its links waits for
 * all of it.
 *
 * Only the end of a complete graph can be detected. A launch waits until all
 * its staging slots are drained, and they then have the event after the launch.
 * The event belongs to the graph, so it does not signal later graphs in the
 * same stream.
 *
 * Graphs are cached for the next transfer of the same shape: the plan's steps,
 * the remote end, and the bank of staging memory. There are two banks, so that
 * a graph can begin while another ends. Addresses are not part of the shape and
 * can be changed in an idle graph (seed of the idea: "Accelerating intra-node
 * GPU communication", section 4.4, whose cache is keyed by address).
 */
#include <uct/cuda/run/executor.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/hash.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/trace.h>
#include <uct/cuda/run/graph_cost.h>
#include <uct/cuda/run/submit.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>


/* Maximum cached graphs of all shapes */
#define MAX_GRAPHS 64

/* Shapes submitted through streams, by hash; on a collision the older one is
 * forgotten. A prime number, so that powers of two do not collide. */
#define NUM_SEEN 251

/* Failed builds in a row after which no more graphs are built */
#define MAX_FAILURES 3


/* Addresses of a copy node */
typedef struct {
    CUdeviceptr to;
    CUdeviceptr from;
} node_copy_t;


typedef struct uct_cuda_run_graph {
    struct uct_cuda_run_graph       *next; /* in a transfer's list */
    TAILQ_ENTRY(uct_cuda_run_graph) list;
    CUgraph                     graph;
    CUgraphExec                 exec;
    /* event after its last launch, of the plan's local context, or NULL */
    CUevent                     ended;
    /* has nodes of ordering events; part of the shape */
    bool                        is_ordered;
    bool                        is_busy; /* in flight */
    bool                        is_lost; /* one of its contexts is lost */
    /* of staging memory; part of the shape */
    uint32_t                    banks;
    /* mask of devices with contexts in it */
    uint32_t                    devices;
    uct_cuda_plan_t             plan;
    CUgraphNode                 nodes[UCT_CUDA_PLAN_MAX_STEPS];
    node_copy_t                 copies[UCT_CUDA_PLAN_MAX_STEPS];
} graph_t;


typedef struct {
    uint64_t hash;
    unsigned times;
} seen_t;


struct uct_cuda_run_graphs {
    uct_cuda_run_rsc_t                   *rsc;
    TAILQ_HEAD(kept, uct_cuda_run_graph) kept; /* most recently used first */
    unsigned                         num_kept;
    unsigned                         failures;
    seen_t                           seen[NUM_SEEN];
    /* Plan being submitted: properties of its graph, whether a graph is worth
     * building, and its addresses */
    const uct_cuda_plan_t            *plan;
    bool                             is_ordered;
    uint32_t                         banks;
    bool                             is_wanted;
    node_copy_t                      copies[UCT_CUDA_PLAN_MAX_STEPS];
    /* Counters for the summary */
    uint64_t                         hits;      /* launched unchanged */
    uint64_t                         retargets; /* addresses changed first */
    uint64_t                         misses;    /* built */
    uint64_t                         evictions;
    /* streams used because all allowed graphs were in flight */
    uint64_t                         waits;
};

typedef uct_cuda_run_graphs_t graphs_t;


static CUcontext step_ctx(const graphs_t *graphs, unsigned step)
{
    return uct_cuda_run_rsc_ctx(
            graphs->rsc,
            uct_cuda_plan_link_device(graphs->plan,
                                      graphs->plan->steps[step].queue));
}

static uct_cuda_run_link_t *get_link(graphs_t *graphs, uint16_t number)
{
    return uct_cuda_run_rsc_link(graphs->rsc,
                                 uct_cuda_plan_link_device(graphs->plan,
                                                           number),
                                 number);
}


/* ------------------------------------------------------------------- cache */

static void graph_drop(graphs_t *graphs, graph_t *graph)
{
    /* with a lost context the driver would not return from the call */
    if ((graph->exec != NULL) && !graph->is_lost) {
        (void)UCT_CUDA_CALL(cuGraphExecDestroy, graph->exec);
    }

    if (graph->graph != NULL) {
        (void)UCT_CUDA_CALL(cuGraphDestroy, graph->graph);
    }

    if (graph->ended != NULL) {
        uct_cuda_run_rsc_put_event(graphs->rsc, graph->plan.local,
                                   graph->ended);
    }

    TAILQ_REMOVE(&graphs->kept, graph, list);
    --graphs->num_kept;
    free(graph);
}

/* Find an idle graph of this shape: one with these addresses, else the least
 * recently used one. Only if the cache is full, take one of the other bank and
 * assign it to this bank. NULL: none. */
static graph_t *graph_find(graphs_t *graphs)
{
    const size_t size = graphs->plan->num_steps * sizeof(graphs->copies[0]);
    graph_t *found    = NULL;
    graph_t *other    = NULL;
    graph_t *graph;

    TAILQ_FOREACH(graph, &graphs->kept, list)
    {
        if (graph->is_busy || graph->is_lost ||
            (graph->is_ordered != graphs->is_ordered) ||
            !uct_cuda_plan_equal(&graph->plan, graphs->plan)) {
            continue;
        }

        if (graph->banks != graphs->banks) {
            other = graph;
            continue;
        }

        found = graph;
        if (memcmp(graph->copies, graphs->copies, size) == 0) {
            break;
        }
    }

    if ((found == NULL) && (other != NULL) &&
        (graphs->num_kept >= MAX_GRAPHS)) {
        other->banks = graphs->banks;
        found        = other;
    }
    return found;
}

/* Make room for a graph, evicting the least recently used idle one if needed.
 * @return false: all are in flight */
static bool make_room(graphs_t *graphs)
{
    graph_t *graph;

    if (graphs->num_kept < MAX_GRAPHS) {
        return true;
    }

    TAILQ_FOREACH_REVERSE(graph, &graphs->kept, kept, list)
    {
        if (!graph->is_busy) {
            graph_drop(graphs, graph);
            ++graphs->evictions;
            return true;
        }
    }

    ++graphs->waits;
    return false;
}


/* ---------------------------------------------------------------- building */

static CUmemorytype memory_type(const uct_cuda_plan_place_t *place)
{
    return uct_cuda_plan_place_is_host_staging(place) ? CU_MEMORYTYPE_HOST :
                                                      CU_MEMORYTYPE_DEVICE;
}

/* Fill in the parameters of a copy. A copy to be updated later must have one
 * dimension (CUDA driver API, cuGraphExecMemcpyNodeSetParams). Of the two kinds
 * of addresses the driver reads the one named by the memory type. */
static void
copy_params(const graphs_t *graphs, unsigned step, CUDA_MEMCPY3D *copy)
{
    const uct_cuda_plan_t *plan       = graphs->plan;
    const node_copy_t *what = &graphs->copies[step];

    memset(copy, 0, sizeof(*copy));
    copy->srcMemoryType = memory_type(uct_cuda_plan_from(plan, step));
    copy->srcHost       = (const void*)what->from;
    copy->srcDevice     = what->from;
    copy->dstMemoryType = memory_type(uct_cuda_plan_to(plan, step));
    copy->dstHost       = (void*)what->to;
    copy->dstDevice     = what->to;
    copy->WidthInBytes  = plan->steps[step].bytes;
    copy->Height        = 1;
    copy->Depth         = 1;
}

/* Add a copy node after the last node of its link. The wait of a link's first
 * copy is added right before it: nodes begin in the order of adding, and a
 * direct path has more to copy than others. */
static ucs_status_t
add_copy(graphs_t *graphs, graph_t *graph, unsigned step, CUgraphNode *last)
{
    const uct_cuda_plan_t *plan = graphs->plan;
    unsigned count              = 0;
    ucs_status_t status         = UCS_OK;
    CUgraphNode before[2];
    CUDA_MEMCPY3D copy;

    if (graph->is_ordered && (*last == NULL)) {
        status = UCT_CUDA_CALL(cuGraphAddEventWaitNode, last, graph->graph,
                               NULL, 0,
                               get_link(graphs,
                                        plan->steps[step].queue)->ordering);
        if (status != UCS_OK) {
            return status;
        }
    }

    if (*last != NULL) {
        before[count++] = *last;
    }

    if (uct_cuda_plan_step_has_wait(plan, step)) {
        before[count++] = graph->nodes[plan->waits[step]];
    }

    copy_params(graphs, step, &copy);
    status = UCT_CUDA_CALL(cuGraphAddMemcpyNode, &graph->nodes[step],
                           graph->graph, before, count, &copy,
                           step_ctx(graphs, step));
    *last  = graph->nodes[step];
    return status;
}

/* Build a graph: before its first copy on a link a wait for the link's users,
 * after its last one a record for the next user. Nodes may wait for and record
 * events of any context, in whichever context the graph is launched, and a
 * launch waits for earlier records even if it records the same event again
 * (tried with two contexts of an H200). */
static ucs_status_t graph_build(graphs_t *graphs, graph_t *graph)
{
    const uct_cuda_plan_t *plan               = graphs->plan;
    CUgraphNode last[UCT_CUDA_PLAN_NUM_LINKS] = {NULL};
    uint16_t links[UCT_CUDA_PLAN_MAX_HOPS * UCT_CUDA_PLAN_MAX_PATHS];
    const unsigned count = graph->is_ordered ?
                                   uct_cuda_plan_links(plan, links) :
                                   0;
    ucs_status_t status;
    CUgraphNode node;
    unsigned i;

    status = UCT_CUDA_CALL(cuGraphCreate, &graph->graph, 0);
    for (i = 0; (i < plan->num_steps) && (status == UCS_OK); ++i) {
        status = add_copy(graphs, graph, i, &last[plan->steps[i].queue]);
    }

    for (i = 0; (i < count) && (status == UCS_OK); ++i) {
        status = UCT_CUDA_CALL(cuGraphAddEventRecordNode, &node, graph->graph,
                               &last[links[i]], 1,
                               get_link(graphs, links[i])->ordering);
    }

    return (status == UCS_OK) ?
                   UCT_CUDA_CALL(cuGraphInstantiateWithFlags, &graph->exec,
                                 graph->graph, 0) :
                   status;
}

/* Build a graph for the plan being submitted, and cache it. NULL: no room, or a
 * failure; too many failures in a row end the use of graphs, with a warning. */
static graph_t *graph_new(graphs_t *graphs)
{
    const uct_cuda_plan_t *plan = graphs->plan;
    graph_t *graph;
    ucs_status_t status;
    unsigned i;

    graph = make_room(graphs) ? calloc(1, sizeof(*graph)) : NULL;
    if (graph == NULL) {
        return NULL;
    }

    TAILQ_INSERT_HEAD(&graphs->kept, graph, list);
    ++graphs->num_kept;
    uct_cuda_plan_copy(plan, &graph->plan);
    memcpy(graph->copies, graphs->copies,
           plan->num_steps * sizeof(graph->copies[0]));
    graph->is_ordered = graphs->is_ordered;
    graph->banks      = graphs->banks;
    graph->devices    = 1u << plan->local;
    for (i = 0; i < plan->num_steps; ++i) {
        graph->devices |= 1u << uct_cuda_plan_link_device(
                                  plan, plan->steps[i].queue);
    }

    status = uct_cuda_run_rsc_get_event(graphs->rsc, plan->local,
                                        &graph->ended);
    if (status != UCS_OK) {
        graph->ended = NULL;
    } else {
        status = graph_build(graphs, graph);
    }

    if (status == UCS_OK) {
        graphs->failures = 0;
        ++graphs->misses;
        return graph;
    }

    graph_drop(graphs, graph);
    if (++graphs->failures == MAX_FAILURES) {
        uct_cuda_warn("CUDA graphs failed (see above); using streams from now "
                      "on");
    }

    return NULL;
}

/* Set the addresses of this transfer in an idle graph. After a failure (not
 * logged) the graph may be half changed: drop it. */
static ucs_status_t
graph_retarget(graphs_t *graphs, graph_t *graph)
{
    bool is_changed = false;
    const node_copy_t *copy;
    CUDA_MEMCPY3D params;
    ucs_status_t status;
    unsigned i;

    for (i = 0; i < graph->plan.num_steps; ++i) {
        copy = &graph->copies[i];
        if ((copy->to == graphs->copies[i].to) &&
            (copy->from == graphs->copies[i].from)) {
            continue;
        }

        copy_params(graphs, i, &params);
        /* the driver refuses another kind of memory; streams remain, so this is
         * no error */
        status = UCT_CUDA_CALL_NOLOG(cuGraphExecMemcpyNodeSetParams,
                                     graph->exec, graph->nodes[i], &params,
                                     step_ctx(graphs, i));
        if (status != UCS_OK) {
            return status;
        }

        graph->copies[i] = graphs->copies[i];
        is_changed       = true;
    }

    ++*(is_changed ? &graphs->retargets : &graphs->hits);
    return UCS_OK;
}


/* ------------------------------------------------------------------ choice */

/* Compute the addresses of this transfer's nodes */
static void set_addresses(graphs_t *graphs, const uct_cuda_run_memory_t *memory)
{
    const uct_cuda_plan_t *plan = graphs->plan;
    unsigned i;
    int device;

    for (i = 0; i < plan->num_steps; ++i) {
        device = uct_cuda_plan_link_device(plan, plan->steps[i].queue);
        graphs->copies[i].from = uct_cuda_run_rsc_address(
                graphs->rsc, plan, uct_cuda_plan_from(plan, i), memory,
                device);
        graphs->copies[i].to   = uct_cuda_run_rsc_address(
                graphs->rsc, plan, uct_cuda_plan_to(plan, i), memory,
                device);
    }
}

/* Return whether a shape, or a similar one, was submitted through streams often
 * enough; otherwise count this time */
static bool is_due(graphs_t *graphs, unsigned threshold)
{
    const uct_cuda_plan_t *plan = graphs->plan;
    uint64_t hash               = UCT_CUDA_HASH64;
    seen_t *seen;

    hash = uct_cuda_hash64(hash, uct_cuda_plan_link(plan->src, plan->dst));
    hash = uct_cuda_hash64(hash, plan->size);
    hash = uct_cuda_hash64(hash, plan->num_steps);
    seen = &graphs->seen[hash % NUM_SEEN];
    if (seen->hash != hash) {
        seen->hash  = hash;
        seen->times = 0;
    }

    if (seen->times >= threshold) {
        return true;
    }

    ++seen->times;
    return false;
}

/* Return an idle graph with this transfer's addresses, found or, with threshold
 * 0, built. NULL: use streams; is_wanted says whether to build a graph then. */
static graph_t *graph_get(graphs_t *graphs, unsigned threshold)
{
    graph_t *graph = graph_find(graphs);

    if (graph != NULL) {
        if (graph_retarget(graphs, graph) == UCS_OK) {
            TAILQ_REMOVE(&graphs->kept, graph, list);
            TAILQ_INSERT_HEAD(&graphs->kept, graph, list);
            return graph;
        }

        /* it may be half changed */
        graph_drop(graphs, graph);
    }

    if (threshold == 0) {
        return graph_new(graphs);
    }

    graphs->is_wanted = is_due(graphs, threshold);
    return NULL;
}


/* ------------------------------------------------------------------ launch */

/* Let the launch wait until the plan's slots are drained */
static ucs_status_t wait_slots(const graphs_t *graphs, CUstream launch)
{
    ucs_status_t status = UCS_OK;
    CUevent before      = NULL;
    CUevent event;
    unsigned i;

    for (i = 0; (i < graphs->plan->num_steps) && (status == UCS_OK); ++i) {
        event = uct_cuda_run_rsc_awaited(graphs->rsc, graphs->plan, i);
        if ((event != NULL) && (event != before)) {
            status = UCT_CUDA_CALL(cuStreamWaitEvent, launch, event, 0);
            before = event;
        }
    }

    return status;
}

/* Let the launch wait until a link is free, unless its nodes do. A graph
 * without ordering nodes is alone, so its links are free. */
static ucs_status_t
wait_link(graphs_t *graphs, uint16_t number, CUstream launch, int *current)
{
    const int device         = uct_cuda_plan_link_device(graphs->plan,
                                                         number);
    uct_cuda_run_link_t *link = get_link(graphs, number);
    ucs_status_t status;

    if (!link->is_queued) {
        return ((link->outside == NULL) || (link->outside == link->ordering)) ?
                       UCS_OK :
                       UCT_CUDA_CALL(cuStreamWaitEvent, launch,
                                     link->outside, 0);
    }

    status = uct_cuda_run_rsc_make_current(graphs->rsc, device, current);
    if (status == UCS_OK) {
        status = UCT_CUDA_CALL(cuEventRecord, link->ordering, link->stream);
    }

    if (status == UCS_OK) {
        link->outside   = link->ordering;
        link->is_queued = false;
    }

    return status;
}

/* Record the launch as the latest user of its links and slots */
static void leave(graphs_t *graphs, const graph_t *graph,
                  const uint16_t *links, unsigned num_links)
{
    const uct_cuda_plan_t *plan = graphs->plan;
    uct_cuda_run_link_t *link;
    uct_cuda_run_slot_t *slot;
    unsigned i;

    for (i = 0; i < num_links; ++i) {
        link          = get_link(graphs, links[i]);
        link->outside = graph->is_ordered ? link->ordering : graph->ended;
    }

    for (i = 0; i < plan->num_steps; ++i) {
        slot = uct_cuda_run_rsc_slot(graphs->rsc, plan,
                                     uct_cuda_plan_from(plan, i));
        if (slot != NULL) {
            uct_cuda_run_rsc_set_drained(graphs->rsc, slot, graph->ended,
                                         plan->local, true);
        }
    }

    (void)uct_cuda_run_rsc_next_slots(graphs->rsc, plan, 1, true);
}

/* Launch a graph in the context of the plan's local end */
static ucs_status_t graph_launch(graphs_t *graphs,
                                 const graph_t *graph,
                                 CUstream stream)
{
    const uct_cuda_plan_t *plan = graphs->plan;
    int current                 = plan->local;
    uint16_t links[UCT_CUDA_PLAN_MAX_HOPS * UCT_CUDA_PLAN_MAX_PATHS];
    const unsigned count = uct_cuda_plan_links(plan, links);
    uct_cuda_trace_copy_t *copy;
    ucs_status_t status;
    unsigned i;

    status = wait_slots(graphs, stream);
    for (i = 0; graph->is_ordered && (i < count) && (status == UCS_OK); ++i) {
        status = wait_link(graphs, links[i], stream, &current);
    }

    if (status == UCS_OK) {
        status = uct_cuda_run_rsc_make_current(graphs->rsc, plan->local,
                                               &current);
    }

    if (status != UCS_OK) {
        return status;
    }

    copy   = uct_cuda_trace_begin(stream);
    status = UCT_CUDA_CALL(cuGraphLaunch, graph->exec, stream);
    uct_cuda_trace_end(copy, stream, plan->src, plan->dst, plan->size, "graph");
    if (status == UCS_OK) {
        status = UCT_CUDA_CALL(cuEventRecord, graph->ended, stream);
    }

    if (status == UCS_OK) {
        leave(graphs, graph, links, count);
    }

    return status;
}

static ucs_status_t
graph_submit(graphs_t *graphs, const uct_cuda_run_work_t *work,
             graph_t *graph)
{
    const uct_cuda_plan_t *plan = work->plan;
    const uint16_t number       = uct_cuda_plan_link(plan->src, plan->dst);
    uct_cuda_run_link_t *link   = uct_cuda_run_rsc_link(graphs->rsc,
                                                        plan->local, number);
    CUstream *stream               = &link->launches[link->next_launch];
    ucs_status_t status;

    /* held even if the launch fails: the stream is waited for then */
    graph->is_busy = true;
    graph->next    = *work->held;
    *work->held    = graph;
    status         = uct_cuda_run_rsc_make_stream(graphs->rsc, plan->local,
                                                  stream);
    if (status == UCS_OK) {
        link->next_launch ^= 1;
        uct_cuda_run_used_add(work->used, plan->local, *stream, true);
        status = graph_launch(graphs, graph, *stream);
    }

    /* links and slots may be taken: no fallback to streams */
    return (status == UCS_ERR_NO_RESOURCE) ? UCS_ERR_IO_ERROR : status;
}

ucs_status_t uct_cuda_run_graphs_submit(uct_cuda_run_graphs_t *graphs,
                                        const uct_cuda_run_work_t *work,
                                        const uct_cuda_run_memory_t *memory)
{
    const unsigned threshold = uct_cuda_run_cost_threshold(work->plan,
                                                           work->config,
                                                           work->model);
    graph_t *graph;
    ucs_status_t status;

    /* the newest of the calls, from CUDA 11.4: the others came with 11.1 or
     * earlier */
    graphs->is_wanted = false;
    if ((threshold == UCT_CUDA_RUN_COST_NEVER) ||
        (graphs->failures >= MAX_FAILURES) ||
        (uct_cuda_driver_get()->cuGraphInstantiateWithFlags == NULL)) {
        return UCS_ERR_NO_RESOURCE;
    }

    status = uct_cuda_ctx_push(uct_cuda_run_rsc_ctx(graphs->rsc,
                                                    work->plan->local));
    if (status != UCS_OK) {
        return status;
    }

    graphs->plan       = work->plan;
    graphs->is_ordered = !work->is_alone;
    graphs->banks      = uct_cuda_run_rsc_next_slots(graphs->rsc, work->plan,
                                                     UCT_CUDA_PLAN_SLOTS,
                                                     false);
    set_addresses(graphs, memory);
    graph  = graph_get(graphs, threshold);
    status = (graph == NULL) ? UCS_ERR_NO_RESOURCE :
                               graph_submit(graphs, work, graph);
    uct_cuda_ctx_pop();
    return status;
}

/* Build a wanted graph while streams carry out the same plan: the thread would
 * only wait for them, and the next transfer of the shape finds the graph. A
 * failure is retried later. */
void uct_cuda_run_graphs_build_wanted(uct_cuda_run_graphs_t *graphs)
{
    if (graphs->is_wanted &&
        (uct_cuda_ctx_push(uct_cuda_run_rsc_ctx(
                 graphs->rsc, graphs->plan->local)) == UCS_OK)) {
        (void)graph_new(graphs);
        uct_cuda_ctx_pop();
    }
}

void uct_cuda_run_graphs_release(uct_cuda_run_graphs_t *graphs,
                                 uct_cuda_run_graph_t *held)
{
    graph_t *next;

    for (; held != NULL; held = next) {
        next          = held->next;
        held->is_busy = false;
        if (held->is_lost) {
            graph_drop(graphs, held);
        }
    }
}

void uct_cuda_run_graphs_lose(uct_cuda_run_graphs_t *graphs, uint32_t devices)
{
    graph_t *graph, *next;

    for (graph = TAILQ_FIRST(&graphs->kept); graph != NULL; graph = next) {
        next = TAILQ_NEXT(graph, list);
        if (!(graph->devices & devices)) {
            continue;
        }

        graph->is_lost = true;
        if (devices & (1u << graph->plan.local)) {
            graph->ended = NULL;
        }

        if (!graph->is_busy) {
            graph_drop(graphs, graph);
        }
    }
}

ucs_status_t uct_cuda_run_graphs_create(uct_cuda_run_rsc_t *rsc,
                                        uct_cuda_run_graphs_t **graphs_p)
{
    graphs_t *graphs = calloc(1, sizeof(*graphs));

    if (graphs == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    graphs->rsc = rsc;
    TAILQ_INIT(&graphs->kept);
    *graphs_p = graphs;
    return UCS_OK;
}

void uct_cuda_run_graphs_destroy(uct_cuda_run_graphs_t *graphs)
{
    if (graphs->misses + graphs->waits > 0) {
        uct_cuda_info("graphs: %" PRIu64 " hits, %" PRIu64 " retargets, "
                      "%" PRIu64 " misses, %" PRIu64 " evictions, %" PRIu64
                      " in-flight waits",
                      graphs->hits, graphs->retargets, graphs->misses,
                      graphs->evictions, graphs->waits);
    }

    while (!TAILQ_EMPTY(&graphs->kept)) {
        graph_drop(graphs, TAILQ_FIRST(&graphs->kept));
    }

    free(graphs);
}
