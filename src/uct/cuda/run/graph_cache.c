/* SPDX-License-Identifier: BSD-3-Clause */
/* A list in order of use. It is short, and a hash a graph keeps a look-up from
 * comparing plans that differ. */
#include <uct/cuda/run/graph_cache.h>

#include <uct/cuda/base/hash.h>
#include <uct/cuda/base/log.h>

#include <stdlib.h>
#include <string.h>


void uct_cuda_mp_graph_cache_init(uct_cuda_mp_graph_cache_t *cache,
                                  unsigned size)
{
    memset(cache, 0, sizeof(*cache));
    cache->size = size;
    TAILQ_INIT(&cache->graphs);
}

void uct_cuda_mp_graph_free(uct_cuda_mp_graph_t *graph)
{
    /* The driver does not return from that if a context is gone */
    if ((graph->exec != NULL) && !graph->is_lost) {
        (void)UCT_CUDA_CALL(cuGraphExecDestroy, graph->exec);
    }

    if (graph->graph != NULL) {
        (void)UCT_CUDA_CALL(cuGraphDestroy, graph->graph);
    }

    free((void*)graph->key.plan);
    free(graph);
}

void uct_cuda_mp_graph_cache_cleanup(uct_cuda_mp_graph_cache_t *cache)
{
    while (!TAILQ_EMPTY(&cache->graphs)) {
        uct_cuda_mp_graph_cache_drop(cache, TAILQ_FIRST(&cache->graphs));
    }
}

uint64_t uct_cuda_mp_graph_hash(const uct_cuda_mp_graph_key_t *key)
{
    const uct_cuda_mp_plan_t *plan = key->plan;
    uint64_t hash                  = UCT_CUDA_HASH64;
    const uct_cuda_step_t *step;
    unsigned i;

    hash = uct_cuda_hash64(hash, uct_cuda_mp_lane(plan->src, plan->dst));
    hash = uct_cuda_hash64(hash, uct_cuda_end_equal(plan->remote, plan->src));
    hash = uct_cuda_hash64(hash, uct_cuda_end_equal(plan->remote, plan->dst));
    hash = uct_cuda_hash64(hash, key->is_ordered);
    hash = uct_cuda_hash64(hash, plan->size);
    for (i = 0; i < plan->num_steps; ++i) {
        step = &plan->steps[i];
        hash = uct_cuda_hash64(hash, step->queue);
        hash = uct_cuda_hash64(hash, step->bytes);
    }

    return hash;
}

static bool shape_equal(const uct_cuda_mp_graph_key_t *a,
                        const uct_cuda_mp_graph_key_t *b)
{
    return (a->is_ordered == b->is_ordered) &&
           uct_cuda_mp_plan_equal(a->plan, b->plan);
}

static bool has_addresses(const uct_cuda_mp_graph_t *graph,
                          const uct_cuda_mp_graph_node_t *nodes)
{
    unsigned i;

    for (i = 0; i < graph->key.plan->num_steps; ++i) {
        if ((graph->nodes[i].to != nodes[i].to) ||
            (graph->nodes[i].from != nodes[i].from)) {
            return false;
        }
    }

    return true;
}

uct_cuda_mp_graph_t *
uct_cuda_mp_graph_cache_find(uct_cuda_mp_graph_cache_t *cache,
                             const uct_cuda_mp_graph_key_t *key, uint64_t hash,
                             const uct_cuda_mp_graph_node_t *nodes,
                             bool *is_there_p)
{
    uct_cuda_mp_graph_t *idle  = NULL;
    uct_cuda_mp_graph_t *other = NULL;
    uct_cuda_mp_graph_t *graph;

    *is_there_p = false;
    TAILQ_FOREACH(graph, &cache->graphs, list)
    {
        if (!graph->is_cached || (graph->hash != hash) ||
            !shape_equal(&graph->key, key)) {
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

bool uct_cuda_mp_graph_cache_reserve(uct_cuda_mp_graph_cache_t *cache)
{
    uct_cuda_mp_graph_t *graph;

    if (cache->count < cache->size) {
        return true;
    }

    TAILQ_FOREACH_REVERSE(graph, &cache->graphs, uct_cuda_mp_graph_list, list)
    {
        if (!graph->is_busy && graph->is_cached) {
            uct_cuda_mp_graph_cache_drop(cache, graph);
            ++cache->counters.evictions;
            return true;
        }
    }

    return false;
}

uct_cuda_mp_graph_t *
uct_cuda_mp_graph_alloc(const uct_cuda_mp_graph_key_t *key, uint64_t hash,
                        const uct_cuda_mp_graph_node_t *nodes)
{
    const size_t size = key->plan->num_steps * sizeof(*nodes);
    uct_cuda_mp_graph_t *graph;
    uct_cuda_mp_plan_t *plan;

    graph = calloc(1, sizeof(*graph) + size);
    plan  = malloc(sizeof(*plan));
    if ((graph == NULL) || (plan == NULL)) {
        free(graph);
        free(plan);
        return NULL;
    }

    uct_cuda_mp_plan_copy(key->plan, plan);
    memcpy(graph->nodes, nodes, size);
    graph->key      = *key;
    graph->key.plan = plan;
    graph->hash     = hash;
    return graph;
}

void uct_cuda_mp_graph_cache_add(uct_cuda_mp_graph_cache_t *cache,
                                 uct_cuda_mp_graph_t *graph)
{
    graph->is_cached = (cache->size > 0);
    cache->count    += graph->is_cached;
    TAILQ_INSERT_HEAD(&cache->graphs, graph, list);
}

void uct_cuda_mp_graph_cache_drop(uct_cuda_mp_graph_cache_t *cache,
                                  uct_cuda_mp_graph_t *graph)
{
    TAILQ_REMOVE(&cache->graphs, graph, list);
    cache->count -= graph->is_cached;
    uct_cuda_mp_graph_free(graph);
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
        if (graph->is_busy) {
            cache->count    -= graph->is_cached;
            graph->is_cached = false;
        } else {
            uct_cuda_mp_graph_cache_drop(cache, graph);
        }
    }
}
