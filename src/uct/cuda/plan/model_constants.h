/* SPDX-License-Identifier: BSD-3-Clause */
/* Constants of the model of transfers, as measured on nodes of one kind. */
#ifndef UCT_CUDA_PLAN_MODEL_CONSTANTS_H
#define UCT_CUDA_PLAN_MODEL_CONSTANTS_H

#include <ucs/sys/compiler_def.h>

#include <stdbool.h>
#include <stddef.h>

BEGIN_C_DECLS


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
extern const uct_cuda_plan_model_t uct_cuda_plan_model_builtin;


/** Name of a constant, for files and command lines. */
typedef struct {
    const char *name;
    size_t     offset; /**< Of a double in uct_cuda_plan_model_t */
    double     min;    /**< Exclusive, in its unit */
    double     max;    /**< Inclusive */
} uct_cuda_plan_model_constant_t;


/** All constants; the last entry's name is NULL. */
extern const uct_cuda_plan_model_constant_t uct_cuda_plan_model_constants[];


/**
 * Set constant @a index of uct_cuda_plan_model_constants from text.
 *
 * @return false: no number in its range.
 */
bool uct_cuda_plan_model_set(uct_cuda_plan_model_t *model, unsigned index,
                             const char *text);


END_C_DECLS

#endif
