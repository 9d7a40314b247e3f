/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The executor "graph": a plan as one CUDA Graph, a copy node a step, in the
 * context that the stream of its lane would be of, behind the steps that it
 * waits for and the one before it on its lane.
 *
 * Order between graphs on a lane is kept by an event, the lane's ordering
 * event: a graph waits for it in front of its first copy on the lane, and
 * records it behind its last one. A graph that is alone spares itself these
 * nodes: what has one of its lanes next waits for all of it.
 *
 * Staging slots are taken by banks, since only the end of a whole graph can be
 * told: a launch waits until the bank is drained, and all slots of the bank
 * have the event behind the launch then. That event is the graph's own, and so
 * tells of no later one that is in the same stream.
 */
#include <uct/cuda/run/executor.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/trace.h>
#include <uct/cuda/run/graph_cost.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>


/* Graphs kept, for all shapes together */
#define CACHE_SIZE 64

/* Shapes that went another way, by hash; two that share a place forget each
 * other */
#define SEEN_SIZE 256

/* Failures to build a graph, with no success in between, after which graphs are
 * tried without event nodes, and then no more */
#define MAX_FAILURES 3


typedef struct {
    uint64_t hash;
    unsigned times;
} seen_t;


struct uct_cuda_mp_graphs {
    uct_cuda_mp_rsc_t         *rsc;
    uct_cuda_mp_graph_cache_t cache;
    unsigned                  failures;
    bool                      is_unordered; /* no graph has ordering events */
    seen_t                    seen[SEEN_SIZE];
    /* What the last plan had no graph for, and is worth one; or no plan */
    uct_cuda_mp_graph_key_t   wanted;
    /* Of the plan that is being submitted: whose next slots are the first of
     * its banks, and what its nodes are to copy */
    unsigned                  num_taken;
    uct_cuda_mp_staging_t     *taken[UCT_CUDA_MP_MAX_PATHS];
    uct_cuda_mp_graph_node_t  nodes[UCT_CUDA_MP_MAX_STEPS];
};

typedef uct_cuda_mp_graphs_t graphs_t;


/* The newest of the calls, of CUDA 11.4: the others came with 11.1 at the
 * latest */
static bool driver_has_graphs(void)
{
    return uct_cuda_driver_get()->cuGraphInstantiateWithFlags != NULL;
}

static CUcontext
step_ctx(graphs_t *graphs, const uct_cuda_mp_plan_t *plan, unsigned step)
{
    return uct_cuda_mp_rsc_ctx(
            graphs->rsc,
            uct_cuda_mp_plan_lane_device(plan, plan->steps[step].queue));
}

/* A lane with the event that nodes of graphs wait for and record: the same one
 * for good */
static ucs_status_t
ordered_lane(graphs_t *graphs, const uct_cuda_mp_plan_t *plan, uint16_t number,
             int *current, uct_cuda_mp_lane_t **lane_p)
{
    const int device         = uct_cuda_mp_plan_lane_device(plan, number);
    uct_cuda_mp_lane_t *lane = uct_cuda_mp_rsc_lane(graphs->rsc, device,
                                                    number);
    ucs_status_t status      = UCS_OK;

    if (lane->ordering == NULL) {
        status = uct_cuda_mp_rsc_make_current(graphs->rsc, device, current);
        if (status == UCS_OK) {
            status = uct_cuda_mp_rsc_get_event(graphs->rsc, device,
                                               &lane->ordering);
        }

        if (status != UCS_OK) {
            lane->ordering = NULL;
        }
    }

    *lane_p = lane;
    return status;
}


/* ---------------------------------------------------------------- building */

/* Copies of a graph that is to be updated later have one dimension (CUDA driver
 * API, cuGraphExecMemcpyNodeSetParams) */
static void copy_params(const uct_cuda_mp_plan_t *plan, unsigned step,
                        const uct_cuda_mp_graph_node_t *node,
                        CUDA_MEMCPY3D *copy)
{
    memset(copy, 0, sizeof(*copy));
    if (uct_cuda_mp_place_is_host_staging(uct_cuda_mp_plan_from(plan, step))) {
        copy->srcMemoryType = CU_MEMORYTYPE_HOST;
        copy->srcHost       = (const void*)node->from;
    } else {
        copy->srcMemoryType = CU_MEMORYTYPE_DEVICE;
        copy->srcDevice     = node->from;
    }

    if (uct_cuda_mp_place_is_host_staging(uct_cuda_mp_plan_to(plan, step))) {
        copy->dstMemoryType = CU_MEMORYTYPE_HOST;
        copy->dstHost       = (void*)node->to;
    } else {
        copy->dstMemoryType = CU_MEMORYTYPE_DEVICE;
        copy->dstDevice     = node->to;
    }

    copy->WidthInBytes = plan->steps[step].bytes;
    copy->Height       = 1;
    copy->Depth        = 1;
}

/* In front of a graph's first copy on a lane, a wait for what has the lane;
 * behind its last one, what the next one waits for. Nodes may wait for, and
 * record, events of any context, whichever the graph is launched in, and a
 * launch waits for what was recorded before it even if it records the same
 * event anew (tried with two contexts of an H200). */
static ucs_status_t
add_order(graphs_t *graphs, const uct_cuda_mp_graph_t *graph, uint16_t number,
          int *current, CUgraphNode *last)
{
    uct_cuda_mp_lane_t *lane;
    ucs_status_t status;
    CUgraphNode node;

    status = ordered_lane(graphs, &graph->plan, number, current, &lane);
    if (status != UCS_OK) {
        return status;
    }

    return (*last == NULL) ?
                   UCT_CUDA_CALL(cuGraphAddEventWaitNode, last, graph->graph,
                                 NULL, 0, lane->ordering) :
                   UCT_CUDA_CALL(cuGraphAddEventRecordNode, &node, graph->graph,
                                 last, 1, lane->ordering);
}

static ucs_status_t
graph_build(graphs_t *graphs, uct_cuda_mp_graph_t *graph, int *current)
{
    const uct_cuda_mp_plan_t *plan          = &graph->plan;
    const bool is_ordered                   = graph->key.is_ordered;
    CUgraphNode last[UCT_CUDA_MP_NUM_LANES] = {NULL};
    uint16_t lanes[UCT_CUDA_MP_MAX_HOPS * UCT_CUDA_MP_MAX_PATHS];
    CUgraphNode before[2];
    CUDA_MEMCPY3D copy;
    ucs_status_t status;
    unsigned i, count;
    uint16_t lane;

    status = UCT_CUDA_CALL(cuGraphCreate, &graph->graph, 0);
    for (i = 0; (i < plan->num_steps) && (status == UCS_OK); ++i) {
        lane  = plan->steps[i].queue;
        count = 0;
        if (is_ordered && (last[lane] == NULL)) {
            status = add_order(graphs, graph, lane, current, &last[lane]);
            if (status != UCS_OK) {
                return status;
            }
        }

        if (last[lane] != NULL) {
            before[count++] = last[lane];
        }

        if (uct_cuda_mp_plan_step_waits(plan, i)) {
            before[count++] = graph->nodes[plan->waits[i]].node;
        }

        copy_params(plan, i, &graph->nodes[i], &copy);
        status     = UCT_CUDA_CALL(cuGraphAddMemcpyNode, &graph->nodes[i].node,
                                   graph->graph, before, count, &copy,
                                   step_ctx(graphs, plan, i));
        last[lane] = graph->nodes[i].node;
    }

    count = is_ordered ? uct_cuda_mp_plan_lanes(plan, lanes) : 0;
    for (i = 0; (i < count) && (status == UCS_OK); ++i) {
        status = add_order(graphs, graph, lanes[i], current, &last[lanes[i]]);
    }

    return (status == UCS_OK) ?
                   UCT_CUDA_CALL(cuGraphInstantiateWithFlags, &graph->exec,
                                 graph->graph, 0) :
                   status;
}

/* This driver may refuse event nodes, or graphs as such */
static void build_failed(graphs_t *graphs, bool is_ordered)
{
    if (++graphs->failures < MAX_FAILURES) {
        return;
    }

    if (is_ordered) {
        graphs->is_unordered = true;
        graphs->failures     = 0;
    } else {
        uct_cuda_warn("transfers are carried out without CUDA graphs from now "
                      "on (see above)");
    }
}

static uct_cuda_mp_graph_t *
graph_new(graphs_t *graphs, const uct_cuda_mp_graph_key_t *key)
{
    const int local = key->plan->local;
    int current     = local;
    uct_cuda_mp_graph_t *graph;
    ucs_status_t status;
    unsigned i;

    graph = uct_cuda_mp_graph_cache_new(&graphs->cache, key, graphs->nodes);
    if (graph == NULL) {
        return NULL;
    }

    graph->devices = 1u << local;
    for (i = 0; i < key->plan->num_steps; ++i) {
        graph->devices |= 1u << uct_cuda_mp_plan_lane_device(
                                  key->plan, key->plan->steps[i].queue);
    }

    status = uct_cuda_mp_rsc_get_event(graphs->rsc, local, &graph->ended);
    if (status != UCS_OK) {
        graph->ended = NULL;
    } else {
        status = graph_build(graphs, graph, &current);
        if (status != UCS_OK) {
            build_failed(graphs, key->is_ordered);
        }
    }

    if ((uct_cuda_mp_rsc_make_current(graphs->rsc, local, &current) !=
         UCS_OK) ||
        (status != UCS_OK)) {
        uct_cuda_mp_graph_cache_drop(&graphs->cache, graph);
        return NULL;
    }

    graphs->failures = 0;
    ++graphs->cache.misses;
    return graph;
}

/* Give an idle graph the addresses of this transfer */
static ucs_status_t
graph_retarget(graphs_t *graphs, uct_cuda_mp_graph_t *graph)
{
    const uct_cuda_mp_graph_node_t *wanted;
    uct_cuda_mp_graph_node_t *node;
    ucs_status_t status;
    CUDA_MEMCPY3D copy;
    bool is_changed = false;
    unsigned i;

    for (i = 0; i < graph->plan.num_steps; ++i) {
        node   = &graph->nodes[i];
        wanted = &graphs->nodes[i];
        if ((node->to == wanted->to) && (node->from == wanted->from)) {
            continue;
        }

        copy_params(&graph->plan, i, wanted, &copy);
        /* Refused where memory is of another kind than before: there is a way
         * on, so no error */
        status = UCT_CUDA_CALL_NOLOG(cuGraphExecMemcpyNodeSetParams,
                                     graph->exec, node->node, &copy,
                                     step_ctx(graphs, &graph->plan, i));
        if (status != UCS_OK) {
            return status;
        }

        node->to   = wanted->to;
        node->from = wanted->from;
        is_changed = true;
    }

    ++*(is_changed ? &graphs->cache.retargets : &graphs->cache.hits);
    return UCS_OK;
}


/* ----------------------------------------------------------------- choosing */

/* What each node of this transfer copies */
static void set_addresses(graphs_t *graphs, const uct_cuda_mp_plan_t *plan,
                          const uct_cuda_mp_memory_t *memory)
{
    unsigned i;
    int device;

    for (i = 0; i < plan->num_steps; ++i) {
        device = uct_cuda_mp_plan_lane_device(plan, plan->steps[i].queue);
        graphs->nodes[i].from = uct_cuda_mp_rsc_address(
                graphs->rsc, plan, uct_cuda_mp_plan_from(plan, i), memory,
                device);
        graphs->nodes[i].to   = uct_cuda_mp_rsc_address(
                graphs->rsc, plan, uct_cuda_mp_plan_to(plan, i), memory,
                device);
    }
}

/* Has a shape gone another way that often? If not, it does once more. */
static bool is_due(graphs_t *graphs, uint64_t hash, unsigned threshold)
{
    seen_t *seen = &graphs->seen[hash % SEEN_SIZE];

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

/* A graph with this transfer's addresses that is not in flight, or NULL */
static uct_cuda_mp_graph_t *
graph_get(graphs_t *graphs, const uct_cuda_mp_graph_key_t *key,
          unsigned threshold)
{
    uct_cuda_mp_graph_t *graph;
    bool is_there;

    graph = uct_cuda_mp_graph_cache_find(&graphs->cache, key, graphs->nodes,
                                         &is_there);
    if (graph != NULL) {
        if (graph_retarget(graphs, graph) == UCS_OK) {
            return graph;
        }

        /* Half of it may be changed */
        uct_cuda_mp_graph_cache_drop(&graphs->cache, graph);
    } else if (!is_there && !is_due(graphs, key->hash, threshold)) {
        return NULL;
    }

    if (threshold > 0) {
        graphs->wanted = *key;
        return NULL;
    }

    return graph_new(graphs, key);
}


/* -------------------------------------------------------------------- banks */

/* Take the next bank of each staging memory. Returns which, a bit a path. */
static uint32_t take_banks(graphs_t *graphs, const uct_cuda_mp_plan_t *plan)
{
    const unsigned slots = UCT_CUDA_MP_PLAN_SLOTS;
    uint32_t banks       = 0;
    uct_cuda_mp_staging_t *staging;
    unsigned p, number;

    graphs->num_taken = 0;
    for (p = 0; p < plan->num_paths; ++p) {
        staging = uct_cuda_mp_rsc_staging(
                graphs->rsc, plan,
                uct_cuda_mp_path_via(&plan->paths[p].path));
        if (staging != NULL) {
            number        = ((staging->next + slots - 1) / slots) %
                            UCT_CUDA_MP_STAGING_BANKS;
            staging->next = number * slots;
            banks        |= (uint32_t)(number > 0) << p;
            graphs->taken[graphs->num_taken++] = staging;
        }
    }

    return banks;
}

/* Make the launch wait until its banks are drained */
static ucs_status_t wait_banks(graphs_t *graphs, CUstream stream)
{
    ucs_status_t status = UCS_OK;
    CUevent before      = NULL;
    const uct_cuda_mp_staging_t *staging;
    unsigned i, slot;
    CUevent event;

    for (i = 0; i < graphs->num_taken; ++i) {
        staging = graphs->taken[i];
        for (slot = 0; (slot < UCT_CUDA_MP_PLAN_SLOTS) && (status == UCS_OK);
             ++slot) {
            event = staging->slots[staging->next + slot].drained;
            if ((event != NULL) && (event != before)) {
                status = UCT_CUDA_CALL(cuStreamWaitEvent, stream, event, 0);
            }

            before = event;
        }
    }

    return status;
}

/* The launch has its banks now, and whoever comes next begins behind them */
static void leave_banks(graphs_t *graphs, const uct_cuda_mp_graph_t *graph)
{
    uct_cuda_mp_staging_t *staging;
    unsigned i, slot;

    for (i = 0; i < graphs->num_taken; ++i) {
        staging = graphs->taken[i];
        for (slot = 0; slot < UCT_CUDA_MP_PLAN_SLOTS; ++slot) {
            uct_cuda_mp_rsc_set_drained(graphs->rsc,
                                        &staging->slots[staging->next + slot],
                                        graph->ended, graph->plan.local, true);
        }

        staging->next = uct_cuda_mp_staging_slot(staging,
                                                 UCT_CUDA_MP_PLAN_SLOTS);
    }
}


/* ---------------------------------------------------------------- launching */

/* Before a launch: have it wait for what has the lane and its nodes do not wait
 * for */
static ucs_status_t
enter_lane(graphs_t *graphs, const uct_cuda_mp_graph_t *graph, uint16_t number,
           CUstream launch, int *current)
{
    const int device         = uct_cuda_mp_plan_lane_device(&graph->plan,
                                                            number);
    uct_cuda_mp_lane_t *lane = uct_cuda_mp_rsc_lane(graphs->rsc, device,
                                                    number);
    ucs_status_t status      = UCS_OK;

    if (lane->is_queued) {
        status = ordered_lane(graphs, &graph->plan, number, current, &lane);
        if (status == UCS_OK) {
            status = uct_cuda_mp_rsc_make_current(graphs->rsc, device, current);
        }

        if (status == UCS_OK) {
            status = UCT_CUDA_CALL(cuEventRecord, lane->ordering, lane->stream);
        }

        if (status != UCS_OK) {
            return status;
        }

        lane->outside   = lane->ordering;
        lane->is_queued = false;
    }

    return ((lane->outside == NULL) ||
            (graph->key.is_ordered && (lane->outside == lane->ordering))) ?
                   UCS_OK :
                   UCT_CUDA_CALL(cuStreamWaitEvent, launch, lane->outside, 0);
}

/* In the context of the plan's local end, which becomes current again */
static ucs_status_t
graph_launch(graphs_t *graphs, const uct_cuda_mp_work_t *work,
             const uct_cuda_mp_graph_t *graph, CUstream stream)
{
    const uct_cuda_mp_plan_t *plan = work->plan;
    int current                    = plan->local;
    uint16_t lanes[UCT_CUDA_MP_MAX_HOPS * UCT_CUDA_MP_MAX_PATHS];
    const unsigned count = uct_cuda_mp_plan_lanes(plan, lanes);
    uct_cuda_trace_copy_t *copy;
    uct_cuda_mp_lane_t *lane;
    ucs_status_t status;
    unsigned i;

    status = wait_banks(graphs, stream);
    for (i = 0; (i < count) && (status == UCS_OK); ++i) {
        status = enter_lane(graphs, graph, lanes[i], stream, &current);
    }

    if (status == UCS_OK) {
        status = uct_cuda_mp_rsc_make_current(graphs->rsc, plan->local,
                                              &current);
    }

    if (status == UCS_OK) {
        copy   = uct_cuda_trace_begin(stream);
        status = UCT_CUDA_CALL(cuGraphLaunch, graph->exec, stream);
        uct_cuda_trace_end(copy, stream, plan->src, plan->dst, plan->size,
                           "graph");
    }

    if (status == UCS_OK) {
        status = UCT_CUDA_CALL(cuEventRecord, graph->ended, stream);
    }

    if (status != UCS_OK) {
        return status;
    }

    leave_banks(graphs, graph);
    for (i = 0; i < count; ++i) {
        lane = uct_cuda_mp_rsc_lane(graphs->rsc,
                                    uct_cuda_mp_plan_lane_device(plan,
                                                                 lanes[i]),
                                    lanes[i]);
        lane->outside = graph->key.is_ordered ? lane->ordering : graph->ended;
    }

    return UCS_OK;
}

static ucs_status_t
graph_submit(graphs_t *graphs, const uct_cuda_mp_work_t *work,
             uct_cuda_mp_graph_t *graph)
{
    const uct_cuda_mp_plan_t *plan = work->plan;
    const uint16_t number          = uct_cuda_mp_lane(plan->src, plan->dst);
    uct_cuda_mp_lane_t *lane       = uct_cuda_mp_rsc_lane(graphs->rsc,
                                                          plan->local, number);
    CUstream *stream               = &lane->launches[lane->turn];
    ucs_status_t status;

    /* Held even if the launch fails: the stream is waited for then */
    graph->is_busy = true;
    graph->next    = *work->held;
    *work->held    = graph;
    status         = uct_cuda_mp_rsc_make_stream(graphs->rsc, plan->local,
                                                 stream);
    if (status == UCS_OK) {
        lane->turn ^= 1;
        uct_cuda_mp_used_add(work->used, plan->local, *stream, true);
        status = graph_launch(graphs, work, graph, *stream);
    }

    /* Lanes and slots may be taken: streams are no way on */
    return (status == UCS_ERR_NO_RESOURCE) ? UCS_ERR_IO_ERROR : status;
}

ucs_status_t uct_cuda_mp_graphs_submit(uct_cuda_mp_graphs_t *graphs,
                                       const uct_cuda_mp_work_t *work,
                                       const uct_cuda_mp_memory_t *memory)
{
    const unsigned threshold = uct_cuda_mp_cost_threshold(work->plan,
                                                          work->config,
                                                          work->model);
    uct_cuda_mp_graph_key_t key = {
        .plan       = work->plan,
        .is_ordered = !work->is_alone && !graphs->is_unordered
    };
    uct_cuda_mp_graph_t *graph;
    ucs_status_t status;

    graphs->wanted.plan = NULL;
    if ((threshold == UCT_CUDA_MP_COST_NEVER) ||
        (graphs->failures >= MAX_FAILURES) || !driver_has_graphs()) {
        return UCS_ERR_NO_RESOURCE;
    }

    key.banks = take_banks(graphs, work->plan);
    status    = uct_cuda_ctx_push(uct_cuda_mp_rsc_ctx(graphs->rsc,
                                                      work->plan->local));
    if (status != UCS_OK) {
        return status;
    }

    set_addresses(graphs, work->plan, memory);
    uct_cuda_mp_graph_key_hash(&key);
    graph  = graph_get(graphs, &key, threshold);
    status = (graph == NULL) ? UCS_ERR_NO_RESOURCE :
                               graph_submit(graphs, work, graph);
    uct_cuda_ctx_pop();
    return status;
}

/* Build what is wanted while streams carry that same plan out: the thread would
 * only wait for them, and the next transfer of the shape finds its graph. What
 * fails is left for another time. */
void uct_cuda_mp_graphs_passed(uct_cuda_mp_graphs_t *graphs)
{
    const uct_cuda_mp_plan_t *plan = graphs->wanted.plan;

    if ((plan != NULL) &&
        (uct_cuda_ctx_push(uct_cuda_mp_rsc_ctx(graphs->rsc, plan->local)) ==
         UCS_OK)) {
        (void)graph_new(graphs, &graphs->wanted);
        uct_cuda_ctx_pop();
    }
}

void uct_cuda_mp_graphs_release(uct_cuda_mp_graphs_t *graphs,
                                uct_cuda_mp_graph_t *held)
{
    uct_cuda_mp_graph_t *next;

    for (; held != NULL; held = next) {
        next          = held->next;
        held->is_busy = false;
        if (held->is_lost) {
            uct_cuda_mp_graph_cache_drop(&graphs->cache, held);
        }
    }
}

void uct_cuda_mp_graphs_lose(uct_cuda_mp_graphs_t *graphs, uint32_t devices)
{
    uct_cuda_mp_graph_cache_lose(&graphs->cache, devices);
}

ucs_status_t uct_cuda_mp_graphs_create(uct_cuda_mp_rsc_t *rsc,
                                       uct_cuda_mp_graphs_t **graphs_p)
{
    graphs_t *graphs = calloc(1, sizeof(*graphs));

    if (graphs == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    graphs->rsc = rsc;
    uct_cuda_mp_graph_cache_init(&graphs->cache, CACHE_SIZE, rsc);
    *graphs_p = graphs;
    return UCS_OK;
}

void uct_cuda_mp_graphs_destroy(uct_cuda_mp_graphs_t *graphs)
{
    const uct_cuda_mp_graph_cache_t *cache = &graphs->cache;

    if (cache->misses + cache->waits > 0) {
        uct_cuda_info("graphs: %" PRIu64 " hits, %" PRIu64 " retargets, "
                      "%" PRIu64 " misses, %" PRIu64 " evictions, %" PRIu64
                      " in-flight waits",
                      cache->hits, cache->retargets, cache->misses,
                      cache->evictions, cache->waits);
    }

    uct_cuda_mp_graph_cache_cleanup(&graphs->cache);
    free(graphs);
}
