/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Executable graphs of plans, kept for the next transfer of the same shape. The
 * key is the plan's steps, the banks of staging memory and the end that is
 * remote; not addresses, which an idle graph can be given anew (seed of the
 * idea: "Accelerating intra-node GPU communication", section 4.4, whose cache
 * is keyed by address).
 */
#ifndef UCT_CUDA_MP_GRAPH_CACHE_H
#define UCT_CUDA_MP_GRAPH_CACHE_H

#include <uct/cuda/base/driver.h>
#include <uct/cuda/plan/transfer_plan.h>
#include <uct/cuda/run/executor.h>

#include <sys/queue.h>

BEGIN_C_DECLS


/** What one copy node reads and writes now. */
typedef struct {
    CUgraphNode node;
    CUdeviceptr to;
    CUdeviceptr from;
} uct_cuda_mp_graph_node_t;


/** What tells graphs of one engine apart. The shape is all but the banks. */
typedef struct {
    const uct_cuda_mp_plan_t *plan;
    uint32_t                 banks; /**< Bit p: path p is in the second bank */
    bool                     is_ordered; /**< Has ordering events' nodes */
} uct_cuda_mp_graph_key_t;


typedef struct uct_cuda_mp_graph {
    uct_cuda_mp_held_t             held; /**< While it is busy */
    CUgraph                        graph;
    CUgraphExec                    exec;
    bool                           is_busy;   /**< In flight */
    bool                           is_cached; /**< Otherwise gone after use */
    bool                           is_lost; /**< With one of its contexts */
    uint32_t                       devices; /**< Whose contexts it has: bits */
    uct_cuda_mp_graph_key_t        key;     /**< With a plan of its own */
    uint64_t                       hash;
    TAILQ_ENTRY(uct_cuda_mp_graph) list;
    uct_cuda_mp_graph_node_t       nodes[]; /**< One a step */
} uct_cuda_mp_graph_t;


TAILQ_HEAD(uct_cuda_mp_graph_list, uct_cuda_mp_graph);


/** Of an engine's whole life. */
typedef struct {
    uint64_t hits;      /**< Same addresses: launched as it was */
    uint64_t retargets; /**< Other addresses: nodes updated */
    uint64_t misses;    /**< Built */
    uint64_t evictions;
    uint64_t waits; /**< All graphs of the shape, or all that may exist, in
                         flight: the transfer went another way */
} uct_cuda_mp_graph_counters_t;


typedef struct {
    unsigned                      size;   /**< Most graphs that are kept */
    unsigned                      count;  /**< That are kept */
    struct uct_cuda_mp_graph_list graphs; /**< All, the newest first */
    uct_cuda_mp_graph_counters_t  counters;
} uct_cuda_mp_graph_cache_t;


void uct_cuda_mp_graph_cache_init(uct_cuda_mp_graph_cache_t *cache,
                                  unsigned size);

/** Destroys all graphs; none may be in flight. */
void uct_cuda_mp_graph_cache_cleanup(uct_cuda_mp_graph_cache_t *cache);


/** Of the shape: equal shapes have equal hashes. */
uint64_t uct_cuda_mp_graph_hash(const uct_cuda_mp_graph_key_t *key);


/**
 * An idle graph of this shape, as the newest from now on; one that has these
 * addresses already is preferred. One of other banks, whose nodes change with
 * them, only while the cache is full. NULL: there is none.
 *
 * @param nodes       Addresses wanted, one a step; node handles do not count.
 * @param is_there_p  Is there a graph of this shape at all, perhaps in flight?
 */
uct_cuda_mp_graph_t *
uct_cuda_mp_graph_cache_find(uct_cuda_mp_graph_cache_t *cache,
                             const uct_cuda_mp_graph_key_t *key, uint64_t hash,
                             const uct_cuda_mp_graph_node_t *nodes,
                             bool *is_there_p);


/** Make room for one more graph, by evicting the idle one that was used least
 *  recently. False: all are in flight, or there is no cache. */
bool uct_cuda_mp_graph_cache_reserve(uct_cuda_mp_graph_cache_t *cache);


/** A graph without nodes' handles, in no cache yet. NULL: out of memory. */
uct_cuda_mp_graph_t *
uct_cuda_mp_graph_alloc(const uct_cuda_mp_graph_key_t *key, uint64_t hash,
                        const uct_cuda_mp_graph_node_t *nodes);

/** One in no cache. */
void uct_cuda_mp_graph_free(uct_cuda_mp_graph_t *graph);

/** A graph was built, after a reserve: keep it, or if nothing is kept, until
 *  it is idle. */
void uct_cuda_mp_graph_cache_add(uct_cuda_mp_graph_cache_t *cache,
                                 uct_cuda_mp_graph_t *graph);

/** Take a graph out and destroy it. */
void uct_cuda_mp_graph_cache_drop(uct_cuda_mp_graph_cache_t *cache,
                                  uct_cuda_mp_graph_t *graph);


/** Contexts of these devices, a bit each, are gone, and with them the graphs
 *  that have nodes there: at once, or once they are idle. */
void uct_cuda_mp_graph_cache_lose(uct_cuda_mp_graph_cache_t *cache,
                                  uint32_t devices);


END_C_DECLS

#endif
