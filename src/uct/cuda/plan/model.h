/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The model: how long a transfer over a set of paths takes, and from that how
 * its bytes are best divided and cut. Knows nothing of CUDA; it is told the
 * node's links and limits, what else is going on, and the constants.
 *
 * A path takes  start + bytes * cost  seconds. A direct path's cost is
 * 1 / rate. A staged path of c chunks fills and drains a pipeline of two
 * copies, so that its cost is  1 / slow hop + 1 / (c * fast hop),  and every
 * chunk but the first leaves a gap on the link. Copies are submitted one after
 * the other, and where the processor is late a path's last chunk bounds it.
 * Shares are such that all paths end together, chunks such that a path carries
 * the most by then. In a window of transfers between the same GPUs only the
 * first one fills the paths; behind it shares go by the rates. Where submitting
 * all that takes longer than the links do, each transfer can take one path.
 *
 * Chunks of a path are alike: where both hops run at one rate, the pipeline
 * takes as long as all bytes once and the largest chunk once more, so that
 * smaller first or last chunks gain nothing.
 */
#ifndef UCT_CUDA_MP_MODEL_H
#define UCT_CUDA_MP_MODEL_H

#include <uct/cuda/base/topo.h>
#include <uct/cuda/plan/share.h>
#include <uct/cuda/plan/transfer_plan.h>

BEGIN_C_DECLS


/** Parts and chunks begin at multiples of this, bytes: copy engines like it. */
#define UCT_CUDA_MP_ALIGN 4096ul


/** Processor time of a CUDA graph's life, seconds for all nodes together. */
typedef struct {
    double nodes;        /**< Copies that it has */
    double add;          /**< Adding its nodes */
    double instantiate;
    double first_launch;
    double launch;       /**< Any later launch */
    double update;       /**< Giving all its copies other addresses */
} uct_cuda_mp_graph_cost_t;

/** Rows of them, by nodes: straight lines in between, and on. */
#define UCT_CUDA_MP_GRAPH_COSTS 4


/** Constants of the model. Seconds, unless said otherwise. */
typedef struct {
    double submit_copy;     /**< Processor time to submit one copy */
    double submit_chunk;    /**< ... and a chunk of a staged path: two copies
                                 and the events between them */
    double gap_gpu;         /**< Lost on a link between two chunks that go over
                                 a GPU */
    double gap_host;        /**< ... and over the host */
    double start_host;      /**< Until a path over the host is under way: more
                                 than others need */
    double doubt_host;      /**< What it may be late by on another day: gain
                                 that one path is left for has to exceed it */
    double start_relay;     /**< Until a relay is under way that has host memory
                                 at one end: more than its links need */
    double doubt_relay;     /**< What that may be late by */
    double gpu_efficiency;  /**< What links between GPUs of a socket give of
                                 what the probe makes of them */
    double host_efficiency; /**< ... links to the host, while the same memory
                                 is read and written */
    double socket_efficiency; /**< ... links between sockets */
    double wait;            /**< Until a copy starts whose waiting for another
                                 stream's has ended */
    double poll;            /**< Seeing that all is done; a link's latency has
                                 it */
    double join;            /**< Seeing that several paths have ended, against
                                 one */
    double message;         /**< Processor time that a message of a window takes
                                 besides submitting its copies ... */
    double path;            /**< ... and that each of its paths does: events,
                                 contexts, mappings */
    double graph;           /**< Times what graphs cost beside H200, where a
                                 copy costs submit_copy as it does there */
    double min_gain;        /**< Less than so many times faster than one path is
                                 not worth the trouble */
    uct_cuda_mp_graph_cost_t graphs[UCT_CUDA_MP_GRAPH_COSTS];
} uct_cuda_mp_model_t;


/** What is used when nobody has measured this node. */
extern const uct_cuda_mp_model_t uct_cuda_mp_model_builtin;


/** A constant by its name, for files and command lines. */
typedef struct {
    const char *name;
    size_t     offset; /**< Of a double in uct_cuda_mp_model_t */
    double     min;    /**< Exclusive, in its own unit */
    double     max;    /**< Inclusive */
} uct_cuda_mp_model_constant_t;


/** All of them; the last entry's name is NULL. */
extern const uct_cuda_mp_model_constant_t uct_cuda_mp_model_constants[];


/** Set constant @a index of uct_cuda_mp_model_constants from its text. False
 *  unless that is a number in its range. */
bool uct_cuda_mp_model_set(uct_cuda_mp_model_t *model, unsigned index,
                           const char *text);


/** Transfers of others that are under way on each lane, from or to the host
 *  included; and of them those whose own ends the lane joins, which have no
 *  other way as fast. */
typedef struct {
    bool     is_known; /**< Covers the whole node, not only this process */
    uint16_t queued;   /**< Large transfers of this process, same GPUs, that
                            are ahead of this one: its own paths are filled
                            behind theirs */
    uint16_t window;   /**< Such transfers that follow each other before all
                            before them have ended, this one counted: as it has
                            been of late */
    uint64_t uncrossed; /**< Bytes that have gone between these ends without
                             traffic that crossed them, since the last that
                             did */
    uint8_t  active[UCT_CUDA_MP_NUM_LANES];
    uint8_t  direct[UCT_CUDA_MP_NUM_LANES];
    uint64_t ahead[UCT_CUDA_MP_NUM_LANES]; /**< Bytes of those that are queued
                                                and have plans, by lane */
} uct_cuda_mp_load_t;


/** Whether anything comes to a transfer's source or leaves its destination: it
 *  crosses what the transfer would stage through the host. */
bool uct_cuda_mp_load_is_crossed(const uct_cuda_mp_load_t *load,
                                 uct_cuda_end_t src, uct_cuda_end_t dst);


/** A path as the model sees it. */
typedef struct {
    uct_cuda_mp_path_t path;
    unsigned           hops;
    uint16_t           lanes[UCT_CUDA_MP_MAX_HOPS];
    double             cap;     /**< Bytes/s, with nothing else in this
                                     transfer */
    double             rates[UCT_CUDA_MP_MAX_HOPS]; /**< ... of each hop */
    /** What limits the other hop, host memory say, does not limit this one */
    bool               is_free[UCT_CUDA_MP_MAX_HOPS];
    double             latency; /**< Seconds */
    double             margin;  /**< Seconds that it may be late by */
    double             gap;     /**< Seconds that a chunk costs the path */
    uct_cuda_share_way_t way;      /**< Shared limits of all hops */
    bool               is_busy; /**< Others use one of its lanes */
    bool               is_taken; /**< ... between their own ends, or what it
                                      shares with such a lane */
    double             share;   /**< Configured, or 0 */
    unsigned           chunks;  /**< Configured, or 0 */
} uct_cuda_mp_model_path_t;


/** A set of paths with what each carries and when all have ended. */
typedef struct {
    unsigned                       count;
    const uct_cuda_mp_model_path_t *paths[UCT_CUDA_MP_MAX_PATHS];
    double                         bytes[UCT_CUDA_MP_MAX_PATHS];
    unsigned                       chunks[UCT_CUDA_MP_MAX_PATHS]; /**< 0 where
                                                                       direct */
    double                         seconds;
} uct_cuda_mp_split_t;


/** A query to the model. */
typedef struct {
    const uct_cuda_topo_t      *topo;
    const uct_cuda_mp_config_t *config;
    const uct_cuda_mp_load_t   *load; /**< May be NULL */
    const uct_cuda_mp_model_t  *model;
    uct_cuda_end_t             src;   /**< A GPU, or host memory, which ... */
    uct_cuda_end_t             dst;   /**< ... not both of them are */
    int                        numa;  /**< Node of host memory on the way */
    double                     size;  /**< Bytes */
    unsigned                   queued; /**< The load's, unless set to something
                                            else after _start() */
    /** Bytes/s of shared limits that others leave to one copy, and the copies
     *  of others there, and of these the ones between their own ends; filled
     *  by _start() */
    double                     limits[UCT_CUDA_TOPO_MAX_LIMITS];
    unsigned                   others[UCT_CUDA_TOPO_MAX_LIMITS];
    unsigned                   direct[UCT_CUDA_TOPO_MAX_LIMITS];
} uct_cuda_mp_query_t;


/** Reckon with what others' transfers take; before anything else. */
void uct_cuda_mp_model_start(uct_cuda_mp_query_t *query);


/** Bytes/s of a shared limit with nothing else going on. */
double uct_cuda_mp_model_limit(const uct_cuda_mp_query_t *query, int limit);


/** Bytes/s of a lane's link by the topology alone; 0: there is none. */
double uct_cuda_mp_model_bandwidth(const uct_cuda_topo_t *topo, uint16_t lane);


/** Whether sources disagree on that, so that no path leads over it but the one
 *  of a plain copy. */
bool uct_cuda_mp_model_is_doubtful(const uct_cuda_topo_t *topo, uint16_t lane);


/** Describe a path of this transfer. @return false if the hardware has none. */
bool uct_cuda_mp_model_path(const uct_cuda_mp_query_t *query,
                            const uct_cuda_mp_path_t *path,
                            uct_cuda_mp_model_path_t *path_p);


/** Max-min fair rates, bytes/s, of paths that run at the same time. */
void uct_cuda_mp_model_rates(const uct_cuda_mp_query_t *query,
                             const uct_cuda_mp_split_t *split, double *rates_p);


/** Seconds of one plain copy over the one path of @a split: behind others, what
 *  it adds to them. */
double uct_cuda_mp_model_single(const uct_cuda_mp_query_t *query,
                                const uct_cuda_mp_split_t *split);


/** Give every path its bytes: so that all end together (behind a transfer whose
 *  paths all end together, that is what their rates say), paths that could not
 *  even start before the others are done getting none; or as configured. */
void uct_cuda_mp_model_solve(const uct_cuda_mp_query_t *query,
                             uct_cuda_mp_split_t *split);


/**
 * A window of transfers that each take one of @a split's paths, by turns: there
 * is less to submit for each. Fills bytes, all of a transfer on each path, and
 * chunks, and the seconds that each transfer adds to the window, which is as
 * long as the load says.
 *
 * @param rates_p  Bytes/s of each path.
 */
void uct_cuda_mp_model_turns(const uct_cuda_mp_query_t *query,
                             uct_cuda_mp_split_t *split, double *rates_p);


/** Those seconds if each transfer takes all paths of a split, whose seconds and
 *  chunks are filled. */
double uct_cuda_mp_model_window(const uct_cuda_mp_query_t *query,
                                const uct_cuda_mp_split_t *split);


/** Chunk length, bytes, for a part that is to have so many; the last chunk may
 *  be shorter. What was configured goes first. */
uint64_t uct_cuda_mp_model_chunk(const uct_cuda_mp_query_t *query,
                                 uint64_t bytes, unsigned chunks);


/** Bytes of a staging slot. */
uint64_t uct_cuda_mp_slot_size(const uct_cuda_mp_config_t *config);


END_C_DECLS

#endif
