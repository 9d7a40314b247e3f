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
#include <uct/cuda/run/resources.h>

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
    uint64_t                 hash;  /**< Of the shape */
    uint32_t                 banks; /**< Bit p: path p is in the second bank */
    bool                     is_ordered; /**< Has ordering events' nodes */
} uct_cuda_mp_graph_key_t;


typedef struct uct_cuda_mp_graph {
    struct uct_cuda_mp_graph       *next; /**< In what a transfer holds */
    TAILQ_ENTRY(uct_cuda_mp_graph) list;
    CUgraph                        graph;
    CUgraphExec                    exec;
    CUevent                        ended; /**< Behind its last launch; of the
                                               plan's local context, or NULL */
    bool                           is_busy; /**< In flight */
    bool                           is_lost; /**< With one of its contexts */
    uint32_t                       devices; /**< Whose contexts it has: bits */
    uct_cuda_mp_graph_key_t        key;
    uct_cuda_mp_plan_t             plan;    /**< The key's */
    uct_cuda_mp_graph_node_t       nodes[]; /**< One a step */
} uct_cuda_mp_graph_t;


TAILQ_HEAD(uct_cuda_mp_graph_list, uct_cuda_mp_graph);


typedef struct {
    unsigned                      size;   /**< Most graphs that are kept */
    unsigned                      count;  /**< That are there */
    struct uct_cuda_mp_graph_list graphs; /**< All, the newest first */
    uct_cuda_mp_rsc_t             *rsc;   /**< Events go back there */
    /* Of an engine's whole life */
    uint64_t hits;      /**< Same addresses: launched as it was */
    uint64_t retargets; /**< Other addresses: nodes updated */
    uint64_t misses;    /**< Built */
    uint64_t evictions;
    uint64_t waits; /**< All graphs of the shape, or all that may exist, in
                         flight: the transfer went another way */
} uct_cuda_mp_graph_cache_t;


void uct_cuda_mp_graph_cache_init(uct_cuda_mp_graph_cache_t *cache,
                                  unsigned size, uct_cuda_mp_rsc_t *rsc);

/** Destroys all graphs; none may be in flight. */
void uct_cuda_mp_graph_cache_cleanup(uct_cuda_mp_graph_cache_t *cache);


/** Fill in the hash. Equal shapes have equal ones. */
void uct_cuda_mp_graph_key_hash(uct_cuda_mp_graph_key_t *key);


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
                             const uct_cuda_mp_graph_key_t *key,
                             const uct_cuda_mp_graph_node_t *nodes,
                             bool *is_there_p);


/** A new one for the driver's graph, with these addresses, perhaps in place of
 *  the idle one that was used least recently. NULL: all are in flight, or out
 *  of memory. */
uct_cuda_mp_graph_t *
uct_cuda_mp_graph_cache_new(uct_cuda_mp_graph_cache_t *cache,
                            const uct_cuda_mp_graph_key_t *key,
                            const uct_cuda_mp_graph_node_t *nodes);

/** Take a graph out and destroy it. */
void uct_cuda_mp_graph_cache_drop(uct_cuda_mp_graph_cache_t *cache,
                                  uct_cuda_mp_graph_t *graph);


/** Contexts of these devices, a bit each, are gone, and with them the graphs
 *  that have nodes there: at once, or to be dropped once they are idle. */
void uct_cuda_mp_graph_cache_lose(uct_cuda_mp_graph_cache_t *cache,
                                  uint32_t devices);


END_C_DECLS

#endif
