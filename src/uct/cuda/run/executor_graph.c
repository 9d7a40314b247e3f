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
 * have the event behind the launch then.
 */
#include <uct/cuda/run/executor.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/trace.h>
#include <uct/cuda/run/graph_cache.h>
#include <uct/cuda/run/graph_cost.h>
#include <uct/cuda/run/lane_order.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>


/* Shapes that went another way, by hash; two that share a place forget each
 * other */
#define SEEN_SIZE 256

/* Failures to build a graph, with no success in between, after which graphs are
 * tried without event nodes, and then no more */
#define MAX_FAILURES 3

#define MAX_DEPENDENCIES 2

/* Staging memories: of GPUs, then of NUMA nodes */
#define NUM_STAGINGS (UCT_CUDA_MAX_GPUS + UCT_CUDA_TOPO_MAX_NUMA)


typedef struct {
    uint64_t hash;
    unsigned times;
} seen_t;


/* A stream that graphs are launched in */
typedef struct {
    CUstream stream;
    CUevent  ended; /* behind the last of them */
} launch_t;


/* For graphs between this GPU and one other, or the host, in one direction:
 * they take turns, so that one begins while another ends */
typedef struct {
    launch_t launches[2];
    unsigned turn;
} pair_t;


/* A bank of staging slots: event behind the last graph that had it */
typedef struct {
    CUevent event;  /* NULL: none yet */
    int     device; /* whose context it is of */
} bank_t;


/* A bank of the plan that is being submitted */
typedef struct {
    uct_cuda_mp_staging_t *staging; /* whose next slot is the bank's first */
    bank_t                *bank;
} taken_t;


/* What is of one context */
typedef struct {
    pair_t  pairs[UCT_CUDA_NUM_ENDS][2];
    CUevent ordering[UCT_CUDA_MP_NUM_LANES]; /* NULL: not there yet */
} device_t;


typedef struct {
    uct_cuda_mp_executor_t    super;
    uct_cuda_mp_graph_cache_t cache;
    unsigned                  failures;
    bool                      is_unordered; /* no graph has ordering events */
    seen_t                    seen[SEEN_SIZE];
    /* What the last plan had no graph for, and is worth one */
    bool                      is_wanted;
    uint64_t                  wanted_hash;
    uct_cuda_mp_graph_key_t   wanted;
    device_t                  devices[UCT_CUDA_MAX_GPUS];
    bank_t                    banks[NUM_STAGINGS][UCT_CUDA_MP_STAGING_BANKS];
    /* Of the plan that is being submitted: its banks, and what its nodes are to
     * copy */
    unsigned                  num_taken;
    taken_t                   taken[UCT_CUDA_MP_MAX_PATHS];
    uct_cuda_mp_graph_node_t  nodes[UCT_CUDA_MP_MAX_STEPS];
} graphs_t;


static bool driver_has_graphs(void)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();

    return (driver->cuGraphCreate != NULL) &&
           (driver->cuGraphDestroy != NULL) &&
           (driver->cuGraphAddMemcpyNode != NULL) &&
           (driver->cuGraphInstantiateWithFlags != NULL) &&
           (driver->cuGraphExecMemcpyNodeSetParams != NULL) &&
           (driver->cuGraphExecDestroy != NULL) &&
           (driver->cuGraphLaunch != NULL);
}

static bool driver_has_event_nodes(void)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();

    return (driver->cuGraphAddEventRecordNode != NULL) &&
           (driver->cuGraphAddEventWaitNode != NULL);
}

/* The event of a lane that nodes of graphs wait for and record: the same one
 * for good */
static ucs_status_t ordering_event(graphs_t *graphs, int device, uint16_t lane,
                                   int *current, CUevent *event_p)
{
    CUevent *ordering = &graphs->devices[device].ordering[lane];
    ucs_status_t status;

    if (*ordering == NULL) {
        status = uct_cuda_mp_rsc_make_current(graphs->super.rsc, device,
                                              current);
        if (status == UCS_OK) {
            status = uct_cuda_mp_rsc_get_event(graphs->super.rsc, device,
                                               ordering);
        }

        if (status != UCS_OK) {
            *ordering = NULL;
            return status;
        }
    }

    *event_p = *ordering;
    return UCS_OK;
}

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

/* What each node of this transfer copies */
static void set_addresses(graphs_t *graphs,
                          const uct_cuda_mp_plan_t *plan,
                          const uct_cuda_mp_memory_t *memory)
{
    uct_cuda_mp_rsc_t *rsc = graphs->super.rsc;
    unsigned i;
    int device;

    for (i = 0; i < plan->num_steps; ++i) {
        device = uct_cuda_mp_plan_lane_device(plan, plan->steps[i].queue);
        graphs->nodes[i].from = uct_cuda_mp_rsc_address(
                rsc, plan, uct_cuda_mp_plan_from(plan, i), memory, device);
        graphs->nodes[i].to   = uct_cuda_mp_rsc_address(
                rsc, plan, uct_cuda_mp_plan_to(plan, i), memory, device);
    }
}

/* Nodes behind which a step's node comes: the one before it on its lane, and
 * what it waits for on others */
static unsigned step_dependencies(const uct_cuda_mp_plan_t *plan,
                                  unsigned number,
                                  const uct_cuda_mp_graph_t *graph,
                                  const CUgraphNode *lane_last,
                                  CUgraphNode *dependencies)
{
    const uint16_t lane = plan->steps[number].queue;
    unsigned count      = 0;

    if (lane_last[lane] != NULL) {
        dependencies[count++] = lane_last[lane];
    }

    if (uct_cuda_mp_plan_step_waits(plan, number)) {
        dependencies[count++] = graph->nodes[plan->waits[number]].node;
    }

    return count;
}

/* In front of a graph's first copy on a lane: a wait for what has the lane.
 * Nodes may wait for, and record, events of any context, whichever the graph is
 * launched in, and a launch waits for what was recorded before it even if it
 * records the same event anew (tried with two contexts of an H200). */
static ucs_status_t add_order_wait(graphs_t *graphs,
                                   const uct_cuda_mp_plan_t *plan,
                                   uint16_t lane, int *current, CUgraph graph,
                                   CUgraphNode *node_p)
{
    int device = uct_cuda_mp_plan_lane_device(plan, lane);
    ucs_status_t status;
    CUevent event;

    status = ordering_event(graphs, device, lane, current, &event);
    if (status != UCS_OK) {
        return status;
    }

    return UCT_CUDA_CALL(cuGraphAddEventWaitNode, node_p, graph, NULL, 0,
                         event);
}

/* Behind its last copy on each lane: what comes next waits for that */
static ucs_status_t add_order_records(graphs_t *graphs,
                                     const uct_cuda_mp_plan_t *plan,
                                     const CUgraphNode *lane_last, int *current,
                                     const uct_cuda_mp_graph_t *graph)
{
    ucs_status_t status = UCS_OK;
    CUgraphNode node;
    uint16_t lane;
    unsigned i;
    CUevent event;

    for (i = 0; (i < plan->num_steps) && (status == UCS_OK); ++i) {
        lane = plan->steps[i].queue;
        if (lane_last[lane] != graph->nodes[i].node) {
            continue;
        }

        status = ordering_event(graphs,
                                uct_cuda_mp_plan_lane_device(plan, lane), lane,
                                current, &event);
        if (status == UCS_OK) {
            status = UCT_CUDA_CALL(cuGraphAddEventRecordNode, &node,
                                   graph->graph, &lane_last[lane], 1, event);
        }
    }

    return status;
}

static ucs_status_t graph_build(graphs_t *graphs,
                                const uct_cuda_mp_plan_t *plan, int *current,
                                uct_cuda_mp_graph_t *graph)
{
    CUgraphNode lane_last[UCT_CUDA_MP_NUM_LANES] = {NULL};
    CUgraphNode dependencies[MAX_DEPENDENCIES];
    CUDA_MEMCPY3D copy;
    ucs_status_t status;
    unsigned i, count;
    uint16_t lane;

    status = UCT_CUDA_CALL(cuGraphCreate, &graph->graph, 0);
    for (i = 0; (i < plan->num_steps) && (status == UCS_OK); ++i) {
        lane = plan->steps[i].queue;
        if (graph->key.is_ordered && (lane_last[lane] == NULL)) {
            status = add_order_wait(graphs, plan, lane, current, graph->graph,
                                    &lane_last[lane]);
            if (status != UCS_OK) {
                return status;
            }
        }

        copy_params(plan, i, &graph->nodes[i], &copy);
        count  = step_dependencies(plan, i, graph, lane_last, dependencies);
        status = UCT_CUDA_CALL(
                cuGraphAddMemcpyNode, &graph->nodes[i].node, graph->graph,
                dependencies, count, &copy,
                uct_cuda_mp_rsc_ctx(graphs->super.rsc,
                                    uct_cuda_mp_plan_lane_device(plan, lane)));
        lane_last[lane] = graph->nodes[i].node;
    }

    if ((status == UCS_OK) && graph->key.is_ordered) {
        status = add_order_records(graphs, plan, lane_last, current, graph);
    }

    if (status != UCS_OK) {
        return status;
    }

    return UCT_CUDA_CALL(cuGraphInstantiateWithFlags, &graph->exec,
                         graph->graph, 0);
}

/* Give an idle graph the addresses of this transfer */
static ucs_status_t
graph_retarget(graphs_t *graphs, uct_cuda_mp_graph_t *graph)
{
    const uct_cuda_mp_plan_t *plan = graph->key.plan;
    const uct_cuda_mp_graph_node_t *wanted;
    uct_cuda_mp_graph_node_t *node;
    ucs_status_t status;
    CUDA_MEMCPY3D copy;
    unsigned changed = 0;
    unsigned i;

    for (i = 0; i < plan->num_steps; ++i) {
        node   = &graph->nodes[i];
        wanted = &graphs->nodes[i];
        if ((node->to == wanted->to) && (node->from == wanted->from)) {
            continue;
        }

        copy_params(plan, i, wanted, &copy);
        /* Refused where memory is of another kind than before: there is a way
         * on, so no error */
        status = UCT_CUDA_CALL_NOLOG(
                cuGraphExecMemcpyNodeSetParams, graph->exec, node->node, &copy,
                uct_cuda_mp_rsc_ctx(graphs->super.rsc,
                                    uct_cuda_mp_plan_lane_device(
                                            plan, plan->steps[i].queue)));
        if (status != UCS_OK) {
            return status;
        }

        node->to   = wanted->to;
        node->from = wanted->from;
        ++changed;
    }

    ++*((changed > 0) ? &graphs->cache.counters.retargets :
                        &graphs->cache.counters.hits);
    return UCS_OK;
}

/* Has a shape gone another way that often? If not, it does once more. */
static bool is_due(graphs_t *graphs, uint64_t hash,
                   unsigned threshold)
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

/* Whose contexts a plan's graph has */
static uint32_t plan_devices(const uct_cuda_mp_plan_t *plan)
{
    uint32_t devices = 1u << plan->local;
    unsigned i;

    for (i = 0; i < plan->num_steps; ++i) {
        devices |= 1u << uct_cuda_mp_plan_lane_device(plan,
                                                      plan->steps[i].queue);
    }

    return devices;
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
graph_new(graphs_t *graphs, const uct_cuda_mp_graph_key_t *key, uint64_t hash)
{
    const int local = key->plan->local;
    int current     = local;
    uct_cuda_mp_graph_t *graph;
    ucs_status_t status;

    if ((graphs->cache.size > 0) &&
        !uct_cuda_mp_graph_cache_reserve(&graphs->cache)) {
        ++graphs->cache.counters.waits;
        return NULL;
    }

    graph = uct_cuda_mp_graph_alloc(key, hash, graphs->nodes);
    if (graph == NULL) {
        return NULL;
    }

    graph->devices = plan_devices(key->plan);
    status         = graph_build(graphs, key->plan, &current, graph);
    if (status != UCS_OK) {
        build_failed(graphs, key->is_ordered);
    }

    if ((uct_cuda_mp_rsc_make_current(graphs->super.rsc, local, &current) !=
         UCS_OK) ||
        (status != UCS_OK)) {
        uct_cuda_mp_graph_free(graph);
        return NULL;
    }

    graphs->failures = 0;
    ++graphs->cache.counters.misses;
    uct_cuda_mp_graph_cache_add(&graphs->cache, graph);
    return graph;
}

/* A graph with this transfer's addresses that is not in flight, or NULL */
static uct_cuda_mp_graph_t *
graph_get(graphs_t *graphs, const uct_cuda_mp_graph_key_t *key,
          unsigned threshold)
{
    uint64_t hash = uct_cuda_mp_graph_hash(key);
    uct_cuda_mp_graph_t *graph;
    bool is_there;

    graph = uct_cuda_mp_graph_cache_find(&graphs->cache, key, hash,
                                         graphs->nodes, &is_there);
    if (graph != NULL) {
        if (graph_retarget(graphs, graph) == UCS_OK) {
            return graph;
        }

        /* Half of it may be changed */
        uct_cuda_mp_graph_cache_drop(&graphs->cache, graph);
    } else if (!is_there && !is_due(graphs, hash, threshold)) {
        return NULL;
    }

    if (threshold > 0) {
        graphs->is_wanted   = true;
        graphs->wanted_hash = hash;
        graphs->wanted      = *key;
        return NULL;
    }

    return graph_new(graphs, key, hash);
}

/* Take the next bank of each staging memory. Returns which, a bit a path. */
static uint32_t take_banks(graphs_t *graphs, const uct_cuda_mp_plan_t *plan)
{
    const unsigned slots = UCT_CUDA_MP_PLAN_SLOTS;
    uint32_t banks       = 0;
    uct_cuda_mp_staging_t *staging;
    unsigned p, owner, number;

    graphs->num_taken = 0;
    for (p = 0; p < plan->num_paths; ++p) {
        staging = uct_cuda_mp_rsc_path_staging(graphs->super.rsc, plan, p);
        if (staging == NULL) {
            continue;
        }

        number        = ((staging->next + slots - 1) / slots) %
                        UCT_CUDA_MP_STAGING_BANKS;
        staging->next = number * slots;
        banks        |= (uint32_t)(number > 0) << p;
        owner         = (plan->paths[p].path.route == UCT_CUDA_MP_ROUTE_GPU) ?
                                (unsigned)plan->paths[p].path.gpu :
                                UCT_CUDA_MAX_GPUS + (unsigned)plan->numa;
        graphs->taken[graphs->num_taken].bank = &graphs->banks[owner][number];
        graphs->taken[graphs->num_taken++].staging = staging;
    }

    return banks;
}

/* Make the launch wait until its banks are drained */
static ucs_status_t wait_banks(graphs_t *graphs, CUstream stream)
{
    const unsigned slots = UCT_CUDA_MP_PLAN_SLOTS;
    CUevent before       = NULL;
    uct_cuda_mp_slot_t *slot;
    ucs_status_t status;
    unsigned i;

    for (i = 0; i < graphs->num_taken * slots; ++i) {
        slot = &graphs->taken[i / slots]
                        .staging->slots[graphs->taken[i / slots].staging->next +
                                        i % slots];
        if ((slot->drained != NULL) && (slot->drained != before)) {
            status = UCT_CUDA_CALL(cuStreamWaitEvent, stream, slot->drained, 0);
            if (status != UCS_OK) {
                return status;
            }
        }

        before = slot->drained;
        uct_cuda_mp_rsc_set_drained(graphs->super.rsc, slot, NULL, 0, true);
    }

    return UCS_OK;
}

static void put_bank(graphs_t *graphs, bank_t *bank)
{
    if (bank->event != NULL) {
        uct_cuda_mp_rsc_put_event(graphs->super.rsc, bank->device, bank->event);
        bank->event = NULL;
    }
}

/* Record a bank's event behind the launch, in the current context */
static ucs_status_t record_bank(graphs_t *graphs, bank_t *bank, int device,
                                CUstream stream)
{
    ucs_status_t status;

    if (bank->device != device) {
        put_bank(graphs, bank);
        bank->device = device;
    }

    if (bank->event == NULL) {
        status = uct_cuda_mp_rsc_get_event(graphs->super.rsc, device,
                                           &bank->event);
        if (status != UCS_OK) {
            bank->event = NULL;
            return status;
        }
    }

    return UCT_CUDA_CALL(cuEventRecord, bank->event, stream);
}

/* The launch has its banks now. With others in flight it matters that each
 * waits for no more than it must: for events of the banks' own then, where that
 * of the launch's stream may soon be the next graph's. */
static ucs_status_t leave_banks(graphs_t *graphs, bool is_ordered, int device,
                                const launch_t *launch)
{
    ucs_status_t status = UCS_OK;
    CUevent event       = launch->ended;
    uct_cuda_mp_staging_t *staging;
    unsigned i, slot;

    if (!is_ordered) {
        status = UCT_CUDA_CALL(cuEventRecord, event, launch->stream);
    }

    for (i = 0; (i < graphs->num_taken) && (status == UCS_OK); ++i) {
        staging = graphs->taken[i].staging;
        if (is_ordered) {
            status = record_bank(graphs, graphs->taken[i].bank, device,
                                 launch->stream);
            event  = graphs->taken[i].bank->event;
        }

        for (slot = 0; (slot < UCT_CUDA_MP_PLAN_SLOTS) && (status == UCS_OK);
             ++slot) {
            uct_cuda_mp_rsc_set_drained(graphs->super.rsc,
                                        &staging->slots[staging->next + slot],
                                        event, device, true);
        }
    }

    return status;
}

static void pass_banks(graphs_t *graphs)
{
    uct_cuda_mp_staging_t *staging;
    unsigned i;

    for (i = 0; i < graphs->num_taken; ++i) {
        staging       = graphs->taken[i].staging;
        staging->next = uct_cuda_mp_staging_slot(staging,
                                                 UCT_CUDA_MP_PLAN_SLOTS);
    }
}

/* Before a launch: have it wait for what has the lane and its nodes do not wait
 * for */
static ucs_status_t enter_lane(graphs_t *graphs, int device, uint16_t number,
                               bool is_ordered, CUstream launch, int *current)
{
    uct_cuda_mp_lane_t *lane = uct_cuda_mp_rsc_lane(graphs->super.rsc, device,
                                                    number);
    ucs_status_t status;
    CUevent event;

    if (lane->is_queued) {
        status = ordering_event(graphs, device, number, current, &event);
        if (status == UCS_OK) {
            status = uct_cuda_mp_lane_record(graphs->super.rsc, device, number,
                                             event, current);
        }

        if (status != UCS_OK) {
            return status;
        }
    }

    if ((lane->outside == NULL) ||
        (is_ordered &&
         (lane->outside == graphs->devices[device].ordering[number]))) {
        return UCS_OK;
    }

    return UCT_CUDA_CALL(cuStreamWaitEvent, launch, lane->outside, 0);
}

/* What is kept for transfers between these ends, in this direction */
static pair_t *find_pair(graphs_t *graphs, const uct_cuda_mp_plan_t *plan)
{
    const bool is_dst = !uct_cuda_end_is_device(plan->src, plan->local);

    return &graphs->devices[plan->local].pairs[uct_cuda_end_index(
            is_dst ? plan->src : plan->dst)][is_dst];
}

/* Stream and event for the next graph. What waits for the event may come to
 * wait for the graph after it in the stream as well. */
static ucs_status_t next_launch(graphs_t *graphs,
                                const uct_cuda_mp_plan_t *plan,
                                launch_t *launch_p)
{
    const int local  = plan->local;
    pair_t *pair     = find_pair(graphs, plan);
    launch_t *launch = &pair->launches[pair->turn];
    ucs_status_t status;

    status = uct_cuda_mp_rsc_make_stream(graphs->super.rsc, local,
                                         &launch->stream);
    if ((status == UCS_OK) && (launch->ended == NULL)) {
        status = uct_cuda_mp_rsc_get_event(graphs->super.rsc, local,
                                           &launch->ended);
        if (status != UCS_OK) {
            launch->ended = NULL;
        }
    }

    pair->turn ^= (status == UCS_OK);
    *launch_p   = *launch;
    return status;
}

static ucs_status_t graph_launch(graphs_t *graphs,
                                 const uct_cuda_mp_work_t *work,
                                 const uct_cuda_mp_graph_t *graph)
{
    uct_cuda_mp_rsc_t *rsc = graphs->super.rsc;
    const bool is_ordered  = graph->key.is_ordered;
    const int local        = work->plan->local;
    int current            = local;
    uint16_t lanes[UCT_CUDA_MP_MAX_HOPS * UCT_CUDA_MP_MAX_PATHS];
    uct_cuda_trace_copy_t *copy;
    ucs_status_t status;
    unsigned i, count;
    launch_t launch;
    int device;

    status = next_launch(graphs, work->plan, &launch);
    if (status != UCS_OK) {
        return status;
    }

    uct_cuda_mp_used_add(work->used, local, launch.stream, true);
    count  = uct_cuda_mp_plan_lanes(work->plan, lanes);
    status = wait_banks(graphs, launch.stream);
    for (i = 0; (i < count) && (status == UCS_OK); ++i) {
        status = enter_lane(graphs,
                            uct_cuda_mp_plan_lane_device(work->plan, lanes[i]),
                            lanes[i], is_ordered, launch.stream, &current);
    }

    if (status == UCS_OK) {
        status = uct_cuda_mp_rsc_make_current(rsc, local, &current);
    }

    if (status == UCS_OK) {
        copy   = uct_cuda_trace_begin(launch.stream);
        status = UCT_CUDA_CALL(cuGraphLaunch, graph->exec, launch.stream);
        uct_cuda_trace_end(copy, launch.stream, work->plan->src,
                           work->plan->dst, work->plan->size, "graph");
    }

    if (status == UCS_OK) {
        status = leave_banks(graphs, is_ordered, local, &launch);
    }

    for (i = 0; (i < count) && (status == UCS_OK); ++i) {
        device = uct_cuda_mp_plan_lane_device(work->plan, lanes[i]);
        uct_cuda_mp_rsc_lane(rsc, device, lanes[i])->outside =
                is_ordered ? graphs->devices[device].ordering[lanes[i]] :
                             launch.ended;
    }

    return status;
}

static ucs_status_t graphs_submit(uct_cuda_mp_executor_t *executor,
                                  const uct_cuda_mp_work_t *work,
                                  const uct_cuda_mp_memory_t *memory)
{
    graphs_t *graphs            = (graphs_t*)executor;
    uct_cuda_mp_graph_key_t key = {
        .plan       = work->plan,
        .is_ordered = !work->is_alone && !graphs->is_unordered &&
                      driver_has_event_nodes()
    };
    uct_cuda_mp_graph_t *graph;
    ucs_status_t status;
    unsigned threshold;

    graphs->is_wanted = false;
    if (!uct_cuda_mp_cost_wants_graph(work->plan, work->config, work->model,
                                      &threshold) ||
        (graphs->failures >= MAX_FAILURES) || !driver_has_graphs()) {
        return UCS_ERR_NO_RESOURCE;
    }

    key.banks = take_banks(graphs, work->plan);
    status    = uct_cuda_ctx_push(uct_cuda_mp_rsc_ctx(
            executor->rsc, work->plan->local));
    if (status != UCS_OK) {
        return status;
    }

    set_addresses(graphs, work->plan, memory);
    graph = graph_get(graphs, &key, threshold);
    if (graph == NULL) {
        status = UCS_ERR_NO_RESOURCE;
        goto out_pop;
    }

    /* Held even if the launch fails: the stream is waited for then */
    graph->is_busy       = true;
    graph->held.next     = *work->held;
    graph->held.executor = executor;
    *work->held          = &graph->held;
    status               = graph_launch(graphs, work, graph);
    if (status == UCS_ERR_NO_RESOURCE) {
        status = UCS_ERR_IO_ERROR; /* slots' events are taken: not by streams */
    }
    pass_banks(graphs);

out_pop:
    uct_cuda_ctx_pop();
    return status;
}

/* Build what is wanted while streams carry that same plan out: the thread would
 * only wait for them, and the next transfer of the shape finds its graph. What
 * fails is left for another time. */
static void graphs_passed(uct_cuda_mp_executor_t *executor,
                          const uct_cuda_mp_work_t *work)
{
    graphs_t *graphs = (graphs_t*)executor;

    if (graphs->is_wanted &&
        (uct_cuda_ctx_push(uct_cuda_mp_rsc_ctx(
                 executor->rsc, work->plan->local)) ==
         UCS_OK)) {
        (void)graph_new(graphs, &graphs->wanted, graphs->wanted_hash);
        uct_cuda_ctx_pop();
    }

    graphs->is_wanted = false;
}

static void graphs_release(uct_cuda_mp_executor_t *executor,
                           uct_cuda_mp_held_t *held)
{
    uct_cuda_mp_graph_t *graph = (uct_cuda_mp_graph_t*)held;

    graph->is_busy = false;
    if (!graph->is_cached) {
        uct_cuda_mp_graph_cache_drop(&((graphs_t*)executor)->cache, graph);
    }
}

/* Calls a function for each pair of each device. */
static void for_launches(graphs_t *graphs, uint32_t devices,
                         void (*func)(graphs_t *graphs, int device,
                                      launch_t *launch))
{
    const unsigned count = sizeof(graphs->devices[0].pairs) / sizeof(pair_t);
    pair_t *pairs;
    unsigned i;
    int device;

    for (device = 0; device < UCT_CUDA_MAX_GPUS; ++device) {
        pairs = &graphs->devices[device].pairs[0][0];
        for (i = 0; (devices & (1u << device)) && (i < 2 * count); ++i) {
            if (pairs[i / 2].launches[i % 2].stream != NULL) {
                func(graphs, device, &pairs[i / 2].launches[i % 2]);
            }
        }
    }
}

static void launch_wait(graphs_t *graphs, int device, launch_t *launch)
{
    uct_cuda_mp_rsc_wait_stream(graphs->super.rsc, device, launch->stream);
}

static void launch_destroy(graphs_t *graphs, int device, launch_t *launch)
{
    uct_cuda_mp_rsc_t *rsc = graphs->super.rsc;

    launch_wait(graphs, device, launch);
    if (uct_cuda_ctx_push(uct_cuda_mp_rsc_ctx(rsc, device)) == UCS_OK) {
        (void)UCT_CUDA_CALL(cuStreamDestroy, launch->stream);
        uct_cuda_ctx_pop();
    }

    if (launch->ended != NULL) {
        uct_cuda_mp_rsc_put_event(rsc, device, launch->ended);
    }
}

static void graphs_lose(uct_cuda_mp_executor_t *executor, uint32_t devices)
{
    graphs_t *graphs = (graphs_t*)executor;
    bank_t *banks    = &graphs->banks[0][0];
    unsigned i;

    for_launches(graphs, ~devices, launch_wait);
    for (i = 0; i < UCT_CUDA_MAX_GPUS; ++i) {
        if (devices & (1u << i)) {
            memset(&graphs->devices[i], 0, sizeof(graphs->devices[i]));
        }
    }

    for (i = 0; i < sizeof(graphs->banks) / sizeof(bank_t); ++i) {
        if (devices & (1u << banks[i].device)) {
            banks[i].event = NULL;
        }
    }

    uct_cuda_mp_graph_cache_lose(&graphs->cache, devices);
}

static ucs_status_t graphs_create(const uct_cuda_mp_config_t *config,
                                  uct_cuda_mp_executor_t **executor_p)
{
    graphs_t *graphs = calloc(1, sizeof(*graphs));

    if (graphs == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    uct_cuda_mp_graph_cache_init(&graphs->cache, config->graph_cache_size);
    *executor_p = &graphs->super;
    return UCS_OK;
}

static void log_counters(const uct_cuda_mp_graph_counters_t *counters)
{
    if (counters->misses + counters->waits > 0) {
        uct_cuda_info("graphs: %" PRIu64 " hits, %" PRIu64 " retargets, "
                      "%" PRIu64 " misses, %" PRIu64 " evictions, %" PRIu64
                      " in-flight waits",
                      counters->hits, counters->retargets, counters->misses,
                      counters->evictions, counters->waits);
    }
}

/* Events go back to the resources */
static void graphs_destroy(uct_cuda_mp_executor_t *executor)
{
    graphs_t *graphs = (graphs_t*)executor;
    unsigned device, i;
    CUevent event;

    log_counters(&graphs->cache.counters);
    uct_cuda_mp_graph_cache_cleanup(&graphs->cache);
    for_launches(graphs, UINT32_MAX, launch_destroy);
    for (device = 0; device < UCT_CUDA_MAX_GPUS; ++device) {
        for (i = 0; i < UCT_CUDA_MP_NUM_LANES; ++i) {
            event = graphs->devices[device].ordering[i];
            if (event != NULL) {
                uct_cuda_mp_rsc_put_event(executor->rsc, (int)device, event);
            }
        }
    }

    for (i = 0; i < sizeof(graphs->banks) / sizeof(bank_t); ++i) {
        put_bank(graphs, &(&graphs->banks[0][0])[i]);
    }

    free(graphs);
}

const uct_cuda_mp_executor_ops_t uct_cuda_mp_executor_graph = {
    .create  = graphs_create,
    .destroy = graphs_destroy,
    .submit  = graphs_submit,
    .passed  = graphs_passed,
    .release = graphs_release,
    .lose    = graphs_lose
};
