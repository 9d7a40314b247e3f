/* SPDX-License-Identifier: BSD-3-Clause */
/* A list in order of use. It is short, and a hash a graph keeps a look-up from
 * comparing plans that differ. */
#include <uct/cuda/run/graph_cache.h>

#include <uct/cuda/base/hash.h>
#include <uct/cuda/base/log.h>

#include <stdlib.h>
#include <string.h>


void uct_cuda_mp_graph_cache_init(uct_cuda_mp_graph_cache_t *cache,
                                  unsigned size, uct_cuda_mp_rsc_t *rsc)
{
    memset(cache, 0, sizeof(*cache));
    cache->size = size;
    cache->rsc  = rsc;
    TAILQ_INIT(&cache->graphs);
}

void uct_cuda_mp_graph_cache_drop(uct_cuda_mp_graph_cache_t *cache,
                                  uct_cuda_mp_graph_t *graph)
{
    /* The driver does not return from that if a context is gone */
    if ((graph->exec != NULL) && !graph->is_lost) {
        (void)UCT_CUDA_CALL(cuGraphExecDestroy, graph->exec);
    }

    if (graph->graph != NULL) {
        (void)UCT_CUDA_CALL(cuGraphDestroy, graph->graph);
    }

    if (graph->ended != NULL) {
        uct_cuda_mp_rsc_put_event(cache->rsc, graph->plan.local, graph->ended);
    }

    TAILQ_REMOVE(&cache->graphs, graph, list);
    --cache->count;
    free(graph);
}

void uct_cuda_mp_graph_cache_cleanup(uct_cuda_mp_graph_cache_t *cache)
{
    while (!TAILQ_EMPTY(&cache->graphs)) {
        uct_cuda_mp_graph_cache_drop(cache, TAILQ_FIRST(&cache->graphs));
    }
}

void uct_cuda_mp_graph_key_hash(uct_cuda_mp_graph_key_t *key)
{
    const uct_cuda_mp_plan_t *plan = key->plan;
    uint64_t hash                  = UCT_CUDA_HASH64;
    unsigned i;

    hash = uct_cuda_hash64(hash, uct_cuda_mp_lane(plan->src, plan->dst));
    hash = uct_cuda_hash64(hash, uct_cuda_end_equal(plan->remote, plan->src));
    hash = uct_cuda_hash64(hash, uct_cuda_end_equal(plan->remote, plan->dst));
    hash = uct_cuda_hash64(hash, key->is_ordered);
    hash = uct_cuda_hash64(hash, plan->size);
    for (i = 0; i < plan->num_steps; ++i) {
        hash = uct_cuda_hash64(hash, plan->steps[i].queue);
        hash = uct_cuda_hash64(hash, plan->steps[i].bytes);
    }

    key->hash = hash;
}

static bool has_addresses(const uct_cuda_mp_graph_t *graph,
                          const uct_cuda_mp_graph_node_t *nodes)
{
    unsigned i;

    for (i = 0; i < graph->plan.num_steps; ++i) {
        if ((graph->nodes[i].to != nodes[i].to) ||
            (graph->nodes[i].from != nodes[i].from)) {
            return false;
        }
    }

    return true;
}

uct_cuda_mp_graph_t *
uct_cuda_mp_graph_cache_find(uct_cuda_mp_graph_cache_t *cache,
                             const uct_cuda_mp_graph_key_t *key,
                             const uct_cuda_mp_graph_node_t *nodes,
                             bool *is_there_p)
{
    uct_cuda_mp_graph_t *idle  = NULL;
    uct_cuda_mp_graph_t *other = NULL;
    uct_cuda_mp_graph_t *graph;

    *is_there_p = false;
    TAILQ_FOREACH(graph, &cache->graphs, list)
    {
        if (graph->is_lost || (graph->key.hash != key->hash) ||
            (graph->key.is_ordered != key->is_ordered) ||
            !uct_cuda_mp_plan_equal(&graph->plan, key->plan)) {
            continue;
        }

        *is_there_p = true;
        if (graph->is_busy) {
            continue;
        }

        if (graph->key.banks != key->banks) {
            other = graph;
            continue;
        }

        idle = graph;
        if (has_addresses(graph, nodes)) {
            break;
        }
    }

    /* One that would have to be evicted for another of its shape */
    if ((idle == NULL) && (other != NULL) && (cache->count >= cache->size)) {
        idle            = other;
        idle->key.banks = key->banks;
    }

    if (idle != NULL) {
        TAILQ_REMOVE(&cache->graphs, idle, list);
        TAILQ_INSERT_HEAD(&cache->graphs, idle, list);
    }

    return idle;
}

static bool reserve(uct_cuda_mp_graph_cache_t *cache)
{
    uct_cuda_mp_graph_t *graph;

    if (cache->count < cache->size) {
        return true;
    }

    TAILQ_FOREACH_REVERSE(graph, &cache->graphs, uct_cuda_mp_graph_list, list)
    {
        if (!graph->is_busy) {
            uct_cuda_mp_graph_cache_drop(cache, graph);
            ++cache->evictions;
            return true;
        }
    }

    ++cache->waits;
    return false;
}

uct_cuda_mp_graph_t *
uct_cuda_mp_graph_cache_new(uct_cuda_mp_graph_cache_t *cache,
                            const uct_cuda_mp_graph_key_t *key,
                            const uct_cuda_mp_graph_node_t *nodes)
{
    const size_t size          = key->plan->num_steps * sizeof(*nodes);
    uct_cuda_mp_graph_t *graph = reserve(cache) ?
                                         calloc(1, sizeof(*graph) + size) :
                                         NULL;

    if (graph != NULL) {
        graph->key      = *key;
        graph->key.plan = &graph->plan;
        uct_cuda_mp_plan_copy(key->plan, &graph->plan);
        memcpy(graph->nodes, nodes, size);
        TAILQ_INSERT_HEAD(&cache->graphs, graph, list);
        ++cache->count;
    }

    return graph;
}

void uct_cuda_mp_graph_cache_lose(uct_cuda_mp_graph_cache_t *cache,
                                  uint32_t devices)
{
    uct_cuda_mp_graph_t *graph, *next;

    for (graph = TAILQ_FIRST(&cache->graphs); graph != NULL; graph = next) {
        next = TAILQ_NEXT(graph, list);
        if (!(graph->devices & devices)) {
            continue;
        }

        graph->is_lost = true;
        if (devices & (1u << graph->plan.local)) {
            graph->ended = NULL;
        }

        if (!graph->is_busy) {
            uct_cuda_mp_graph_cache_drop(cache, graph);
        }
    }
}
