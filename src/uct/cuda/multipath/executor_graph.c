/* SPDX-License-Identifier: BSD-3-Clause */
/* Building, re-targeting and launching the graphs of plans. */
#include <uct/cuda/multipath/executor_graph.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/trace.h>

#include <stdlib.h>
#include <string.h>


/* Shapes that went another way, by hash; two that share a place forget each
 * other */
#define SEEN_SIZE 256

/* Failures to build a graph, with no success in between, after which graphs are
 * tried without event nodes, and then no more */
#define MAX_FAILURES 3

#define MAX_DEPENDENCIES 3


typedef struct {
    uint64_t hash;
    unsigned times;
} seen_t;


struct uct_cuda_mp_graphs {
    uct_cuda_mp_rsc_t         *rsc;
    uct_cuda_mp_graph_cache_t cache;
    unsigned                  failures;
    bool                      is_untailed; /* no graph minds lanes' tails */
    seen_t                    seen[SEEN_SIZE];
    /* What the last plan had no graph for, and is worth one */
    bool                      is_wanted;
    uint64_t                  wanted_hash;
    uct_cuda_mp_graph_key_t   wanted;
    /* Of the plan that is being submitted: what its nodes are to copy */
    uct_cuda_mp_graph_node_t  nodes[UCT_CUDA_MP_MAX_STEPS];
};


ucs_status_t uct_cuda_mp_graphs_create(uct_cuda_mp_rsc_t *rsc,
                                       unsigned cache_size,
                                       uct_cuda_mp_graphs_t **graphs_p)
{
    uct_cuda_mp_graphs_t *graphs = calloc(1, sizeof(*graphs));

    if (graphs == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    graphs->rsc = rsc;
    uct_cuda_mp_graph_cache_init(&graphs->cache, cache_size);
    *graphs_p = graphs;
    return UCS_OK;
}

void uct_cuda_mp_graphs_destroy(uct_cuda_mp_graphs_t *graphs)
{
    uct_cuda_mp_graph_cache_cleanup(&graphs->cache);
    free(graphs);
}

const uct_cuda_mp_graph_counters_t *
uct_cuda_mp_graphs_counters(const uct_cuda_mp_graphs_t *graphs)
{
    return &graphs->cache.counters;
}

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

static int step_device(const uct_cuda_mp_ends_t *ends,
                       const uct_cuda_mp_step_t *step)
{
    return uct_cuda_mp_rsc_lane_device(ends, step->lane);
}

/* Copies of a graph that is to be updated later have one dimension (CUDA driver
 * API, cuGraphExecMemcpyNodeSetParams) */
static void copy_params(const uct_cuda_mp_step_t *step,
                        const uct_cuda_mp_graph_node_t *node,
                        CUDA_MEMCPY3D *copy)
{
    memset(copy, 0, sizeof(*copy));
    if (step->from.type == UCT_CUDA_MP_PLACE_STAGING_HOST) {
        copy->srcMemoryType = CU_MEMORYTYPE_HOST;
        copy->srcHost       = (const void*)node->from;
    } else {
        copy->srcMemoryType = CU_MEMORYTYPE_DEVICE;
        copy->srcDevice     = node->from;
    }

    if (step->to.type == UCT_CUDA_MP_PLACE_STAGING_HOST) {
        copy->dstMemoryType = CU_MEMORYTYPE_HOST;
        copy->dstHost       = (void*)node->to;
    } else {
        copy->dstMemoryType = CU_MEMORYTYPE_DEVICE;
        copy->dstDevice     = node->to;
    }

    copy->WidthInBytes = step->bytes;
    copy->Height       = 1;
    copy->Depth        = 1;
}

/* What each node of this transfer copies */
static void set_addresses(uct_cuda_mp_graphs_t *graphs,
                          const uct_cuda_mp_plan_t *plan,
                          const uct_cuda_mp_ends_t *ends, size_t offset)
{
    unsigned i;

    for (i = 0; i < plan->num_steps; ++i) {
        uct_cuda_mp_rsc_addresses(graphs->rsc, &plan->steps[i], ends, offset,
                                  &graphs->nodes[i].from,
                                  &graphs->nodes[i].to);
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
    const uct_cuda_mp_step_t *step = &plan->steps[number];
    unsigned count                 = 0;
    unsigned w;
    int wait;

    if (lane_last[step->lane] != NULL) {
        dependencies[count++] = lane_last[step->lane];
    }

    for (w = 0; w < 2; ++w) {
        wait = step->waits[w];
        if ((wait != UCT_CUDA_MP_NO_STEP) &&
            (plan->steps[wait].lane != step->lane) &&
            ((w == 0) || (wait != step->waits[0]))) {
            dependencies[count++] = graph->nodes[wait].node;
        }
    }

    return count;
}

/* In front of a graph's first copy on a lane: a wait for whoever has the lane.
 * Nodes may wait for, and record, events of any context, whichever the graph is
 * launched in, and a launch waits for what was recorded before it even if it
 * records the same event anew (tried with two contexts of an H200). */
static ucs_status_t add_tail_wait(uct_cuda_mp_graphs_t *graphs,
                                  const uct_cuda_mp_ends_t *ends, uint16_t lane,
                                  int *current, CUgraph graph,
                                  CUgraphNode *node_p)
{
    int device = uct_cuda_mp_rsc_lane_device(ends, lane);
    ucs_status_t status;
    CUevent tail;

    status = uct_cuda_mp_rsc_lane_tail(graphs->rsc, device, lane, current,
                                       &tail);
    if (status != UCS_OK) {
        return status;
    }

    return UCT_CUDA_CALL(cuGraphAddEventWaitNode, node_p, graph, NULL, 0, tail);
}

/* Behind its last copy on each lane: the new tail */
static ucs_status_t add_tail_records(uct_cuda_mp_graphs_t *graphs,
                                     const uct_cuda_mp_plan_t *plan,
                                     const uct_cuda_mp_ends_t *ends,
                                     const CUgraphNode *lane_last, int *current,
                                     const uct_cuda_mp_graph_t *graph)
{
    ucs_status_t status = UCS_OK;
    CUgraphNode node;
    uint16_t lane;
    unsigned i;
    CUevent tail;

    for (i = 0; (i < plan->num_steps) && (status == UCS_OK); ++i) {
        lane = plan->steps[i].lane;
        if (lane_last[lane] != graph->nodes[i].node) {
            continue;
        }

        status = uct_cuda_mp_rsc_lane_tail(
                graphs->rsc, uct_cuda_mp_rsc_lane_device(ends, lane), lane,
                current, &tail);
        if (status == UCS_OK) {
            status = UCT_CUDA_CALL(cuGraphAddEventRecordNode, &node,
                                   graph->graph, &lane_last[lane], 1, tail);
        }
    }

    return status;
}

static ucs_status_t graph_build(uct_cuda_mp_graphs_t *graphs,
                                const uct_cuda_mp_plan_t *plan,
                                const uct_cuda_mp_ends_t *ends,
                                int *current, uct_cuda_mp_graph_t *graph)
{
    CUgraphNode lane_last[UCT_CUDA_MP_NUM_LANES] = {NULL};
    CUgraphNode dependencies[MAX_DEPENDENCIES];
    const uct_cuda_mp_step_t *step;
    CUDA_MEMCPY3D copy;
    ucs_status_t status;
    unsigned i, count;

    status = UCT_CUDA_CALL(cuGraphCreate, &graph->graph, 0);
    for (i = 0; (i < plan->num_steps) && (status == UCS_OK); ++i) {
        step = &plan->steps[i];
        if (graph->key.is_tailed && (lane_last[step->lane] == NULL)) {
            status = add_tail_wait(graphs, ends, step->lane, current,
                                   graph->graph, &lane_last[step->lane]);
            if (status != UCS_OK) {
                return status;
            }
        }

        copy_params(step, &graph->nodes[i], &copy);
        count  = step_dependencies(plan, i, graph, lane_last, dependencies);
        status = UCT_CUDA_CALL(
                cuGraphAddMemcpyNode, &graph->nodes[i].node, graph->graph,
                dependencies, count, &copy,
                uct_cuda_mp_rsc_ctx(graphs->rsc, step_device(ends, step)));
        lane_last[step->lane] = graph->nodes[i].node;
    }

    if ((status == UCS_OK) && graph->key.is_tailed) {
        status = add_tail_records(graphs, plan, ends, lane_last, current,
                                  graph);
    }

    if (status != UCS_OK) {
        return status;
    }

    return UCT_CUDA_CALL(cuGraphInstantiateWithFlags, &graph->exec,
                         graph->graph, 0);
}

/* Give an idle graph the addresses of this transfer */
static ucs_status_t graph_retarget(uct_cuda_mp_graphs_t *graphs,
                                   const uct_cuda_mp_ends_t *ends,
                                   uct_cuda_mp_graph_t *graph)
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

        copy_params(&plan->steps[i], wanted, &copy);
        /* Refused where memory is of another kind than before: there is a way
         * on, so no error */
        status = UCT_CUDA_CALL_NOLOG(
                cuGraphExecMemcpyNodeSetParams, graph->exec, node->node, &copy,
                uct_cuda_mp_rsc_ctx(graphs->rsc,
                                    step_device(ends, &plan->steps[i])));
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
static bool is_due(uct_cuda_mp_graphs_t *graphs, uint64_t hash,
                   unsigned patience)
{
    seen_t *seen = &graphs->seen[hash % SEEN_SIZE];

    if (seen->hash != hash) {
        seen->hash  = hash;
        seen->times = 0;
    }

    if (seen->times >= patience) {
        return true;
    }

    ++seen->times;
    return false;
}

/* Whose contexts a plan's graph has */
static uint32_t plan_devices(const uct_cuda_mp_plan_t *plan,
                             const uct_cuda_mp_ends_t *ends)
{
    uint32_t devices = 1u << uct_cuda_mp_ends_local(ends);
    unsigned i;

    for (i = 0; i < plan->num_steps; ++i) {
        devices |= 1u << step_device(ends, &plan->steps[i]);
    }

    return devices;
}

static uct_cuda_mp_graph_t *
graph_new(uct_cuda_mp_graphs_t *graphs, const uct_cuda_mp_graph_key_t *key,
          uint64_t hash, const uct_cuda_mp_ends_t *ends)
{
    int current = uct_cuda_mp_ends_local(ends);
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

    graph->devices = plan_devices(key->plan, ends);
    status         = graph_build(graphs, key->plan, ends, &current, graph);
    if (uct_cuda_mp_rsc_make_current(graphs->rsc, uct_cuda_mp_ends_local(ends),
                                     &current) != UCS_OK) {
        uct_cuda_mp_graph_cache_drop(&graphs->cache, graph);
        return NULL;
    }

    if (status != UCS_OK) {
        uct_cuda_mp_graph_cache_drop(&graphs->cache, graph);
        if (++graphs->failures < MAX_FAILURES) {
            return NULL;
        }

        if (key->is_tailed) {
            /* It may be that what this driver refuses */
            graphs->is_untailed = true;
            graphs->failures    = 0;
        } else {
            uct_cuda_warn("transfers are carried out without CUDA graphs from "
                          "now on (see above)");
        }
        return NULL;
    }

    graphs->failures = 0;
    ++graphs->cache.counters.misses;
    if (graphs->cache.size > 0) {
        uct_cuda_mp_graph_cache_add(&graphs->cache, graph);
    }

    return graph;
}

/* A graph with this transfer's addresses that is not in flight, or NULL */
static uct_cuda_mp_graph_t *
graph_get(uct_cuda_mp_graphs_t *graphs, const uct_cuda_mp_graph_key_t *key,
          const uct_cuda_mp_ends_t *ends, unsigned patience)
{
    uint64_t hash = uct_cuda_mp_graph_hash(key);
    uct_cuda_mp_graph_t *graph;
    bool is_there;

    graph = uct_cuda_mp_graph_cache_find(&graphs->cache, key, hash,
                                         graphs->nodes, &is_there);
    if (graph != NULL) {
        if (graph_retarget(graphs, ends, graph) == UCS_OK) {
            return graph;
        }

        /* Half of it may be changed */
        uct_cuda_mp_graph_cache_drop(&graphs->cache, graph);
    } else if (!is_there && !is_due(graphs, hash, patience)) {
        return NULL;
    }

    if (patience > 0) {
        graphs->is_wanted   = true;
        graphs->wanted_hash = hash;
        graphs->wanted      = *key;
        return NULL;
    }

    return graph_new(graphs, key, hash, ends);
}

/* Make the launch wait until its banks of staging memory are drained */
static ucs_status_t wait_banks(uct_cuda_mp_graphs_t *graphs,
                               const uct_cuda_mp_plan_t *plan, CUstream stream)
{
    uct_cuda_mp_staging_t *staging;
    uct_cuda_mp_slot_t *slot;
    ucs_status_t status;
    unsigned p, i;

    for (p = 0; p < plan->num_paths; ++p) {
        staging = uct_cuda_mp_rsc_path_staging(graphs->rsc, plan, p);
        if (staging == NULL) {
            continue;
        }

        status = uct_cuda_mp_rsc_wait_bank(uct_cuda_mp_staging_bank(staging, 0),
                                           stream);
        for (i = 0; (i < UCT_CUDA_MP_PLAN_SLOTS) && (status == UCS_OK); ++i) {
            slot = &staging->slots[uct_cuda_mp_staging_slot(staging, i)];
            if (slot->drained == NULL) {
                continue;
            }

            status = UCT_CUDA_CALL(cuStreamWaitEvent, stream, slot->drained, 0);
            if (status == UCS_OK) {
                uct_cuda_mp_rsc_put_event(graphs->rsc, slot->device,
                                          slot->drained);
                slot->drained = NULL;
            }
        }

        if (status != UCS_OK) {
            return status;
        }
    }

    return UCS_OK;
}

/* The launch has its banks now. With others in flight it matters that nobody
 * waits for more than he must. */
static ucs_status_t give_banks(uct_cuda_mp_graphs_t *graphs,
                               const uct_cuda_mp_plan_t *plan, bool is_tailed,
                               int device, CUstream stream, CUevent ended)
{
    ucs_status_t status = UCS_OK;
    uct_cuda_mp_staging_t *staging;
    uct_cuda_mp_bank_t *bank;
    unsigned p;

    if (!is_tailed) {
        status = UCT_CUDA_CALL(cuEventRecord, ended, stream);
    }

    for (p = 0; (p < plan->num_paths) && (status == UCS_OK); ++p) {
        staging = uct_cuda_mp_rsc_path_staging(graphs->rsc, plan, p);
        if (staging == NULL) {
            continue;
        }

        bank = uct_cuda_mp_staging_bank(staging, 0);
        if (is_tailed) {
            status = uct_cuda_mp_rsc_give_bank(graphs->rsc, bank, device,
                                               stream);
        } else {
            uct_cuda_mp_rsc_lend_bank(graphs->rsc, bank, ended);
        }
    }

    return status;
}

static ucs_status_t graphs_launch(uct_cuda_mp_graphs_t *graphs,
                                  const uct_cuda_mp_plan_t *plan,
                                  const uct_cuda_mp_ends_t *ends,
                                  uct_cuda_mp_graph_t *graph)
{
    bool is_tailed = graph->key.is_tailed;
    int local      = uct_cuda_mp_ends_local(ends);
    int current    = local;
    uint16_t lanes[2 * UCT_CUDA_MP_MAX_PATHS];
    uct_cuda_trace_copy_t *copy;
    ucs_status_t status;
    CUstream stream;
    unsigned i, count;
    CUevent ended;

    status = uct_cuda_mp_rsc_launch_stream(graphs->rsc, ends, &stream, &ended);
    if (status != UCS_OK) {
        return status;
    }

    uct_cuda_mp_rsc_note_used(graphs->rsc, local, stream, true);
    count  = uct_cuda_mp_plan_lanes(plan, lanes);
    status = wait_banks(graphs, plan, stream);
    for (i = 0; (i < count) && (status == UCS_OK); ++i) {
        status = uct_cuda_mp_rsc_lane_to_graph(
                graphs->rsc, uct_cuda_mp_rsc_lane_device(ends, lanes[i]),
                lanes[i], is_tailed, stream, &current);
    }

    if (status == UCS_OK) {
        status = uct_cuda_mp_rsc_make_current(graphs->rsc, local, &current);
    }

    if (status == UCS_OK) {
        copy   = uct_cuda_trace_begin(stream);
        status = UCT_CUDA_CALL(cuGraphLaunch, graph->exec, stream);
        uct_cuda_trace_end(copy, stream, plan->src, plan->dst, plan->size,
                           "graph");
    }

    if (status == UCS_OK) {
        status = give_banks(graphs, plan, is_tailed, local, stream, ended);
    }

    if (status != UCS_OK) {
        return status;
    }

    for (i = 0; i < count; ++i) {
        uct_cuda_mp_rsc_lane_launched(
                graphs->rsc, uct_cuda_mp_rsc_lane_device(ends, lanes[i]),
                lanes[i], is_tailed, ended);
    }

    return UCS_OK;
}

/* Has each staging memory begin with a bank. Returns which, a bit a path. */
static uint32_t take_banks(uct_cuda_mp_graphs_t *graphs,
                           const uct_cuda_mp_plan_t *plan)
{
    uct_cuda_mp_staging_t *staging;
    uint32_t banks = 0;
    unsigned p;

    for (p = 0; p < plan->num_paths; ++p) {
        staging = uct_cuda_mp_rsc_path_staging(graphs->rsc, plan, p);
        if (staging == NULL) {
            continue;
        }

        uct_cuda_mp_staging_align(staging);
        if (staging->next > 0) {
            banks |= 1u << p;
        }
    }

    return banks;
}

ucs_status_t uct_cuda_mp_graphs_submit(uct_cuda_mp_graphs_t *graphs,
                                       const uct_cuda_mp_plan_t *plan,
                                       const uct_cuda_mp_ends_t *ends,
                                       size_t offset, bool is_alone,
                                       unsigned patience,
                                       uct_cuda_mp_graph_t **held)
{
    uct_cuda_mp_graph_key_t key = {
        .plan      = plan,
        .remote    = ends->remote,
        .is_tailed = !is_alone && !graphs->is_untailed &&
                     driver_has_event_nodes()
    };
    uct_cuda_mp_graph_t *graph;
    ucs_status_t status;

    graphs->is_wanted = false;
    if ((graphs->failures >= MAX_FAILURES) || !driver_has_graphs()) {
        return UCS_ERR_NO_RESOURCE;
    }

    key.banks = take_banks(graphs, plan);
    status    = uct_cuda_ctx_push(
            uct_cuda_mp_rsc_ctx(graphs->rsc, uct_cuda_mp_ends_local(ends)));
    if (status != UCS_OK) {
        return status;
    }

    set_addresses(graphs, plan, ends, offset);
    graph = graph_get(graphs, &key, ends, patience);
    if (graph == NULL) {
        status = UCS_ERR_NO_RESOURCE;
        goto out_pop;
    }

    /* Held even if the launch fails: the stream is waited for then */
    graph->is_busy   = true;
    graph->next_held = *held;
    *held            = graph;
    status           = graphs_launch(graphs, plan, ends, graph);
    uct_cuda_mp_rsc_advance(graphs->rsc, plan, true);

out_pop:
    uct_cuda_ctx_pop();
    return status;
}

void uct_cuda_mp_graphs_build(uct_cuda_mp_graphs_t *graphs,
                              const uct_cuda_mp_ends_t *ends)
{
    if (!graphs->is_wanted) {
        return;
    }

    graphs->is_wanted = false;
    if (uct_cuda_ctx_push(uct_cuda_mp_rsc_ctx(
                graphs->rsc, uct_cuda_mp_ends_local(ends))) == UCS_OK) {
        (void)graph_new(graphs, &graphs->wanted, graphs->wanted_hash, ends);
        uct_cuda_ctx_pop();
    }
}

void uct_cuda_mp_graphs_lose(uct_cuda_mp_graphs_t *graphs, uint32_t devices,
                             uct_cuda_mp_graph_t *held)
{
    for (; held != NULL; held = held->next_held) {
        held->is_lost |= ((held->devices & devices) != 0);
    }

    uct_cuda_mp_graph_cache_lose(&graphs->cache, devices);
}

void uct_cuda_mp_graphs_put(uct_cuda_mp_graphs_t *graphs,
                            uct_cuda_mp_graph_t *held)
{
    uct_cuda_mp_graph_t *graph;

    while (held != NULL) {
        graph          = held;
        held           = graph->next_held;
        graph->is_busy = false;
        if (!graph->is_cached) {
            uct_cuda_mp_graph_cache_drop(&graphs->cache, graph);
        }
    }
}
