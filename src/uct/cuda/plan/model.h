/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Model of transfers: time of a transfer over a set of paths, and the best
 * division into shares and chunks. It uses no CUDA: links, limits, other
 * traffic and constants are its input.
 *
 * A path takes  start + bytes * cost  seconds. The cost of a direct path is 1 /
 * rate. A staged path of c chunks fills and drains a pipeline of two copies;
 * its cost is  1 / slow hop + 1 / (c * fast hop),  and every chunk except the
 * first leaves a gap on the link. Copies are submitted one after the other; if
 * the processor is late, submission of a path's last chunk bounds it. Shares
 * make all paths end together; chunks let a path carry the most bytes by then.
 * In a window of transfers between the same GPUs only the first one fills the
 * paths; later ones take shares by rate. If submission takes longer than the
 * links, each transfer of the window can use one path.
 *
 * Chunks of a path are equal: with hops of equal rate the pipeline takes the
 * time of all bytes plus that of the largest chunk, so smaller first or last
 * chunks gain nothing.
 */
#ifndef UCT_CUDA_PLAN_MODEL_H
#define UCT_CUDA_PLAN_MODEL_H

#include <uct/cuda/base/topo.h>
#include <uct/cuda/plan/fair_share.h>
#include <uct/cuda/plan/transfer_plan.h>

BEGIN_C_DECLS


/** Alignment of parts and chunks, bytes; suits copy engines. */
#define UCT_CUDA_PLAN_ALIGN 4096ul


/** Processor time of a CUDA graph, seconds for all its nodes together. */
typedef struct {
    double nodes;        /**< Copies in the graph */
    double add;          /**< Adding the nodes */
    double instantiate;
    double first_launch;
    double launch;       /**< Each later launch */
    double update;       /**< Changing the addresses of all copies */
} uct_cuda_plan_graph_cost_t;

/** Number of rows of graph costs; times for other numbers of nodes are
 *  interpolated or extrapolated linearly. */
#define UCT_CUDA_PLAN_GRAPH_COSTS 4


/** Constants of the model; seconds, unless said otherwise. */
typedef struct {
    double submit_copy;     /**< Processor time to submit a copy */
    /** Processor time to submit a chunk of a staged path: two copies and the
     *  events between them */
    double submit_chunk;
    /** Time lost on a link between chunks over a GPU */
    double gap_gpu;
    double gap_host;        /**< Time lost between chunks over the host */
    double start_host;      /**< Extra start time of the host path */
    /** Uncertainty of the host path, s: a plan with it must be at least this
     *  much faster than one path, besides min_gain */
    double doubt_host;
    /** Extra start time of a relay with host memory at one end */
    double start_relay;
    double doubt_relay;     /**< Uncertainty of such a relay's time */
    /** Usable fraction of the probed bandwidth between GPUs of a socket */
    double gpu_efficiency;
    /** The same for links to the host, with its memory read and written */
    double host_efficiency;
    double socket_efficiency; /**< The same for links between sockets */
    /** From the end of a wait for another stream to the start of a copy */
    double wait;
    /** Detecting completion; part of a link's latency */
    double poll;
    /** Extra time to detect that several paths have ended */
    double join;
    /** Processor time of a message in a window, besides submission */
    double message;
    /** Processor time of each of its paths: events, contexts, mappings */
    double path;
    /** Cost of graphs relative to H200; 1 where a copy costs submit_copy as
     *  there */
    double graph;
    /** Smallest speedup over one path that justifies several */
    double min_gain;
    uct_cuda_plan_graph_cost_t graphs[UCT_CUDA_PLAN_GRAPH_COSTS];
} uct_cuda_plan_model_t;


/** Constants for nodes without measurement. */
extern const uct_cuda_plan_model_t uct_cuda_mp_model_builtin;


/** Name of a constant, for files and command lines. */
typedef struct {
    const char *name;
    size_t     offset; /**< Of a double in uct_cuda_plan_model_t */
    double     min;    /**< Exclusive, in its unit */
    double     max;    /**< Inclusive */
} uct_cuda_plan_model_constant_t;


/** All constants; the last entry's name is NULL. */
extern const uct_cuda_plan_model_constant_t uct_cuda_mp_model_constants[];


/**
 * Set constant @a index of uct_cuda_mp_model_constants from text.
 *
 * @return false: no number in its range.
 */
bool uct_cuda_plan_model_set(uct_cuda_plan_model_t *model, unsigned index,
                             const char *text);


/** Other transfers under way on each directed link, including links of the
 *  host. direct counts those whose ends the link connects: they have no
 *  other route as fast. */
typedef struct {
    bool     is_known; /**< Covers the whole node, not just this process */
    /** Large transfers of this process between the same GPUs, ahead of this
     *  one */
    uint16_t queued;
    /** Such transfers overlapping in time recently, including this one */
    uint16_t window;
    /** Bytes sent between these ends since the last crossing traffic */
    uint64_t uncrossed;
    uint8_t  active[UCT_CUDA_PLAN_NUM_LINKS];
    uint8_t  direct[UCT_CUDA_PLAN_NUM_LINKS];
    /** Bytes of planned queued transfers, by link */
    uint64_t ahead[UCT_CUDA_PLAN_NUM_LINKS];
} uct_cuda_plan_load_t;


/** Return whether other traffic enters the transfer's source or leaves its
 *  destination. It shares the links that the host path needs. */
bool uct_cuda_plan_load_is_crossed(const uct_cuda_plan_load_t *load,
                                   uct_cuda_end_t src, uct_cuda_end_t dst);


/** Path as seen by the model. */
typedef struct {
    uct_cuda_end_t       via; /**< End at which it is staged; none: direct */
    unsigned             hops;
    uint16_t             links[UCT_CUDA_PLAN_MAX_HOPS];
    double               cap;     /**< Bytes/s if alone */
    /** Bytes/s of each hop if alone */
    double               rates[UCT_CUDA_PLAN_MAX_HOPS];
    /** The hop is independent of the other hop's limit, such as host memory */
    bool                 is_free[UCT_CUDA_PLAN_MAX_HOPS];
    double               latency; /**< Seconds */
    double               margin;  /**< Uncertainty, s */
    double               gap;     /**< Cost of a chunk, s */
    uct_cuda_plan_share_way_t way;      /**< Shared limits of all hops */
    bool               is_busy; /**< Other transfers use its links */
    /** Other transfers have no alternative to its links or to limits shared
     *  with them */
    bool               is_taken;
    double             share;   /**< Configured, or 0 */
    unsigned           chunks;  /**< Configured, or 0 */
} uct_cuda_plan_model_path_t;


/** Set of paths with the bytes of each, and their common end time. */
typedef struct {
    unsigned                         count;
    const uct_cuda_plan_model_path_t *paths[UCT_CUDA_PLAN_MAX_PATHS];
    double                           bytes[UCT_CUDA_PLAN_MAX_PATHS];
    /** 0: direct path */
    unsigned                         chunks[UCT_CUDA_PLAN_MAX_PATHS];
    double                           seconds;
} uct_cuda_plan_split_t;


/** Query to the model. */
typedef struct {
    const uct_cuda_topo_t        *topo;
    const uct_cuda_plan_config_t *config;
    const uct_cuda_plan_load_t   *load; /**< May be NULL */
    const uct_cuda_plan_model_t  *model;
    uct_cuda_end_t               src;   /**< GPU, or host memory */
    /** GPU, or host memory if src is a GPU */
    uct_cuda_end_t               dst;
    /** NUMA node of host memory on the way */
    int                          numa;
    double                       size;  /**< Bytes */
    /** load->queued, unless changed after uct_cuda_plan_model_start() */
    unsigned                     queued;
    /** Bytes/s of shared limits left for one copy, other copies using them,
     *  and of these the ones without alternative; filled by
     *  uct_cuda_plan_model_start() */
    double                       limits[UCT_CUDA_TOPO_MAX_LIMITS];
    unsigned                     others[UCT_CUDA_TOPO_MAX_LIMITS];
    unsigned                     direct[UCT_CUDA_TOPO_MAX_LIMITS];
} uct_cuda_plan_query_t;


/** Account for other traffic. Call it before the functions below. */
void uct_cuda_plan_model_start(uct_cuda_plan_query_t *query);


/** Return the bytes/s of a shared limit without other traffic. */
double uct_cuda_plan_model_limit(const uct_cuda_plan_query_t *query, int limit);


/** Return the bytes/s of a link by the topology; 0: no link. */
double uct_cuda_plan_model_bandwidth(const uct_cuda_topo_t *topo,
                                     uint16_t link);


/** Return whether sources disagree about a link. Such a link carries plain
 *  copies only. */
bool uct_cuda_plan_model_is_doubtful(const uct_cuda_topo_t *topo,
                                     uint16_t link);


/**
 * Fill in a path of this transfer as the model sees it.
 *
 * @param via  End at which it is staged; none: direct.
 *
 * @return false: the hardware has no such path, or it would be staged on an end
 *         of the transfer. *path_p is then undefined.
 */
bool uct_cuda_plan_model_path(const uct_cuda_plan_query_t *query,
                              uct_cuda_end_t via,
                              uct_cuda_plan_model_path_t *path_p);


/** Compute max-min fair rates, bytes/s, of paths running at the same time. */
void uct_cuda_plan_model_rates(const uct_cuda_plan_query_t *query,
                               const uct_cuda_plan_split_t *split,
                               double *rates_p);


/**
 * Return the time of a plain copy over the single path of @a split, s. Behind
 * other transfers: the time it adds to them.
 */
double uct_cuda_plan_model_single(const uct_cuda_plan_query_t *query,
                                  const uct_cuda_plan_split_t *split);


/** Return the time of a plain copy between GPUs without peer access, s: the
 *  driver copies through host memory. DBL_MAX: the host has no such path. */
double uct_cuda_plan_model_unlinked(const uct_cuda_plan_query_t *query);


/** Divide the bytes among the paths: as configured, or so that all end
 *  together. Fills bytes, chunks and seconds of @a split. Paths that could not
 *  start before the others end stay in it with 0 bytes. Behind a transfer
 *  whose paths end together, shares follow the rates. */
void uct_cuda_plan_model_solve(const uct_cuda_plan_query_t *query,
                               uct_cuda_plan_split_t *split);


/**
 * Model a window of transfers that use the paths of @a split in round robin,
 * each transfer one path: less work is submitted for each. Fills bytes (the
 * complete transfer for each path), chunks, and the seconds added by each
 * transfer to a window of the load's length.
 *
 * @param rates_p  Bytes/s of each path.
 */
void uct_cuda_plan_model_cycle(const uct_cuda_plan_query_t *query,
                               uct_cuda_plan_split_t *split, double *rates_p);


/** Return the seconds added by each transfer of a window if each uses all
 *  paths of a split, with its seconds and chunks filled. */
double uct_cuda_plan_model_window(const uct_cuda_plan_query_t *query,
                                  const uct_cuda_plan_split_t *split);


/** Return the chunk length that divides a part into this many chunks, bytes;
 *  the last chunk may be shorter. It is a multiple of UCT_CUDA_PLAN_ALIGN and
 *  fits into a staging slot, so there may be more or fewer chunks. */
uint64_t uct_cuda_plan_model_chunk(const uct_cuda_plan_query_t *query,
                                   uint64_t bytes, unsigned chunks);


/** Return the size of a staging slot, bytes. */
uint64_t uct_cuda_plan_slot_size(const uct_cuda_plan_config_t *config);


END_C_DECLS

#endif
